//! The clock while no real-time job is under way: the least that installs sensor updates as fast as they are admitted.
//!
//! **Problem.** Between jobs the clock would stay where the last job needed it. Updates that come then need less, and
//! power grows faster than the clock.
//!
//! **Method.** Each release reports how many updates wait for their installation. Two releases in a row with more than
//! arrive within [`DRAINED`] raise the clock between jobs by a step, a far longer queue at once by several; after some
//! releases with fewer it falls by a step. A step down that failed doubles these, up to [`PATIENCE_MAX`]; one that held
//! halves them. So no cost of an update has to be known.
//!
//! **Bounds.** The release restores the clock that the law asked for; what is left to install then, jobs install at
//! that clock. The clock stays at the law's where a job is under way or waits, after a fault, where a task is beyond
//! its goal or fewer data are fresh than asked for. A release that was not reported, or later than [`REACTION_MAX`] of
//! its deadline (the time of a change included), bars the lower clock for [`BARRED`] releases, the next such for twice
//! as many, up to [`BARRED_MAX`]. After [`BARRED_MAX`] timely releases in a row it is [`BARRED`] again. Background work
//! on these cores gets the lower clock, too. All constants are chosen by hand.

use punctual_platform::ClockOffer;
use punctual_units::{Hertz, Nanos, TaskId, Time};
use punctual_workload::JobOutcome;

use crate::event::Vitals;
use crate::goals::TASKS_MAX;

/// Updates that arrive within this time may wait at a release.
const DRAINED: Nanos = Nanos::from_millis(1);
/// Updates that may wait at a release, however few arrive.
const FEW: f64 = 4.0;
/// Factor above the updates that may wait from which the clock rises by [`FAR`] steps, at once.
const FAR_BEYOND: f64 = 8.0;
const FAR: usize = 3;
/// Releases after which the clock falls by a step, at first and at most.
const PATIENCE: u32 = 2;
const PATIENCE_MAX: u32 = 512;
/// Releases for which the clock stays after one that was not reported in time, at first and at most.
const BARRED: u32 = 100;
const BARRED_MAX: u32 = 6400;
/// Shortest time over which arriving updates are counted.
const COUNTED: Nanos = Nanos::from_millis(10);
/// Largest part of the deadline that a job may begin at the lower clock.
const REACTION_MAX: f64 = 0.02;

/// A job of a real-time task was released. On Linux it is reported when the job begins, or when a decision finds that
/// it waits.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct JobRelease {
    pub task: TaskId,
    /// Counts up from 0 within the task.
    pub job: u64,
    /// When the job was released.
    pub released: Time,
    /// Deadline, relative to the release.
    pub deadline: Nanos,
    /// Number of admitted updates that wait for their installation.
    pub pending: u64,
}

/// The clock between jobs, and the jobs that are under way.
#[derive(Clone, Debug, Default)]
pub(crate) struct Idle {
    steps: Vec<Hertz>,
    /// Time until a change of the clock is in force.
    change: Nanos,
    /// Index of the clock between jobs.
    step: usize,
    /// By task: number of the latest job that was released.
    latest: Vec<Option<u64>>,
    /// Tasks with a job under way, a bit each.
    under_way: u64,
    /// Releases in a row that found too much waiting, and little.
    pressed: u32,
    calm: u32,
    patience: u32,
    /// Whether the last move was a step down.
    lowered: bool,
    /// Whether the clock between jobs was below the law's.
    below: bool,
    /// Releases for which the clock stays at the law's, and for how many after the next one that is not reported in
    /// time.
    barred: u32,
    next_bar: u32,
    /// Releases in a row that were reported in time while the lower clock was in force.
    timely: u32,
    /// Admitted updates per second, and when that was last counted.
    rate: f64,
    counted: (Time, u64),
    /// The law's clock, while the one between jobs is in force.
    law: Option<Hertz>,
}

impl Idle {
    /// Begins at the top clock.
    pub(crate) fn new(offer: &ClockOffer, start: Time) -> Idle {
        Idle {
            step: offer.steps.len() - 1,
            steps: offer.steps.clone(),
            change: offer.change,
            latest: Vec::with_capacity(TASKS_MAX),
            patience: PATIENCE,
            next_bar: BARRED,
            counted: (start, 0),
            ..Idle::default()
        }
    }

    /// The law's clock, while a lower one is in force.
    pub(crate) fn law_clock(&self) -> Option<Hertz> {
        self.law
    }

    /// Takes a release at `now`. Returns the law's clock, which is to be in force again.
    pub(crate) fn begun(&mut self, begun: &JobRelease, now: Time) -> Option<Hertz> {
        self.barred = self.barred.saturating_sub(1);
        let index = begun.task.index();
        if index >= TASKS_MAX {
            self.bar();
            return self.law.take();
        }
        if self.latest.len() <= index {
            self.latest.resize(index + 1, None);
        }
        self.latest[index] = Some(begun.job);
        self.under_way |= 1 << index;
        let reaction = now.since(begun.released) + self.change;
        let law = self.law.take()?;
        if reaction > begun.deadline.scaled(REACTION_MAX) {
            self.bar();
        } else {
            self.timely += 1;
            if self.timely >= BARRED_MAX {
                (self.next_bar, self.timely) = (BARRED, 0);
            }
        }
        self.drained(begun.pending as f64);
        Some(law)
    }

    /// Leaves the clock at the law's for a while.
    fn bar(&mut self) {
        (self.barred, self.timely) = (self.next_bar, 0);
        self.next_bar = (self.next_bar * 2).min(BARRED_MAX);
    }

    /// Moves the clock between jobs by what waits at its end.
    fn drained(&mut self, pending: f64) {
        let allowed = FEW + self.rate * DRAINED.as_secs_f64();
        if pending <= allowed {
            (self.pressed, self.calm) = (0, self.calm + 1);
            if self.calm >= self.patience {
                if self.lowered {
                    self.patience = (self.patience / 2).max(PATIENCE);
                }
                (self.calm, self.step, self.lowered) = (0, self.step.saturating_sub(1), true);
            }
            return;
        }
        if !self.below {
            // No step above would have been in force.
            (self.pressed, self.calm) = (0, 0);
            return;
        }
        self.pressed += 1;
        let far = pending > FAR_BEYOND * allowed;
        if self.pressed >= 2 || far {
            // Just after a step down, the step above is known to do.
            self.raise(if far && self.calm > 0 { FAR } else { 1 });
        }
    }

    fn raise(&mut self, steps: usize) {
        (self.pressed, self.calm) = (0, 0);
        self.step = (self.step + steps).min(self.steps.len() - 1);
        if std::mem::take(&mut self.lowered) {
            self.patience = (self.patience * 2).min(PATIENCE_MAX);
        }
    }

    /// Takes a complete job.
    pub(crate) fn completed(&mut self, job: &JobOutcome) {
        if job.deadline.is_none() {
            return;
        }
        let index = job.task.index();
        match self.latest.get(index).copied().flatten() {
            Some(latest) if latest > job.job => {}
            Some(latest) if latest == job.job => self.under_way &= !(1 << index),
            _ => self.bar(),
        }
    }

    /// Takes the readings of a decision, in which at least `least` of the data are to be fresh.
    pub(crate) fn count(&mut self, vitals: &Vitals, least: f64, now: Time) {
        let (at, admitted) = self.counted;
        let elapsed = now.since(at);
        if elapsed >= COUNTED {
            self.rate = vitals.updates_admitted.saturating_sub(admitted) as f64 / elapsed.as_secs_f64();
            self.counted = (now, vitals.updates_admitted);
        }
        if vitals.fresh.get() < least {
            self.barred = self.barred.max(1);
        }
    }

    /// The clock from now on, where the law asks for `law` and no job is under way; `None`: the law's.
    pub(crate) fn between(&mut self, law: Hertz) -> Option<Hertz> {
        let clock = self.steps[self.step];
        let rests = self.under_way == 0 && self.barred == 0 && !self.latest.is_empty();
        self.law = rests.then_some(law);
        self.below = clock < law;
        // At the law's clock or above, the next release still says whether less would do.
        self.law.map(|law| clock.min(law))
    }

    /// The law does not run: its clock is not to be restored.
    pub(crate) fn stop(&mut self) {
        self.law = None;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use punctual_platform::{Provenance, Readings};
    use punctual_units::Share;
    use punctual_workload::Split;

    use super::*;

    const PERIOD: Nanos = Nanos::from_millis(100);
    const DEADLINE: Nanos = Nanos::from_millis(50);
    const TOP: u64 = 2000;

    fn idle() -> Idle {
        let steps = (1..=10).map(|step| Hertz::from_mhz(200 * step)).collect();
        Idle::new(&ClockOffer::new(steps, Provenance::Simulated), Time::ZERO)
    }

    fn vitals(at: Time, admitted: u64) -> Vitals {
        Vitals {
            machine: Readings { at, meters: Vec::new() },
            fresh: Share::ONE,
            updates_offered: admitted,
            updates_admitted: admitted,
            updates_for_minimum: 0,
            updates_least: Share::ZERO,
        }
    }

    fn outcome(job: u64, released: Time) -> JobOutcome {
        JobOutcome {
            task: TaskId(0),
            job,
            released,
            deadline: Some(DEADLINE),
            finished: released + DEADLINE,
            split: Split::default(),
        }
    }

    fn begun(job: u64, released: Time, pending: u64) -> JobRelease {
        JobRelease {
            task: TaskId(0),
            job,
            released,
            deadline: DEADLINE,
            pending,
        }
    }

    proptest! {
        /// A queue of updates, of which the top clock installs `most` between two jobs and a lower one fewer, in
        /// proportion: the clock ends near the least that installs all, and few releases find more than may wait.
        #[test]
        fn the_clock_between_jobs_is_the_least_that_drains(most in 500u64..5000, load in 0.02..0.95f64) {
            let mut idle = idle();
            let arrive = (most as f64 * load) as u64;
            let (mut pending, mut waited, mut mhz) = (0, 0, 0);
            for job in 0..2000 {
                let released = Time::ZERO + PERIOD * (job + 1);
                let law = idle.begun(&begun(job, released, pending), released);
                prop_assert_eq!(law.is_some(), job > 0, "the law's clock is back at each release");
                prop_assert_eq!(idle.law_clock(), None);
                idle.completed(&outcome(job, released));
                // The job installs what waited when it began.
                idle.count(&vitals(released + DEADLINE, arrive * (job + 1)), 0.5, released + DEADLINE);
                mhz = idle.between(Hertz::from_mhz(TOP)).unwrap().0 / 1_000_000;
                pending = arrive.saturating_sub(most * mhz / TOP);
                waited += u64::from(pending as f64 > FEW + 1.0 + arrive as f64 / 100.0 && job > 500);
            }
            let least = (load * TOP as f64).max(200.0);
            prop_assert!(mhz as f64 >= least - 210.0 && mhz as f64 <= least + 450.0, "{} of {}", mhz, least);
            prop_assert!(waited < 75, "{} of 1500 releases found updates", waited);
        }
    }

    #[test]
    fn the_law_s_clock_stays_while_any_job_is_under_way() {
        let (mut idle, law) = (idle(), Hertz::from_mhz(1000));
        assert_eq!(idle.between(law), None, "no release was ever reported");
        idle.begun(&begun(0, Time(0), 0), Time(0));
        assert_eq!(idle.between(law), None);
        // The next job waits behind it.
        idle.begun(&begun(1, Time(0) + PERIOD, 0), Time(0) + PERIOD);
        idle.completed(&outcome(0, Time(0)));
        assert_eq!(idle.between(law), None);
        idle.completed(&outcome(1, Time(0) + PERIOD));
        assert_eq!(idle.between(law), Some(law));
    }

    /// Runs `releases` jobs from number `first` on, whose releases find `pending` updates; returns the last clock.
    fn releases(idle: &mut Idle, first: u64, releases: u64, law: Hertz, pending: impl Fn(u64, u64) -> u64) -> u64 {
        let mut mhz = idle.between(law).map_or(0, |clock| clock.0 / 1_000_000);
        for job in first..first + releases {
            let released = Time::ZERO + PERIOD * (job + 1);
            idle.begun(&begun(job, released, pending(job, mhz)), released);
            idle.completed(&outcome(job, released));
            mhz = idle.between(law).unwrap().0 / 1_000_000;
        }
        mhz
    }

    /// Load that grew, or that the law's own clock does not hold, says nothing about a step down.
    #[test]
    fn the_clock_between_jobs_falls_again_soon_after_the_load_does() {
        let (mut idle, law) = (idle(), Hertz::from_mhz(TOP));
        let over = |least: u64| move |_, mhz: u64| if mhz < least { 20 } else { 0 };
        assert!(releases(&mut idle, 0, 100, law, over(400)) <= 400);
        // Too few for one step down.
        assert_eq!(releases(&mut idle, 100, 60, law, over(TOP)), TOP);
        let clock = releases(&mut idle, 160, 200, law, over(400));
        assert!(clock <= 400, "{clock} MHz, {} releases a step", idle.patience);

        let (step, patience) = (idle.step, idle.patience);
        let law = Hertz::from_mhz(200);
        idle.step = 0;
        assert_eq!(releases(&mut idle, 360, 50, law, over(TOP)), 200);
        assert_eq!((idle.step, idle.patience), (0, patience), "from {step}");
    }

    /// Each late report may be a late job: they get rarer than any goal asks for.
    #[test]
    fn each_late_report_bars_the_lower_clock_for_longer() {
        let (mut idle, law) = (idle(), Hertz::from_mhz(1000));
        let mut late = 0;
        for job in 0..20_000 {
            let released = Time::ZERO + PERIOD * (job + 1);
            let slow = idle.law_clock().is_some();
            late += u64::from(slow);
            let delay = if slow { Nanos::from_millis(2) } else { Nanos::ZERO };
            idle.begun(&begun(job, released, 0), released + delay);
            idle.completed(&outcome(job, released));
            idle.between(law);
        }
        assert!(late <= 10, "{late} late reports");
        let in_time = |idle: &mut Idle, first: u64| {
            for job in first..first + 2 * u64::from(BARRED_MAX) {
                let released = Time::ZERO + PERIOD * (job + 1);
                idle.begun(&begun(job, released, 0), released);
                idle.completed(&outcome(job, released));
                idle.between(law);
            }
        };
        in_time(&mut idle, 20_000);
        assert_eq!(idle.next_bar, BARRED);
    }

    #[test]
    fn a_release_that_comes_late_or_never_bars_the_lower_clock() {
        let law = Hertz::from_mhz(1000);
        let rested = || {
            let mut idle = idle();
            idle.begun(&begun(0, Time(0), 0), Time(0));
            idle.completed(&outcome(0, Time(0)));
            assert!(idle.between(law).is_some());
            idle
        };
        let mut unreported = rested();
        unreported.completed(&outcome(1, Time(0) + PERIOD));
        assert_eq!(unreported.between(law), None);

        let (mut late, at) = (rested(), Time(0) + PERIOD);
        assert_eq!(late.begun(&begun(1, at, 0), at + Nanos::from_millis(2)), Some(law));
        late.completed(&outcome(1, at));
        assert_eq!(late.between(law), None);

        let mut stale = rested();
        let vitals = Vitals {
            fresh: Share::clamped(0.4),
            ..vitals(at, 0)
        };
        stale.count(&vitals, 0.5, at);
        assert_eq!(stale.between(law), None);
    }
}
