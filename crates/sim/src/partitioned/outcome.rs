//! What comes out of a run.

/// A job that ended.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Done {
    /// Its task.
    pub task: usize,
    /// When it was released (s).
    pub released: f64,
    /// Release to completion (s).
    pub response: f64,
    /// Release to deadline (s).
    pub deadline: f64,
}

impl Done {
    /// Whether it ended after its deadline.
    pub fn is_late(&self) -> bool {
        self.response > self.deadline
    }
}

/// A run that ended.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Finished {
    /// Every job, in the order in which they ended.
    pub jobs: Vec<Done>,
    /// When the last one ended (s).
    pub ended: f64,
    /// How often the allocator was asked.
    pub decisions: u64,
    /// How often it handed out something else than before.
    pub changes: u64,
    /// Ways that cores gained in all, those of the first plan apart.
    pub ways_moved: u64,
    /// Core-seconds in which a job was there to run.
    pub busy: f64,
    /// Core-seconds of those in which it stood still until its ways were filled.
    pub refilling: f64,
    /// Jobs that were faster than their program's envelope: there must be none.
    pub too_fast: u64,
}
