//! The log of a run, and its replay: the same events through a fresh policy must give the same decisions.
//!
//! Policies decide during a run: the [`Regulator`] where the knobs go, admission ([`Updates`]) which sensor updates are
//! admitted, and on Linux the tasks of each exclusive core ([`Tenants`](punctual_cores::Tenants)) when it is lent, at
//! the very instants at which a job ends or begins. Where stages of a pipeline run is decided by a
//! [`Coordinator`](punctual_allocation::mapping::Coordinator), period by period, and the clocks beneath them by
//! [`Clocks`](crate::Clocks). One log holds the events and answers of each in their own order, and nothing but values.

use punctual_allocation::mapping::{MappingError, MappingLog};
use punctual_cores::LendingLog;
pub use punctual_store::updates::AdmissionEvent;
use punctual_store::updates::{AdmissionOptions, Receipt, SensorSpec, Updates};
use punctual_units::Time;
use serde::{Deserialize, Serialize};

use crate::backlog::{BacklogError, BacklogLog};
use crate::clocks::ClockLog;
use crate::document::{Mismatch, ModelError};
use crate::event::{Answer, Event};
use crate::tick::{Regulator, RegulatorOptions};

/// The version of the logs that this program writes and replays. It changes with what events and answers hold: 2 has
/// plans as lists of knobs, 3 has decisions about cache ways, bandwidth, and lending cores, 4 about where stages of a
/// pipeline run, 5 about the bounds of backlogs; 6 has the least share of updates that keeps data fresh; 7
/// the shortest delay of installations beside the longest.
pub const LOG_VERSION: u32 = 7;

fn first_version() -> u32 {
    1
}

/// Kind that a log file states first.
pub const LOG_KIND: &str = "punctual-log";

/// Why a log cannot be replayed.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ReplayError {
    /// Another version of this program wrote it.
    #[error(
        "the log has version {0}, this program replays version {LOG_VERSION}: replay it with the program that wrote it, or record the \
         run again"
    )]
    Version(u32),
    /// The logged options make no regulator.
    #[error(transparent)]
    Mismatch(#[from] Mismatch),
    /// Decisions on where stages run that are of another pipeline.
    #[error(transparent)]
    Mapping(#[from] MappingError),
    /// The logged bounds of a backlog have no law.
    #[error(transparent)]
    Backlog(#[from] BacklogError),
    /// The logged clocks have no law.
    #[error("{0}")]
    Clocks(String),
}

impl From<ModelError> for ReplayError {
    fn from(error: ModelError) -> ReplayError {
        ReplayError::Clocks(error.to_string())
    }
}

/// All events of one run with the decisions they led to.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EventLog {
    /// [`LOG_VERSION`] of the program that wrote it; 1 where it does not say.
    #[serde(default = "first_version")]
    pub version: u32,
    /// Options of the regulator; `None` where a pipeline ran without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub regulator: Option<RegulatorOptions>,
    /// Every event of the regulator, its time, and the answer.
    pub steps: Vec<Decision>,
    /// Sensors and options of admission.
    pub admission: AdmissionSetup,
    /// Every event of admission, and its verdict.
    pub updates: Vec<AdmissionEvent>,
    /// Decisions about lending each exclusive core.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lending: Vec<LendingLog>,
    /// Decisions about where stages of a pipeline run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mapping: Option<MappingLog>,
    /// Decisions about the clocks beneath the pipeline.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clocks: Option<ClockLog>,
    /// Decisions about the bound of each node's backlog.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub backlogs: Vec<BacklogLog>,
}

/// An event of the regulator, and the answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Decision {
    /// When the regulator was stepped.
    pub now: Time,
    pub event: Event,
    pub answer: Option<Answer>,
}

/// Sensors and options of admission.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct AdmissionSetup {
    /// Period and validity of each sensor.
    pub sensors: Vec<SensorSpec>,
    /// Minimum, shedding and margin of admission.
    pub options: AdmissionOptions,
}

impl EventLog {
    /// How many decisions the log holds: the regulator's answers, and the verdicts of admission.
    pub fn decisions(&self) -> usize {
        let offered = |event: &&AdmissionEvent| matches!(event, AdmissionEvent::Offered { .. });
        let loops = self.steps.len() + self.updates.iter().filter(offered).count();
        loops + self.lendings() + self.mappings() + self.clocks() + self.backlogs()
    }

    /// How many decisions about the clocks beneath a pipeline the log holds.
    pub fn clocks(&self) -> usize {
        self.clocks.as_ref().map_or(0, |log| log.decisions.len())
    }

    /// How many decisions about the bounds of backlogs the log holds.
    pub fn backlogs(&self) -> usize {
        self.backlogs.iter().map(|log| log.decisions.len()).sum()
    }

    /// A log of federated nodes alone.
    pub fn of_backlogs(backlogs: Vec<BacklogLog>) -> EventLog {
        EventLog {
            version: LOG_VERSION,
            regulator: None,
            steps: Vec::new(),
            admission: AdmissionSetup::default(),
            updates: Vec::new(),
            lending: Vec::new(),
            mapping: None,
            clocks: None,
            backlogs,
        }
    }

    /// How many decisions about where stages run the log holds.
    pub fn mappings(&self) -> usize {
        self.mapping.as_ref().map_or(0, |log| log.decisions.len())
    }

    /// How many decisions about where stages run cannot be taken again, because earlier ones are missing.
    pub fn gaps(&self) -> usize {
        let gaps = |log: &MappingLog| log.replayed().filter(Option::is_none).count();
        self.mapping.as_ref().map_or(0, gaps)
    }

    /// A log of a pipeline alone.
    pub fn of_pipeline(mapping: MappingLog, clocks: Option<ClockLog>) -> EventLog {
        EventLog {
            version: LOG_VERSION,
            regulator: None,
            steps: Vec::new(),
            admission: AdmissionSetup::default(),
            updates: Vec::new(),
            lending: Vec::new(),
            mapping: Some(mapping),
            clocks,
            backlogs: Vec::new(),
        }
    }

    /// How many decisions about lending exclusive cores the log holds.
    pub fn lendings(&self) -> usize {
        self.lending.iter().map(|log| log.decisions.len()).sum()
    }

    /// How many times cores were given other ways and bandwidth.
    pub fn splits(&self) -> usize {
        let split = |step: &&Decision| matches!(step.event, Event::Jobs { .. }) && step.answer.is_some();
        self.steps.iter().filter(split).count()
    }
}

/// A decision that the replay takes differently.
#[derive(Clone, Debug, PartialEq)]
pub struct Difference {
    /// Index into [`EventLog::steps`], [`EventLog::updates`], or the decisions of one of [`EventLog::lending`], of
    /// [`EventLog::mapping`], of [`EventLog::clocks`] or of one of [`EventLog::backlogs`].
    pub index: usize,
    /// The logged and the replayed decision.
    pub what: String,
}

/// Replays `log` through fresh policies and returns every decision that differs; empty means that all are identical.
///
/// # Errors
/// [`ReplayError`] where the log has another version, its options make no regulator, or its decisions on where stages
/// run are of another pipeline.
pub fn replay(log: &EventLog) -> Result<Vec<Difference>, ReplayError> {
    if log.version != LOG_VERSION {
        return Err(ReplayError::Version(log.version));
    }
    let mut differences = Vec::new();
    let mut regulator = log.regulator.clone().map(Regulator::new).transpose()?;
    for (index, logged) in log.steps.iter().enumerate() {
        let answer = { regulator.as_mut() }.and_then(|regulator| regulator.step(&logged.event, logged.now));
        if answer != logged.answer {
            differences.push(Difference {
                index,
                what: format!("logged {:?}, replayed {answer:?}", logged.answer),
            });
        }
    }
    let mut admission = Updates::new(&log.admission.sensors, log.admission.options);
    for (index, event) in log.updates.iter().enumerate() {
        match event {
            AdmissionEvent::Share(share) => admission.set_admitted_share(*share),
            AdmissionEvent::Delay(delay) => admission.set_delay(*delay),
            AdmissionEvent::Rebalanced(reads) => {
                // A log that was tampered with may hold too few.
                admission.rebalance(|sensor| reads.get(sensor.index()).copied().unwrap_or(0));
            }
            AdmissionEvent::Registered(spec) => admission.add_sensor(*spec),
            AdmissionEvent::Direct {
                sensor,
                sampled_at,
                now,
            } => {
                // A log that was tampered with may name a sensor that does not exist.
                if let Ok(update) = admission.admit_directly(*sensor, *sampled_at, *now) {
                    admission.installed(&update, *now);
                }
            }
            AdmissionEvent::Offered {
                sensor,
                seq,
                sampled_at,
                now,
                admitted,
            } => {
                let verdict = admission.offer(*sensor, *seq, *sampled_at, &[], *now);
                if verdict != Ok(if *admitted { Receipt::Admitted } else { Receipt::Shed }) {
                    let what =
                        format!("sensor {sensor} update {seq}: logged admitted={admitted}, replayed {verdict:?}");
                    differences.push(Difference { index, what });
                }
            }
        }
    }
    for log in &log.lending {
        for (index, (logged, answer)) in log.decisions.iter().zip(log.replayed()).enumerate() {
            if logged.answer != answer {
                let what = format!("core {}: logged {logged:?}, replayed {answer}", log.core);
                differences.push(Difference { index, what });
            }
        }
    }
    if let Some(log) = &log.mapping {
        log.check()?;
        differences.extend(other_mappings(log));
    }
    if let Some(log) = &log.clocks {
        differences.extend(other_clocks(log)?);
    }
    for log in &log.backlogs {
        differences.extend(other_bounds(log)?);
    }
    Ok(differences)
}

/// Decisions about the bound of a backlog that the replay takes differently.
fn other_bounds(log: &BacklogLog) -> Result<Vec<Difference>, BacklogError> {
    let pairs = log.decisions.iter().zip(log.replayed()?).enumerate();
    let others = pairs.filter(|(_, (logged, plan))| logged.plan != *plan);
    let told = others.map(|(index, (logged, plan))| Difference {
        index,
        what: format!("bound of the backlog: logged {:?}, replayed {plan:?}", logged.plan),
    });
    Ok(told.collect())
}

/// Decisions about clocks that the replay takes differently.
fn other_clocks(log: &ClockLog) -> Result<Vec<Difference>, ModelError> {
    let pairs = log.decisions.iter().zip(log.replayed()?).enumerate();
    let others = pairs.filter(|(_, (logged, plan))| logged.plan != *plan);
    let told = others.map(|(index, (logged, plan))| Difference {
        index,
        what: format!(
            "clocks beneath the pipeline: logged {:?}, replayed {plan:?}",
            logged.plan
        ),
    });
    Ok(told.collect())
}

/// Decisions about where stages run that the replay takes differently. Decisions after a gap of the log cannot be
/// compared.
fn other_mappings(log: &MappingLog) -> impl Iterator<Item = Difference> {
    let pairs = log.decisions.iter().zip(log.replayed()).enumerate();
    pairs.filter_map(|(index, (logged, answer))| {
        let answer = answer.filter(|answer| *answer != logged.answer)?;
        let what = format!(
            "where stages run, asked of {}: logged {:?}, replayed {answer:?}",
            logged.policy.name(),
            logged.answer
        );
        Some(Difference { index, what })
    })
}
