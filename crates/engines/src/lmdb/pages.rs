//! Pages as they stand in the file.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use super::check::{Damage, Meta, damaged, u64_at};

/// Reads a page of a tree; refuses one that is none of the store's, or says another number.
pub(super) fn load(file: &File, meta: &Meta, number: u64, page: &mut [u8]) -> Result<(), Damage> {
    if !(2..=meta.last_page).contains(&number) {
        return Err(damaged(number, "is referred to, and is none of the store's pages"));
    }
    read_at(file, number * meta.page_size as u64, page)?;
    is_page(number, page)
}

/// Reads bytes of the file, all of which must be there.
pub(super) fn read_at(file: &File, at: u64, bytes: &mut [u8]) -> Result<(), Damage> {
    match file.read_exact_at(bytes, at) {
        Err(end) if end.kind() == io::ErrorKind::UnexpectedEof => Err(Damage::Corrupt(format!(
            "it ends before byte {}: it was truncated",
            at + bytes.len() as u64
        ))),
        answer => answer.map_err(Damage::Io),
    }
}

/// Refuses a page that says another number.
pub(super) fn is_page(number: u64, page: &[u8]) -> Result<(), Damage> {
    match u64_at(page, 0) {
        said if said == number => Ok(()),
        said => Err(damaged(number, &format!("says it is page {said}"))),
    }
}
