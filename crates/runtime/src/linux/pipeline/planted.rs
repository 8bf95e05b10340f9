//! Kills at chosen points of a hand-over, for the tests: what a kill at random meets once in thousands of times.
//!
//! Without debug assertions there are no such points.

use std::sync::atomic::Ordering;

use super::panel::Panel;
use super::shared::Shared;

/// A point at which a process dies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub enum Point {
    /// A target has read the state, and has not said that it is ready.
    Prepared = 1,
    /// It has said so, and the owner does not know.
    Ready,
    /// The owner knows that it is asked.
    Asked,
    /// The owner has yielded, and the target does not know.
    Yielded,
    /// The target has the stage, and has done no step of it.
    Taken,
    /// A step is committed, and the neighbours do not know.
    Committed,
    /// A worker is about to start a process.
    Starts,
    /// A worker has started one, and has not said so.
    Started,
    /// A worker has heard of a death, and has not said so.
    Reaped,
    /// A worker has said so, and the stage has no other process yet.
    Buried,
}

impl Point {
    /// All.
    pub const ALL: [Point; 10] = [
        Point::Prepared,
        Point::Ready,
        Point::Asked,
        Point::Yielded,
        Point::Taken,
        Point::Committed,
        Point::Starts,
        Point::Started,
        Point::Reaped,
        Point::Buried,
    ];
}

impl Panel {
    /// Has the next process die that comes to `point`.
    pub fn plant_kill(&self, point: Point) {
        self.shared().planted().store(point as u64, Ordering::Release);
    }

    /// Whether no kill is planted that has not happened.
    pub fn has_planted_kill(&self) -> bool {
        self.shared().planted().load(Ordering::Acquire) != 0
    }
}

impl Shared {
    /// Ends this process, where a kill is planted at `point`.
    #[inline]
    pub(super) fn at(&self, point: Point) {
        if !cfg!(debug_assertions) || self.planted().load(Ordering::Relaxed) != point as u64 {
            return;
        }
        let once = self
            .planted()
            .compare_exchange(point as u64, 0, Ordering::AcqRel, Ordering::Relaxed);
        if once.is_ok() {
            punctual_platform::linux::process::kill_now();
        }
    }
}
