//! The clocks beneath a pipeline: the row of a table sets them, a regulator trims them.
//!
//! **Problem.** A row names the lowest clocks that serve a frame rate, by loads as they were measured. It does not know
//! how late frames are; a regulator knows nothing else.
//!
//! **Method.** A single policy sets the clocks. The row's clocks are the lowest that it sets. The regulator turns a
//! clock of its own, the *trim*: its lower end leaves all domains at the row's clocks, its upper end has them at their
//! highest steps, and in between each domain is the same share of its own way up. So a regulator that trusts nothing,
//! and goes to its safe setting, gets the highest clocks. While stages move to a new row, each domain keeps the higher
//! one of both rows.
//!
//! The regulator gets one job for each window, with the mean tardiness of its frames, or the tardiness that the allowed
//! share of them exceeds, scaled so that the goal is always [`NOMINAL`]. So one model will do: tardiness goes with one
//! over the clock, almost at once, over a trim from the row's clock to sixteen times as much.

use punctual_control::ControlError;
use punctual_platform::{
    Applied, ClockOffer, KnobId, KnobOffer, Measure, MeterId, Offers, Plan, Provenance, Range, Readings, Refusal, Value,
};
use punctual_units::{Hertz, Nanos, Share, TaskId, Time};
use punctual_workload::{ControllerKind, Goal, JobOutcome, Pace, Split, TaskGoal, UpdateMode};
use serde::{Deserialize, Serialize};

use crate::document::{ControllerDocument, MadeFor, ModelDocument};
use crate::event::{Answer, Event, Vitals};
use crate::tick::{Regulator, RegulatorOptions};

/// How often clocks are decided on: frames of several periods of a policy, and soon enough after a new rate.
pub const CLOCKS_EVERY: Nanos = Nanos::from_millis(200);
/// The tardiness that the regulator is asked for, whatever the goal is.
const NOMINAL: f64 = 0.7;
/// Most tardiness that the regulator gets: a queue that has grown while the clock was too low answers by far more than
/// the clock, and a law that believed it would go up too far, and come down to the same again.
const TARDIEST: f64 = 1.0;
/// The trim's lower and upper end, and its steps.
const TRIM: (Hertz, Hertz) = (Hertz::from_mhz(500), Hertz::from_mhz(1000));
const TRIM_STEP: Hertz = Hertz::from_mhz(25);
/// The deadline of the jobs that stand for windows: their response time is tardiness times this.
const DUE: Nanos = Nanos::from_secs(1);
/// How many times as high as a row's clock the highest one is, in the model: more than on any machine that we know,
/// because a queue reacts by more than the clock changes. Where it is less, the law is slower.
const RANGE: f64 = 16.0;
/// Part of a window's tardiness that comes from the window before, in the model. Frames have left long before a window
/// ends: with more, the law would answer each window's error at once, and go back and forth between two clocks.
const LAG: f64 = 0.1;
/// Windows of the record that the model is identified from.
const RECORD: usize = 200;

/// A clock that can be set.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ClockDomain {
    /// Knob that sets the clock. Domains of one knob get the highest of their clocks.
    pub knob: KnobId,
    /// Steps of the clock, ascending; rows name them by number.
    pub steps: Vec<Hertz>,
}

/// Inputs that are fixed before the first row.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ClockGround {
    /// The domains of the coordinator's cores, in its order.
    pub domains: Vec<ClockDomain>,
    /// The tardiness that is asked for; `None`: rows alone set the clocks.
    pub goal: Option<f64>,
    /// When the pipeline began.
    pub start: Time,
}

/// Measurements of one window.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ClocksSeen {
    /// The step of each domain in the latest row; `None` where no policy with rows decides.
    pub row: Option<Vec<u8>>,
    /// Whether stages are moving to that row.
    pub moves: bool,
    /// The tardiness of the window's frames that the goal is about; `None` where no frame with a deadline came.
    pub tardiness: Option<f64>,
    /// Why the machine refused the last plan; `None` where it did not.
    pub refused: Option<Refusal>,
}

/// Decides on the clocks.
#[derive(Clone, Debug)]
pub struct Clocks {
    ground: ClockGround,
    regulator: Option<Regulator>,
    /// Least step of each domain.
    row: Vec<u8>,
    /// The trim, and whether its outcome has still to be reported to the regulator.
    trim: (Hertz, bool),
    windows: u64,
}

impl Clocks {
    /// Creates a policy without measurements.
    ///
    /// # Errors
    /// [`ControlError`] where no law can be made, which is a defect of this file.
    pub fn new(ground: ClockGround) -> Result<Clocks, ControlError> {
        let regulator = ground.goal.map(|_| regulator(ground.start)).transpose()?;
        Ok(Clocks {
            row: Vec::new(),
            trim: (TRIM.0, false),
            windows: 0,
            regulator,
            ground,
        })
    }

    /// The clocks until the next window's end; an empty plan leaves them as they were found.
    pub fn step(&mut self, seen: &ClocksSeen, now: Time) -> Plan {
        let Some(row) = &seen.row else {
            self.row.clear();
            return Plan::default();
        };
        let before = |domain: usize| {
            if seen.moves {
                self.row.get(domain).copied()
            } else {
                None
            }
        };
        let higher = row
            .iter()
            .enumerate()
            .map(|(domain, step)| before(domain).unwrap_or(0).max(*step));
        self.row = higher.collect();
        self.regulate(seen, now);
        self.plan()
    }

    /// Turns the trim where the window had frames.
    fn regulate(&mut self, seen: &ClocksSeen, now: Time) {
        let (Some(goal), Some(regulator)) = (self.ground.goal, &mut self.regulator) else {
            return;
        };
        let Some(tardiness) = seen.tardiness else { return };
        if std::mem::take(&mut self.trim.1) {
            regulator.step(&Event::Applied(applied(self.trim.0, seen.refused.as_ref())), now);
        }
        let scaled = (tardiness * NOMINAL / goal).min(TARDIEST);
        regulator.step(&Event::Completed(window(self.windows, scaled, now)), now);
        self.windows += 1;
        let step = regulator
            .step(&Event::Period(vitals(self.trim.0, now)), now)
            .and_then(Answer::step);
        if let Some(clock) = step.and_then(|step| step.plan.clock()) {
            self.trim = (trim_offer().nearest(clock), true);
        }
    }

    /// Plans each domain at the row's step, and as far above it as the trim says.
    fn plan(&self) -> Plan {
        let above = (self.trim.0.0 - TRIM.0.0) as f64 / (TRIM.1.0 - TRIM.0.0) as f64;
        let mut plan = Plan::default();
        for (domain, step) in self.ground.domains.iter().zip(&self.row) {
            let Some(clock) = lifted(&domain.steps, usize::from(*step), above) else {
                continue;
            };
            let other = plan.get(domain.knob).and_then(Value::clock).unwrap_or(clock);
            plan.set(domain.knob, Value::Clock(clock.max(other)));
        }
        plan
    }
}

/// The lowest step that is at least `share` of the way from `step` up to the highest one, on a logarithmic scale: so
/// that the trim's effect on tardiness is as strong everywhere. `None` where there are no steps.
fn lifted(steps: &[Hertz], step: usize, share: f64) -> Option<Hertz> {
    let top = *steps.last()?;
    let floor = steps.get(step).copied().unwrap_or(top);
    let wanted = floor.0 as f64 * top.ratio(floor).powf(share);
    // Rounding is no reason for a higher step.
    let reaches = |step: &&Hertz| step.0 as f64 * (1.0 + 1e-9) >= wanted;
    Some(steps.iter().find(reaches).copied().unwrap_or(top))
}

fn trim_offer() -> ClockOffer {
    let count = (TRIM.1.0 - TRIM.0.0) / TRIM_STEP.0;
    ClockOffer::new(
        (0..=count).map(|step| Hertz(TRIM.0.0 + step * TRIM_STEP.0)).collect(),
        Provenance::Real,
    )
}

fn applied(trim: Hertz, refused: Option<&Refusal>) -> Applied {
    match refused {
        None => Applied {
            obtained: Plan::of(KnobId::CLOCK, Value::Clock(trim)),
            refused: Vec::new(),
        },
        Some(refusal) => Applied {
            obtained: Plan::default(),
            refused: vec![(KnobId::CLOCK, refusal.clone())],
        },
    }
}

/// A job that stands for the frames of a window.
fn window(number: u64, tardiness: f64, now: Time) -> JobOutcome {
    let response = DUE.scaled(tardiness);
    JobOutcome {
        task: TaskId(0),
        job: number,
        released: Time(now.0.saturating_sub(response.0)),
        deadline: Some(DUE),
        finished: now,
        split: Split {
            computation: response,
            ..Split::default()
        },
    }
}

fn vitals(trim: Hertz, now: Time) -> Vitals {
    Vitals {
        machine: Readings {
            at: now,
            meters: vec![(MeterId::Clock, Ok(Measure::Clock(trim)))],
        },
        fresh: Share::ONE,
        updates_offered: 0,
        updates_admitted: 0,
        updates_for_minimum: 0,
        updates_least: Share::ZERO,
    }
}

fn regulator(start: Time) -> Result<Regulator, ControlError> {
    let options = RegulatorOptions {
        kind: ControllerKind::Clock,
        goal: Goal {
            tasks: TaskGoal::Tardiness(NOMINAL),
            drr: 0.5,
            min_fresh: Share::clamped(0.5),
        },
        goals: Vec::new(),
        stages: Vec::new(),
        offers: Offers {
            machine: "the trim of a mapping's clocks".into(),
            cores: Vec::new(),
            knobs: vec![KnobOffer {
                knob: KnobId::CLOCK,
                range: Range::Clock(trim_offer()),
            }],
            meters: Vec::new(),
            domains: Vec::new(),
        },
        start,
        warm_up: Nanos::ZERO,
        // A window without frames is not reported, and a stream may pause for as long as it likes.
        silence: Nanos(u64::MAX),
        impatient: false,
        within: false,
        design: Some(design()?),
        best_effort: None,
        split: None,
        prices: None,
        idle_clock: false,
        excite: None,
    };
    let unfit = "the loop that `clock` closes cannot be judged: the trim's model fits no regulator";
    Regulator::new(options).map_err(|_| ControlError::Refused(unfit.into()))
}

/// The control law for a plant by formula, as the head of this file says. The response ratio and the admitted share,
/// which a pipeline does not have, are made up.
fn design() -> Result<ControllerDocument, ControlError> {
    // Multiples of two irrational numbers, modulo one: levels that are spread evenly and depend on nothing.
    let spread = |number: usize, by: f64| (number as f64 * by).fract();
    let (mut y, mut u, mut before) = (Vec::new(), Vec::new(), [NOMINAL, 0.5]);
    for k in 0..RECORD {
        let knobs = [0.5 + 0.5 * spread(k, 0.618_034), spread(k, 0.414_214)];
        y.push(before);
        u.push(knobs);
        before = [
            LAG * before[0] + (1.0 - LAG) * NOMINAL * RANGE.powf(2.0 * (0.6 - knobs[0])),
            0.5 - 0.05 * knobs[0] + 0.3 * knobs[1],
        ];
    }
    let made_for = MadeFor {
        scenario: "pipeline".into(),
        platform: "linux".into(),
        pace: Pace::Period(CLOCKS_EVERY),
        update_mode: UpdateMode::Transaction,
        machine: None,
        shipped: true,
    };
    ModelDocument::identify(made_for, &y, &u)?.design()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use punctual_platform::DomainId;

    use crate::{DeciderSetup, EventLog, replay};

    fn steps() -> Vec<Hertz> {
        (2..=20).map(|hundreds| Hertz::from_mhz(hundreds * 100)).collect()
    }

    fn ground(goal: Option<f64>) -> ClockGround {
        let domain = |number| ClockDomain {
            knob: KnobId::Clock(DomainId(number)),
            steps: steps(),
        };
        ClockGround {
            domains: vec![domain(1), domain(2)],
            goal,
            start: Time::ZERO,
        }
    }

    fn seen(row: &[u8], moves: bool, tardiness: Option<f64>) -> ClocksSeen {
        ClocksSeen {
            row: Some(row.to_vec()),
            moves,
            tardiness,
            refused: None,
        }
    }

    fn clock(plan: &Plan, domain: u8) -> u64 {
        let value = plan.get(KnobId::Clock(DomainId(domain))).and_then(Value::clock);
        value.map_or(0, |clock| clock.0 / 1_000_000)
    }

    fn at(window: u64) -> Time {
        Time::ZERO + CLOCKS_EVERY * (window + 1)
    }

    #[test]
    fn a_row_alone_sets_its_clocks_and_none_leaves_them() {
        let mut clocks = Clocks::new(ground(None)).unwrap();
        let plan = clocks.step(&seen(&[3, 7], false, Some(5.0)), at(0));
        assert_eq!((clock(&plan, 1), clock(&plan, 2)), (500, 900));
        assert_eq!(clocks.step(&ClocksSeen::default(), at(1)), Plan::default());
    }

    #[test]
    fn while_stages_move_each_domain_keeps_the_higher_clock() {
        let mut clocks = Clocks::new(ground(None)).unwrap();
        clocks.step(&seen(&[3, 7], false, None), at(0));
        let plan = clocks.step(&seen(&[5, 2], true, None), at(1));
        assert_eq!((clock(&plan, 1), clock(&plan, 2)), (700, 900));
        let plan = clocks.step(&seen(&[5, 2], false, None), at(2));
        assert_eq!((clock(&plan, 1), clock(&plan, 2)), (700, 400));
    }

    #[test]
    fn domains_of_one_knob_get_the_higher_clock() {
        let mut one = ground(None);
        one.domains.iter_mut().for_each(|domain| domain.knob = KnobId::CLOCK);
        let plan = Clocks::new(one).unwrap().step(&seen(&[3, 7], false, None), at(0));
        assert_eq!(plan.clock(), Some(Hertz::from_mhz(900)));
    }

    /// A plant whose frames are so late at that clock: the trim goes up where they are too late, and comes down again.
    #[test]
    fn the_trim_holds_tardiness_above_the_row_and_leaves_the_row_where_it_serves() {
        for (work, least, most) in [(700.0, 1000, 1300), (200.0, 400, 400), (3000.0, 2000, 2000)] {
            let mut clocks = Clocks::new(ground(Some(0.6))).unwrap();
            let (mut tardiness, mut mhz) = (0.5, 0);
            for window in 0..150 {
                let plan = clocks.step(&seen(&[2, 2], false, Some(tardiness)), at(window));
                mhz = clock(&plan, 1);
                tardiness = 0.5 * tardiness + 0.5 * work / mhz as f64;
            }
            assert!(
                (least..=most).contains(&mhz),
                "work {work}: {mhz} MHz, tardiness {tardiness}"
            );
        }
    }

    #[test]
    fn a_refusal_leads_to_the_highest_clocks() {
        let mut clocks = Clocks::new(ground(Some(0.6))).unwrap();
        let mut plan = Plan::default();
        for window in 0..10 {
            let refused = (window > 2).then(|| Refusal {
                what: "setting the clock".into(),
                why: "planted".into(),
                remedy: "none".into(),
            });
            let seen = ClocksSeen {
                refused,
                ..seen(&[2, 2], false, Some(0.3))
            };
            plan = clocks.step(&seen, at(window));
        }
        assert_eq!(clock(&plan, 1), 2000);
    }

    proptest! {
        /// Whatever is seen: a clock is a step, no lower than the row's, and the log gives the same answers.
        #[test]
        fn clocks_are_steps_above_the_row_and_replay(
            windows in prop::collection::vec((0u8..30, 0u8..19, any::<bool>(), prop::option::of(0.0..20.0f64)), 1..80),
            goal in prop::option::of(0.05..2.0f64),
        ) {
            let ground = ground(goal);
            let (mut clocks, mut log) = (Clocks::new(ground.clone()).unwrap(), EventLog::of(DeciderSetup::Clocks(ground), 100));
            for (number, (first, second, moves, tardiness)) in windows.into_iter().enumerate() {
                let (now, seen) = (at(number as u64), seen(&[first, second], moves, tardiness));
                let plan = clocks.step(&seen, now);
                for (domain, step) in [(1, first), (2, second)] {
                    let mhz = clock(&plan, domain);
                    let floor = (200 + u64::from(step) * 100).min(2000);
                    prop_assert!(mhz >= floor && mhz <= 2000 && mhz.is_multiple_of(100), "{mhz} MHz, row {floor}");
                }
                log.note(now, seen, plan);
            }
            let json = serde_json::to_string(&log).unwrap();
            prop_assert_eq!(replay(&serde_json::from_str(&json).unwrap()), Ok(Vec::new()));
        }
    }
}
