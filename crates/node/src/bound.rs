//! The bound of the node's backlog, turned by the loop's law ([`punctual_loop::backlog`]) once a period.
//!
//! **Problem.** A node admits what ends by its deadline, by forecast. An operator that wants more than that, a mean
//! delay that is far below the deadlines, has a bound on the backlog to set, and what it must be depends on what
//! requests cost on this machine today.
//!
//! **Method.** A period is closed once a second: the mean delay of the queries that ended in it goes to the law, the
//! law's plan to the node's machine, and what the machine made of it into the next period. All of it is kept in a log
//! that replays. The law needs a model of this node. One that was learned before is given; otherwise the node learns it
//! as soon as it is loaded: for [`LEARNING`] periods the bound has another level in each, about that at which forecasts
//! expect the target. A row of the record is the mean delay of a period, and the bound that is in force in the next.
//!
//! **Modes.** Each leads to the next. Where the node `rests` the bound is as it was found; it learns again later,
//! because what disturbed its record may have gone.
//!
//! ```text
//! waits ──(loaded)──► learns ──(the model explains enough)──► law
//!   ▲ model given ──────┼──────────────────────────────────────┘
//!   │                   └──(it does not)──► rests ──┐
//!   └───────────────────────(RESTING periods later)─┘
//! ```
//!
//! Pure: values and `now` in; what it turns is the [`Machine`] that it is given.

use punctual_control::{ArxModel, Integration, OperatingPoint, Orders, Recording, identify};
use punctual_federation::admission::{BACKLOG_MAX, Report};
use punctual_loop::backlog::{
    Backlog, BacklogDecision, BacklogGround, BacklogLog, BacklogSeen, ITEMS_MIN, MODEL_ITEMS,
};
use punctual_platform::{Applied, KnobId, Machine, Offers, Plan, Value};
use punctual_units::{Nanos, Time};

/// Periods in which the bound has another level each, while a model is learned.
pub const LEARNING: usize = 120;
/// Periods before those, in which what was admitted before the first level ends.
const SETTLING: usize = 4;
/// Periods for which a node rests whose delay has not followed its bound: it learns for a tenth of the time at most.
pub const RESTING: u32 = 10 * (LEARNING + SETTLING) as u32;
/// Queries that must end in a period for its mean to say something of the load.
pub const ENDED_MIN: u64 = 20;
/// Periods in a row in which the delay is at least half of the target: then the node counts as loaded.
pub const LOADED: u32 = 3;
/// Between which multiples of the usual bound the levels lie.
const LEVELS: (f64, f64) = (0.4, 1.6);
/// The fractional part of the golden ratio: its multiples lie evenly, and no two neighbours are alike.
const GOLDEN: f64 = 0.618_033_988_749_895;

/// What an operator asks for.
#[derive(Clone, Debug, PartialEq)]
pub struct Asked {
    /// The mean delay of queries, from when they are read until they are answered.
    pub target: Nanos,
    /// How often the bound is turned.
    pub period: Nanos,
    /// What was learned before on this node.
    pub model: Option<ArxModel>,
}

/// What is to be said, once.
#[derive(Clone, Debug, PartialEq)]
pub enum Told {
    /// The node learns a model.
    Learns,
    /// It has one, and the law turns the bound.
    Follows,
    /// There is no model, for this reason, and the bound is as it was found. The node learns again later, and tells no
    /// more of that.
    Rests(String),
}

/// What came of it, for the process that started the node.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outcome {
    /// A model that this node has learned.
    pub learned: Option<ArxModel>,
    /// The law's decisions.
    pub log: Option<BacklogLog>,
}

#[derive(Clone, Debug, PartialEq)]
enum Mode {
    Waits { loaded: u32 },
    Learns { centre: f64, record: Recording },
    Law { law: Box<Backlog>, log: Box<BacklogLog> },
    Rests { periods: u32 },
}

/// The bound, period by period.
#[derive(Clone, Debug, PartialEq)]
pub struct Bound {
    asked: Asked,
    offers: Offers,
    mode: Mode,
    due: Time,
    sum: Nanos,
    count: u64,
    /// The mean delay of the last period in which queries ended.
    delay: Option<Nanos>,
    applied: Option<Applied>,
    learned: Option<ArxModel>,
    told: Option<Told>,
    /// It has rested, and that was told.
    has_rested: bool,
}

impl Bound {
    /// From `now` on, on a node that offers this.
    pub fn new(asked: Asked, offers: &Offers, now: Time) -> Bound {
        let mut bound = Bound {
            due: now + asked.period,
            offers: offers.clone(),
            mode: Mode::Waits { loaded: 0 },
            sum: Nanos::ZERO,
            count: 0,
            delay: None,
            applied: None,
            learned: None,
            told: None,
            has_rested: false,
            asked,
        };
        if let Some(model) = bound.asked.model.clone() {
            bound.follow(model);
        }
        bound
    }

    /// A query has ended, so long after it was read.
    pub fn ended(&mut self, delay: Nanos) {
        self.sum += delay;
        self.count += 1;
    }

    /// When the period is to be closed.
    pub fn due(&self) -> Time {
        self.due
    }

    /// What it is doing, in a word.
    pub fn mode(&self) -> &'static str {
        match self.mode {
            Mode::Waits { .. } => "waits",
            Mode::Learns { .. } => "learns",
            Mode::Law { .. } => "law",
            Mode::Rests { .. } => "rests",
        }
    }

    /// The delay that is asked for.
    pub fn target(&self) -> Nanos {
        self.asked.target
    }

    /// The mean delay of the last period in which queries ended.
    pub fn delay(&self) -> Option<Nanos> {
        self.delay
    }

    /// What came of it so far.
    pub fn outcome(&self) -> Outcome {
        let log = match &self.mode {
            Mode::Law { log, .. } => Some((**log).clone()),
            _ => None,
        };
        Outcome {
            learned: self.learned.clone(),
            log,
        }
    }

    /// What it has learned, once.
    pub fn learned(&self) -> Option<&ArxModel> {
        self.learned.as_ref()
    }

    /// Closes the period at `now`, and turns the bound of `machine`, of which `report` tells. What is to be said then.
    pub fn close(&mut self, machine: &mut impl Machine, report: &Report, now: Time) -> Option<Told> {
        // A late period is not made up for.
        self.due = now + self.asked.period;
        let delay = (self.count > 0).then(|| Nanos(self.sum.0 / self.count));
        let is_busy = self.count >= ENDED_MIN && delay.is_some_and(|delay| delay * 2 >= self.asked.target);
        (self.sum, self.count) = (Nanos::ZERO, 0);
        self.delay = delay.or(self.delay);
        match &mut self.mode {
            Mode::Waits { loaded } => {
                *loaded = if is_busy { *loaded + 1 } else { 0 };
                let each = report.cost / f64::from(report.executors.max(1));
                if *loaded >= LOADED && each > 0.0 {
                    self.learn(self.asked.target.as_secs_f64() / each);
                    self.turn(machine);
                }
            }
            Mode::Learns { record, .. } => {
                // A period in which none ended tells what the one before told.
                record.y.push(vec![self.delay.unwrap_or_default().as_secs_f64()]);
                if record.y.len() >= LEARNING + SETTLING {
                    self.end_learning(machine);
                } else {
                    self.turn(machine);
                }
            }
            Mode::Law { law, log } => {
                let seen = BacklogSeen {
                    delay,
                    applied: self.applied.take(),
                };
                let plan = law.step(&seen);
                log.note(BacklogDecision { now, seen, plan });
                self.applied = Some(machine.apply(&plan));
            }
            Mode::Rests { periods } => {
                *periods += 1;
                if *periods >= RESTING {
                    self.mode = Mode::Waits { loaded: 0 };
                }
            }
        }
        self.told.take()
    }

    fn learn(&mut self, centre: f64) {
        let record = Recording {
            outputs: vec!["delay".into()],
            inputs: vec!["backlog".into()],
            y: Vec::new(),
            u: Vec::new(),
        };
        self.mode = Mode::Learns { centre, record };
        if !self.has_rested {
            self.told = Some(Told::Learns);
        }
    }

    /// Gives the bound its next level.
    fn turn(&mut self, machine: &mut impl Machine) {
        let Mode::Learns { centre, record } = &mut self.mode else {
            return;
        };
        let (low, high) = LEVELS;
        let share = low + (high - low) * (record.u.len() as f64 * GOLDEN).fract();
        let items = (*centre * share).clamp(ITEMS_MIN, BACKLOG_MAX as f64);
        let applied = machine.apply(&Plan::of(KnobId::Backlog, Value::Items(items as u64)));
        // What was obtained is what teaches.
        let obtained = applied.obtained.get(KnobId::Backlog).and_then(Value::items);
        record
            .u
            .push(vec![obtained.map_or(items, |items| items as f64) / MODEL_ITEMS]);
    }

    fn end_learning(&mut self, machine: &mut impl Machine) {
        let Mode::Learns { record, .. } = &mut self.mode else {
            return;
        };
        // At first there ends what was admitted before. What is left is the delay of a period, and the next bound.
        record.y.drain(..SETTLING);
        record.u.drain(..=SETTLING);
        record.y.truncate(record.u.len());
        match identify(record, Orders { na: 2, nb: 2 }, &OperatingPoint::Mean) {
            Ok(model) => {
                self.follow(model.clone());
                if matches!(self.mode, Mode::Law { .. }) {
                    self.learned = Some(model);
                }
            }
            Err(why) => self.rest(&why.to_string()),
        }
        match &self.mode {
            Mode::Law { law, .. } => self.applied = Some(machine.apply(&law.plan())),
            _ => drop(machine.restore()),
        }
    }

    fn follow(&mut self, model: ArxModel) {
        let ground = BacklogGround {
            model,
            integration: Integration::Once,
            target: self.asked.target,
            offers: self.offers.clone(),
        };
        match Backlog::new(&ground) {
            Ok(law) => {
                let log = Box::new(BacklogLog::new(ground));
                self.mode = Mode::Law {
                    law: Box::new(law),
                    log,
                };
                self.told = Some(Told::Follows);
            }
            Err(why) => self.rest(&why.to_string()),
        }
    }

    fn rest(&mut self, why: &str) {
        self.mode = Mode::Rests { periods: 0 };
        if !std::mem::replace(&mut self.has_rested, true) {
            self.told = Some(Told::Rests(why.to_owned()));
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use punctual_federation::admission::{BacklogMachine, Gate, Intake, Order};
    use punctual_federation::ids::NodeId;
    use punctual_loop::{EventLog, replay};
    use punctual_platform::Provenance;

    use super::*;

    const SECOND: Nanos = Nanos::from_secs(1);

    /// A node whose queries wait for what was admitted, at `each` seconds an item: a bound of so many items is a delay.
    struct Loaded {
        machine: BacklogMachine<u32>,
        each: f64,
        /// Of the delay, what chance makes of it.
        noise: f64,
        draws: u64,
    }

    impl Loaded {
        fn new(each: f64, noise: f64) -> Loaded {
            let intake = Intake::new(NodeId(0), 1, Nanos::from_millis(1), Gate::Open, Order::Deadline);
            Loaded {
                machine: BacklogMachine::new("a node", intake, Provenance::Real),
                each,
                noise,
                draws: 1,
            }
        }

        fn items(&self) -> u64 {
            self.machine.intake().backlog_max()
        }

        fn delay(&mut self, most: u64) -> Nanos {
            self.draws = self.draws.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let chance = (self.draws >> 11) as f64 / (1u64 << 53) as f64 - 0.5;
            let delay = self.items().min(most) as f64 * self.each;
            Nanos::from_secs_f64((delay * (1.0 + self.noise * chance)).max(0.0))
        }

        /// Closes `periods` periods in which all of the bound is used, up to `most` items; what was told.
        fn run(&mut self, bound: &mut Bound, periods: usize, most: u64) -> Vec<Told> {
            let mut told = Vec::new();
            for _ in 0..periods {
                let delay = self.delay(most);
                (0..ENDED_MIN).for_each(|_| bound.ended(delay));
                let report = Report {
                    cost: self.each,
                    executors: 1,
                    ..Report::default()
                };
                let now = bound.due();
                told.extend(bound.close(&mut self.machine, &report, now));
            }
            told
        }
    }

    fn bound(loaded: &Loaded, model: Option<ArxModel>) -> Bound {
        let asked = Asked {
            target: Nanos::from_millis(200),
            period: SECOND,
            model,
        };
        Bound::new(asked, loaded.machine.offers(), Time(0))
    }

    proptest! {
        /// Whatever an item costs: the node learns that, the delay comes to the target, and the log replays. Some noise
        /// there always is: without any, the delay before and the bound before that say the same.
        #[test]
        fn a_loaded_node_learns_and_its_delay_follows_the_target(each_us in 20u64..1500, noise in 0.02f64..0.2) {
            let mut loaded = Loaded::new(each_us as f64 * 1e-6, noise);
            let mut turned = bound(&loaded, None);
            let told = loaded.run(&mut turned, LEARNING + 70, 1 << 20);
            prop_assert_eq!(told, vec![Told::Learns, Told::Follows]);
            let delay = loaded.items() as f64 * loaded.each;
            prop_assert!((delay / 0.2 - 1.0).abs() < 0.2, "{} s", delay);
            let Outcome { learned, log } = turned.outcome();
            let mut events = EventLog::of_backlogs(vec![log.expect("a log")]);
            prop_assert_eq!(replay(&events).expect("a law"), Vec::new());
            // The same again from what was learned, without learning.
            let mut again = bound(&loaded, learned);
            prop_assert_eq!(loaded.run(&mut again, 5, 1 << 20), vec![Told::Follows]);
            // A decision that was changed is found.
            let last = events.backlogs[0].decisions.last_mut().expect("decisions");
            last.plan = Plan::of(KnobId::Backlog, Value::Items(loaded.items() + 1_000_000));
            prop_assert_eq!(replay(&events).expect("a law").len(), 1);
        }
    }

    #[test]
    fn a_node_without_a_load_waits() {
        let mut loaded = Loaded::new(1e-3, 0.1);
        let mut turned = bound(&loaded, None);
        assert_eq!(loaded.run(&mut turned, 300, 50), Vec::new());
        assert_eq!((turned.mode(), loaded.items()), ("waits", u64::MAX));
    }

    #[test]
    fn a_node_whose_delay_does_not_follow_says_so_once_and_keeps_its_bound() {
        // The backlog is far below each level: what it waits for is something else.
        let mut loaded = Loaded::new(1e-4, 1.0);
        let mut turned = bound(&loaded, None);
        let told = loaded.run(&mut turned, LEARNING + 100, 1 << 20);
        assert!(matches!(&told[..], [Told::Learns, ..]), "{told:?}");
        let mut stuck = Loaded::new(3e-3, 1.0);
        let mut turned = bound(&stuck, None);
        let told = stuck.run(&mut turned, LEARNING + 100, 60);
        assert!(matches!(&told[..], [Told::Learns, Told::Rests(_)]), "{told:?}");
        assert_eq!((turned.mode(), stuck.items()), ("rests", u64::MAX));
        assert_eq!(turned.outcome(), Outcome::default());
        // It tries again, and says nothing while that comes to the same.
        assert_eq!(stuck.run(&mut turned, 2 * RESTING as usize, 60), Vec::new());
        // When the load is one that follows its bound, it has a law.
        let mut mended = Loaded {
            each: 1e-3,
            noise: 0.1,
            ..stuck
        };
        let periods = 2 * RESTING as usize;
        assert_eq!(mended.run(&mut turned, periods, 1 << 20), vec![Told::Follows]);
        assert_eq!(turned.mode(), "law");
    }

    #[test]
    fn a_poor_model_is_said_once() {
        let model = ArxModel::from_matrices(
            vec!["backlog".into()],
            vec!["delay".into()],
            vec![punctual_control::DMatrix::from_element(1, 1, -0.1); 2],
            vec![punctual_control::DMatrix::from_element(1, 1, 0.1); 2],
        );
        let mut loaded = Loaded::new(1e-3, 0.1);
        let mut turned = bound(&loaded, model.ok());
        let told = loaded.run(&mut turned, 10, 1 << 20);
        assert!(
            matches!(&told[..], [Told::Rests(why)] if why.contains("no fit")),
            "{told:?}"
        );
        assert_eq!(loaded.items(), u64::MAX);
    }
}
