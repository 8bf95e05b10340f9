//! Where a SCAN goes on.
//!
//! Clients take a cursor for a number, and the store goes on behind a key. So the server keeps the last key of each
//! scan under a number, in [`CURSORS_MAX`] places that are taken in turns: a scan that stays away for so many others is
//! told to begin anew.

use std::sync::{Mutex, PoisonError};

/// How many cursors are kept.
pub const CURSORS_MAX: usize = 4096;

/// The cursors of all scans.
#[derive(Debug, Default)]
pub struct Cursors {
    kept: Mutex<Kept>,
}

#[derive(Debug, Default)]
struct Kept {
    issued: u64,
    keys: Vec<Vec<u8>>,
}

impl Cursors {
    /// A number for the scan whose last key was `key`; never 0.
    pub fn keep(&self, key: Vec<u8>) -> u64 {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.issued += 1;
        let at = (kept.issued - 1) as usize % CURSORS_MAX;
        if at < kept.keys.len() {
            kept.keys[at] = key;
        } else {
            kept.keys.push(key);
        }
        kept.issued
    }

    /// The last key of a scan; `None` for a number that was not given, or is forgotten.
    pub fn find(&self, cursor: u64) -> Option<Vec<u8>> {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let is_kept = cursor > 0 && cursor <= kept.issued && kept.issued - cursor < CURSORS_MAX as u64;
        let at = (is_kept.then_some(cursor)? - 1) as usize % CURSORS_MAX;
        kept.keys.get(at).cloned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_ones_are_kept_and_no_others() {
        let cursors = Cursors::default();
        let all = CURSORS_MAX as u64 + 10;
        for number in 1..=all {
            assert_eq!(cursors.keep(number.to_string().into_bytes()), number);
        }
        for number in 0..=all + 1 {
            let expected = (11..=all).contains(&number).then(|| number.to_string().into_bytes());
            assert_eq!(cursors.find(number), expected, "{number}");
        }
    }
}
