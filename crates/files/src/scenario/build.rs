//! Builds a [`Scenario`] from a document: all keys, their meaning, and their defaults.
//!
//! `docs/guide/reference/scenario-keys.md` is the reference for users.

use std::path::PathBuf;

use punctual_platform::Neighbours;
use punctual_scenario::stages::{AddedKinds, StagesSpec};
use punctual_toml::Section;
use punctual_units::{CoreId, Nanos, Share};
use punctual_workload::{
    Active, Arrival, Class, ControlSpec, ControllerKind, Demand, Durability, Excitation, Goal, ObjectSet, Pace, Prices,
    Scenario, SensorLoad, SensorSource, StoreCheck, StoreNeeds, TaskGoal, TaskSpec, UpdateMode, Volume,
};

use super::allocation::{Allocation, allocation};
use super::stages::{alone, stages};

/// Content of a scenario file, with its paths as written.
#[derive(Debug)]
pub struct Draft {
    /// The scenario; meaningless if the report holds problems.
    pub scenario: Scenario,
    /// `control.model`: relative to the scenario file.
    pub model: Option<String>,
    /// `store.path`: relative to the current directory.
    pub store_path: Option<String>,
    /// `store.temporal`: the file that temporal objects are mapped to; relative to the current directory.
    pub mapped: Option<PathBuf>,
    /// `[movie]`: the file that `bench movie` plays.
    pub movie: MovieFile,
    /// `[allocation]`: the cache ways and memory bandwidth of each core.
    pub allocation: Allocation,
    /// `exclusive`: programs that may stay on exclusive cores.
    pub neighbours: Neighbours,
    /// `stage`, `edge` and `pipeline`, with paths as written.
    pub stages: StagesSpec,
}

/// Length of a program's name in the kernel (`TASK_COMM_LEN` less the final zero, proc_pid_comm(5)).
const NAME_BYTES: usize = 15;

/// The file of `bench movie`, and the load beside it.
#[derive(Clone, Copy, Debug)]
pub struct MovieFile {
    /// Bytes of one frame.
    pub frame_bytes: u32,
    /// Bytes of the file.
    pub file_bytes: u32,
    /// Bytes of the file that the page cache may keep.
    pub cache_bytes: u32,
    /// Frames played in one run.
    pub frames: u32,
    /// Whether a background load keeps the disk busy.
    pub busy_disk: bool,
}

/// Reads a whole document; `name` is the default for the scenario's name, and stages may be of these `kinds`.
pub fn draft(mut top: Section<'_, '_>, name: &str, kinds: AddedKinds<'_>) -> Draft {
    let name = top.text("name").unwrap_or_else(|| name.to_string());
    let seed = top.count("seed").unwrap_or(1);
    let duration = top.time("duration").unwrap_or(Nanos::from_secs(60));
    let (goal, by_hand) = top.table("goal", goal);
    let paper = by_hand || goal.tasks.late().is_none();
    let (control, model) = top.table("control", |section| control(section, paper, by_hand));
    let (store, store_path, mapped) = top.table("store", store);
    let stages_only = alone(&mut top);
    let scenario = Scenario {
        name,
        seed,
        duration,
        goal,
        control,
        store,
        sensors: match stages_only {
            true => SILENT,
            false => top.table("trace", sensors),
        },
        tasks: top.tables("task", task),
        excitation: top.table("identify", excitation),
    };
    if mapped.is_some() && matches!(scenario.sensors.volume, Volume::Utilisation(_)) {
        let why = "the next run would have other objects: set `trace.replicas` in place of `trace.utilisation`";
        top.complain("store.temporal", why);
    }
    let movie = top.table("movie", movie);
    let profiled = scenario.tasks.iter().find(|task| task.profile.is_some());
    let allocation = top.table("allocation", |section| allocation(section, profiled));
    let neighbours = top.table("exclusive", neighbours);
    let stages = StagesSpec {
        turns_clocks: stages_only,
        ..stages(&mut top, kinds)
    };
    top.finish();
    Draft {
        stages,
        scenario,
        model,
        store_path,
        mapped,
        movie,
        allocation,
        neighbours,
    }
}

pub(crate) fn neighbours(section: &mut Section<'_, '_>) -> Neighbours {
    let spare = spare(section);
    let move_init = section.flag("move_init").unwrap_or(false);
    let lend = section.flag("lend").unwrap_or(true);
    let lend_to = groups(section, "lend_to");
    let share_with = groups(section, "share_with");
    let within = |group: &PathBuf| {
        share_with
            .iter()
            .any(|other| group.starts_with(other) || other.starts_with(group))
    };
    if let Some(group) = lend_to.iter().find(|group| within(group)) {
        let what = format!("\"{}\" is in lend_to, too: remove one of the two", group.display());
        section.complain("share_with", what);
    }
    if !lend && !lend_to.is_empty() {
        section.complain("lend_to", "nothing is lent while lend = false; remove one of the two");
    }
    let interrupts = section.texts("interrupts").unwrap_or_default();
    if interrupts.iter().any(|name| name.trim().is_empty()) {
        section.complain(
            "interrupts",
            "an interrupt has a number or a name; remove the empty one",
        );
    }
    Neighbours {
        stages: Vec::new(),
        cores: section.cores("cores").unwrap_or_default(),
        spare,
        move_init,
        lend,
        interrupts,
        lend_to,
        share_with,
        guests: false,
    }
}

/// Control groups, by their absolute paths in the hierarchy.
pub(crate) fn groups(section: &mut Section<'_, '_>, key: &'static str) -> Vec<PathBuf> {
    let names = section.texts(key).unwrap_or_default();
    for group in &names {
        if !group.starts_with('/') || group.split('/').any(|part| part == "..") || group.trim_matches('/').is_empty() {
            let what = format!(
                "\"{group}\" is no control group; write it as /proc/PID/cgroup shows it, e.g. \"/system.slice/render.service\""
            );
            section.complain(key, what);
        }
    }
    names.into_iter().map(Into::into).collect()
}

/// Program names as the kernel truncates them; a longer one would never match.
fn spare(section: &mut Section<'_, '_>) -> Vec<String> {
    let names = section.texts("spare").unwrap_or_default();
    for name in &names {
        if name.trim().is_empty() {
            section.complain("spare", "a program has a name; remove the empty one");
        } else if name.len() > NAME_BYTES {
            let what = format!(
                "\"{name}\" is longer than the {NAME_BYTES} bytes that the kernel keeps of a name; write it as `ps \
                 -o comm` shows it"
            );
            section.complain("spare", what);
        }
    }
    names
}

/// Defaults: frames of 50 Mbit/s at 24 per second; the paper's cache of 7 K pages; a file larger than the cache.
fn movie(section: &mut Section<'_, '_>) -> MovieFile {
    MovieFile {
        frame_bytes: section.count("frame_bytes").unwrap_or(256 << 10),
        file_bytes: section.count("file_bytes").unwrap_or(48 << 20),
        cache_bytes: section.count("cache_bytes").unwrap_or(7_000 * 4096),
        frames: section.count("frames").unwrap_or(150),
        busy_disk: section
            .choice("disk", &[("busy", true), ("idle", false)])
            .unwrap_or(true),
    }
}

/// Goals, and whether the data response ratio has a set point by hand.
fn goal(section: &mut Section<'_, '_>) -> (Goal, bool) {
    let tasks = task_goal(section).unwrap_or_default();
    let usual = if tasks.late().is_some() { 0.48 } else { 0.62 };
    let goal = Goal {
        tasks,
        drr: section.number("drr").unwrap_or(usual),
        min_fresh: section.share("min_fresh").unwrap_or(Share::clamped(0.5)),
    };
    (goal, section.has("drr"))
}

/// Goal of a table, if it has one: a share of jobs that may be late, or a mean tardiness.
pub(crate) fn task_goal(section: &mut Section<'_, '_>) -> Option<TaskGoal> {
    let (late, tardiness) = (section.percent("late"), section.number("tardiness"));
    if section.has("late") && section.has("tardiness") {
        section.complain(
            "tardiness",
            "`late` is a goal of another kind: a task has one goal; remove one of the two",
        );
    }
    late.map(TaskGoal::Late).or(tardiness.map(TaskGoal::Tardiness))
}

/// The controller. `paper`: the goal is a mean tardiness, so that nothing has a price unless asked for; `by_hand`: the
/// data response ratio has a set point.
fn control(section: &mut Section<'_, '_>, paper: bool, by_hand: bool) -> (ControlSpec, Option<String>) {
    let prices = section.table_if("prices", prices);
    if by_hand && prices.is_some() {
        section.complain(
            "prices",
            "`goal.drr` is a set point by hand, which prices find instead: remove one of the two",
        );
    }
    let period = section.time("period").unwrap_or(Nanos::from_millis(200));
    let every_period = Pace::Period(period);
    let paces = [("period", every_period), ("job", Pace::Job)];
    let kind = section
        .choice("controller", &ControllerKind::NAMED)
        .unwrap_or(ControllerKind::Mimo);
    // The faster the reaction to a late job, the fewer there are; and only the clock can change during a job.
    let usual = match kind.turns_clock() && !section.has("period") {
        true => Pace::Job,
        false => every_period,
    };
    let pace = section.choice("pace", &paces).unwrap_or(usual);
    if pace == Pace::Job && section.has("period") {
        section.complain(
            "period",
            "jobs set the pace (`pace = \"job\"`); remove one of the two keys",
        );
    }
    let control = ControlSpec {
        kind,
        pace,
        within: section
            .flag("within")
            .unwrap_or(pace == Pace::Job && kind.turns_clock()),
        probe: section.flag("probe").unwrap_or(true),
        best_effort_share: section.share("best_effort_share").unwrap_or(Share::ONE),
        best_effort_min: section.share("best_effort_min"),
        prices: prices.or((!paper).then(Prices::default)),
        prices_stated: prices.is_some(),
        warm_up: section.time("warm_up").unwrap_or(Nanos::from_secs(2)),
    };
    (control, section.text("model"))
}

fn prices(section: &mut Section<'_, '_>) -> Prices {
    let usual = Prices::default();
    Prices {
        energy: section.number("energy").unwrap_or(usual.energy),
        freshness: section.number("freshness").unwrap_or(usual.freshness),
    }
}

fn store(section: &mut Section<'_, '_>) -> (StoreNeeds, Option<String>, Option<PathBuf>) {
    let store = StoreNeeds {
        update_mode: section
            .choice("update_mode", &UpdateMode::NAMED)
            .unwrap_or(UpdateMode::MemoryFirst),
        durability: section
            .choice("durability", &Durability::NAMED)
            .unwrap_or(Durability::Volatile),
        coldest_first: section
            .choice("shedding", &[("uniform", false), ("coldest-first", true)])
            .unwrap_or(false),
        group_commit: section.time("group_commit").unwrap_or(StoreNeeds::GROUP_COMMIT),
        objects: section.count("objects").unwrap_or(10_000),
        object_bytes: section.count("object_bytes").unwrap_or(100),
        map_bytes: section.count("map_bytes").unwrap_or(StoreNeeds::MAP_BYTES),
        reader_life_max: section
            .time_or_none("reader_life_max")
            .unwrap_or(Some(StoreNeeds::READER_LIFE_MAX)),
        verify: section.choice("verify", &StoreCheck::NAMED).unwrap_or_default(),
    };
    let path = section.text("path");
    if path.as_deref() == Some("") {
        section.complain(
            "path",
            "names no folder; without this key, the store is a temporary one",
        );
    }
    let mapped = mapped(section, &store, path.as_deref());
    (store, path, mapped)
}

/// File that temporal objects are mapped to, if they are: of a name of its own, or in the store's folder.
fn mapped(section: &mut Section<'_, '_>, store: &StoreNeeds, path: Option<&str>) -> Option<PathBuf> {
    let temporal = section.text("temporal")?;
    let wrong = match (temporal.split_once(':'), path) {
        _ if temporal == "committed" => return None,
        _ if store.update_mode == UpdateMode::Transaction => {
            "each update is a transaction: leave out this key, or `update_mode`"
        }
        (Some(("mapped", file)), _) if !file.is_empty() => return Some(PathBuf::from(file)),
        (None, Some(folder)) if temporal == "mapped" => return Some(PathBuf::from(folder).join("temporal.map")),
        _ => "write \"committed\", \"mapped:\" and a file, or, with `path`, \"mapped\"",
    };
    section.complain("temporal", wrong);
    None
}

/// Stands in for the sensors of a scenario with stages only.
const SILENT: SensorLoad = SensorLoad {
    source: SensorSource::Synthetic {
        count: 1,
        period_min: Nanos::from_secs(1),
        period_max: Nanos::from_secs(1),
    },
    speedup: 1.0,
    volume: Volume::Replicas(1),
    value_bytes: 64,
};

fn sensors(section: &mut Section<'_, '_>) -> SensorLoad {
    SensorLoad {
        source: source(section),
        speedup: section.number("speedup").unwrap_or(1.0),
        volume: volume(section),
        value_bytes: section.count("value_bytes").unwrap_or(64),
    }
}

fn source(section: &mut Section<'_, '_>) -> SensorSource {
    let (dir, count, period) = (section.text("dir"), section.count("sensors"), section.times("period"));
    match (section.has("dir"), section.has("sensors")) {
        (true, true) => section.complain("sensors", "`dir` brings its own sensors; remove one of the two"),
        (false, false) => section.complain(
            "dir",
            "where do readings come from? give `dir`, a folder with sensors.csv and readings.csv, or `sensors`, a \
             number of made-up sensors",
        ),
        (true, false) if section.has("period") => {
            section.complain("period", "`dir` brings its own periods; remove this key");
        }
        _ => {}
    }
    let (period_min, period_max) = period.unwrap_or((Nanos::from_secs(1), Nanos::from_secs(10)));
    match dir {
        Some(dir) => SensorSource::Trace { dir },
        None => SensorSource::Synthetic {
            count: count.unwrap_or(1),
            period_min,
            period_max,
        },
    }
}

fn volume(section: &mut Section<'_, '_>) -> Volume {
    let (replicas, utilisation) = (section.count("replicas"), section.number("utilisation"));
    if section.has("replicas") && section.has("utilisation") {
        section.complain(
            "replicas",
            "`utilisation` determines the replicas; remove one of the two",
        );
    }
    match utilisation {
        Some(utilisation) => Volume::Utilisation(utilisation),
        None => Volume::Replicas(replicas.unwrap_or(1)),
    }
}

fn task(section: &mut Section<'_, '_>) -> TaskSpec {
    section.require("name", "give the task a name");
    TaskSpec {
        name: section.text("name").unwrap_or_default(),
        class: class(section),
        arrival: arrival(section),
        demand: demand(section),
        goal: task_goal(section),
        per_core: section.count("per_core").unwrap_or(1),
        cores: section.count("cores"),
        core: section.count("core").map(CoreId),
        active: Active {
            from: section.time("from").unwrap_or(Active::ALWAYS.from),
            until: section.time("until").unwrap_or(Active::ALWAYS.until),
        },
        profile: section.text("profile"),
    }
}

fn class(section: &mut Section<'_, '_>) -> Class {
    let deadline = section.time("deadline");
    let given = deadline.unwrap_or_default();
    let real_time = Class::RealTime { deadline: given };
    let classes = [
        ("real-time", real_time),
        ("exclusive", Class::Exclusive { deadline: given }),
        ("best-effort", Class::BestEffort),
    ];
    let class = section.choice("class", &classes);
    match (class.map(|class| class.deadline().is_some()), section.has("deadline")) {
        (None, _) if !section.has("class") => {
            section.complain(
                "class",
                "missing: write \"real-time\" (has a deadline), \"exclusive\" (and a core) or \"best-effort\"",
            );
        }
        (Some(true), false) => section.complain("deadline", "missing: a real-time task needs one, such as \"50ms\""),
        (Some(false), true) => section.complain(
            "deadline",
            "a best-effort task has none; remove it, or write class = \"real-time\"",
        ),
        _ => {}
    }
    match deadline {
        Some(_) => class.unwrap_or(real_time),
        None => Class::BestEffort,
    }
}

fn arrival(section: &mut Section<'_, '_>) -> Arrival {
    let (period, gap, pause) = (section.time("period"), section.times("gap"), section.times("pause"));
    let given: Vec<&str> = ["period", "gap", "pause"]
        .into_iter()
        .filter(|key| section.has(key))
        .collect();
    match given.as_slice() {
        [_] => {}
        [] => section.complain(
            "period",
            "missing: when is a job released? give `period`, `gap` (between releases) or `pause` (after a job's end)",
        ),
        [first, rest @ ..] => {
            let what = format!(
                "a task is released one way; remove `{first}` or `{}`",
                rest.join("` and `")
            );
            section.complain(first, what);
        }
    }
    match (period, gap, pause) {
        (Some(period), _, _) => Arrival::Periodic { period },
        (_, Some((gap_min, gap_max)), _) => Arrival::Sporadic { gap_min, gap_max },
        (_, _, pause) => {
            let (pause_min, pause_max) = pause.unwrap_or_default();
            Arrival::AfterCompletion { pause_min, pause_max }
        }
    }
}

fn demand(section: &mut Section<'_, '_>) -> Demand {
    let tables = [("sensors", ObjectSet::Sensors), ("objects", ObjectSet::Objects)];
    Demand {
        compute: section.time("compute").unwrap_or_default(),
        data: section.time("data").unwrap_or_default(),
        rounds: section.count("rounds").unwrap_or(1),
        reads: section.choice("reads", &tables).unwrap_or(ObjectSet::Sensors),
        writes: section.count("writes").unwrap_or(0),
        fit: section.flag("fit").unwrap_or(false),
    }
}

fn excitation(section: &mut Section<'_, '_>) -> Excitation {
    Excitation {
        clock: section
            .numbers("clock")
            .unwrap_or_else(|| vec![0.8, 1.0, 0.7, 0.9, 0.6]),
        admitted: section.numbers("admitted").unwrap_or_else(|| vec![1.0, 0.5, 0.75]),
        hold: section.count("hold").unwrap_or(2),
    }
}
