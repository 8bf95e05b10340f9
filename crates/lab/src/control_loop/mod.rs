//! The flagship comparison: a loop of 1 kHz beside hogs and a busy disk, and the ways to keep it in time.
//!
//! **Question.** A loop wakes in every period, computes, and is to be done before the next period. How many of its jobs
//! are late, and what do the others get done, in each way that Linux and this project offer?
//!
//! | way         | the loop                                     | hogs and the disk's writer              |
//! |-------------|----------------------------------------------|-----------------------------------------|
//! | `alone`     | does not run                                 | all cores                               |
//! | `ordinary`  | as all other threads                         | all cores                               |
//! | `fifo`      | `SCHED_FIFO`, pinned to the measured core    | all cores                               |
//! | `by-hand`   | likewise                                     | all cores but the measured (`taskset`)  |
//! | `deadline`  | `SCHED_DEADLINE`, on any core                | all cores                               |
//! | `exclusive` | `SCHED_FIFO`, the measured core is exclusive | all cores but the measured              |
//! | `lent`      | likewise, lent between jobs                  | all cores but the measured, and leases  |
//!
//! The measured core is an isolated one, else the last.
//!
//! **Method.** Every repetition runs each way once for as long, in an order that rotates. The loop is the same code in
//! all ways: it sleeps until an instant of one clock (`clock_nanosleep`), then computes. So releases do not depend on
//! the way. Under `SCHED_DEADLINE` the kernel's own periods (`sched_yield`) would begin whenever it likes, and a late
//! wake-up could not be seen. A job that could not even begin before its deadline is dropped. A late job is *explained*
//! by a gap of the probe on that core at least as long as its overrun (ways that pin the loop). The probe runs in
//! all ways: how late it wakes is the control of all latencies.

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

use crate::beside::{Begin, Beside, BesideError, Counted, Kept, Place, sleep};

pub use self::report::{LoopReport, Run, Tally, WaySummary};

/// The shortest period: below it a loop measures little but its own wake-ups.
const PERIOD_MIN: Nanos = Nanos::from_micros(100);
/// The longest period.
const PERIOD_MAX: Nanos = Nanos::from_secs(1);
/// The largest part of a period that a job may compute: the rest is for waking up, and for the kernel's own bound.
const COMPUTE_MAX: f64 = 0.9;
/// Jobs of one way in all repetitions, each of which is kept until the end.
const JOBS_MAX: u64 = 2_000_000;

/// What runs, and beside what.
#[derive(Clone, Debug, Serialize)]
pub struct LoopPlan {
    /// Between two jobs, 100 us to 1 s; each is due before the next.
    pub period: Nanos,
    /// What one job computes, alone: above 0 and at most 90 % of the period.
    pub compute: Nanos,
    /// What `SCHED_DEADLINE` reserves in each period: at least `compute`, at most the period.
    pub reserved: Nanos,
    /// How long each run lasts.
    pub lasts: Nanos,
    /// Threads that never rest, on each core.
    pub hogs_per_core: u32,
    /// Whether the disk is kept busy.
    pub busy_disk: bool,
    /// Runs of each way.
    pub repetitions: u32,
    /// The ways, in the order of the first repetition.
    pub ways: Vec<Way>,
}

/// One way to run the loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Way {
    /// No loop.
    Alone,
    /// As all other threads.
    Ordinary,
    /// Real-time, pinned.
    Fifo,
    /// Real-time, pinned to a core that the load was kept off by hand.
    ByHand,
    /// A reservation.
    Deadline,
    /// On an exclusive core.
    Exclusive,
    /// On an exclusive core that is lent between jobs.
    Lent,
}

impl Way {
    /// All of them.
    pub const ALL: [Way; 7] = [
        Way::Alone,
        Way::Ordinary,
        Way::Fifo,
        Way::ByHand,
        Way::Deadline,
        Way::Exclusive,
        Way::Lent,
    ];

    /// Its name in tables.
    pub const fn name(self) -> &'static str {
        match self {
            Way::Alone => "alone",
            Way::Ordinary => "ordinary",
            Way::Fifo => "fifo",
            Way::ByHand => "by-hand",
            Way::Deadline => "deadline",
            Way::Exclusive => "exclusive",
            Way::Lent => "lent",
        }
    }

    /// Whether the loop stays on the probe's core, so that the probe speaks for it.
    const fn is_pinned(self) -> bool {
        matches!(self, Way::Fifo | Way::ByHand | Way::Exclusive | Way::Lent)
    }
}

impl LoopPlan {
    /// Jobs of one run.
    pub fn jobs(&self) -> u64 {
        self.lasts.0 / self.period.0.max(1)
    }

    /// Whether the plan can be carried out at all.
    ///
    /// # Errors
    /// [`Refusal`] that names the figure that is out of range.
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
                format!("give --seconds and --repetitions that make between 1 and {JOBS_MAX} jobs"),
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

/// Runs the comparison; `say` hears of each run before it begins, and says whether to go on.
///
/// # Errors
/// [`BesideError`]; the machine has been put back but for what the error names. A way that the kernel refuses is no
/// error: its runs say so.
pub fn compare(plan: &LoopPlan, say: &mut dyn FnMut(&str) -> ControlFlow<()>) -> Result<LoopReport, BesideError> {
    plan.check()?;
    let beside = Beside::start(Place::find(&CoreChoice::Any)?, plan.hogs_per_core, plan.busy_disk)?;
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
    beside: &'b Beside,
}

/// One job as it was seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Seen {
    released: Time,
    woken: Time,
    /// None where it was dropped.
    finished: Option<Time>,
}

/// What came of one run of the loop.
#[derive(Default)]
struct Performed {
    jobs: Vec<Seen>,
    cpu: Nanos,
    lending: Account,
    /// What went wrong with that.
    trouble: Option<String>,
}

impl Bench<'_> {
    /// One run, or a run that says what was refused.
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
        // An exclusive core leaves the threads of this process to this process, and the load is some of them.
        let off_the_core = matches!(way, Way::ByHand | Way::Exclusive);
        let _confined = off_the_core.then(|| self.confine()).transpose()?;
        let neighbours = Neighbours {
            lend: way == Way::Lent,
            ..Neighbours::default()
        };
        let kept = matches!(way, Way::Exclusive | Way::Lent).then(|| self.beside.keep(&neighbours, told));
        let kept = kept.transpose()?;
        let tenancy = kept.as_ref().and_then(Kept::tenancy);
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
            let jobs = vec![Seen::default(); self.plan.jobs() as usize];
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

    fn told(&self, way: Way, performed: Performed, counted: Counted, kept: Option<Kept>) -> Run {
        let explained = |job: &Seen, overrun: Nanos| {
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

    /// The loop, on the calling thread, into `jobs`: nothing is allocated in it.
    fn looping(&self, mut jobs: Vec<Seen>, mut tenancy: Option<Tenancy>, start: Time) -> Performed {
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
        // Until the window closes, as between any two jobs.
        sleep(&mut tenancy, start + self.plan.lasts);
        let cpu = thread::thread_cpu_time().saturating_sub(before);
        let accountant = tenancy.as_ref().map(Tenancy::accountant);
        Performed {
            jobs,
            cpu,
            lending: accountant.as_ref().map(|it| it.account()).unwrap_or_default(),
            trouble: accountant.and_then(|it| it.trouble()),
        }
    }

    /// Keeps the load off the measured core, as `taskset` would, until this is dropped.
    fn confine(&self) -> Result<Confined<'_>, Refusal> {
        let Place { cores, core, .. } = &self.beside.place;
        let others: Vec<CoreId> = cores.iter().copied().filter(|other| other != core).collect();
        if others.is_empty() {
            return Err(Refusal {
                what: "keeping others off a core".into(),
                why: "there is one core only".into(),
                remedy: "leave this way out, or allow this process more cores".into(),
            });
        }
        let confined = Confined(self.beside);
        confined.to(&others).map(|()| confined)
    }
}

/// The load, while it is kept off a core.
struct Confined<'b>(&'b Beside);

impl Confined<'_> {
    fn to(&self, cores: &[CoreId]) -> Result<(), Refusal> {
        let mut threads = self.0.load.threads();
        threads.try_for_each(|thread| thread::pin_thread(thread, cores))
    }
}

impl Drop for Confined<'_> {
    fn drop(&mut self) {
        // Its threads end with this process: nothing stays confined.
        let _ = self.to(&self.0.place.cores);
    }
}

/// In `sched_attr.sched_policy` (sched(7)).
const SCHED_DEADLINE: u32 = 6;

/// Puts the calling thread under `SCHED_DEADLINE`: `runtime` in each `period`, due at its end (sched_setattr(2),
/// Documentation/scheduler/sched-deadline.rst). The thread must be allowed all cores of its root domain.
///
/// # Errors
/// [`Refusal`] where the kernel has not as much to give, does not allow it to this user, or to a thread of few cores.
fn reserve(runtime: Nanos, period: Nanos) -> Result<(), Refusal> {
    // SAFETY: all of it is plain numbers, for which zero is a value.
    let mut attributes: libc::sched_attr = unsafe { std::mem::zeroed() };
    attributes.size = size_of_val(&attributes) as u32;
    attributes.sched_policy = SCHED_DEADLINE;
    attributes.sched_runtime = runtime.0;
    attributes.sched_deadline = period.0;
    attributes.sched_period = period.0;
    // SAFETY: `attributes` is valid, has the size that it says, and is only read; thread 0 is the calling one.
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
