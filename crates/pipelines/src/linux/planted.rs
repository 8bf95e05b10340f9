//! Kills of workers, and of processes at chosen points of a handover: a random kill hits such a point once in thousands
//! of times. For tests: only the feature `fixtures` compiles them.

use std::sync::atomic::Ordering;

use punctual_platform::linux::process::{ProcessId, kill_now};

use super::panel::Panel;
use super::shared::{Note, Segment};

/// A point at which a process dies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub enum Point {
    /// A target has read the state, and has not reported that it is ready.
    Prepared = 1,
    /// The target has reported that, and the owner does not know it yet.
    Ready,
    /// The owner knows that it is asked to yield.
    Asked,
    /// The owner has yielded, and the target does not know it yet.
    Yielded,
    /// The target owns the stage, and has done no step of it.
    Taken,
    /// A step is committed, and the neighbours do not know it yet.
    Committed,
    /// A worker is about to start a process.
    Starts,
    /// A worker has started a process, and has not recorded that.
    Started,
    /// A worker was notified of a death, and has not recorded that.
    Reaped,
    /// A worker has recorded the death, and the stage has no other process yet.
    Buried,
}

impl Point {
    /// All points, in the order of their numbers.
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
    /// Kills the next process that reaches `point`.
    pub fn plant_kill(&self, point: Point) {
        self.shared().planted().store(point as u64, Ordering::Release);
    }

    /// Whether a kill is planted that has not happened yet.
    pub fn has_planted_kill(&self) -> bool {
        self.shared().planted().load(Ordering::Acquire) != 0
    }

    /// Kills the worker of a core; returns whether there was one.
    pub fn kill_worker(&self, number: usize) -> bool {
        let shared = self.shared();
        for stage in shared.migratable() {
            if shared.core_of(shared.control(stage).owner) == number {
                shared.stamp(stage, Note::KilledAt);
            }
        }
        let pid = shared.worker(number).load(Ordering::Relaxed) as i32;
        (pid != 0)
            .then(|| ProcessId::of(pid))
            .flatten()
            .is_some_and(ProcessId::kill)
    }
}

impl Segment {
    /// Kills this process if a kill is planted at `point`.
    #[inline]
    pub(super) fn at(&self, point: Point) {
        if self.planted().load(Ordering::Relaxed) != point as u64 {
            return;
        }
        let once = self
            .planted()
            .compare_exchange(point as u64, 0, Ordering::AcqRel, Ordering::Relaxed);
        if once.is_ok() {
            kill_now();
        }
    }
}
