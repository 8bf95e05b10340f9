//! Readings of memory-first objects, installed by the threads that offer them.
//!
//! **Problem.** A reading that goes through a mutex of all sensors, a queue and an updater thread costs microseconds,
//! where its copy into the object's slot takes a fraction of one. And threads that offer readings of different sensors
//! wait for each other.
//!
//! **Method.** The sensors are divided among [`LANES`] lanes by their number. A lane is a lock with priority
//! inheritance around the accounts of its sensors: an offer takes it, numbers the reading, copies the value into the
//! slot, enters it in the account, and releases it. So one thread at a time writes a slot, in the order of the sensor's
//! numbers, and the account is complete whenever the lane is free. A thread that panics in between releases lane and
//! slot.
//!
//! **Shedding keeps its authority.** While the knob admits every update, admission would only take note of a reading:
//! a lane is *open*, and notes the last one of each sensor. Where the knob sheds, or a log of admission is kept, all
//! lanes are *closed*: what they noted is entered in the updates ([`crate::updates`]), and each offer is decided there,
//! within the mutex of all sensors, and then installed at once. A watch needs that mutex too, which orders its notes.
//! Lanes open again when the knob has admitted everything for [`CALM`] control periods.
//!
//! **Order of locks**: the mutex of all sensors, then lanes by ascending number.

use punctual_os::{Lock, Os};
use punctual_units::{ObjectId, SensorId, Seq, Time};

use crate::temporal::Translation;
use crate::updates::{InstallDelays, SensorAccount, UpdateCounts, Updates};

/// Number of lanes: threads that offer at the same time seldom meet, and a set of lanes is a word.
pub const LANES: usize = 64;

/// Calls of [`Store::rebalance`](crate::Store::rebalance), one each control period, during which the knob must have
/// admitted everything before lanes open: closing takes a time in proportion to the number of sensors.
pub const CALM: u32 = 8;

/// A lane on cache lines of its own.
#[repr(align(128))]
struct Padding<L>(L);

/// All lanes.
pub(crate) struct Lanes<O: Os> {
    lanes: Box<[Padding<O::Lock<Lane>>]>,
}

/// A set of lanes: bit i is lane i.
pub(crate) type LaneSet = u64;

/// The sensors of one lane.
#[derive(Debug, Default)]
pub(crate) struct Lane {
    /// Whether every reading is admitted, and the accounts here go on; otherwise they have the last numbers only.
    pub open: bool,
    /// Translates sampling instants since the last suspension.
    pub clock: Translation,
    /// The latest instant of an offer.
    latest: Time,
    /// Since they were last entered.
    accounts: Vec<LaneAccount>,
    counts: UpdateCounts,
    delays: Option<InstallDelays>,
}

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LaneAccount {
    pub since: SensorAccount,
    /// Sampling instant and arrival of the last reading that admission does not know of.
    reading: Option<(Time, Time)>,
}

/// A lane that is locked.
pub(crate) type LaneGuard<'l, O> = <<O as Os>::Lock<Lane> as Lock<Lane>>::Guard<'l>;

/// The lanes of these objects.
pub(crate) fn lanes_of<'o>(objects: impl IntoIterator<Item = &'o ObjectId>) -> LaneSet {
    objects.into_iter().fold(0, |set, object| set | 1 << lane_of(object.0))
}

/// Number of the lane of this sensor or object.
#[inline]
pub(crate) fn lane_of(number: u32) -> usize {
    number as usize % LANES
}

impl<O: Os> Lanes<O> {
    /// Closed lanes for `sensors` sensors.
    pub fn new(os: &O, sensors: usize) -> Lanes<O> {
        let lane = |at: usize| Lane {
            accounts: vec![LaneAccount::default(); sensors.saturating_sub(at).div_ceil(LANES)],
            ..Lane::default()
        };
        Lanes {
            lanes: (0..LANES).map(|at| Padding(os.new_lock(lane(at)))).collect(),
        }
    }

    /// Locks the lane of this sensor or object.
    #[inline]
    pub fn lock(&self, number: u32) -> LaneGuard<'_, O> {
        self.lanes[lane_of(number)].0.lock()
    }

    /// Locks a set of lanes, until the guards are dropped.
    pub fn lock_all(&self, set: LaneSet) -> [Option<LaneGuard<'_, O>>; LANES] {
        std::array::from_fn(|at| (set >> at & 1 == 1).then(|| self.lanes[at].0.lock()))
    }

    /// Visits each lane with its lock held, and with its number.
    pub fn each(&self, mut visit: impl FnMut(usize, &mut Lane)) {
        for (at, lane) in self.lanes.iter().enumerate() {
            visit(at, &mut lane.0.lock());
        }
    }
}

impl Lane {
    /// The account of a sensor of this lane; `None` for an object without a sensor.
    #[inline]
    pub fn account(&mut self, sensor: SensorId) -> Option<&mut LaneAccount> {
        self.accounts.get_mut(sensor.index() / LANES)
    }

    /// Takes note of a number that the sensor offered outside of the lane's account.
    pub fn set_last(&mut self, sensor: SensorId, seq: Seq) {
        if let Some(account) = self.account(sensor) {
            account.since.last = seq;
        }
    }

    /// Adds an account for one more sensor of this lane.
    pub fn add_sensor(&mut self) {
        self.accounts.push(LaneAccount::default());
    }

    /// The later of `now` and the latest offer in this lane.
    #[inline]
    pub fn latest(&mut self, now: Time) -> Time {
        self.latest = self.latest.max(now);
        self.latest
    }

    /// Enters the arrival of a reading of an open lane.
    #[inline]
    pub fn offered(&mut self, sensor: SensorId, seq: Seq) {
        if let Some(account) = self.accounts.get_mut(sensor.index() / LANES) {
            account.since.offered(seq, &mut self.counts);
        }
    }

    /// Enters that the reading is in its slot, or that a newer one was there before it.
    #[inline]
    pub fn landed(&mut self, sensor: SensorId, seq: Seq, installed: bool, sampled_at: Time, now: Time) {
        if let Some(account) = self.accounts.get_mut(sensor.index() / LANES) {
            account.since.landed(seq, installed, &mut self.counts);
            account.reading = Some((sampled_at, now));
        }
        InstallDelays::observe(&mut self.delays, now.since(sampled_at));
    }

    /// Enters what was noted of one sensor.
    pub fn enter(&mut self, sensor: SensorId, updates: &mut Updates) {
        if let Some(account) = self.account(sensor) {
            account.enter(sensor, updates, true);
        }
    }

    /// Enters the accounts of all sensors of lane number `at`, and with `readings` their last readings, which
    /// admission needs once it decides. O(n log N) for n sensors of the lane.
    pub fn enter_all(&mut self, at: usize, updates: &mut Updates, readings: bool) {
        for (place, account) in self.accounts.iter_mut().enumerate() {
            account.enter(SensorId((at + place * LANES) as u32), updates, readings);
        }
        self.enter_sums(updates);
    }

    /// Enters the sums over the lane's sensors.
    pub fn enter_sums(&mut self, updates: &mut Updates) {
        updates.enter_sums(&std::mem::take(&mut self.counts), self.delays.take());
    }
}

impl LaneAccount {
    fn enter(&mut self, sensor: SensorId, updates: &mut Updates, readings: bool) {
        updates.enter(sensor, &mut self.since);
        if readings && let Some((sampled_at, now)) = self.reading.take() {
            updates.enter_reading(sensor, sampled_at, now);
        }
    }
}
