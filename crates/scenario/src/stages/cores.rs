//! The cores of stages beside tasks: no stage runs on a core that an exclusive task gets.
//!
//! Stages start before the tasks are placed, because their processes are forked. So the placement is computed once
//! before that, without the stages' cores for exclusive tasks; the run then takes exclusive cores only among the others
//! ([`Neighbours::stages`]).

use punctual_cores::{Limits, PlaceError, Placement, PlacementRequest, place};
use punctual_platform::Neighbours;
use punctual_platform::linux::recovery::{self, Holding};
use punctual_platform::linux::{KernelTree, cores};
use punctual_runtime::linux::limits_beside;
use punctual_units::CoreId;
use punctual_workload::{Class, Problem, Scenario};

use super::StagesSpec;
use crate::linux::unfit_cores;

/// The cores on which the stages of `scenario` that may move run beside its tasks.
///
/// # Errors
/// The key of the core that both an exclusive task, of this or another program, and a stage would have.
pub fn stage_cores(spec: &StagesSpec, scenario: &Scenario, neighbours: &Neighbours) -> Result<Vec<CoreId>, Problem> {
    let found = recovery::look(&recovery::folder()).unwrap_or_default();
    let own = std::process::id() as i32;
    let others = found.holders.into_iter().filter(|it| it.alive && it.process != own);
    let all = Cores {
        usable: cores::usable(&KernelTree::default()),
        others: others.collect(),
        limits: limits_beside(neighbours).map_err(|refusal| unfit_cores(&refusal))?,
    };
    let tasks = scenario.tasks.iter();
    let tasks: Vec<_> = tasks
        .map(|task| (task.name.clone(), PlacementRequest::from(task)))
        .collect();
    all.of_stages(spec, &tasks)
}

/// As [`stage_cores`] on a simulated machine with the cores `all` (none without stages); and limits that keep exclusive
/// tasks off named cores.
pub(crate) fn simulated_cores(
    spec: &StagesSpec,
    tasks: &[(String, PlacementRequest)],
    all: &[CoreId],
) -> Result<(Vec<CoreId>, Limits), Problem> {
    if spec.stages.is_empty() {
        return Ok((Vec::new(), Limits::default()));
    }
    let machine = Cores {
        usable: all.to_vec(),
        others: Vec::new(),
        limits: Limits::default(),
    };
    let named: Vec<CoreId> = named(spec).iter().map(|(core, _)| *core).collect();
    Ok((machine.of_stages(spec, tasks)?, machine.limits(all, &named)))
}

/// The cores of this machine, with what other programs have there.
struct Cores {
    usable: Vec<CoreId>,
    others: Vec<Holding>,
    limits: Limits,
}

impl Cores {
    fn of_stages(&self, spec: &StagesSpec, tasks: &[(String, PlacementRequest)]) -> Result<Vec<CoreId>, Problem> {
        let named = named(spec);
        for (core, key) in &named {
            if !self.usable.contains(core) {
                let what = PlaceError::no_such_core(0, *core, &self.usable).to_string();
                return Err(Problem { key: key.clone(), what });
            }
            let owner = self.others.iter().find(|other| other.exclusive.contains(core));
            if let Some(Holding { name, process, .. }) = owner {
                let what = format!(
                    "core {core} is taken: {name} (process {process}) has it for itself alone; name another core, or wait \
                     until that program has ended (punctual doctor)"
                );
                return Err(Problem { key: key.clone(), what });
            }
        }
        let taken: Vec<CoreId> = self.others.iter().flat_map(|other| other.exclusive.clone()).collect();
        let mut free = self.usable.clone();
        free.retain(|core| !taken.contains(core));
        let shared = |core: &CoreId| self.others.iter().any(|other| other.shared.contains(core));
        let quiet: Vec<CoreId> = free.iter().copied().filter(|core| !shared(core)).collect();
        let without_tasks = || {
            let choices = [&spec.cores, &quiet, &free, &self.usable];
            choices
                .into_iter()
                .find(|cores| !cores.is_empty())
                .cloned()
                .unwrap_or_default()
        };
        let exclusive = |(_, task): &&(String, PlacementRequest)| matches!(task.class, Class::Exclusive { .. });
        let Some((first, _)) = tasks.iter().find(exclusive) else {
            return Ok(without_tasks());
        };
        let clash = { tasks.iter().filter(exclusive) }.find_map(|(name, task)| {
            let (core, key) = named.iter().find(|(core, _)| task.core == Some(*core))?;
            Some(crowded(key, *core, name))
        });
        if let Some(clash) = clash {
            return Err(clash);
        }
        let requests: Vec<PlacementRequest> = tasks.iter().map(|(_, request)| *request).collect();
        let cores: Vec<CoreId> = named.iter().map(|(core, _)| *core).collect();
        // A contradiction between tasks is reported by the run, with its key.
        let (Ok(alone), Ok(beside)) = (self.place(&requests, &free, &[]), self.place(&requests, &free, &cores)) else {
            return Ok(without_tasks());
        };
        let lost = alone.exclusive.iter().find(|core| !beside.exclusive.contains(core));
        let clash = lost.and_then(|core| named.iter().find(|(named, _)| named == core));
        if let (true, Some((core, key))) = (beside.refused.len() > alone.refused.len(), clash) {
            let new = |task: &&(usize, _)| !alone.refused.iter().any(|(before, _)| *before == task.0);
            let refused = beside.refused.iter().find(new).and_then(|(task, _)| tasks.get(*task));
            return Err(crowded(key, *core, refused.map_or(first, |(name, _)| name)));
        }
        let mut left = without_tasks();
        left.retain(|core| !beside.exclusive.contains(core));
        Ok(left)
    }

    /// Places tasks on `free` cores, of which none of `stages` becomes exclusive.
    fn place(&self, tasks: &[PlacementRequest], free: &[CoreId], stages: &[CoreId]) -> Result<Placement, PlaceError> {
        place(tasks, free, &self.limits(free, stages))
    }

    fn limits(&self, free: &[CoreId], stages: &[CoreId]) -> Limits {
        let mut limits = self.limits.clone();
        let exclusive = limits
            .exclusive
            .get_or_insert_with(|| free.iter().rev().copied().collect());
        exclusive.retain(|core| !stages.contains(core));
        let theirs = self.others.iter().flat_map(|other| &other.shared);
        limits.beside.extend(theirs.map(|core| (*core, None)));
        limits
    }
}

/// The cores that the file names for stages, with their keys.
fn named(spec: &StagesSpec) -> Vec<(CoreId, String)> {
    let listed = spec.cores.iter().map(|core| (*core, "pipeline.cores".to_owned()));
    let stages = spec.stages.iter().enumerate();
    let of_stages = stages.filter_map(|(number, stage)| Some((stage.core?, format!("stage[{number}].core"))));
    // A stage's own core is among the listed ones, where there is a list.
    of_stages.chain(listed).collect()
}

/// Problem of a core that an exclusive task and a stage both have.
fn crowded(key: &str, core: CoreId, task: &str) -> Problem {
    let what = format!(
        "the exclusive task \"{task}\" needs core {core}, which only exclusive tasks can have; name another core here, \
             or give the task class = \"real-time\""
    );
    Problem::new(key, what)
}

#[cfg(test)]
mod tests {
    use punctual_units::Nanos;
    use punctual_workload::Arrival;

    use super::*;

    fn task(class: fn(Nanos) -> Class, core: Option<u32>) -> (String, PlacementRequest) {
        let ms = Nanos::from_millis;
        let request = PlacementRequest {
            class: class(ms(8)),
            arrival: Arrival::Periodic { period: ms(10) },
            execution: Some(ms(1)),
            core: core.map(CoreId),
            cores: None,
        };
        ("control".into(), request)
    }

    fn exclusive(core: Option<u32>) -> (String, PlacementRequest) {
        task(|deadline| Class::Exclusive { deadline }, core)
    }

    /// The cores of stages that name `named` on a machine with `count` cores.
    fn on(
        count: u32,
        named: &[u32],
        tasks: &[(String, PlacementRequest)],
        others: Vec<Holding>,
    ) -> Result<Vec<u32>, String> {
        let all = Cores {
            usable: (0..count).map(CoreId).collect(),
            others,
            limits: Limits::default(),
        };
        let spec = StagesSpec {
            cores: named.iter().copied().map(CoreId).collect(),
            ..StagesSpec::default()
        };
        let cores = all.of_stages(&spec, tasks);
        cores
            .map(|cores| cores.iter().map(|core| core.0).collect())
            .map_err(|problem| problem.to_string())
    }

    #[test]
    fn stages_and_exclusive_tasks_get_different_cores() {
        let tasks = [exclusive(None)];
        assert_eq!(on(4, &[], &tasks, Vec::new()), Ok(vec![0, 1, 2]));
        assert_eq!(
            on(2, &[1], &tasks, Vec::new()),
            Ok(vec![1]),
            "core 0 is left to the task"
        );
        assert_eq!(
            on(4, &[2, 3], &tasks, Vec::new()),
            Ok(vec![2, 3]),
            "core 1 is left to the task"
        );
        let real_time = [task(|deadline| Class::RealTime { deadline }, None)];
        assert_eq!(on(2, &[1], &real_time, Vec::new()), Ok(vec![1]));
    }

    #[test]
    fn a_core_that_both_need_is_refused_by_its_key() {
        for (named, task) in [(&[0, 1, 2, 3][..], exclusive(None)), (&[2], exclusive(Some(2)))] {
            let refused = on(4, named, &[task], Vec::new()).unwrap_err();
            assert!(
                refused.starts_with("pipeline.cores") && refused.contains("\"control\""),
                "{refused}"
            );
        }
    }

    #[test]
    fn a_core_that_is_not_there_is_refused_by_its_key() {
        let refused = on(2, &[9], &[], Vec::new()).unwrap_err();
        assert!(
            refused.starts_with("pipeline.cores: there is no core 9 here; name one of cores 0 to 1"),
            "{refused}"
        );
    }

    #[test]
    fn a_core_with_real_time_work_of_another_program_is_left_to_it_if_there_is_another_one() {
        let other = |shared: &[u32]| Holding {
            name: "radio".into(),
            process: 77,
            alive: true,
            exclusive: Vec::new(),
            shared: shared.iter().copied().map(CoreId).collect(),
            changes: 0,
        };
        assert_eq!(on(4, &[], &[], vec![other(&[3])]), Ok(vec![0, 1, 2]));
        assert_eq!(on(2, &[], &[], vec![other(&[0, 1])]), Ok(vec![0, 1]));
        assert_eq!(on(2, &[1], &[], vec![other(&[1])]), Ok(vec![1]), "named");
    }

    #[test]
    fn a_core_that_another_program_has_alone_is_no_core_of_stages() {
        let other = || Holding {
            name: "radio".into(),
            process: 77,
            alive: true,
            exclusive: vec![CoreId(3)],
            shared: Vec::new(),
            changes: 0,
        };
        assert_eq!(on(4, &[], &[], vec![other()]), Ok(vec![0, 1, 2]));
        let refused = on(4, &[3], &[], vec![other()]).unwrap_err();
        assert!(
            refused.starts_with("pipeline.cores") && refused.contains("process 77"),
            "{refused}"
        );
    }
}
