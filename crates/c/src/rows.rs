//! Several records or readings in memory of their own: all keys in one block, all values in another.

use std::ffi::c_void;
use std::ptr::null;

use punctual::Nanos;

use crate::code::punctual_code::PUNCTUAL_LIMIT;
use crate::code::{BYTES_MAX, Failure};

/// A record, or a reading of a history.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct punctual_row {
    /// The key, not NULL; empty in a history.
    pub key: *const c_void,
    /// Bytes of the key.
    pub key_len: usize,
    /// The value, not NULL.
    pub value: *const c_void,
    /// Bytes of the value.
    pub value_len: usize,
    /// Age of a reading in nanoseconds; UINT64_MAX: unknown, or none.
    pub age: u64,
}

/// Records of one commit, or a history. `punctual_rows_free` frees it.
#[repr(C)]
pub struct punctual_rows {
    /// How many rows there are.
    pub count: usize,
    /// The rows, in order.
    pub row: *const punctual_row,
    /// All values, one behind the other in the order of the rows: an array if all have one length.
    pub values: *const c_void,
    /// Bytes of all values.
    pub values_len: usize,
}

/// Rows that grow until they are handed over.
#[derive(Default)]
pub(crate) struct Rows {
    rows: Vec<punctual_row>,
    keys: Vec<u8>,
    values: Vec<u8>,
}

/// Rows and their memory; the program has the address of `head`.
#[repr(C)]
struct Block {
    head: punctual_rows,
    _memory: Rows,
}

impl Rows {
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    pub fn add(&mut self, key: &[u8], value: &[u8], age: Nanos) -> Result<(), Failure> {
        let (key_len, value_len) = (key.len(), value.len());
        if self.keys.len() + self.values.len() + key_len + value_len > BYTES_MAX {
            let text = format!("more than {BYTES_MAX} bytes: ask for fewer records at a time");
            return Err(Failure::of(PUNCTUAL_LIMIT, text));
        }
        self.keys.extend_from_slice(key);
        self.values.extend_from_slice(value);
        // Blocks that grow move, so pointers come last.
        self.rows.push(punctual_row {
            key: null(),
            key_len,
            value: null(),
            value_len,
            age: age.0,
        });
        Ok(())
    }

    /// The rows for the program, which frees them.
    pub fn hand_over(mut self) -> *mut punctual_rows {
        let (mut key, mut value) = (self.keys.as_ptr(), self.values.as_ptr());
        for row in &mut self.rows {
            (row.key, row.value) = (key.cast(), value.cast());
            (key, value) = (key.wrapping_add(row.key_len), value.wrapping_add(row.value_len));
        }
        let head = punctual_rows {
            count: self.rows.len(),
            row: self.rows.as_ptr(),
            values: self.values.as_ptr().cast(),
            values_len: self.values.len(),
        };
        Box::into_raw(Box::new(Block { head, _memory: self })).cast()
    }
}

/// Frees rows; NULL is allowed. To be called once, and with rows of this library only.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn punctual_rows_free(rows: *mut punctual_rows) {
    if !rows.is_null() {
        // SAFETY: `hand_over` has made it of such a box, whose first field it is.
        drop(unsafe { Box::from_raw(rows.cast::<Block>()) });
    }
}
