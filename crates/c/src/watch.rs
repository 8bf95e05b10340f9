//! Watches: the next change of a key, or of all keys with a prefix.

// Functions trust their caller's pointers, as the header says.
#![allow(unsafe_op_in_unsafe_fn)]

use std::ffi::c_void;
use std::sync::{Arc, Mutex, PoisonError, TryLockError};

use punctual::store::KEY_MAX_LEN;
use punctual::{Change, Clock, LinuxOs, Nanos, Watch, WatchTarget};

use crate::code::punctual_code::{self, PUNCTUAL_BUSY, PUNCTUAL_CLOSED, PUNCTUAL_TIMEOUT};
use crate::code::{Failure, bytes, guarded, place};
use crate::handles::Handles;
use crate::store::{punctual_store, within};

/// An open watch, one of at most 1024, and 64 of a store. One thread waits on it at a time; any may close it meanwhile.
pub struct punctual_watch {
    _opaque: [u8; 0],
}

/// Change: a record was set, to a new value or the same.
pub const PUNCTUAL_CHANGE_PUT: u32 = 0;
/// Change: a record was removed.
pub const PUNCTUAL_CHANGE_DELETED: u32 = 1;
/// Change: a record was removed because its life had ended.
pub const PUNCTUAL_CHANGE_EXPIRED: u32 = 2;
/// Change: a record has another life, or none any more; `number` is 1 if it will expire, else 0.
pub const PUNCTUAL_CHANGE_LIFE: u32 = 3;
/// Change: a temporal object has a new reading; `number` is that of `struct punctual_reading`.
pub const PUNCTUAL_CHANGE_READING: u32 = 4;
/// Change: `number` changes came faster than they were taken, so read all that is watched again. Without a key.
pub const PUNCTUAL_CHANGE_MISSED: u32 = 5;

/// A change. It has no value: read the record, and see this change or a newer one.
#[repr(C)]
pub struct punctual_change {
    /// PUNCTUAL_CHANGE_PUT, or another one of these.
    pub kind: u32,
    /// Bytes of the key.
    pub key_len: u32,
    /// As the kind says; else 0.
    pub number: u64,
    /// Key of the record, or of the object: `key_len` bytes, without a zero behind them.
    pub key: [u8; 512],
}
const _: () = assert!(KEY_MAX_LEN <= 512);

pub(crate) struct OpenWatch {
    /// Locked while a thread waits.
    watch: Mutex<Watch>,
    /// Ends the watch, and a wait on it.
    pub ender: Box<dyn Fn() + Send + Sync>,
}

/// Most changes that wait to be taken, as in the store.
const CAPACITY_MAX: usize = 1 << 16;

static WATCHES: Handles<OpenWatch> = Handles::new();

/// Begins a watch of `key`, or of all keys that begin with it. Up to `capacity` changes wait to be taken, 1 to 65536 of
/// records and as many of objects; others are counted as missed. Threads that write never wait for a watch.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn punctual_store_watch(
    store: *mut punctual_store,
    key: *const c_void,
    key_len: usize,
    prefix: bool,
    capacity: usize,
    watch: *mut *mut punctual_watch,
) -> punctual_code {
    within(store, |open| {
        let watch = place(watch, "watch")?;
        watch.write(std::ptr::null_mut());
        if !(1..=CAPACITY_MAX).contains(&capacity) {
            let text = format!("a capacity of {capacity} changes: 1 to {CAPACITY_MAX}");
            return Err(Failure::argument(text));
        }
        let key = bytes(key, key_len)?;
        let target = if prefix {
            WatchTarget::Prefix(key)
        } else {
            WatchTarget::Key(key)
        };
        let begun = open.store.watch(target, capacity)?;
        let begun = Arc::new(OpenWatch {
            ender: Box::new(begun.ender()),
            watch: Mutex::new(begun),
        });
        let mut watches = open.watches.lock().unwrap_or_else(PoisonError::into_inner);
        watches.retain(|watch| watch.strong_count() > 0);
        watches.push(Arc::downgrade(&begun));
        watch.write(std::ptr::without_provenance_mut(WATCHES.open(begun)?));
        Ok(())
    })
}

/// Waits for the next change, at most `timeout` nanoseconds (PUNCTUAL_TIMEOUT); 0: not at all, UINT64_MAX: without
/// bound. A signal does not end the wait. PUNCTUAL_CLOSED once watch or store are closed, whichever thread does so.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn punctual_watch_next(
    watch: *mut punctual_watch,
    timeout: u64,
    change: *mut punctual_change,
) -> punctual_code {
    guarded(|| {
        let (open, change) = (WATCHES.get(watch)?, place(change, "change")?);
        let mut watch = match open.watch.try_lock() {
            Ok(watch) => watch,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => {
                return Err(Failure::fixed(
                    PUNCTUAL_BUSY,
                    c"another thread waits on this watch: open one for each",
                ));
            }
        };
        let next = match timeout {
            0 => watch.take(),
            _ => watch.wait(LinuxOs.now() + Nanos(timeout)),
        };
        let Some(next) = next else {
            if watch.is_ended() {
                return Err(Failure::fixed(PUNCTUAL_CLOSED, c"the watch, or its store, was closed"));
            }
            return Err(Failure::fixed(
                PUNCTUAL_TIMEOUT,
                c"nothing has changed until the time-out",
            ));
        };
        let (kind, key, number) = match next {
            Change::Put { key } => (PUNCTUAL_CHANGE_PUT, key, 0),
            Change::Deleted { key } => (PUNCTUAL_CHANGE_DELETED, key, 0),
            Change::Expired { key } => (PUNCTUAL_CHANGE_EXPIRED, key, 0),
            Change::Expiry { key, expires } => (PUNCTUAL_CHANGE_LIFE, key, u64::from(expires)),
            Change::Updated { key, sample } => (PUNCTUAL_CHANGE_READING, key, sample.seq.0),
            Change::Missed { changes } => (PUNCTUAL_CHANGE_MISSED, &[][..], changes),
        };
        (&raw mut (*change).kind).write(kind);
        (&raw mut (*change).key_len).write(key.len() as u32);
        (&raw mut (*change).number).write(number);
        std::ptr::copy_nonoverlapping(key.as_ptr(), (&raw mut (*change).key).cast(), key.len());
        Ok(())
    })
}

/// Ends a watch, and the wait of another thread on it. NULL is allowed.
#[unsafe(no_mangle)]
pub extern "C" fn punctual_watch_close(watch: *mut punctual_watch) -> punctual_code {
    guarded(|| {
        if !watch.is_null() {
            (WATCHES.close(watch)?.ender)();
        }
        Ok(())
    })
}
