//! Path of sensor updates into the simulated store: arrival, admission, installation, freshness.

use punctual_store::updates::{AdmissionOptions, Pending, Receipt, SensorSpec, Updates};
use punctual_units::{SensorId, Share, Time};
use punctual_workload::{SensorStream, SensorUpdate, Trace, UpdateMode};
use rand::{Rng, RngExt};

use crate::cores::Segment;
use crate::model::{Effort, StoreModel};

/// The stream, the admission and the installed versions.
#[derive(Clone, Debug)]
pub(crate) struct UpdateFeed {
    stream: SensorStream,
    /// The next update to arrive.
    head: Option<SensorUpdate>,
    pub updates: Updates,
    /// Value of an update, and a buffer for the value of the update taken.
    value: Vec<u8>,
    taken_value: Vec<u8>,
    /// Updates taken from the queue since the start, or left out by a job: those that have lost their place.
    passed: u64,
    /// The update being installed.
    in_flight: Option<(Pending, Segment)>,
    /// Work of installing one update.
    effort: Effort,
    /// Until when each sensor's installed version is fresh; `None` before the first.
    expires: Vec<Option<Time>>,
    /// Number of reads of each sensor's object since the last [`UpdateFeed::rebalance`].
    reads: Vec<u64>,
}

impl UpdateFeed {
    pub fn new(
        mut stream: SensorStream,
        admission: AdmissionOptions,
        value_bytes: u32,
        mode: UpdateMode,
        store: &StoreModel,
    ) -> UpdateFeed {
        let spec = |sensor: punctual_workload::Sensor| SensorSpec {
            period: sensor.period,
            avi: sensor.avi,
            value_bytes_max: value_bytes,
        };
        let sensors: Vec<SensorSpec> = stream.sensors().into_iter().map(spec).collect();
        UpdateFeed {
            head: stream.next(),
            stream,
            value: vec![0; value_bytes as usize],
            taken_value: Vec::with_capacity(value_bytes as usize),
            passed: 0,
            in_flight: None,
            effort: match mode {
                UpdateMode::Transaction => store.update_txn(),
                UpdateMode::MemoryFirst => store.slot_write,
            },
            expires: vec![None; sensors.len()],
            reads: vec![0; sensors.len()],
            updates: Updates::new(&sensors, admission),
        }
    }

    /// A feed without sensors and arrivals.
    pub fn silent(store: &StoreModel) -> UpdateFeed {
        let silence = Trace {
            sensors: Vec::new(),
            readings: Vec::new(),
        };
        let stream = SensorStream::new(silence, 1.0, 1);
        UpdateFeed::new(stream, AdmissionOptions::default(), 0, UpdateMode::Transaction, store)
    }

    /// When the next update arrives; `Time::MAX` after the last.
    pub fn next_arrival(&self) -> Time {
        self.head.map_or(Time::MAX, |update| Time::ZERO + update.at)
    }

    /// Offers every update that has arrived by `now`; true if one was admitted.
    pub fn arrive(&mut self, now: Time) -> bool {
        let mut admitted = false;
        while let Some(update) = self.head.filter(|update| Time::ZERO + update.at <= now) {
            let at = Time::ZERO + update.at;
            let bytes = self.value.len().min(8);
            self.value[..bytes].copy_from_slice(&update.value.to_le_bytes()[..bytes]);
            let verdict = self.updates.offer(update.sensor, update.seq, at, &self.value, at);
            // An error means that the caller has already offered this number; nothing has changed then.
            admitted |= verdict == Ok(Receipt::Admitted);
            self.head = self.stream.next();
        }
        admitted
    }

    /// Whether an update is being installed, or one waits.
    pub fn has_work(&self) -> bool {
        self.in_flight.is_some() || self.updates.pending() > 0
    }

    /// Queue position behind the last update that waits, counted from the start.
    pub fn tail(&self) -> u64 {
        self.passed + self.updates.pending() as u64
    }

    /// Whether all updates up to this position are in the store, or were left out.
    pub fn installed_through(&self, place: u64) -> bool {
        self.passed - u64::from(self.busy()) >= place
    }

    /// Whether a job that is due at `due` installs another update of those up to `place`, as [`Updates::helps`] says.
    /// It completes the one that is being installed.
    pub fn helps(&mut self, place: u64, due: Time, now: Time) -> bool {
        if self.busy() {
            return !self.installed_through(place);
        }
        let before = place.saturating_sub(self.passed) as usize;
        let mut left = before;
        let helps = self.updates.helps(&mut left, due, now);
        self.passed += (before - left) as u64;
        helps
    }

    /// Whether an update is being installed.
    pub fn busy(&self) -> bool {
        self.in_flight.is_some()
    }

    /// Returns the segment of the update being installed; if there is none, takes the next one that waits.
    pub fn segment(&mut self) -> Option<Segment> {
        if self.in_flight.is_none() {
            let next = self.updates.next(&mut self.taken_value)?;
            self.passed += 1;
            self.in_flight = Some((next, Segment::new(self.effort)));
        }
        self.in_flight.map(|(_, segment)| segment)
    }

    /// Stores the rest of the interrupted installation.
    pub fn keep(&mut self, left: Segment) {
        if let Some((_, segment)) = &mut self.in_flight {
            *segment = left;
        }
    }

    /// Completes the installation and returns the sensor of the update.
    pub fn install(&mut self, now: Time) -> Option<SensorId> {
        // Only one update is installed at a time, and the queue keeps the newest of a sensor: no update is ever
        // overtaken.
        let (update, _) = self.in_flight.take()?;
        self.expires[update.sensor.index()] = Some(update.expires);
        self.updates.installed(&update, now);
        Some(update.sensor)
    }

    /// Share of temporal objects whose installed version is fresh: now - sampled_at <= avi.
    pub fn fresh_share(&self, now: Time) -> Share {
        let fresh = |expires: &&Option<Time>| expires.is_some_and(|expires| now <= expires);
        Share::of(self.expires.iter().filter(fresh).count(), self.expires.len())
    }

    /// Reads `count` objects, drawn uniformly. The choice affects only their ranks: without ranks none are drawn.
    pub fn read(&mut self, count: u32, rng: &mut impl Rng) {
        let objects = self.reads.len();
        if objects == 0 || !self.updates.ranks_objects() {
            return;
        }
        for _ in 0..count {
            self.reads[rng.random_range(0..objects)] += 1;
        }
    }

    /// Adapts admission to the time that installations take, and ranks the objects by their reads since the last call.
    pub fn rebalance(&mut self, now: Time) {
        self.updates.adapt(now);
        self.updates.rebalance(|sensor| self.reads[sensor.index()]);
        self.reads.fill(0);
    }

    /// Number of temporal objects.
    pub fn objects(&self) -> usize {
        self.expires.len()
    }
}
