//! Sentences on why late jobs were late, shared by the summary, the verdict, the live view and the page.

use punctual_platform::KnobId;
use punctual_runtime::report::{
    Activity, CauseReport, Culprit, LateJob, OpenJob, PlatformChoice, Protection, RunHeader, TaskReport,
};
use punctual_workload::{Cause, ControllerKind};

use crate::protection::no_real_time;
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
    // Behind a job that has begun, the releases without a run are earlier ones.
    if let Some(open) = &task.unfinished
        && (it.cause == Cause::Unfinished || it.cause == Cause::NotRun && open.has_begun == Some(false))
    {
        return format!("{jobs} {}", still_open(task, it, open));
    }
    let taken = taken_by(task).filter(|_| it.cause == Cause::Stolen);
    let happened = match (it.jobs, taken) {
        (_, Some(taken)) => format!("had the core taken away, as all threads, {taken}"),
        (1, None) => match happened(it.cause).strip_prefix("were ") {
            Some(rest) => format!("was {rest}"),
            None => happened(it.cause).into(),
        },
        _ => happened(it.cause).into(),
    };
    let what = format!("{jobs} {happened}{}", by(it));
    let what = match it.behind {
        0 => what,
        behind if behind == it.jobs => format!("{what}, each behind such a job"),
        behind => format!("{what}, {} of them behind such a job", count(behind)),
    };
    if !it.cause.is_span() || it.us_mean == 0.0 {
        return what;
    }
    let on_average = if it.jobs == 1 { "" } else { " on average" };
    let usual = it.usual_us.filter(|usual| *usual >= 1.0);
    let usual = usual.map_or(String::new(), |usual| format!(" (usually {})", time(usual)));
    format!("{what}, for {}{on_average}{usual}", time(it.us_mean))
}

/// `have not ended: under way since 12.00 s`, or `never ran: waiting since 0.00 s`, with the oldest open job.
fn still_open(task: &TaskReport, it: &CauseReport, open: &OpenJob) -> String {
    let no_job_ended = task.response_us.is_none() && task.failed == 0;
    let (released, lasted) = (open.released_s, time(open.for_us));
    match (it.cause, it.jobs) {
        (Cause::NotRun, _) if no_job_ended => format!("never ran: waiting since {released:.2} s, for {lasted}"),
        (Cause::NotRun, _) => format!("did not run: waiting since {released:.2} s, for {lasted}"),
        (_, 1) => format!("has not ended: under way since {released:.2} s, for {lasted}"),
        _ => format!("wait for a job that has not ended, or are it: under way since {released:.2} s, for {lasted}"),
    }
}

/// Effect of a cause on jobs, as a predicate in the plural.
const fn happened(cause: Cause) -> &'static str {
    match cause {
        Cause::Skipped => "never began, because too many jobs of the task were waiting",
        Cause::Unfinished => "have not ended",
        Cause::NotRun => "did not run",
        Cause::Queue => "began late, behind the job before",
        Cause::Lock => "waited for the lock",
        Cause::PageFault => "waited for pages to be read (page faults)",
        Cause::Sync => "waited for the medium to sync what they committed",
        Cause::Commit => "took longer to commit",
        Cause::Preempted => "were preempted",
        Cause::Throttled => "were kept off the core by the bound on real-time threads",
        Cause::Stopped => "stood still: the process was stopped (SIGSTOP, a freezer), or the whole machine",
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
        (Cause::Throttled, _) => format!(", which {thread} reached"),
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
pub fn thread(culprit: &Culprit) -> String {
    let Some(number) = culprit.thread else {
        return match &*culprit.name {
            name if name == "no thread" || name.starts_with("a thread ") => name.into(),
            name => format!("task {name}"),
        };
    };
    let program = culprit.program.as_ref().filter(|name| **name != culprit.name);
    let program = program.map_or(String::new(), |name| format!(" {name}"));
    let process = culprit.process.map(|process| format!(" of process {process}{program}"));
    let scheduling = culprit.scheduling.map(|it| format!(", {it}"));
    let (process, scheduling) = (process.unwrap_or_default(), scheduling.unwrap_or_default());
    match culprit.several {
        true => format!("threads {} (the last one {number}{process}{scheduling})", culprit.name),
        false => format!("thread {} ({number}{process}{scheduling})", culprit.name),
    }
}

/// Source that took the core from all threads, by the late jobs that are kept one by one; `None`: unknown.
fn taken_by(task: &TaskReport) -> Option<&'static str> {
    let stolen = task.late_jobs.iter().filter(|late| late.cause == Cause::Stolen);
    let of = |taken: fn(&LateJob) -> Option<f64>| stolen.clone().filter_map(taken).sum::<f64>();
    match (of(|late| late.stolen_us), of(|late| late.interrupts_us)) {
        (0.0, 0.0) => None,
        (steal, interrupts) if steal >= interrupts => Some("by the hypervisor"),
        _ => Some("by interrupts"),
    }
}

/// Advice against a cause of late jobs of `task`, with the controller, the knobs and the rights of the run.
pub fn remedy(it: &CauseReport, task: &TaskReport, header: &RunHeader) -> String {
    let by_punctual = |culprit: &Culprit| {
        culprit
            .program
            .as_deref()
            .is_some_and(|name| name.starts_with("punctual"))
    };
    if it.by.first().is_some_and(by_punctual) {
        return "another run of punctual is on the same core: give each its cores (taskset -c), or run one at a time"
            .into();
    }
    let exclusive = match rights(task, header) {
        Rights::All => Some("or give the task class = \"exclusive\""),
        Rights::None => Some("or run as root: class = \"exclusive\" then keeps others off the core"),
        Rights::Exclusive => None,
    };
    let or_exclusive = |first: &str| exclusive.map_or(first.to_owned(), |more| format!("{first}, {more}"));
    match it.cause {
        Cause::Skipped | Cause::Queue => "release jobs less often, or shorten them".into(),
        Cause::Unfinished => "look what that job waits for, or bound its work".into(),
        Cause::NotRun => or_exclusive("look which thread keeps its core (top -H), and whether the process was stopped"),
        Cause::Stopped => "look what stops the process: a debugger, a job control, a freezer, a paused machine".into(),
        Cause::Lock => "shorten the write transactions of other tasks, or read only".into(),
        Cause::PageFault => "lock the memory (protection), and read files before the jobs that need them".into(),
        Cause::Sync => "write less often, or choose a lower store.durability".into(),
        Cause::Commit => "write less in a job".into(),
        Cause::Preempted => or_exclusive("reduce the load that preempts it"),
        Cause::Throttled => match rights(task, header) {
            Rights::None => "reduce the load of real-time tasks".into(),
            _ => "reduce the load of real-time tasks, or raise /proc/sys/kernel/sched_rt_runtime_us".into(),
        },
        Cause::Stolen => match taken_by(task) {
            Some("by the hypervisor") => "run fewer guests beside this one".into(),
            Some(_) => or_exclusive("keep interrupts off this core"),
            None => or_exclusive("run fewer guests beside this one, keep interrupts off this core"),
        },
        Cause::Asleep => "wait in a task of its own, or give the job less to wait for".into(),
        Cause::Data => match header.controller {
            ControllerKind::Qod | ControllerKind::Mimo => {
                "access fewer objects in a job, or lower goal.min_fresh so that fewer updates are admitted".into()
            }
            ControllerKind::Open | ControllerKind::Clock => {
                "access fewer objects in a job, or run it under a controller that sheds updates (qod, mimo)".into()
            }
        },
        Cause::Computation => {
            let turned = matches!(header.controller, ControllerKind::Clock | ControllerKind::Mimo);
            match header.offered(KnobId::CLOCK) {
                Some(_) if !turned => {
                    "run it under a controller that turns the clock, shorten its jobs, or set a later deadline".into()
                }
                _ => "shorten its jobs, or set a later deadline".into(),
            }
        }
    }
}

/// Protection that a task can still get.
enum Rights {
    /// Real-time scheduling was refused.
    None,
    /// The task has real-time scheduling, and may ask for an exclusive core.
    All,
    /// The task has an exclusive core, or the machine is simulated.
    Exclusive,
}

fn rights(task: &TaskReport, header: &RunHeader) -> Rights {
    let own = |it: &&Protection| it.what.split(':').next() == Some(task.name.as_str()) && it.refused.is_none();
    let mut obtained = header.protection.iter().filter(own);
    match () {
        () if no_real_time(&header.protection).is_some() => Rights::None,
        () if header.platform == PlatformChoice::Sim => Rights::Exclusive,
        () if obtained.any(|it| it.what.ends_with("exclusively")) => Rights::Exclusive,
        () => Rights::All,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use punctual_platform::linux::thread::Scheduling;
    use punctual_runtime::report::RunReport;

    use super::*;
    use crate::fixture;

    fn told_of(cause: Cause, jobs: u64, by: Vec<Culprit>) -> String {
        let task = TaskReport {
            late: 40,
            causes: vec![CauseReport {
                cause,
                jobs,
                behind: 0,
                share: jobs as f64 / 40.0,
                us_mean: 9_100.0,
                usual_us: Some(350.0),
                by,
            }],
            ..fixture::report().tasks.remove(0)
        };
        told(&task).collect::<Vec<_>>().join("; ")
    }

    fn remedy_of(cause: Cause, by: Vec<Culprit>, change: impl FnOnce(&mut RunReport)) -> String {
        let mut report = fixture::report();
        change(&mut report);
        let it = CauseReport {
            cause,
            jobs: 2,
            behind: 0,
            share: 1.0,
            us_mean: 9_100.0,
            usual_us: None,
            by,
        };
        remedy(&it, &report.tasks[0], &report.header)
    }

    #[test]
    fn a_remedy_fits_the_controller_the_rights_and_the_culprit() {
        let no_right = |report: &mut RunReport| {
            report.header.protection[0].refused = report.header.protection[1].refused.clone();
        };
        let exclusive =
            |report: &mut RunReport| report.header.protection[0].what = "analysis: on core 1, exclusively".into();
        assert!(remedy_of(Cause::Preempted, Vec::new(), |_| {}).contains("or give the task class"));
        assert!(remedy_of(Cause::Preempted, Vec::new(), no_right).contains("as root"));
        assert!(!remedy_of(Cause::Preempted, Vec::new(), exclusive).contains("exclusive"));
        assert!(!remedy_of(Cause::Throttled, Vec::new(), no_right).contains("/proc/sys"));
        let open = |report: &mut RunReport| report.header.controller = ControllerKind::Open;
        assert!(!remedy_of(Cause::Data, Vec::new(), open).contains("min_fresh"));
        assert!(remedy_of(Cause::Computation, Vec::new(), open).contains("clock"));
        let no_knob = |report: &mut RunReport| {
            report.header.controller = ControllerKind::Open;
            report.header.knobs.clear();
        };
        assert!(!remedy_of(Cause::Computation, Vec::new(), no_knob).contains("clock"));
        let other_run = Culprit {
            program: Some("punctual".into()),
            ..Culprit::named("analysis")
        };
        assert!(remedy_of(Cause::Preempted, vec![other_run], |_| {}).contains("another run of punctual"));
    }

    #[test]
    fn interrupts_are_told_from_the_hypervisor() {
        let told_with = |stolen_us, interrupts_us| {
            let mut task = fixture::report().tasks.remove(0);
            task.causes.truncate(1);
            (task.causes[0].cause, task.causes[0].by) = (Cause::Stolen, Vec::new());
            task.late_jobs = vec![LateJob {
                job: 1,
                released_s: 8.0,
                late_us: 1.0,
                cause: Cause::Stolen,
                behind: false,
                us: 1.0,
                usual_us: None,
                by: Vec::new(),
                spans_us: BTreeMap::new(),
                major_faults: 0,
                minor_faults: 0,
                stolen_us: Some(stolen_us),
                interrupts_us: Some(interrupts_us),
            }];
            told(&task).next().unwrap()
        };
        assert!(told_with(10_000.0, 0.0).contains("by the hypervisor,"));
        assert!(told_with(0.0, 10_000.0).contains("by interrupts,"));
        assert!(told_with(0.0, 0.0).contains("or interrupts"));
    }

    #[test]
    fn a_job_that_hangs_and_a_thread_that_never_ran_are_told_apart() {
        let open = |cause, has_begun| {
            let mut task = fixture::report().tasks.remove(0);
            (task.response_us, task.overdue) = (None, 9);
            task.unfinished = Some(OpenJob {
                released_s: 12.0,
                for_us: 3e6,
                has_begun: Some(has_begun),
            });
            task.causes.truncate(1);
            task.causes[0].cause = cause;
            told(&task).next().unwrap()
        };
        let hangs = open(Cause::Unfinished, true);
        assert!(hangs.contains("under way since 12.00 s"), "{hangs}");
        let starved = open(Cause::NotRun, false);
        assert!(starved.contains("never ran"), "{starved}");
        let skipped = open(Cause::NotRun, true);
        assert!(!skipped.contains("waiting since"), "{skipped}");
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
            let remedy = remedy_of(cause, Vec::new(), |_| {});
            list += &format!("{cause:?}\n  => {}; {remedy}\n", told_of(cause, 2, vec![]));
        }
        insta::assert_snapshot!("causes", list);
    }
}
