//! Problems with the stages of a scenario, in the words of its keys.

use std::collections::BTreeSet;

use punctual_pipelines::{Graph, GraphError, STEP_MAX, StageSpec, WhenFull};
use punctual_units::Nanos;
use punctual_workload::{Problem, Problems, too_long};

use super::{Body, COPY, EdgeNeeds, StageNeeds, StagesSpec};

/// Longest frame, in bytes.
const FRAME_MAX: u64 = 1 << 30;
/// Slots that are enough for whatever rates.
const SLOTS_ENOUGH: u32 = 1 << 20;

/// Refuses a key that means nothing for the stage.
fn without(problems: &mut Problems, there: bool, key: String, why: &str) {
    problems.require(!there, key, format!("{why}; remove this key"));
}

/// Problems of single stages and edges.
pub(super) fn single(spec: &StagesSpec) -> Vec<Problem> {
    let mut problems = Problems::default();
    let mut names = BTreeSet::new();
    for (number, stage) in spec.stages.iter().enumerate() {
        let key = |field: &str| format!("stage[{number}].{field}");
        check_name(&mut problems, &stage.name, key("name"));
        let what = format!(
            "\"{}\" is taken by an earlier stage: give each a name of its own",
            stage.name
        );
        problems.require(names.insert(&stage.name), key("name"), what);
        check_does(&mut problems, spec, stage, &key);
        check_times(&mut problems, spec, stage, &key);
        check_goal(&mut problems, spec, stage, &key);
        let listed = stage
            .core
            .is_none_or(|core| spec.cores.is_empty() || spec.cores.contains(&core));
        let core = stage.core.map_or_else(String::new, |core| core.to_string());
        let what = format!("core {core} is none of pipeline.cores; name one of these, or add it there");
        problems.require(listed, key("core"), what);
    }
    for (number, edge) in spec.edges.iter().enumerate() {
        let EdgeNeeds { edge, .. } = edge;
        let bytes = edge.frame_bytes as u64;
        problems.between(bytes, (1, FRAME_MAX), format!("edge[{number}].frame_bytes"));
        let due = edge.full != WhenFull::DropLate || spec.stages.iter().any(|stage| stage.deadline.is_some());
        let what = "no frame is ever due: give the source a `deadline`, such as \"50ms\", or write \"drop-oldest\"";
        problems.require(due, format!("edge[{number}].full"), what);
    }
    let what = "is no number of frames per second: write one above 0";
    let rate = spec.rate.unwrap_or(1.0);
    problems.require(
        rate > 0.0 && rate.is_finite(),
        "pipeline.rate",
        format!("{rate} {what}"),
    );
    if let Some(span) = spec.step_max {
        problems.span(span, "pipeline.step_max", "1s");
    }
    let what = "there is no [[stage]] for it to lead to: add stages, or remove the edges";
    problems.require(!spec.stages.is_empty() || spec.edges.is_empty(), "edge", what);
    problems.0
}

fn check_name(problems: &mut Problems, name: &str, key: String) {
    problems.require(!name.is_empty(), key.clone(), "a stage needs a name");
    let plain = !name.chars().any(|c| c.is_control() || c == ':');
    let what = format!("{name:?} is no name: leave out colons, which part stage and port, and control characters");
    problems.require(plain, key.clone(), what);
    let long = too_long(name);
    problems.require(long.is_none(), key, long.unwrap_or_default());
}

fn check_does(problems: &mut Problems, spec: &StagesSpec, stage: &StageNeeds, key: &dyn Fn(&str) -> String) {
    let (inputs, outputs) = (ports(spec, stage, true), ports(spec, stage, false));
    match &stage.does {
        Body::Program(command) => {
            let named = command.first().is_some_and(|program| !program.is_empty());
            problems.require(
                named,
                key("program"),
                "names no program: write [\"sox\", \"-t\", \"f32\", ...]",
            );
            let what = format!(
                "\"{}\" is connected to nothing: add an [[edge]] from it or to it",
                stage.name
            );
            problems.require(inputs + outputs > 0, key("name"), what);
            let what = "a program has one standard input: put a stage that joins before it";
            problems.require(inputs <= 1, key("takes"), what);
            let what = "a program has one standard output: put a stage that splits behind it";
            problems.require(outputs <= 1, key("makes"), what);
        }
        Body::File(_) => {
            let what = "a file is read (an edge leads from it) or written (an edge leads to it): connect one end";
            problems.require(inputs + outputs == 1, key("file"), what);
        }
        Body::Library(_) | Body::Kind(..) => return,
    }
    let rates = stage.takes.iter().chain(&stage.makes).flatten();
    let what = "a program or file takes and makes single frames";
    problems.require(rates.clone().all(|rate| *rate == 1), key("takes"), what);
    let stays = "a program or file stays in the process that runs the scenario";
    without(problems, stage.migratable == Some(true), key("migratable"), stays);
    without(problems, stage.core.is_some(), key("core"), stays);
    without(
        problems,
        stage.state_bytes.is_some(),
        key("state_bytes"),
        "a program or file has no state here",
    );
}

fn check_times(problems: &mut Problems, spec: &StagesSpec, stage: &StageNeeds, key: &dyn Fn(&str) -> String) {
    let outside = matches!(stage.does, Body::Program(_) | Body::File(_));
    let is_source = outside && ports(spec, stage, true) == 0;
    for (time, field) in [(stage.period, "period"), (stage.deadline, "deadline")] {
        let why = "only a source, a program or file without an input, says when its frames come and are due";
        without(problems, time.is_some() && !is_source, key(field), why);
        if let Some(time) = time {
            problems.span(time, key(field), "10ms");
        }
    }
    if stage.compute > Nanos::ZERO {
        problems.span(stage.compute, key("compute"), "5ms");
        let copies = matches!(&stage.does, Body::Kind(name, _) if name == COPY);
        let ends = stage.compute < spec.step_max.unwrap_or(STEP_MAX);
        let what = "its process would be killed within each step: write less than pipeline.step_max";
        problems.require(ends || !copies, key("compute"), what);
    }
    let one_end = matches!(stage.does, Body::Program(_)) && ports(spec, stage, true) + ports(spec, stage, false) == 1;
    let why = "only a program at an end is started again: in the middle, what it had read would be missing unseen";
    without(problems, stage.restart && !one_end, key("restart"), why);
}

fn check_goal(problems: &mut Problems, spec: &StagesSpec, stage: &StageNeeds, key: &dyn Fn(&str) -> String) {
    let Some(goal) = stage.goal else { return };
    let field = goal.key();
    problems.goal(goal, "frames", key);
    let takes = ports(spec, stage, true) > 0;
    let what = "a source takes no frames that could be late: put the goal on a stage behind it";
    problems.require(takes, key(field), what);
    let due = spec.stages.iter().any(|stage| stage.deadline.is_some());
    let what = "no frame is ever due: give the source a `deadline`, such as \"50ms\"";
    problems.require(due, key(field), what);
}

/// How many inputs or outputs a stage has: as it says, else as edges need.
pub(super) fn ports(spec: &StagesSpec, stage: &StageNeeds, inputs: bool) -> usize {
    let said = if inputs { &stage.takes } else { &stage.makes };
    let ends = spec.edges.iter().map(|edge| if inputs { &edge.to } else { &edge.from });
    let by_edges = ends
        .filter(|(name, _)| *name == stage.name)
        .map(|(_, port)| port + 1)
        .max();
    said.as_ref().map_or(by_edges.unwrap_or(0), Vec::len)
}

/// Problems of the connections between stages, whatever their rates: a program in the middle is one stage here, so that
/// a cycle through it is found.
pub(super) fn connections(spec: &StagesSpec, stages: &[StageSpec]) -> Vec<Problem> {
    let mut graph = Graph::builder("connections");
    for stage in stages {
        let ones = |ports: &Vec<u32>| vec![1; ports.len()];
        let (takes, makes) = (ones(&stage.takes), ones(&stage.makes));
        graph = graph.stage(StageSpec::new(&stage.name).takes(&takes).makes(&makes));
    }
    for EdgeNeeds { from, to, edge } in &spec.edges {
        let mut edge = *edge;
        (edge.slots, edge.full) = (SLOTS_ENOUGH, WhenFull::Wait);
        graph = graph.edge((&from.0, from.1), (&to.0, to.1), edge);
    }
    graph.build().err().map(|why| told(spec, &why)).into_iter().collect()
}

/// Problem that a graph's fault means, by the key that is to be changed.
pub(super) fn told(spec: &StagesSpec, why: &GraphError) -> Problem {
    let what = why.to_string();
    let stage = |name: &str| spec.stages.iter().position(|stage| stage.name == plain(name));
    let of_stage = |name: &str, field: &str| stage(name).map(|number| format!("stage[{number}].{field}"));
    let edge = |wanted: &dyn Fn(&EdgeNeeds) -> bool, field: &str| {
        let number = spec.edges.iter().position(wanted)?;
        Some(format!("edge[{number}]{field}"))
    };
    let between =
        |from: &str, to: &str, field: &str| edge(&|edge| edge.from.0 == plain(from) && edge.to.0 == plain(to), field);
    let key = match why {
        GraphError::Count { what, .. } => {
            let named = spec
                .stages
                .iter()
                .find(|stage| what.ends_with(&format!("\"{}\"", stage.name)));
            named.and_then(|named| of_stage(&named.name, "takes"))
        }
        GraphError::Twice(name) => of_stage(name, "name"),
        GraphError::NoPort {
            stage, port, direction, ..
        } => match *direction {
            "output" => edge(&|edge| edge.from.0 == *stage && edge.from.1 == *port, ".from"),
            _ => edge(&|edge| edge.to.0 == *stage && edge.to.1 == *port, ".to"),
        },
        GraphError::Connected { stage, direction, .. } => {
            of_stage(stage, if *direction == "output" { "makes" } else { "takes" })
        }
        GraphError::Cycle(names) => match names.as_slice() {
            [from, to, ..] => between(from, to, ""),
            _ => None,
        },
        GraphError::Rates { from, to, .. } => between(from, to, ""),
        GraphError::Slots { from, to, .. } => between(from, to, ".slots"),
        GraphError::DropsAndRepeats(name, _) => of_stage(name, "save_every"),
    };
    let key = key.unwrap_or_else(|| "stage".into());
    Problem { key, what }
}

/// Suffix of the stage that reads a program, after the program's name.
pub(super) const READING: &str = ":out";

/// The scenario's name of a stage of the graph.
fn plain(name: &str) -> &str {
    name.strip_suffix(READING).unwrap_or(name)
}
