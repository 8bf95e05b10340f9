//! Serializes bytes as one piece: serde takes a vector byte by byte, which costs more than all the rest of a message.
//!
//! For `#[serde(with = "..")]` of a field that is a vector of bytes. Formats that encode both alike, such as postcard,
//! also read data written without it.

use std::fmt;

use serde::de::{Error, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Writes `value` as one piece.
///
/// # Errors
/// Those of the serializer.
pub fn serialize<S: Serializer>(value: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_bytes(value)
}

/// Reads bytes that were written as one piece or as a sequence.
///
/// # Errors
/// Those of the deserializer.
pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u8>, D::Error> {
    deserializer.deserialize_byte_buf(Bytes)
}

struct Bytes;

impl<'de> Visitor<'de> for Bytes {
    type Value = Vec<u8>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("bytes")
    }

    fn visit_bytes<E: Error>(self, bytes: &[u8]) -> Result<Vec<u8>, E> {
        Ok(bytes.to_vec())
    }

    fn visit_byte_buf<E: Error>(self, bytes: Vec<u8>) -> Result<Vec<u8>, E> {
        Ok(bytes)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut bytes: A) -> Result<Vec<u8>, A::Error> {
        let mut all = Vec::new();
        while let Some(byte) = bytes.next_element()? {
            all.push(byte);
        }
        Ok(all)
    }
}

#[derive(PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(transparent)]
struct Owned(#[serde(deserialize_with = "deserialize")] Vec<u8>);

#[derive(Serialize)]
#[serde(transparent)]
struct Borrowed<'b>(#[serde(serialize_with = "serialize")] &'b [u8]);

/// As above for records: keys and their values.
pub(super) mod records {
    use serde::{Deserialize, Deserializer, Serializer};

    use super::{Borrowed, Owned};

    type Records = Vec<(Vec<u8>, Vec<u8>)>;

    pub fn serialize<S: Serializer>(records: &Records, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(records.iter().map(|(key, value)| (Borrowed(key), Borrowed(value))))
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Records, D::Error> {
        let records = Vec::<(Owned, Owned)>::deserialize(deserializer)?;
        Ok(records
            .into_iter()
            .map(|(Owned(key), Owned(value))| (key, value))
            .collect())
    }
}

/// As above for changes: keys and their new values; `None` deletes.
pub(super) mod changes {
    use std::collections::BTreeMap;

    use serde::{Deserialize, Deserializer, Serializer};

    use super::{Borrowed, Owned};

    type Changes = BTreeMap<Vec<u8>, Option<Vec<u8>>>;

    pub fn serialize<S: Serializer>(changes: &Changes, serializer: S) -> Result<S::Ok, S::Error> {
        let borrowed = changes
            .iter()
            .map(|(key, value)| (Borrowed(key), value.as_deref().map(Borrowed)));
        serializer.collect_map(borrowed)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Changes, D::Error> {
        let changes = BTreeMap::<Owned, Option<Owned>>::deserialize(deserializer)?;
        let owned = |(Owned(key), value): (Owned, Option<Owned>)| (key, value.map(|Owned(value)| value));
        Ok(changes.into_iter().map(owned).collect())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde::{Deserialize, Serialize};

    use crate::batch::{Image, WriteSet};

    /// As logs and peers of earlier versions have them.
    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Former {
        changes: BTreeMap<Vec<u8>, Option<Vec<u8>>>,
        created: Vec<()>,
        read: Vec<()>,
    }

    #[test]
    fn a_write_set_is_written_as_serde_writes_vectors() {
        let value = |len: usize| Some(vec![b'v'; len]);
        let changes = [
            (vec![], value(0)),
            (b"a".to_vec(), None),
            (vec![0xff; 200], value(70_000)),
        ];
        let former = Former {
            changes: changes.into(),
            created: Vec::new(),
            read: Vec::new(),
        };
        let bytes = postcard::to_stdvec(&former).unwrap();
        let now: WriteSet = postcard::from_bytes(&bytes).unwrap();
        assert_eq!(now.changes, former.changes);
        assert_eq!(postcard::to_stdvec(&now).unwrap(), bytes);
    }

    #[test]
    fn an_image_is_read_as_it_was_written() {
        let image = Image {
            after: Some(b"a".to_vec()),
            records: vec![(b"b".to_vec(), vec![]), (vec![0; 300], vec![7; 70_000])],
            ..Image::default()
        };
        let bytes = postcard::to_stdvec(&image).unwrap();
        assert_eq!(postcard::from_bytes::<Image>(&bytes).unwrap(), image);
    }
}
