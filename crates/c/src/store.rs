//! The store's functions: open, read, write, sensors, figures.

// Functions trust their caller's pointers, as the header says.
#![allow(unsafe_op_in_unsafe_fn)]

use std::cell::RefCell;
use std::ffi::{CStr, OsStr, c_char, c_void};
use std::ops::Bound;
use std::os::unix::ffi::OsStrExt;
use std::sync::{Arc, Mutex, PoisonError, RwLock, TryLockError, Weak};

use punctual::store::{Engine, ObjectId, SensorId};
use punctual::{Clock, Deadline, Durability, LinuxOs, Nanos, ObjectSpec, ReadingBuffer, Store, StoreError, Time};

use crate::code::punctual_code::{self, PUNCTUAL_ARGUMENT, PUNCTUAL_CONFLICT, PUNCTUAL_NOT_FOUND, PUNCTUAL_SETTING};
use crate::code::{Failure, array, bounded, bytes, check_size, copy, guarded, place};
use crate::handles::{CLOSED, Handles};
use crate::rows::{Rows, punctual_rows};
use crate::watch::OpenWatch;

/// Largest buffer for a reading that a thread keeps, in bytes.
const KEPT_MAX: usize = 64 << 10;

/// An open store, one of at most 1024. Its functions may be called by any number of threads.
pub struct punctual_store {
    _opaque: [u8; 0],
}

/// Durability: a write that has returned survives a power cut (docs/guide/store.md).
pub const PUNCTUAL_DURABLE: u32 = 0;
/// Durability: it survives one once another write, or a flush, has returned.
pub const PUNCTUAL_NO_META_SYNC: u32 = 1;
/// Durability: it survives the process; the machine's end may destroy the store.
pub const PUNCTUAL_VOLATILE: u32 = 2;

/// A temporal object: a value that a sensor reports, and that has an age. A field that is 0 has its default; one of
/// `valid_for` and `period` is needed.
#[repr(C)]
pub struct punctual_object {
    /// Key of the object.
    pub key: *const c_void,
    /// Bytes of the key, 1 to 511.
    pub key_len: usize,
    /// Nanoseconds for which a reading is fresh; 0: two periods.
    pub valid_for: u64,
    /// Nanoseconds between two readings; 0: half of `valid_for`.
    pub period: u64,
    /// Longest value in bytes; 0: 8, for a double.
    pub max_len: usize,
    /// Number of last values that are kept in memory; 0: the latest.
    pub history: usize,
}

/// Settings of a store. A field that is 0 has its default.
#[repr(C)]
pub struct punctual_options {
    /// Folder of the store, made if it is missing; NULL: a store in memory, which takes neither of the next two.
    pub folder: *const c_char,
    /// PUNCTUAL_DURABLE, PUNCTUAL_NO_META_SYNC or PUNCTUAL_VOLATILE.
    pub durability: u32,
    /// Most bytes that puts take in the file, at least 1 MiB; 0: 1 GiB.
    pub quota: u64,
    /// The temporal objects, `object_count` of them.
    pub objects: *const punctual_object,
    /// Number of temporal objects.
    pub object_count: usize,
}

/// Write: sets the record to the value.
pub const PUNCTUAL_PUT: u32 = 0;
/// Write: removes the record, if it is there.
pub const PUNCTUAL_DELETE: u32 = 1;
/// Write: changes nothing; the commit is refused unless the record, or object, has this value.
pub const PUNCTUAL_EXPECT: u32 = 2;
/// Write: changes nothing; the commit is refused if the record is there, or the object has a value.
pub const PUNCTUAL_EXPECT_NONE: u32 = 3;

/// A write in a commit.
#[repr(C)]
pub struct punctual_write {
    /// PUNCTUAL_PUT, PUNCTUAL_DELETE, PUNCTUAL_EXPECT or PUNCTUAL_EXPECT_NONE.
    pub kind: u32,
    /// Key of the record, or of the object.
    pub key: *const c_void,
    /// Bytes of the key, 1 to 511; 480 with a life.
    pub key_len: usize,
    /// The value, of a put and of an expectation.
    pub value: *const c_void,
    /// Bytes of the value, at most 1 GiB.
    pub value_len: usize,
    /// Nanoseconds after which a record that is put is gone; 0: it stays.
    pub life: u64,
}

/// A value of a temporal object.
#[repr(C)]
pub struct punctual_reading {
    /// Bytes of the value.
    pub len: usize,
    /// Nanoseconds since it was sampled; UINT64_MAX: unknown, after a restart of the machine.
    pub age: u64,
    /// Number of the reading, from 1 in each run; 0: kept from an earlier run.
    pub number: u64,
    /// Whether it is not older than asked for.
    pub fresh: bool,
}

/// Figures of a store since it was opened.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct punctual_figures {
    /// Number of temporal objects.
    pub objects: u64,
    /// Share of them whose value is fresh now, 0 to 1.
    pub fresh_share: f64,
    /// Readings that were offered and not refused.
    pub offered: u64,
    /// Readings whose values reached the store.
    pub installed: u64,
    /// Readings that a newer one of their object has overtaken.
    pub superseded: u64,
    /// Most bytes of the file; 0: no bound.
    pub quota: u64,
    /// Bytes that the file takes.
    pub taken: u64,
    /// Bytes of it with records.
    pub data: u64,
    /// Snapshots that are open.
    pub readers: u64,
    /// Snapshots that were ended because they stood in the way of writers.
    pub readers_ended: u64,
}

/// A store, and what its handle adds.
pub(crate) struct OpenStore {
    pub store: Arc<Store>,
    /// Time for which a reading of each object is fresh, by its number.
    validity: Vec<Nanos>,
    /// Watches that end with the handle.
    pub watches: Mutex<Vec<Weak<OpenWatch>>>,
}

/// Open stores. A call shares the lock of its store; a close takes that lock alone, and leaves `None`.
static STORES: Handles<RwLock<Option<OpenStore>>> = Handles::new();

/// Opens a store. `size` is `sizeof(struct punctual_options)`. One process has a store in a folder open at a time. The
/// opening reads each page of the file, to find damage. While it is open, its process must not open, copy or delete the
/// files in its folder, nor load a second copy of this library: each removes the lock that keeps other processes out.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn punctual_store_open(
    options: *const punctual_options,
    size: usize,
    store: *mut *mut punctual_store,
) -> punctual_code {
    guarded(|| {
        let store = place(store, "store")?;
        store.write(std::ptr::null_mut());
        check_size::<punctual_options>(size)?;
        let open = open(&*place(options.cast_mut(), "options")?)?;
        let handle = STORES.open(Arc::new(RwLock::new(Some(open))))?;
        store.write(std::ptr::without_provenance_mut(handle));
        Ok(())
    })
}

unsafe fn open(options: &punctual_options) -> Result<OpenStore, Failure> {
    let mut builder = match options.folder.is_null() {
        true => Store::in_memory(),
        false => Store::builder(OsStr::from_bytes(CStr::from_ptr(options.folder).to_bytes())),
    };
    builder = match options.durability {
        PUNCTUAL_DURABLE => builder,
        PUNCTUAL_NO_META_SYNC => builder.durability(Durability::NoMetaSync),
        PUNCTUAL_VOLATILE => builder.durability(Durability::Volatile),
        other => {
            let text = format!("durability {other}: use PUNCTUAL_DURABLE, _NO_META_SYNC or _VOLATILE");
            return Err(Failure::of(PUNCTUAL_SETTING, text));
        }
    };
    if options.quota > 0 {
        builder = builder.quota(usize::try_from(options.quota).unwrap_or(usize::MAX));
    }
    let mut validity = Vec::new();
    for object in array(options.objects, options.object_count)? {
        let max_len = if object.max_len == 0 { 8 } else { object.max_len };
        let mut spec = ObjectSpec::bytes(bytes(object.key, object.key_len)?, max_len).keeping(object.history.max(1));
        if object.valid_for > 0 {
            spec = spec.valid_for(Nanos(object.valid_for));
        }
        if object.period > 0 {
            spec = spec.period(Nanos(object.period));
        }
        validity.push(spec.avi);
        builder = builder.object(spec);
    }
    Ok(OpenStore {
        store: builder.open()?,
        validity,
        watches: Mutex::default(),
    })
}

/// Closes a store: waits for calls under way in other threads, as long as the longest of them, writes the readings that
/// were not written yet, and ends its watches. The store is closed whatever the answer; NULL is allowed. Not to be
/// called by a handler of signals, which would wait for the call that it interrupts.
#[unsafe(no_mangle)]
pub extern "C" fn punctual_store_close(store: *mut punctual_store) -> punctual_code {
    guarded(|| {
        if store.is_null() {
            return Ok(());
        }
        let closed = STORES.close(store)?;
        // Waits for the calls under way; later ones are refused, so no watch is added any more.
        let open = closed.write().unwrap_or_else(PoisonError::into_inner).take();
        let open = open.ok_or(CLOSED)?;
        let watches = open.watches.lock().unwrap_or_else(PoisonError::into_inner);
        let live = watches.iter().filter_map(Weak::upgrade);
        live.for_each(|watch| (watch.ender)());
        drop(watches);
        Ok(_ = open.store.commit_group()?)
    })
}

/// Writes the readings that have come since the last flush to the file, and makes all writes durable. To be called some
/// times a second where readings matter after a kill. A volatile store answers PUNCTUAL_SETTING, after the writing.
#[unsafe(no_mangle)]
pub extern "C" fn punctual_store_flush(store: *mut punctual_store) -> punctual_code {
    within(store, |open| Ok(open.store.flush()?))
}

/// Sets a record, in a commit of its own.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn punctual_store_put(
    store: *mut punctual_store,
    key: *const c_void,
    key_len: usize,
    value: *const c_void,
    value_len: usize,
) -> punctual_code {
    within(store, |open| {
        Ok(open.store.put(bytes(key, key_len)?, bounded(value, value_len)?)?)
    })
}

/// Removes a record, in a commit of its own; PUNCTUAL_NOT_FOUND if there is none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn punctual_store_delete(
    store: *mut punctual_store,
    key: *const c_void,
    key_len: usize,
) -> punctual_code {
    within(store, |open| match open.store.delete(bytes(key, key_len)?)? {
        true => Ok(()),
        false => Err(NO_RECORD),
    })
}

const NO_RECORD: Failure = Failure::fixed(PUNCTUAL_NOT_FOUND, c"there is no such record");

/// Copies the value of a record or a temporal object to `value`, of `room` bytes, and its length to `value_len`.
/// PUNCTUAL_NOT_FOUND if there is none: the length is 0; PUNCTUAL_TOO_SHORT if it is longer: only the length was
/// written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn punctual_store_get(
    store: *mut punctual_store,
    key: *const c_void,
    key_len: usize,
    value: *mut c_void,
    room: usize,
    value_len: *mut usize,
) -> punctual_code {
    within(store, |open| {
        let value_len = place(value_len, "value_len")?;
        value_len.write(0);
        let copied = open.store.get_with(bytes(key, key_len)?, |found| {
            value_len.write(found.len());
            copy(found, value, room)
        })?;
        copied.unwrap_or(Err(NO_RECORD))
    })
}

/// Carries out all writes, in their order, in one commit, or none: an expectation that does not hold answers
/// PUNCTUAL_CONFLICT. `due_in`: nanoseconds until it should be done, before writers with later deadlines; 0: behind all
/// that have one. With `firm`, which needs a `due_in`, the commit is refused after that (PUNCTUAL_LATE).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn punctual_store_commit(
    store: *mut punctual_store,
    writes: *const punctual_write,
    count: usize,
    due_in: u64,
    firm: bool,
) -> punctual_code {
    within(store, |open| {
        let writes = array(writes, count)?;
        let due = LinuxOs.now() + Nanos(due_in);
        let mut transaction = open.store.write_transaction(match (due_in, firm) {
            (0, true) => {
                return Err(Failure::fixed(
                    PUNCTUAL_ARGUMENT,
                    c"firm without a deadline: set due_in",
                ));
            }
            (0, false) => Deadline::NONE,
            (_, false) => Deadline::soft(due),
            (_, true) => Deadline::firm(due),
        })?;
        for (at, write) in writes.iter().enumerate() {
            let (key, value) = (bytes(write.key, write.key_len)?, bounded(write.value, write.value_len)?);
            let expected = match write.kind {
                PUNCTUAL_PUT if write.life == 0 => transaction.put(key, value).map(|()| true)?,
                PUNCTUAL_PUT => transaction.put_for(key, value, Nanos(write.life)).map(|()| true)?,
                PUNCTUAL_DELETE => transaction.delete(key).map(|_| true)?,
                PUNCTUAL_EXPECT => transaction.get_with(key, |found| found == value)? == Some(true),
                PUNCTUAL_EXPECT_NONE => !transaction.contains_key(key)?,
                other => {
                    let text = format!("write {at}: kind {other}, use PUNCTUAL_PUT, _DELETE, _EXPECT or _EXPECT_NONE");
                    return Err(Failure::argument(text));
                }
            };
            if !expected {
                let key = key.escape_ascii();
                let text = format!("key {key}: another value than write {at} expects: read again");
                return Err(Failure::of(PUNCTUAL_CONFLICT, text));
            }
        }
        Ok(transaction.commit()?)
    })
}

/// Copies the records of one commit from `low` to before `high`, temporal objects among them, in the order of keys, or
/// from the end with `reverse`. A bound that is NULL: without one. `limit`: most records; 0: all, of at most 1 GiB.
/// `punctual_rows_free` frees `rows`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn punctual_store_range(
    store: *mut punctual_store,
    low: *const c_void,
    low_len: usize,
    high: *const c_void,
    high_len: usize,
    limit: usize,
    reverse: bool,
    rows: *mut *mut punctual_rows,
) -> punctual_code {
    within(store, |open| {
        let (low, below) = (bytes(low, low_len)?, bytes(high, high_len)?);
        let high = (!high.is_null()).then_some(below);
        let range = (Bound::Included(low), high.map_or(Bound::Unbounded, Bound::Excluded));
        collect(open, range, limit, reverse, rows)
    })
}

/// Copies the records of one commit whose keys begin with `prefix`, as `punctual_store_range` does.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn punctual_store_prefix(
    store: *mut punctual_store,
    prefix: *const c_void,
    prefix_len: usize,
    limit: usize,
    reverse: bool,
    rows: *mut *mut punctual_rows,
) -> punctual_code {
    within(store, |open| {
        let prefix = bytes(prefix, prefix_len)?;
        // The first key behind all of them ends with the last byte that can be raised.
        let raised = prefix.iter().rposition(|byte| *byte < u8::MAX);
        let behind = raised.map(|at| [&prefix[..at], &[prefix[at] + 1]].concat());
        let high = behind.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
        collect(open, (Bound::Included(prefix), high), limit, reverse, rows)
    })
}

unsafe fn collect(
    open: &OpenStore,
    range: (Bound<&[u8]>, Bound<&[u8]>),
    limit: usize,
    reverse: bool,
    rows: *mut *mut punctual_rows,
) -> Result<(), Failure> {
    let rows = place(rows, "rows")?;
    rows.write(std::ptr::null_mut());
    let transaction = open.store.begin_read()?;
    let mut records = transaction.range::<&[u8]>(range)?;
    let mut found = Rows::default();
    while limit == 0 || found.len() < limit {
        let record = if reverse { records.lend_back()? } else { records.lend()? };
        let Some((key, value)) = record else { break };
        found.add(key, value, Nanos::MAX)?;
    }
    rows.write(found.hand_over());
    Ok(())
}

/// Offers a reading of a temporal object, which is in memory when the call returns: it touches no disk and waits for no
/// transaction. `age`: nanoseconds since it was sampled, at most the machine's uptime; 0: now. To be offered in the
/// order of sampling: the reading that was offered last is the latest.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn punctual_store_offer(
    store: *mut punctual_store,
    key: *const c_void,
    key_len: usize,
    value: *const c_void,
    value_len: usize,
    age: u64,
) -> punctual_code {
    within(store, |open| {
        let object = open.object(bytes(key, key_len)?)?;
        let sampled = || LinuxOs.now().0.checked_sub(age).map(Time);
        let sampled_at = (age > 0).then(sampled);
        if sampled_at == Some(None) {
            let text = format!("an age of {age} ns: more than the machine's uptime, which bounds it");
            return Err(Failure::argument(text));
        }
        let value = bounded(value, value_len)?;
        Ok(open.store.offer_next(SensorId(object.0), sampled_at.flatten(), value)?)
    })
}

/// Copies the latest value of a temporal object to `value`, of `room` bytes, and writes to `reading` how old it is:
/// fresh if at most `max_age` nanoseconds; 0: as long as the object is valid. It takes no lock of the store and makes
/// no system call. PUNCTUAL_NOT_FOUND before the first reading; PUNCTUAL_TOO_SHORT after writing `reading` alone.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn punctual_store_read(
    store: *mut punctual_store,
    key: *const c_void,
    key_len: usize,
    max_age: u64,
    value: *mut c_void,
    room: usize,
    reading: *mut punctual_reading,
) -> punctual_code {
    thread_local! {
        static BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
    }
    within(store, |open| {
        let reading = place(reading, "reading")?;
        let object = open.object(bytes(key, key_len)?)?;
        let validity = open.validity[object.index()];
        let bound = if max_age == 0 { validity } else { Nanos(max_age) };
        BUFFER.with_borrow_mut(|buffer| {
            let Some(sample) = open.store.read(object, buffer)? else {
                return Err(Failure::fixed(PUNCTUAL_NOT_FOUND, c"the object has no reading yet"));
            };
            let age = sample.age(LinuxOs.since_boot());
            reading.write(punctual_reading {
                len: buffer.len(),
                age: age.0,
                number: sample.seq.0,
                fresh: sample.sampled_at.is_some() && age <= bound,
            });
            let copied = copy(buffer, value, room);
            if buffer.capacity() > KEPT_MAX {
                *buffer = Vec::new();
            }
            copied
        })
    })
}

/// Copies the last values of a temporal object, the oldest first, as they were at one instant: as many as its `history`
/// says. `punctual_rows_free` frees `rows`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn punctual_store_history(
    store: *mut punctual_store,
    key: *const c_void,
    key_len: usize,
    rows: *mut *mut punctual_rows,
) -> punctual_code {
    within(store, |open| {
        let rows = place(rows, "rows")?;
        rows.write(std::ptr::null_mut());
        let mut readings = ReadingBuffer::default();
        open.store.history(open.object(bytes(key, key_len)?)?, &mut readings)?;
        let (mut found, now) = (Rows::default(), LinuxOs.since_boot());
        for (sample, value) in readings.iter() {
            found.add(&[], value, sample.age(now))?;
        }
        rows.write(found.hand_over());
        Ok(())
    })
}

/// Writes the figures of a store. `size` is `sizeof(struct punctual_figures)`. Takes time in proportion to the free
/// pages of the file: for some times a second.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn punctual_store_figures(
    store: *mut punctual_store,
    figures: *mut punctual_figures,
    size: usize,
) -> punctual_code {
    within(store, |open| {
        let figures = place(figures, "figures")?;
        check_size::<punctual_figures>(size)?;
        let counts = open.store.counts();
        let space = open.store.engine().space().map_err(StoreError::from)?;
        figures.write(punctual_figures {
            objects: open.store.objects() as u64,
            fresh_share: open.store.fresh_share(LinuxOs.now()).get(),
            offered: counts.offered,
            installed: counts.installed,
            superseded: counts.superseded,
            quota: space.quota.unwrap_or(0),
            taken: space.taken,
            data: space.data,
            readers: open.store.engine().snapshots().len() as u64,
            readers_ended: open.store.readers_ended().count,
        });
        Ok(())
    })
}

/// Runs a call on an open store, whose end waits for it.
pub(crate) fn within<T>(
    store: *mut punctual_store,
    call: impl FnOnce(&OpenStore) -> Result<T, Failure>,
) -> punctual_code {
    guarded(|| {
        let store = STORES.get(store)?;
        let open = match store.try_read() {
            Ok(open) => open,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return Err(CLOSED),
        };
        call(open.as_ref().ok_or(CLOSED)?)
    })
}

impl OpenStore {
    /// The temporal object `key`.
    fn object(&self, key: &[u8]) -> Result<ObjectId, Failure> {
        let found = self.store.object(key);
        found.ok_or_else(|| StoreError::NotTemporal { key: key.to_vec() }.into())
    }
}
