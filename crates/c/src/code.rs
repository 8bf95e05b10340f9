//! Results of calls: a code for the program, a text for its user, and no panic across the border.

use std::borrow::Cow;
use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};

use punctual::store::{EngineError, OfferError, StoreError};

/// Result of a call; `punctual_last_error` has the text of all but PUNCTUAL_OK.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum punctual_code {
    /// The call has done what it says.
    PUNCTUAL_OK = 0,
    /// There is no such record, or no reading yet.
    PUNCTUAL_NOT_FOUND = 1,
    /// Nothing has changed until the time-out.
    PUNCTUAL_TIMEOUT = 2,
    /// The value does not fit into the caller's memory; its length was written.
    PUNCTUAL_TOO_SHORT = 3,
    /// A NULL pointer, or a number that is out of range.
    PUNCTUAL_ARGUMENT = 4,
    /// The handle was closed, or is none.
    PUNCTUAL_CLOSED = 5,
    /// Another thread waits on this watch.
    PUNCTUAL_BUSY = 6,
    /// No record, or no object, can have this key.
    PUNCTUAL_KEY = 7,
    /// The value is longer than its record or object allows.
    PUNCTUAL_VALUE = 8,
    /// A record was named where a temporal object is needed, or the other way round.
    PUNCTUAL_KIND = 9,
    /// A record is not as the commit expects: nothing has changed.
    PUNCTUAL_CONFLICT = 10,
    /// The firm deadline has passed, or the write lock was not free in time: nothing has changed.
    PUNCTUAL_LATE = 11,
    /// Quota or disk are full: nothing has changed, deletes succeed.
    PUNCTUAL_FULL = 12,
    /// More handles, watches, threads or bytes than there may be.
    PUNCTUAL_LIMIT = 13,
    /// Another process, or this one, has the store open.
    PUNCTUAL_IN_USE = 14,
    /// A setting is refused.
    PUNCTUAL_SETTING = 15,
    /// The store is damaged.
    PUNCTUAL_DAMAGED = 16,
    /// The folder holds a store of another format.
    PUNCTUAL_FORMAT = 17,
    /// The operating system refuses the files, or failed.
    PUNCTUAL_IO = 18,
    /// The store belongs to the process from which this one was forked.
    PUNCTUAL_FORKED = 19,
    /// Another failure of the store.
    PUNCTUAL_FAILED = 20,
    /// A fault of the library; the call may be half done.
    PUNCTUAL_PANIC = 21,
}
use punctual_code::*;

/// Most bytes of one value, and of all keys and values in one answer.
pub(crate) const BYTES_MAX: usize = 1 << 30;

/// Reason for which a call did not succeed.
#[derive(Debug)]
pub(crate) struct Failure {
    pub code: punctual_code,
    text: Cow<'static, CStr>,
}

/// Longest text, in characters: a key of megabytes is cut.
const TEXT_MAX: usize = 1024;

impl Failure {
    /// A failure whose text takes no memory: for calls that fail as a matter of course.
    pub const fn fixed(code: punctual_code, text: &'static CStr) -> Failure {
        let text = Cow::Borrowed(text);
        Failure { code, text }
    }

    pub fn of(code: punctual_code, text: impl Into<String>) -> Failure {
        // Eight of them are kept for each thread.
        let text: String = text.into().chars().take(TEXT_MAX).collect();
        let text = text.replace('\0', "\\0");
        let text = CString::new(text).map_or(Cow::Borrowed(c""), Cow::Owned);
        Failure { code, text }
    }

    pub fn argument(text: impl Into<String>) -> Failure {
        Failure::of(PUNCTUAL_ARGUMENT, text)
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Failure {
        // Other advice than that which names settings of Rust.
        let text = match &error {
            StoreError::LockTimeout { waited, holder } => {
                format!("the write lock was not free within {waited}: {holder} write less in one commit")
            }
            other => other.to_string(),
        };
        Failure::of(code_of(&error), text)
    }
}

fn code_of(error: &StoreError) -> punctual_code {
    use StoreError as E;
    match error {
        E::Engine(error) => code_of_engine(error),
        E::Offer(OfferError::ValueTooLong { .. }) | E::ValueTooLong { .. } | E::ObjectSize { .. } => PUNCTUAL_VALUE,
        E::DeadlinePassed { .. } | E::LockTimeout { .. } => PUNCTUAL_LATE,
        E::TooManyWaiters | E::TooManyObjects { .. } | E::TooManyTogether { .. } | E::TooManyWatches => PUNCTUAL_LIMIT,
        E::Temporal { .. } | E::NotTemporal { .. } | E::PlainRecord { .. } => PUNCTUAL_KIND,
        E::ReservedKey { .. } | E::ExpiringKey { .. } | E::ObjectKey { .. } | E::DuplicateObject { .. } => PUNCTUAL_KEY,
        E::ObjectTime { .. } | E::Replicated | E::Part { .. } => PUNCTUAL_SETTING,
        E::ReversedRange { .. } => PUNCTUAL_ARGUMENT,
        _ => PUNCTUAL_FAILED,
    }
}

fn code_of_engine(error: &EngineError) -> punctual_code {
    use EngineError as E;
    match error {
        E::DiskFull { .. } | E::QuotaFull { .. } => PUNCTUAL_FULL,
        E::TransactionTooLarge { .. } | E::ReadersFull { .. } => PUNCTUAL_LIMIT,
        E::InUse { .. } => PUNCTUAL_IN_USE,
        E::Corrupt { .. } | E::DataMissing { .. } | E::Unsynced { .. } => PUNCTUAL_DAMAGED,
        E::Version { .. } => PUNCTUAL_FORMAT,
        E::KeyLength { .. } => PUNCTUAL_KEY,
        E::ValueLength { .. } => PUNCTUAL_VALUE,
        E::Setting { .. } | E::Volatile { .. } => PUNCTUAL_SETTING,
        E::ReadOnly { .. } | E::Io { .. } | E::SyncFailed { .. } | E::NoStore { .. } => PUNCTUAL_IO,
        E::Forked { .. } => PUNCTUAL_FORKED,
        _ => PUNCTUAL_FAILED,
    }
}

/// Texts that a thread keeps: one for each call that interrupts another between its failure and its text.
const TEXTS_MAX: usize = 8;

/// Texts of failures in a ring, and the place of the last.
struct Texts([Cow<'static, CStr>; TEXTS_MAX], usize);

thread_local! {
    static TEXTS: RefCell<Texts> = const { RefCell::new(Texts([const { Cow::Borrowed(c"") }; TEXTS_MAX], 0)) };
}

/// Runs the body of a function, and keeps the text of its failure for this thread.
pub(crate) fn guarded<T>(call: impl FnOnce() -> Result<T, Failure>) -> punctual_code {
    let failure = match catch_unwind(AssertUnwindSafe(call)) {
        Ok(Ok(_)) => return PUNCTUAL_OK,
        Ok(Err(failure)) => failure,
        Err(panic) => {
            let text = panic.downcast_ref::<String>().map(String::as_str);
            let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
            Failure::of(PUNCTUAL_PANIC, text.unwrap_or("the library panicked"))
        }
    };
    // Fails only while the thread ends.
    let _ = TEXTS.try_with(|texts| {
        let Texts(texts, last) = &mut *texts.borrow_mut();
        *last = (*last + 1) % TEXTS_MAX;
        texts[*last] = failure.text;
    });
    failure.code
}

/// Text of this thread's last failure, in UTF-8: what was refused, and the remedy. Empty before the first one. Valid
/// until the thread's next failure or its end; not to be freed.
#[unsafe(no_mangle)]
pub extern "C" fn punctual_last_error() -> *const c_char {
    text(|Texts(texts, last)| texts[*last].as_ptr())
}

/// Text of this thread's last failure, as `punctual_last_error`, which is forgotten: the one before is the last again.
/// For interpreters, where a handler of signals may call the library between a failure and the question for its text.
#[unsafe(no_mangle)]
pub extern "C" fn punctual_take_error() -> *const c_char {
    text(|Texts(texts, last)| {
        let taken = texts[*last].as_ptr();
        *last = (*last + TEXTS_MAX - 1) % TEXTS_MAX;
        taken
    })
}

fn text(of: impl FnOnce(&mut Texts) -> *const c_char) -> *const c_char {
    let text = TEXTS.try_with(|texts| of(&mut texts.borrow_mut()));
    text.unwrap_or(c"".as_ptr())
}

/// Version of the library, such as "0.1.0".
#[unsafe(no_mangle)]
pub extern "C" fn punctual_version() -> *const c_char {
    concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast()
}

/// The caller's bytes; NULL is allowed for none.
///
/// # Safety
/// `at` points to `len` readable bytes, as for [`array`].
pub(crate) unsafe fn bytes<'c>(at: *const c_void, len: usize) -> Result<&'c [u8], Failure> {
    // SAFETY: the caller's.
    unsafe { array(at.cast(), len) }
}

/// The caller's value of a record or a reading; NULL is allowed for none.
///
/// # Safety
/// `at` points to `len` readable bytes, as for [`array`].
pub(crate) unsafe fn bounded<'c>(at: *const c_void, len: usize) -> Result<&'c [u8], Failure> {
    // SAFETY: the caller's.
    let value = unsafe { bytes(at, len)? };
    if len > BYTES_MAX {
        let text = format!("a value of {len} bytes: at most {BYTES_MAX}");
        return Err(Failure::of(PUNCTUAL_VALUE, text));
    }
    Ok(value)
}

/// The caller's array; NULL is allowed for none.
///
/// # Safety
/// `at` points to `count` readable items that stay as they are during the call.
pub(crate) unsafe fn array<'c, T>(at: *const T, count: usize) -> Result<&'c [T], Failure> {
    if count == 0 {
        return Ok(&[]);
    }
    if at.is_null() || !at.is_aligned() || count > isize::MAX as usize / size_of::<T>() {
        return Err(Failure::argument(format!(
            "{count} items at {at:?}: pass the address of so many"
        )));
    }
    // SAFETY: the caller's, and the length is one that memory can have.
    Ok(unsafe { std::slice::from_raw_parts(at, count) })
}

/// Refuses a structure of another length than this library's: the program was built with another header.
pub(crate) fn check_size<T>(size: usize) -> Result<(), Failure> {
    let own = size_of::<T>();
    let text = || format!("a structure of {size} bytes: this library has it of {own}, use its header");
    if size == own {
        Ok(())
    } else {
        Err(Failure::argument(text()))
    }
}

/// The caller's place for the result `name`.
pub(crate) fn place<T>(at: *mut T, name: &str) -> Result<*mut T, Failure> {
    if at.is_null() || !at.is_aligned() {
        let text = format!("{name} is {at:?}: pass the address of a variable");
        return Err(Failure::argument(text));
    }
    Ok(at)
}

/// Copies a value to the caller's memory, unless that is too short.
///
/// # Safety
/// `to` points to `room` writable bytes that `value` does not overlap.
pub(crate) unsafe fn copy(value: &[u8], to: *mut c_void, room: usize) -> Result<(), Failure> {
    if value.len() > room {
        return Err(Failure::fixed(
            PUNCTUAL_TOO_SHORT,
            c"the value is longer than the memory for it",
        ));
    }
    if !value.is_empty() {
        // SAFETY: the caller's.
        unsafe { std::ptr::copy_nonoverlapping(value.as_ptr(), place(to, "value")?.cast(), value.len()) };
    }
    Ok(())
}
