//! Caches as a textbook draws them, written without a look at the models.

#![allow(dead_code)] // Each file that includes it uses a part of it.

use punctual_tracer::{Cache, Geometry, LINE_BYTES};

/// A cache with LRU replacement: per set a list, the oldest line first.
pub struct NaiveLru {
    sets: Vec<Vec<u64>>,
    ways: usize,
    newest: bool,
}

impl NaiveLru {
    pub fn new(sets: u64, ways: usize) -> NaiveLru {
        NaiveLru {
            sets: vec![Vec::new(); sets as usize],
            ways,
            newest: false,
        }
    }

    fn of(cache: Cache) -> NaiveLru {
        NaiveLru::new(cache.bytes / LINE_BYTES / u64::from(cache.ways), cache.ways.into())
    }

    /// A cache that is wrong.
    pub fn replacing_the_newest(self) -> NaiveLru {
        NaiveLru { newest: true, ..self }
    }

    pub fn misses(&mut self, line: u64) -> bool {
        let number = (line % self.sets.len() as u64) as usize;
        let set = &mut self.sets[number];
        let found = set.iter().position(|other| *other == line);
        match found {
            Some(place) => {
                set.remove(place);
            }
            None if set.len() == self.ways && self.newest => {
                set.pop();
            }
            None if set.len() == self.ways => {
                set.remove(0);
            }
            None => {}
        }
        set.push(line);
        found.is_none()
    }
}

/// Which of the first-level caches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    Instructions,
    Data,
}

/// Private caches, and an LLC for each number of ways.
pub struct NaiveCaches {
    instructions: NaiveLru,
    data: NaiveLru,
    second: Option<NaiveLru>,
    llcs: Vec<NaiveLru>,
    requests: u64,
    misses: Vec<u64>,
}

impl NaiveCaches {
    pub fn new(geometry: &Geometry) -> NaiveCaches {
        let ways = usize::from(geometry.ways);
        NaiveCaches {
            instructions: NaiveLru::of(geometry.l1),
            data: NaiveLru::of(geometry.l1),
            second: geometry.l2.map(NaiveLru::of),
            llcs: (1..=ways)
                .map(|ways| NaiveLru::new(geometry.way_bytes / LINE_BYTES, ways))
                .collect(),
            requests: 0,
            misses: vec![0; ways],
        }
    }

    /// One access to all of `lines`: a request, and a miss, if any of them is.
    pub fn ask(&mut self, source: Source, lines: &[u64]) {
        let first = match source {
            Source::Instructions => &mut self.instructions,
            Source::Data => &mut self.data,
        };
        if !any_misses(first, lines) || self.second.as_mut().is_some_and(|second| !any_misses(second, lines)) {
            return;
        }
        self.requests += 1;
        for (llc, misses) in self.llcs.iter_mut().zip(&mut self.misses) {
            *misses += u64::from(any_misses(llc, lines));
        }
    }

    /// Requests and misses since the last call.
    pub fn take(&mut self) -> (u64, Vec<u64>) {
        let ways = self.misses.len();
        (
            std::mem::take(&mut self.requests),
            std::mem::replace(&mut self.misses, vec![0; ways]),
        )
    }
}

/// Asks for all of them.
fn any_misses(cache: &mut NaiveLru, lines: &[u64]) -> bool {
    lines.iter().fold(false, |any, line| cache.misses(*line) | any)
}
