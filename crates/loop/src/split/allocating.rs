//! The allocator behind the loop's door: values of an event in, knobs of a plan out.

pub use punctual_allocation::CoreJobs;
use punctual_allocation::{Allocator, AllocatorSettings, PerCore, PeriodicTask, Profile, Programs, RunningJob};
use punctual_platform::{ClockOffer, KNOBS_MAX, KnobId, Offers, Plan, Value};
use punctual_units::{CoreId, Hertz, Time};
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
}

/// Which core has which ways and how much bandwidth.
#[derive(Clone, Debug)]
pub(crate) struct Splitting {
    programs: Programs,
    allocator: Allocator,
    cores: usize,
    /// The clock that profiles are for; `None` where the clock is no knob.
    top: Option<Hertz>,
    /// Whether the machine divides its bandwidth, too.
    has_bandwidth: bool,
}

impl Splitting {
    /// # Errors
    /// [`Mismatch`] where profiles, tasks and settings do not fit together.
    pub(crate) fn new(options: &SplitOptions, offers: &Offers) -> Result<Splitting, Mismatch> {
        let SplitOptions {
            profiles,
            tasks,
            settings,
        } = options;
        let refused = |what: String| Mismatch(format!("allocation: {what}"));
        if settings.cores > SPLIT_CORES_MAX {
            let cores = settings.cores;
            return Err(refused(format!(
                "a split among {cores} cores; a plan has room for {SPLIT_CORES_MAX}: use a machine with fewer cores"
            )));
        }
        let programs = Programs::new(profiles, punctual_allocation::Objective::Speed)
            .map_err(|error| refused(error.to_string()))?;
        let allocator = Allocator::new(&programs, tasks, *settings).map_err(|error| refused(error.to_string()))?;
        Ok(Splitting {
            programs,
            allocator,
            cores: settings.cores,
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

    /// The last look ahead, if it is another one than that of `known`: the time from which on it saw, and its result as
    /// a line for the report. `None` also where the split was given.
    pub(crate) fn forecast(&self, known: Option<Time>) -> Option<(Time, String)> {
        let other = self.allocator.forecast().filter(|other| Some(other.begun) != known)?;
        Some((other.begun, other.to_string()))
    }

    /// Time at which to ask again, because the last question came too soon after a decision.
    pub(crate) fn due(&self) -> Option<Time> {
        self.allocator.due()
    }

    /// Returns another split for the jobs that run now at `clock`, if there is one. Cores or programs of an event that
    /// do not exist, as a log that was tampered with may name, change nothing.
    pub(crate) fn decide(&mut self, cores: &[CoreJobs], clock: Hertz, now: Time) -> Option<Plan> {
        let jobs = || cores.iter().flat_map(|core| core.runs.iter().chain(&core.waits));
        if cores.len() != self.cores || jobs().any(|job| job.program >= self.programs.len()) {
            return None;
        }
        self.programs.slow_down(self.top.map_or(1.0, |top| top.ratio(clock)));
        let running: PerCore<Option<RunningJob<'_>>> = cores.iter().map(CoreJobs::running).collect();
        self.allocator.step(&self.programs, &running, now)?;
        Some(self.plan())
    }
}
