//! [`Updates`] against a model that keeps a list of all updates and works everything out anew at each step.

use super::*;
use proptest::prelude::*;

#[derive(Clone, Debug)]
enum Op {
    Offer { sensor: usize, gap: u64, age: u64 },
    Next,
    Land { which: usize, overtaken: bool },
    Knob(u32),
    Rebalance(Vec<u64>),
    Wait(u64),
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum State {
    Pending,
    InFlight,
    Installed,
    Shed,
    Superseded,
}

#[derive(Clone, Debug)]
struct Update {
    pending: Pending,
    state: State,
    for_minimum: bool,
    /// The update that first took the sensor's place in the queue, as an index into the log.
    place: usize,
}

struct Reference {
    sensors: Vec<SensorSpec>,
    options: AdmissionOptions,
    now: Time,
    knob: f64,
    reads: Vec<u64>,
    credits: Vec<f64>,
    asked_by_knob: f64,
    /// When each object may be stale even if its next reading is admitted: from, to.
    gaps: Vec<Option<(Time, Time)>>,
    /// By when each sensor's next reading is in the store; none where the sensor is silent.
    due: Vec<Option<Time>>,
    log: Vec<Update>,
}

impl Reference {
    fn of(&self, sensor: usize) -> impl DoubleEndedIterator<Item = &Update> {
        self.log
            .iter()
            .filter(move |update| update.pending.sensor.index() == sensor)
    }

    fn last(&self, sensor: usize) -> (Seq, Time) {
        self.of(sensor).next_back().map_or((Seq(0), Time(0)), |update| {
            (update.pending.seq, update.pending.sampled_at)
        })
    }

    /// When the last admitted update expires; the start of time if none was.
    fn expires(&self, sensor: usize) -> Time {
        let admitted = self.of(sensor).rfind(|update| update.state != State::Shed);
        admitted.map_or(Time::ZERO, |update| update.pending.expires)
    }

    fn within_reach(&self, sensor: usize) -> bool {
        self.sensors[sensor].avi >= self.sensors[sensor].period + self.options.margin
    }

    /// The most objects that may be stale at an instant of the span, looked at where gaps begin: nowhere else are there
    /// more.
    fn stale_at_worst(&self, from: Time, to: Time) -> usize {
        let begins = self.gaps.iter().flatten().map(|gap| gap.0);
        let instants = begins.chain([from]).filter(|at| (from..to).contains(at));
        let stale = |at: Time| {
            self.gaps
                .iter()
                .flatten()
                .filter(|gap| (gap.0..gap.1).contains(&at))
                .count()
        };
        instants.map(stale).max().unwrap_or(0)
    }

    /// The sensors whose reading is overdue are silent: their objects' gaps last for ever.
    fn pass(&mut self) {
        for sensor in 0..self.sensors.len() {
            if self.due[sensor].is_some_and(|due| due < self.now) {
                self.due[sensor] = None;
                self.gaps[sensor] = Some(self.widened(sensor, self.expires(sensor), Time::MAX));
            }
        }
    }

    /// A gap from an expiry on, joined with one that is still under way.
    fn widened(&self, sensor: usize, expires: Time, to: Time) -> (Time, Time) {
        match self.gaps[sensor] {
            _ if !self.within_reach(sensor) => (Time::ZERO, Time::MAX),
            Some((from, end)) if end > self.now => (from.min(expires), to),
            _ => (expires, to),
        }
    }

    fn heat(&self, sensor: usize) -> u64 {
        self.reads[sensor] * self.sensors[sensor].period.0
    }

    fn share(&self, sensor: usize) -> f64 {
        if self.options.shedding == Shedding::Uniform || self.knob == 1.0 {
            return self.knob;
        }
        let rate_of = |group: &dyn Fn(u64) -> bool| -> f64 {
            let members = (0..self.sensors.len()).filter(|&other| group(self.heat(other)));
            members.map(|other| 1.0 / self.sensors[other].period.0 as f64).sum()
        };
        let heat = self.heat(sensor);
        let left = self.knob * rate_of(&|_| true) - rate_of(&|other| other > heat);
        (left / rate_of(&|other| other == heat)).clamp(0.0, 1.0)
    }

    fn may_be_given_up(&self, sensor: usize, stale_max: usize) -> bool {
        let colder = (0..self.sensors.len())
            .filter(|&other| self.heat(other) < self.heat(sensor))
            .count();
        self.options.shedding == Shedding::Uniform || colder < stale_max
    }

    /// The share that the sensor is given: what the knob gives it, or more for the minimum.
    fn given(&self, sensor: usize) -> f64 {
        let (margin, minimum) = (self.options.margin, self.options.minimum_fresh);
        match self.options.shedding {
            Shedding::Uniform => self.knob.max(least::least_share(&self.sensors, margin, minimum)),
            Shedding::ColdestFirst => self.share(sensor),
        }
    }

    /// Whether the reading, which expires at `then`, may be shed; if so, its object's gap is that of the shed reading.
    fn try_shed(&mut self, sensor: usize, then: Time, next_installed_by: Time) -> bool {
        let expires = self.expires(sensor);
        if expires >= next_installed_by {
            return true;
        }
        if then < self.now {
            self.gaps[sensor] = Some(self.widened(sensor, expires, next_installed_by));
            return true;
        }
        let objects = self.sensors.len();
        let stale_allowed = |stale: &usize| Share::of(objects - stale, objects) >= self.options.minimum_fresh;
        let stale_max = (0..=objects).rfind(stale_allowed).unwrap();
        if !self.may_be_given_up(sensor, stale_max) {
            return false;
        }
        let gap = self.widened(sensor, expires, next_installed_by);
        let before = self.gaps[sensor].replace(gap);
        let allowed = self.stale_at_worst(gap.0.max(self.now), gap.1) <= stale_max;
        if !allowed {
            self.gaps[sensor] = before;
        }
        allowed
    }

    /// The object's gap after an admitted reading: what is left of one that has begun.
    fn admit(&mut self, sensor: usize, expires: Time, next_installed_by: Time) {
        if !self.within_reach(sensor) {
            return;
        }
        let cut = |(from, to): (Time, Time)| (from, to.min(self.now + self.options.margin));
        self.gaps[sensor] = self.gaps[sensor].map(cut).filter(|gap| gap.0 < gap.1);
        if expires < next_installed_by {
            self.gaps[sensor] = Some(self.widened(sensor, expires, next_installed_by));
        }
    }

    fn offer(&mut self, sensor: usize, seq: Seq, sampled_at: Time) -> Receipt {
        let spec = self.sensors[sensor];
        let next_installed_by = self.now.max(sampled_at + spec.period) + self.options.margin;
        self.pass();
        let (by_knob, given) = (self.share(sensor), self.given(sensor));
        let in_turn = self.credits[sensor] + given >= 1.0;
        let stale = self.gaps[sensor].is_some_and(|gap| (gap.0..gap.1).contains(&self.now));
        let expires = sampled_at + spec.avi;
        let admitted = in_turn || !self.try_shed(sensor, expires, next_installed_by);
        self.due[sensor] = Some(next_installed_by);
        self.credits[sensor] = match (in_turn, admitted, stale) {
            (true, ..) => self.credits[sensor] + given - 1.0,
            (false, true, false) => 0.0,
            _ => self.credits[sensor] + given,
        };
        let mut for_minimum = admitted;
        if in_turn {
            self.asked_by_knob += by_knob / given;
            for_minimum = self.asked_by_knob < 1.0;
            self.asked_by_knob -= f64::from(u8::from(!for_minimum));
        }
        let pending = Pending {
            sensor: SensorId(sensor as u32),
            seq,
            sampled_at,
            expires,
        };
        let mut update = Update {
            pending,
            state: State::Shed,
            for_minimum: false,
            place: self.log.len(),
        };
        let verdict = if admitted {
            self.admit(sensor, expires, next_installed_by);
            let waits =
                |update: &&mut Update| update.pending.sensor == pending.sensor && update.state == State::Pending;
            if let Some(older) = self.log.iter_mut().find(waits) {
                older.state = State::Superseded;
                update.place = older.place;
            }
            (update.state, update.for_minimum) = (State::Pending, for_minimum);
            Receipt::Admitted
        } else {
            Receipt::Shed
        };
        self.log.push(update);
        verdict
    }

    fn next(&mut self) -> Option<Pending> {
        let waiting = self.log.iter_mut().filter(|update| update.state == State::Pending);
        let first = waiting.min_by_key(|update| update.place)?;
        first.state = State::InFlight;
        Some(first.pending)
    }

    fn land(&mut self, which: usize, state: State) -> Option<Pending> {
        let mut flying: Vec<_> = self
            .log
            .iter_mut()
            .filter(|update| update.state == State::InFlight)
            .collect();
        let count = flying.len();
        let update = flying.get_mut(which.checked_rem(count)?)?;
        update.state = state;
        Some(update.pending)
    }

    fn counts(&self) -> UpdateCounts {
        let number = |state| self.log.iter().filter(|update| update.state == state).count() as u64;
        let last: u64 = (0..self.sensors.len()).map(|sensor| self.last(sensor).0.0).sum();
        UpdateCounts {
            offered: self.log.len() as u64,
            admitted: self.log.len() as u64 - number(State::Shed),
            for_minimum: self.log.iter().filter(|update| update.for_minimum).count() as u64,
            installed: number(State::Installed),
            shed: number(State::Shed),
            superseded: number(State::Superseded),
            pending: number(State::Pending),
            in_flight: number(State::InFlight),
            missing_at_source: last - self.log.len() as u64,
        }
    }
}

const SENSORS: usize = 6;

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        10 => (0..SENSORS, prop_oneof![4 => Just(1u64), 1 => 2..4u64], 0..20u64)
            .prop_map(|(sensor, gap, age)| Op::Offer { sensor, gap, age }),
        4 => Just(Op::Next),
        4 => (any::<usize>(), any::<bool>()).prop_map(|(which, overtaken)| Op::Land { which, overtaken }),
        1 => (0..=64u32).prop_map(Op::Knob),
        1 => prop::collection::vec(0..4u64, SENSORS).prop_map(Op::Rebalance),
        6 => (0..30u64).prop_map(Op::Wait),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn every_answer_is_the_reference_model_s(
        // Periods are powers of two and knobs multiples of 1/64, so that sums of rates do not round.
        periods in prop::collection::vec((2..6u32, 1..5u64), SENSORS),
        (minimum, margin, coldest) in (0.0..=1.0f64, 0..10u64, any::<bool>()),
        ops in prop::collection::vec(op(), 1..300),
    ) {
        let sensors: Vec<_> = periods.iter().map(|(power, factor)| spec(1 << power, factor << power)).collect();
        let shedding = if coldest { Shedding::ColdestFirst } else { Shedding::Uniform };
        let options = options(minimum, shedding, margin);
        let mut updates = Updates::new(&sensors, options);
        let mut model = Reference {
            sensors, options, now: Time(100), knob: 1.0, reads: vec![0; SENSORS],
            credits: (0..SENSORS).map(admission::first_credit).collect(), asked_by_knob: 0.0,
            gaps: vec![Some((Time::ZERO, Time::MAX)); SENSORS], due: vec![None; SENSORS], log: Vec::new(),
        };
        let mut value = Vec::new();
        for op in ops {
            match op {
                Op::Offer { sensor, gap, age } => {
                    let (last, last_sampled_at) = model.last(sensor);
                    let (seq, sampled_at) = (Seq(last.0 + gap), (model.now - Nanos(age)).max(last_sampled_at));
                    let verdict =
                        updates.offer(SensorId(sensor as u32), seq, sampled_at, &seq.0.to_le_bytes(), model.now);
                    prop_assert_eq!(verdict, Ok(model.offer(sensor, seq, sampled_at)));
                }
                Op::Next => {
                    let update = updates.next(&mut value);
                    prop_assert_eq!(update, model.next());
                    if let Some(update) = update {
                        prop_assert_eq!(&value[..], &update.seq.0.to_le_bytes()[..]);
                    }
                }
                Op::Land { which, overtaken: true } => {
                    model.land(which, State::Superseded).iter().for_each(|update| updates.overtaken(update));
                }
                Op::Land { which, overtaken: false } => {
                    let now = model.now;
                    model.land(which, State::Installed).iter().for_each(|update| updates.installed(update, now));
                }
                Op::Knob(sixty_fourths) => {
                    model.knob = f64::from(sixty_fourths) / 64.0;
                    updates.set_admitted_share(Share::clamped(model.knob));
                }
                Op::Rebalance(reads) => {
                    updates.rebalance(|sensor| reads[sensor.index()]);
                    model.reads = reads;
                }
                Op::Wait(span) => model.now = model.now + Nanos(span),
            }
            prop_assert_eq!(updates.counts(), model.counts());
            prop_assert_eq!(updates.pending() as u64, model.counts().pending);
            let result = updates.reconcile();
            prop_assert!(result.balances(), "{:?}", result);
            model.pass();
            prop_assert_eq!(updates.admission.stale_at_worst(model.now), model.stale_at_worst(model.now, Time::MAX));
        }
    }
}
