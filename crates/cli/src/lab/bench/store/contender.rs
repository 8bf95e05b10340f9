//! What is compared: stores that keep the same records, each used as its own documentation says.

use std::hint::black_box;

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde::Serialize;

/// The records of each contender.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Records {
    /// How many, at least 1.
    pub objects: u32,
    /// Bytes of each value.
    pub value_bytes: usize,
}

impl Records {
    /// Bytes of all values of one contender.
    pub fn bytes(self) -> u64 {
        u64::from(self.objects) * self.value_bytes as u64
    }

    /// Room for them, for as much again that copy-on-write needs, and for keys and pages half full.
    pub fn room(self) -> usize {
        (64 << 20) + 4 * self.objects as usize * (self.value_bytes + 64)
    }

    /// What records hold, drawn from `seed`.
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

/// Several values of random bytes, given out in turn. A store may skip a put of what it has (SQLite does, and then
/// syncs nothing), and a store that compresses would make one value of all.
pub struct Values([Vec<u8>; Values::COUNT]);

impl Values {
    const COUNT: usize = 61;

    /// The value of record or put `i`.
    pub fn of(&self, i: usize) -> &[u8] {
        &self.0[i % Values::COUNT]
    }
}

/// What records are filled with: the seed of other values than those that are put later.
pub const FILLED: u64 = 3;

/// Keys drawn ahead, so that drawing is not measured.
pub const DRAWN: usize = 1 << 16;
/// Records filled in by one transaction.
const FILL: u32 = 10_000;

/// What a put of the contender promises when it has returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Promise {
    /// It is visible; a power cut may take it.
    Visible,
    /// It survives a power cut.
    Durable,
}

/// Why a case could not be measured.
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

/// Asked every so often; an error ends the benchmark, in order: its folders are removed.
pub type GoingOn<'g> = &'g dyn Fn() -> Result<(), CaseError>;

/// A store with its records.
pub trait Contender: Sync {
    /// What it is called in the table.
    fn name(&self) -> &'static str;

    /// What one thread uses it through.
    ///
    /// # Errors
    /// [`CaseError`].
    fn session(&self) -> Result<Box<dyn Session + '_>, CaseError>;
}

/// One thread's way into a contender. Each call is a transaction of its own.
pub trait Session {
    /// Looks at the value of each of `keys`.
    ///
    /// # Errors
    /// [`CaseError::Missing`] where one has none.
    fn gets(&mut self, keys: &[Vec<u8>]) -> Result<(), CaseError>;

    /// Looks at up to `count` records in ascending order of keys, from `key` on.
    ///
    /// # Errors
    /// [`CaseError`].
    fn scan(&mut self, key: &[u8], count: usize) -> Result<(), CaseError>;

    /// Sets `key` to `value`, with the promise that the contender was opened for.
    ///
    /// # Errors
    /// [`CaseError`].
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), CaseError>;
}

/// What each case does with a value: it has its address and its length. Contenders that need not touch a value to find
/// it do not.
#[inline(always)]
pub fn look(value: &[u8]) {
    black_box((value.as_ptr(), value.len()));
}

/// The contender without any work: nothing below its figures means anything.
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

    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), CaseError> {
        look(key);
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
