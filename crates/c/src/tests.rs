//! The functions as a C program calls them, and as one misuses them.

use std::ffi::{CStr, CString, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr::{self, null, null_mut};
use std::thread;

use crate::code::punctual_code::{self, *};
use crate::code::{guarded, punctual_last_error, punctual_take_error};
use crate::rows::{punctual_row, punctual_rows, punctual_rows_free};
use crate::store::*;
use crate::watch::*;

const SECOND: u64 = 1_000_000_000;

fn last_error() -> String {
    // SAFETY: the library's own text, and no call in between.
    unsafe { CStr::from_ptr(punctual_last_error()) }
        .to_str()
        .unwrap()
        .to_owned()
}

fn at(bytes: &[u8]) -> *const c_void {
    bytes.as_ptr().cast()
}

fn object(key: &[u8]) -> punctual_object {
    punctual_object {
        key: at(key),
        key_len: key.len(),
        valid_for: 60 * SECOND,
        period: 0,
        max_len: 0,
        history: 3,
    }
}

fn options(objects: &[punctual_object]) -> punctual_options {
    punctual_options {
        folder: null(),
        durability: 0,
        quota: 0,
        objects: objects.as_ptr(),
        object_count: objects.len(),
    }
}

/// Opens a store; the code of the failure.
fn open(options: &punctual_options) -> Result<*mut punctual_store, punctual_code> {
    let mut store = ptr::without_provenance_mut(7);
    // SAFETY: both addresses are of variables, and all that `options` names lives.
    match unsafe { punctual_store_open(options, size_of::<punctual_options>(), &mut store) } {
        PUNCTUAL_OK => Ok(store),
        code => {
            assert!(store.is_null() && !last_error().is_empty());
            Err(code)
        }
    }
}

fn in_memory() -> *mut punctual_store {
    open(&options(&[object(b"battery")])).unwrap()
}

fn in_folder(folder: &Path, quota: u64) -> Result<*mut punctual_store, punctual_code> {
    let folder = CString::new(folder.as_os_str().as_bytes()).unwrap();
    open(&punctual_options {
        folder: folder.as_ptr(),
        durability: 1,
        quota,
        ..options(&[])
    })
}

fn put(store: *mut punctual_store, key: &[u8], value: &[u8]) -> punctual_code {
    // SAFETY: both slices are readable.
    unsafe { punctual_store_put(store, at(key), key.len(), at(value), value.len()) }
}

fn delete(store: *mut punctual_store, key: &[u8]) -> punctual_code {
    // SAFETY: the slice is readable.
    unsafe { punctual_store_delete(store, at(key), key.len()) }
}

/// The value of a key; the code of the failure.
fn get(store: *mut punctual_store, key: &[u8]) -> Result<Vec<u8>, punctual_code> {
    let (mut value, mut len) = ([0u8; 64], 99);
    let room = value.len();
    // SAFETY: the slices are readable and writable.
    match unsafe { punctual_store_get(store, at(key), key.len(), value.as_mut_ptr().cast(), room, &mut len) } {
        PUNCTUAL_OK => Ok(value[..len].to_vec()),
        code => Err(code),
    }
}

fn offer(store: *mut punctual_store, key: &[u8], value: &[u8], age: u64) -> punctual_code {
    // SAFETY: both slices are readable.
    unsafe { punctual_store_offer(store, at(key), key.len(), at(value), value.len(), age) }
}

fn read(store: *mut punctual_store, key: &[u8], max_age: u64) -> Result<(Vec<u8>, punctual_reading), punctual_code> {
    let (mut value, mut reading) = (
        [0u8; 64],
        punctual_reading {
            len: 0,
            age: 0,
            number: 0,
            fresh: false,
        },
    );
    let (to, room) = (value.as_mut_ptr().cast(), value.len());
    // SAFETY: the slices are readable and writable.
    match unsafe { punctual_store_read(store, at(key), key.len(), max_age, to, room, &mut reading) } {
        PUNCTUAL_OK => Ok((value[..reading.len].to_vec(), reading)),
        code => Err(code),
    }
}

fn write(kind: u32, key: &[u8], value: &[u8]) -> punctual_write {
    punctual_write {
        kind,
        key: at(key),
        key_len: key.len(),
        value: at(value),
        value_len: value.len(),
        life: 0,
    }
}

fn commit(store: *mut punctual_store, writes: &[punctual_write]) -> punctual_code {
    // SAFETY: the array and its slices are readable.
    unsafe { punctual_store_commit(store, writes.as_ptr(), writes.len(), 3_600 * SECOND, true) }
}

type Pairs = Vec<(Vec<u8>, Vec<u8>)>;

/// Records as pairs, taken from the rows, which are freed.
fn pairs(call: impl FnOnce(*mut *mut punctual_rows) -> punctual_code) -> Result<Pairs, punctual_code> {
    let mut rows = null_mut();
    let code = call(&mut rows);
    if code != PUNCTUAL_OK {
        assert!(rows.is_null());
        return Err(code);
    }
    // SAFETY: rows that the library has just made, with the lengths that it says.
    unsafe {
        let head = &*rows;
        let mut all = Vec::new();
        let slice = |start: *const c_void, len| match len {
            0 => Vec::new(),
            _ => std::slice::from_raw_parts(start.cast::<u8>(), len).to_vec(),
        };
        let pairs: Vec<_> = std::slice::from_raw_parts(head.row, head.count)
            .iter()
            .map(|row: &punctual_row| (slice(row.key, row.key_len), slice(row.value, row.value_len)))
            .collect();
        pairs.iter().for_each(|(_, value)| all.extend_from_slice(value));
        assert_eq!(all, slice(head.values, head.values_len));
        punctual_rows_free(rows);
        Ok(pairs)
    }
}

fn watch(store: *mut punctual_store, key: &[u8], prefix: bool) -> *mut punctual_watch {
    let mut watch = null_mut();
    // SAFETY: the slice is readable, the address a variable's.
    let code = unsafe { punctual_store_watch(store, at(key), key.len(), prefix, 2, &mut watch) };
    assert_eq!(code, PUNCTUAL_OK, "{}", last_error());
    watch
}

/// Kind, key and number of the next change.
fn next(watch: *mut punctual_watch, timeout: u64) -> Result<(u32, Vec<u8>, u64), punctual_code> {
    let mut change = punctual_change {
        kind: 0,
        key_len: 0,
        number: 0,
        key: [0; 512],
    };
    // SAFETY: the address is a variable's.
    match unsafe { punctual_watch_next(watch, timeout, &mut change) } {
        PUNCTUAL_OK => Ok((
            change.kind,
            change.key[..change.key_len as usize].to_vec(),
            change.number,
        )),
        code => Err(code),
    }
}

#[test]
fn records_are_set_read_removed_and_committed_together() {
    let store = in_memory();
    assert_eq!(put(store, b"door", b"open"), PUNCTUAL_OK);
    assert_eq!(put(store, b"empty", b""), PUNCTUAL_OK);
    assert_eq!(get(store, b"door"), Ok(b"open".to_vec()));
    assert_eq!(get(store, b"empty"), Ok(Vec::new()));
    assert_eq!(
        (delete(store, b"empty"), delete(store, b"empty")),
        (PUNCTUAL_OK, PUNCTUAL_NOT_FOUND)
    );
    let moves = [
        write(PUNCTUAL_EXPECT, b"door", b"open"),
        write(PUNCTUAL_EXPECT_NONE, b"room", b""),
        write(PUNCTUAL_PUT, b"room", b"kitchen"),
        write(PUNCTUAL_DELETE, b"door", b""),
        write(PUNCTUAL_DELETE, b"none", b""),
    ];
    assert_eq!(commit(store, &moves), PUNCTUAL_OK);
    assert_eq!(get(store, b"room"), Ok(b"kitchen".to_vec()));
    assert_eq!(commit(store, &moves[1..]), PUNCTUAL_CONFLICT);
    assert!(last_error().contains("room"), "{}", last_error());
    assert_eq!(commit(store, &moves[..1]), PUNCTUAL_CONFLICT);
    let half = [
        write(PUNCTUAL_PUT, b"half", b"done"),
        write(PUNCTUAL_PUT, b"battery", b""),
    ];
    assert_eq!(
        (commit(store, &half), get(store, b"half")),
        (PUNCTUAL_KIND, Err(PUNCTUAL_NOT_FOUND))
    );
    let brief = punctual_write {
        life: 1,
        ..write(PUNCTUAL_PUT, b"brief", b"gone")
    };
    assert_eq!(
        (commit(store, &[brief]), get(store, b"brief")),
        (PUNCTUAL_OK, Err(PUNCTUAL_NOT_FOUND))
    );
    assert_eq!(punctual_store_close(store), PUNCTUAL_OK);
}

#[test]
fn ranges_and_prefixes_come_from_both_ends_up_to_a_limit() {
    let store = in_memory();
    let names = ["a", "b/1", "b/2", "c", "\u{7f}"];
    for name in names {
        assert_eq!(put(store, name.as_bytes(), name.as_bytes()), PUNCTUAL_OK);
    }
    assert_eq!(put(store, b"\xff\xff", b"last"), PUNCTUAL_OK);
    let range = |low: &[u8], high: &[u8], limit, reverse| {
        // SAFETY: both slices are readable, or NULL.
        let found = pairs(|rows| unsafe {
            let bound = |key: &[u8]| if key.is_empty() { null() } else { at(key) };
            punctual_store_range(
                store,
                bound(low),
                low.len(),
                bound(high),
                high.len(),
                limit,
                reverse,
                rows,
            )
        });
        found.map(|found| found.into_iter().map(|(key, _)| key).collect::<Vec<_>>())
    };
    assert_eq!(range(b"", b"", 0, false).unwrap().len(), 6);
    assert_eq!(range(b"a", b"b/2", 0, false).unwrap(), [&b"a"[..], b"b/1"]);
    assert_eq!(range(b"", b"c", 2, true).unwrap(), [&b"b/2"[..], b"b/1"]);
    assert_eq!(range(b"x", b"y", 0, false).unwrap(), [[0u8; 0]; 0]);
    assert_eq!(range(b"c", b"a", 0, false), Err(PUNCTUAL_ARGUMENT));
    let prefix = |prefix: &[u8], reverse| {
        // SAFETY: the slice is readable.
        let found = pairs(|rows| unsafe { punctual_store_prefix(store, at(prefix), prefix.len(), 0, reverse, rows) });
        found.unwrap().into_iter().map(|(key, _)| key).collect::<Vec<_>>()
    };
    assert_eq!(prefix(b"b/", true), [&b"b/2"[..], b"b/1"]);
    assert_eq!(prefix(b"\xff", false), [&b"\xff\xff"[..]]);
    assert_eq!(prefix(b"", false).len(), 6);
    assert_eq!(punctual_store_close(store), PUNCTUAL_OK);
}

#[test]
fn readings_have_an_age_a_number_and_a_history() {
    let store = in_memory();
    assert_eq!(read(store, b"battery", 0).err(), Some(PUNCTUAL_NOT_FOUND));
    for volts in [12.6f64, 12.5, 12.4, 12.3] {
        assert_eq!(offer(store, b"battery", &volts.to_le_bytes(), 0), PUNCTUAL_OK);
    }
    let (value, reading) = read(store, b"battery", 0).unwrap();
    assert_eq!(
        (value, reading.number, reading.fresh),
        (12.3f64.to_le_bytes().to_vec(), 4, true)
    );
    assert!(!read(store, b"battery", 1).unwrap().1.fresh);
    assert_eq!(get(store, b"battery"), Ok(12.3f64.to_le_bytes().to_vec()));
    // SAFETY: the slice is readable.
    let history = pairs(|rows| unsafe { punctual_store_history(store, at(b"battery"), 7, rows) }).unwrap();
    let volts: Vec<f64> = history
        .iter()
        .map(|(_, value)| f64::from_le_bytes(value[..].try_into().unwrap()))
        .collect();
    assert_eq!(volts, [12.5, 12.4, 12.3]);
    assert_eq!(offer(store, b"battery", b"12345678", 61 * SECOND), PUNCTUAL_OK);
    let (_, reading) = read(store, b"battery", 0).unwrap();
    assert!(!reading.fresh && reading.age >= 61 * SECOND, "{} ns", reading.age);
    assert_eq!(offer(store, b"battery", b"123456789", 0), PUNCTUAL_VALUE);
    assert_eq!(offer(store, b"battery", b"12345678", u64::MAX), PUNCTUAL_ARGUMENT);
    assert_eq!(offer(store, b"door", b"", 0), PUNCTUAL_KIND);
    assert_eq!(read(store, b"door", 0).err(), Some(PUNCTUAL_KIND));
    let mut figures = punctual_figures::default();
    // SAFETY: the address is a variable's.
    let code = unsafe { punctual_store_figures(store, &mut figures, size_of::<punctual_figures>()) };
    assert_eq!(
        (code, figures.objects, figures.offered, figures.fresh_share),
        (PUNCTUAL_OK, 1, 5, 0.0)
    );
    assert_eq!(figures.installed + figures.superseded, 5);
    assert_eq!(punctual_store_close(store), PUNCTUAL_OK);
}

#[test]
fn a_watch_sees_each_change_or_counts_it_and_ends_with_its_store() {
    let store = in_memory();
    let (rooms, battery) = (watch(store, b"room/", true), watch(store, b"battery", false));
    assert_eq!(next(rooms, 0), Err(PUNCTUAL_TIMEOUT));
    assert_eq!(next(rooms, 1), Err(PUNCTUAL_TIMEOUT));
    put(store, b"room/1", b"warm");
    delete(store, b"room/1");
    put(store, b"room/2", b"warm");
    offer(store, b"battery", b"8 volts.", 0);
    assert_eq!(next(rooms, SECOND), Ok((PUNCTUAL_CHANGE_PUT, b"room/1".to_vec(), 0)));
    assert_eq!(
        next(rooms, SECOND),
        Ok((PUNCTUAL_CHANGE_DELETED, b"room/1".to_vec(), 0))
    );
    assert_eq!(next(rooms, SECOND), Ok((PUNCTUAL_CHANGE_MISSED, Vec::new(), 1)));
    assert_eq!(
        next(battery, SECOND),
        Ok((PUNCTUAL_CHANGE_READING, b"battery".to_vec(), 1))
    );
    // A wait ends with its watch: the one is closed by itself, the other with its store.
    thread::scope(|scope| {
        let waits = [rooms, battery].map(|watch| {
            let watch = watch.addr();
            scope.spawn(move || next(ptr::without_provenance_mut(watch), u64::MAX))
        });
        assert_eq!(punctual_watch_close(rooms), PUNCTUAL_OK);
        assert_eq!(punctual_store_close(store), PUNCTUAL_OK);
        for wait in waits {
            assert_eq!(wait.join().unwrap(), Err(PUNCTUAL_CLOSED));
        }
    });
    assert_eq!(next(battery, u64::MAX), Err(PUNCTUAL_CLOSED));
    assert_eq!(
        (punctual_watch_close(battery), punctual_watch_close(battery)),
        (PUNCTUAL_OK, PUNCTUAL_CLOSED)
    );
}

#[test]
fn null_closed_and_foreign_handles_are_refused() {
    let none: *mut punctual_store = null_mut();
    assert_eq!(put(none, b"a", b""), PUNCTUAL_ARGUMENT);
    assert_eq!(
        (punctual_store_close(none), punctual_watch_close(null_mut())),
        (PUNCTUAL_OK, PUNCTUAL_OK)
    );
    // SAFETY: NULL is what these functions are to refuse, and to ignore.
    unsafe {
        punctual_rows_free(null_mut());
        assert_eq!(punctual_store_open(null(), 0, &mut null_mut()), PUNCTUAL_ARGUMENT);
        assert_eq!(
            punctual_store_open(&options(&[]), 4, &mut null_mut()),
            PUNCTUAL_ARGUMENT
        );
        assert_eq!(
            punctual_store_open(&options(&[]), size_of::<punctual_options>(), null_mut()),
            PUNCTUAL_ARGUMENT
        );
        let store = in_memory();
        let room = &mut [0u8; 4];
        let mut len = 0;
        assert_eq!(punctual_store_put(store, null(), 1, null(), 0), PUNCTUAL_ARGUMENT);
        assert_eq!(
            punctual_store_put(store, at(b"a"), usize::MAX, null(), 0),
            PUNCTUAL_ARGUMENT
        );
        assert_eq!(punctual_store_put(store, at(b"a"), 1, null(), 1), PUNCTUAL_ARGUMENT);
        assert_eq!(
            punctual_store_get(store, at(b"a"), 1, null_mut(), 0, null_mut()),
            PUNCTUAL_ARGUMENT
        );
        assert_eq!(punctual_store_commit(store, null(), 1, 0, false), PUNCTUAL_ARGUMENT);
        assert_eq!(
            punctual_store_commit(store, null(), usize::MAX, 0, false),
            PUNCTUAL_ARGUMENT
        );
        let strange = punctual_write {
            kind: 77,
            ..write(PUNCTUAL_PUT, b"a", b"")
        };
        assert_eq!(commit(store, &[strange]), PUNCTUAL_ARGUMENT);
        assert_eq!(
            punctual_store_range(store, null(), 0, null(), 0, 0, false, null_mut()),
            PUNCTUAL_ARGUMENT
        );
        assert_eq!(
            punctual_store_history(store, at(b"battery"), 7, null_mut()),
            PUNCTUAL_ARGUMENT
        );
        assert_eq!(punctual_store_figures(store, null_mut(), 0), PUNCTUAL_ARGUMENT);
        assert_eq!(
            punctual_store_figures(store, &mut punctual_figures::default(), 1),
            PUNCTUAL_ARGUMENT
        );
        put(store, b"door", b"open wide");
        assert_eq!(
            punctual_store_get(store, at(b"door"), 4, room.as_mut_ptr().cast(), 4, &mut len),
            PUNCTUAL_TOO_SHORT
        );
        assert_eq!((len, *room), (9, [0; 4]));
        assert_eq!(
            punctual_store_get(store, at(b"none"), 4, room.as_mut_ptr().cast(), 4, &mut len),
            PUNCTUAL_NOT_FOUND
        );
        assert_eq!(len, 0);
        assert_eq!(
            punctual_store_put(store, at(b"a"), 1, at(b"a"), (1 << 30) + 1),
            PUNCTUAL_VALUE
        );
        let odd = (&raw mut len).wrapping_byte_add(1);
        assert_eq!(
            punctual_store_get(store, at(b"door"), 4, null_mut(), 0, odd),
            PUNCTUAL_ARGUMENT
        );
        assert!(last_error().contains("value_len"), "{}", last_error());
        let firm = write(PUNCTUAL_PUT, b"a", b"");
        assert_eq!(punctual_store_commit(store, &firm, 1, 0, true), PUNCTUAL_ARGUMENT);
        for capacity in [0, (1 << 16) + 1, usize::MAX] {
            let begun = punctual_store_watch(store, at(b"a"), 1, false, capacity, &mut null_mut());
            assert_eq!(begun, PUNCTUAL_ARGUMENT);
        }
        assert_eq!(
            punctual_store_get(store, at(b"door"), 4, null_mut(), 9, &mut len),
            PUNCTUAL_ARGUMENT
        );
        assert_eq!(
            punctual_watch_next(store.cast(), 0, &mut std::mem::zeroed()),
            PUNCTUAL_CLOSED
        );
        assert_eq!(
            punctual_watch_next(null_mut(), 0, &mut std::mem::zeroed()),
            PUNCTUAL_ARGUMENT
        );
        assert_eq!(punctual_store_close(store), PUNCTUAL_OK);
        assert_eq!(punctual_store_close(store), PUNCTUAL_CLOSED);
        assert_eq!(put(store, b"a", b""), PUNCTUAL_CLOSED);
        // The next store may take the same place, and is another one.
        let other = in_memory();
        assert_eq!(
            (put(store, b"a", b""), put(other, b"a", b"")),
            (PUNCTUAL_CLOSED, PUNCTUAL_OK)
        );
        assert_eq!(punctual_store_close(other), PUNCTUAL_OK);
    }
}

#[test]
fn keys_settings_and_folders_that_cannot_be_are_refused_with_the_remedy() {
    let store = in_memory();
    for key in [&b""[..], &[b'k'; 512], b"\0punctual/x"] {
        assert_eq!(put(store, key, b""), PUNCTUAL_KEY, "{}", key.escape_ascii());
    }
    assert_eq!(put(store, b"battery", b"7"), PUNCTUAL_KIND);
    assert_eq!(put(store, &[b'k'; 511], b""), PUNCTUAL_OK);
    assert_eq!(punctual_store_close(store), PUNCTUAL_OK);

    let timeless = punctual_object {
        valid_for: 0,
        ..object(b"battery")
    };
    let huge = punctual_object {
        max_len: usize::MAX,
        ..object(b"battery")
    };
    assert_eq!(open(&options(&[timeless])), Err(PUNCTUAL_SETTING));
    assert_eq!(open(&options(&[huge])), Err(PUNCTUAL_VALUE));
    assert_eq!(open(&options(&[object(b"a"), object(b"a")])), Err(PUNCTUAL_KEY));
    for (durability, quota) in [(1, 0), (9, 0), (0, 1 << 20)] {
        let wrong = punctual_options {
            durability,
            quota,
            ..options(&[])
        };
        assert_eq!(open(&wrong), Err(PUNCTUAL_SETTING));
    }
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    std::fs::write(&file, "no store").unwrap();
    assert_eq!(in_folder(&file, 0), Err(PUNCTUAL_IO), "{}", last_error());
    assert_eq!(in_folder(folder.path(), 1), Err(PUNCTUAL_SETTING));
}

#[test]
fn a_full_quota_refuses_puts_and_a_second_opening_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let store = in_folder(folder.path(), 2 << 20).unwrap();
    assert_eq!(in_folder(folder.path(), 2 << 20), Err(PUNCTUAL_IN_USE));
    let value = [7; 4000];
    let full = (0..u16::MAX)
        .map(|number| put(store, &number.to_be_bytes(), &value))
        .find(|code| *code != PUNCTUAL_OK);
    assert_eq!(full, Some(PUNCTUAL_FULL));
    assert!(last_error().contains("raise quota"), "{}", last_error());
    assert_eq!(
        (delete(store, &[0, 0]), get(store, &[0, 1])),
        (PUNCTUAL_OK, Err(PUNCTUAL_TOO_SHORT))
    );
    assert_eq!(punctual_store_flush(store), PUNCTUAL_OK);
    assert_eq!(punctual_store_close(store), PUNCTUAL_OK);
    let again = in_folder(folder.path(), 2 << 20).unwrap();
    assert_eq!(get(again, &[0, 0]), Err(PUNCTUAL_NOT_FOUND));
    assert_eq!(punctual_store_close(again), PUNCTUAL_OK);
}

#[test]
fn a_store_is_closed_beside_threads_that_use_it() {
    let folder = tempfile::tempdir().unwrap();
    for _ in 0..20 {
        let store = in_folder(folder.path(), 0).unwrap();
        thread::scope(|scope| {
            for name in [b"a", b"b"] {
                let store = store.addr();
                scope.spawn(move || {
                    let store = ptr::without_provenance_mut(store);
                    let ended = (0..u64::MAX)
                        .map(|_| put(store, name, name))
                        // Late: on a loaded machine.
                        .find(|code| ![PUNCTUAL_OK, PUNCTUAL_LATE].contains(code));
                    assert_eq!(ended, Some(PUNCTUAL_CLOSED), "{}", last_error());
                });
            }
            let address = store.addr();
            scope.spawn(move || {
                let store = ptr::without_provenance_mut(address);
                let mut watch = null_mut();
                // SAFETY: the address is a variable's.
                match unsafe { punctual_store_watch(store, null(), 0, true, 1, &mut watch) } {
                    PUNCTUAL_OK => {
                        while next(watch, u64::MAX).is_ok() {}
                        assert_eq!(punctual_watch_close(watch), PUNCTUAL_OK);
                    }
                    code => assert!([PUNCTUAL_CLOSED, PUNCTUAL_LATE].contains(&code), "{code:?}"),
                }
            });
            assert_eq!(punctual_store_close(store), PUNCTUAL_OK);
            // No call holds it any more.
            let again = in_folder(folder.path(), 0).unwrap();
            assert_eq!(punctual_store_close(again), PUNCTUAL_OK);
        });
    }
}

#[test]
fn an_offer_beside_a_close_is_kept_or_refused() {
    let folder = tempfile::tempdir().unwrap();
    let name = CString::new(folder.path().as_os_str().as_bytes()).unwrap();
    let objects = [object(b"battery")];
    let settings = punctual_options {
        folder: name.as_ptr(),
        durability: PUNCTUAL_VOLATILE,
        ..options(&objects)
    };
    let mut kept = 0;
    for _ in 0..20 {
        let store = open(&settings).unwrap();
        let address = store.addr();
        let last = thread::scope(|scope| {
            let offers = scope.spawn(move || {
                let store = ptr::without_provenance_mut(address);
                (kept + 1..)
                    .take_while(|number: &u64| offer(store, b"battery", &number.to_le_bytes(), 0) == PUNCTUAL_OK)
                    .last()
            });
            assert_eq!(punctual_store_close(store), PUNCTUAL_OK);
            offers.join().unwrap()
        });
        kept = last.unwrap_or(kept);
        let again = open(&settings).unwrap();
        let found = read(again, b"battery", 0).ok().map(|(value, _)| value);
        assert_eq!(found, (kept > 0).then(|| kept.to_le_bytes().to_vec()));
        assert_eq!(punctual_store_close(again), PUNCTUAL_OK);
    }
}

#[test]
fn a_forked_child_is_refused() {
    let store = in_memory();
    let watch = watch(store, b"a", false);
    // SAFETY: the child calls functions that take no lock which another thread may hold, and ends without a return.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let refused = [
            put(store, b"a", b""),
            offer(store, b"battery", b"", 0),
            punctual_store_close(store),
        ];
        let waits = next(watch, u64::MAX) == Err(PUNCTUAL_FORKED);
        let is_right = waits && refused == [PUNCTUAL_FORKED; 3] && punctual_watch_close(watch) == PUNCTUAL_FORKED;
        // SAFETY: nothing of the parent is run at the child's end.
        unsafe { libc::_exit(i32::from(!is_right)) };
    }
    let mut status = -1;
    // SAFETY: the status is a variable's.
    assert_eq!((unsafe { libc::waitpid(child, &mut status, 0) }, status), (child, 0));
    assert_eq!(
        (put(store, b"a", b""), punctual_store_close(store)),
        (PUNCTUAL_OK, PUNCTUAL_OK)
    );
    assert_eq!(punctual_watch_close(watch), PUNCTUAL_OK);
}

#[test]
fn a_panic_ends_at_the_border_and_texts_are_of_a_thread() {
    assert_eq!(guarded::<()>(|| panic!("a fault \0 {}", 7)), PUNCTUAL_PANIC);
    assert_eq!(last_error(), "a fault \\0 7");
    thread::spawn(|| assert_eq!(last_error(), "")).join().unwrap();
    assert_eq!(guarded::<()>(|| std::panic::panic_any(7)), PUNCTUAL_PANIC);
    assert_eq!(last_error(), "the library panicked");
    // A call that interrupts takes its own text, and leaves that of the call before.
    let interrupts = || {
        assert_eq!(put(null_mut(), b"a", b""), PUNCTUAL_ARGUMENT);
        // SAFETY: the library's own text, and no call in between.
        unsafe { CStr::from_ptr(punctual_take_error()) }
            .to_str()
            .unwrap()
            .to_owned()
    };
    for _ in 0..20 {
        assert!(interrupts().contains("NULL"));
    }
    assert_eq!(last_error(), "the library panicked");
}

/// Skipped where there is no Python, or the library was not built with the tests.
#[test]
fn python_has_what_its_module_promises() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let program = std::env::current_exe().unwrap();
    let library = program.with_file_name("../examples/libpunctual.so");
    let python = |arguments: &[&std::ffi::OsStr]| {
        let mut python = std::process::Command::new("python3");
        python.arg("-B").args(arguments).env("PUNCTUAL_LIBRARY", &library);
        python.env("PYTHONPATH", folder.join("../../include")).output()
    };
    let supported = "import sys, ctypes, asyncio; sys.exit(sys.version_info < (3, 8))";
    let is_supported = python(&["-c".as_ref(), supported.as_ref()]).is_ok_and(|it| it.status.success());
    // Only `cargo test` as a whole builds the library; an older one promises less.
    let changed = |path: &Path| path.metadata().and_then(|it| it.modified()).ok();
    let sources = ["code", "handles", "lib", "rows", "store", "watch"].map(|file| format!("src/{file}.rs"));
    let newest = sources.iter().map(|file| changed(&folder.join(file))).max().flatten();
    if !is_supported || changed(&library) < newest {
        return eprintln!(
            "skipped: no Python from 3.8 on, or no library of today at {}",
            library.display()
        );
    }
    let output = python(&[folder.join("src/check.py").as_ref()]).unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}");
}

/// With HEADER=write in the environment it writes the header.
#[test]
fn the_header_is_what_the_sources_say() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut builder =
        cbindgen::Builder::new().with_config(cbindgen::Config::from_file(folder.join("cbindgen.toml")).unwrap());
    for file in ["code", "store", "rows", "watch"] {
        builder = builder.with_src(folder.join(format!("src/{file}.rs")));
    }
    let mut made = Vec::new();
    builder.generate().unwrap().write(&mut made);
    let header = folder.join("../../include/punctual.h");
    if std::env::var("HEADER").as_deref() == Ok("write") {
        std::fs::write(&header, &made).unwrap();
    }
    let kept = std::fs::read(&header).unwrap();
    assert!(
        kept == made,
        "include/punctual.h is not what crates/c says: run HEADER=write cargo test -p punctual-c"
    );
}
