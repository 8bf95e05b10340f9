//! Sets the clocks beneath a pipeline, in one thread of the process that started it.
//!
//! The coordinator is a role of workers, which any kill may end; but a knob needs a process that restores it. So the
//! coordinator's rows go through shared memory to this thread. It has the machine, with its ledger and its guardian,
//! and asks [`punctual_loop::Clocks`], which puts a regulator above the row.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use punctual_allocation::mapping::{ClockStep, Cores, Domain, MappingPolicy, RUNNING_MAX};
use punctual_loop::{CLOCKS_EVERY, ClockDomain, ClockGround, Clocks, ClocksSeen, DeciderSetup, EventLog};
use punctual_platform::linux::{ClockPreference, KernelTree, LinuxMachine, LinuxOptions, cpufreq};
use punctual_platform::{KnobId, Machine, Plan, Refusal, Value};
use punctual_units::{CoreId, Hertz};
use punctual_workload::TaskGoal;

use super::PipelineError;
use super::coordinator::WATTS;
use super::panel::Panel;
use super::shared::Segment;
use crate::{TardinessOf, TardinessSince};

/// Greatest number of clock steps per domain from which tables are made, the lowest and the highest among them: a tenth
/// of the range is as much as loads vary by.
const STEPS_MAX: usize = 10;
/// Limit on the square of all domains' steps, times the number of mappings: a table then takes a worker, whose priority
/// is that of stages, about 10 ms.
const WORK_MAX: usize = 1 << 16;
/// Limit for the tardiness that a goal's share of frames exceeds. Frames are late from 1 on.
const LATE_BELOW: f64 = 0.9;

/// Most decisions that are kept: 5 hours.
const DECISIONS_MAX: usize = 100_000;

/// Options for setting clocks.
#[derive(Clone, Debug, Default)]
pub struct ClockOptions {
    /// Root of the kernel's files, which tests replace.
    pub tree: KernelTree,
    /// Stage whose frames must meet this goal, by clocks above the table's row; `None`: rows alone set clocks.
    pub holds: Option<(String, TaskGoal)>,
    /// Whether to keep the decisions for a log.
    pub records: bool,
}

/// Reads the state of the thread that sets clocks.
#[derive(Clone, Debug)]
pub struct ClockHand(Arc<Mutex<ClockState>>);

#[derive(Debug, Default)]
struct ClockState {
    log: Option<EventLog>,
    refused: Option<Refusal>,
    set: Vec<(KnobId, Hertz)>,
}

impl ClockHand {
    fn told(&self) -> MutexGuard<'_, ClockState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The decisions so far, if they are kept.
    pub fn log(&self) -> Option<EventLog> {
        self.told().log.clone()
    }

    /// The last refusal of the machine, if any.
    pub fn refused(&self) -> Option<Refusal> {
        self.told().refused.clone()
    }

    /// The clocks that are set now; empty: they are as they were found.
    pub fn set(&self) -> Vec<(KnobId, Hertz)> {
        self.told().set.clone()
    }
}

/// Opens the machine whose clocks are to be set; `machine` lists its domains, if the caller knows them.
pub(super) fn open(options: &ClockOptions, shared: &Segment, machine: Option<&Cores>) -> Result<LinuxMachine, Refusal> {
    let none = |why: &str| Refusal {
        what: "setting clocks beneath the pipeline".into(),
        why: why.into(),
        remedy: "the table is made for the highest clock alone; virtual machines have no such knobs".into(),
    };
    if machine.is_none() && domains_of(shared, &options.tree).is_none() {
        return Err(none("not every core has a cpufreq policy with steps"));
    }
    let machine = LinuxMachine::open(LinuxOptions {
        tree: options.tree.clone(),
        clock: ClockPreference::Real,
        guardian: true,
    })?;
    let cores = (0..shared.cores()).map(|number| shared.core(number));
    if let Some(core) = cores
        .into_iter()
        .find(|core| machine.offers().clock_of(*core).is_none())
    {
        let why = machine.refusals().first().map(|refusal| refusal.why.clone());
        return Err(none(
            &why.unwrap_or_else(|| format!("core {core} has no clock that can be set")),
        ));
    }
    Ok(machine)
}

/// The clock domains of a pipeline's cores, in the order of its cores; `None` if a core has none.
pub(super) fn domains_of(shared: &Segment, tree: &KernelTree) -> Option<Vec<Domain>> {
    let policies = cpufreq::policies(tree);
    let top = policies.iter().map(|(_, offer)| offer.top()).max()?;
    let of = |core: CoreId| policies.iter().position(|(cores, _)| cores.contains(&core));
    let numbers: Option<Vec<usize>> = (0..shared.cores()).map(|number| of(shared.core(number))).collect();
    let numbers = numbers?;
    let same: Vec<&[usize]> = numbers.chunk_by(|one, other| one == other).collect();
    let kept = steps_max(shared.migratable().count(), numbers.len(), same.len());
    let domain = |run: &&[usize]| Domain {
        cores: run.len(),
        steps: thinned(&policies[run[0]].1.steps, kept)
            .map(|clock| step(clock, top))
            .collect(),
    };
    Some(same.iter().map(domain).collect())
}

/// Number of steps of each domain from which a table is made.
fn steps_max(stages: usize, cores: usize, domains: usize) -> usize {
    let mappings = cores.saturating_pow(stages as u32).clamp(1, RUNNING_MAX);
    ((WORK_MAX / mappings).isqrt() / domains.max(1)).clamp(2, STEPS_MAX)
}

/// At most `kept` of these, evenly spaced by index.
fn thinned(steps: &[Hertz], kept: usize) -> impl Iterator<Item = Hertz> + '_ {
    let kept = steps.len().min(kept);
    (0..kept).map(move |number| steps[number * (steps.len() - 1) / (kept - 1).max(1)])
}

/// Estimated power of a core at a clock, for machines that do not report it: a constant part, and a part that grows
/// with the third power of the clock, because voltage follows the clock.
fn step(clock: Hertz, top: Hertz) -> ClockStep {
    let (busy, idle) = WATTS;
    let scale = 0.1 + 0.9 * clock.ratio(top).powi(3);
    ClockStep {
        clock,
        busy_watts: busy * scale,
        idle_watts: idle * scale,
    }
}

/// The thread that sets clocks. Dropping it restores them.
#[derive(Debug)]
pub(super) struct Turning {
    ends: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    pub(super) hand: ClockHand,
}

impl Turning {
    pub(super) fn start(
        shared: &Segment,
        machine: LinuxMachine,
        cores: &Cores,
        options: &ClockOptions,
    ) -> Result<Turning, PipelineError> {
        let ground = ClockGround {
            domains: domains(shared, &machine, cores),
            goal: options.holds.as_ref().map(|(_, goal)| asked(*goal).1),
            start: shared.now(),
        };
        let hand = ClockHand(Arc::default());
        let setup = || DeciderSetup::Clocks(ground.clone());
        hand.told().log = options.records.then(|| EventLog::of(setup(), DECISIONS_MAX));
        let clocks = Clocks::new(ground).map_err(|why| PipelineError::Memory(why.to_string()))?;
        let watched = |(stage, goal): &(String, TaskGoal)| match shared.graph.number(stage) {
            Some(number) => Ok((number, asked(*goal).0)),
            None => Err(PipelineError::NoSuchStage(stage.clone())),
        };
        let mut turner = Turner {
            panel: Panel::new(shared),
            shared: shared.clone(),
            machine,
            clocks,
            watched: options.holds.as_ref().map(watched).transpose()?,
            since: TardinessSince::default(),
            hand: hand.clone(),
            fetched: 0,
            row: None,
            moves: false,
            plan: Plan::default(),
            refused: None,
        };
        let ends = Arc::new(AtomicBool::new(false));
        let ending = Arc::clone(&ends);
        let thread = std::thread::Builder::new().name("clocks".into());
        let thread = thread.spawn(move || {
            while !ending.load(Ordering::Acquire) {
                turner.look();
                std::thread::park_timeout(Duration::from_nanos(CLOCKS_EVERY.0));
            }
        });
        let thread = thread.map_err(PipelineError::start("the thread that turns clocks"))?;
        Ok(Turning {
            ends,
            thread: Some(thread),
            hand,
        })
    }
}

impl Drop for Turning {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            // A panic of the thread has been printed, and has restored the machine.
            let _ = thread.join();
        }
    }
}

/// Knob and steps of each domain of the coordinator's cores.
fn domains(shared: &Segment, machine: &LinuxMachine, cores: &Cores) -> Vec<ClockDomain> {
    let domain = |(number, domain): (usize, &Domain)| ClockDomain {
        knob: machine
            .offers()
            .clock_of(shared.core(cores.first(number)))
            .unwrap_or(KnobId::CLOCK),
        steps: domain.steps.iter().map(|step| step.clock).collect(),
    };
    cores.domains.iter().enumerate().map(domain).collect()
}

/// The statistic that a goal limits, and its limit.
fn asked(goal: TaskGoal) -> (TardinessOf, f64) {
    match goal {
        TaskGoal::Late(share) => (TardinessOf::Exceeded(share.get()), LATE_BELOW),
        TaskGoal::Tardiness(mean) => (TardinessOf::Mean, mean),
    }
}

/// State of the thread.
struct Turner {
    shared: Segment,
    panel: Panel,
    machine: LinuxMachine,
    clocks: Clocks,
    /// Stage with a goal, and the statistic that the goal limits.
    watched: Option<(usize, TardinessOf)>,
    since: TardinessSince,
    hand: ClockHand,
    /// Number of the coordinators' next decision to read.
    fetched: u64,
    /// Steps of the latest row, and whether stages are still migrating to it.
    row: Option<Vec<u8>>,
    moves: bool,
    /// The last plan given to the machine, and the machine's refusal.
    plan: Plan,
    refused: Option<Refusal>,
}

impl Turner {
    fn look(&mut self) {
        let (seen, now) = (self.seen(), self.shared.now());
        let plan = self.clocks.step(&seen, now);
        self.carry_out(&plan);
        if let Some(log) = &mut self.hand.told().log {
            log.note(now, seen, plan);
        }
    }

    fn seen(&mut self) -> ClocksSeen {
        let (decisions, next) = self.panel.decisions(self.fetched);
        self.fetched = next;
        for answer in decisions.into_iter().map(|decision| decision.answer) {
            if let Some(steps) = answer.steps {
                (self.row, self.moves) = (Some(steps), !answer.moves.is_empty());
            }
        }
        if !has_rows(self.shared.policy()) {
            self.row = None;
        }
        let shared = &self.shared;
        let tardiness = self.watched.and_then(|(stage, of)| {
            let counted = shared.layout.tardiness(&shared.region, stage);
            self.since.look(counted, of)
        });
        ClocksSeen {
            row: self.row.clone(),
            moves: self.moves,
            tardiness,
            refused: self.refused.clone(),
        }
    }

    fn carry_out(&mut self, plan: &Plan) {
        if *plan == self.plan && self.refused.is_none() {
            return;
        }
        self.refused = match plan.iter().next() {
            None => self.machine.restore().into_iter().next(),
            Some(_) => self
                .machine
                .apply(plan)
                .refused
                .into_iter()
                .next()
                .map(|(_, refusal)| refusal),
        };
        self.plan = *plan;
        for number in 0..self.shared.cores() {
            let knob = self.machine.offers().clock_of(self.shared.core(number));
            let clock = knob.and_then(|knob| plan.get(knob)).and_then(Value::clock);
            // Cycles are counted at this clock from now on.
            self.shared
                .set_clock_of(number, clock.filter(|_| self.refused.is_none()));
        }
        let mut told = self.hand.told();
        told.refused.clone_from(&self.refused);
        told.set = plan
            .iter()
            .filter_map(|(knob, value)| Some((knob, value.clock()?)))
            .collect();
    }
}

/// Whether a policy's answers contain clocks.
pub(super) fn has_rows(policy: MappingPolicy) -> bool {
    matches!(policy, MappingPolicy::Table | MappingPolicy::TableOff)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_steps_are_kept_and_of_many_both_ends() {
        let steps = |count: u64| (1..=count).map(Hertz::from_mhz).collect::<Vec<_>>();
        assert_eq!(thinned(&steps(1), 10).collect::<Vec<_>>(), steps(1));
        assert_eq!(thinned(&steps(10), 10).collect::<Vec<_>>(), steps(10));
        let kept: Vec<Hertz> = thinned(&steps(41), 10).collect();
        assert_eq!(
            (kept.len(), kept[0], kept[9]),
            (10, Hertz::from_mhz(1), Hertz::from_mhz(41))
        );
        assert!(kept.is_sorted_by(|one, other| one < other));
        assert_eq!(
            (steps_max(7, 2, 2), steps_max(7, 4, 2), steps_max(1, 1, 1)),
            (10, 2, 10)
        );
    }
}
