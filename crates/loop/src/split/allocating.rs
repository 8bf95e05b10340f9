//! The allocator behind the loop's door: values of an event in, knobs of a plan out.

pub use punctual_allocation::CoreJobs;
use punctual_allocation::{
    Allocator, AllocatorSettings, Base, Foresight, PerCore, PeriodicTask, Profile, Programs, RunningJob, SplitError,
};
use punctual_platform::{ClockOffer, KNOBS_MAX, KnobId, Offers, Plan, Value};
use punctual_units::{CoreId, Hertz, TaskId, Time};
use serde::{Deserialize, Serialize};

use crate::document::Mismatch;

/// Cores among which a split is planned at most: two knobs each of the [`KNOBS_MAX`] of a plan, and eight for others.
const SPLIT_CORES_MAX: usize = (KNOBS_MAX - 8) / 2;

/// Inputs of a split.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SplitOptions {
    /// Programs of the tasks; events name programs by their index here.
    pub profiles: Vec<Profile>,
    /// The periodic tasks among those that run them, by which a static split is found.
    pub tasks: Vec<PeriodicTask>,
    /// Resources to hand out, and the policy.
    pub settings: AllocatorSettings,
    /// Split of the start, where [`look_ahead`](Self::look_ahead) has found it; `None`: the loop looks ahead itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first: Option<Base>,
    /// Index of each task of the run, by its id, into `tasks`; `None`: it has no profile. Empty: no task ends early.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub of: Vec<Option<usize>>,
}

impl SplitOptions {
    /// Looks ahead for the tasks of the start, and keeps the split that it finds: loops that are made from these
    /// options do not look again. Takes up to two seconds. Returns its result as a line for the report.
    ///
    /// # Errors
    /// [`Mismatch`] where profiles, tasks and settings do not fit together.
    pub fn look_ahead(&mut self) -> Result<Option<String>, Mismatch> {
        let (_, allocator) = self.allocator()?;
        let forecast = allocator.forecast();
        self.first = forecast.map(|forecast| forecast.base);
        Ok(forecast.map(|forecast| line(forecast, self.of.contains(&None))))
    }

    fn allocator(&self) -> Result<(Programs, Allocator), Mismatch> {
        let AllocatorSettings { cores, .. } = self.settings;
        if cores > SPLIT_CORES_MAX {
            return Err(Mismatch(format!(
                "allocation: a split among {cores} cores; a plan has room for {SPLIT_CORES_MAX}: use a machine with \
                 fewer cores"
            )));
        }
        let programs = Programs::new(&self.profiles, punctual_allocation::Objective::Speed)?;
        let allocator = match self.first {
            None => Allocator::new(&programs, &self.tasks, self.settings)?,
            first => Allocator::starting(&programs, &self.tasks, self.settings, first)?,
        };
        Ok((programs, allocator))
    }
}

impl From<SplitError> for Mismatch {
    fn from(error: SplitError) -> Mismatch {
        Mismatch(format!("allocation: {error}"))
    }
}

/// The result of a look ahead as a line for the report.
fn line(forecast: &Foresight, unforeseen: bool) -> String {
    let seconds = forecast.begun.as_secs_f64();
    let without = ["", ", without work that has no profile"][usize::from(unforeseen)];
    format!("at {seconds:.1} s: {forecast}{without}")
}

/// Which core has which ways and how much bandwidth.
#[derive(Clone, Debug)]
pub(crate) struct Splitting {
    programs: Programs,
    allocator: Allocator,
    cores: usize,
    /// Start of the run, from which the times of tasks count.
    start: Time,
    of: Vec<Option<usize>>,
    /// Whether tasks without a profile run, too.
    unforeseen: bool,
    /// Begin of the look ahead that was reported last.
    reported: Option<Time>,
    /// The clock that profiles are for; `None` where the clock is no knob.
    top: Option<Hertz>,
    /// Whether the machine divides its bandwidth, too.
    has_bandwidth: bool,
}

impl Splitting {
    /// # Errors
    /// [`Mismatch`] where profiles, tasks and settings do not fit together.
    pub(crate) fn new(options: &SplitOptions, offers: &Offers, start: Time) -> Result<Splitting, Mismatch> {
        let (programs, allocator) = options.allocator()?;
        Ok(Splitting {
            programs,
            allocator,
            cores: options.settings.cores,
            start,
            of: options.of.clone(),
            unforeseen: options.of.contains(&None),
            reported: None,
            top: offers.clock().map(ClockOffer::top),
            has_bandwidth: { offers.knobs.iter() }.any(|offer| matches!(offer.knob, KnobId::Bandwidth(_))),
        })
    }

    /// The split in force.
    pub(crate) fn plan(&self) -> Plan {
        let plan = self.allocator.plan();
        let knobs = |(core, (share, ways)): (u32, (&punctual_allocation::Share, &punctual_allocation::WayMask))| {
            let bandwidth = (KnobId::Bandwidth(CoreId(core)), Value::Parts(share.partitions));
            let ways = (KnobId::Ways(CoreId(core)), Value::Ways(ways.bits()));
            [Some(ways), Some(bandwidth).filter(|_| self.has_bandwidth)]
        };
        { (0..).zip(plan.shares.iter().zip(&plan.masks)).flat_map(knobs) }
            .flatten()
            .collect()
    }

    /// Result of a look ahead that was not asked for before, as a line for the report.
    pub(crate) fn forecast(&mut self) -> Option<String> {
        let forecast = self.allocator.forecast();
        let new = forecast.filter(|new| Some(new.begun) != self.reported)?;
        self.reported = Some(new.begun);
        Some(line(new, self.unforeseen))
    }

    /// Time at which `look` has something to do.
    pub(crate) fn due(&self) -> Option<Time> {
        self.allocator.due().map(|due| self.start + due.since(Time::ZERO))
    }

    /// Does a piece of a look ahead, if one is due. Returns whether `decide` takes up its result; `None`: nothing is to
    /// be decided.
    pub(crate) fn look(&mut self, now: Time) -> Option<bool> {
        let now = self.since_start(now);
        self.at_clock_of_look(|allocator, programs| allocator.look(programs, now))
    }

    /// Removes a task of the run that has ended.
    pub(crate) fn ended(&mut self, task: TaskId, now: Time) {
        let own = self.of.get_mut(task.index()).and_then(Option::take);
        // The copies of a task are one there.
        if let Some(own) = own.filter(|own| !self.of.contains(&Some(*own))) {
            self.allocator.end_task(own, self.since_start(now));
        }
    }

    /// Returns another split for the jobs that run now at `clock`, if there is one; `foreseen`: takes up a look ahead,
    /// of which a replay has done nothing before. Cores or programs of an event that do not exist, as a log that was
    /// tampered with may name, change nothing.
    pub(crate) fn decide(&mut self, cores: &[CoreJobs], foreseen: bool, clock: Hertz, now: Time) -> Option<Plan> {
        let jobs = || cores.iter().flat_map(|core| core.runs.iter().chain(&core.waits));
        let unknown = cores.len() != self.cores && !cores.is_empty();
        if unknown || jobs().any(|job| job.program >= self.programs.len()) {
            return None;
        }
        if foreseen {
            self.at_clock_of_look(|allocator, programs| allocator.advance(programs, Time::ZERO, u64::MAX));
        }
        self.programs.slow_down(self.top.map_or(1.0, |top| top.ratio(clock)));
        let running = |core| cores.get(core).and_then(CoreJobs::running);
        let running: PerCore<Option<RunningJob<'_>>> = (0..self.cores).map(running).collect();
        let now = self.since_start(now);
        self.allocator.step(&self.programs, &running, now)?;
        Some(self.plan())
    }

    fn since_start(&self, now: Time) -> Time {
        Time::ZERO + now.since(self.start)
    }

    /// Does `look` at the clock that was in force when the look began, so that its result does not depend on pieces.
    fn at_clock_of_look<R>(&mut self, look: impl FnOnce(&mut Allocator, &Programs) -> R) -> R {
        let clock = self.programs.slowdown();
        self.programs.slow_down(self.allocator.look_slowdown().unwrap_or(clock));
        let result = look(&mut self.allocator, &self.programs);
        self.programs.slow_down(clock);
        result
    }
}
