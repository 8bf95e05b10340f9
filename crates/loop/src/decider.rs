//! The deciders of a run as one type: an event and the time in, an answer out.
//!
//! Each decides at its own time scale, and no knob has two. [`replay`](crate::replay) checks both on a log.
//!
//! | scale | decider, at what | what it decides |
//! |---|---|---|
//! | phase, microseconds to milliseconds | [`Updates`], at each reading | whether a reading is admitted |
//! | | [`Tenants`], where a job of an exclusive core ends or comes | lending the core |
//! | | [`Regulator`], at [`Event::Jobs`] | cache ways and bandwidth of each core |
//! | progress mark | [`Regulator`], at [`Event::Progressed`] | the clock for the rest of a job |
//! | | [`Regulator`], at [`Event::Begun`] and the end of a job | the clock between jobs |
//! | job or period | [`Regulator`], at [`Event::Period`] | clock, admitted share, best-effort share |
//! | period, 10 ms to a minute | [`Coordinator`] | the core of each stage, the least clocks beneath them |
//! | | [`Clocks`], [`CLOCKS_EVERY`](crate::CLOCKS_EVERY) | the clocks beneath stages, where no task's law has them |
//! | second | [`Backlog`] | the bound of what a node admits |
//! | | [`Regulator`]: set points of late shares, giving back what was shed for nothing | the law's own settings |
//! | minute | `punctual_cores::place`, before the first job | the core of each task |

use punctual_allocation::mapping::{Coordinator, Ground, MappingPolicy, PeriodMeasurements, Reconfiguration};
use punctual_cores::{LendingCosts, TASKS_PER_CORE_MAX, TenantEvent, Tenants};
use punctual_platform::Plan;
use punctual_store::updates::{AdmissionEvent, AdmissionOptions, SensorSpec, Updates};
use punctual_units::{CoreId, Time};
use serde::{Deserialize, Serialize};

use crate::backlog::{Backlog, BacklogGround, BacklogSeen};
use crate::clocks::{ClockGround, Clocks, ClocksSeen};
use crate::document::Mismatch;
use crate::event::{Answer, Event, Step};
use crate::tick::{Regulator, RegulatorOptions};

/// Model, goal and offers from which a decider is made.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DeciderSetup {
    /// The knobs of tasks, by a [`Regulator`].
    Tasks(Box<RegulatorOptions>),
    /// Which sensor updates are admitted, by [`Updates`].
    Updates(AdmissionSetup),
    /// When an exclusive core is lent, by [`Tenants`].
    Lending {
        core: CoreId,
        /// Number of tasks that share the core.
        tenants: usize,
        /// Expected costs of lending at the start.
        costs: LendingCosts,
    },
    /// Where stages run, by a [`Coordinator`].
    Stages { ground: Box<Ground>, policy: MappingPolicy },
    /// The clocks beneath stages, by [`Clocks`].
    Clocks(ClockGround),
    /// The bound of a node's backlog, by its [`Backlog`].
    Backlog(Box<BacklogGround>),
}

/// Sensors and options of admission.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct AdmissionSetup {
    /// Period and validity of each sensor.
    pub sensors: Vec<SensorSpec>,
    /// Minimum, shedding and margin of admission.
    pub options: AdmissionOptions,
}

/// Event of one decider; the variants are those of [`DeciderSetup`]. Large events are boxed: a log has many small ones.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DeciderEvent {
    Tasks(Box<Event>),
    Updates(AdmissionEvent),
    /// Index of the reporting task, from 0, and its report.
    Lending(usize, TenantEvent),
    Stages(Box<PeriodMeasurements>),
    Clocks(Box<ClocksSeen>),
    Backlog(Box<BacklogSeen>),
}

/// Answer of a decider to one event.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DeciderAnswer {
    /// Events that only inform, and laws that leave all as it is.
    #[default]
    Nothing,
    /// A step of the tasks' loop.
    Step(Box<Step>),
    /// Knobs to turn, of the tasks' loop between two steps or of another law.
    Plan(Box<Plan>),
    /// Whether an update was admitted, or an exclusive core changes hands.
    Yes(bool),
    /// Stages to move, and the least clocks beneath them.
    Stages(Box<Reconfiguration>),
}

/// Any of the policies that decide during a run.
#[derive(Clone, Debug)]
pub enum Decider {
    Tasks(Box<Regulator>),
    Updates(Box<Updates>),
    Lending(Tenants),
    Stages(Box<Coordinator>),
    Clocks(Box<Clocks>),
    Backlog(Backlog),
}

impl Decider {
    /// A decider that has seen no event.
    ///
    /// # Errors
    /// [`Mismatch`], where the setup's model or goal makes no law.
    pub fn new(setup: &DeciderSetup) -> Result<Decider, Mismatch> {
        Ok(match setup {
            DeciderSetup::Tasks(options) => Decider::Tasks(Box::new(Regulator::new((**options).clone())?)),
            DeciderSetup::Updates(setup) => Decider::Updates(Box::new(Updates::new(&setup.sensors, setup.options))),
            // A log that was tampered with may name any number of tasks.
            DeciderSetup::Lending { tenants, costs, .. } => {
                Decider::Lending(Tenants::new((*tenants).min(TASKS_PER_CORE_MAX), *costs))
            }
            DeciderSetup::Stages { ground, policy } => {
                Decider::Stages(Box::new(Coordinator::new((**ground).clone(), *policy)))
            }
            DeciderSetup::Clocks(ground) => {
                let clocks = Clocks::new(ground.clone());
                Decider::Clocks(Box::new(
                    clocks.map_err(|why| Mismatch(format!("the clocks have no law: {why}")))?,
                ))
            }
            DeciderSetup::Backlog(ground) => Decider::Backlog(Backlog::new(ground)?),
        })
    }

    /// Takes an event at `now`. An event of another kind of decider, which only a log that was tampered with has, is
    /// answered with nothing.
    pub fn step(&mut self, event: &DeciderEvent, now: Time) -> DeciderAnswer {
        match (self, event) {
            (Decider::Tasks(it), DeciderEvent::Tasks(event)) => it.step(event, now).into(),
            (Decider::Updates(it), DeciderEvent::Updates(event)) => it.step(event, now).into(),
            (Decider::Lending(it), DeciderEvent::Lending(tenant, event)) => it.step(*tenant, *event, now).into(),
            (Decider::Stages(it), DeciderEvent::Stages(seen)) => it.step(seen, now).into(),
            (Decider::Clocks(it), DeciderEvent::Clocks(seen)) => it.step(seen, now).into(),
            (Decider::Backlog(it), DeciderEvent::Backlog(seen)) => it.step(seen).into(),
            _ => DeciderAnswer::Nothing,
        }
    }
}

impl DeciderSetup {
    /// The decider's subject, for people to read.
    pub fn about(&self) -> String {
        match self {
            DeciderSetup::Tasks(_) => "the knobs of tasks".into(),
            DeciderSetup::Updates(_) => "admission".into(),
            DeciderSetup::Lending { core, .. } => format!("lending core {core}"),
            DeciderSetup::Stages { policy, .. } => format!("where stages run, asked of {}", policy.name()),
            DeciderSetup::Clocks(_) => "the clocks beneath stages".into(),
            DeciderSetup::Backlog(ground) => format!("the bound of the backlog of {}", ground.offers.machine),
        }
    }
}

impl DeciderAnswer {
    /// The knobs that the answer turns.
    pub fn plan(&self) -> Option<&Plan> {
        match self {
            DeciderAnswer::Step(step) => Some(&step.plan),
            DeciderAnswer::Plan(plan) => Some(plan),
            _ => None,
        }
    }
}

impl From<Event> for DeciderEvent {
    fn from(event: Event) -> DeciderEvent {
        DeciderEvent::Tasks(Box::new(event))
    }
}

impl From<ClocksSeen> for DeciderEvent {
    fn from(seen: ClocksSeen) -> DeciderEvent {
        DeciderEvent::Clocks(Box::new(seen))
    }
}

impl From<BacklogSeen> for DeciderEvent {
    fn from(seen: BacklogSeen) -> DeciderEvent {
        DeciderEvent::Backlog(Box::new(seen))
    }
}

impl From<Option<Answer>> for DeciderAnswer {
    fn from(answer: Option<Answer>) -> DeciderAnswer {
        match answer {
            None => DeciderAnswer::Nothing,
            Some(Answer::Step(step)) => DeciderAnswer::Step(Box::new(step)),
            Some(Answer::Turn(plan)) => plan.into(),
        }
    }
}

impl From<Plan> for DeciderAnswer {
    fn from(plan: Plan) -> DeciderAnswer {
        DeciderAnswer::Plan(Box::new(plan))
    }
}

impl From<bool> for DeciderAnswer {
    fn from(yes: bool) -> DeciderAnswer {
        DeciderAnswer::Yes(yes)
    }
}

impl From<Reconfiguration> for DeciderAnswer {
    fn from(answer: Reconfiguration) -> DeciderAnswer {
        DeciderAnswer::Stages(Box::new(answer))
    }
}
