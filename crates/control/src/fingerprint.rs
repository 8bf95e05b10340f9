//! Hash of the exact numbers of a model, stored in a controller file to identify the model that it was designed for.
//!
//! FNV-1a over 64 bits: <http://www.isthe.com/chongo/tech/comp/fnv/>. The hash guards against mix-ups, not against
//! forgery. Unlike `std::hash`, it is stable across machines and versions of Rust.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

const OFFSET_BASIS: u64 = 0xcbf2_9ce4_8422_2325;
const PRIME: u64 = 0x0000_0100_0000_01b3;

/// Fingerprint of a model; in text 16 hexadecimal digits, because JSON readers lose bits of a 64-bit number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Fingerprint(u64);

/// A text that is not a fingerprint.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a fingerprint: it must be 16 hexadecimal digits")]
pub struct NotAFingerprint(pub String);

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl From<Fingerprint> for String {
    fn from(fingerprint: Fingerprint) -> String {
        fingerprint.to_string()
    }
}

impl FromStr for Fingerprint {
    type Err = NotAFingerprint;

    fn from_str(text: &str) -> Result<Fingerprint, NotAFingerprint> {
        let is_hexadecimal = text.len() == 16 && text.bytes().all(|b| b.is_ascii_hexdigit());
        match u64::from_str_radix(text, 16) {
            Ok(bits) if is_hexadecimal => Ok(Fingerprint(bits)),
            _ => Err(NotAFingerprint(text.to_owned())),
        }
    }
}

impl TryFrom<String> for Fingerprint {
    type Error = NotAFingerprint;

    fn try_from(text: String) -> Result<Fingerprint, NotAFingerprint> {
        text.parse()
    }
}

/// Feeds numbers and names into a fingerprint. Lengths are hashed as well, so `["ab"]` differs from `["a", "b"]`.
pub(crate) struct Hasher(u64);

impl Hasher {
    pub(crate) fn new() -> Hasher {
        Hasher(OFFSET_BASIS)
    }

    pub(crate) fn length(&mut self, length: usize) {
        self.bytes(&(length as u64).to_le_bytes());
    }

    pub(crate) fn text(&mut self, text: &str) {
        self.length(text.len());
        self.bytes(text.as_bytes());
    }

    /// Hashes minus zero like zero, because they are equal.
    pub(crate) fn number(&mut self, value: f64) {
        let canonical = if value == 0.0 { 0.0 } else { value };
        self.bytes(&canonical.to_bits().to_le_bytes());
    }

    pub(crate) fn finish(self) -> Fingerprint {
        Fingerprint(self.0)
    }

    fn bytes(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(PRIME);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Published test vectors of FNV-1a, 64 bits.
    #[test]
    fn agrees_with_the_published_vectors() {
        for (text, hash) in [
            ("", 0xcbf2_9ce4_8422_2325),
            ("a", 0xaf63_dc4c_8601_ec8c),
            ("foobar", 0x8594_4171_f739_67e8),
        ] {
            let mut hasher = Hasher::new();
            hasher.bytes(text.as_bytes());
            assert_eq!(hasher.finish(), Fingerprint(hash));
        }
    }

    #[test]
    fn text_form_round_trips_and_rejects_the_rest() {
        let fingerprint = Fingerprint(0x00ab);
        assert_eq!(fingerprint.to_string().parse(), Ok(fingerprint));
        for wrong in ["", "ab", "+0000000000000ab", "00000000000000ag"] {
            assert_eq!(wrong.parse::<Fingerprint>(), Err(NotAFingerprint(wrong.to_owned())));
        }
    }
}
