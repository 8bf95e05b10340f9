//! `punctual-lab cluster`: clusters simulated under every fault, seed by seed (`sim`), processes of a cluster under
//! load and faults (`run`), and a load for one that runs (`load`).

mod chart;
pub mod chronos;
mod drawing;
mod export;
pub mod load;
mod page;
pub mod run;
mod settings;
mod stock;

use std::collections::BTreeMap;
use std::fmt::Write;
use std::io::{IsTerminal, Write as _};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use punctual_cluster_sim::{ClusterSettings, EventTrace, Plant, TraceMode, Violation};
use punctual_platform::linux::process;
use punctual_units::{Nanos, Time};
use serde_json::json;

use crate::args::{Cluster, ClusterSim, Export, LabProcess};
use punctual_cli::commands::print;
use punctual_files::failure::Failure;
use punctual_report::output::{OutputFile, OutputKind, apart};
use punctual_report::summary::count;

/// Seeds simulated between two checks for a failing one.
const BLOCK: u64 = 64;
/// Interval between progress reports.
const PROGRESS_EVERY: Duration = Duration::from_millis(500);

/// Totals over seeds, up to the first that fails.
#[derive(Debug, Default)]
struct Sum {
    seeds: u64,
    faults: BTreeMap<&'static str, u64>,
    requests: BTreeMap<&'static str, u64>,
    takeovers: u64,
    longest_without_master: Nanos,
}

/// Contribution of one seed.
struct Part {
    seed: u64,
    sum: Sum,
    violated_at: Option<Time>,
    exported: String,
}

/// A seed that broke a guarantee, simulated again with its trace.
struct Failed {
    seed: u64,
    violation: Violation,
    trace: EventTrace,
}

/// Carries out `punctual-lab cluster`; `command` is the command line as typed.
pub fn cluster(what: &Cluster, command: &str) -> Result<(), Failure> {
    match what {
        Cluster::Sim(arguments) => sim(arguments, command),
        Cluster::Load(arguments) => load::load(arguments),
        Cluster::Run(arguments) => run::run(arguments, command),
    }
}

/// Carries out the part of one process of a run.
pub fn process(what: &LabProcess) -> Result<(), Failure> {
    match what {
        LabProcess::Product(what) => punctual_cli::cluster::process(what),
        LabProcess::Load(arguments) => load::load(arguments),
        LabProcess::Member {
            parent,
            program,
            arguments,
        } => Err(member(*parent, program, arguments)),
    }
}

/// Becomes a member of etcd by `exec`, which ends with its parent. Returns only with an error.
fn member(parent: i32, program: &Path, arguments: &[String]) -> Failure {
    process::die_with(parent);
    let error = std::process::Command::new(program).args(arguments).exec();
    Failure::at(program, format!("cannot be started: {error}"))
}

fn sim(arguments: &ClusterSim, command: &str) -> Result<(), Failure> {
    let settings = match &arguments.file {
        Some(file) => settings::load(file)?,
        None => ClusterSettings::default(),
    };
    let plant = arguments.plant.as_deref().map(planted).transpose()?;
    if arguments.export == Some(Export::ListAppend) && arguments.seeds != 1 {
        return Err(Failure::of(
            "--export list-append: Elle reads one history at a time; add `--seeds 1`, and `--seed S` for another one",
        ));
    }
    let exported = arguments.export.map(|_| arguments.to.as_path());
    apart(&[
        ("--json", arguments.json.as_deref()),
        ("--html", arguments.html.as_deref()),
        ("--to", exported),
    ])?;
    let json = OutputFile::report(arguments.json.as_ref())?;
    let html = OutputFile::page(arguments.html.as_ref())?;
    let to = exported
        .map(|to| OutputFile::prepare(to, OutputKind::Report))
        .transpose()?;

    let last = arguments.seed.saturating_add(arguments.seeds);
    let mut exports = String::new();
    let (sum, failing) = sweep(&settings, arguments.seed..last, plant, arguments.export, &mut exports);
    let failed = failing
        .map(|(seed, at)| again(&settings, seed, at, plant))
        .transpose()?;

    print(&text(&sum, arguments.seed, plant, failed.as_ref()))?;
    let written = [
        json.map(|file| file.json(&document(&settings, &sum, arguments.seed, plant, failed.as_ref()))),
        html.map(|file| {
            file.text(&page::page(
                &settings,
                &sum,
                arguments.seed,
                plant,
                failed.as_ref(),
                command,
            ))
        }),
        to.map(|file| file.text(&exports)),
    ];
    Failure::all(written.into_iter().flatten())?;
    match failed {
        None => Ok(()),
        Some(failed) => Err(Failure::Refuted(refutation(&failed, arguments.file.as_deref(), plant))),
    }
}

/// Planted fault by its name.
fn planted(name: &str) -> Result<Plant, Failure> {
    let found = Plant::ALL.into_iter().find(|plant| plant.name() == name);
    found.ok_or_else(|| {
        let names = Plant::ALL.map(Plant::name).join(", ");
        Failure::of(format!("--plant {name}: no such fault; there are {names}"))
    })
}

/// Simulates seeds in order, a block at a time, and adds up their parts; stops at the first that fails.
fn sweep(
    settings: &ClusterSettings,
    seeds: std::ops::Range<u64>,
    plant: Option<Plant>,
    export: Option<Export>,
    exports: &mut String,
) -> (Sum, Option<(u64, Time)>) {
    let mut sum = Sum::default();
    let total = seeds.end - seeds.start;
    let (mut next, mut told) = (seeds.start, Instant::now());
    let shown = std::io::stderr().is_terminal();
    while next < seeds.end {
        let block = next..seeds.end.min(next.saturating_add(BLOCK));
        next = block.end;
        for part in parts(settings, block, plant, export) {
            sum.add(&part.sum);
            exports.push_str(&part.exported);
            if let Some(at) = part.violated_at {
                return (sum, Some((part.seed, at)));
            }
        }
        if shown && told.elapsed() >= PROGRESS_EVERY {
            told = Instant::now();
            let _ = write!(std::io::stderr(), "\r{} of {} seeds ", count(sum.seeds), count(total));
        }
    }
    if shown {
        let _ = write!(std::io::stderr(), "\r{:40}\r", "");
    }
    (sum, None)
}

/// Simulates the seeds of a block by as many threads as there are cores, because seeds are independent; returns the
/// parts in order.
fn parts(
    settings: &ClusterSettings,
    block: std::ops::Range<u64>,
    plant: Option<Plant>,
    export: Option<Export>,
) -> Vec<Part> {
    let threads = thread::available_parallelism().map_or(1, |cores| cores.get() as u64);
    let mut parts: Vec<Part> = thread::scope(|scope| {
        let every = |first: u64| {
            let seeds = block.clone().skip(first as usize).step_by(threads as usize);
            move || {
                seeds
                    .map(|seed| part(settings, seed, plant, export))
                    .collect::<Vec<_>>()
            }
        };
        let running: Vec<_> = (0..threads).map(|first| scope.spawn(every(first))).collect();
        let ended = running.into_iter().map(|thread| thread.join());
        ended
            .flat_map(|parts| parts.unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            .collect()
    });
    parts.sort_by_key(|part| part.seed);
    parts
}

fn part(settings: &ClusterSettings, seed: u64, plant: Option<Plant>, export: Option<Export>) -> Part {
    let report = punctual_cluster_sim::run(settings, seed, plant, TraceMode::Nothing);
    Part {
        seed,
        violated_at: report.violation.map(|violation| violation.at),
        exported: match export {
            None => String::new(),
            Some(Export::ListAppend) => export::list_append(&report.history.deeds),
            Some(Export::Requests) => export::requests(&report.history, seed),
        },
        sum: Sum {
            seeds: 1,
            faults: report.faults,
            requests: report.requests,
            takeovers: report.takeovers,
            longest_without_master: report.longest_without_master,
        },
    }
}

impl Sum {
    fn add(&mut self, part: &Sum) {
        self.seeds += part.seeds;
        let add = |to: &mut BTreeMap<&'static str, u64>, from: &BTreeMap<&'static str, u64>| {
            from.iter()
                .for_each(|(kind, number)| *to.entry(kind).or_default() += number);
        };
        add(&mut self.faults, &part.faults);
        add(&mut self.requests, &part.requests);
        self.takeovers += part.takeovers;
        self.longest_without_master = self.longest_without_master.max(part.longest_without_master);
    }
}

/// Simulates a failing seed again, to trace the events before its violation.
fn again(settings: &ClusterSettings, seed: u64, at: Time, plant: Option<Plant>) -> Result<Failed, Failure> {
    let report = punctual_cluster_sim::run(settings, seed, plant, TraceMode::TraceUntil(at));
    match (report.violation, report.trace) {
        (Some(violation), Some(trace)) => Ok(Failed { seed, violation, trace }),
        _ => Err(Failure::Internal(format!(
            "seed {seed} failed once, and not when it was simulated again"
        ))),
    }
}

/// Sentence on whether all guarantees held.
fn verdict(sum: &Sum, first: u64, plant: Option<Plant>, failed: Option<&Failed>) -> String {
    let planted = plant.map_or(String::new(), |plant| format!(", with {} planted", plant.name()));
    match failed {
        None if sum.seeds == 1 => format!("Seed {first}: no promise was broken{planted}"),
        None => format!(
            "{} seeds from {first} on: no promise was broken{planted}",
            count(sum.seeds)
        ),
        Some(failed) => format!("Seed {} breaks a promise{planted}", failed.seed),
    }
}

fn kinds(counts: &BTreeMap<&'static str, u64>) -> String {
    let each: Vec<String> = counts
        .iter()
        .map(|(kind, number)| format!("{kind} {}", count(*number)))
        .collect();
    match each.is_empty() {
        true => "none".into(),
        false => each.join(", "),
    }
}

/// Names and texts of the totals.
fn rows(sum: &Sum) -> [(&'static str, String); 4] {
    [
        ("faults", kinds(&sum.faults)),
        ("requests", kinds(&sum.requests)),
        ("takeovers", count(sum.takeovers)),
        ("longest time without a master", sum.longest_without_master.to_string()),
    ]
}

fn text(sum: &Sum, first: u64, plant: Option<Plant>, failed: Option<&Failed>) -> String {
    let mut text = format!("{} (simulated)\n", verdict(sum, first, plant, failed));
    for (name, value) in rows(sum) {
        let _ = writeln!(text, "  {name}: {value}");
    }
    if let Some(failed) = failed {
        let _ = write!(text, "\n{}\n", chart::chart(&failed.trace));
    }
    text
}

fn refutation(failed: &Failed, file: Option<&Path>, plant: Option<Plant>) -> String {
    let at = match failed.violation.at {
        Time::MAX => "in the log".to_owned(),
        at => format!("at {}", chart::instant(at.0)),
    };
    let file = file.map_or(String::new(), |file| format!(" {}", file.display()));
    let plant = plant.map_or(String::new(), |plant| format!(" --plant {}", plant.name()));
    let again = format!("punctual-lab cluster sim{file} --seeds 1 --seed {}{plant}", failed.seed);
    format!(
        "seed {}, {at}: {}\nReplay it: {again}",
        failed.seed, failed.violation.what
    )
}

fn document(
    settings: &ClusterSettings,
    sum: &Sum,
    first: u64,
    plant: Option<Plant>,
    failed: Option<&Failed>,
) -> serde_json::Value {
    json!({
        "simulated": true,
        "settings": settings::document(settings),
        "first_seed": first,
        "seeds": sum.seeds,
        "planted": plant.map(Plant::name),
        "faults": sum.faults,
        "requests": sum.requests,
        "takeovers": sum.takeovers,
        "longest_without_master_s": sum.longest_without_master.as_secs_f64(),
        "violation": failed.map(|failed| json!({
            "seed": failed.seed,
            "at_s": (failed.violation.at < Time::MAX).then(|| failed.violation.at.as_secs_f64()),
            "what": failed.violation.what,
            "chart": chart::chart(&failed.trace),
        })),
    })
}
