//! Sizes of the modelled caches.

use std::fmt;

use crate::lru::LruSets;

/// Bytes of a line, in every cache.
pub const LINE_BYTES: u64 = 64;
/// Bound on the ways of the LLC: the bits of a way mask.
pub const WAYS_MAX: u8 = 64;
/// Size of the largest LLC that is modelled, in bytes; its model takes an eighth of it.
pub const LLC_BYTES_MAX: u64 = 4 << 30;

/// Size of one cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cache {
    /// Total size in bytes: a multiple of [`LINE_BYTES`] times `ways`.
    pub bytes: u64,
    /// Number of lines of a set.
    pub ways: u8,
}

/// The caches of a machine, and the length of a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// The first level: one for instructions and one for data, both of this size.
    pub l1: Cache,
    /// The second level, for both; `None` where the LLC comes next.
    pub l2: Option<Cache>,
    /// Number of ways of the LLC, 1..=[`WAYS_MAX`].
    pub ways: u8,
    /// Size of each way of the LLC in bytes: a multiple of [`LINE_BYTES`].
    pub way_bytes: u64,
    /// Number of instructions in a window; at least 1.
    pub window: u64,
}

/// Errors of a geometry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GeometryError {
    /// The size of a cache is not a whole number of full sets, or too large.
    Size {
        cache: &'static str,
        /// Required divisor of the size, in bytes: that of one set.
        multiple: u64,
        /// Size given, in bytes.
        bytes: u64,
    },
    /// The LLC has no ways, or more than [`WAYS_MAX`].
    Ways(u8),
    /// The LLC is larger than [`LLC_BYTES_MAX`].
    TooLarge(u64),
    /// The window has no instructions.
    Window,
}

impl Geometry {
    /// The shape of a Xeon E5-2683 v4: 32 KiB, 256 KiB, 20 ways of 2 MiB.
    pub const FULL: Geometry = Geometry {
        l1: Cache {
            bytes: 32 << 10,
            ways: 8,
        },
        l2: Some(Cache {
            bytes: 256 << 10,
            ways: 8,
        }),
        ways: 20,
        way_bytes: 2 << 20,
        window: 1_000_000,
    };

    /// Refuses caches that cannot be modelled.
    ///
    /// # Errors
    /// [`GeometryError`]: the first fault found.
    pub fn check(&self) -> Result<(), GeometryError> {
        check_size("L1", self.l1)?;
        if let Some(l2) = self.l2 {
            check_size("L2", l2)?;
        }
        if !(1..=WAYS_MAX).contains(&self.ways) {
            return Err(GeometryError::Ways(self.ways));
        }
        check_size(
            "a way",
            Cache {
                bytes: self.way_bytes,
                ways: 1,
            },
        )?;
        let llc = self.way_bytes.saturating_mul(u64::from(self.ways));
        if llc > LLC_BYTES_MAX {
            return Err(GeometryError::TooLarge(llc));
        }
        if self.window == 0 {
            return Err(GeometryError::Window);
        }
        Ok(())
    }

    /// Makes an empty LLC of this geometry.
    pub fn llc(&self) -> LruSets {
        LruSets::new(self.way_bytes / LINE_BYTES, self.ways.into())
    }

    /// The geometry as words, for [`Geometry::from_words`].
    pub fn to_words(self) -> [u64; 7] {
        let l2 = self.l2.unwrap_or(Cache { bytes: 0, ways: 0 });
        [
            self.l1.bytes,
            self.l1.ways.into(),
            l2.bytes,
            l2.ways.into(),
            self.ways.into(),
            self.way_bytes,
            self.window,
        ]
    }

    /// Restores a geometry from [`Geometry::to_words`]; `None` if the words are not a valid one.
    pub fn from_words(words: [u64; 7]) -> Option<Geometry> {
        let [l1, l1_ways, l2, l2_ways, ways, way_bytes, window] = words;
        let cache = |bytes, ways: u64| {
            Some(Cache {
                bytes,
                ways: u8::try_from(ways).ok()?,
            })
        };
        let geometry = Geometry {
            l1: cache(l1, l1_ways)?,
            l2: if l2 == 0 { None } else { Some(cache(l2, l2_ways)?) },
            ways: u8::try_from(ways).ok()?,
            way_bytes,
            window,
        };
        geometry.check().is_ok().then_some(geometry)
    }
}

fn check_size(name: &'static str, cache: Cache) -> Result<(), GeometryError> {
    let multiple = LINE_BYTES * u64::from(cache.ways.max(1));
    let whole =
        cache.ways > 0 && cache.bytes > 0 && cache.bytes.is_multiple_of(multiple) && cache.bytes <= LLC_BYTES_MAX;
    let error = GeometryError::Size {
        cache: name,
        multiple,
        bytes: cache.bytes,
    };
    if whole { Ok(()) } else { Err(error) }
}

impl fmt::Display for GeometryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            GeometryError::Size { cache, multiple, bytes } => write!(
                f,
                "{cache} has {bytes} bytes: give a positive multiple of {multiple}, at most {LLC_BYTES_MAX}"
            ),
            GeometryError::Ways(ways) => write!(f, "{ways} ways: give 1 to {WAYS_MAX}"),
            GeometryError::TooLarge(bytes) => write!(
                f,
                "all ways together have {bytes} bytes: at most {LLC_BYTES_MAX} are modelled; give fewer or smaller ways"
            ),
            GeometryError::Window => f.write_str("a window without instructions: give at least 1"),
        }
    }
}

impl std::error::Error for GeometryError {}
