//! Place and text of every problem (texts in `snapshots/`), and the shipped scenarios as they are.

use std::collections::BTreeSet;

use punctual_pipelines::StageSpec;
use punctual_scenario::stages::{StageKind, StageKinds, kind};
use punctual_units::{Nanos, Share};
use punctual_workload::{Arrival, Class, ControllerKind, Pace, Prices, SensorSource, TaskGoal, UpdateMode, Volume};

use super::*;

/// The smallest sound scenario; line numbers below count from its first line.
const SMALL: &str = "\
duration = \"10s\"
[goal]
tardiness = 0.9
[control]
warm_up = \"1s\"
[trace]
sensors = 8
[[task]]
name = \"control\"
class = \"real-time\"
period = \"100ms\"
deadline = \"50ms\"
compute = \"5ms\"
";

fn sets(arguments: &[&str]) -> Vec<Override> {
    arguments
        .iter()
        .map(|argument| Override::parse(argument).unwrap())
        .collect()
}

fn complaints(text: &str, arguments: &[&str]) -> Vec<String> {
    check(text, "x.toml", Path::new("at"), "x", &sets(arguments), Some(&Join)).expect_err("must be refused")
}

/// Asserts that the first problem is that of `place` (file, line and key), and appends all to a list for a snapshot.
fn record(list: &mut String, input: &str, place: &str, problems: &[String]) {
    assert!(problems[0].starts_with(&format!("{place}: ")), "{input}: {problems:?}");
    *list += &format!("{input}\n  => {}\n", problems.join("\n  => "));
}

/// A changed line as a snapshot shows it.
fn change(from: &str, to: &str) -> String {
    match to {
        "" => format!("without {from}"),
        _ => to.into(),
    }
}

fn accepted(text: &str, arguments: &[&str]) -> Scenario {
    let (draft, ..) = check(text, "x.toml", Path::new("at"), "x", &sets(arguments), None).expect("must be accepted");
    draft.scenario
}

#[test]
fn only_the_necessary_must_be_said() {
    let scenario = accepted(SMALL, &[]);
    assert_eq!(scenario.name, "x");
    assert_eq!(scenario.seed, 1);
    assert_eq!(scenario.goal.tasks, TaskGoal::Tardiness(0.9));
    assert_eq!(scenario.control.kind, ControllerKind::Mimo);
    assert_eq!((scenario.control.pace, scenario.control.within), (Pace::Job, true));
    let qod = accepted(SMALL, &["control.controller=qod"]).control;
    assert_eq!((qod.pace, qod.within), (Pace::Period(Nanos::from_millis(200)), false));
    let slow = accepted(SMALL, &["control.period=1s"]).control;
    assert_eq!((slow.pace, slow.within), (Pace::Period(Nanos::from_secs(1)), false));
    assert_eq!(scenario.store.update_mode, UpdateMode::MemoryFirst);
    assert_eq!(scenario.sensors.volume, Volume::Replicas(1));
    assert_eq!(scenario.tasks[0].demand.rounds, 1);
}

#[test]
fn one_job_of_a_hundred_may_be_late_where_nothing_is_said() {
    let text = SMALL.replace("tardiness = 0.9", "");
    assert_eq!(accepted(&text, &[]).goal.tasks, TaskGoal::Late(Share::clamped(0.01)));
    let scenario = accepted(SMALL, &["task.control.late=0.1 %"]);
    let own = Some(TaskGoal::Late(Share::clamped(0.001)));
    assert_eq!(scenario.goals().next(), Some(own));
    let scenario = accepted(SMALL, &["goal.late=0.05"]);
    assert_eq!(scenario.goal.tasks, TaskGoal::Late(Share::clamped(0.05)));
}

/// Lines that follow `SMALL`, and the place of the mistake in them.
const WRONG_ALLOCATIONS: [(&str, &str); 8] = [
    ("profile = \"p.csv\"", "x.toml: allocation.policy"),
    ("[allocation]\npolicy = \"dna\"", "x.toml:15: allocation.policy"),
    (
        "profile = \"p.csv\"\n[allocation]\npolicy = \"luck\"",
        "x.toml:16: allocation.policy",
    ),
    (
        "profile = \"\"\n[allocation]\npolicy = \"dna\"",
        "x.toml:14: task[0].profile",
    ),
    ("[allocation]\nways = 65", "x.toml:15: allocation.ways"),
    ("[allocation]\npartitions = 0", "x.toml:15: allocation.partitions"),
    ("[allocation]\nway_kib = 1048577", "x.toml:15: allocation.way_kib"),
    ("[allocation]\nchanges = \"often\"", "x.toml:15: allocation.changes"),
];

#[test]
fn each_wrong_line_is_reported_with_its_place() {
    let mut list = String::new();
    for (from, to, place) in [
        ("tardiness = 0.9", "tardines = 0.9", "x.toml:3: goal.tardines"),
        ("tardiness = 0.9", "tardiness = \"high\"", "x.toml:3: goal.tardiness"),
        ("tardiness = 0.9", "tardiness = -1", "x.toml:3: goal.tardiness"),
        ("tardiness = 0.9", "late = \"1\"", "x.toml:3: goal.late"),
        ("tardiness = 0.9", "late = 1", "x.toml:3: goal.late"),
        ("tardiness = 0.9", "late = \"120 %\"", "x.toml:3: goal.late"),
        (
            "tardiness = 0.9",
            "tardiness = 0.9\nlate = \"1 %\"",
            "x.toml:3: goal.tardiness",
        ),
        ("tardiness = 0.9", "min_fresh = 1.5", "x.toml:3: goal.min_fresh"),
        ("period = \"100ms\"", "period = \"-100ms\"", "x.toml:11: task[0].period"),
        ("period = \"100ms\"", "period = 100", "x.toml:11: task[0].period"),
        ("period = \"100ms\"", "period = \"25h\"", "x.toml:11: task[0].period"),
        ("period = \"100ms\"", "", "x.toml:8: task[0].period"),
        ("period = \"100ms\"", "gap = [\"2s\", \"1s\"]", "x.toml:11: task[0].gap"),
        ("period = \"100ms\"", "gap = [\"2s\"]", "x.toml:11: task[0].gap"),
        (
            "period = \"100ms\"",
            "period = \"100ms\"\npause = [\"1s\", \"2s\"]",
            "x.toml:11: task[0].period",
        ),
        ("compute = \"5ms\"", "compute = \"200ms\"", "x.toml:13: task[0].compute"),
        ("deadline = \"50ms\"", "", "x.toml:8: task[0].deadline"),
        (
            "class = \"real-time\"",
            "class = \"realtime\"",
            "x.toml:10: task[0].class",
        ),
        ("class = \"real-time\"", "", "x.toml:8: task[0].class"),
        ("name = \"control\"", "", "x.toml:8: task[0].name"),
        (
            "name = \"control\"",
            "name = \"control\"\nrounds = 2.5",
            "x.toml:10: task[0].rounds",
        ),
        (
            "name = \"control\"",
            "name = \"control\"\nrounds = -2",
            "x.toml:10: task[0].rounds",
        ),
        ("sensors = 8", "", "x.toml:6: trace.dir"),
        (
            "sensors = 8",
            "sensors = 8\nutilisation = 0.5\nreplicas = 2",
            "x.toml:9: trace.replicas",
        ),
        ("sensors = 8", "sensors = 8\nspeedup = 50", "x.toml:8: trace.speedup"),
        ("warm_up = \"1s\"", "warm_up = \"10s\"", "x.toml:5: control.warm_up"),
        (
            "duration = \"10s\"",
            "duration = \"10s\"\nvolume = 3",
            "x.toml:2: volume",
        ),
        ("duration = \"10s\"", "duration = 1979-05-27", "x.toml:1: duration"),
        ("[goal]", "[gaol]", "x.toml:2: gaol"),
        ("[[task]]", "[task]", "x.toml:8: task"),
    ] {
        let text = SMALL.replace(from, to);
        assert_ne!(text, SMALL);
        let problems = complaints(&text, &[]);
        assert_eq!(problems.len(), 1, "{to}: {problems:?}");
        record(&mut list, &change(from, to), place, &problems);
    }
    let unnamed = complaints(&format!("{SMALL}[store]\npath = \"\"\n"), &[]);
    let said = format!("x.toml:{}: store.path: names no folder", SMALL.lines().count() + 2);
    assert!(unnamed.len() == 1 && unnamed[0].starts_with(&said), "{unnamed:?}");
    for (lines, what) in [
        ("temporal = \"mapped\"", "write \"committed\", "),
        ("temporal = \"mapped:\"", "write \"committed\", "),
        ("temporal = \"mappped:/dev/shm/x\"", "write \"committed\", "),
        (
            "update_mode = \"transaction\"\ntemporal = \"mapped:x\"",
            "each update is a transaction",
        ),
    ] {
        let problems = complaints(&format!("{SMALL}[store]\n{lines}\n"), &[]);
        let said = format!("store.temporal: {what}");
        assert!(problems.len() == 1 && problems[0].contains(&said), "{problems:?}");
    }
    let varying = SMALL.replace("sensors = 8", "sensors = 8\nutilisation = 0.5");
    let problems = complaints(&format!("{varying}[store]\ntemporal = \"mapped:x\"\n"), &[]);
    assert!(
        problems.len() == 1 && problems[0].contains("store.temporal: the next run would"),
        "{problems:?}"
    );
    assert!(problems[0].starts_with("x.toml:16: "), "{problems:?}");
    for (lines, place) in WRONG_ALLOCATIONS {
        let mut problems = complaints(&format!("{SMALL}{lines}"), &[]);
        // Where no task has a profile, that is said first.
        problems.reverse();
        record(&mut list, lines, place, &problems);
    }
    insta::assert_snapshot!("scenario", list);
}

#[test]
fn what_is_not_toml_is_named_by_line() {
    let lines = complaints("duration = \n", &[]);
    assert_eq!(lines.len(), 1);
    assert!(lines[0].starts_with("x.toml:1: not TOML: "), "{lines:?}");
}

#[test]
fn several_problems_come_at_once_in_the_order_of_the_file() {
    let text = SMALL
        .replace("tardiness = 0.9", "tardines = 0.9")
        .replace("period = \"100ms\"", "period = \"-1s\"")
        .replace("compute", "compuet");
    let problems = complaints(&text, &["goal.speed=3"]);
    let places = [
        "x.toml:3: goal.tardines: ",
        "x.toml:11: task[0].period: ",
        "x.toml:13: task[0].compuet: ",
        "--set goal.speed=3: goal.speed: ",
    ];
    assert_eq!(problems.len(), places.len(), "{problems:?}");
    for (problem, place) in problems.iter().zip(places) {
        assert!(problem.starts_with(place), "{problem}");
    }
}

#[test]
fn a_default_at_fault_is_reported_at_its_table() {
    let text = SMALL.replace("warm_up = \"1s\"", "").replace("\"10s\"", "\"1s\"");
    let problems = complaints(&text, &[]);
    assert_eq!(problems.len(), 1, "{problems:?}");
    assert!(problems[0].starts_with("x.toml:4: control.warm_up: "), "{problems:?}");
    let problems = complaints("[trace]\nsensors = 8\n", &[]);
    assert_eq!(problems.len(), 1, "{problems:?}");
    assert!(problems[0].starts_with("x.toml: task: no task"), "{problems:?}");
}

#[test]
fn the_mapped_file_is_named_or_lies_in_the_stores_folder() {
    let mapped = |lines: &str| {
        let text = format!("{SMALL}[store]\n{lines}\n");
        let (draft, ..) = check(&text, "x.toml", Path::new("at"), "x", &[], None).expect("accepted");
        draft.mapped
    };
    let path = |path: &str| Some(PathBuf::from(path));
    assert_eq!(mapped("temporal = \"mapped:/dev/shm/a:b\""), path("/dev/shm/a:b"));
    assert_eq!(
        mapped("path = \"/pmem/x\"\ntemporal = \"mapped\""),
        path("/pmem/x/temporal.map")
    );
    assert_eq!([mapped("temporal = \"committed\""), mapped("")], [None, None]);
}

#[test]
fn an_override_counts_as_if_it_were_written() {
    let scenario = accepted(
        SMALL,
        &[
            "goal.tardiness=0.7",
            "task.control.gap=[\"80ms\", \"90ms\"]",
            "store.update_mode=transaction",
            "control.pace=job",
            "trace.dir=somewhere",
        ],
    );
    assert_eq!(scenario.goal.tasks, TaskGoal::Tardiness(0.7));
    assert!(matches!(scenario.tasks[0].arrival, Arrival::Sporadic { .. }));
    assert_eq!(scenario.store.update_mode, UpdateMode::Transaction);
    assert_eq!(scenario.control.pace, Pace::Job);
    assert_eq!(
        scenario.sensors.source,
        SensorSource::Trace {
            dir: "somewhere".into()
        }
    );
}

#[test]
fn a_wrong_override_is_named_as_it_was_written() {
    let mut list = String::new();
    for (argument, key) in [
        ("task.brwse.pause=1s", "task.brwse.pause"),
        ("task[7].pause=1s", "task[7].pause"),
        ("task.control=1s", "task.control"),
        ("duration.first=1", "duration.first"),
        ("goal.=1", "goal."),
        ("goal.speed=3", "goal.speed"),
        ("tardiness=0.9", "tardiness"),
        ("task.control.period=-5ms", "task[0].period"),
        ("goal.drr=1.5", "goal.drr"),
        ("control.prices.energy=-1", "control.prices.energy"),
        ("control.controller=pid", "control.controller"),
        ("identify.clock=[1.0]", "identify.clock"),
        ("exclusive.spare=[\"a-name-that-is-too-long\"]", "exclusive.spare"),
        ("exclusive.spare=chronyd", "exclusive.spare"),
        ("exclusive.move_init=yes", "exclusive.move_init"),
        ("exclusive.spare=[7]", "exclusive.spare"),
        ("stroe.objects=1", "stroe"),
    ] {
        let problems = complaints(SMALL, &[argument]);
        assert_eq!(problems.len(), 1, "{argument}: {problems:?}");
        record(&mut list, argument, &format!("--set {argument}: {key}"), &problems);
    }
    insta::assert_snapshot!("overrides", list);
    let duration = [Override::of_option("--duration", "duration", "10")];
    let lines = check(SMALL, "x.toml", Path::new("at"), "x", &duration, None).unwrap_err();
    assert!(lines[0].starts_with("--duration 10: duration: "), "{lines:?}");
}

/// The warm-up of a scenario is longer than the run that the user asked for.
#[test]
fn a_run_that_is_too_short_is_blamed_on_the_option_that_makes_it_so() {
    for time in ["1ns", "0s", "1us", "1ms"] {
        let duration = [Override::of_option("--duration", "duration", time)];
        let lines = check(SMALL, "x.toml", Path::new("at"), "x", &duration, None).unwrap_err();
        let [line] = &lines[..] else {
            panic!("{time}: {lines:?}")
        };
        assert!(line.starts_with(&format!("--duration {time}: duration: ")), "{line}");
    }
    let lines = complaints(SMALL, &["control.warm_up=10s"]);
    assert!(
        lines[0].starts_with("--set control.warm_up=10s: control.warm_up: "),
        "{lines:?}"
    );
    let lines = complaints(SMALL, &["control.warm_up=2s", "duration=1s"]);
    assert!(lines[0].starts_with("--set duration=1s: duration: "), "{lines:?}");
}

#[test]
fn prices_or_a_set_point_by_hand() {
    let late = SMALL.replace("tardiness = 0.9", "late = 0.01");
    let prices = |arguments: &[&str]| accepted(&late, arguments).control.prices;
    assert_eq!(prices(&[]), Some(Prices::default()));
    assert_eq!(accepted(SMALL, &[]).control.prices, None, "the paper's law");
    let given = prices(&["control.controller=mimo", "control.prices.freshness=2"]).unwrap();
    assert_eq!((given.energy, given.freshness), (1.0, 2.0));
    let stated = |arguments: &[&str]| accepted(&late, arguments).control.prices_stated;
    assert!(!stated(&[]) && stated(&["control.prices.energy=1"]));
    assert_eq!(prices(&["goal.drr=0.4"]), None);
    let both = complaints(SMALL, &["goal.drr=0.4", "control.prices.freshness=0"]);
    assert!(
        both[0].contains("goal.drr") && both[0].contains("remove one"),
        "{both:?}"
    );
    let unshed = complaints(SMALL, &["control.controller=clock", "control.prices.freshness=1"]);
    assert!(unshed[0].contains("`clock` does not shed"), "{unshed:?}");
}

#[test]
fn profiles_lie_beside_the_scenario_or_where_the_user_is() {
    let text = format!("{SMALL}profile = \"p.csv\"\n[allocation]\npolicy = \"exact\"\nway_kib = 64\n");
    let profiles = |overrides: &[Override]| {
        let (draft, profiles, _) =
            check(&text, "at/x.toml", Path::new("at"), "x", overrides, None).expect("must be accepted");
        assert_eq!(draft.allocation.way_kib, 64);
        profiles
    };
    let file = |path: &str, place: &str| ProfileFile {
        task: "control".into(),
        path: path.into(),
        place: place.into(),
    };
    assert_eq!(profiles(&[]), [file("at/p.csv", "at/x.toml:14: task[0].profile")]);
    assert_eq!(
        profiles(&sets(&["task.control.profile=q.csv"])),
        [file("q.csv", "--set task.control.profile=q.csv: task[0].profile")]
    );
}

#[test]
fn the_shipped_scenarios_are_sound() {
    let shared = accepted(include_str!("../../../../scenarios/shared-cache.toml"), &[]);
    assert!(shared.tasks.iter().all(|task| task.profile.is_some()));
    let shipped = builtin::text(SHIPPED_PATH).expect("built in");
    let fire = accepted(shipped, &[]);
    assert_eq!(fire.name, "fire-rescue");
    assert_eq!(fire.tasks.len(), 2);
    let robot = accepted(include_str!("../../../../scenarios/robot.toml"), &[]);
    assert!(matches!(robot.tasks[1].arrival, Arrival::Sporadic { .. }));
    let vehicle = accepted(include_str!("../../../../scenarios/vehicle.toml"), &[]);
    assert!(matches!(vehicle.tasks[0].class, Class::Exclusive { .. }));
    assert_eq!(vehicle.tasks.iter().filter(|task| task.profile.is_some()).count(), 2);
}

#[test]
fn the_page_names_every_key() {
    let page = include_str!("../../../../docs/guide/reference/scenario-keys.md");
    let mut report = ProblemList::default();
    let document = { builtin::text(SHIPPED_PATH).and_then(|text| report.document(text)) }.expect("built in");
    draft(Section::top(&document, &mut report), "x", None);
    let known = report.known_keys();
    assert!(known.len() > 30, "{known:?}");
    for key in known {
        let leaf = key.rsplit('.').next().unwrap_or(key);
        let named = [
            format!("\n- `{leaf}`"),
            format!("\n### `[{leaf}]`\n"),
            format!("\n### `[[{leaf}]]`\n"),
        ];
        assert!(
            named.iter().any(|name| page.contains(name)),
            "{key} is not in docs/guide/reference/scenario-keys.md"
        );
    }
}

#[test]
fn the_readers_know_every_key_of_the_page() {
    let page = include_str!("../../../../docs/guide/reference/scenario-keys.md");
    let (_, list) = page.split_once("\n## Keys\n").expect("the keys");
    let texts = [
        include_str!("../../../../scenarios/fire-rescue.toml"),
        include_str!("../../../../scenarios/movie.toml"),
        include_str!("../../../../scenarios/shared-cache.toml"),
        include_str!("../../../../examples/c/mean.toml"),
        "[control]\nprices = {}\n[[stage]]\nname = \"a\"\n[[task]]\nname = \"b\"\nclass = \"exclusive\"\nprofile = \"c\"\n[allocation]\n",
    ];
    let mut known: BTreeSet<String> = BTreeSet::new();
    for text in texts {
        let mut report = ProblemList::default();
        let document = report.document(text).expect("TOML");
        draft(Section::top(&document, &mut report), "x", None);
        let leaves = report
            .known_keys()
            .iter()
            .map(|key| key.rsplit('.').next().unwrap_or(key).into());
        known.extend(leaves);
    }
    let keys = list
        .lines()
        .filter_map(|row| row.strip_prefix("- `")?.split('`').next());
    let unknown: Vec<&str> = keys.filter(|key| !known.contains(*key)).collect();
    assert_eq!(unknown, [""; 0], "no reader asks for these");
}

/// A kind of stage with four inputs.
struct Join;

impl StageKinds for Join {
    fn kind(&self, name: &str) -> Option<StageKind> {
        let spec = (name == "join").then(|| StageSpec::new(name).takes(&[1; 4]).makes(&[1]))?;
        let copy = kind("copy", None).ok()?;
        Some(StageKind { spec, ..copy })
    }

    fn names(&self) -> &str {
        "join"
    }
}

/// A scenario of stages only: a file through a built-in stage into a program.
const STAGES: &str = "\
[[stage]]
name = \"in\"
file = \"/dev/null\"
deadline = \"50ms\"
[[stage]]
name = \"copy\"
kind = \"copy\"
[[stage]]
name = \"out\"
program = [\"cat\"]
late = \"1 %\"
[[edge]]
from = \"in\"
to = \"copy\"
frame_bytes = 100
[[edge]]
from = \"copy\"
to = \"out\"
slots = 4
frame_bytes = 100
";

#[test]
fn a_scenario_may_be_of_stages_only_or_of_both() {
    let (draft, ..) = check(STAGES, "x.toml", Path::new("at"), "x", &[], None).expect("must be accepted");
    assert_eq!((draft.stages.stages.len(), draft.scenario.tasks.len()), (3, 0));
    let set = sets(&["stage.copy.core=0", "edge[0].slots=7"]);
    let (draft, ..) = check(STAGES, "x.toml", Path::new("at"), "x", &set, None).expect("must be accepted");
    assert_eq!(draft.stages.edges[0].edge.slots, 7);
    let both = format!("{SMALL}{STAGES}");
    let (draft, ..) = check(&both, "x.toml", Path::new("at"), "x", &[], None).expect("must be accepted");
    assert_eq!((draft.stages.stages.len(), draft.scenario.tasks.len()), (3, 1));
}

#[test]
fn each_wrong_line_of_stages_is_reported_with_its_place() {
    let mut list = String::new();
    for (from, to, place) in [
        ("name = \"copy\"", "name = \"in\"", "x.toml:6: stage[1].name"),
        ("kind = \"copy\"", "kind = \"cpoy\"", "x.toml:7: stage[1].kind"),
        ("kind = \"copy\"", "library = \"copy.so\"", "x.toml:7: stage[1].library"),
        ("kind = \"copy\"", "", "x.toml:5: stage[1].program"),
        (
            "kind = \"copy\"",
            "kind = \"copy\"\nprogram = [\"cat\"]",
            "x.toml:8: stage[1].program",
        ),
        (
            "kind = \"copy\"",
            "kind = \"copy\"\nstate_bytes = 8",
            "x.toml:8: stage[1].state_bytes",
        ),
        (
            "kind = \"copy\"",
            "kind = \"copy\"\ntakes = [2]",
            "x.toml:8: stage[1].takes",
        ),
        ("kind = \"copy\"", "kind = \"join\"", "x.toml:5: stage[1].takes"),
        ("to = \"copy\"", "to = \"cop\"", "x.toml:14: edge[0].to"),
        ("from = \"in\"", "from = \"out\"", "x.toml:3: stage[0].file"),
        (
            "from = \"in\"\nto = \"copy\"",
            "from = \"in:x\"\nto = \"copy\"",
            "x.toml:13: edge[0].from",
        ),
        ("slots = 4", "slots = 0", "x.toml:19: edge[1].slots"),
        (
            "slots = 4\nframe_bytes = 100",
            "slots = 4\nframe_bytes = 99",
            "x.toml:20: edge[1].frame_bytes",
        ),
        (
            "slots = 4\nframe_bytes = 100",
            "slots = 4",
            "x.toml:16: edge[1].frame_bytes",
        ),
        ("slots = 4", "full = \"drop\"", "x.toml:19: edge[1].full"),
        ("deadline = \"50ms\"", "", "x.toml:11: stage[2].late"),
        ("late = \"1 %\"", "migratable = true", "x.toml:11: stage[2].migratable"),
        ("late = \"1 %\"", "period = \"1s\"", "x.toml:11: stage[2].period"),
        ("file = \"/dev/null\"", "file = \"nowhere\"", "x.toml:3: stage[0].file"),
        (
            "file = \"/dev/null\"",
            "fiel = \"/dev/null\"",
            "x.toml:1: stage[0].program",
        ),
    ] {
        let text = STAGES.replacen(from, to, 1);
        assert_ne!(text, STAGES, "{from}");
        record(&mut list, &change(from, to), place, &complaints(&text, &[]));
    }
    insta::assert_snapshot!("stages", list);
    let long = format!("\"{}\"\n", "x".repeat(256));
    let text = STAGES
        .replace("\"copy\"\n", &long)
        .replace(&format!("kind = {long}"), "kind = \"copy\"\n");
    let said = complaints(&text, &[]);
    assert_eq!(said, ["x.toml:6: stage[1].name: 256 bytes long: at most 255"]);
    let ring =
        STAGES
            .replacen("from = \"in\"", "from = \"out\"", 1)
            .replacen("file = \"/dev/null\"", "kind = \"copy\"", 1);
    assert!(
        complaints(&ring, &[])[0].starts_with("x.toml:"),
        "a cycle, and what is left over"
    );
}

#[test]
fn cycles_and_rates_are_told_at_their_edges() {
    let stage = |name: &str, rest: &str| format!("[[stage]]\nname = \"{name}\"\n{rest}\n");
    let edge = |from: &str, to: &str| format!("[[edge]]\nfrom = \"{from}\"\nto = \"{to}\"\nframe_bytes = 8\n");
    let cat = "program = [\"cat\"]";
    // A program in the middle is cut in two: a cycle through it is one all the same.
    let cycle = [
        stage("a", cat),
        stage("b", "kind = \"copy\""),
        edge("a", "b"),
        edge("b", "a"),
    ];
    let problems = complaints(&cycle.concat(), &[]);
    assert_eq!(problems.len(), 1, "{problems:?}");
    assert!(problems[0].starts_with("x.toml:7: edge[0]: "), "{problems:?}");
    assert!(problems[0].contains("a -> b -> a"), "{problems:?}");
    let rates = [
        stage("source", cat),
        stage("split", "kind = \"copy\""),
        stage("join", "kind = \"join\""),
        stage("out", cat),
        edge("source", "split"),
        edge("split", "join:0"),
        edge("split", "join:1"),
        edge("split", "join:2"),
        edge("source", "join:3"),
        edge("join", "out"),
    ];
    check(&rates.concat(), "x.toml", Path::new("at"), "x", &[], Some(&Join)).expect("must be accepted");
}
