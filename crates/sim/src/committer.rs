//! Group commits of memory-first updates: every so often, one write transaction takes all objects that changed.

use punctual_units::{Nanos, SensorId, Time};

use crate::cores::Segment;
use crate::model::StoreModel;

/// The group commit.
#[derive(Clone, Debug)]
pub(crate) struct Committer {
    interval: Nanos,
    next: Time,
    /// A commit is due and has not begun.
    due: bool,
    /// Objects that changed since the last commit began, and how many they are.
    dirty: Vec<bool>,
    dirty_count: u32,
    /// The commit that is going on.
    segment: Option<Segment>,
}

impl Committer {
    pub fn new(interval: Nanos, objects: usize) -> Committer {
        let interval = interval.max(Nanos(1));
        Committer {
            interval,
            next: Time::ZERO + interval,
            due: false,
            dirty: vec![false; objects],
            dirty_count: 0,
            segment: None,
        }
    }

    /// When the next commit falls due.
    pub fn next(&self) -> Time {
        self.next
    }

    /// The interval is over.
    pub fn tick(&mut self) {
        self.next = self.next + self.interval;
        self.due |= self.dirty_count > 0;
    }

    /// An object has changed.
    pub fn touch(&mut self, sensor: SensorId) {
        let dirty = &mut self.dirty[sensor.index()];
        self.dirty_count += u32::from(!*dirty);
        *dirty = true;
    }

    /// Whether a commit is going on.
    pub fn busy(&self) -> bool {
        self.segment.is_some()
    }

    /// Whether a commit is going on or waits for the write lock.
    pub fn has_work(&self) -> bool {
        self.busy() || self.due
    }

    /// The segment of the commit, which begins now if it had not.
    pub fn segment(&mut self, store: &StoreModel) -> Segment {
        *self.segment.get_or_insert_with(|| {
            let puts = f64::from(self.dirty_count);
            self.due = false;
            self.dirty.fill(false);
            self.dirty_count = 0;
            Segment::new(store.write_txn(puts))
        })
    }

    /// Keeps what is left of the commit.
    pub fn keep(&mut self, left: Segment) {
        self.segment = Some(left);
    }

    /// The commit is complete.
    pub fn finish(&mut self) {
        self.segment = None;
    }
}
