//! `punctual attach`: programs that already run report their jobs, and are held to their goals.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use punctual_engines::Memory;
use punctual_files::attach::{self, AttachClass, AttachFile, AttachTask};
use punctual_files::failure::Failure;
use punctual_jobs::{Arrival, Listener, note};
use punctual_loop::BestEffortRange;
use punctual_os::{LinuxOs, Refusal};
use punctual_platform::linux::KernelTree;
use punctual_platform::linux::cgroup::CpuGroup;
use punctual_platform::linux::exclusive::{GroupUse, check_groups, check_interrupts};
use punctual_platform::linux::journal::{Journal, Property, as_found};
use punctual_platform::linux::observed::{Tracepoints, threads};
use punctual_platform::linux::thread::{Tid, name_of};
use punctual_platform::{KnobId, Neighbours, Provenance};
use punctual_report::output::{self, OutputFile};
use punctual_report::settings::sentence;
use punctual_report::timeline::timeline;
use punctual_report::watch::Watcher;
use punctual_report::{page, summary};
use punctual_runtime::RuntimeError;
use punctual_runtime::linux::{ReportedTask, RuntimeBuilder};
use punctual_runtime::report::{FinishedRun, KnobReport, SettingReport, Watch};
use punctual_store::{Store, StoreOptions};
use punctual_units::{Nanos, Share};
use punctual_workload::{Class, ControllerKind, Goal, Pace, TaskGoal};

use super::metrics::RunMetrics;
use super::run::checked;
use crate::args::{Attach, JobWords};
use crate::serve::raise_descriptors;

/// Interval between decisions and samples.
const PERIOD: Nanos = Nanos::from_millis(100);

/// Time until threads have their cores, in seconds; jobs before count as start-up.
const SEATING_S: f64 = 1.0;

/// Time in which a program that runs has reported a job, for `--dry-run` and tasks without a deadline in the file.
const LOOK_FOR: Duration = Duration::from_secs(3);

/// Carries out `punctual attach`.
///
/// # Errors
/// [`Failure`] if the file is wrong, another process listens, or a goal of `--check` is missed.
pub fn attach(arguments: &Attach, command: &str) -> Result<(), Failure> {
    let file = attach::load(&arguments.file)?;
    output::apart(&[
        ("the file", Some(&arguments.file)),
        ("--json", arguments.json.as_deref()),
        ("--html", arguments.html.as_deref()),
        ("--trace", arguments.trace.as_deref()),
    ])?;
    let refused = |refusal: Refusal| Failure::input([refusal.to_string()]);
    if arguments.dry_run {
        allowed(&file).map_err(refused)?;
    }
    // An observed thread has three descriptors.
    raise_descriptors();
    // Beside tasks that are reported, a refusal is a note of the report; a dry run says it beside the threads.
    if !arguments.dry_run && file.tasks.iter().all(|task| task.observation.is_some()) {
        Tracepoints::find(&KernelTree::default()).map_err(refused)?;
    }
    let folder = file.reports.clone().unwrap_or_else(punctual_jobs::folder);
    let mut listener = Listener::start(&folder).map_err(refused)?;
    let (tasks, found) = look(&mut listener, &file, arguments.dry_run);
    if arguments.dry_run {
        return super::print(&planned(&file, &found, &folder));
    }
    // The reporters that were found hand their rings over again.
    drop(listener);
    let tasks = tasks?;
    let duration = arguments.duration.map(Nanos::from).or(file.duration);
    if arguments.trace.is_some() && duration.is_none() {
        return Err(Failure::of(
            "--trace: a run without an end keeps no jobs; add --duration TIME",
        ));
    }
    let json = OutputFile::report(arguments.json.as_ref())?;
    let html = OutputFile::page(arguments.html.as_ref())?;
    let trace = OutputFile::timeline(arguments.trace.as_ref())?;
    let mut metrics = RunMetrics::serve(arguments.metrics, false)?;
    let name = arguments.file.file_stem().unwrap_or_default().to_string_lossy();
    let watcher = Watcher::start(arguments.plain, Some(&name))?;
    watcher.begin(duration.map_or(f64::INFINITY, |duration| duration.as_secs_f64()));
    let listener = Listener::start(&folder).map_err(refused)?;
    let finished = run(listener, tasks, &file, duration, &name, &mut |progress| {
        super::keep_off_exclusive_cores(&progress);
        metrics.see(&progress);
        watcher.see(progress)
    });
    drop(watcher);
    let FinishedRun { report, .. } = finished.map_err(|error| Failure::input([error.to_string()]))?;
    let told = super::print_report(&summary::summary(&report));
    let json = json.map_or(Ok(()), |file| file.json(&report));
    let html = html.map_or(Ok(()), |file| file.text(&page::page(&report, command)));
    let trace = trace.map_or(Ok(()), |file| file.json(&timeline(&report)));
    Failure::all([told, json, html, trace, checked(&report, arguments.check)])
}

/// Whether the run would get the groups and interrupts that `file` names; changes nothing, as groups are checked
/// without the machine's ledger.
fn allowed(file: &AttachFile) -> Result<(), Refusal> {
    let (tree, neighbours) = (KernelTree::default(), &file.neighbours);
    check_groups(&tree, &neighbours.lend_to, GroupUse::Lent)?;
    check_groups(&tree, &neighbours.share_with, GroupUse::Shared)?;
    check_interrupts(&tree, neighbours)?;
    if file.groups.is_empty() {
        return Ok(());
    }
    let journal = Journal::alone()?;
    let bound = |group: &PathBuf| CpuGroup::named(&tree, &journal, group).map(drop);
    file.groups.iter().try_for_each(bound)
}

/// The share of the groups as a knob of the run, if `file` bounds groups.
fn knobs(file: &AttachFile) -> Vec<KnobReport> {
    let least = file.least.map_or(String::new(), |least| format!("{least} to "));
    let share = KnobReport {
        knob: KnobId::BestEffortShare,
        offered: Some(Provenance::Real),
        used: true,
        range: format!("{least}{}", file.most),
    };
    if file.groups.is_empty() {
        Vec::new()
    } else {
        vec![share]
    }
}

fn run(
    listener: Listener,
    tasks: Vec<ReportedTask>,
    file: &AttachFile,
    duration: Option<Nanos>,
    name: &str,
    watch: Watch<'_>,
) -> Result<FinishedRun, RuntimeError> {
    let store = Store::open(Memory::default(), LinuxOs, StoreOptions::default())?;
    let mut runtime = RuntimeBuilder::here(Arc::new(store))?;
    runtime.machine().bound_groups(&file.groups)?;
    let neighbours = Neighbours {
        guests: true,
        ..file.neighbours.clone()
    };
    let tasks_have_class = tasks.iter().any(|task| task.class.is_some());
    let exclusive = |task: &&ReportedTask| matches!(task.class, Some(Class::Exclusive { .. }));
    let mut kept: Vec<_> = tasks.iter().filter(exclusive).map(|task| task.core).collect();
    // Tasks that name the same core share it.
    kept.sort_unstable();
    kept.dedup_by(|a, b| a.is_some() && a == b);
    runtime
        .neighbours(neighbours)
        .keep_named_cores(kept)
        .reported(listener, tasks);
    let goal = Goal {
        tasks: TaskGoal::default(),
        drr: 0.5,
        min_fresh: Share::ZERO,
    };
    let mut options = runtime.options(name, goal, duration);
    options.header.knobs = knobs(file);
    if !file.groups.is_empty() {
        options.best_effort_share = file.most;
    }
    if let Some(least) = file.least {
        // Without sensors, the share of best-effort work is all that this controller turns.
        options.regulator.kind = ControllerKind::Qod;
        options.header.controller = ControllerKind::Qod;
        let most = file.most;
        options.regulator.best_effort = Some(BestEffortRange { most, least });
    }
    if tasks_have_class {
        options.header.settle_s = SEATING_S.min(duration.map_or(f64::INFINITY, |it| it.as_secs_f64() / 2.0));
    }
    // Programs may pause: silence is no fault.
    (options.pace, options.regulator.silence) = (Pace::Period(PERIOD), Nanos::MAX);
    runtime.run(options, watch)
}

/// A thread that reports one of the tasks, or is observed.
struct Candidate {
    task: String,
    what: String,
    /// `None` where a script reports, or another PID namespace.
    thread: Option<Tid>,
    deadline: Option<Nanos>,
}

/// Waits a while for reporters, if some task needs what they state or `all` are asked for; returns the tasks, and the
/// reporters.
fn look(listener: &mut Listener, file: &AttachFile, all: bool) -> (Result<Vec<ReportedTask>, Failure>, Vec<Candidate>) {
    let (until, mut found) = (Instant::now() + LOOK_FOR, Vec::<Candidate>::new());
    let stated = |task: &AttachTask, found: &[Candidate]| {
        let of_task = found.iter().filter(|it| it.task == task.name);
        task.deadline.or_else(|| { of_task }.find_map(|it| it.deadline))
    };
    let waits = |found: &[Candidate]| all || file.tasks.iter().any(|task| stated(task, found).is_none());
    while waits(&found) && Instant::now() < until {
        let wanted = |name: &str| {
            file.tasks
                .iter()
                .any(|task| task.name == name && task.observation.is_none())
        };
        found.extend(listener.arrivals(&wanted).into_iter().map(Candidate::of));
        std::thread::sleep(Duration::from_millis(10));
    }
    for task in file.tasks.iter().filter(|_| all) {
        let observed = task.observation.iter().flat_map(|it| threads(&[&it.threads]));
        found.extend(observed.map(|(_, (process, thread))| Candidate {
            task: task.name.clone(),
            what: format!("observed: {}", program(process, Some(thread))),
            thread: Some(thread),
            deadline: None,
        }));
    }
    let task = |task: &AttachTask| {
        let why = || {
            let lacking = match found.iter().any(|it| it.task == task.name) {
                true => "neither the file nor the program that reports it states its deadline: give it one",
                false => {
                    "no program reports it yet, and the file states no deadline: start the program first, or give it one"
                }
            };
            format!("{}: {lacking}, such as deadline = \"5ms\"", task.name)
        };
        let deadline = stated(task, &found).ok_or_else(why)?;
        Ok(ReportedTask {
            name: task.name.clone(),
            deadline,
            period: task.period,
            goal: task.goal,
            class: match task.class {
                AttachClass::AsFound => None,
                AttachClass::RealTime => Some(Class::RealTime { deadline }),
                AttachClass::Exclusive => Some(Class::Exclusive { deadline }),
            },
            core: task.core,
            execution: task.execution,
            observation: task.observation.clone(),
        })
    };
    let (tasks, wrong): (Vec<_>, Vec<_>) = file.tasks.iter().map(task).partition(Result::is_ok);
    let wrong: Vec<String> = wrong.into_iter().filter_map(Result::err).collect();
    let tasks = if wrong.is_empty() {
        Ok(tasks.into_iter().flatten().collect())
    } else {
        Err(Failure::Input(wrong))
    };
    (tasks, found)
}

impl Candidate {
    fn of(arrival: Arrival) -> Candidate {
        match arrival {
            Arrival::Note { name, process, .. } => Candidate {
                task: name,
                what: format!("reported by a script (process {process})"),
                thread: None,
                deadline: None,
            },
            Arrival::Reporter(reporter) => Candidate {
                what: format!("reported by {}", program(reporter.process, reporter.thread)),
                thread: reporter.thread,
                deadline: reporter.deadline,
                task: reporter.name,
            },
        }
    }
}

fn program(process: i32, thread: Option<Tid>) -> String {
    let name = name_of(Tid(process)).unwrap_or_default();
    let thread = thread.map_or_else(String::new, |thread| format!(", thread {thread}"));
    format!("{name} (process {process}{thread})")
}

/// Says what would be done.
fn planned(file: &AttachFile, found: &[Candidate], folder: &Path) -> String {
    let (mut text, mut settings) = (format!("reports are taken in {}\n", folder.display()), Vec::new());
    for task in &file.tasks {
        let its: Vec<&Candidate> = found.iter().filter(|it| it.task == task.name).collect();
        let stated = its.iter().find_map(|it| it.deadline);
        let deadline = task
            .deadline
            .or(stated)
            .map_or("not stated".into(), |it| it.to_string());
        let goal = task.goal.unwrap_or_default();
        text += &format!("{}: deadline {deadline}, goal {goal}\n", task.name);
        settings.extend(seated(task, &its));
        its.iter().for_each(|it| text += &format!("  {}\n", it.what));
        let may_observe = || Tracepoints::find(&KernelTree::default());
        if let Some(Err(refusal)) = task.observation.as_ref().map(|_| may_observe()) {
            text += &format!("  {refusal}\n");
        }
        if let (true, Some(_)) = (its.is_empty(), &task.observation) {
            text += "  no thread matches\n";
        } else if its.is_empty() {
            text += &format!("  no program has reported it for {} s\n", LOOK_FOR.as_secs());
        }
    }
    let least = file.least.map_or(String::new(), |least| {
        format!(", down to {least} while a goal is missed")
    });
    settings.extend(file.groups.iter().map(|group| SettingReport {
        what: Property::CpuTime.name().into(),
        of: vec![format!("group {}", group.display())],
        now: format!("at most {} of its cores{least}", file.most),
        why: "[best_effort]".into(),
        since_s: f64::INFINITY,
        ..SettingReport::default()
    }));
    settings
        .iter()
        .for_each(|setting| text += &format!("{}\n", sentence(setting)));
    text + "nothing was changed\n"
}

/// Settings that a run would change for `task`, whose threads are among `its`.
fn seated(task: &AttachTask, its: &[&Candidate]) -> Vec<SettingReport> {
    let (class, alone) = match task.class {
        AttachClass::AsFound => return Vec::new(),
        AttachClass::RealTime => ("real-time", false),
        AttachClass::Exclusive => ("exclusive", true),
    };
    let (of_core, core) = match task.core {
        Some(core) => (core.to_string(), core.to_string()),
        None => ("chosen by placement".into(), "one core, chosen by placement".into()),
    };
    let row = |property: Property, of: &str, before: &str, now: &str| SettingReport {
        what: property.name().into(),
        of: vec![of.into()],
        before: before.into(),
        now: now.into(),
        tasks: vec![task.name.clone()],
        why: format!("class = \"{class}\""),
        since_s: f64::INFINITY,
        ..SettingReport::default()
    };
    let found = its.iter().filter_map(|it| it.thread).flat_map(as_found);
    let mut threads: Vec<_> = found.map(|it| (it.property, it.of, it.before)).collect();
    if threads.is_empty() {
        let unknown = |property| (property, "its threads".to_owned(), String::new());
        threads.extend([Property::Scheduling, Property::Cores].map(unknown));
    }
    let of_threads = threads.iter().map(|(property, of, before)| match property {
        Property::Scheduling => row(*property, of, before, "SCHED_FIFO"),
        _ => row(*property, of, before, &core),
    });
    let claim = row(Property::Core, &of_core, "any thread", "this run");
    of_threads.chain(alone.then_some(claim)).collect()
}

/// Carries out `punctual job`.
///
/// # Errors
/// [`Failure::Input`] for a name that cannot be reported.
pub fn job(arguments: &JobWords) -> Result<(), Failure> {
    let begins = arguments.what == crate::args::JobWord::Begin;
    note(&punctual_jobs::folder(), &arguments.name, begins).map_err(|refusal| Failure::input([refusal.to_string()]))
}
