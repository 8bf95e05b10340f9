//! The bound of the node's backlog, set once a period by the loop's control law ([`punctual_loop::backlog`]).
//!
//! **Problem.** A node admits the queries that end by their deadline, by forecast. An operator that wants more than
//! that, a mean delay that is far below the deadlines, has to set a bound on the backlog, and the right bound depends
//! on the cost of requests on this machine today.
//!
//! **Method.** A period is closed once a second: the mean delay of the queries that ended in it goes to the control
//! law, the law's plan to the node's machine, and the machine's result into the next period. All of it is kept in a log
//! that replays. The law needs a model of this node. A model learned before is given; otherwise the node learns one as
//! soon as it is loaded: for [`LEARNING`] periods the bound has another level in each, around the level at which
//! forecasts expect the target. A row of the record is the mean delay of a period, and the bound in force in the next.
//!
//! **Modes.** While the node `rests`, the bound is as it was found; the node learns again later, because the
//! disturbance of its record may have gone.
//!
//! ```text
//! waits ──(loaded)──► learns ──(the model explains enough)──► law
//!   ▲ model given ──────┼──────────────────────────────────────┘
//!   │                   └──(it does not)──► rests ──┐
//!   └───────────────────────(RESTING periods later)─┘
//! ```
//!
//! Pure: values and `now` in; it sets the bound through the [`Machine`] that it is given.

use punctual_control::{ArxModel, Integration, OperatingPoint, Orders, Recording, identify};
use punctual_loop::backlog::{Backlog, BacklogGround, BacklogSeen, ITEMS_MIN, MODEL_ITEMS};
use punctual_loop::{DeciderSetup, EventLog};
use punctual_platform::{Applied, KnobId, Machine, Offers, Plan, Value};
use punctual_units::{Nanos, Time};

use super::{BACKLOG_MAX, BacklogReport};

/// Number of periods, each with another level of the bound, in which a model is learned.
pub const LEARNING: usize = 120;
/// Number of periods before those, in which queries end that were admitted before the first level.
const SETTLING: usize = 4;
/// Periods for which a node rests if its delay has not followed its bound: so it learns for a tenth of the time at
/// most.
pub const RESTING: u32 = 10 * (LEARNING + SETTLING) as u32;
/// Queries that must end in a period for its mean to show the load.
pub const ENDED_MIN: u64 = 20;
/// Number of successive periods with a delay of at least half the target after which the node counts as loaded.
pub const LOADED: u32 = 3;
/// Least and greatest level, as multiples of the bound at which forecasts expect the target.
const LEVELS: (f64, f64) = (0.4, 1.6);
/// Most decisions that are kept: more than a day of one a second.
const DECISIONS_MAX: usize = 100_000;
/// Fractional part of the golden ratio: its multiples are evenly spread, and no two neighbours are alike.
const GOLDEN: f64 = 0.618_033_988_749_895;

/// An operator's wish for the delay of queries.
#[derive(Clone, Debug, PartialEq)]
pub struct DelayTarget {
    /// Mean delay of queries to reach, from reading a query to answering it.
    pub target: Nanos,
    /// Interval at which the bound is set.
    pub period: Nanos,
    /// A model learned before on this node; `None`: the node learns one.
    pub model: Option<ArxModel>,
}

/// A change of mode that the node reports, once.
#[derive(Clone, Debug, PartialEq)]
pub enum BoundNotice {
    /// The node begins to learn a model.
    Learns,
    /// The node has a model, and the control law sets the bound.
    Follows,
    /// There is no model, for this reason, and the bound is as it was found. The node learns again later, without a
    /// further report.
    Rests(String),
}

/// Results of the control law, for the process that started the node.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outcome {
    /// The model that this node has learned, if it has.
    pub learned: Option<ArxModel>,
    /// The control law's decisions, if it has set the bound.
    pub log: Option<EventLog>,
}

#[derive(Clone, Debug, PartialEq)]
enum Mode {
    Waits { loaded: u32 },
    Learns { centre: f64, record: Recording },
    Law { law: Box<Backlog>, log: Box<EventLog> },
    Rests { periods: u32 },
}

/// Sets the bound of the backlog, period by period.
#[derive(Clone, Debug, PartialEq)]
pub struct Bound {
    asked: DelayTarget,
    offers: Offers,
    mode: Mode,
    due: Time,
    sum: Nanos,
    count: u64,
    /// The mean delay of the last period in which queries ended.
    delay: Option<Nanos>,
    applied: Option<Applied>,
    learned: Option<ArxModel>,
    told: Option<BoundNotice>,
    /// Whether the node has rested, and reported that.
    has_rested: bool,
}

impl Bound {
    /// Begins with the first period at `now`, on a machine with these offers.
    pub fn new(asked: DelayTarget, offers: &Offers, now: Time) -> Bound {
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

    /// Counts a query that has ended, with its delay from reading to answering.
    pub fn ended(&mut self, delay: Nanos) {
        self.sum += delay;
        self.count += 1;
    }

    /// When the present period is to be closed.
    pub fn due(&self) -> Time {
        self.due
    }

    /// Name of the present mode, for figures.
    pub fn mode(&self) -> &'static str {
        match self.mode {
            Mode::Waits { .. } => "waits",
            Mode::Learns { .. } => "learns",
            Mode::Law { .. } => "law",
            Mode::Rests { .. } => "rests",
        }
    }

    /// The mean delay to reach.
    pub fn target(&self) -> Nanos {
        self.asked.target
    }

    /// The mean delay of the last period in which queries ended.
    pub fn delay(&self) -> Option<Nanos> {
        self.delay
    }

    /// The model and the decisions so far.
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

    /// The model that this node has learned, if it has.
    pub fn learned(&self) -> Option<&ArxModel> {
        self.learned.as_ref()
    }

    /// Closes the period at `now`, and sets the bound of `machine`, whose queries `report` describes. Returns a change
    /// of mode to report.
    pub fn close(&mut self, machine: &mut impl Machine, report: &BacklogReport, now: Time) -> Option<BoundNotice> {
        // Later periods are not shortened to make up for a late one.
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
                // A period in which no query ended repeats the delay of the one before.
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
                log.note(now, seen, plan);
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
            self.told = Some(BoundNotice::Learns);
        }
    }

    /// Sets the next level of the bound.
    fn turn(&mut self, machine: &mut impl Machine) {
        let Mode::Learns { centre, record } = &mut self.mode else {
            return;
        };
        let (low, high) = LEVELS;
        let share = low + (high - low) * (record.u.len() as f64 * GOLDEN).fract();
        let items = (*centre * share).clamp(ITEMS_MIN, BACKLOG_MAX as f64);
        let applied = machine.apply(&Plan::of(KnobId::Backlog, Value::Items(items as u64)));
        // The model learns from the bound in force, which the machine may have limited.
        let obtained = applied.obtained.get(KnobId::Backlog).and_then(Value::items);
        record
            .u
            .push(vec![obtained.map_or(items, |items| items as f64) / MODEL_ITEMS]);
    }

    fn end_learning(&mut self, machine: &mut impl Machine) {
        let Mode::Learns { record, .. } = &mut self.mode else {
            return;
        };
        // The first periods end queries that were admitted before; then each row has the delay of a period and the next
        // bound.
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
                let log = EventLog::of(DeciderSetup::Backlog(Box::new(ground)), DECISIONS_MAX);
                self.mode = Mode::Law {
                    law: Box::new(law),
                    log: Box::new(log),
                };
                self.told = Some(BoundNotice::Follows);
            }
            Err(why) => self.rest(&why.to_string()),
        }
    }

    fn rest(&mut self, why: &str) {
        self.mode = Mode::Rests { periods: 0 };
        if !std::mem::replace(&mut self.has_rested, true) {
            self.told = Some(BoundNotice::Rests(why.to_owned()));
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use punctual_loop::replay;
    use punctual_platform::Provenance;

    use super::*;
    use crate::admission::{BacklogMachine, Gate, Intake, ServiceOrder};
    use crate::ids::NodeId;

    const SECOND: Nanos = Nanos::from_secs(1);

    /// A node whose queries wait for what was admitted, at `each` seconds an item: a bound of so many items is a delay.
    struct LoadedNode {
        machine: BacklogMachine<u32>,
        each: f64,
        /// Of the delay, what chance makes of it.
        noise: f64,
        draws: u64,
    }

    impl LoadedNode {
        fn new(each: f64, noise: f64) -> LoadedNode {
            let intake = Intake::new(NodeId(0), 1, Nanos::from_millis(1), Gate::Open, ServiceOrder::Deadline);
            LoadedNode {
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
        fn run(&mut self, bound: &mut Bound, periods: usize, most: u64) -> Vec<BoundNotice> {
            let mut told = Vec::new();
            for _ in 0..periods {
                let delay = self.delay(most);
                (0..ENDED_MIN).for_each(|_| bound.ended(delay));
                let report = BacklogReport {
                    cost: self.each,
                    executors: 1,
                    ..BacklogReport::default()
                };
                let now = bound.due();
                told.extend(bound.close(&mut self.machine, &report, now));
            }
            told
        }
    }

    fn bound(loaded: &LoadedNode, model: Option<ArxModel>) -> Bound {
        let asked = DelayTarget {
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
            let mut loaded = LoadedNode::new(each_us as f64 * 1e-6, noise);
            let mut turned = bound(&loaded, None);
            let told = loaded.run(&mut turned, LEARNING + 70, 1 << 20);
            prop_assert_eq!(told, vec![BoundNotice::Learns, BoundNotice::Follows]);
            let delay = loaded.items() as f64 * loaded.each;
            prop_assert!((delay / 0.2 - 1.0).abs() < 0.2, "{} s", delay);
            let Outcome { learned, log } = turned.outcome();
            let mut events = log.expect("a log");
            prop_assert_eq!(replay(&events).expect("a law"), Vec::new());
            // The same again from what was learned, without learning.
            let mut again = bound(&loaded, learned);
            prop_assert_eq!(loaded.run(&mut again, 5, 1 << 20), vec![BoundNotice::Follows]);
            // A decision that was changed is found.
            let last = events.decisions.last_mut().expect("decisions");
            last.answer = Plan::of(KnobId::Backlog, Value::Items(loaded.items() + 1_000_000)).into();
            prop_assert_eq!(replay(&events).expect("a law").len(), 1);
        }
    }

    #[test]
    fn a_node_without_a_load_waits() {
        let mut loaded = LoadedNode::new(1e-3, 0.1);
        let mut turned = bound(&loaded, None);
        assert_eq!(loaded.run(&mut turned, 300, 50), Vec::new());
        assert_eq!((turned.mode(), loaded.items()), ("waits", u64::MAX));
    }

    #[test]
    fn a_node_whose_delay_does_not_follow_says_so_once_and_keeps_its_bound() {
        // The backlog is far below each level: what it waits for is something else.
        let mut loaded = LoadedNode::new(1e-4, 1.0);
        let mut turned = bound(&loaded, None);
        let told = loaded.run(&mut turned, LEARNING + 100, 1 << 20);
        assert!(matches!(&told[..], [BoundNotice::Learns, ..]), "{told:?}");
        let mut stuck = LoadedNode::new(3e-3, 1.0);
        let mut turned = bound(&stuck, None);
        let told = stuck.run(&mut turned, LEARNING + 100, 60);
        assert!(
            matches!(&told[..], [BoundNotice::Learns, BoundNotice::Rests(_)]),
            "{told:?}"
        );
        assert_eq!((turned.mode(), stuck.items()), ("rests", u64::MAX));
        assert_eq!(turned.outcome(), Outcome::default());
        // It tries again, and says nothing while that comes to the same.
        assert_eq!(stuck.run(&mut turned, 2 * RESTING as usize, 60), Vec::new());
        // When the load is one that follows its bound, it has a law.
        let mut mended = LoadedNode {
            each: 1e-3,
            noise: 0.1,
            ..stuck
        };
        let periods = 2 * RESTING as usize;
        assert_eq!(mended.run(&mut turned, periods, 1 << 20), vec![BoundNotice::Follows]);
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
        let mut loaded = LoadedNode::new(1e-3, 0.1);
        let mut turned = bound(&loaded, model.ok());
        let told = loaded.run(&mut turned, 10, 1 << 20);
        assert!(
            matches!(&told[..], [BoundNotice::Rests(why)] if why.contains("no fit")),
            "{told:?}"
        );
        assert_eq!(loaded.items(), u64::MAX);
    }
}
