//! The simulated program: a graph of stages and queues, and the cost of each stage's steps.

use punctual_allocation::mapping::{STAGES_MAX, StageModel};
use punctual_pipelines::{EdgeSpec, Graph, StageSpec, WhenFull};
use rand::RngExt;
use rand_chacha::ChaCha8Rng;

/// Cost of a stage's step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StepCost {
    /// Average cycles of a step, at least 1.
    pub cycles: f64,
    /// Largest deviation of a step's cycles from the average to either side, as a share of it, uniformly distributed;
    /// at least 0, below 1.
    pub spread: f64,
}

/// A queue from one stage to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Edge {
    /// Index of the stage that makes the frames.
    pub from: usize,
    /// Number of frames that it makes in a step.
    pub makes: u32,
    /// Index of the stage that takes the frames.
    pub to: usize,
    /// Number of frames that it takes in a step.
    pub takes: u32,
    /// Capacity in frames of the queue.
    pub slots: u32,
}

/// A graph with the cost of each stage's steps. The state's reserved room counts as its size.
#[derive(Clone, Debug, PartialEq)]
pub struct PipelineModel {
    stages: Vec<StageSpec>,
    costs: Vec<StepCost>,
    edges: Vec<Edge>,
    sink: usize,
    /// Number of steps of each stage per step of the sink.
    rates: Vec<f64>,
}

/// A graph that cannot be simulated.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{key}: {what}")]
pub struct PipelineError {
    /// The faulty entry, e.g. `stage[2].cycles`.
    pub key: String,
    /// The fault, and a correct value.
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

impl PipelineModel {
    /// Makes a pipeline from a graph of at most 16 stages, one of them the sink, and a cost for each stage in order.
    ///
    /// # Errors
    /// [`PipelineError`] names the first fault: too many stages, no sink or several, an edge that drops frames, costs
    /// out of range.
    ///
    /// ```
    /// use punctual_pipelines::{EdgeSpec, Graph, StageSpec, WhenFull};
    /// use punctual_mpsoc::{PipelineModel, StepCost};
    /// let edge = EdgeSpec { slots: 4, frame_bytes: 100, full: WhenFull::Wait };
    /// let graph = Graph::builder("two")
    ///     .stage(StageSpec::new("source").makes(&[1]))
    ///     .stage(StageSpec::new("sink").takes(&[1]))
    ///     .edge(("source", 0), ("sink", 0), edge)
    ///     .build()?;
    /// let cost = StepCost { cycles: 0.0, spread: 0.0 };
    /// let error = PipelineModel::new(&graph, vec![cost; 2]).unwrap_err();
    /// assert_eq!(error.to_string(), "stage[0].cycles: must lie between 1 and 1e12");
    /// # Ok::<(), punctual_pipelines::GraphError>(())
    /// ```
    pub fn new(graph: &Graph, costs: Vec<StepCost>) -> Result<PipelineModel, PipelineError> {
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
        Ok(PipelineModel {
            stages: stages.to_vec(),
            costs,
            edges: edges(graph),
            sink: sink(stages)?,
            rates: rates(graph),
        })
    }

    /// A random pipeline: a source, a split, one to four parallel workers, and a sink that joins them; each queue holds
    /// `slots` frames, and a step takes 5,000 to 60,000 cycles.
    ///
    /// # Errors
    /// A sentence, if the graph refuses `slots`.
    pub fn random(rng: &mut ChaCha8Rng, slots: u32) -> Result<PipelineModel, String> {
        let workers = rng.random_range(1..=4);
        let edge = EdgeSpec {
            slots,
            frame_bytes: 64,
            full: WhenFull::Wait,
        };
        let mut bytes = || rng.random_range(1 << 10..64 << 10);
        let mut builder = Graph::builder("random")
            .stage(StageSpec::new("source").makes(&[1]).state(bytes()))
            .stage(StageSpec::new("split").takes(&[1]).makes(&[1]).state(bytes()))
            .stage(StageSpec::new("sink").takes(&vec![1; workers]).state(bytes()))
            .edge(("source", 0), ("split", 0), edge);
        for worker in 0..workers {
            let name = format!("worker {worker}");
            builder = builder
                .stage(StageSpec::new(&name).takes(&[1]).makes(&[1]).state(bytes()))
                .edge(("split", 0), (&name, 0), edge)
                .edge((&name, 0), ("sink", worker), edge);
        }
        let graph = builder.build().map_err(|error| error.to_string())?;
        let cost = |_| StepCost {
            cycles: rng.random_range(5e3..60e3),
            spread: rng.random_range(0.0..0.2),
        };
        PipelineModel::new(&graph, (0..workers + 3).map(cost).collect()).map_err(|error| error.to_string())
    }

    pub fn stages(&self) -> &[StageSpec] {
        &self.stages
    }

    /// Costs of the stages' steps, in the order of the stages.
    pub fn costs(&self) -> &[StepCost] {
        &self.costs
    }

    pub fn edges(&self) -> &[Edge] {
        &self.edges
    }

    /// Index of the stage at which frames are due.
    pub fn sink(&self) -> usize {
        self.sink
    }

    /// Stages as mapping policies need them, each free to migrate.
    pub fn to_map(&self) -> Vec<StageModel> {
        let of = |(number, stage): (usize, &StageSpec)| {
            let (StepCost { cycles, spread }, rate) = (self.costs[number], self.rates[number]);
            StageModel {
                name: stage.name.clone(),
                cycles_mean: (cycles * rate).ceil() as u64,
                cycles_worst: (cycles * (1.0 + spread) * rate).ceil() as u64,
                state_bytes: stage.state_room as u64,
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
    let edge = |link: &punctual_pipelines::Link| Edge {
        from: link.from.0,
        makes: stages[link.from.0].makes[link.from.1],
        to: link.to.0,
        takes: stages[link.to.0].takes[link.to.1],
        slots: link.edge.slots,
    };
    graph.links().iter().map(edge).collect()
}

/// Steps of each stage for each step of the sink: computed against the direction of the frames, by any edge, because
/// the rates of a graph match.
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
