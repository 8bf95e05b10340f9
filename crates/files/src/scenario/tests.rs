//! Every complaint in its exact words, and the shipped scenarios as they are.

use punctual_pipelines::StageSpec;
use punctual_scenario::stages::{StageKind, StageKinds, kind};
use punctual_units::{Nanos, Share};
use punctual_workload::{Arrival, ControllerKind, Pace, SensorSource, TaskGoal, UpdateMode, Volume};

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

#[test]
fn each_wrong_line_is_told_in_full() {
    for (from, to, expected) in [
        (
            "tardiness = 0.9",
            "tardines = 0.9",
            "x.toml:3: goal.tardines: unknown key; did you mean goal.tardiness?",
        ),
        (
            "tardiness = 0.9",
            "tardiness = \"high\"",
            "x.toml:3: goal.tardiness: expected a number, found the text \"high\"",
        ),
        (
            "tardiness = 0.9",
            "tardiness = -1",
            "x.toml:3: goal.tardiness: -1 is out of range: above 0, at most 10",
        ),
        (
            "tardiness = 0.9",
            "late = \"1\"",
            "x.toml:3: goal.late: \"1\" is not a percentage; write a share of jobs such as \"1 %\" or 0.01",
        ),
        (
            "tardiness = 0.9",
            "late = 1",
            "x.toml:3: goal.late: 100.0 % of jobs late is no goal: write a share above 0 and below 100 %, such as \"1 %\"",
        ),
        (
            "tardiness = 0.9",
            "late = \"120 %\"",
            "x.toml:3: goal.late: 1.2 is not a share: it must lie between 0 and 1; write a share of jobs such as \"1 %\" or 0.01",
        ),
        (
            "tardiness = 0.9",
            "tardiness = 0.9\nlate = \"1 %\"",
            "x.toml:3: goal.tardiness: `late` is a goal of another kind: a task has one goal; remove one of the two",
        ),
        (
            "tardiness = 0.9",
            "min_fresh = 1.5",
            "x.toml:3: goal.min_fresh: 1.5 is not a share: it must lie between 0 and 1",
        ),
        (
            "period = \"100ms\"",
            "period = \"-100ms\"",
            "x.toml:11: task[0].period: \"-100ms\" is negative; write a number with its unit (ns, us, ms, s, min or h), such as \"100ms\"",
        ),
        (
            "period = \"100ms\"",
            "period = 100",
            "x.toml:11: task[0].period: expected a time in quotes, such as \"100ms\", found the number 100",
        ),
        (
            "period = \"100ms\"",
            "period = \"25h\"",
            "x.toml:11: task[0].period: 90000.00 s is out of range: write a time of at least 100.0 us and at most 24 h, such as \"100ms\"",
        ),
        (
            "period = \"100ms\"",
            "",
            "x.toml:8: task[0].period: missing: when is a job released? give `period`, `gap` (between releases) or `pause` (after a job's end)",
        ),
        (
            "period = \"100ms\"",
            "gap = [\"2s\", \"1s\"]",
            "x.toml:11: task[0].gap: the shorter bound 2.00 s comes first, then the longer one, not 1.00 s",
        ),
        (
            "period = \"100ms\"",
            "gap = [\"2s\"]",
            "x.toml:11: task[0].gap: expected two times, the shorter one first, such as [\"50ms\", \"150ms\"], found 1 of them",
        ),
        (
            "period = \"100ms\"",
            "period = \"100ms\"\npause = [\"1s\", \"2s\"]",
            "x.toml:11: task[0].period: a task is released one way; remove `period` or `pause`",
        ),
        (
            "compute = \"5ms\"",
            "compute = \"200ms\"",
            "x.toml:13: task[0].compute: a goal out of reach: one job needs 200.00 ms alone at full clock, but the next one is released after 100.00 ms",
        ),
        (
            "deadline = \"50ms\"",
            "",
            "x.toml:8: task[0].deadline: missing: a real-time task needs one, such as \"50ms\"",
        ),
        (
            "class = \"real-time\"",
            "class = \"realtime\"",
            "x.toml:10: task[0].class: expected \"real-time\" or \"exclusive\" or \"best-effort\", found the text \"realtime\"",
        ),
        (
            "class = \"real-time\"",
            "",
            "x.toml:8: task[0].class: missing: write \"real-time\" (has a deadline), \"exclusive\" (and a core) or \"best-effort\"",
        ),
        (
            "name = \"control\"",
            "",
            "x.toml:8: task[0].name: missing: give the task a name",
        ),
        (
            "name = \"control\"",
            "name = \"control\"\nrounds = 2.5",
            "x.toml:10: task[0].rounds: expected a whole number, found the number 2.5",
        ),
        (
            "name = \"control\"",
            "name = \"control\"\nrounds = -2",
            "x.toml:10: task[0].rounds: -2 is out of range: write a number from 0 on",
        ),
        (
            "sensors = 8",
            "",
            "x.toml:6: trace.dir: where do readings come from? give `dir`, a folder with sensors.csv and readings.csv, or `sensors`, a number of made-up sensors",
        ),
        (
            "sensors = 8",
            "sensors = 8\nutilisation = 0.5\nreplicas = 2",
            "x.toml:9: trace.replicas: `utilisation` works out the replicas; remove one of the two",
        ),
        (
            "sensors = 8",
            "sensors = 8\nspeedup = 50",
            "x.toml:8: trace.speedup: 50 is out of range: above 0, at most 20",
        ),
        (
            "warm_up = \"1s\"",
            "warm_up = \"10s\"",
            "x.toml:5: control.warm_up: 10.00 s leaves nothing of the run's 10.00 s: make it shorter than `duration`",
        ),
        (
            "duration = \"10s\"",
            "duration = \"10s\"\nvolume = 3",
            "x.toml:2: volume: unknown key; the file knows name, seed, duration, goal, control, store, stage, \
             trace, task, identify, movie, allocation, exclusive, edge, pipeline",
        ),
        (
            "duration = \"10s\"",
            "duration = 1979-05-27",
            "x.toml:1: duration: expected a time in quotes, such as \"100ms\", found a date",
        ),
        ("[goal]", "[gaol]", "x.toml:2: gaol: unknown key; did you mean goal?"),
        (
            "[[task]]",
            "[task]",
            "x.toml:8: task: expected a list of tables, each under [[task]], found a table",
        ),
    ] {
        let text = SMALL.replace(from, to);
        assert_ne!(text, SMALL);
        assert_eq!(complaints(&text, &[]), [expected], "{to}");
    }
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
    assert_eq!(
        complaints(&text, &["goal.speed=3"]),
        [
            "x.toml:3: goal.tardines: unknown key; did you mean goal.tardiness?",
            "x.toml:11: task[0].period: \"-1s\" is negative; write a number with its unit (ns, us, ms, s, min or h), such as \"100ms\"",
            "x.toml:13: task[0].compuet: unknown key; did you mean task[0].compute?",
            "--set goal.speed=3: goal.speed: unknown key; goal knows late, tardiness, drr, min_fresh",
        ]
    );
}

#[test]
fn a_default_at_fault_is_reported_at_its_table() {
    let text = SMALL.replace("warm_up = \"1s\"", "");
    assert_eq!(
        complaints(&text, &["duration=1s"]),
        ["x.toml:4: control.warm_up: 2.00 s leaves nothing of the run's 1.00 s: make it shorter than `duration`"]
    );
    assert_eq!(
        complaints("[trace]\nsensors = 8\n", &[]),
        [
            "x.toml: task: no task has a deadline, so there is nothing to keep on time: add a [[task]] with class = \"real-time\""
        ]
    );
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
    for (argument, expected) in [
        (
            "tardiness=0.9",
            "--set tardiness=0.9: tardiness: unknown key; did you mean goal.tardiness or task[0].tardiness?",
        ),
        (
            "task.control.period=-5ms",
            "--set task.control.period=-5ms: task[0].period: \"-5ms\" is negative; write a number with its unit (ns, us, ms, s, min or h), such as \"100ms\"",
        ),
        (
            "goal.drr=1.5",
            "--set goal.drr=1.5: goal.drr: 1.5 is out of range: above 0 and below 1",
        ),
        (
            "control.controller=pid",
            "--set control.controller=pid: control.controller: expected \"open\" or \"qod\" or \"clock\" or \"mimo\", found the text \"pid\"",
        ),
        (
            "identify.clock=[1.0]",
            "--set identify.clock=[1.0]: identify.clock: a knob that does not move teaches nothing: give at least 2 different levels",
        ),
        (
            "exclusive.spare=[\"a-name-that-is-too-long\"]",
            "--set exclusive.spare=[\"a-name-that-is-too-long\"]: exclusive.spare: \"a-name-that-is-too-long\" is longer than the 15 bytes that the kernel keeps of a name; write it as `ps -o comm` shows it",
        ),
        (
            "exclusive.spare=chronyd",
            "--set exclusive.spare=chronyd: exclusive.spare: expected a list of texts such as [\"chronyd\"], found the text \"chronyd\"",
        ),
        (
            "exclusive.move_init=yes",
            "--set exclusive.move_init=yes: exclusive.move_init: expected true or false, found the text \"yes\"",
        ),
        (
            "exclusive.spare=[7]",
            "--set exclusive.spare=[7]: exclusive.spare: expected a list of texts such as [\"chronyd\"], found the number 7 in it",
        ),
        (
            "stroe.objects=1",
            "--set stroe.objects=1: stroe: unknown key; did you mean store or stage?",
        ),
    ] {
        assert_eq!(complaints(SMALL, &[argument]), [expected]);
    }
    let duration = [Override::of_option("--duration", "duration", "10")];
    let lines = check(SMALL, "x.toml", Path::new("at"), "x", &duration, None).unwrap_err();
    assert!(
        lines[0].starts_with("--duration 10: duration: expected a time in quotes"),
        "{lines:?}"
    );
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
fn what_is_wrong_with_an_allocation_is_told() {
    let with = |lines: &str| complaints(&format!("{SMALL}{lines}"), &[]);
    for (lines, expected) in [
        (
            "profile = \"p.csv\"",
            "x.toml: allocation.policy: missing: the task \"control\" has a profile, so which policy splits ways and bandwidth? write \"equal\", \"dna\" or \"exact\", or give --allocate",
        ),
        (
            "[allocation]\npolicy = \"dna\"",
            "x.toml:15: allocation.policy: no task has a profile to decide by: give one a `profile`, or --profile TASK=FILE",
        ),
        (
            "profile = \"p.csv\"\n[allocation]\npolicy = \"luck\"",
            "x.toml:16: allocation.policy: no such policy; there are equal, vc2m-frugal, vc2m, static-best, static-fewest, dna, dadna, exact",
        ),
        (
            "profile = \"\"\n[allocation]\npolicy = \"dna\"",
            "x.toml:14: task[0].profile: names no file: write one that `punctual profile` made, such as \"fft.csv\", or remove this key",
        ),
        (
            "[allocation]\nways = 65",
            "x.toml:15: allocation.ways: 65 is out of range: 1 to 64",
        ),
        (
            "[allocation]\npartitions = 0",
            "x.toml:15: allocation.partitions: 0 is out of range: 1 to 64",
        ),
        (
            "[allocation]\nway_kib = 1048577",
            "x.toml:15: allocation.way_kib: 1048577 is out of range: at most 1048576; 0 makes a way that is gained free",
        ),
        (
            "[allocation]\nchanges = \"often\"",
            "x.toml:15: allocation.changes: expected \"paying\" or \"every\", found the text \"often\"",
        ),
    ] {
        // Where no task has a profile, that is said first.
        assert_eq!(with(lines).last().map(String::as_str), Some(expected));
    }
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
}

#[test]
fn the_readme_names_every_key() {
    let readme = include_str!("../../../../scenarios/README.md");
    let mut report = Report::default();
    let Value::Table(document) = tree::parse(builtin::text(SHIPPED_PATH).expect("built in"))
        .unwrap()
        .value
    else {
        panic!("no table")
    };
    draft(Section::top(&document, &mut report), "x", None);
    let known = report.known_keys();
    assert!(known.len() > 30, "{known:?}");
    for key in known {
        let leaf = key.rsplit('.').next().unwrap_or(key);
        let named = [
            format!("| `{leaf}` |"),
            format!("**`[{leaf}]`**"),
            format!("**`[[{leaf}]]`**"),
        ];
        assert!(
            named.iter().any(|name| readme.contains(name)),
            "{key} is not in scenarios/README.md"
        );
    }
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
fn each_wrong_line_of_stages_is_told_in_full() {
    for (from, to, expected) in [
        (
            "name = \"copy\"",
            "name = \"in\"",
            "x.toml:6: stage[1].name: \"in\" is taken by an earlier stage: give each a name of its own",
        ),
        (
            "kind = \"copy\"",
            "kind = \"cpoy\"",
            "x.toml:7: stage[1].kind: \"cpoy\" is no kind of stage; kinds are: copy, join",
        ),
        (
            "kind = \"copy\"",
            "library = \"copy.so\"",
            "x.toml:7: stage[1].library: at/copy.so: cannot be loaded: No such file or directory (os error 2); name a \
             shared library of this machine",
        ),
        (
            "kind = \"copy\"",
            "",
            "x.toml:5: stage[1].program: missing: what carries the stage out? give `program` (a command with its \
             arguments), `file`, `library` (a stage in C) or `kind` (a built-in one)",
        ),
        (
            "kind = \"copy\"",
            "kind = \"copy\"\nprogram = [\"cat\"]",
            "x.toml:8: stage[1].program: a stage is carried out one way; remove `program` or `kind`",
        ),
        (
            "kind = \"copy\"",
            "kind = \"copy\"\nstate_bytes = 8",
            "x.toml:8: stage[1].state_bytes: its state has 64 bytes: ask for at least that, or remove this key",
        ),
        (
            "kind = \"copy\"",
            "kind = \"copy\"\ntakes = [2]",
            "x.toml:8: stage[1].takes: the kind \"copy\" has [1]; remove this key",
        ),
        (
            "kind = \"copy\"",
            "kind = \"join\"",
            "x.toml:5: stage[1].takes: input 1 of stage \"copy\" has 0 edges: connect one",
        ),
        (
            "to = \"copy\"",
            "to = \"cop\"",
            "x.toml:14: edge[0].to: there is no input 0 of a stage \"cop\"; stages are: in, copy, out",
        ),
        (
            "from = \"in\"",
            "from = \"out\"",
            "x.toml:3: stage[0].file: a file is read (an edge leads from it) or written (an edge leads to it): connect \
             one end",
        ),
        (
            "from = \"in\"\nto = \"copy\"",
            "from = \"in:x\"\nto = \"copy\"",
            "x.toml:13: edge[0].from: \"x\" is no port; ports are counted from 0: write it like \"in:1\"",
        ),
        (
            "slots = 4",
            "slots = 0",
            "x.toml:19: edge[1].slots: the edge copy -> out has 0 slots, and needs 1: none holds nothing",
        ),
        (
            "slots = 4\nframe_bytes = 100",
            "slots = 4\nframe_bytes = 99",
            "x.toml:20: edge[1].frame_bytes: 99 is too short: of a frame of 100 bytes, \"copy\" makes 100; write that",
        ),
        (
            "slots = 4\nframe_bytes = 100",
            "slots = 4",
            "x.toml:16: edge[1].frame_bytes: missing: how long is a frame, at most, in bytes?",
        ),
        (
            "slots = 4",
            "full = \"drop\"",
            "x.toml:19: edge[1].full: expected \"wait\" or \"drop-oldest\" or \"drop-late\", found the text \"drop\"",
        ),
        (
            "deadline = \"50ms\"",
            "",
            "x.toml:11: stage[2].late: no frame is ever due: give the source a `deadline`, such as \"50ms\"",
        ),
        (
            "late = \"1 %\"",
            "migratable = true",
            "x.toml:11: stage[2].migratable: a program or file stays in the process that runs the scenario; remove this \
             key",
        ),
        (
            "late = \"1 %\"",
            "period = \"1s\"",
            "x.toml:11: stage[2].period: only a source, a program or file without an input, says when its frames come \
             and are due; remove this key",
        ),
        (
            "file = \"/dev/null\"",
            "file = \"nowhere\"",
            "x.toml:3: stage[0].file: at/nowhere: no such file; name one to be read",
        ),
        (
            "file = \"/dev/null\"",
            "fiel = \"/dev/null\"",
            "x.toml:1: stage[0].program: missing: what carries the stage out? give `program` (a command with its \
             arguments), `file`, `library` (a stage in C) or `kind` (a built-in one)",
        ),
    ] {
        let text = STAGES.replacen(from, to, 1);
        assert_ne!(text, STAGES, "{from}");
        assert_eq!(complaints(&text, &[])[0], expected, "{to}");
    }
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
    assert_eq!(
        complaints(&cycle.concat(), &[]),
        ["x.toml:7: edge[0]: the stages a -> b -> a are a cycle: a stage would wait for itself"]
    );
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
