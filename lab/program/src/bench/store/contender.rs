//! The compared stores: each keeps the same records, and is used as its own documentation says.

use std::hint::black_box;

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde::Serialize;

/// The records of each contender.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Records {
    /// Number of records, at least 1.
    pub objects: u32,
    /// Bytes of each value.
    pub value_bytes: usize,
}

impl Records {
    /// Bytes of all values of one contender.
    pub fn bytes(self) -> u64 {
        u64::from(self.objects) * self.value_bytes as u64
    }

    /// Bytes of room for the records, for copies that copy-on-write needs, and for keys and half-full pages.
    pub fn room(self) -> usize {
        (64 << 20) + 4 * self.objects as usize * (self.value_bytes + 64)
    }

    /// Values of the records, drawn from `seed`.
    pub fn values(self, seed: u64) -> Values {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let mut value = || (0..self.value_bytes).map(|_| rng.random()).collect();
        Values(std::array::from_fn(|_| value()))
    }

    /// `0..objects` in parts of [`FILL`].
    pub fn groups(self) -> impl Iterator<Item = std::ops::Range<u32>> {
        let objects = self.objects;
        (0..objects)
            .step_by(FILL as usize)
            .map(move |start| start..objects.min(start.saturating_add(FILL)))
    }
}

/// Several values of random bytes, used in turn. A store may skip a put of an unchanged value (SQLite does, and then
/// syncs nothing), and a store that compresses would store repeated values once.
pub struct Values([Vec<u8>; Values::COUNT]);

impl Values {
    const COUNT: usize = 61;

    /// The value for record or put `i`.
    pub fn of(&self, i: usize) -> &[u8] {
        &self.0[i % Values::COUNT]
    }
}

/// Seed of the values that records are filled with; later puts have other values.
pub const FILLED: u64 = 3;

/// Number of keys drawn ahead, so that drawing is not measured.
pub const DRAWN: usize = 1 << 16;
/// Number of records that one transaction fills in.
const FILL: u32 = 10_000;

/// Guarantee of a put of the contender that has returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Promise {
    /// The value is visible; a power cut may destroy it.
    Visible,
    /// The value survives a power cut.
    Durable,
}

/// The reason why a case could not be measured.
#[derive(Debug, thiserror::Error)]
pub enum CaseError {
    #[error("{0}: {1}")]
    Contender(&'static str, String),
    #[error("temporary folder: {0}")]
    Folder(#[from] std::io::Error),
    #[error("a record that was written is not there")]
    Missing,
    #[error("figures: {0}")]
    Figures(String),
    #[error("stopped before it was measured; nothing is left behind")]
    Stopped,
}

/// Gives an error its contender's name.
pub fn failed<E: std::fmt::Display>(name: &'static str) -> impl Fn(E) -> CaseError + Copy {
    move |error| CaseError::Contender(name, error.to_string())
}

/// Called repeatedly; an error ends the benchmark in order: its folders are removed.
pub type GoingOn<'g> = &'g dyn Fn() -> Result<(), CaseError>;

/// A store filled with its records.
pub trait Contender: Sync {
    /// Name of the contender in the table.
    fn name(&self) -> &'static str;

    /// Opens a session for one thread.
    ///
    /// # Errors
    /// [`CaseError`].
    fn session(&self) -> Result<Box<dyn Session + '_>, CaseError>;
}

/// Access to a contender for one thread. Each call is a transaction of its own.
pub trait Session {
    /// Looks at the value of each of `keys`.
    ///
    /// # Errors
    /// [`CaseError::Missing`] if a key has no value.
    fn gets(&mut self, keys: &[Vec<u8>]) -> Result<(), CaseError>;

    /// Looks at up to `count` records in ascending order of keys, from `key` on.
    ///
    /// # Errors
    /// [`CaseError`].
    fn scan(&mut self, key: &[u8], count: usize) -> Result<(), CaseError>;

    /// Sets each of `keys` to `value` in one transaction, with the guarantee that the contender was opened for.
    ///
    /// # Errors
    /// [`CaseError`].
    fn puts(&mut self, keys: &[Vec<u8>], value: &[u8]) -> Result<(), CaseError>;
}

/// Reads each byte of a key or value: so a store that has compared a checksum is not slower than one that leaves the
/// bytes, and the memory they lie in, untouched.
#[inline(always)]
pub fn look(value: &[u8]) {
    black_box(value.iter().fold(0, |all, byte| all ^ byte));
}

/// The contender without any work: figures below its own mean nothing.
pub struct Nothing;

impl Contender for Nothing {
    fn name(&self) -> &'static str {
        "no-op control"
    }

    fn session(&self) -> Result<Box<dyn Session + '_>, CaseError> {
        Ok(Box::new(Nothing))
    }
}

impl Session for Nothing {
    fn gets(&mut self, keys: &[Vec<u8>]) -> Result<(), CaseError> {
        keys.iter().for_each(|key| look(key));
        Ok(())
    }

    fn scan(&mut self, key: &[u8], _: usize) -> Result<(), CaseError> {
        look(key);
        Ok(())
    }

    fn puts(&mut self, keys: &[Vec<u8>], value: &[u8]) -> Result<(), CaseError> {
        keys.iter().for_each(|key| look(key));
        look(value);
        Ok(())
    }
}

/// Numbers below `of`, drawn from a fixed seed.
pub fn drawn(of: u32, seed: u64) -> Vec<u32> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    (0..DRAWN).map(|_| rng.random_range(0..of)).collect()
}

/// The key of record `i`.
pub fn key(i: u32) -> Vec<u8> {
    format!("object/{i:08}").into_bytes()
}
