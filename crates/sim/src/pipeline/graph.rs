//! What runs: a graph of stages and queues, and what a step of each stage takes.

use punctual_allocation::mapping::{STAGES_MAX, Stage};
use punctual_pipeline::{Graph, StageSpec, WhenFull};

/// What a step of a stage takes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StepCost {
    /// Cycles on average, at least 1.
    pub cycles: f64,
    /// How far a step's cycles may lie from the average on either side, as a share of it, evenly distributed; at least
    /// 0, below 1.
    pub spread: f64,
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

/// A graph with the cost of each stage's steps. The room of a stage's state counts as its size.
#[derive(Clone, Debug, PartialEq)]
pub struct Pipeline {
    stages: Vec<StageSpec>,
    costs: Vec<StepCost>,
    edges: Vec<Edge>,
    sink: usize,
    /// Steps of each stage for each step of the sink.
    rates: Vec<f64>,
}

/// A graph that cannot be simulated.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{key}: {what}")]
pub struct PipelineError {
    /// What is wrong, e.g. `stage[2].cycles`.
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
    /// Takes a graph of at most 16 stages, one of them the sink, and a cost for each stage in its order.
    ///
    /// # Errors
    /// [`PipelineError`] names the first thing that cannot be simulated: too many stages, no sink or several, an edge
    /// that drops frames, costs out of range.
    ///
    /// ```
    /// use punctual_pipeline::{EdgeSpec, Graph, StageSpec, WhenFull};
    /// use punctual_sim::pipeline::{Pipeline, StepCost};
    /// let edge = EdgeSpec { slots: 4, frame_bytes: 100, full: WhenFull::Wait };
    /// let graph = Graph::builder("two")
    ///     .stage(StageSpec::new("source").makes(&[1]))
    ///     .stage(StageSpec::new("sink").takes(&[1]))
    ///     .edge(("source", 0), ("sink", 0), edge)
    ///     .build()?;
    /// let cost = StepCost { cycles: 0.0, spread: 0.0 };
    /// let error = Pipeline::new(&graph, vec![cost; 2]).unwrap_err();
    /// assert_eq!(error.to_string(), "stage[0].cycles: must lie between 1 and 1e12");
    /// # Ok::<(), punctual_pipeline::GraphError>(())
    /// ```
    pub fn new(graph: &Graph, costs: Vec<StepCost>) -> Result<Pipeline, PipelineError> {
        let stages = graph.stages();
        let some = stages.len() <= STAGES_MAX && costs.len() == stages.len();
        require(
            some,
            "stage",
            format!("at most {STAGES_MAX} stages, and a cost for each"),
        )?;
        for (number, cost) in costs.iter().enumerate() {
            check_cost(number, cost)?;
        }
        let waits = graph.links().iter().position(|link| link.edge.full != WhenFull::Wait);
        let number = waits.unwrap_or(0);
        require(
            waits.is_none(),
            format!("edge[{number}].full"),
            "only queues whose maker waits are simulated",
        )?;
        Ok(Pipeline {
            stages: stages.to_vec(),
            costs,
            edges: edges(graph),
            sink: sink(stages)?,
            rates: rates(graph),
        })
    }

    /// The stages.
    pub fn stages(&self) -> &[StageSpec] {
        &self.stages
    }

    /// What their steps take.
    pub fn costs(&self) -> &[StepCost] {
        &self.costs
    }

    /// The queues.
    pub fn edges(&self) -> &[Edge] {
        &self.edges
    }

    /// The stage at which frames are due.
    pub fn sink(&self) -> usize {
        self.sink
    }

    /// What a mapping must know of the stages, where those that do not migrate stay on the core that `pin` names.
    pub fn to_map(&self, pin: impl Fn(usize) -> usize) -> Vec<Stage> {
        let of = |(number, stage): (usize, &StageSpec)| {
            let (StepCost { cycles, spread }, rate) = (self.costs[number], self.rates[number]);
            Stage {
                name: stage.name.clone(),
                cycles_mean: (cycles * rate).ceil() as u64,
                cycles_worst: (cycles * (1.0 + spread) * rate).ceil() as u64,
                state_bytes: stage.state_room as u64,
                pinned: (!stage.migratable).then(|| pin(number)),
            }
        };
        self.stages.iter().enumerate().map(of).collect()
    }
}

fn check_cost(number: usize, cost: &StepCost) -> Result<(), PipelineError> {
    let key = |field: &str| format!("stage[{number}].{field}");
    let cycles = cost.cycles >= 1.0 && cost.cycles <= 1e12;
    require(cycles, key("cycles"), "must lie between 1 and 1e12")?;
    let spread = (0.0..1.0).contains(&cost.spread);
    require(spread, key("spread"), "must be at least 0 and below 1")
}

fn sink(stages: &[StageSpec]) -> Result<usize, PipelineError> {
    let sinks: Vec<usize> = (0..stages.len())
        .filter(|stage| stages[*stage].makes.is_empty())
        .collect();
    match sinks[..] {
        [sink] => Ok(sink),
        _ => Err(PipelineError {
            key: "stage".into(),
            what: format!("{} stages have no output: join them in one sink", sinks.len()),
        }),
    }
}

fn edges(graph: &Graph) -> Vec<Edge> {
    let stages = graph.stages();
    let edge = |link: &punctual_pipeline::Link| Edge {
        from: link.from.0,
        makes: stages[link.from.0].makes[link.from.1],
        to: link.to.0,
        takes: stages[link.to.0].takes[link.to.1],
        slots: link.edge.slots,
    };
    graph.links().iter().map(edge).collect()
}

/// Steps of each stage for each step of the sink: against the direction of the frames, by any edge, because the rates
/// of a graph match.
fn rates(graph: &Graph) -> Vec<f64> {
    let edges = edges(graph);
    let mut rates = vec![1.0; graph.stages().len()];
    for stage in graph.topological().into_iter().rev() {
        if let Some(edge) = edges.iter().find(|edge| edge.from == stage) {
            rates[stage] = rates[edge.to] * f64::from(edge.takes) / f64::from(edge.makes);
        }
    }
    rates
}
