//! The LLC, shared by all threads, and the open window.

use crate::geometry::Geometry;
use crate::lru::LruSets;

/// Counts over a span of instructions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Window {
    /// Number of instructions in the window.
    pub instructions: u64,
    /// Number of lines requested from the LLC.
    pub requests: u64,
    /// Number of requests at stack distance 0, 1, ...: those at distance d hit with more than d ways.
    pub distances: Vec<u64>,
}

impl Window {
    /// Makes an empty window for an LLC of `ways` ways.
    pub fn new(ways: usize) -> Window {
        Window {
            distances: vec![0; ways],
            ..Window::default()
        }
    }

    /// Numbers of requests that miss with 1, 2, ... ways.
    ///
    /// ```
    /// use punctual_tracer::Window;
    /// let window = Window { instructions: 100, requests: 10, distances: vec![4, 3, 1] };
    /// assert_eq!(window.misses().collect::<Vec<_>>(), [6, 3, 2]);
    /// ```
    pub fn misses(&self) -> impl Iterator<Item = u64> {
        self.distances.iter().scan(self.requests, |left, hits| {
            *left = left.saturating_sub(*hits);
            Some(*left)
        })
    }
}

/// Records the LLC's stack distances, window by window.
#[derive(Debug)]
pub struct Recorder {
    llc: LruSets,
    window_instructions: u64,
    open: Window,
}

impl Recorder {
    /// Makes an empty LLC, at the beginning of the first window.
    pub fn new(geometry: &Geometry) -> Recorder {
        Recorder {
            llc: geometry.llc(),
            window_instructions: geometry.window,
            open: Window::new(geometry.ways.into()),
        }
    }

    /// Adds the instructions and requests of a stream; returns whether the window is complete now.
    pub fn add(&mut self, instructions: u64, requests: impl Iterator<Item = u64>) -> bool {
        self.open.instructions += instructions;
        for line in requests {
            self.open.requests += 1;
            // A line that is not among the ways misses with any number of them.
            if let Some(count) = self.open.distances.get_mut(self.llc.touch(line)) {
                *count += 1;
            }
        }
        self.remaining() == 0
    }

    /// The window that is not complete yet.
    pub fn open(&self) -> &Window {
        &self.open
    }

    /// Ends the window and begins the next; the LLC keeps its lines.
    pub fn take(&mut self) -> Window {
        let empty = Window::new(self.llc.ways());
        std::mem::replace(&mut self.open, empty)
    }

    /// Number of instructions to the end of the window.
    pub fn remaining(&self) -> u64 {
        self.window_instructions.saturating_sub(self.open.instructions)
    }

    /// Number of instructions in a whole window.
    pub fn window_instructions(&self) -> u64 {
        self.window_instructions
    }
}
