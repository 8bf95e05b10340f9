//! The path of sensor updates into the store.
//!
//! [`Store::offer`] decides on an update. In memory-first mode the offering thread installs it as well (`lanes.rs`). In
//! transaction mode it queues the update, and an updater thread calls [`Store::install_pending`].
//!
//! **Helping.** With [`helping`](crate::StoreOptions::helping), a transaction first installs, on its own thread, the
//! updates that are pending when it begins, and then takes its snapshot. This is the on-demand policy of B. Adelberg,
//! H. Garcia-Molina and B. Kao, "Applying update streams in a soft real-time database system" (SIGMOD 1995). Without
//! it, the most urgent job reads stale data exactly when it has preempted the updater. The time counts as data time:
//! that is how the update load, and the knob that sheds it, act on a transaction's response time.
//!
//! A transaction sees every update that was admitted before it began. In transaction mode, where each takes a commit,
//! it leaves out those that have expired, and stops at its deadline: otherwise a backlog on a busy machine keeps it
//! from ending, and makes nothing fresh. What it then reads is stale, and counts as stale in [`Store::fresh_share`].
//!
//! **In transaction mode** each update is a write transaction of its own, whose deadline is the instant at which the
//! update expires. To know it, the updater *stages* the next update before it asks for the write lock. The holder of
//! the lock takes up to [`TOGETHER`] updates under one hold of the mutex, the staged one first, and writes one after
//! the other. With a hold per update it would meet the feeder there tens of thousands of times per second. When a
//! thread waits for the write lock, the holder returns the updates that it has not written yet. So a helper that comes
//! late waits for at most one update, whose writer runs with the helper's priority meanwhile, and no update is stuck
//! with a thread that lost its core. An update whose write fails is returned, too: the next call tries it again, before
//! all others.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};

use punctual_os::{Lock, Os};
use punctual_units::{ObjectId, SensorId, Seq, Share, Time};

use crate::batch::is_reserved;
use crate::engine::{Durability, Engine, Read, Table, Write};
use crate::lanes::{CALM, Lane, Lanes};
use crate::offers::OfferedReading;
use crate::permit::Permit;
use crate::store::{Store, check_spec};
use crate::temporal::{Installation, ObjectSpec, Sample, Slot, Suspensions, encode};
use crate::transaction::LockWait;
use crate::updates::{
    AdmissionEvent, AdmissionOptions, AdmissionStep, Pending, Receipt, Reconciliation, SensorSpec, UpdateCounts,
    Updates,
};
use crate::watch::WakeMask;
use crate::{Deadline, StoreError, UpdateMode};

/// Most updates that are offered or installed under one hold of the mutex: it takes some microseconds.
pub const TOGETHER: usize = 32;

/// Most updates that are out of the queue: those being written, and one that was staged meanwhile.
const OUT_OF_QUEUE_MAX: usize = TOGETHER + 1;

/// An update to be offered with others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offer<'v> {
    /// Sensor of the update.
    pub sensor: SensorId,
    /// Its number.
    pub seq: Seq,
    /// Sampling instant, on the clock of deadlines.
    pub sampled_at: Time,
    /// Bytes of the reading.
    pub value: &'v [u8],
}

/// All sensors, their updates, and the account of them.
pub(crate) struct Sensors<O: Os> {
    state: O::Lock<State>,
    /// Accounts of readings that are installed as they are offered; without sensors in transaction mode.
    pub lanes: Lanes<O>,
    /// Updates that were admitted and are not installed yet: queued, staged, or being written.
    outstanding: AtomicUsize,
}

/// An update that bypasses the queue.
#[derive(Debug)]
pub(crate) struct Direct {
    pub sample: Sample,
    /// The admitted update in the ledger; `None` if the object has no sensor here.
    pending: Option<Pending>,
}

#[derive(Debug)]
pub(crate) struct State {
    pub updates: Updates,
    /// The latest `now` of an offer: several threads offer, each by its own reading of the clock.
    latest: Time,
    /// Translates instants of sensors to the clock of ages.
    pub suspensions: Suspensions,
    /// The decisions of admission, while a log is kept.
    log: Option<Vec<AdmissionStep>>,
    /// Updates out of the queue that no thread is writing: the one that waits for the write lock, and returned ones.
    staged: VecDeque<Update>,
    /// Number of updates between the queue and the engine.
    writing: usize,
    /// Buffers for values, reused: as many as updates are staged and written at a time.
    spare: Vec<Vec<u8>>,
    /// Memory for the updates being written, reused.
    batch: Vec<Update>,
    /// Reads of each object at the last ranking of the sensors.
    reads_ranked: Vec<u64>,
    /// Control periods for which lanes have been closed although the knob admits everything; `None` while they are
    /// open, or never open.
    calm: Option<u32>,
}

#[derive(Debug)]
struct Update {
    pending: Pending,
    /// Number and instant as slot and record keep them.
    sample: Sample,
    value: Vec<u8>,
    /// Outcome of the update; `None` until it is in the engine.
    installation: Option<Installation>,
}

impl<O: Os> Sensors<O> {
    pub fn new(os: &O, specs: &[ObjectSpec], admission: AdmissionOptions, update_mode: UpdateMode) -> Self {
        let sensors: Vec<_> = specs.iter().map(sensor_spec).collect();
        let longest = specs.iter().map(|spec| spec.max_len).max().unwrap_or(0);
        let state = State {
            updates: Updates::new(&sensors, admission),
            latest: Time::ZERO,
            suspensions: Suspensions::new(os),
            log: None,
            staged: VecDeque::with_capacity(OUT_OF_QUEUE_MAX),
            writing: 0,
            spare: (0..OUT_OF_QUEUE_MAX).map(|_| Vec::with_capacity(longest)).collect(),
            batch: Vec::with_capacity(TOGETHER),
            reads_ranked: vec![0; specs.len()],
            calm: None,
        };
        let installed_at_once = match update_mode {
            UpdateMode::MemoryFirst => specs.len(),
            UpdateMode::Transaction => 0,
        };
        let lanes = Lanes::new(os, installed_at_once);
        let clock = state.suspensions.last();
        lanes.each(|_, lane| (lane.clock, lane.open) = (clock, update_mode == UpdateMode::MemoryFirst));
        Sensors {
            state: os.new_lock(state),
            lanes,
            outstanding: AtomicUsize::new(0),
        }
    }

    #[inline]
    pub fn outstanding(&self) -> usize {
        self.outstanding.load(Ordering::Acquire)
    }

    /// Changes the state within the mutex, then publishes how many updates are outstanding.
    pub fn with<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let mut state = self.state.lock();
        let answer = change(&mut state);
        let outstanding = state.updates.pending() + state.staged.len() + state.writing;
        self.outstanding.store(outstanding, Ordering::Release);
        answer
    }

    /// Reads both clocks; instants are translated after this call. Called with no lane locked.
    pub fn notice_suspension(&self, state: &mut State, os: &O) {
        if state.suspensions.notice(os) {
            let clock = state.suspensions.last();
            self.lanes.each(|_, lane| lane.clock = clock);
        }
    }

    /// Closes all lanes, unless they are closed, and enters what they have noted. O(N log N) for N sensors.
    fn close_lanes(&self, state: &mut State) {
        if state.calm.is_some() {
            state.calm = Some(0);
            return;
        }
        self.lanes.each(|at, lane| {
            lane.enter_all(at, &mut state.updates, true);
            state.latest = lane.latest(state.latest);
            if std::mem::replace(&mut lane.open, false) {
                state.calm = Some(0);
            }
        });
    }

    /// Opens the lanes that were closed.
    fn open_lanes(&self, state: &mut State) {
        if state.calm.take().is_some() {
            self.lanes.each(|_, lane| lane.open = true);
        }
    }

    /// Enters the sums over the sensors of all lanes.
    fn enter_sums(&self, state: &mut State) {
        self.lanes.each(|_, lane| lane.enter_sums(&mut state.updates));
    }
}

impl State {
    /// Decides on one update at `now`, or at the latest instant of another thread's offer if that is later.
    pub fn offer(
        &mut self,
        sensor: SensorId,
        seq: Seq,
        sampled_at: Time,
        value: &[u8],
        now: Time,
    ) -> Result<Receipt, StoreError> {
        let now = now.max(self.latest);
        let verdict = self.updates.offer(sensor, seq, sampled_at, value, now)?;
        self.latest = now;
        let offered = || AdmissionEvent::Offered {
            sensor,
            seq,
            sampled_at,
        };
        self.note(offered, verdict == Receipt::Admitted);
        Ok(verdict)
    }

    /// Decides on one reading of a closed lane, which the caller installs at once.
    pub fn offer_directly(
        &mut self,
        reading: &OfferedReading<'_>,
        seq: Seq,
        now: Time,
    ) -> Result<Option<Pending>, StoreError> {
        let &OfferedReading { sensor, value, .. } = reading;
        let (now, sampled_at) = (now.max(self.latest), reading.sampled_at.unwrap_or(now));
        let admitted = self.updates.offer_directly(sensor, seq, sampled_at, value.len(), now)?;
        self.latest = now;
        let offered = || AdmissionEvent::Offered {
            sensor,
            seq,
            sampled_at,
        };
        self.note(offered, admitted.is_some());
        Ok(admitted)
    }

    fn add_sensor(&mut self, spec: &ObjectSpec) {
        let sensor = sensor_spec(spec);
        self.updates.add_sensor(sensor);
        self.note(|| AdmissionEvent::Registered(sensor), false);
        self.reads_ranked.push(0);
        for buffer in &mut self.spare {
            buffer.reserve(spec.max_len);
        }
    }

    /// Numbers the next update of `object`, which is admitted whatever the knob says and installed by the caller. In
    /// memory-first mode the caller has locked its lane. `last` is the sample in its slot.
    pub fn number_directly(
        &mut self,
        object: ObjectId,
        lane: Option<&mut Lane>,
        last: Option<Sample>,
        sampled_at: Time,
        now: Time,
    ) -> Direct {
        let now = now.max(self.latest);
        let sensor = SensorId(object.0);
        let mut lane = lane;
        if let Some(lane) = &mut lane {
            lane.enter(sensor, &mut self.updates);
        }
        let pending = self.updates.admit_directly(sensor, sampled_at, now).ok();
        if let Some(pending) = &pending {
            if let Some(lane) = lane {
                lane.set_last(sensor, pending.seq);
            }
            self.latest = now;
            self.note(|| AdmissionEvent::Direct { sensor, sampled_at }, true);
        }
        let next = last.map_or(1, |last| last.seq.0 + 1);
        Direct {
            sample: Sample {
                seq: pending.map_or(Seq(next), |pending| pending.seq),
                sampled_at: self.suspensions.since_boot(sampled_at),
            },
            pending,
        }
    }

    /// Enters the outcome of an update that bypassed the queue.
    pub fn settle_directly(&mut self, update: &Direct, installed: bool) {
        if let Some(pending) = &update.pending {
            match installed {
                true => self.updates.installed_directly(pending),
                false => self.updates.overtaken(pending),
            }
        }
    }

    fn note(&mut self, event: impl FnOnce() -> AdmissionEvent, admitted: bool) {
        if let Some(log) = &mut self.log {
            log.push(AdmissionStep {
                now: self.latest,
                event: event(),
                admitted,
            });
        }
    }

    /// Stages the next update, unless one is staged; returns the instant at which it expires.
    fn stage(&mut self) -> Option<Time> {
        if self.staged.is_empty() {
            let next = self.dequeue()?;
            self.staged.push_back(next);
        }
        self.staged.front().map(|update| update.pending.expires)
    }

    /// The update to install next: a staged one, or else the first in the queue.
    fn take(&mut self) -> Option<Update> {
        self.staged.pop_front().or_else(|| self.dequeue())
    }

    fn dequeue(&mut self) -> Option<Update> {
        let mut value = self.spare.pop().unwrap_or_default();
        match self.updates.next(&mut value) {
            Some(pending) => Some(Update {
                sample: Sample {
                    seq: pending.seq,
                    sampled_at: self.suspensions.since_boot(pending.sampled_at),
                },
                pending,
                value,
                installation: None,
            }),
            None => {
                self.spare.push(value);
                None
            }
        }
    }

    /// Takes the next updates, at most `limit` and [`TOGETHER`], to be written and then [settled](State::settle); for a
    /// transaction that helps, given its deadline and the time, as [`Updates::helps`] says. Returns how many others it
    /// leaves out. A staged one, of which there are few, is taken anyway.
    fn take_together(&mut self, limit: usize, helper: Option<(Time, Time)>) -> (Vec<Update>, usize) {
        let mut batch = std::mem::take(&mut self.batch);
        let mut left = limit;
        while batch.len() < TOGETHER && left > 0 {
            let stops = |(due, now)| !self.updates.helps(&mut left, due, now);
            if self.staged.is_empty() && helper.is_some_and(stops) {
                break;
            }
            let Some(update) = self.take() else { break };
            batch.push(update);
            left -= 1;
        }
        self.writing += batch.len();
        let left_out = limit - left - batch.len();
        (batch, left_out)
    }

    /// Enters the outcomes of the written updates. The others are staged again, before all others and in their order.
    fn settle(&mut self, mut batch: Vec<Update>, now: Time) {
        self.writing -= batch.len();
        for update in batch.drain(..).rev() {
            match update.installation {
                Some(installation) => self.finished(update, installation, now),
                None => self.staged.push_front(update),
            }
        }
        self.batch = batch;
    }

    fn finished(&mut self, update: Update, installation: Installation, now: Time) {
        self.account(&update.pending, installation, now);
        self.spare.push(update.value);
    }

    pub fn account(&mut self, pending: &Pending, installation: Installation, now: Time) {
        match installation {
            Installation::Installed => self.updates.installed(pending, now),
            Installation::Overtaken => self.updates.overtaken(pending),
            Installation::Busy => unreachable!("installs into a slot are serialized by its lane or by the permit"),
        }
    }
}

impl<E: Engine, O: Os> Store<E, O> {
    /// Registers a temporal object and its sensor while the store is open: from now on they are equal to those that the
    /// store was opened with, and the object's number is its sensor's. Loads the value that the engine has kept of it.
    /// The object takes one of the slots that [`created_max`](crate::StoreOptions::created_max) reserves, for as long
    /// as the store is open; later runs register it again, or open the store with it.
    ///
    /// Transactions that install updates wait meanwhile, for a time in proportion to the number of sensors; the next
    /// reading of each sensor is admitted, see [`Updates::add_sensor`].
    ///
    /// # Errors
    /// [`StoreError::PlainRecord`], because the object would hide that record (one whose life has ended is removed);
    /// [`StoreError::DuplicateObject`], [`StoreError::ReservedKey`], [`StoreError::ObjectKey`],
    /// [`StoreError::ObjectSize`], [`StoreError::ValueTooLong`], [`StoreError::TooManyObjects`];
    /// [`StoreError::LockTimeout`] and [`StoreError::NestedWrite`], because it waits for the write lock;
    /// [`StoreError::Engine`]; [`StoreError::Replicated`], where the log creates objects.
    pub fn register(&self, spec: &ObjectSpec) -> Result<ObjectId, StoreError> {
        if self.replicated {
            return Err(StoreError::Replicated);
        }
        check_spec(spec)?;
        let key = || spec.key.clone();
        if is_reserved(&spec.key) {
            return Err(StoreError::ReservedKey { key: key() });
        }
        // A transaction that puts a plain record under this key meanwhile would not see the object.
        let now = self.os.now();
        let (_permit, _) = self.permit(Deadline::NONE, now)?;
        let is_plain = self.engine.snapshot()?.get(Table::Data, &spec.key)?.is_some();
        if is_plain && !self.remove_due(&spec.key)? {
            return Err(StoreError::PlainRecord { key: key() });
        }
        let kept = self.kept(spec)?;
        let created = self.objects.created();
        self.sensors.with(|state| {
            if self.objects.find(&spec.key).is_some() {
                return Err(StoreError::DuplicateObject { key: key() });
            }
            let max = created.room();
            if created.len() >= max {
                return Err(StoreError::TooManyObjects { max });
            }
            let object = self.objects.created_id(created.add_unnamed(spec));
            if let Some((sample, value)) = &kept {
                self.load_value(object, *sample, value);
                self.group.committed(object, Seq(0), Durability::Volatile);
            }
            let was_open = state.calm.is_none();
            self.sensors.close_lanes(state);
            state.add_sensor(spec);
            if self.update_mode == UpdateMode::MemoryFirst {
                self.sensors.lanes.lock(object.0).add_sensor();
            }
            if was_open {
                self.sensors.open_lanes(state);
            }
            Ok(object)
        })
    }

    /// Installs up to `limit` pending updates; returns how many were installed or superseded. For the updater thread.
    /// In memory-first mode none is ever pending.
    ///
    /// # Errors
    /// In transaction mode those of [`write_transaction`](Store::write_transaction) and of a commit. The failed update
    /// is not lost, the next call tries it again.
    pub fn install_pending(&self, limit: usize) -> Result<usize, StoreError> {
        let mut installed = 0;
        while installed < limit
            && self.pending() > 0
            && let Some(expires) = self.sensors.with(State::stage)
        {
            let now = self.os.now();
            self.look_at_readers(now);
            // Soft: even if late, it is the newest update of its object.
            let (permit, _) = self.permit(Deadline::soft(expires), now)?;
            match self.install_in_engine(limit - installed, None, &permit)? {
                0 => break,
                now => installed += now,
            }
        }
        Ok(installed)
    }

    /// Installs a reading of `object` from another node's sensor, in memory; admission, queue and account are those of
    /// the node that it came from. `sample` has the earliest possible sampling instant on this machine's clock
    /// ([`Clock::now`](punctual_units::Clock::now)); with an unknown instant the value counts as stale.
    ///
    /// # Errors
    /// [`StoreError::UnknownObject`], [`StoreError::ValueTooLong`]; [`StoreError::NotMemoryFirst`] in transaction mode.
    pub fn install_from_peer(
        &self,
        object: ObjectId,
        sample: Sample,
        value: &[u8],
    ) -> Result<Installation, StoreError> {
        if self.update_mode == UpdateMode::Transaction {
            return Err(StoreError::NotMemoryFirst);
        }
        let slot = self.slot(object)?;
        let (len, max_len) = (value.len(), slot.max_len());
        if len > max_len {
            let key = self.objects.key(object).to_vec();
            return Err(StoreError::ValueTooLong { key, len, max_len });
        }
        // Within the mutex, as the object's next name is given.
        let (installation, woken) = self.sensors.with(|state| {
            let seq = Seq(self.objects.first_seq(object).saturating_add(sample.seq.0));
            self.sensors.notice_suspension(state, &self.os);
            let sampled_at = sample.sampled_at.and_then(|at| state.suspensions.since_boot(at));
            let sample = Sample { seq, sampled_at };
            let _lane = self.sensors.lanes.lock(object.0);
            let installation = self.install_one(object, slot, sample, value);
            (installation, self.note_installed(object, sample, installation))
        });
        self.watches.wake(woken);
        Ok(installation)
    }

    /// Number of updates that are admitted and not installed yet.
    pub fn pending(&self) -> usize {
        self.sensors.outstanding()
    }

    /// Sets the share of updates to admit: the knob. The freshness minimum may add to it.
    pub fn set_admitted_share(&self, share: Share) {
        self.sensors.with(|state| {
            if state.updates.admitted_share() != share {
                if share != Share::ONE {
                    self.sensors.close_lanes(state);
                }
                state.updates.set_admitted_share(share);
                state.note(|| AdmissionEvent::Share(share), false);
            }
        });
    }

    /// Keeps a log of admission's decisions from now on, until [`take_admission_log`](Store::take_admission_log). It
    /// grows with every offer: for runs with an end.
    pub fn keep_admission_log(&self) {
        self.sensors.with(|state| {
            self.sensors.close_lanes(state);
            let share = state.updates.admitted_share();
            state.log = Some(Vec::new());
            state.note(|| AdmissionEvent::Share(share), false);
        });
    }

    /// Ends the log of [`keep_admission_log`](Store::keep_admission_log) and returns it; empty if none was kept.
    pub fn take_admission_log(&self) -> Vec<AdmissionStep> {
        self.sensors.with(|state| state.log.take()).unwrap_or_default()
    }

    /// The share of updates to admit, as it was set.
    pub fn admitted_share(&self) -> Share {
        self.sensors.with(|state| state.updates.admitted_share())
    }

    /// The knob that admits the fewest updates: one below it admits no fewer. With uniform shedding it is the least
    /// share that keeps the freshness minimum on average, coldest-first it is 0; the minimum is kept at any knob.
    pub fn least_share(&self) -> Share {
        self.sensors.with(|state| state.updates.least_share())
    }

    /// The largest fresh share that can be guaranteed with everything admitted.
    pub fn best_fresh_share(&self) -> Share {
        self.sensors.with(|state| state.updates.best_fresh_share())
    }

    /// Adapts admission to what was measured: the least share to the time that installations take and, where shedding
    /// depends on reads, the ranks of the objects to their reads since the last call. To be called once per control
    /// period.
    pub fn rebalance(&self) {
        let ranked = |state: &mut State| {
            self.sensors.enter_sums(state);
            let is_calm = state.log.is_none() && state.updates.admits_all();
            if let Some(calm) = &mut state.calm {
                *calm = if is_calm { *calm + 1 } else { 0 };
                if *calm >= CALM {
                    self.sensors.open_lanes(state);
                }
            }
            if let Some(delay) = state.updates.adapt(self.os.now()) {
                state.note(|| AdmissionEvent::Delay(delay), false);
            }
            state.updates.ranks_objects().then_some(state.reads_ranked.len())
        };
        let Some(sensors) = self.sensors.with(ranked) else {
            return;
        };
        // Outside of the mutex, because it visits all objects.
        let reads = |object| self.objects.slot(object).map_or(0, |slot| slot.reads());
        let mut now: Vec<u64> = self.objects.ids().take(sensors).map(reads).collect();
        self.sensors.with(|state| {
            now.resize(state.reads_ranked.len(), 0); // one may have been registered meanwhile
            let before = std::mem::replace(&mut state.reads_ranked, now);
            let since: Vec<u64> = state
                .reads_ranked
                .iter()
                .zip(&before)
                .map(|(now, before)| now.saturating_sub(*before))
                .collect();
            state.updates.rebalance(|sensor| since[sensor.index()]);
            state.note(|| AdmissionEvent::Rebalanced(since), false);
        });
    }

    /// Updates by state since the store was opened, over all sensors.
    pub fn counts(&self) -> UpdateCounts {
        self.sensors.with(|state| {
            self.sensors.enter_sums(state);
            state.updates.counts()
        })
    }

    /// Checks, sensor by sensor, that each offered update is in exactly one state. O(N) in the number of sensors.
    pub fn reconcile(&self) -> Reconciliation {
        self.sensors.with(|state| {
            self.sensors
                .lanes
                .each(|at, lane| lane.enter_all(at, &mut state.updates, false));
            state.updates.reconcile()
        })
    }

    /// Installs up to `pending` updates for a transaction that does not hold the write lock; returns its wait for the
    /// lock. Updates that cannot be installed stay pending, and the updater thread will meet, and report, the same
    /// obstacle: a transaction that only reads must not fail on a full disk.
    #[cold]
    pub(crate) fn help(&self, pending: usize, deadline: Deadline, now: Time) -> LockWait {
        // A thread that reads while it has a write transaction open would wait for itself; it reads the last commit
        // anyway.
        if pending == 0 || self.permits.is_mine() || now > deadline.at() {
            return LockWait::default();
        }
        match self.permit_by(deadline, deadline.at(), now) {
            Ok((permit, lock)) => {
                let longest = permit.waited_for();
                self.help_holding(pending, deadline, &permit);
                LockWait { lock, longest }
            }
            Err(StoreError::LockTimeout { waited, holder }) => LockWait {
                lock: waited,
                longest: Some(holder.longest),
            },
            Err(_) => LockWait::default(),
        }
    }

    /// As `help`, for a transaction that holds the write lock.
    #[cold]
    pub(crate) fn help_holding(&self, pending: usize, deadline: Deadline, permit: &Permit<'_, O>) {
        let mut helped = 0;
        // Updates that its deadline has left staged stay so.
        while helped < pending && self.os.now() <= deadline.at() {
            match self.install_in_engine(pending - helped, Some(deadline.at()), permit) {
                Ok(0) | Err(_) => return,
                Ok(now) => helped += now,
            }
        }
    }

    /// Notes an install in the account of fresh objects and on the watches; called with the mutex held.
    #[inline]
    pub(crate) fn note_installed(&self, object: ObjectId, sample: Sample, installation: Installation) -> WakeMask {
        if installation != Installation::Installed {
            return WakeMask::default();
        }
        self.objects.note(object, sample);
        if !self.watches.any() {
            return WakeMask::default();
        }
        self.watches.note_temporal(self.objects.key(object), object, sample)
    }

    /// Writes up to `limit` updates, at most [`TOGETHER`], each in a transaction of its own; returns their number.
    /// Writes at least one, if one is pending, and stops as soon as a thread waits for the write lock. A helper stops
    /// at `until`, its deadline, too, and leaves expired updates in the queue: they count as written.
    fn install_in_engine(
        &self,
        limit: usize,
        until: Option<Time>,
        permit: &Permit<'_, O>,
    ) -> Result<usize, StoreError> {
        let helper = until.map(|until| (until, self.os.now()));
        let (mut batch, left_out) = self.sensors.with(|state| state.take_together(limit, helper));
        let mut written = left_out;
        let mut failure = None;
        for update in &mut batch {
            match self.write_update(update, permit) {
                Ok(installation) => update.installation = Some(installation),
                Err(error) => {
                    failure = Some(error);
                    break;
                }
            }
            written += 1;
            if permit.is_wanted() || until.is_some_and(|until| self.os.now() > until) {
                break;
            }
        }
        self.sensors.with(|state| state.settle(batch, self.os.now()));
        match failure {
            Some(error) => Err(error),
            None => Ok(written),
        }
    }

    fn write_update(&self, update: &Update, permit: &Permit<'_, O>) -> Result<Installation, StoreError> {
        let (sample, sensor) = (update.sample, update.pending.sensor);
        let object = ObjectId(sensor.0);
        let slot = self.slot(object)?;
        // The write lock keeps all other writers of the slot out, so this answer is final.
        if slot.sample().is_some_and(|latest| sample.seq <= latest.seq) {
            return Ok(Installation::Overtaken);
        }
        self.write_records([(object, sample, &*update.value)], permit)?;
        // Within the mutex, as all installs are.
        let installs = self.objects.installs();
        let (installation, woken) = self.sensors.with(|_| {
            let installation = installs.install([in_memory(slot, sample, &update.value)]);
            (installation, self.note_installed(object, sample, installation))
        });
        self.watches.wake(woken);
        Ok(installation)
    }

    /// Writes temporal records in one transaction of the engine; the caller holds the write lock.
    pub(crate) fn write_records<'v>(
        &self,
        values: impl IntoIterator<Item = (ObjectId, Sample, &'v [u8])> + Clone,
        permit: &Permit<'_, O>,
    ) -> Result<(), StoreError> {
        let mut record = Vec::new();
        let mut transaction = self.engine.write()?;
        for (object, sample, value) in values.clone() {
            encode(&mut record, sample, value, self.clock_origin);
            transaction.put(Table::Temporal, self.objects.key(object), &record)?;
        }
        permit.commits(Some(self.os.now()));
        transaction.commit()?;
        for (object, sample, _) in values {
            self.group.committed(object, sample.seq, self.engine.durability());
        }
        Ok(())
    }
}

fn sensor_spec(spec: &ObjectSpec) -> SensorSpec {
    SensorSpec {
        period: spec.period,
        avi: spec.avi,
        value_bytes_max: u32::try_from(spec.max_len).unwrap_or(u32::MAX),
    }
}

/// The part of an update that the slot holds if the engine has the value: the sample alone, unless it keeps a history.
pub(crate) fn in_memory<'s>(slot: &'s Slot, sample: Sample, value: &'s [u8]) -> (&'s Slot, Sample, &'s [u8]) {
    (slot, sample, if slot.kept() > 1 { value } else { &[] })
}
