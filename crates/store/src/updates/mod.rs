//! Sensor updates from their arrival to the store: admission, the queue, and an account of every one.
//!
//! **Problem.** A temporal object is *fresh* while `now - timestamp <= avi` (its absolute validity interval), and a
//! sensor refreshes it once per period. Updates cost time that transactions then lack, and not all of them are needed.
//! So a controller sets the **admitted share** of updates (its knob), while the user's minimum binds the **fresh
//! share**, fresh objects / all objects (a meter). The two differ: with avi = 2 * period, shedding every other update
//! leaves every object fresh.
//!
//! **Method.** [`Updates`] is a state machine without thread or clock: values in, values out, `now` an argument. The
//! store on a real machine and the simulated machine drive the same one:
//!
//! ```text
//!     offer ─► admission ─► queue ─► next ─► the caller installs ─► installed | overtaken
//!                  └─► shed     └─► superseded
//! ```
//!
//! * `admission.rs`: the knob by error diffusion; the minimum as an invariant, with the proof.
//! * `freshness.rs`, `gaps.rs`, `due.rs`: when objects may be stale, and how many at the worst instant.
//! * `least.rs`: the least share of updates that keeps a minimum fresh on average, for installations as slow as they
//!   are measured to be.
//! * `shedding.rs`: whose updates are shed first, uniformly or those of the coldest objects.
//! * `queue.rs`: at most one waiting update per sensor, so at most as many as there are sensors; the newest is kept.
//! * `ledger.rs`: offered = installed + shed + superseded + pending + in flight, reconciled by sequence number.
//!
//! **Bounds.** The queue and every table hold one entry per sensor, made with the sensor. [`Updates::offer`] and
//! [`Updates::next`] allocate nothing. An offer costs O(log N) amortised for N sensors; other calls cost O(1) unless
//! their documentation says otherwise.
//!
//! **Guarantee.** Once every sensor has reported, the fresh share stays at or above the minimum as long as readings
//! come in time and admitted ones are installed within the margin ([`AdmissionOptions::margin`]), whatever the knob
//! does. A minimum above [`Updates::best_fresh_share`] cannot be guaranteed: everything is then admitted.

mod admission;
mod due;
mod event;
mod freshness;
mod gaps;
mod least;
mod ledger;
mod queue;
mod shedding;
#[cfg(test)]
mod tests;

pub use admission::{AdmissionOptions, MARGIN_DEFAULT};
pub use event::{AdmissionEvent, AdmissionStep};
pub use least::InstallDelays;
pub use ledger::{Reconciliation, SensorBalance, UpdateCounts};
pub use shedding::Shedding;

use punctual_units::{Nanos, SensorId, Seq, Share, Time};

use admission::{Admission, AdmissionDecision};
use freshness::Prospect;
use least::InstallDelay;
use ledger::Ledger;
pub(crate) use ledger::SensorAccount;
use queue::UpdateQueue;

/// The properties of a sensor that are fixed at its registration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct SensorSpec {
    /// Time between two readings.
    pub period: Nanos,
    /// How long a reading is fresh: the absolute validity interval.
    pub avi: Nanos,
    /// The longest value, in bytes: a buffer of this size is kept for the sensor.
    pub value_bytes_max: u32,
}

/// The answer to an offered update.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Receipt {
    /// The update is installed, or waits in the queue for it.
    Admitted,
    /// The update was dropped by admission.
    Shed,
}

/// An admitted update on its way to the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pending {
    /// Number of the update's sensor.
    pub sensor: SensorId,
    /// The update's number within the sensor.
    pub seq: Seq,
    /// Instant at which the value was sampled.
    pub sampled_at: Time,
    /// Last instant at which the value is fresh: `sampled_at + avi`.
    pub expires: Time,
}

/// Reason for which an update was refused before admission. Nothing has changed, and the update does not count as
/// offered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OfferError {
    /// No sensor has this number.
    #[error("unknown sensor {sensor}: there are {sensors}, numbered from 0; register it before it reports")]
    UnknownSensor {
        /// The number that was given.
        sensor: SensorId,
        /// Number of registered sensors.
        sensors: usize,
    },
    /// The number is not above the last one: a repeated or a reordered update.
    #[error("update {seq} of sensor {sensor} comes after update {last}: offer each once, in increasing order from 1")]
    SeqNotIncreasing {
        /// Number of the update's sensor.
        sensor: SensorId,
        /// The update's number within the sensor.
        seq: Seq,
        /// The last number offered, 0 if none was.
        last: Seq,
    },
    /// The value does not fit the sensor's buffer.
    #[error(
        "update {seq} of sensor {sensor} has {len} bytes, its sensor is registered for {max}: raise that (`max_len` of its object)"
    )]
    ValueTooLong {
        /// Number of the update's sensor.
        sensor: SensorId,
        /// The update's number within the sensor.
        seq: Seq,
        /// The value's length in bytes.
        len: usize,
        /// Most bytes that a value of this sensor may have.
        max: u32,
    },
}

/// The updates of all sensors, from their arrival until they are in the store.
///
/// ```
/// use punctual_store::updates::{AdmissionOptions, SensorSpec, Updates, Receipt};
/// use punctual_units::{Nanos, SensorId, Seq, Share, Time};
///
/// let spec = SensorSpec { period: Nanos::from_millis(100), avi: Nanos::from_millis(500), value_bytes_max: 8 };
/// let mut updates = Updates::new(&[spec; 2], AdmissionOptions::default());
/// updates.set_admitted_share(Share::clamped(0.5));
///
/// let now = Time::ZERO;
/// let verdict = updates.offer(SensorId(0), Seq(1), now, &21.5f64.to_le_bytes(), now)?;
/// assert_eq!(verdict, Receipt::Admitted); // nothing was known of the object: the minimum asks for it
///
/// let mut value = Vec::with_capacity(8);
/// let pending = updates.next(&mut value).unwrap();
/// // ... here the caller writes `value` to the store ...
/// updates.installed(&pending, now);
/// assert_eq!(updates.counts().installed, 1);
/// assert!(updates.reconcile().balances());
/// # Ok::<(), punctual_store::updates::OfferError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Updates {
    sensors: Box<[SensorSpec]>,
    options: AdmissionOptions,
    admission: Admission,
    queue: UpdateQueue,
    ledger: Ledger,
    delay: InstallDelay,
}

impl Updates {
    /// State for the updates of these sensors, which are numbered from 0; all updates are admitted at first.
    ///
    /// Sensors beyond the range of [`SensorId`] have no number and can never report.
    pub fn new(sensors: &[SensorSpec], options: AdmissionOptions) -> Updates {
        Updates {
            sensors: sensors.into(),
            options,
            admission: Admission::new(sensors, &options),
            queue: UpdateQueue::new(sensors),
            ledger: Ledger::new(sensors.len()),
            delay: InstallDelay::default(),
        }
    }

    /// Adds a sensor, numbered behind the others. The accounts and the queue of the others stay. Admission forgets
    /// their readings, so the next reading of each is admitted, and the minimum holds again once each sensor has
    /// reported and the margin has passed. O(N log N), and allocates memory.
    pub fn add_sensor(&mut self, spec: SensorSpec) {
        let mut sensors = std::mem::take(&mut self.sensors).into_vec();
        sensors.push(spec);
        self.sensors = sensors.into();
        let admitted = self.admitted_share();
        self.admission = Admission::new(&self.sensors, &self.options);
        self.set_admitted_share(admitted);
        self.set_delay(self.delay.reported());
        self.queue.add_sensor(&spec);
        self.ledger.add_sensor();
    }

    /// Decides on an update that arrives `now` with the timestamp `sampled_at`, and queues it if it is admitted.
    ///
    /// Gaps in `seq` are allowed and counted ([`UpdateCounts::missing_at_source`]). A timestamp later than `now` is
    /// replaced by `now`: a sensor whose clock is ahead would otherwise seem fresh for too long. `now` must not run
    /// backwards.
    ///
    /// # Errors
    /// [`OfferError`]; nothing has changed then.
    pub fn offer(
        &mut self,
        sensor: SensorId,
        seq: Seq,
        sampled_at: Time,
        value: &[u8],
        now: Time,
    ) -> Result<Receipt, OfferError> {
        let Some(update) = self.decide(sensor, seq, sampled_at, value.len(), now)? else {
            return Ok(Receipt::Shed);
        };
        if let Some(older) = self.queue.put(update, value) {
            self.ledger.superseded(sensor, older);
        }
        Ok(Receipt::Admitted)
    }

    /// As [`offer`](Self::offer), for a value of `len` bytes that the caller installs itself, without the queue:
    /// returns the update as [`next`](Self::next) does, `None` if it is shed.
    ///
    /// # Errors
    /// [`OfferError`]; nothing has changed then.
    pub fn offer_directly(
        &mut self,
        sensor: SensorId,
        seq: Seq,
        sampled_at: Time,
        len: usize,
        now: Time,
    ) -> Result<Option<Pending>, OfferError> {
        let update = self.decide(sensor, seq, sampled_at, len, now)?;
        if update.is_some() {
            self.ledger.taken(sensor, seq);
        }
        Ok(update)
    }

    /// The update, if it is admitted.
    fn decide(
        &mut self,
        sensor: SensorId,
        seq: Seq,
        sampled_at: Time,
        len: usize,
        now: Time,
    ) -> Result<Option<Pending>, OfferError> {
        let spec = *self.check(sensor, seq, len)?;
        let sampled_at = sampled_at.min(now);
        let reading = Prospect::of(sensor, &spec, self.options.margin, sampled_at, now);
        self.ledger.offered(sensor, seq);

        let decision = self.admission.decide(&reading, now);
        if decision == AdmissionDecision::Shed {
            self.ledger.shed(sensor, seq);
            return Ok(None);
        }
        self.ledger.admitted(decision == AdmissionDecision::ForMinimum);
        let expires = reading.expires;
        Ok(Some(Pending {
            sensor,
            seq,
            sampled_at,
            expires,
        }))
    }

    /// Whether the knob admits every update: then an offer changes nothing but the accounts, and what is known of the
    /// last reading of its sensor. Both may be entered later, for many offers at once.
    pub fn admits_all(&self) -> bool {
        self.admitted_share() == Share::ONE
    }

    /// Enters the account of what `sensor` has offered while the knob [admitted everything](Self::admits_all), all of
    /// it installed by the offering threads, and empties it.
    pub(crate) fn enter(&mut self, sensor: SensorId, since: &mut SensorAccount) {
        self.ledger.enter(sensor, since);
    }

    /// Adds the sums over all sensors of such accounts, and the delays of their installations.
    pub(crate) fn enter_sums(&mut self, counts: &UpdateCounts, delays: Option<InstallDelays>) {
        self.ledger.add(counts);
        if let Some(InstallDelays { longest, shortest }) = delays {
            self.delay.observe(longest);
            self.delay.observe(shortest);
        }
    }

    /// Makes the last reading of such an account known to admission: sampled at `sampled_at`, offered at `now`. Of
    /// earlier readings admission need not know: each left at most a gap that the last one ends within the margin.
    pub(crate) fn enter_reading(&mut self, sensor: SensorId, sampled_at: Time, now: Time) {
        let spec = &self.sensors[sensor.index()];
        let reading = Prospect::of(sensor, spec, self.options.margin, sampled_at, now);
        self.admission.enter(&reading, now);
    }

    /// Admits the next update of a sensor, whatever the knob says, and returns it as [`next`](Self::next) does. It
    /// bypasses the queue, in which an older one may wait.
    ///
    /// # Errors
    /// [`OfferError::UnknownSensor`].
    pub fn admit_directly(&mut self, sensor: SensorId, sampled_at: Time, now: Time) -> Result<Pending, OfferError> {
        let seq = Seq(self.last(sensor)?.0 + 1);
        let sampled_at = sampled_at.min(now);
        let reading = Prospect::of(
            sensor,
            &self.sensors[sensor.index()],
            self.options.margin,
            sampled_at,
            now,
        );
        self.ledger.offered(sensor, seq);
        self.admission.admit(&reading, now);
        self.ledger.admitted(false);
        self.ledger.taken(sensor, seq);
        Ok(Pending {
            sensor,
            seq,
            sampled_at,
            expires: reading.expires,
        })
    }

    fn check(&self, sensor: SensorId, seq: Seq, len: usize) -> Result<&SensorSpec, OfferError> {
        let sensors = self.sensors.len();
        let spec = self
            .sensors
            .get(sensor.index())
            .ok_or(OfferError::UnknownSensor { sensor, sensors })?;
        let last = self.ledger.last(sensor);
        if seq <= last {
            return Err(OfferError::SeqNotIncreasing { sensor, seq, last });
        }
        let max = spec.value_bytes_max;
        if len > max as usize {
            return Err(OfferError::ValueTooLong { sensor, seq, len, max });
        }
        Ok(spec)
    }

    /// Takes the update whose sensor has waited longest and puts its value into `value`, which is cleared first.
    ///
    /// The caller installs it and then reports [`installed`](Self::installed) or [`overtaken`](Self::overtaken), once;
    /// until then it counts as in flight. Nothing is allocated if `value` has room for the longest value.
    pub fn next(&mut self, value: &mut Vec<u8>) -> Option<Pending> {
        let update = self.queue.take(value)?;
        self.ledger.taken(update.sensor, update.seq);
        Some(update)
    }

    /// Whether a transaction that is due at `due` takes the [`next`](Self::next) update at `now` and installs it: none
    /// after its deadline, and none that has expired. `left` counts those that it has not seen yet; expired ones go
    /// behind the others, and `left` falls by their number. O(`left`).
    pub fn helps(&mut self, left: &mut usize, due: Time, now: Time) -> bool {
        while *left > 0 && self.pending() > 0 && now <= due {
            if !self.queue.defer_expired(now) {
                return true;
            }
            *left -= 1;
        }
        false
    }

    /// Reports that the update from [`next`](Self::next) is in the store, `now`.
    ///
    /// # Panics
    /// If the sensor is unknown: the update came from somewhere else.
    pub fn installed(&mut self, update: &Pending, now: Time) {
        self.delay.observe(now.since(update.sampled_at));
        self.installed_directly(update);
    }

    /// Reports that a job has installed the update itself, which says nothing about how long the updater takes.
    ///
    /// # Panics
    /// If the sensor is unknown: the update came from somewhere else.
    pub fn installed_directly(&mut self, update: &Pending) {
        self.ledger.installed(update.sensor, update.seq);
    }

    /// Reports that the update from [`next`](Self::next) was not installed because a newer one of its sensor already
    /// was; it counts as superseded.
    ///
    /// # Panics
    /// If the sensor is unknown: the update came from somewhere else.
    pub fn overtaken(&mut self, update: &Pending) {
        self.ledger.overtaken(update.sensor, update.seq);
    }

    /// Sets the share of updates to admit: the knob. The freshness minimum may add to it; the share really admitted is
    /// [`UpdateCounts::admitted_share_since`]. O(1), with [`Shedding::ColdestFirst`] O(N).
    pub fn set_admitted_share(&mut self, share: Share) {
        self.admission.shares_mut().set_admitted(share);
    }

    /// The share of updates to admit, as it was set.
    pub fn admitted_share(&self) -> Share {
        self.admission.shares().admitted()
    }

    /// The knob that admits the fewest updates: one below it admits no fewer. With uniform shedding it is the least
    /// share that keeps the freshness minimum on average, coldest-first it is 0; the minimum is kept at any knob.
    pub fn least_share(&self) -> Share {
        self.admission.shares().least()
    }

    /// Adapts admission to the time that installations take; to be called once per control period. Returns that time
    /// where it has changed. O(K) for K kinds of sensors.
    pub fn adapt(&mut self, now: Time) -> Option<InstallDelays> {
        let delay = self.delay.news(self.options.margin, now)?;
        self.set_delay(delay);
        Some(delay)
    }

    /// Adapts admission to installations that take this long: what [`adapt`](Self::adapt) returned, in a replay.
    pub fn set_delay(&mut self, delays: InstallDelays) {
        self.delay.set_reported(delays);
        self.admission.set_delays(delays);
    }

    /// The last number that `sensor` offered, 0 before the first.
    ///
    /// # Errors
    /// [`OfferError::UnknownSensor`].
    pub fn last(&self, sensor: SensorId) -> Result<Seq, OfferError> {
        let sensors = self.sensors.len();
        if sensor.index() >= sensors {
            return Err(OfferError::UnknownSensor { sensor, sensors });
        }
        Ok(self.ledger.last(sensor))
    }

    /// Ranks the objects by reads per update; to be called once per control period. `reads` returns the number of reads
    /// of the sensor's object since the last call. O(N log N) with [`Shedding::ColdestFirst`], otherwise does nothing.
    pub fn rebalance(&mut self, reads: impl Fn(SensorId) -> u64) {
        self.admission.shares_mut().rank(reads);
    }

    /// Whether [`rebalance`](Self::rebalance) does anything: with [`Shedding::ColdestFirst`].
    pub fn ranks_objects(&self) -> bool {
        self.admission.shares().ranks_objects()
    }

    /// The largest fresh share that can be guaranteed with everything admitted: that of objects with
    /// `avi >= period + margin`. O(N).
    pub fn best_fresh_share(&self) -> Share {
        let within_reach = |spec: &&SensorSpec| freshness::within_reach(spec, self.options.margin);
        Share::of(self.sensors.iter().filter(within_reach).count(), self.sensors.len())
    }

    /// Number of updates that wait to be installed; at most one per sensor.
    pub fn pending(&self) -> usize {
        self.queue.len()
    }

    /// Updates by state since the start, over all sensors.
    pub fn counts(&self) -> UpdateCounts {
        self.ledger.counts(self.queue.len())
    }

    /// Checks the accounts and lists each sensor whose updates are not all in exactly one state. O(N).
    pub fn reconcile(&self) -> Reconciliation {
        self.ledger.reconcile(|sensor| self.queue.waiting(sensor))
    }
}
