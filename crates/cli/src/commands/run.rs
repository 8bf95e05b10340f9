//! `punctual run`: a scenario, from its file to its report.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use punctual_allocation::Refill;
use punctual_loop::{EventLog, ModelDocument, law_kind};
use punctual_platform::linux::{KernelTree, resctrl};
use punctual_runtime::FinishedRun;
use punctual_runtime::report::RunReport;
use punctual_scenario::stages::{AddedKinds, Stages};
use punctual_scenario::{AllocationRequest, ControllerSource, PlatformChoice, RunError, RunRequest, WithoutEffect};
use punctual_workload::ControllerKind;

use super::metrics::RunMetrics;
use super::{document, failures, matrices, replay, stages};
use crate::args::{Change, Platform, Run};
use punctual_files::builtin;
use punctual_files::failure::Failure;
use punctual_files::scenario::{self, Allocation, Loaded};
use punctual_files::{profiles, trace};
use punctual_report::output::{self, OutputFile};
use punctual_report::timeline::timeline;
use punctual_report::verdict::Verdict;
use punctual_report::watch::Watcher;
use punctual_report::{page, summary};

/// Makes the request of a run: [`request`], or for a program that has more options than this one, what adds these.
pub type MakeRequest<'a> = &'a dyn Fn(&Loaded, &Change) -> Result<RunRequest, Failure>;

/// Carries out `punctual run`; `kinds` are those of the program's own stages.
pub fn run(arguments: &Run, kinds: AddedKinds<'_>, make: MakeRequest<'_>, command: &str) -> Result<(), Failure> {
    let change = &arguments.change;
    let overrides = change.overrides(arguments.controller);
    let mut loaded = scenario::load_with(arguments.scenario.as_deref(), &overrides, kinds)?;
    if arguments.dry_run {
        return rehearse(&make(&loaded, change)?, &loaded);
    }
    // In a process of the scenario's own stages, this serves the stage and does not return.
    let prepared = stages::prepare(&mut loaded, arguments)?;
    output::apart(&[
        ("the scenario", loaded.file.as_deref()),
        ("--model", arguments.model.as_deref()),
        ("--json", arguments.json.as_deref()),
        ("--html", arguments.html.as_deref()),
        ("--trace", arguments.trace.as_deref()),
        ("--record", arguments.record.as_deref()),
    ])?;
    if loaded.is_stages_only() {
        return prepared.map_or(Ok(()), |prepared| stages::alone(prepared, &loaded, arguments, command));
    }
    let json = OutputFile::report(arguments.json.as_ref())?;
    let html = OutputFile::page(arguments.html.as_ref())?;
    let trace = OutputFile::timeline(arguments.trace.as_ref())?;
    let record = OutputFile::log(arguments.record.as_ref())?;
    let mut request = make(&loaded, change)?;
    request.record = record.is_some();
    request.force = arguments.force;
    request.stages = prepared.as_ref().map_or_else(Vec::new, Stages::goals);
    let controlled = loaded.scenario.control.kind != ControllerKind::Open;
    refuse_without_effect(&request, arguments)?;
    if controlled && !arguments.identify {
        let path = model_path(arguments.model.as_deref(), &loaded, request.platform);
        request.controller = given_controller(arguments.model.as_deref(), &loaded, request.platform)?;
        check_controller(&request, path.as_deref())?;
    }

    let mut metrics = RunMetrics::serve(arguments.metrics, true)?;
    let watcher = Watcher::start(arguments.plain, Some(&loaded.scenario.name))?;
    let mut learnt = LearningResult::default();
    if controlled && arguments.identify {
        learnt = learn_for(&mut request, &watcher, &loaded)?;
    }
    let mut beside = stages::SideStages::new(prepared, request.record);
    let finished = perform(&request, &watcher, &mut metrics, &mut beside);
    // The view ends before the stages do, so that the last output of their programs is visible.
    drop(watcher);
    let shared = beside.beside();
    let stages::EndedStages { rows, failed, decided } = beside.finish(&loaded);
    // A run whose stage failed has a report, too.
    let FinishedRun { mut report, log } = match (finished, &failed) {
        (Err(_), Err(_)) => return failed,
        (Err(early @ RunError::Interrupted), _) if arguments.check => return Err(Failure::Refuted(early.to_string())),
        (Err(early @ RunError::Interrupted), _) => return super::print(&format!("{early}\n")),
        (finished, _) => finished.map_err(|error| failures::of_run(error, &loaded))?,
    };
    report.stages.extend(rows);
    report.header.protection.extend(shared);
    report.summary.notes.splice(0..0, learnt.note);

    // The text comes first, and one output that cannot be written does not prevent the others.
    let told = super::print(&learnt.text).and_then(|()| super::print_report(&summary::summary(&report)));
    let json = json.map_or(Ok(()), |file| file.json(&report));
    let html = html.map_or(Ok(()), |file| file.text(&page::page(&report, command)));
    let trace = trace.map_or(Ok(()), |file| file.json(&timeline(&report)));
    let record = decided.and_then(|stages| {
        let joined = |mut log: EventLog| {
            stages.into_iter().for_each(|stages| log.join(stages));
            log
        };
        replay::write(record, log.map(joined))
    });
    let checked = checked(&report, arguments.check);
    Failure::all([told, json, html, trace, record, failed, checked])
}

/// Prints how a run would set cache ways and bandwidth, as commands.
fn rehearse(request: &RunRequest, loaded: &Loaded) -> Result<(), Failure> {
    if request.platform == PlatformChoice::Sim {
        return Err(Failure::of(WithoutEffect::of(
            "--dry-run",
            "it is for --platform linux",
        )));
    }
    let commands = punctual_scenario::rehearse(request).map_err(|error| failures::of_run(error, loaded))?;
    super::print(&match commands.is_empty() {
        true => "no task has a profile, so a run sets neither cache ways nor bandwidth\n".into(),
        false => format!("a run would, and this has not:\n{}\n", commands.join("\n")),
    })
}

/// Fails if the run was to meet its goals and did not.
pub(super) fn checked(report: &RunReport, check: bool) -> Result<(), Failure> {
    let verdict = Verdict::of(report);
    match check && !verdict.is_good() {
        true => Err(Failure::Refuted(format!("--check: {}", verdict.sentence(report)))),
        false => Ok(()),
    }
}

/// Request to the runtime, without a controller.
pub fn request(loaded: &Loaded, change: &Change) -> Result<RunRequest, Failure> {
    let trace = Arc::new(trace::load(&loaded.scenario, loaded.file.as_deref())?);
    let platform = match change.platform {
        Platform::Linux => {
            is_folder(loaded)?;
            PlatformChoice::Linux
        }
        Platform::Sim => PlatformChoice::Sim,
    };
    let splits = platform == PlatformChoice::Sim || resctrl::is_mounted(&KernelTree::default());
    Ok(RunRequest {
        store_path: loaded.store_path.clone(),
        mapped: loaded.mapped.clone(),
        neighbours: loaded.neighbours.clone(),
        // Files that are missing are refused wherever the run is.
        allocation: allocation(loaded)?.filter(|_| splits),
        pipeline: loaded.stages.clone(),
        ..RunRequest::new(loaded.scenario.clone(), trace, platform)
    })
}

/// Refuses a store where there is something else than a folder.
fn is_folder(loaded: &Loaded) -> Result<(), Failure> {
    match &loaded.store_path {
        Some(path) if path.exists() && !path.is_dir() => Err(Failure::of(format!(
            "{}: store.path: {} is no folder: name another, which is made if it is missing",
            loaded.place_of("store.path"),
            path.display()
        ))),
        _ => Ok(()),
    }
}

/// Refuses options without effect in this run; settings of the scenario without effect are noted in the report.
fn refuse_without_effect(request: &RunRequest, arguments: &Run) -> Result<(), Failure> {
    let open = request.scenario.control.kind == ControllerKind::Open;
    let why = "`open` works without a model; leave it out, or choose a --controller";
    let of_model = arguments
        .of_a_model()
        .filter(|_| open)
        .map(|option| WithoutEffect::of(option, why));
    let others = punctual_scenario::without_effect(request).into_iter();
    let others = others.filter(WithoutEffect::is_option);
    Failure::refuse(of_model.chain(others).map(|found| found.to_string()))
}

/// Refuses a model or controller that cannot meet a goal here, and names its file.
fn check_controller(request: &RunRequest, path: Option<&Path>) -> Result<(), Failure> {
    let Some(path) = path else { return Ok(()) };
    let hint = |error: &RunError| match error {
        RunError::Unfit(_) => "; --force runs it anyway",
        _ => "",
    };
    punctual_scenario::check_controller(request)
        .map_err(|error| Failure::of(format!("{}: {error}{}", path.display(), hint(&error))))
}

/// Result of learning a model before a run.
#[derive(Default)]
struct LearningResult {
    /// The model as text.
    text: String,
    /// Note in the report if no useful model was learnt.
    note: Option<String>,
}

/// Learns a model for the request's controller. If the result is unusable, the request continues with the scenario's
/// model, or without a model if none fits.
fn learn_for(request: &mut RunRequest, watcher: &Watcher, loaded: &Loaded) -> Result<LearningResult, Failure> {
    let mut text = String::new();
    let useless = match try_learn(request, watcher, loaded)? {
        Ok((model, _)) => {
            let shown = model.mimo.as_ref().unwrap_or(&model.tardiness);
            text = format!("\nmodel learnt on this machine\n{}", matrices::model(shown));
            let law = law_kind(request.scenario.control.kind, request.prices());
            let fit = model.check_fit(law);
            request.controller = Some(ControllerSource::Model(model));
            match fit.map_err(|error| error.to_string()).and_then(|()| usable(request)) {
                Ok(()) => return Ok(LearningResult { text, note: None }),
                Err(why) => why,
            }
        }
        Err(why) => why,
    };
    request.controller = given_controller(None, loaded, request.platform)?;
    let of_scenario = request.controller.is_some() && usable(request).is_ok();
    let instead = match of_scenario {
        true => "the run went on with the scenario's model",
        false => {
            request.controller = None;
            request.scenario.control.within = false;
            "no other model is at hand"
        }
    };
    let note = Some(format!("nothing useful was learnt: {useless}; {instead}"));
    Ok(LearningResult { text, note })
}

/// Checks that the request's controller can run as it is; the error is the reason.
fn usable(request: &RunRequest) -> Result<(), String> {
    punctual_scenario::check_controller(request).map_err(|error| error.to_string())
}

/// Policy that splits ways and bandwidth; `None` if no task has a profile.
fn allocation(loaded: &Loaded) -> Result<Option<AllocationRequest>, Failure> {
    let Allocation {
        policy,
        changes,
        grid,
        way_kib,
    } = loaded.allocation;
    let Some(policy) = policy else { return Ok(None) };
    let refill = Refill {
        way_bytes: f64::from(way_kib) * 1024.0,
        ..Refill::PAPER
    };
    let (mut read, mut wrong) = (Vec::new(), Vec::new());
    for file in &loaded.profiles {
        // A scenario that `punctual new` has written names profiles that the program contains.
        let folder = loaded.file.as_deref().and_then(Path::parent).unwrap_or(Path::new(""));
        let named = file.path.strip_prefix(folder).unwrap_or(&file.path);
        let read_file = match builtin::beside_scenarios(named).filter(|_| !file.path.exists()) {
            Some((shown, content)) => profiles::of_bytes(&shown, content, grid),
            None => profiles::file(&file.path, grid),
        };
        match read_file {
            Ok(profile) => read.push((file.task.clone(), profile)),
            Err(why) => wrong.push(format!("{}: {why}", file.place)),
        }
    }
    Failure::refuse(wrong)?;
    Ok(Some(AllocationRequest {
        policy,
        changes,
        profiles: read,
        refill: (way_kib > 0).then_some(refill),
    }))
}

/// Controller of `--model`, else of the scenario; `None` if neither names one.
pub fn given_controller(
    option: Option<&Path>,
    loaded: &Loaded,
    platform: PlatformChoice,
) -> Result<Option<ControllerSource>, Failure> {
    let Some(path) = model_path(option, loaded, platform) else {
        return Ok(None);
    };
    match path
        .file_name()
        .and_then(|name| builtin::beside_scenarios(Path::new(name)))
    {
        Some((shown, content)) if option.is_none() && !path.exists() => document::of_bytes(Path::new(&shown), content),
        _ => document::controller(&path),
    }
    .map(Some)
}

/// File of `--model`, else of the scenario.
fn model_path(option: Option<&Path>, loaded: &Loaded, platform: PlatformChoice) -> Option<PathBuf> {
    let of_scenario = || loaded.model.as_deref().map(|path| for_platform(path, platform));
    option.map(Path::to_path_buf).or_else(of_scenario)
}

/// Path of a model for this platform: `{platform}` in the name becomes `linux` or `sim`, because a scenario runs on
/// both machines and each needs its own model.
fn for_platform(path: &Path, platform: PlatformChoice) -> PathBuf {
    path.to_string_lossy().replace("{platform}", platform.name()).into()
}

/// Learns a model with the request's scenario, under the live view.
pub fn learn(request: &RunRequest, watcher: &Watcher, loaded: &Loaded) -> Result<(ModelDocument, RunReport), Failure> {
    try_learn(request, watcher, loaded)?.map_err(Failure::of)
}

/// As `learn`, but a record without a usable model is no failure: the inner error is the reason.
fn try_learn(
    request: &RunRequest,
    watcher: &Watcher,
    loaded: &Loaded,
) -> Result<Result<(ModelDocument, RunReport), String>, Failure> {
    watcher.begin(request.scenario.duration.as_secs_f64());
    watcher.learns();
    let identified = punctual_scenario::identify(request, &mut |progress| {
        super::keep_off_exclusive_cores(&progress);
        watcher.see(progress)
    });
    if watcher.stopped() {
        return Err(Failure::of("stopped before a model was learnt; nothing was written"));
    }
    match identified {
        Ok(learnt) => Ok(Ok(learnt)),
        Err(RunError::Model(error)) => Ok(Err(error.to_string())),
        Err(error) => Err(failures::of_run(error, loaded)),
    }
}

fn perform(
    request: &RunRequest,
    watcher: &Watcher,
    metrics: &mut RunMetrics,
    beside: &mut stages::SideStages,
) -> Result<FinishedRun, RunError> {
    watcher.begin(request.scenario.duration.as_secs_f64());
    punctual_scenario::run(request, &mut |progress| {
        super::keep_off_exclusive_cores(&progress);
        if beside.look(&progress).is_break() {
            return ControlFlow::Break(());
        }
        if let Some(told) = beside.news() {
            watcher.sinks(told);
        }
        metrics.see(&progress);
        watcher.see(progress)
    })
}
