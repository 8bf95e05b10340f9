//! The cores of a pipeline beside the real-time work of other programs, and what it announces to them.
//!
//! Where the caller names no cores, stages get those on which no other program has real-time work, if there are any;
//! a core that another program has for itself alone is never theirs. Stages with a real-time priority are announced on
//! each core of the pipeline, because each may migrate there, as work of unknown length.

use punctual_platform::Refusal;
use punctual_platform::linux::AnnouncedTask;
use punctual_platform::linux::journal::{Journal, Others};
use punctual_units::CoreId;

use super::{CORES_MAX, PipelineOptions, chosen};
use crate::linux::PipelineError;

/// Real-time work of other programs on the cores of a pipeline.
#[derive(Debug)]
pub(super) struct Announcement {
    /// Announces the stages until it is dropped; `None`: they have no real-time priority, or there is no ledger.
    announces: Option<Journal>,
    /// Work of other programs there at the start, and the reason why nothing is announced.
    found: Vec<Refusal>,
}

impl Announcement {
    /// Chooses the cores of a pipeline, and announces its stages if they are real-time ones.
    ///
    /// # Errors
    /// [`PipelineError::Machine`] if another program has a named core for itself alone; it names the program.
    pub(super) fn place(options: &PipelineOptions) -> Result<(Vec<CoreId>, Announcement), PipelineError> {
        let mut usable = chosen(&options.cores)?;
        let journal = match Journal::open(false) {
            Ok(journal) => journal,
            Err(why) => {
                let (announces, found) = (None, vec![why]);
                usable.truncate(CORES_MAX);
                return Ok((usable, Announcement { announces, found }));
            }
        };
        let decided = journal.announce(|others| {
            let mut cores = beside(&usable, !options.cores.is_empty(), others)?;
            cores.truncate(CORES_MAX);
            let task = |core: &CoreId| AnnouncedTask {
                core: *core,
                execution: None,
                deadline: crate::STEP_MAX,
                period: crate::STEP_MAX,
            };
            let tasks = options
                .priority
                .map_or_else(Vec::new, |_| cores.iter().map(task).collect());
            let found = shared(&cores, others);
            Ok::<_, PipelineError>((tasks, (cores, found)))
        });
        let ((cores, mut found), full) = decided?;
        found.extend(full);
        let announces = options.priority.map(|_| journal);
        Ok((cores, Announcement { announces, found }))
    }

    /// Work of other programs on these cores: at the start, and since.
    pub(super) fn told(&self) -> Vec<Refusal> {
        let joined = self.announces.as_ref().and_then(Journal::joined);
        self.found.iter().cloned().chain(joined).collect()
    }
}

/// The cores that stages get, of the `usable` or of the `named` ones.
fn beside(usable: &[CoreId], named: bool, others: &Others) -> Result<Vec<CoreId>, Refusal> {
    let claimed = |core: &CoreId| others.claims.iter().find(|(claimed, _)| claimed == core);
    if named {
        let claimed = usable.iter().find_map(claimed);
        return claimed.map_or_else(|| Ok(usable.to_vec()), |(_, refusal)| Err(refusal.clone()));
    }
    let busy = |core: &CoreId| others.tasks.iter().any(|(task, _)| task.core == *core);
    let those = |meant: &dyn Fn(&CoreId) -> bool| -> Vec<CoreId> { usable.iter().copied().filter(meant).collect() };
    let open = those(&|core| claimed(core).is_none());
    let quiet = those(&|core| claimed(core).is_none() && !busy(core));
    let found = [quiet, open].into_iter().find(|cores| !cores.is_empty());
    Ok(found.unwrap_or_else(|| usable.to_vec()))
}

/// Entries for the cores that other programs have real-time work on.
fn shared(cores: &[CoreId], others: &Others) -> Vec<Refusal> {
    let one = |core: &CoreId| {
        let (_, process) = others.tasks.iter().find(|(task, _)| task.core == *core)?;
        Some(Refusal {
            what: format!("core {core} for the stages of this run only"),
            why: format!("{process} has real-time work there"),
            remedy:
                "name other cores (pipeline.cores), give each program cores of its own (taskset -c), or run one at a \
                     time"
                    .into(),
        })
    };
    cores.iter().filter_map(one).collect()
}

#[cfg(test)]
mod tests {
    use punctual_units::Nanos;

    use super::*;

    const MS: Nanos = Nanos::from_millis(1);

    fn cores(numbers: &[u32]) -> Vec<CoreId> {
        numbers.iter().copied().map(CoreId).collect()
    }

    fn others(tasks: &[u32], claims: &[u32]) -> Others {
        let task = |core: CoreId| AnnouncedTask {
            core,
            execution: Some(MS),
            deadline: MS * 10,
            period: MS * 10,
        };
        let refusal = Refusal {
            what: "core".into(),
            why: "taken".into(),
            remedy: "wait".into(),
        };
        Others {
            tasks: { cores(tasks).into_iter() }
                .map(|core| (task(core), "vehicle (process 77)".into()))
                .collect(),
            claims: cores(claims).into_iter().map(|core| (core, refusal.clone())).collect(),
            ..Others::default()
        }
    }

    #[test]
    fn stages_get_the_cores_without_real_time_work_of_others_if_there_are_any() {
        let all = cores(&[0, 1, 2]);
        let open = |tasks: &[u32], claims: &[u32]| beside(&all, false, &others(tasks, claims)).unwrap();
        assert_eq!(open(&[], &[]), all);
        assert_eq!(open(&[2], &[]), cores(&[0, 1]));
        assert_eq!(open(&[2], &[1]), cores(&[0]));
        assert_eq!(open(&[0, 2], &[1]), cores(&[0, 2]), "not the one that is claimed");
        let shared = shared(&cores(&[0, 2]), &others(&[0, 2], &[1]));
        assert!(
            shared.len() == 2 && shared[0].why.contains("vehicle (process 77)"),
            "{shared:?}"
        );
    }

    #[test]
    fn named_cores_are_kept_or_refused() {
        let named = cores(&[1, 2]);
        assert_eq!(beside(&named, true, &others(&[2], &[0])).unwrap(), named);
        assert_eq!(beside(&named, true, &others(&[], &[2])).unwrap_err().why, "taken");
    }
}
