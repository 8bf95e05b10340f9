//! What a fitted machine predicts for the paper's evaluation, in the steady state and without any controller: at which
//! clock the job ends exactly at its deadline, with and without interference.
//!
//! **What for.** The figures leave open what the members of the ensemble differ in. How far a prediction moves from one
//! member to the next says which of the open questions decides it.
//!
//! **Method.** The evaluation's job is the microbenchmark's, made as many times longer as brings it to its deadline at
//! [`ALONE`] with nothing interfering: the paper does not state its length, but its job is too fast at 1000 MHz (QoD1000
//! misses the set point there at full QoD). Interferers are as long as the job, 50 to 150 ms apart (section 5.1). The
//! response falls with the clock, so the clock lies between two steps; between them it is interpolated. `DVFSonly` at rest
//! holds QoD 1 and turns the clock there; MIMO may lower QoD, at most to 0.5.

use punctual_sim::MachineModel;
use punctual_units::{Hertz, Nanos};
use serde::Serialize;

use super::microbenchmark::{Bench, Condition, Interferer, MeasureError, Response, Work};
use super::parameter::Candidate;

/// Where the job alone takes its whole deadline.
pub const ALONE: Hertz = Hertz::from_mhz(900);
/// Halvings when the length of the job is looked for: 2^-14 of its range is less than what one sensor report moves.
const HALVINGS: u32 = 14;
/// The longest job looked for, as a multiple of the microbenchmark's.
const LONGEST: f64 = 10.0;

/// One situation of the evaluation.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Situation {
    /// Its name in tables.
    pub name: &'static str,
    /// Interfering cores.
    pub interferers: u32,
    /// The data share of the interferers' transactions.
    pub data_share: f64,
    /// The sensors' rate.
    pub qod: f64,
}

/// What comes about.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Prediction {
    /// The situation.
    pub situation: Situation,
    /// The clock at which the job takes its deadline, in MHz; none where the highest is too slow.
    pub clock_mhz: Option<f64>,
    /// That clock against the one without interference, minus 1.
    pub rise: Option<f64>,
    /// The data response ratio at that clock.
    pub drr: Option<f64>,
}

/// The situations that the paper's claims are about.
pub const SITUATIONS: [Situation; 6] = {
    const fn situation(name: &'static str, interferers: u32, data_share: f64, qod: f64) -> Situation {
        Situation {
            name,
            interferers,
            data_share,
            qod,
        }
    }
    [
        situation("alone, QoD 1", 0, 0.5, 1.0),
        situation("3 x C90-D10, QoD 1", 3, 0.1, 1.0),
        situation("3 x C50-D50, QoD 1", 3, 0.5, 1.0),
        situation("3 x C50-D50, QoD 0.5", 3, 0.5, 0.5),
        situation("3 x C10-D90, QoD 1", 3, 0.9, 1.0),
        situation("3 x C10-D90, QoD 0.5", 3, 0.9, 0.5),
    ]
};

/// Every situation's prediction on this machine.
///
/// # Errors
/// [`MeasureError`] where the machine has too few cores, or no step at [`ALONE`].
pub fn predictions(bench: &Bench, candidate: &Candidate) -> Result<Vec<Prediction>, MeasureError> {
    let rest = Rest::new(bench, candidate)?;
    let mut found: Vec<Prediction> = Vec::new();
    for situation in SITUATIONS {
        let at_deadline = rest.at_deadline(situation)?;
        let clock_mhz = at_deadline.map(|(clock, _)| clock);
        let alone = found.first().map_or(clock_mhz, |alone| alone.clock_mhz);
        found.push(Prediction {
            situation,
            clock_mhz,
            rise: clock_mhz.zip(alone).map(|(clock, alone)| clock / alone - 1.0),
            drr: at_deadline.map(|(_, drr)| drr),
        });
    }
    Ok(found)
}

/// A machine with the evaluation's job, at rest: nobody turns a knob.
#[derive(Clone, Copy, Debug)]
pub struct Rest<'a> {
    bench: &'a Bench,
    machine: &'a MachineModel,
    job: Work,
}

impl<'a> Rest<'a> {
    /// The job is the one that takes its deadline alone at [`ALONE`].
    ///
    /// # Errors
    /// [`MeasureError`] where the machine has no such step.
    pub fn new(bench: &'a Bench, candidate: &'a Candidate) -> Result<Rest<'a>, MeasureError> {
        let machine = &candidate.machine;
        let alone = Condition {
            clock: ALONE,
            interferers: 0,
            qod: 1.0,
        };
        let (mut short, mut long) = (0.0, LONGEST);
        for _ in 0..HALVINGS {
            let middle = (short + long) / 2.0;
            let job = candidate.job.scaled(middle);
            let response = bench.measure(machine, job, interferer(job, 0.0), alone)?;
            if response.response() > 1.0 {
                long = middle
            } else {
                short = middle
            }
        }
        let job = candidate.job.scaled(short);
        Ok(Rest { bench, machine, job })
    }

    /// The job's response at this clock.
    ///
    /// # Errors
    /// [`MeasureError`] where the machine has too few cores, or no such step.
    pub fn at(&self, clock: Hertz, situation: Situation) -> Result<Response, MeasureError> {
        let condition = Condition {
            clock,
            interferers: situation.interferers,
            qod: situation.qod,
        };
        let beside = interferer(self.job, situation.data_share);
        self.bench.measure(self.machine, self.job, beside, condition)
    }

    /// The clock in MHz at which the response is the deadline, and drr there; none where the highest is too slow.
    ///
    /// # Errors
    /// [`MeasureError`] where the machine has too few cores.
    pub fn at_deadline(&self, situation: Situation) -> Result<Option<(f64, f64)>, MeasureError> {
        let steps = &self.machine.steps;
        let at = |step: usize| self.at(steps[step].clock, situation);
        let mhz = |step: usize| steps[step].clock.as_mhz_f64();
        // The first step that is fast enough: all below it are too slow.
        let (mut slow, mut fast) = (0, steps.len());
        while slow < fast {
            let middle = (slow + fast) / 2;
            if at(middle)?.response() > 1.0 {
                slow = middle + 1
            } else {
                fast = middle
            }
        }
        if fast == steps.len() {
            return Ok(None);
        }
        let above = at(fast)?;
        let Some(below) = fast.checked_sub(1) else {
            return Ok(Some((mhz(fast), above.drr())));
        };
        let before = at(below)?;
        if !before.response().is_finite() {
            return Ok(Some((mhz(fast), above.drr())));
        }
        let part = (before.response() - 1.0) / (before.response() - above.response());
        let between = |a: f64, b: f64| a + part * (b - a);
        Ok(Some((
            between(mhz(below), mhz(fast)),
            between(before.drr(), above.drr()),
        )))
    }
}

fn interferer(job: Work, data_share: f64) -> Interferer {
    Interferer {
        work: Work::of(job.nominal_ms(), data_share),
        pause_min: Nanos::from_millis(50),
        pause_max: Nanos::from_millis(150),
    }
}
