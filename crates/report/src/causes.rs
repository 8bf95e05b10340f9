//! Sentences on why late jobs were late, shared by the summary, the verdict, the live view and the page.

use punctual_runtime::report::{Activity, CauseReport, Culprit, TaskReport};
use punctual_workload::{Cause, ControllerKind};

use crate::summary::count;
use crate::tasks::time;

/// Most causes that are printed per task; the report has all.
const TOLD: usize = 3;

/// Clauses on the most frequent causes of a task's late jobs, one each; empty without a late job.
pub fn told(task: &TaskReport) -> impl Iterator<Item = String> {
    task.causes.iter().take(TOLD).map(|cause| clause(task, cause))
}

/// `31 of 40 late jobs waited for the lock that thread logger (1234) held while it synced, for 9.10 ms on average`.
fn clause(task: &TaskReport, it: &CauseReport) -> String {
    let jobs = match (it.jobs, task.late) {
        (1, 1) => "the late job".into(),
        (jobs, late) if jobs == late => format!("all {} late jobs", count(late)),
        (jobs, late) => format!("{} of {} late jobs", count(jobs), count(late)),
    };
    let happened = match it.jobs {
        1 => happened(it.cause).replacen("were ", "was ", 1),
        _ => happened(it.cause).into(),
    };
    let what = format!("{jobs} {happened}{}", by(it));
    if it.cause == Cause::Skipped {
        return what;
    }
    let on_average = if it.jobs == 1 { "" } else { " on average" };
    let usual = it.usual_us.filter(|usual| *usual >= 1.0);
    let usual = usual.map_or(String::new(), |usual| format!(" (usually {})", time(usual)));
    format!("{what}, for {}{on_average}{usual}", time(it.us_mean))
}

/// Effect of a cause on jobs, as a predicate in the plural.
const fn happened(cause: Cause) -> &'static str {
    match cause {
        Cause::Skipped => "never began, because too many jobs of the task were waiting",
        Cause::Queue => "began late, behind the job before",
        Cause::Lock => "waited for the lock",
        Cause::PageFault => "waited for pages to be read (page faults)",
        Cause::Sync => "waited for the medium to sync what they committed",
        Cause::Commit => "took longer to commit",
        Cause::Preempted => "were preempted",
        Cause::Throttled => "were kept off the core by the bound on real-time threads",
        Cause::Stolen => "had the core taken away, as all threads (by the hypervisor, the firmware or interrupts)",
        Cause::Asleep => "were not ready to run: asleep, or waiting for a device or another lock",
        Cause::Data => "took longer in calls of the store",
        Cause::Computation => "computed longer",
    }
}

/// Clause on the thread that caused most of these delays.
fn by(it: &CauseReport) -> String {
    let Some(first) = it.by.first() else {
        return match it.cause {
            Cause::Preempted => " (by an unknown thread)".into(),
            _ => String::new(),
        };
    };
    let all = first.jobs == it.jobs && first.others == 0;
    let jobs = match first.others {
        0 => count(first.jobs),
        others => format!("at least {}", count(first.jobs - others.min(first.jobs))),
    };
    let most = match all {
        true => String::new(),
        false => format!(", {jobs} of them for one"),
    };
    let thread = thread(first);
    match (it.cause, first.doing) {
        (Cause::Lock, doing) => {
            let meanwhile = doing.map_or(String::new(), |doing| format!(" while it {}", did(doing)));
            format!("{most} that {thread} held{meanwhile}")
        }
        (Cause::Throttled, _) => format!(", while {thread} ran"),
        _ if all => format!(" by {thread}"),
        _ => format!(", {jobs} of them by {thread}"),
    }
}

const fn did(doing: Activity) -> &'static str {
    match doing {
        Activity::Working => "worked in its transaction",
        Activity::Committing => "committed",
        Activity::Syncing => "synced",
    }
}

/// `thread logger (1234, SCHED_FIFO 50)`, or `task logger` on a simulated machine.
fn thread(culprit: &Culprit) -> String {
    let Some(number) = culprit.thread else {
        return match &*culprit.name {
            name if name == "no thread" || name.starts_with("a thread ") => name.into(),
            name => format!("task {name}"),
        };
    };
    let process = culprit.process.map(|process| format!(" of process {process}"));
    let scheduling = culprit.scheduling.map(|it| format!(", {it}"));
    let (process, scheduling) = (process.unwrap_or_default(), scheduling.unwrap_or_default());
    match culprit.several {
        true => format!("threads {} (the last one {number}{process}{scheduling})", culprit.name),
        false => format!("thread {} ({number}{process}{scheduling})", culprit.name),
    }
}

/// Advice against a cause.
pub fn remedy(cause: Cause, controller: ControllerKind) -> &'static str {
    match cause {
        Cause::Skipped | Cause::Queue => "release jobs less often, or shorten them",
        Cause::Lock => "shorten the write transactions of other tasks, or read only",
        Cause::PageFault => "lock the memory (protection), and read files before the jobs that need them",
        Cause::Sync => "write less often, or choose a lower store.durability",
        Cause::Commit => "write less in a job",
        Cause::Preempted => "reduce the load that preempts it, or give it class = \"exclusive\"",
        Cause::Throttled => "reduce the load of real-time tasks, or raise /proc/sys/kernel/sched_rt_runtime_us",
        Cause::Stolen => "run fewer guests beside this one, or keep interrupts off this core (class = \"exclusive\")",
        Cause::Asleep => "wait in a task of its own, or give the job less to wait for",
        Cause::Data => "access fewer objects in a job, or lower goal.min_fresh so that fewer updates are admitted",
        Cause::Computation if matches!(controller, ControllerKind::Open) => {
            "run it under a controller that turns the clock, shorten its jobs, or set a later deadline"
        }
        Cause::Computation => "shorten its jobs, or set a later deadline",
    }
}

#[cfg(test)]
mod tests {
    use punctual_platform::linux::thread::Scheduling;

    use super::*;
    use crate::fixture;

    fn told_of(cause: Cause, jobs: u64, by: Vec<Culprit>) -> String {
        let task = TaskReport {
            late: 40,
            causes: vec![CauseReport {
                cause,
                jobs,
                share: jobs as f64 / 40.0,
                us_mean: 9_100.0,
                usual_us: Some(350.0),
                by,
            }],
            ..fixture::report().tasks.remove(0)
        };
        told(&task).collect::<Vec<_>>().join("; ")
    }

    /// Texts in `snapshots/`; the remedy follows the clause in a verdict.
    #[test]
    fn a_cause_names_the_thread_to_blame() {
        let logger = |jobs| Culprit {
            thread: Some(1234),
            doing: Some(Activity::Syncing),
            jobs,
            ..Culprit::named("logger")
        };
        let other_process = Culprit {
            thread: Some(77),
            process: Some(70),
            scheduling: Some(Scheduling::Fifo(90)),
            jobs: 3,
            ..Culprit::named("spinner")
        };
        let compilers = Culprit {
            thread: Some(4711),
            process: Some(4711),
            several: true,
            jobs: 5,
            others: 1,
            ..Culprit::named("cc1")
        };
        let short = Culprit {
            jobs: 5,
            ..Culprit::named("short")
        };
        let mut list = String::new();
        for (name, cause, jobs, by) in [
            ("one holder of the lock", Cause::Lock, 31, vec![logger(31)]),
            ("several holders of the lock", Cause::Lock, 40, vec![logger(29)]),
            ("a thread of another process", Cause::Preempted, 5, vec![other_process]),
            ("an unknown thread", Cause::Preempted, 5, vec![]),
            ("threads of one name", Cause::Preempted, 5, vec![compilers]),
            ("a task of the scenario", Cause::Preempted, 5, vec![short]),
        ] {
            list += &format!("{name}\n  => {}\n", told_of(cause, jobs, by));
        }
        for cause in Cause::ALL {
            let remedy = remedy(cause, ControllerKind::Mimo);
            list += &format!("{cause:?}\n  => {}; {remedy}\n", told_of(cause, 2, vec![]));
        }
        insta::assert_snapshot!("causes", list);
    }
}
