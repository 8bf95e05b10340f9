//! Cursors of SCAN.
//!
//!
//! Clients take a cursor for a number, but the store continues a scan behind a key. So the server keeps the last key of
//! each scan under a number, in [`CURSORS_MAX`] slots that are reused in turn: a scan whose slot was reused gets an
//! error and has to begin anew.
//!
//!
//! For a process that keeps the numbers of its clients' scans itself and asks any node, a cursor is the key, in
//! hexadecimal digits.

use std::sync::{Mutex, PoisonError};

/// The most cursors that the server keeps.
pub const CURSORS_MAX: usize = 4096;

/// The cursors of all scans.
#[derive(Debug)]
pub enum Cursors {
    /// Cursors are numbers of keys kept here.
    Numbered(Mutex<ScanKeys>),
    /// Cursors are keys, spelled in hexadecimal digits.
    Spelled,
}

/// The last keys of scans, in slots that are reused in turn.
#[derive(Debug, Default)]
pub struct ScanKeys {
    issued: u64,
    keys: Vec<Vec<u8>>,
}

impl Default for Cursors {
    fn default() -> Cursors {
        Cursors::Numbered(Mutex::default())
    }
}

impl Cursors {
    /// Makes the cursor of the scan whose last key was `key`; never 0.
    pub fn name(&self, key: Vec<u8>) -> Vec<u8> {
        match self {
            Cursors::Numbered(kept) => {
                let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
                kept.keep(key).to_string().into_bytes()
            }
            Cursors::Spelled => spell(&key),
        }
    }

    /// Returns the last key of a scan; `None` for cursor 0, which begins one.
    ///
    /// # Errors
    /// The error reply: the cursor was never issued, or its slot was reused.
    pub fn find(&self, cursor: &[u8]) -> Result<Option<Vec<u8>>, &'static str> {
        let invalid = "ERR invalid cursor";
        match self {
            Cursors::Numbered(kept) => {
                let text = std::str::from_utf8(cursor).ok();
                let Some(number) = text.and_then(|text| text.parse::<u64>().ok()) else {
                    return Err(invalid);
                };
                if number == 0 {
                    return Ok(None);
                }
                let kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
                let too_old = "ERR this cursor is too old, or of an earlier run: begin with 0";
                kept.find(number).map(Some).ok_or(too_old)
            }
            Cursors::Spelled if cursor == b"0" => Ok(None),
            Cursors::Spelled => unspell(cursor).map(Some).ok_or(invalid),
        }
    }
}

impl ScanKeys {
    fn keep(&mut self, key: Vec<u8>) -> u64 {
        self.issued += 1;
        let at = (self.issued - 1) as usize % CURSORS_MAX;
        if at < self.keys.len() {
            self.keys[at] = key;
        } else {
            self.keys.push(key);
        }
        self.issued
    }

    fn find(&self, cursor: u64) -> Option<Vec<u8>> {
        let is_kept = cursor > 0 && cursor <= self.issued && self.issued - cursor < CURSORS_MAX as u64;
        let at = (is_kept.then_some(cursor)? - 1) as usize % CURSORS_MAX;
        self.keys.get(at).cloned()
    }
}

/// Spells a key as a cursor of [`Cursors::Spelled`].
pub fn spell(key: &[u8]) -> Vec<u8> {
    let digit = |half: u8| char::from_digit(u32::from(half), 16).map_or(b'0', |digit| digit as u8);
    key.iter()
        .flat_map(|byte| [digit(byte >> 4), digit(byte & 15)])
        .collect()
}

/// Returns the key that a cursor spells; `None` if it is no such cursor.
pub fn unspell(cursor: &[u8]) -> Option<Vec<u8>> {
    let digit = |text: u8| char::from(text).to_digit(16).map(|digit| digit as u8);
    let byte = |pair: &[u8]| Some(digit(pair[0])? << 4 | digit(*pair.get(1)?)?);
    cursor.chunks(2).map(byte).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_ones_are_kept_and_no_others() {
        let cursors = Cursors::default();
        let all = CURSORS_MAX as u64 + 10;
        for number in 1..=all {
            let text = number.to_string().into_bytes();
            assert_eq!(cursors.name(text.clone()), text);
        }
        assert_eq!(cursors.find(b"0"), Ok(None));
        for number in 1..=all + 1 {
            let text = number.to_string().into_bytes();
            let expected = (11..=all).contains(&number).then(|| Some(text.clone()));
            assert_eq!(cursors.find(&text).ok(), expected, "{number}");
        }
        assert!(cursors.find(b"x").is_err());
    }

    #[test]
    fn a_key_is_spelled_and_read() {
        let all: Vec<u8> = (0..=255).collect();
        let cursor = Cursors::Spelled.name(all.clone());
        assert_eq!(Cursors::Spelled.find(&cursor), Ok(Some(all)));
        assert_eq!(Cursors::Spelled.find(b"0"), Ok(None));
        for wrong in [&b"1"[..], b"0x", b"123"] {
            assert!(Cursors::Spelled.find(wrong).is_err(), "{wrong:?}");
        }
    }
}
