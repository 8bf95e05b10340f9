//! The stages and the edges between them.

use std::collections::BTreeSet;

use punctual_units::fnv1a;
use serde::{Deserialize, Serialize};

/// Greatest number of stages in one pipeline.
pub const STAGES_MAX: usize = 64;
/// Greatest number of inputs, and of outputs, of one stage; also of edges from one output.
pub const PORTS_MAX: usize = 32;
/// Greatest number of frames in one edge.
const SLOTS_MAX: u32 = 1 << 20;
/// Greatest number of frames that a step takes or makes at a port.
const RATE_MAX: u32 = 1 << 16;

/// Policy for frames that arrive while an edge is full.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum WhenFull {
    /// The producing stage waits.
    #[default]
    Wait,
    /// The consuming stage drops the oldest frames before its next step, so that another step's frames have room.
    DropOldest,
    /// The consuming stage drops frames past their due time before its next step.
    DropLate,
}

/// A stage of a graph.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StageSpec {
    /// Name, unique in its graph.
    pub name: String,
    /// How many frames a step takes from each input.
    pub takes: Vec<u32>,
    /// How many frames a step makes at each output, at most.
    pub makes: Vec<u32>,
    /// Greatest length of the serialized state, in bytes.
    pub state_room: usize,
    /// Interval between saves of the state, in steps; 1: every step. Above 1, a process that takes over the stage
    /// repeats the steps since the last save; their frames are not passed on twice.
    pub save_every: u32,
    /// Whether the stage may run in any process; a pinned stage stays where it was started.
    pub migratable: bool,
}

impl StageSpec {
    /// A migratable stage without ports, with 64 bytes for its state, saved at every step.
    pub fn new(name: impl Into<String>) -> StageSpec {
        StageSpec {
            name: name.into(),
            takes: Vec::new(),
            makes: Vec::new(),
            state_room: 64,
            save_every: 1,
            migratable: true,
        }
    }

    /// Sets the inputs: how many frames a step takes from each.
    #[must_use]
    pub fn takes(mut self, frames: &[u32]) -> StageSpec {
        self.takes = frames.to_vec();
        self
    }

    /// Sets the outputs: how many frames a step makes at most at each.
    #[must_use]
    pub fn makes(mut self, frames: &[u32]) -> StageSpec {
        self.makes = frames.to_vec();
        self
    }

    /// Sets the greatest length of the serialized state, in bytes.
    #[must_use]
    pub fn state(mut self, bytes: usize) -> StageSpec {
        self.state_room = bytes;
        self
    }

    /// Sets the interval between saves of the state, in steps.
    #[must_use]
    pub fn save_every(mut self, steps: u32) -> StageSpec {
        self.save_every = steps;
        self
    }

    /// Pins the stage: it stays where it was started.
    #[must_use]
    pub fn pinned(mut self) -> StageSpec {
        self.migratable = false;
        self
    }
}

/// A ring of frames from one stage to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EdgeSpec {
    /// Capacity of the ring, in frames.
    pub slots: u32,
    /// Length of the longest frame, in bytes.
    pub frame_bytes: usize,
    /// Policy for frames that arrive while the ring is full.
    pub full: WhenFull,
}

/// An edge of a graph, with its ends as (number of the stage, port).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Link {
    /// Stage and output that make the frames.
    pub from: (usize, usize),
    /// Stage and input that take the frames.
    pub to: (usize, usize),
    /// Capacity and policy of the ring.
    pub edge: EdgeSpec,
}

/// Why a graph is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GraphError {
    /// Too few or too many of something.
    #[error("{what}: {count}, possible are 1 to {max}")]
    Count {
        /// Kind of the counted items, for the message.
        what: String,
        /// Number found in the graph.
        count: usize,
        /// Greatest number that is allowed; the least is 1.
        max: usize,
    },
    /// Two stages share a name.
    #[error("two stages are called \"{0}\": give each a name of its own")]
    Twice(String),
    /// An end of an edge names a stage or port that does not exist.
    #[error("there is no {direction} {port} of a stage \"{stage}\"; {there}")]
    NoPort {
        /// Name of the stage in the edge.
        stage: String,
        /// The port's number, from 0.
        port: usize,
        /// Kind of the port: `input` or `output`.
        direction: &'static str,
        /// Text that lists the existing ports or stages.
        there: String,
    },
    /// A port without an edge, or an input with two.
    #[error("{direction} {port} of stage \"{stage}\" has {edges} edges: connect {wanted}")]
    Connected {
        /// Name of the stage with that port.
        stage: String,
        /// The port's number, from 0.
        port: usize,
        /// Kind of the port: `input` or `output`.
        direction: &'static str,
        /// Number of edges connected to the port.
        edges: usize,
        /// Text that states the allowed number of edges.
        wanted: &'static str,
    },
    /// The edges form a cycle; these are its stages, the first one repeated at the end.
    #[error("the stages {} are a cycle: a stage would wait for itself", .0.join(" -> "))]
    Cycle(Vec<String>),
    /// No step counts of the stages balance the edges.
    #[error(
        "the edge {from} -> {to} never balances: by the rates of the other edges it gets {makes} frames where {to} takes \
         {takes}"
    )]
    Rates {
        /// Name of the producing stage.
        from: String,
        /// Name of the consuming stage.
        to: String,
        /// Frames that the producer makes while the consumer takes `takes`.
        makes: u64,
        /// Frames that the consumer takes in the same time.
        takes: u64,
    },
    /// An edge has too few slots, or more than `SLOTS_MAX`.
    #[error(
        "the edge {from} -> {to} has {slots} slots, possible are {needed} to {SLOTS_MAX}: at least a step's frames, and \
         those that are kept until the consumer's state is saved"
    )]
    Slots {
        /// Name of the producing stage.
        from: String,
        /// Name of the consuming stage.
        to: String,
        /// Number of slots that the edge has.
        slots: u32,
        /// Least number of slots that the edge needs.
        needed: u64,
    },
    /// A stage with `save_every` above 1 repeats steps, so it must find the same frames again; an edge that drops
    /// frames cannot promise that.
    #[error("stage \"{0}\" saves its state every {1} steps and takes from an edge that drops frames: use save_every 1")]
    DropsAndRepeats(String, u32),
}

/// A checked graph of stages.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Graph {
    name: String,
    stages: Vec<StageSpec>,
    links: Vec<Link>,
}

/// An edge with its ends by the names of stages.
type NamedEdge = ((String, usize), (String, usize), EdgeSpec);

/// A graph under construction; [`Builder::build`] checks it.
#[derive(Clone, Debug, Default)]
pub struct Builder {
    name: String,
    stages: Vec<StageSpec>,
    edges: Vec<NamedEdge>,
}

impl Builder {
    /// Adds a stage; its index is the number of stages added before.
    #[must_use]
    pub fn stage(mut self, stage: StageSpec) -> Builder {
        self.stages.push(stage);
        self
    }

    /// Adds an edge from an output to an input, each named by stage and port.
    #[must_use]
    pub fn edge(mut self, from: (&str, usize), to: (&str, usize), edge: EdgeSpec) -> Builder {
        self.edges.push(((from.0.into(), from.1), (to.0.into(), to.1), edge));
        self
    }

    /// Checks the graph and returns it.
    ///
    /// # Errors
    /// [`GraphError`] names the first rule that the graph violates.
    pub fn build(self) -> Result<Graph, GraphError> {
        check_counts(&self.stages)?;
        let links: Result<Vec<Link>, GraphError> = self.edges.iter().map(|edge| link(&self.stages, edge)).collect();
        let graph = Graph {
            name: self.name,
            stages: self.stages,
            links: links?,
        };
        graph.check_connected()?;
        graph.order()?;
        graph.check_rates()?;
        graph.check_slots()?;
        Ok(graph)
    }
}

fn check_counts(stages: &[StageSpec]) -> Result<(), GraphError> {
    let count = |what: String, count: usize, max: usize| match count {
        0 => Err(GraphError::Count { what, count, max }),
        count if count > max => Err(GraphError::Count { what, count, max }),
        _ => Ok(()),
    };
    count("stages".into(), stages.len(), STAGES_MAX)?;
    let mut names = BTreeSet::new();
    for stage in stages {
        let of = |what: &str| format!("{what} of stage \"{}\"", stage.name);
        count(of("ports"), stage.takes.len().max(stage.makes.len()), PORTS_MAX)?;
        for rate in stage.takes.iter().chain(&stage.makes) {
            count(of("frames of a step"), *rate as usize, RATE_MAX as usize)?;
        }
        count(
            of("steps until the state is saved"),
            stage.save_every as usize,
            RATE_MAX as usize,
        )?;
        if !names.insert(&stage.name) {
            return Err(GraphError::Twice(stage.name.clone()));
        }
    }
    Ok(())
}

fn link(stages: &[StageSpec], (from, to, edge): &NamedEdge) -> Result<Link, GraphError> {
    let find = |(name, port): &(String, usize), direction: &'static str, ports: fn(&StageSpec) -> &Vec<u32>| {
        let number = stages.iter().position(|stage| stage.name == *name);
        let count = number
            .and_then(|number| stages.get(number))
            .map(|stage| ports(stage).len());
        let missing = |there: String| {
            Err(GraphError::NoPort {
                stage: name.clone(),
                port: *port,
                direction,
                there,
            })
        };
        match (number, count) {
            (Some(number), Some(count)) if *port < count => Ok((number, *port)),
            (_, Some(count)) => missing(format!("it has {count}, counted from 0")),
            _ => {
                let names: Vec<&str> = stages.iter().map(|stage| stage.name.as_str()).collect();
                missing(format!("stages are: {}", names.join(", ")))
            }
        }
    };
    Ok(Link {
        from: find(from, "output", |stage| &stage.makes)?,
        to: find(to, "input", |stage| &stage.takes)?,
        edge: *edge,
    })
}

impl Graph {
    /// Begins a graph of that name, without stages and edges.
    pub fn builder(name: impl Into<String>) -> Builder {
        Builder {
            name: name.into(),
            ..Builder::default()
        }
    }

    /// Name of the graph, as given to the builder.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The stages; a stage's index is its number.
    pub fn stages(&self) -> &[StageSpec] {
        &self.stages
    }

    /// The edges; an edge's index is its number.
    pub fn links(&self) -> &[Link] {
        &self.links
    }

    /// Number of the stage of that name.
    pub fn number(&self, name: &str) -> Option<usize> {
        self.stages.iter().position(|stage| stage.name == name)
    }

    /// Number of the edge into the input `port` of `stage`.
    pub fn edge_into(&self, stage: usize, port: usize) -> Option<usize> {
        self.links.iter().position(|link| link.to == (stage, port))
    }

    /// Numbers of the edges out of the output `port` of `stage`.
    pub fn edges_out_of(&self, stage: usize, port: usize) -> impl Iterator<Item = usize> {
        let links = self.links.iter().enumerate();
        links
            .filter(move |(_, link)| link.from == (stage, port))
            .map(|(number, _)| number)
    }

    /// The stages, each after all stages that it takes frames from.
    pub fn topological(&self) -> Vec<usize> {
        // `build` has checked that there is no cycle.
        self.order().unwrap_or_default()
    }

    /// Whether `other` has the same stages and edges; the room for states may differ, which an upgraded stage needs.
    pub fn is_like(&self, other: &Graph) -> bool {
        let shape = |graph: &Graph| {
            let mut graph = graph.clone();
            graph.stages.iter_mut().for_each(|stage| stage.state_room = 0);
            graph
        };
        shape(self) == shape(other)
    }

    /// Hash that distinguishes this graph from others: FNV-1a over everything that the layout of its memory depends on.
    pub fn fingerprint(&self) -> u64 {
        fnv1a(format!("{self:?}").bytes())
    }

    fn label(&self, stage: usize) -> String {
        self.stages
            .get(stage)
            .map_or_else(String::new, |stage| stage.name.clone())
    }

    fn check_connected(&self) -> Result<(), GraphError> {
        for (number, stage) in self.stages.iter().enumerate() {
            let complain = |port, direction, edges, wanted| {
                Err(GraphError::Connected {
                    stage: stage.name.clone(),
                    port,
                    direction,
                    edges,
                    wanted,
                })
            };
            for port in 0..stage.takes.len() {
                let edges = self.links.iter().filter(|link| link.to == (number, port)).count();
                if edges != 1 {
                    return complain(port, "input", edges, "one");
                }
            }
            for port in 0..stage.makes.len() {
                let edges = self.edges_out_of(number, port).count();
                if edges == 0 || edges > PORTS_MAX {
                    return complain(port, "output", edges, "1 to 32");
                }
            }
        }
        Ok(())
    }

    fn order(&self) -> Result<Vec<usize>, GraphError> {
        let mut order = Vec::new();
        let mut left: Vec<usize> = (0..self.stages.len()).collect();
        while !left.is_empty() {
            let waits = |stage: &usize| {
                let feeds = |link: &&Link| link.to.0 == *stage && left.contains(&link.from.0);
                self.links.iter().any(|link| feeds(&link))
            };
            let (waiting, ready): (Vec<usize>, Vec<usize>) = left.iter().partition(|stage| waits(stage));
            if ready.is_empty() {
                return Err(GraphError::Cycle(self.cycle(&waiting)));
            }
            order.extend(ready);
            left = waiting;
        }
        Ok(order)
    }

    /// A cycle among `waiting`, each of which takes frames from another of them.
    fn cycle(&self, waiting: &[usize]) -> Vec<String> {
        let before = |stage: usize| {
            let feeds = |link: &&Link| link.to.0 == stage && waiting.contains(&link.from.0);
            self.links.iter().find(feeds).map(|link| link.from.0)
        };
        let mut way: Vec<usize> = waiting.first().copied().into_iter().collect();
        while let Some(from) = way.last().and_then(|stage| before(*stage)) {
            if let Some(at) = way.iter().position(|stage| *stage == from) {
                let mut cycle = way.split_off(at);
                cycle.push(from);
                cycle.reverse();
                return cycle.into_iter().map(|stage| self.label(stage)).collect();
            }
            way.push(from);
        }
        Vec::new()
    }

    /// Checks that step counts exist at which every edge receives as many frames as it gives (the balance equations of
    /// synchronous data flow: Lee and Messerschmitt, Proc. IEEE 75(9), 1987).
    fn check_rates(&self) -> Result<(), GraphError> {
        // Steps of each stage, as a fraction of the steps of the first stage of its connected component.
        let mut steps: Vec<Option<(u64, u64)>> = vec![None; self.stages.len()];
        for first in 0..self.stages.len() {
            if steps[first].is_none() {
                steps[first] = Some((1, 1));
                self.spread(&mut steps)?;
            }
        }
        Ok(())
    }

    /// Propagates step counts along the edges until every reachable stage has one.
    fn spread(&self, steps: &mut [Option<(u64, u64)>]) -> Result<(), GraphError> {
        let mut changed = true;
        while changed {
            changed = false;
            for link in &self.links {
                let (makes, takes) = self.rates(link);
                let (from, to) = (steps[link.from.0], steps[link.to.0]);
                let fed = from.map(|from| scaled(from, makes, takes));
                match (fed, to) {
                    (Some(fed), None) => steps[link.to.0] = Some(fed),
                    (None, Some(to)) => steps[link.from.0] = Some(scaled(to, takes, makes)),
                    (Some(fed), Some(to)) if fed != to => {
                        let (makes, takes) = reduced(fed.0.saturating_mul(to.1), to.0.saturating_mul(fed.1));
                        let (from, to) = (self.label(link.from.0), self.label(link.to.0));
                        return Err(GraphError::Rates { from, to, makes, takes });
                    }
                    _ => continue,
                }
                changed |= fed.is_some() != to.is_some();
            }
        }
        Ok(())
    }

    /// Frames that a step makes at the edge, and frames that a step takes from it.
    fn rates(&self, link: &Link) -> (u64, u64) {
        let makes = self.stages[link.from.0].makes[link.from.1];
        let takes = self.stages[link.to.0].takes[link.to.1];
        (makes.into(), takes.into())
    }

    fn check_slots(&self) -> Result<(), GraphError> {
        for link in &self.links {
            let (makes, takes) = self.rates(link);
            let taker = &self.stages[link.to.0];
            let kept = takes * u64::from(taker.save_every);
            let both = makes + kept - gcd(makes, kept);
            if u64::from(link.edge.slots) < both || link.edge.slots > SLOTS_MAX {
                return Err(GraphError::Slots {
                    from: self.label(link.from.0),
                    to: self.label(link.to.0),
                    slots: link.edge.slots,
                    needed: both,
                });
            }
            if link.edge.full != WhenFull::Wait && taker.save_every > 1 {
                return Err(GraphError::DropsAndRepeats(taker.name.clone(), taker.save_every));
            }
        }
        Ok(())
    }
}

fn scaled(steps: (u64, u64), by: u64, over: u64) -> (u64, u64) {
    reduced(steps.0.saturating_mul(by), steps.1.saturating_mul(over))
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

fn reduced(above: u64, below: u64) -> (u64, u64) {
    let by = gcd(above, below).max(1);
    (above / by, below / by)
}

#[cfg(test)]
mod tests {
    use super::*;

    const EDGE: EdgeSpec = EdgeSpec {
        slots: 4,
        frame_bytes: 8,
        full: WhenFull::Wait,
    };

    fn stage(name: &str, takes: &[u32], makes: &[u32]) -> StageSpec {
        StageSpec::new(name).takes(takes).makes(makes)
    }

    fn chain() -> Builder {
        Graph::builder("chain")
            .stage(stage("source", &[], &[1]))
            .stage(stage("middle", &[1], &[1]))
            .stage(stage("sink", &[1], &[]))
    }

    #[test]
    fn a_chain_is_a_graph_in_the_order_of_its_frames() {
        let graph = chain()
            .edge(("middle", 0), ("sink", 0), EDGE)
            .edge(("source", 0), ("middle", 0), EDGE)
            .build()
            .unwrap();
        assert_eq!(graph.topological(), [0, 1, 2]);
        assert_eq!(graph.edge_into(2, 0), Some(0));
        assert_eq!(graph.edges_out_of(0, 0).collect::<Vec<_>>(), [1]);
        let other = chain()
            .edge(("middle", 0), ("sink", 0), EDGE)
            .edge(("source", 0), ("middle", 0), EDGE);
        assert_eq!(graph.fingerprint(), other.build().unwrap().fingerprint());
    }

    /// A producer of 3 frames a step and a consumer of 2 that saves its state every `save_every` steps.
    fn pair(slots: u32, save_every: u32) -> Builder {
        let edge = EdgeSpec { slots, ..EDGE };
        let sink = stage("sink", &[2], &[]).save_every(save_every);
        let graph = Graph::builder("pair").stage(stage("source", &[], &[3])).stage(sink);
        graph.edge(("source", 0), ("sink", 0), edge)
    }

    /// Two paths from one stage to another; the left one multiplies its frames.
    fn diamond(left: u32) -> Builder {
        Graph::builder("diamond")
            .stage(stage("split", &[], &[1, 1]))
            .stage(stage("left", &[1], &[left]))
            .stage(stage("right", &[2], &[1]))
            .stage(stage("join", &[2, 1], &[]))
            .edge(("split", 0), ("left", 0), EDGE)
            .edge(("split", 1), ("right", 0), EDGE)
            .edge(("left", 0), ("join", 0), EDGE)
            .edge(("right", 0), ("join", 1), EDGE)
    }

    #[test]
    fn invalid_graphs_are_refused_with_a_remedy() {
        let ring = Graph::builder("ring")
            .stage(stage("a", &[1], &[1]))
            .stage(stage("b", &[1], &[1]))
            .edge(("a", 0), ("b", 0), EDGE)
            .edge(("b", 0), ("a", 0), EDGE);
        let dropping = EdgeSpec {
            slots: 12,
            full: WhenFull::DropOldest,
            ..EDGE
        };
        let saving = Graph::builder("saving")
            .stage(stage("source", &[], &[1]))
            .stage(stage("sink", &[1], &[]).save_every(5))
            .edge(("source", 0), ("sink", 0), dropping);
        let text: String = [
            ("no stage", Graph::builder("none")),
            (
                "output without an edge",
                chain().edge(("source", 0), ("middle", 0), EDGE),
            ),
            ("no such output", chain().edge(("source", 1), ("middle", 0), EDGE)),
            ("no such stage", chain().edge(("sauce", 0), ("middle", 0), EDGE)),
            ("a name twice", chain().stage(stage("sink", &[], &[1]))),
            ("a cycle", ring),
            ("rates that differ by path", diamond(3)),
            ("no slot", pair(0, 1)),
            ("fewer slots than a step needs", pair(3, 1)),
            ("fewer slots than are kept", pair(11, 5)),
            ("more slots than are possible", pair(u32::MAX, 1)),
            ("dropped frames, repeated steps", saving),
        ]
        .map(|(name, graph)| format!("{name}\n  => {}\n", graph.build().unwrap_err()))
        .concat();
        insta::assert_snapshot!("graphs", text);
    }

    #[test]
    fn rates_of_two_ways_to_one_stage_must_agree() {
        assert!(diamond(1).build().is_ok());
        assert!(matches!(diamond(3).build(), Err(GraphError::Rates { .. })));
    }

    #[test]
    fn a_ring_holds_what_its_steps_need() {
        let least = |slots, save_every| match pair(slots, save_every).build() {
            Ok(_) => None,
            Err(GraphError::Slots { needed, .. }) => Some(needed),
            Err(other) => panic!("{other}"),
        };
        assert_eq!([least(3, 1), least(4, 1)], [Some(4), None]);
        assert_eq!([least(11, 5), least(12, 5)], [Some(12), None]);
        let long = pair(SLOTS_MAX + 1, 1).build();
        assert!(matches!(long, Err(GraphError::Slots { slots, .. }) if slots == SLOTS_MAX + 1));
    }
}
