//! A user's request for a split, and why the machine cannot serve it.

use std::collections::BTreeMap;

use punctual_allocation::{Policy, Profile, Programs, Refill, SplitError};
use punctual_cores::Placement;
use punctual_units::{CoreId, Nanos};
use punctual_workload::TaskSpec;

/// Which policy splits ways and bandwidth.
#[derive(Clone, Debug, PartialEq)]
pub struct AllocationRequest {
    /// The policy that decides.
    pub policy: Policy,
    /// When another split is taken up.
    pub changes: Changes,
    /// Tasks by name, and the profiles of what they compute; what they access in the store is as in the scenario.
    pub profiles: Vec<(String, Profile)>,
    /// Cost of a gained way; `None`: free.
    pub refill: Option<Refill>,
}

/// When a split that differs from the one in force is taken up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Changes {
    /// Where it saves more than the refilling of gained ways costs ([`punctual_allocation::hysteresis`]); always, where
    /// that costs nothing.
    #[default]
    Paying,
    /// Whenever the policy has another one, as in the fifth paper; refilling still costs.
    Every,
}

/// Why nothing can be allocated.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{0}")]
pub struct AllocationError(pub String);

/// Profiles that cannot be compiled, or that the machine cannot run.
impl From<SplitError> for AllocationError {
    fn from(error: SplitError) -> AllocationError {
        AllocationError(format!("profiles: {error}"))
    }
}

impl AllocationRequest {
    /// Refuses a profile of no task, and two of one task.
    pub(super) fn check_names(&self, tasks: &[TaskSpec]) -> Result<(), AllocationError> {
        for (number, (task, _)) in self.profiles.iter().enumerate() {
            if self.profiles[..number].iter().any(|(other, _)| other == task) {
                return Err(AllocationError(format!(
                    "two profiles are given for the task \"{task}\": give one"
                )));
            }
        }
        let unknown = |task: &str| !tasks.iter().any(|spec| spec.name == task);
        match self.profiles.iter().find(|(task, _)| unknown(task)) {
            None => Ok(()),
            Some((task, _)) => {
                let names: Vec<&str> = tasks.iter().map(|spec| spec.name.as_str()).collect();
                Err(AllocationError(format!(
                    "a profile is given for the task \"{task}\", which the scenario does not have: its tasks are {}",
                    names.join(", ")
                )))
            }
        }
    }
}

/// Refuses real-time tasks whose jobs come faster than any share of the machine could let them end on the cores where
/// they were placed.
pub(super) fn check_lengths(
    tasks: &[TaskSpec],
    program_of: &[Option<usize>],
    programs: &Programs,
    placement: &Placement,
) -> Result<(), AllocationError> {
    let all = programs.grid().all();
    let mut utilisation: BTreeMap<CoreId, f64> = BTreeMap::new();
    for ((task, program), seat) in tasks.iter().zip(program_of).zip(&placement.seats) {
        let Some(window) = task.window() else { continue };
        let mut add = |needs: Nanos| {
            seat.cores()
                .iter()
                .for_each(|core| *utilisation.entry(*core).or_default() += needs.ratio(window))
        };
        let Some(program) = *program else {
            add(task.demand.compute + task.demand.data);
            continue;
        };
        let takes = Nanos::from_secs_f64(programs.duration(program, all));
        if takes >= window {
            return Err(AllocationError(format!(
                "a goal out of reach: with all ways and the whole bandwidth, at full clock, one job of \"{}\" computes \
                 for {takes} as its profile says, but the next one is released after {window}; give it a longer \
                 period, or the profile of a shorter program",
                task.name
            )));
        }
        add(takes + task.demand.data);
    }
    if let Some(load) = utilisation.into_values().find(|load| *load >= 1.0) {
        let percent = load * 100.0;
        return Err(AllocationError(format!(
            "a goal out of reach: the real-time tasks together need {percent:.0} % of their core even with all ways, \
             the whole bandwidth and the full clock; give them longer periods, or profiles of shorter programs"
        )));
    }
    Ok(())
}
