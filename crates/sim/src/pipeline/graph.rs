//! The graph: stages, and bounded queues between them.

use punctual_allocation::mapping::{STAGES_MAX, Stage};

/// Most frames that a queue holds.
const SLOTS_MAX: u32 = 4096;

/// A stage to simulate.
#[derive(Clone, Debug, PartialEq)]
pub struct StageModel {
    /// For people.
    pub name: String,
    /// Cycles of a step on average, at least 1.
    pub cycles: f64,
    /// How far a step's cycles may lie from the average on either side, as a share of it, evenly distributed; at least
    /// 0, below 1.
    pub spread: f64,
    /// Its state, in bytes.
    pub state_bytes: u64,
    /// Whether it may be moved.
    pub migratable: bool,
}

/// A queue from one stage to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Edge {
    /// The stage that makes the frames.
    pub from: usize,
    /// How many it makes in a step.
    pub makes: u32,
    /// The stage that takes them.
    pub to: usize,
    /// How many it takes in a step.
    pub takes: u32,
    /// Room, in frames.
    pub slots: u32,
}

impl Edge {
    /// One frame for each step of either stage.
    pub fn plain(from: usize, to: usize, slots: u32) -> Edge {
        Edge {
            from,
            makes: 1,
            to,
            takes: 1,
            slots,
        }
    }
}

/// Stages and queues, checked.
#[derive(Clone, Debug, PartialEq)]
pub struct Pipeline {
    stages: Vec<StageModel>,
    edges: Vec<Edge>,
    sink: usize,
    /// Steps of each stage for each step of the sink.
    rates: Vec<f64>,
}

/// A graph that cannot be simulated.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{key}: {what}")]
pub struct PipelineError {
    /// What is wrong, e.g. `edge[2].slots`.
    pub key: String,
    /// Why, and what to write instead.
    pub what: String,
}

fn require(sound: bool, key: impl Into<String>, what: impl Into<String>) -> Result<(), PipelineError> {
    match sound {
        true => Ok(()),
        false => Err(PipelineError {
            key: key.into(),
            what: what.into(),
        }),
    }
}

impl Pipeline {
    /// Takes stages and edges that make a pipeline.
    ///
    /// # Errors
    /// [`PipelineError`] names the first thing that is wrong: a number out of range, a cycle, no sink or several, a
    /// stage that the sink does not hear of, rates that never match, a queue shorter than a step needs.
    ///
    /// ```
    /// use punctual_sim::pipeline::{Edge, Pipeline, StageModel};
    /// let stage = |name: &str| StageModel {
    ///     name: name.into(), cycles: 1000.0, spread: 0.0, state_bytes: 0, migratable: true,
    /// };
    /// let edges = vec![Edge { takes: 3, ..Edge::plain(0, 1, 2) }];
    /// let error = Pipeline::new(vec![stage("a"), stage("b")], edges).unwrap_err();
    /// assert_eq!(error.to_string(), "edge[0].slots: 2 frames: a step of \"b\" takes 3; give the queue at least 3 slots");
    /// ```
    pub fn new(stages: Vec<StageModel>, edges: Vec<Edge>) -> Result<Pipeline, PipelineError> {
        let some = (1..=STAGES_MAX).contains(&stages.len());
        require(some, "stage", format!("a pipeline has 1 to {STAGES_MAX} stages"))?;
        for (number, stage) in stages.iter().enumerate() {
            check_stage(number, stage, &stages[..number])?;
        }
        for (number, edge) in edges.iter().enumerate() {
            check_edge(number, edge, &stages)?;
        }
        let ends = |stage: &usize| edges.iter().all(|edge| edge.from != *stage);
        let sinks: Vec<usize> = (0..stages.len()).filter(ends).collect();
        let [sink] = sinks[..] else {
            let names: Vec<&str> = sinks.iter().map(|sink| stages[*sink].name.as_str()).collect();
            let what = match names.len() {
                0 => "every stage has an output: the graph has a cycle; one stage must be the sink".into(),
                _ => format!(
                    "several stages have no output: {}; join them in one sink",
                    names.join(", ")
                ),
            };
            return Err(PipelineError {
                key: "stage".into(),
                what,
            });
        };
        let rates = rates(&stages, &edges, sink)?;
        Ok(Pipeline {
            stages,
            edges,
            sink,
            rates,
        })
    }

    /// The stages.
    pub fn stages(&self) -> &[StageModel] {
        &self.stages
    }

    /// The queues.
    pub fn edges(&self) -> &[Edge] {
        &self.edges
    }

    /// The stage at which frames are due.
    pub fn sink(&self) -> usize {
        self.sink
    }

    /// The same with queues of so many frames.
    ///
    /// # Errors
    /// As [`Pipeline::new`].
    pub fn with_slots(&self, slots: u32) -> Result<Pipeline, PipelineError> {
        let edges = self.edges.iter().map(|edge| Edge { slots, ..*edge }).collect();
        Pipeline::new(self.stages.clone(), edges)
    }

    /// What a mapping must know of the stages, where those that do not migrate stay on the core that `pin` names.
    pub fn to_map(&self, pin: impl Fn(usize) -> usize) -> Vec<Stage> {
        let stages = self.stages.iter().zip(&self.rates).enumerate();
        stages
            .map(|(number, (stage, rate))| Stage {
                name: stage.name.clone(),
                cycles_mean: (stage.cycles * rate).ceil() as u64,
                cycles_worst: (stage.cycles * (1.0 + stage.spread) * rate).ceil() as u64,
                state_bytes: stage.state_bytes,
                pinned: (!stage.migratable).then(|| pin(number)),
            })
            .collect()
    }
}

fn check_stage(number: usize, stage: &StageModel, before: &[StageModel]) -> Result<(), PipelineError> {
    let key = |field: &str| format!("stage[{number}].{field}");
    let cycles = stage.cycles >= 1.0 && stage.cycles <= 1e12;
    require(cycles, key("cycles"), "must lie between 1 and 1e12")?;
    let spread = (0.0..1.0).contains(&stage.spread);
    require(spread, key("spread"), "must be at least 0 and below 1")?;
    let twin = before.iter().any(|other| other.name == stage.name);
    require(!twin, key("name"), format!("two stages are called \"{}\"", stage.name))
}

fn check_edge(number: usize, edge: &Edge, stages: &[StageModel]) -> Result<(), PipelineError> {
    let key = |field: &str| format!("edge[{number}].{field}");
    for (field, stage) in [("from", edge.from), ("to", edge.to)] {
        let what = format!("there is no stage {stage}: there are 0 to {}", stages.len() - 1);
        require(stage < stages.len(), key(field), what)?;
    }
    require(edge.makes > 0, key("makes"), "a step makes at least one frame")?;
    require(edge.takes > 0, key("takes"), "a step takes at least one frame")?;
    require(edge.slots <= SLOTS_MAX, key("slots"), format!("at most {SLOTS_MAX}"))?;
    for (stage, what, frames) in [(edge.from, "makes", edge.makes), (edge.to, "takes", edge.takes)] {
        let text = format!(
            "{} frames: a step of \"{}\" {what} {frames}; give the queue at least {frames} slots",
            edge.slots, stages[stage].name
        );
        require(edge.slots >= frames, key("slots"), text)?;
    }
    Ok(())
}

/// Steps of each stage for each step of the sink: from the sink upwards, each stage once all that follow it are known.
fn rates(stages: &[StageModel], edges: &[Edge], sink: usize) -> Result<Vec<f64>, PipelineError> {
    let mut rates: Vec<Option<f64>> = vec![None; stages.len()];
    rates[sink] = Some(1.0);
    // In each round at least one stage becomes known, or none ever will.
    for _ in 0..stages.len() {
        for stage in (0..stages.len()).filter(|stage| *stage != sink) {
            let wanted: Option<Vec<f64>> = edges
                .iter()
                .filter(|edge| edge.from == stage)
                .map(|edge| Some(rates[edge.to]? * f64::from(edge.takes) / f64::from(edge.makes)))
                .collect();
            let Some(wanted) = wanted else { continue };
            let same = wanted.iter().all(|rate| (rate / wanted[0] - 1.0).abs() < 1e-12);
            let what = format!(
                "the outputs of \"{}\" are taken at rates that never match",
                stages[stage].name
            );
            require(same, "edge", what)?;
            rates[stage] = Some(wanted[0]);
        }
    }
    let known: Option<Vec<f64>> = rates.into_iter().collect();
    known.ok_or_else(|| PipelineError {
        key: "edge".into(),
        what: "the graph has a cycle: a frame must not come back to a stage that made it".into(),
    })
}
