//! Group commits of memory-first updates: at each interval, one write transaction takes all objects that changed.

use punctual_units::{Nanos, SensorId, Time};

use crate::cores::Segment;
use crate::model::StoreModel;

/// Timer, changed objects and progress of the group commit.
#[derive(Clone, Debug)]
pub(crate) struct Committer {
    interval: Nanos,
    next: Time,
    /// A commit is due and has not begun.
    due: bool,
    /// Which objects changed since the last commit began, and their number.
    dirty: Vec<bool>,
    dirty_count: u32,
    /// The rest of the commit in progress.
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

    /// Begins the next interval; a commit is due if an object has changed.
    pub fn tick(&mut self) {
        self.next = self.next + self.interval;
        self.due |= self.dirty_count > 0;
    }

    /// Notes that an object has changed.
    pub fn touch(&mut self, sensor: SensorId) {
        let dirty = &mut self.dirty[sensor.index()];
        self.dirty_count += u32::from(!*dirty);
        *dirty = true;
    }

    /// Whether a commit is in progress.
    pub fn busy(&self) -> bool {
        self.segment.is_some()
    }

    /// Whether a commit is in progress or waits for the write lock.
    pub fn has_work(&self) -> bool {
        self.busy() || self.due
    }

    /// Returns the segment of the commit; a commit that has not begun begins now.
    pub fn segment(&mut self, store: &StoreModel) -> Segment {
        *self.segment.get_or_insert_with(|| {
            let puts = f64::from(self.dirty_count);
            self.due = false;
            self.dirty.fill(false);
            self.dirty_count = 0;
            Segment::new(store.write_txn(puts))
        })
    }

    /// Stores the rest of an interrupted commit.
    pub fn keep(&mut self, left: Segment) {
        self.segment = Some(left);
    }

    /// Notes that the commit is complete.
    pub fn finish(&mut self) {
        self.segment = None;
    }
}
