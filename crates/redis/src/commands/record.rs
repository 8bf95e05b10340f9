//! Encoding of strings and hashes in records.
//!
//! A string is its own bytes, so that programs which call the store and clients of the protocol see the same values. A
//! hash begins with a mark that is reserved for the store; a string that happens to begin with the mark is marked too.
//!
//! ```text
//! bytes without the mark        a string
//! \0punctual/ t BYTES           a string that begins with the mark
//! \0punctual/ h (N F N V)*      a hash: fields and values, each behind its length (4 bytes, little-endian)
//! ```

use std::borrow::Cow;

use super::{Failure, reply};

/// Prefix of the bytes of hashes and marked strings, and of the keys that belong to the store.
pub(crate) const MARK: &[u8] = b"\0punctual/";
const TEXT: u8 = b't';
const HASH: u8 = b'h';

/// The most bytes of a hash with all its fields; bounded because a change of one field writes all of them.
pub const HASH_BYTES_MAX: usize = 1 << 20;

/// A record, decoded for clients.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum StoredRecord<'b> {
    Text(&'b [u8]),
    Hash(&'b [u8]),
}

impl StoredRecord<'_> {
    pub fn of(bytes: &[u8]) -> Result<StoredRecord<'_>, Failure> {
        let Some(marked) = bytes.strip_prefix(MARK) else {
            return Ok(StoredRecord::Text(bytes));
        };
        match marked.split_first() {
            Some((&TEXT, text)) => Ok(StoredRecord::Text(text)),
            Some((&HASH, fields)) => Ok(StoredRecord::Hash(fields)),
            _ => reply("ERR this record was written by another version of punctual: use that one"),
        }
    }
}

/// Encodes a string as a record.
pub(crate) fn of_text(text: &[u8]) -> Cow<'_, [u8]> {
    if text.starts_with(MARK) {
        Cow::Owned([MARK, &[TEXT], text].concat())
    } else {
        Cow::Borrowed(text)
    }
}

/// Iterates over the fields of a hash, in the order in which they were first set.
pub(crate) struct Fields<'h>(pub &'h [u8]);

impl<'h> Iterator for Fields<'h> {
    type Item = Pair<'h>;

    fn next(&mut self) -> Option<Self::Item> {
        let mut part = || {
            let (length, rest) = self.0.split_first_chunk::<4>()?;
            let (part, rest) = rest.split_at_checked(u32::from_le_bytes(*length) as usize)?;
            self.0 = rest;
            Some(part)
        };
        Some((part()?, part()?))
    }
}

/// A field and its value.
pub(crate) type Pair<'h> = (&'h [u8], &'h [u8]);

/// Encodes a hash as a record.
///
/// # Errors
/// The hash would exceed [`HASH_BYTES_MAX`].
pub(crate) fn of_hash(fields: &[Pair<'_>]) -> Result<Vec<u8>, Failure> {
    let mut bytes = [MARK, &[HASH]].concat();
    for (field, value) in fields {
        for part in [field, value] {
            bytes.extend_from_slice(&(part.len() as u32).to_le_bytes());
            bytes.extend_from_slice(part);
        }
        if bytes.len() > HASH_BYTES_MAX {
            return reply(format!(
                "ERR a hash takes at most {HASH_BYTES_MAX} bytes here, because it is one record: use several keys"
            ));
        }
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn some_bytes() -> impl Strategy<Value = Vec<u8>> {
        prop_oneof![
            prop::collection::vec(any::<u8>(), 0..20),
            prop::collection::vec(any::<u8>(), 0..9).prop_map(|rest| [MARK, &rest].concat()),
        ]
    }

    proptest! {
        #[test]
        fn what_is_stored_is_read(text in some_bytes(), pairs in prop::collection::vec((some_bytes(), some_bytes()), 0..9)) {
            let record = of_text(&text);
            prop_assert_eq!(StoredRecord::of(&record).unwrap(), StoredRecord::Text(&text));
            let fields: Vec<_> = pairs.iter().map(|(f, v)| (&f[..], &v[..])).collect();
            let record = of_hash(&fields).unwrap();
            let Ok(StoredRecord::Hash(encoded)) = StoredRecord::of(&record) else { panic!("a hash") };
            let read: Vec<_> = Fields(encoded).map(|(f, v)| (f.to_vec(), v.to_vec())).collect();
            prop_assert_eq!(read, pairs);
        }
    }

    #[test]
    fn an_unknown_mark_is_refused_and_a_long_hash_too() {
        assert!(StoredRecord::of(b"\0punctual/z").is_err());
        assert!(StoredRecord::of(b"\0punctual/").is_err());
        let long = vec![0; HASH_BYTES_MAX];
        assert!(of_hash(&[(b"f", &long)]).is_err());
    }
}
