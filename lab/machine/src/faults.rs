//! Faults of knobs and meters, as data: the machine itself stays sound, only settings and readings go wrong.
//!
//! ```text
//! apply ─► stuck: stays where it is, and says so │ refused: an error
//! read  ─► late │ frozen │ wrong by a factor │ lost: "failed" in its place
//! ```
//!
//! The *response* meter is the outcome that a job's completion reports to the loop. A fault of it changes that outcome,
//! not the job.
//!
//! Whether a reading is lost depends on the seed and the instant alone, so reading once more changes nothing.

use std::collections::VecDeque;
use std::fmt;

use punctual_platform::{Applied, KnobId, Machine, Measure, MeterId, Plan, Reading, Readings, Refusal, Value};
use punctual_sim::Simulation;
use punctual_units::{Clock, Nanos, Time};
use punctual_workload::{JobOutcome, Split};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// Bound on the readings stored for late and frozen meters; older ones are dropped.
const HISTORY_MAX: usize = 4096;

/// Faults of a run, and the seed of lost readings.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Faults {
    /// Seed that decides which readings are lost.
    pub seed: u64,
    /// The faults, applied in order: of several that hit the same meter at once, each changes the output of its
    /// predecessors.
    pub list: Vec<Fault>,
}

/// A fault of a knob or a meter, and its time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Fault {
    /// The knob or meter, and the kind of fault.
    pub failing: Failing,
    /// Begin, since the start of the run.
    pub from: Nanos,
    /// End, since the start of the run; excluded.
    pub until: Nanos,
}

/// Kinds of faults, with the meter that fails.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Failing {
    /// The clock stays where it is, and setting it reports so.
    StuckClock,
    /// Setting the clock is an error.
    RefusedClock,
    /// The meter shows its reading of this long ago.
    Late(MeterId, Nanos),
    /// The meter shows its reading of the fault's begin.
    Frozen(MeterId),
    /// The meter is wrong by this factor, at least 0.
    Wrong(MeterId, f64),
    /// Every reading fails with this probability.
    Lost(MeterId, f64),
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.failing {
            Failing::StuckClock => f.write_str("clock stuck")?,
            Failing::RefusedClock => f.write_str("clock refused")?,
            Failing::Late(meter, by) => write!(f, "{} meter late by {by}", meter.name())?,
            Failing::Frozen(meter) => write!(f, "{} meter frozen", meter.name())?,
            Failing::Wrong(meter, factor) => write!(f, "{} meter wrong by a factor of {factor}", meter.name())?,
            Failing::Lost(meter, share) => write!(f, "{} readings lost with probability {share}", meter.name())?,
        }
        write!(f, ", from {} to {}", self.from, self.until)
    }
}

impl Fault {
    fn active(&self, now: Time) -> bool {
        (Time::ZERO + self.from..Time::ZERO + self.until).contains(&now)
    }
}

impl Faults {
    fn active(&self, now: Time) -> impl Iterator<Item = Fault> + '_ {
        self.list.iter().copied().filter(move |fault| fault.active(now))
    }

    /// Whether the reading of this meter at this instant is lost.
    fn loses(&self, meter: MeterId, probability: f64, at: Time) -> bool {
        let mut rng = ChaCha8Rng::seed_from_u64(self.seed);
        rng.set_stream(at.0.wrapping_mul(4).wrapping_add(meter as u64));
        rng.random_bool(probability.clamp(0.0, 1.0))
    }
}

/// Faulty knobs and meters of a simulated machine; without faults, those of the machine itself.
#[derive(Clone, Debug, Default)]
pub struct Faulty {
    faults: Faults,
    /// True readings, oldest first; empty without faults.
    history: VecDeque<Readings>,
    /// The latest outcome that was reported while the response meter was sound.
    last: Option<JobOutcome>,
    /// Outcomes that are delayed, and when they are reported.
    late: VecDeque<(Time, JobOutcome)>,
}

impl Faulty {
    /// Knobs and meters with these faults.
    pub fn new(faults: Faults) -> Faulty {
        Faulty {
            faults,
            ..Faulty::default()
        }
    }

    /// The faults of the run.
    pub fn faults(&self) -> &[Fault] {
        &self.faults.list
    }

    /// Turns the knobs of `machine`, as far as they work.
    pub fn apply(&mut self, machine: &mut Simulation, plan: &Plan) -> Applied {
        let clock = plan.get(KnobId::CLOCK).and_then(|_| self.clock_fault(machine));
        let Some(clock) = clock else {
            return machine.apply(plan);
        };
        let mut applied = machine.apply(&plan.without(KnobId::CLOCK));
        applied.note(KnobId::CLOCK, clock);
        applied
    }

    /// Reads the meters of `machine`, as far as they work.
    pub fn read(&mut self, machine: &mut Simulation) -> Readings {
        let mut readings = machine.read();
        self.remember(&readings);
        for fault in self.faults.active(readings.at) {
            self.distort(&mut readings, fault);
        }
        readings
    }

    /// Outcome that the response meter reports for a job that just ended; `None` if the reading is lost or delayed.
    pub fn observe(&mut self, outcome: JobOutcome, now: Time) -> Option<JobOutcome> {
        let mut told = Some(outcome);
        let mut sound = true;
        for fault in self.faults.active(now) {
            let Some(seen) = told else { break };
            told = match fault.failing {
                Failing::Frozen(MeterId::Response) => Some(self.last.map_or(seen, |last| replace(seen, last.split))),
                Failing::Wrong(MeterId::Response, factor) => {
                    Some(replace(seen, seen.split.map(|part| part.scaled(factor))))
                }
                Failing::Lost(MeterId::Response, probability)
                    if self.faults.loses(MeterId::Response, probability, now) =>
                {
                    None
                }
                Failing::Late(MeterId::Response, by) => {
                    self.late.push_back((now + by, seen));
                    None
                }
                _ => continue,
            };
            sound = false;
        }
        if sound {
            self.last = told;
        }
        told
    }

    /// Returns the delayed outcomes that are due by now.
    pub fn overdue(&mut self, now: Time) -> Vec<JobOutcome> {
        let due = |(at, outcome): &(Time, JobOutcome)| (*at <= now).then_some(*outcome);
        let told = self.late.iter().filter_map(due).collect();
        self.late.retain(|(at, _)| *at > now);
        told
    }

    /// The latest true reading at or before `at`.
    fn reading_at(&self, at: Time) -> Option<&Readings> {
        let after = self.history.partition_point(|readings| readings.at <= at);
        after.checked_sub(1).map(|i| &self.history[i])
    }

    fn remember(&mut self, readings: &Readings) {
        if self.faults.list.is_empty() || self.history.back().is_some_and(|last| last.at == readings.at) {
            return;
        }
        if self.history.len() == HISTORY_MAX {
            self.history.pop_front();
        }
        self.history.push_back(readings.clone());
    }

    /// Result of setting the clock now, if a fault affects it.
    fn clock_fault(&self, machine: &Simulation) -> Option<Result<Value, Refusal>> {
        let becomes = |fault: Fault| match fault.failing {
            Failing::StuckClock => Some(Ok(Value::Clock(machine.clock()))),
            Failing::RefusedClock => Some(Err(Refusal {
                what: "setting the clock".into(),
                why: "the knob does not answer (simulated fault)".into(),
                remedy: "the run goes on at the safe setting".into(),
            })),
            Failing::Late(..) | Failing::Frozen(_) | Failing::Wrong(..) | Failing::Lost(..) => None,
        };
        self.faults.active(machine.now()).find_map(becomes)
    }

    /// Changes `readings` by `fault`.
    fn distort(&self, readings: &mut Readings, fault: Fault) {
        match fault.failing {
            Failing::Late(meter, by) => {
                let shown = Time(readings.at.0.saturating_sub(by.0));
                self.show(readings, meter, self.reading_at(shown));
            }
            Failing::Frozen(meter) => self.show(readings, meter, self.reading_at(Time::ZERO + fault.from)),
            Failing::Wrong(meter, factor) => multiply(readings, meter, factor),
            Failing::Lost(meter, probability) if self.faults.loses(meter, probability, readings.at) => {
                fail(readings, meter, "the reading was lost (simulated fault)");
            }
            Failing::Lost(..) | Failing::StuckClock | Failing::RefusedClock => {}
        }
    }

    /// Replaces the reading of `meter` by its reading in `past`.
    fn show(&self, readings: &mut Readings, meter: MeterId, past: Option<&Readings>) {
        let Some(past) = past else {
            return fail(readings, meter, "nothing was read yet (simulated fault)");
        };
        if let Some(past) = past.get(meter) {
            change(readings, meter, |_| past.clone());
        }
    }
}

/// Replaces the reading of `meter`, if the machine has that meter.
fn change(readings: &mut Readings, meter: MeterId, to: impl Fn(&Reading) -> Reading) {
    for (_, reading) in readings.meters.iter_mut().filter(|(other, _)| *other == meter) {
        *reading = to(reading);
    }
}

fn multiply(readings: &mut Readings, meter: MeterId, factor: f64) {
    change(readings, meter, |reading| {
        reading
            .as_ref()
            .map(|measure| times(measure, factor))
            .map_err(Clone::clone)
    });
}

/// Multiplies the measure by `factor`, element by element.
fn times(measure: &Measure, factor: f64) -> Measure {
    match measure {
        Measure::Clock(clock) => Measure::Clock(clock.scaled(factor)),
        Measure::Clocks(clocks) => Measure::Clocks(clocks.iter().map(|clock| clock.scaled(factor)).collect()),
        Measure::Busy(busy) => Measure::Busy(busy.iter().map(|busy| busy.scaled(factor)).collect()),
        Measure::Joules(joules) => Measure::Joules(joules * factor),
        Measure::Celsius(celsius) => Measure::Celsius(celsius * factor),
    }
}

fn fail(readings: &mut Readings, meter: MeterId, why: &str) {
    change(readings, meter, |_| Err(why.into()));
}

/// Returns the outcome with another split of its time; the parts still add up to the response time.
fn replace(outcome: JobOutcome, split: Split) -> JobOutcome {
    JobOutcome {
        finished: outcome.released + split.response(),
        split,
        ..outcome
    }
}
