//! `punctual run`: a scenario, from its file to its report.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use punctual_allocation::Refill;
use punctual_loop::ModelDocument;
use punctual_runtime::Finished;
use punctual_runtime::report::RunReport;
use punctual_scenario::{AllocationRequest, ControllerSource, Faults, MachineModel, PlatformChoice, RunRequest};
use punctual_workload::ControllerKind;

use super::{document, failures, matrices};
use crate::args::{Change, Platform, Run};
use crate::builtin;
use crate::failure::Failure;
use crate::output::{self, Output};
use crate::scenario::{self, Allocation, Loaded};
use crate::verdict::Verdict;
use crate::watch::Watcher;
use crate::{page, profiles, summary, trace};

/// Carries out `punctual run`.
pub fn run(arguments: &Run, command: &str) -> Result<(), Failure> {
    let change = &arguments.change;
    let loaded = scenario::load(arguments.scenario.as_deref(), &change.overrides(arguments.controller))?;
    output::apart(&[
        ("the scenario", loaded.file.as_deref()),
        ("--model", arguments.model.as_deref()),
        ("--json", arguments.json.as_deref()),
        ("--html", arguments.html.as_deref()),
        ("--record", arguments.record.as_deref()),
    ])?;
    let json = Output::prepare_some(arguments.json.as_ref())?;
    let html = Output::prepare_some(arguments.html.as_ref())?;
    let record = Output::prepare_some(arguments.record.as_ref())?;
    let mut request = request(&loaded, change)?;
    request.record = record.is_some();
    let controlled = loaded.scenario.control.kind != ControllerKind::Open;
    if controlled && !arguments.identify {
        request.controller = given_controller(arguments.model.as_deref(), &loaded, request.platform)?;
    }

    let watcher = Watcher::start(arguments.plain)?;
    let mut learnt = String::new();
    if controlled && arguments.identify {
        let (model, _) = learn(&request, &watcher, &loaded)?;
        learnt = format!("\nmodel learnt on this machine\n{}", matrices::model(&model.mimo));
        model.check_fit().map_err(|error| Failure::input([error.to_string()]))?;
        request.controller = Some(ControllerSource::Model(model));
    }
    let Finished { report, log } = perform(&request, &watcher, &loaded)?;
    drop(watcher);

    // What can be told is told: one output that cannot be written does not take the others with it.
    let told = super::print(&learnt).and_then(|()| super::print(&summary::summary(&report)));
    let json = json.map_or(Ok(()), |file| file.json(&report));
    let html = html.map_or(Ok(()), |file| file.text(&page::page(&report, command)));
    let record = match (record, log) {
        (Some(file), Some(log)) => file.json(&log),
        _ => Ok(()),
    };
    Failure::all([told, json, html, record, checked(&report, arguments.check)])
}

/// Fails where the run was to hold its goals and did not.
fn checked(report: &RunReport, check: bool) -> Result<(), Failure> {
    let verdict = Verdict::of(report);
    match check && !verdict.is_good() {
        true => Err(Failure::Goal(format!("--check: {}", verdict.sentence(report)))),
        false => Ok(()),
    }
}

/// What the runtime is asked for, without a controller.
pub fn request(loaded: &Loaded, change: &Change) -> Result<RunRequest, Failure> {
    let simulated = &change.simulated;
    if change.platform == Platform::Linux && simulated.is_some() {
        let what = "--machine, --governor, --fault, --profile, --allocate and --way-kib are for the simulated machine: add --platform sim";
        return Err(Failure::input([what]));
    }
    one_profile_each(&simulated.profile)?;
    Ok(RunRequest {
        scenario: loaded.scenario.clone(),
        trace: Arc::new(trace::load(&loaded.scenario, loaded.file.as_deref())?),
        platform: match change.platform {
            Platform::Linux => PlatformChoice::Linux,
            Platform::Sim => PlatformChoice::Sim,
        },
        controller: None,
        store_path: loaded.store_path.clone(),
        spare: loaded.spare.clone(),
        record: false,
        machine: simulated.machine.as_deref().map(machine).transpose()?,
        governor: simulated.governor,
        faults: Faults {
            seed: loaded.scenario.seed,
            list: simulated.fault.clone(),
        },
        allocation: match change.platform {
            Platform::Linux => None,
            Platform::Sim => allocation(loaded)?,
        },
        surge: None,
    })
}

/// Refuses a task named twice by `--profile`: one of the two files would be passed over.
fn one_profile_each(given: &[(String, String)]) -> Result<(), Failure> {
    for (number, (task, file)) in given.iter().enumerate() {
        if let Some((_, first)) = given[..number].iter().find(|(other, _)| other == task) {
            return Err(Failure::input([format!(
                "--profile {task}={file}: the task has the profile {first} already; give it one"
            )]));
        }
    }
    Ok(())
}

/// Who gets which ways and how much bandwidth; nobody where no task has a profile.
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
        let of_scenario =
            || builtin::beside_scenarios(&file.path).filter(|_| loaded.file.is_none() && !file.path.exists());
        let read_file = match of_scenario() {
            Some((shown, content)) => profiles::of_bytes(&shown, content, grid),
            None => profiles::file(&file.path, grid),
        };
        match read_file {
            Ok(profile) => read.push((file.task.clone(), profile)),
            Err(why) => wrong.push(format!("{}: {why}", file.place)),
        }
    }
    if !wrong.is_empty() {
        return Err(Failure::Input(wrong));
    }
    Ok(Some(AllocationRequest {
        policy,
        changes,
        profiles: read,
        refill: (way_kib > 0).then_some(refill),
    }))
}

/// The machine in this file.
fn machine(path: &Path) -> Result<MachineModel, Failure> {
    let refused = |what: String| Failure::input([format!("{}:{what}", path.display())]);
    let text = std::fs::read_to_string(path).map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => {
            refused(" no such file; name a machine file, such as machines/exynos5422-a15.toml".into())
        }
        _ => refused(format!(" cannot be read: {error}")),
    })?;
    MachineModel::from_toml(&text).map_err(|error| refused(error.to_string()))
}

/// The controller of `--model`, else of the scenario; none if neither names one, which the runtime refuses in words.
pub fn given_controller(
    option: Option<&Path>,
    loaded: &Loaded,
    platform: PlatformChoice,
) -> Result<Option<ControllerSource>, Failure> {
    if let Some(path) = option {
        return document::controller(path).map(Some);
    }
    let Some(path) = loaded.model.as_deref().map(|path| for_platform(path, platform)) else {
        return Ok(None);
    };
    match path
        .file_name()
        .and_then(|name| builtin::beside_scenarios(Path::new(name)))
    {
        Some((shown, content)) if !path.exists() => document::of_bytes(Path::new(&shown), content),
        _ => document::controller(&path),
    }
    .map(Some)
}

/// A scenario runs on both machines, and each needs a model of its own: `{platform}` in the name stands for `linux`
/// or `sim`.
fn for_platform(path: &Path, platform: PlatformChoice) -> PathBuf {
    path.to_string_lossy().replace("{platform}", platform.name()).into()
}

/// Learns a model with the request's scenario, watched.
pub fn learn(request: &RunRequest, watcher: &Watcher, loaded: &Loaded) -> Result<(ModelDocument, RunReport), Failure> {
    watcher.begin(request.scenario.duration.as_secs_f64());
    let identified = punctual_scenario::identify(request, &mut |progress| watcher.see(progress));
    if watcher.stopped() {
        return Err(Failure::input([
            "stopped before a model was learnt; nothing was written",
        ]));
    }
    identified.map_err(|error| failures::of_run(error, loaded))
}

fn perform(request: &RunRequest, watcher: &Watcher, loaded: &Loaded) -> Result<Finished, Failure> {
    watcher.begin(request.scenario.duration.as_secs_f64());
    let finished = punctual_scenario::run(request, &mut |progress| watcher.see(progress));
    finished.map_err(|error| failures::of_run(error, loaded))
}
