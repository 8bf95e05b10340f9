//! The coordinator: one worker asks the policy where stages should run, and executes the answer.
//!
//! **Problem.** One process must decide for all cores, and any process may die at any instant.
//!
//! **Method.** The coordinator is a role. One word of the shared memory names the worker that has it, and the epoch;
//! another word records when that worker was last active. A worker takes the role with a compare-and-swap of the word
//! if there was no coordinator yet, if the last one was inactive for [`STALE`], or if it was this core's worker before
//! that died. Workers have one thread: they do this between two waits.
//!
//! The new coordinator inherits nothing. Migrations under way complete by themselves (`../control.rs`), or the new
//! coordinator hurries them up as its predecessor would. It reads where stages are and asks a policy without history. A
//! coordinator that was wrongly taken for dead finds another epoch and stops; a migration that it has just announced
//! does no harm, because any process may announce one.

use std::sync::atomic::Ordering::Relaxed;

use punctual_allocation::mapping::{
    ClockStep, Coordinator, Cores, Domain, Ground, Mapping, MappingDecision, MappingPolicy, Move, MoveCost,
    PeriodMeasurements, StageInfo,
};
use punctual_platform::Refusal;
use punctual_platform::linux::KernelTree;
use punctual_platform::linux::cpufreq;
use punctual_platform::linux::thermal::CoreThermometers;
use punctual_units::{CoreId, Hertz, Nanos, Time};

use super::clocks;
use super::desk::{Role, Word};
use super::panel::{Mechanism, MoveError, Panel};
use super::shared::Segment;
use super::statistics::{EVERY, FPS_LEAST, Gatherer};
use super::{PipelineError, PipelineOptions};
use crate::{Control, Phase};

/// A coordinator inactive for this long is taken for dead. It is active every 10 ms.
const STALE: Nanos = Nanos::from_millis(300);
/// Time for which beginning a migration is retried: its target's process is started first.
const TRIED: Nanos = Nanos::from_secs(3);
/// Assumed clock of cores that report none: cycles then equal nanoseconds.
pub(super) const NOMINAL: Hertz = Hertz(1_000_000_000);
/// Assumed power of a core at its highest clock, busy and idle, if unknown: powers are only compared with each other.
/// Chosen by hand, after servers at rest.
pub(super) const WATTS: (f64, f64) = (1.0, 0.3);
/// Cost of an announced migration, in seconds: its target spins for 500 us at most (`instance.rs`), and reads the state
/// twice, at the 0.06 ns a byte of `punctual-lab bench migration` (1 to 16 MiB).
const MOVE_SECONDS: f64 = 500e-6;
const MOVE_SECONDS_PER_BYTE: f64 = 0.12e-9;

/// Duties of a worker besides starting processes: it measures and, as the coordinator, decides.
#[derive(Debug)]
pub(super) struct Duties {
    shared: &'static Segment,
    panel: Panel,
    core: usize,
    ground: Ground,
    /// Numbers of the migratable stages.
    movable: Vec<usize>,
    gatherer: Gatherer,
    /// This worker's role, while it is the coordinator.
    role: Option<Role>,
    /// Role of another worker at the last look.
    other: Option<Role>,
    look_at: Time,
    ask_at: Time,
    asked: Option<PolicyState>,
    /// Thermometers of the cores, if any; searched for once, when a policy needs them.
    thermometers: Option<Option<CoreThermometers>>,
    /// Migrations to begin, and since when they have waited.
    pending: Vec<(Move, Time)>,
}

/// A policy with its history.
#[derive(Debug)]
struct PolicyState {
    coordinator: Coordinator,
    /// Number of the next decision.
    number: u64,
}

impl Duties {
    pub(super) fn new(shared: &'static Segment, core: usize, ground: Ground) -> Duties {
        Duties {
            panel: Panel::new(shared),
            core,
            ground,
            movable: shared.migratable().collect(),
            gatherer: Gatherer::new(shared, core),
            role: None,
            other: None,
            look_at: Time::ZERO,
            ask_at: Time::ZERO,
            asked: None,
            thermometers: None,
            pending: Vec::new(),
            shared,
        }
    }

    /// Does everything that is due; returns how long the worker may wait. `None`: until its bell rings, because no
    /// policy decides, no statistics are requested, and no handover is under way.
    pub(super) fn look(&mut self) -> Option<Nanos> {
        let now = self.shared.now();
        if !self.shared.is_watched(now) && !self.under_way() && self.pending.is_empty() {
            self.asked = None;
            return None;
        }
        if now >= self.look_at {
            self.look_at = now + EVERY;
            self.keep_role(now);
            self.gatherer.look(self.shared, self.role.is_some(), now);
            self.begin_moves(now);
            if now >= self.ask_at {
                self.ask_at = now + self.shared.span_of(Word::Period).max(EVERY);
                self.ask(now);
            }
        }
        Some(self.look_at.since(now).max(Nanos(1)))
    }

    fn under_way(&self) -> bool {
        let mut stages = self.movable.iter();
        stages.any(|stage| self.shared.control(*stage).phase != Phase::Held)
    }

    /// Takes the role if it is free; renews it if this worker has it.
    fn keep_role(&mut self, now: Time) {
        let (shared, said) = (self.shared, self.shared.role());
        if self.role == Some(said) {
            shared.desk_word(Word::Beat).store(now.0, Relaxed);
            return;
        }
        self.role = None;
        let beat = shared.desk_word(Word::Beat).load(Relaxed);
        // A worker that has just taken the role may not have been active yet: it is checked twice.
        let stale = self.other == Some(said) && now.0.saturating_sub(beat) > STALE.0;
        let was_here = said.core == self.core;
        self.other = Some(said);
        if said.epoch == 0 || was_here || stale {
            self.role = shared.take_role(said, self.core);
            shared.desk_word(Word::Beat).store(now.0, Relaxed);
        }
    }

    fn ask(&mut self, now: Time) {
        let (shared, policy) = (self.shared, self.shared.policy());
        if self.role.is_some() {
            self.hurry();
        }
        let mine = self.role.is_some() || policy == MappingPolicy::Alone;
        if policy == MappingPolicy::None || !mine {
            self.asked = None;
            self.pending.clear();
            return;
        }
        if self.asked.as_ref().is_none_or(|it| it.coordinator.policy() != policy) {
            self.pending.clear();
            let coordinator = Coordinator::new(self.ground.clone(), policy);
            self.asked = Some(PolicyState { coordinator, number: 0 });
        }
        let seen = self.seen(now);
        let Some(asked) = &mut self.asked else { return };
        let answer = asked.coordinator.step(&seen, now);
        self.pending.extend(answer.moves.iter().map(|one| (*one, now)));
        let number = asked.number;
        asked.number += 1;
        shared.log_decision(&MappingDecision {
            now,
            number,
            policy,
            seen,
            answer,
        });
        self.begin_moves(now);
    }

    fn seen(&mut self, now: Time) -> PeriodMeasurements {
        let (shared, celsius) = (self.shared, self.celsius());
        let measured = shared.fps();
        let flows = measured > FPS_LEAST;
        let controls = || self.movable.iter().map(|stage| shared.control(*stage));
        let cycles = |stage: &usize| {
            if flows {
                shared.frame_cycles(*stage, measured)
            } else {
                0
            }
        };
        PeriodMeasurements {
            core: self.core,
            fps: if flows { shared.rate().unwrap_or(measured) } else { 0.0 },
            cycles: self.movable.iter().map(cycles).collect(),
            mapping: Mapping::of(controls().map(|control: Control| shared.core_of(control.owner))),
            celsius,
            moving: !self.pending.is_empty() || self.under_way(),
            held: shared.is_held(now),
        }
    }

    /// Temperature of each core; empty unless the policy needs them and every core has a sensor.
    fn celsius(&mut self) -> Vec<f64> {
        if self.shared.policy() != MappingPolicy::Thermal {
            return Vec::new();
        }
        let cores = (0..self.shared.cores()).map(|number| self.shared.core(number));
        let open = || CoreThermometers::open(&KernelTree::default(), cores);
        let meters = self.thermometers.get_or_insert_with(open);
        let read = meters
            .as_ref()
            .and_then(|meters| meters.read().collect::<Option<Vec<f64>>>());
        read.unwrap_or_default()
    }

    /// Hurries handovers that take too long, whatever process announced them.
    fn hurry(&self) {
        for stage in self.movable.iter().copied() {
            let control = self.shared.control(stage);
            if control.phase != Phase::Held {
                self.panel.hurry(stage, control);
            }
        }
    }

    /// Begins waiting migrations. If the target has no process yet, retries at the next look.
    fn begin_moves(&mut self, now: Time) {
        let (panel, shared, movable) = (&self.panel, self.shared, &self.movable);
        self.pending.retain(
            |(one, since)| match panel.move_to(movable[one.stage], one.to, Mechanism::Announced) {
                Ok(()) => {
                    shared.desk_word(Word::Moves).fetch_add(1, Relaxed);
                    false
                }
                Err(MoveError::Busy(_) | MoveError::NotReady(..)) => now.since(*since) < TRIED,
                Err(_) => false,
            },
        );
    }
}

impl Segment {
    /// Facts for the pipeline's coordinators: its stages, and its cores as in the options or, without these, as this
    /// machine reports them.
    pub(super) fn ground(&self, options: &PipelineOptions) -> Ground {
        let mapped = |stage: usize| StageInfo {
            name: self.name(stage).into(),
            state_bytes: self.graph.stages()[stage].state_room as u64,
        };
        let clocks = options.clocks.as_ref().filter(|_| self.turns_clocks());
        let clocked = || {
            let domains = clocks::domains_of(self, &clocks?.tree)?;
            let low_power_watts = 0.0;
            Some(Cores {
                domains,
                low_power_watts,
            })
        };
        let cores = options.machine.clone().or_else(clocked);
        let cores = cores.unwrap_or_else(|| self.cores_here());
        let clock = cores
            .domains
            .iter()
            .flat_map(|domain| domain.steps.last())
            .map(|step| step.clock)
            .max();
        let clock = clock.unwrap_or(NOMINAL).0 as f64;
        Ground {
            stages: self.migratable().map(mapped).collect(),
            cores,
            cost: MoveCost {
                constant_cycles: MOVE_SECONDS * clock,
                cycles_per_byte: MOVE_SECONDS_PER_BYTE * clock,
                bytes_min: 0,
            },
        }
    }

    /// Equal cores at their common highest clock, for machines where no clock is set.
    fn cores_here(&self) -> Cores {
        let tree = KernelTree::default();
        let clocks = (0..self.cores()).map(|number| cpufreq::highest(&tree, self.core(number)));
        let clock = clocks.min().flatten().unwrap_or(NOMINAL);
        let (busy_watts, idle_watts) = WATTS;
        Cores {
            domains: vec![Domain {
                cores: self.cores(),
                steps: vec![ClockStep {
                    clock,
                    busy_watts,
                    idle_watts,
                }],
            }],
            low_power_watts: 0.0,
        }
    }
}

/// The present coordinator of a pipeline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CoordinatorNow {
    /// Core on which its worker runs.
    pub core: CoreId,
    /// Index of that core among the pipeline's.
    pub number: usize,
    /// Process id of the worker.
    pub pid: i32,
    /// Number of coordinators so far.
    pub epoch: u64,
    /// Number of migrations begun by policies.
    pub moves: u64,
}

/// Error about a setting that is out of range.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{key}: {what}")]
pub struct SettingError {
    /// Name of the rejected setting.
    pub key: &'static str,
    /// Reason, and the allowed range.
    pub what: String,
}

/// Allowed rates, in frames per second.
const RATES: std::ops::RangeInclusive<f64> = 0.001..=1e6;
/// Allowed periods of the policy.
const PERIODS: std::ops::RangeInclusive<Nanos> = EVERY..=Nanos::from_secs(60);
/// Greatest time for which a user's migration can hold.
const HOLD_MAX: Nanos = Nanos::from_secs(24 * 3600);

impl Panel {
    /// The worker that decides; `None` until one does.
    pub fn coordinator(&self) -> Option<CoordinatorNow> {
        let (shared, Role { epoch, core }) = (self.shared(), self.shared().role());
        (epoch > 0).then(|| CoordinatorNow {
            core: shared.core(core),
            number: core,
            pid: shared.worker(core).load(Relaxed) as i32,
            epoch,
            moves: shared.desk_word(Word::Moves).load(Relaxed),
        })
    }

    /// Policy that decides where stages run.
    pub fn policy(&self) -> MappingPolicy {
        self.shared().policy()
    }

    /// Feature that the policy needs and this machine lacks, with the replacement.
    pub fn lacks(&self) -> Option<Refusal> {
        let shared = self.shared();
        let cores = (0..shared.cores()).map(|number| shared.core(number));
        let refusal = |what: &str, why: &str, remedy: &str| Refusal {
            what: what.into(),
            why: why.into(),
            remedy: remedy.into(),
        };
        match shared.policy() {
            MappingPolicy::Thermal if CoreThermometers::open(&KernelTree::default(), cores).is_none() => Some(refusal(
                "metering the temperature of each core (policy thermal)",
                "not every core has a sensor with the label \"Core N\" under /sys/class/hwmon",
                "loads are levelled instead, as by balance; virtual machines have no such sensors",
            )),
            policy if clocks::has_rows(policy) && !shared.turns_clocks() => Some(refusal(
                "setting clocks (policy table)",
                "this machine has no cpufreq policies that can be set, or the pipeline was started without a table",
                "the table is made for the highest clock alone; start the pipeline with this policy to have clocks set",
            )),
            _ => None,
        }
    }

    /// Changes the policy, from the next period on.
    ///
    /// # Errors
    /// [`SettingError`] if the policy cannot be used: too many stages.
    pub fn set_policy(&self, policy: MappingPolicy) -> Result<(), SettingError> {
        let checked = self.shared().ground(&PipelineOptions::default()).check(policy);
        checked.map_err(|why| SettingError {
            key: "policy",
            what: why.what,
        })?;
        self.shared().set_policy(policy);
        Ok(())
    }

    /// Requested frames per second; `None`: as they come.
    pub fn rate(&self) -> Option<f64> {
        self.shared().rate()
    }

    /// Requests a rate in frames per second: policies rely on it, and sources that read it follow.
    ///
    /// # Errors
    /// [`SettingError`] if it is not between 0.001 and a million.
    pub fn set_rate(&self, fps: f64) -> Result<(), SettingError> {
        if !RATES.contains(&fps) {
            return Err(SettingError {
                key: "rate",
                what: format!("{fps} frames per second: give {} to {}", RATES.start(), RATES.end()),
            });
        }
        self.shared().set_rate(Some(fps));
        Ok(())
    }

    /// Sets how long policies leave all stages alone after a user has migrated one.
    ///
    /// # Errors
    /// [`SettingError`] if it is longer than a day.
    pub fn set_hold(&self, hold: Nanos) -> Result<(), SettingError> {
        let what = || format!("{hold}: give at most {HOLD_MAX}");
        self.set_span("hold", Word::Hold, hold, hold <= HOLD_MAX, what)
    }

    /// Sets the period at which the policy is asked.
    ///
    /// # Errors
    /// [`SettingError`] if it is not between 10 ms and a minute.
    pub fn set_period(&self, period: Nanos) -> Result<(), SettingError> {
        let what = || format!("{period}: give {} to {}", PERIODS.start(), PERIODS.end());
        self.set_span("period", Word::Period, period, PERIODS.contains(&period), what)
    }

    fn set_span(
        &self,
        key: &'static str,
        word: Word,
        span: Nanos,
        sound: bool,
        what: impl Fn() -> String,
    ) -> Result<(), SettingError> {
        if !sound {
            return Err(SettingError { key, what: what() });
        }
        self.shared().desk_word(word).store(span.0, Relaxed);
        Ok(())
    }

    /// The decisions from number `from` on, and the number of the next one. The last 64 are kept: six seconds at the
    /// usual period.
    pub fn decisions(&self, from: u64) -> (Vec<MappingDecision>, u64) {
        self.shared().fetch_decisions(from)
    }
}

/// Checks a pipeline's first policy, and stores the settings.
pub(super) fn set_up(
    shared: &Segment,
    ground: &Ground,
    policy: MappingPolicy,
    rate: Option<f64>,
) -> Result<(), PipelineError> {
    ground.check(policy)?;
    shared.set_policy(policy);
    shared.set_rate(rate);
    shared.desk_word(Word::Hold).store(super::desk::HOLD.0, Relaxed);
    shared.desk_word(Word::Period).store(super::desk::PERIOD.0, Relaxed);
    Ok(())
}
