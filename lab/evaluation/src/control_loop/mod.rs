//! Comparison of methods that keep a 1 kHz loop in time beside a CPU-bound background load and a busy disk.
//!
//! **Question.** A loop wakes in every period, computes, and must be done before the next period. For each method
//! (*way*) that Linux and this project offer: how many jobs are late, and how much work does the background load get
//! done?
//!
//! | way         | the loop                                     | background load (CPU-bound, disk)       |
//! |-------------|----------------------------------------------|-----------------------------------------|
//! | `alone`     | does not run                                 | all cores                               |
//! | `ordinary`  | like all other threads                       | all cores                               |
//! | `fifo`      | `SCHED_FIFO`, pinned to the measured core    | all cores                               |
//! | `by-hand`   | likewise                                     | all cores but the measured (`taskset`)  |
//! | `deadline`  | `SCHED_DEADLINE`, on any core                | all cores                               |
//! | `exclusive` | `SCHED_FIFO`, the measured core is exclusive | all cores but the measured              |
//! | `lent`      | likewise, lent between jobs                  | all cores but the measured, and leases  |
//!
//! The measured core is an isolated core if there is one, else the last core.
//!
//! **Method.** Every repetition runs each way once, for equally long, in an order that rotates. The loop is the same
//! code in all ways: it sleeps until an instant of one clock (`clock_nanosleep`), then computes. So releases do not
//! depend on the way. Under `SCHED_DEADLINE` the kernel's own periods (`sched_yield`) would begin at instants that the
//! kernel chooses, which would hide late wake-ups. A job that could not even begin before its deadline is dropped. A
//! late job is *explained* by a gap of the probe on that core at least as long as its overrun (ways that pin the loop).
//! The probe runs in all ways: how late it wakes is the control of all latencies.

mod report;

use std::ops::ControlFlow;

use punctual_os::LinuxOs;
use punctual_platform::linux::emulated::EmulatedClock;
use punctual_platform::linux::probe::GapProbe;
use punctual_platform::linux::thread;
use punctual_platform::{CoreChoice, Neighbours, Refusal};
use punctual_runtime::linux::TASK_PRIORITY;
use punctual_runtime::linux::tenancy::{Account, Observer, Tenancy, occupy};
use punctual_units::{Clock, CoreId, Nanos, Time};
use serde::Serialize;

use crate::beside::{Begin, BesideError, Effort, LoadedMachine, Place, ReservedCore, sleep};

pub use self::report::{JobCounts, LoopReport, Run, WaySummary};

/// The shortest period: with a shorter one a loop measures little but its own wake-ups.
const PERIOD_MIN: Nanos = Nanos::from_micros(100);
const PERIOD_MAX: Nanos = Nanos::from_secs(1);
/// The largest share of a period that a job may compute: the rest is for waking up, and for the kernel's own bound.
const COMPUTE_MAX: f64 = 0.9;
/// Limit of the jobs of one way in all repetitions; each job is kept in memory until the end.
const JOBS_MAX: u64 = 2_000_000;

/// Configuration of a comparison: the loop, its ways and the background load.
#[derive(Clone, Debug, Serialize)]
pub struct LoopPlan {
    /// Period of the loop, 100 us to 1 s; each job is due before the next.
    pub period: Nanos,
    /// Computation of one job when it runs alone: above 0 and at most 90 % of the period.
    pub compute: Nanos,
    /// CPU time that `SCHED_DEADLINE` reserves in each period: at least `compute`, at most the period.
    pub reserved: Nanos,
    /// Duration of each run.
    pub lasts: Nanos,
    /// Number of CPU-bound background threads for each core.
    pub hogs_per_core: u32,
    /// Whether the disk is kept busy.
    pub busy_disk: bool,
    /// Number of runs of each way.
    pub repetitions: u32,
    /// The ways, in the order in which the first repetition runs them.
    pub ways: Vec<Way>,
}

punctual_units::named! {
    /// A method of running the loop; the table above has the details.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
    #[serde(rename_all = "kebab-case")]
    pub enum Way by name {
        /// The load runs without the loop, as the baseline of its work.
        Alone = "alone",
        /// Scheduled like all other threads.
        Ordinary = "ordinary",
        /// `SCHED_FIFO`, pinned to the measured core.
        Fifo = "fifo",
        /// `SCHED_FIFO`, pinned to a core from which the load is excluded by its affinity.
        ByHand = "by-hand",
        /// `SCHED_DEADLINE` with a reservation, on any core.
        Deadline = "deadline",
        /// On an exclusive core.
        Exclusive = "exclusive",
        /// On an exclusive core that is lent between jobs.
        Lent = "lent",
    }
}

impl Way {
    /// Whether the loop stays on the probe's core, so that the probe's gaps explain its late jobs.
    const fn is_pinned(self) -> bool {
        matches!(self, Way::Fifo | Way::ByHand | Way::Exclusive | Way::Lent)
    }
}

impl LoopPlan {
    /// Number of jobs of one run.
    pub fn jobs(&self) -> u64 {
        self.lasts.0 / self.period.0.max(1)
    }

    /// Checks that every figure of the plan is in its range.
    ///
    /// # Errors
    /// [`Refusal`] that names the first figure out of range.
    pub fn check(&self) -> Result<(), Refusal> {
        let LoopPlan {
            period,
            compute,
            reserved,
            ..
        } = *self;
        let most = period.scaled(COMPUTE_MAX);
        let jobs = self.jobs().saturating_mul(u64::from(self.repetitions));
        let wrong = [
            (
                !(PERIOD_MIN..=PERIOD_MAX).contains(&period),
                format!("a period of {period}"),
                "give --period between 100us and 1s".into(),
            ),
            (
                compute == Nanos::ZERO || compute > most,
                format!("{compute} of computation in each {period}"),
                format!("give --compute above 0 and at most {most}"),
            ),
            (
                !(compute..=period).contains(&reserved),
                format!("a reservation of {reserved} for {compute} of computation"),
                "give --reserve at least what --compute takes, and at most the period".into(),
            ),
            (
                !(1..=JOBS_MAX).contains(&jobs),
                format!("{jobs} jobs in each way"),
                format!("give --duration and --repetitions that make between 1 and {JOBS_MAX} jobs"),
            ),
        ];
        let refuse = |(_, why, remedy)| Refusal {
            what: "the loop".into(),
            why,
            remedy,
        };
        wrong
            .into_iter()
            .find(|(is_wrong, ..)| *is_wrong)
            .map_or(Ok(()), |one| Err(refuse(one)))
    }
}

/// Runs the comparison. Calls `say` before each run; it returns whether to go on.
///
/// # Errors
/// [`BesideError`]; the machine has been restored except for what the error names. A way that the kernel refuses is no
/// error: its runs have `refused` set.
pub fn compare(plan: &LoopPlan, say: &mut dyn FnMut(&str) -> ControlFlow<()>) -> Result<LoopReport, BesideError> {
    plan.check()?;
    let beside = LoadedMachine::start(Place::find(&CoreChoice::Any)?, plan.hogs_per_core, plan.busy_disk)?;
    let bench = Bench { plan, beside: &beside };
    let runs = beside.by_turns(&plan.ways, plan.repetitions, Way::name, say, |repetition, way| {
        bench.run(repetition, way)
    })?;
    let (cores, medium) = (beside.place.cores.len(), beside.place.medium.clone());
    Ok(LoopReport::of(
        plan,
        cores,
        medium,
        runs,
        beside.probe().map(GapProbe::summary),
    ))
}

struct Bench<'b> {
    plan: &'b LoopPlan,
    beside: &'b LoadedMachine,
}

/// Instants of one job.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Cycle {
    released: Time,
    woken: Time,
    /// `None`: the job was dropped.
    finished: Option<Time>,
}

/// Measurements of one run of the loop.
#[derive(Default)]
struct RunMeasurements {
    jobs: Vec<Cycle>,
    cpu: Nanos,
    lending: Account,
    /// The first error of lending.
    trouble: Option<String>,
}

impl Bench<'_> {
    /// Performs one run; a refused way gives a run with `refused` set.
    fn run(&self, repetition: u32, way: Way) -> Result<Run, BesideError> {
        let mut told = self.beside.lock_memory();
        let run = match self.perform(way, &mut told) {
            Err(BesideError::Refused(refusal)) => Run::refused(&refusal),
            run => run?,
        };
        Ok(Run {
            repetition,
            way,
            protection: told,
            ..run
        })
    }

    fn perform(&self, way: Way, told: &mut Vec<String>) -> Result<Run, BesideError> {
        // An exclusive core excludes other processes only; the load is part of this process, so it is confined
        // separately.
        let off_the_core = matches!(way, Way::ByHand | Way::Exclusive);
        let _confined = off_the_core.then(|| self.confine()).transpose()?;
        let neighbours = Neighbours {
            lend: way == Way::Lent,
            ..Neighbours::default()
        };
        let kept = matches!(way, Way::Exclusive | Way::Lent).then(|| self.beside.keep(&neighbours, told));
        let kept = kept.transpose()?;
        let tenancy = kept.as_ref().and_then(ReservedCore::tenancy);
        let _observer = Observer::start(tenancy.iter().map(Tenancy::accountant).collect());
        let place = || match (&kept, way) {
            (Some(kept), _) => occupy(&kept.core, TASK_PRIORITY),
            (None, Way::Fifo | Way::ByHand) => {
                thread::pin(self.beside.place.core).and_then(|()| thread::real_time(TASK_PRIORITY))
            }
            (None, Way::Deadline) => reserve(self.plan.reserved, self.plan.period),
            (None, _) => Ok(()),
        };
        let work = |begin: Begin| {
            place()?;
            let jobs = vec![Cycle::default(); self.plan.jobs() as usize];
            Ok(self.looping(jobs, tenancy, begin.at()?))
        };
        let (performed, counted) = self
            .beside
            .perform(self.plan.lasts, (way != Way::Alone).then_some(work))?;
        let performed = performed.unwrap_or_default();
        told.extend(performed.trouble.clone());
        told.push(self.beside.disk_told(&counted));
        Ok(self.told(way, performed, counted, kept))
    }

    fn told(&self, way: Way, performed: RunMeasurements, counted: Effort, kept: Option<ReservedCore>) -> Run {
        let explained = |job: &Cycle, overrun: Nanos| {
            let end = job.finished.unwrap_or(job.woken);
            way.is_pinned() && self.beside.explains(overrun, job.released, end)
        };
        Run {
            used_share: performed.lending.used_share().map(|share| share.get()),
            lent: performed.lending.lent,
            take_back: performed.lending.take_back,
            lending: kept.and_then(|kept| kept.lending).filter(|_| way == Way::Lent),
            loop_cpu: performed.cpu,
            ..Run::of(&performed.jobs, self.plan.period, counted, explained)
        }
    }

    /// Runs the loop on the calling thread and records into `jobs`, allocated beforehand: the loop allocates nothing.
    fn looping(&self, mut jobs: Vec<Cycle>, mut tenancy: Option<Tenancy>, start: Time) -> RunMeasurements {
        let LoopPlan { period, compute, .. } = *self.plan;
        let clock: &EmulatedClock = &self.beside.place.clock;
        let cycles = (compute.as_secs_f64() * clock.clock().0 as f64) as u64;
        let before = thread::thread_cpu_time();
        for (job, number) in jobs.iter_mut().zip(0u64..) {
            job.released = start + period * number;
            sleep(&mut tenancy, job.released);
            job.woken = LinuxOs.now();
            if job.woken < job.released + period {
                clock.compute(cycles);
                job.finished = Some(LinuxOs.now());
            }
        }
        // Sleeps until the window closes, as between any two jobs, so that the core is lent until then.
        sleep(&mut tenancy, start + self.plan.lasts);
        let cpu = thread::thread_cpu_time().saturating_sub(before);
        let accountant = tenancy.as_ref().map(Tenancy::accountant);
        RunMeasurements {
            jobs,
            cpu,
            lending: accountant.as_ref().map(|it| it.account()).unwrap_or_default(),
            trouble: accountant.and_then(|it| it.trouble()),
        }
    }

    /// Keeps the load off the measured core, as `taskset` would, until the result is dropped.
    fn confine(&self) -> Result<LoadConfinement<'_>, Refusal> {
        let Place { cores, core, .. } = &self.beside.place;
        let others: Vec<CoreId> = cores.iter().copied().filter(|other| other != core).collect();
        if others.is_empty() {
            return Err(Refusal {
                what: "keeping others off a core".into(),
                why: "there is one core only".into(),
                remedy: "leave this way out, or allow this process more cores".into(),
            });
        }
        let confined = LoadConfinement(self.beside);
        confined.to(&others).map(|()| confined)
    }
}

/// Guard: while it lives, the load is kept off a core.
struct LoadConfinement<'b>(&'b LoadedMachine);

impl LoadConfinement<'_> {
    fn to(&self, cores: &[CoreId]) -> Result<(), Refusal> {
        let mut threads = self.0.load.threads();
        threads.try_for_each(|thread| thread::pin_thread(thread, cores))
    }
}

impl Drop for LoadConfinement<'_> {
    fn drop(&mut self) {
        // Errors are ignored: the threads of the load end with this process, so nothing stays confined.
        let _ = self.to(&self.0.place.cores);
    }
}

/// Value of `sched_attr.sched_policy` (sched(7)).
const SCHED_DEADLINE: u32 = 6;

/// Puts the calling thread under `SCHED_DEADLINE`: `runtime` in each `period`, due at its end (sched_setattr(2),
/// Documentation/scheduler/sched-deadline.rst). The thread must be allowed all cores of its root domain.
///
/// # Errors
/// [`Refusal`] where the kernel has not enough bandwidth, or denies it to this user or to a thread that may not use all
/// cores.
fn reserve(runtime: Nanos, period: Nanos) -> Result<(), Refusal> {
    // SAFETY: all fields of `sched_attr` are plain integers, for which zero is a value.
    let mut attributes: libc::sched_attr = unsafe { std::mem::zeroed() };
    attributes.size = size_of_val(&attributes) as u32;
    attributes.sched_policy = SCHED_DEADLINE;
    attributes.sched_runtime = runtime.0;
    attributes.sched_deadline = period.0;
    attributes.sched_period = period.0;
    // SAFETY: `attributes` is valid, has the size that it states, and is only read; thread 0 is the calling one.
    if unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &attributes, 0) } == 0 {
        return Ok(());
    }
    let why = std::io::Error::last_os_error();
    Err(Refusal {
        what: format!("SCHED_DEADLINE with {runtime} in each {period}"),
        remedy: match why.raw_os_error() {
            Some(libc::EBUSY) => "ask for less by --reserve, or end what else has reservations",
            Some(libc::EPERM) => {
                "run as root or with CAP_SYS_NICE, and without taskset or a cpuset that leaves out cores"
            }
            _ => "give --reserve below the period",
        }
        .into(),
        why: why.to_string(),
    })
}

#[cfg(test)]
mod tests;
