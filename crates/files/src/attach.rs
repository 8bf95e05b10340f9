//! Files of `punctual attach`: tasks whose jobs other programs report, and what may be set for them.

use std::path::{Path, PathBuf};

use punctual_cores::PlaceError;
use punctual_platform::linux::{KernelTree, cores};
use punctual_platform::{Neighbours, Observation, ThreadSelector, WaitCall};
use punctual_toml::{Section, read_checked};
use punctual_units::{CoreId, Nanos, Share};
use punctual_workload::TaskGoal;

use crate::document;
use crate::failure::Failure;
use crate::scenario::{groups, neighbours, task_goal};

/// Most tasks of a file: each keeps its figures, 300 kB.
const TASKS_MAX: usize = 128;
/// Longest name of a task, in bytes: that of a report.
const NAME_BYTES_MAX: usize = 63;

/// A file of `punctual attach`.
#[derive(Clone, Debug, PartialEq)]
pub struct AttachFile {
    /// Folder in which the programs report; `None`: that of this user.
    pub reports: Option<PathBuf>,
    /// Time until the run ends; `None`: until Ctrl-C.
    pub duration: Option<Nanos>,
    /// The tasks, at least one.
    pub tasks: Vec<AttachTask>,
    /// How exclusive cores are taken, as in a scenario.
    pub neighbours: Neighbours,
    /// Control groups of other programs that are bounded, as `/proc/PID/cgroup` names them.
    pub groups: Vec<PathBuf>,
    /// Largest share of their cores that each of these groups may use.
    pub most: Share,
    /// Share to which the loop may reduce that while a task misses its goal; `None`: not below `most`.
    pub least: Option<Share>,
}

/// A task whose jobs other programs report, or the kernel tells.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AttachTask {
    /// Name of the task, by which it is reported.
    pub name: String,
    /// Time from a job's release to its deadline; `None`: as its program states.
    pub deadline: Option<Nanos>,
    /// Time between two releases; `None`: as its program states, if it does.
    pub period: Option<Nanos>,
    /// Goal; `None`: 1 % of jobs may be late.
    pub goal: Option<TaskGoal>,
    /// How its threads are to run.
    pub class: AttachClass,
    /// Core to run on; `None`: placement chooses one.
    pub core: Option<CoreId>,
    /// Longest time for which a job keeps its core; `None`: unknown.
    pub execution: Option<Nanos>,
    /// How its jobs are observed; `None`: its programs report them.
    pub observation: Option<Observation>,
}

/// How the threads that report a task are to run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AttachClass {
    /// With the scheduling and the cores that they have.
    #[default]
    AsFound,
    /// On a core, at a real-time priority.
    RealTime,
    /// Likewise, on a core that no other thread may use.
    Exclusive,
}

/// Reads the file at `path`.
///
/// # Errors
/// [`Failure::Input`] with all problems of the file.
pub fn load(path: &Path) -> Result<AttachFile, Failure> {
    document::load(path, "a file of tasks to attach to", |text, shown| {
        read_checked(text, shown, read, faults)
    })
}

fn read(top: &mut Section<'_, '_>) -> AttachFile {
    let (groups, most, least) = top.table("best_effort", |section| {
        let groups = groups(section, "groups");
        (groups, section.percent("share"), section.percent("least"))
    });
    AttachFile {
        groups,
        most: most.unwrap_or(Share::ONE),
        least,
        reports: top.text("reports").map(PathBuf::from),
        duration: top.time("duration"),
        tasks: top.tables("task", task),
        neighbours: top.table("exclusive", neighbours),
    }
}

fn task(section: &mut Section<'_, '_>) -> AttachTask {
    let classes = [
        ("real-time", AttachClass::RealTime),
        ("exclusive", AttachClass::Exclusive),
    ];
    AttachTask {
        name: section.needed("name", Section::text),
        deadline: section.time("deadline"),
        period: section.time("period"),
        goal: task_goal(section),
        class: section.choice("class", &classes).unwrap_or_default(),
        core: section.count("core").map(CoreId),
        execution: section.time("takes_at_most"),
        observation: observation(section),
    }
}

fn observation(section: &mut Section<'_, '_>) -> Option<Observation> {
    let call = section.choice("observe", &WaitCall::NAMED);
    let threads = ThreadSelector {
        program: section.text("program"),
        thread: section.text("thread"),
        group: section.text("group"),
    };
    (call.is_some() || !threads.is_empty()).then_some(Observation { call, threads })
}

fn faults(file: &AttachFile) -> Vec<(String, String)> {
    let mut faults = Vec::new();
    let mut add = |key: String, what: &str| faults.push((key, what.to_owned()));
    if file.tasks.is_empty() {
        add("task".into(), "missing: name at least one task, under [[task]]");
    }
    if file.tasks.len() > TASKS_MAX {
        add(
            "task".into(),
            &format!("{} tasks, at most {TASKS_MAX}", file.tasks.len()),
        );
    }
    let least = file.least.unwrap_or(file.most);
    if file.groups.is_empty() && (file.most < Share::ONE || file.least.is_some()) {
        add(
            "best_effort.groups".into(),
            "missing: name the control groups that are bounded",
        );
    }
    if !file.groups.is_empty() && (least > file.most || least == Share::ZERO || least == Share::ONE) {
        add(
            "best_effort.share".into(),
            "give a `share` below 100 %, or a `least` below the share, above 0 %",
        );
    }
    let usable = cores::usable(&KernelTree::default());
    for (number, task) in file.tasks.iter().enumerate() {
        let key = |key: &str| format!("task[{number}].{key}");
        if task.name.is_empty() || task.name.len() > NAME_BYTES_MAX {
            add(key("name"), "a name has 1 to 63 bytes");
        }
        if file.tasks[..number].iter().any(|other| other.name == task.name) {
            add(
                key("name"),
                "another task has this name: a task is named once, however many threads report it",
            );
        }
        for (time, value) in [("deadline", task.deadline), ("period", task.period)] {
            if value == Some(Nanos::ZERO) {
                add(key(time), "give a time above 0, such as \"5ms\"");
            }
        }
        if let Some(observation) = &task.observation {
            if observation.threads.is_empty() {
                add(key("observe"), "name the threads: by `program`, `thread` or `group`");
            }
            if task.deadline.is_none() {
                add(key("deadline"), "missing: a program that reports nothing states none");
            }
        }
        if let Some(TaskGoal::Late(late)) = task.goal
            && (late == Share::ZERO || late == Share::ONE)
        {
            add(key("late"), "write a share above 0 and below 100 %, such as \"1 %\"");
        }
        if let Some(core) = task.core.filter(|core| !usable.contains(core)) {
            add(
                key("core"),
                &PlaceError::no_such_core(number, core, &usable).to_string(),
            );
        }
        if task.class == AttachClass::AsFound && task.core.is_some() {
            add(
                key("core"),
                "its threads run as they are: write class = \"real-time\" or \"exclusive\", or remove it",
            );
        }
    }
    faults
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems(text: &str) -> String {
        read_checked(text, "x.toml", read, faults).unwrap_err().join("\n")
    }

    #[test]
    fn a_task_needs_no_more_than_its_name() {
        let file = read_checked("[[task]]\nname = \"control\"\n", "x.toml", read, faults).unwrap();
        let task = AttachTask {
            name: "control".into(),
            ..AttachTask::default()
        };
        assert_eq!((file.tasks, file.duration), (vec![task], None));
    }

    #[test]
    fn all_problems_are_named_with_their_lines() {
        let text =
            "speed = 1\n[[task]]\nname = \"a\"\nperiod = \"0s\"\ncore = 1\n[[task]]\nname = \"a\"\nlate = \"0 %\"\n";
        let found = problems(text);
        let lines = [
            "x.toml:1: speed",
            "x.toml:4: task[0].period",
            "x.toml:5: task[0].core",
            "x.toml:7: task[1].name",
        ];
        for line in lines.into_iter().chain(["x.toml:8: task[1].late"]) {
            assert!(found.contains(line), "{found}");
        }
        let observed = problems("[[task]]\nname = \"a\"\nobserve = \"futex\"\n");
        assert!(
            observed.contains("task[0].observe: name the threads") && observed.contains("task[0].deadline: missing"),
            "{observed}"
        );
        assert!(problems("").contains("name at least one task"));
        let nowhere = problems("[[task]]\nname = \"a\"\nclass = \"real-time\"\ncore = 4000\n");
        assert!(
            nowhere.starts_with("x.toml:4: task[0].core: there is no core 4000"),
            "{nowhere}"
        );
        assert!(problems("[[task]]\nclass = \"fast\"\n").contains("exclusive"));
    }
}
