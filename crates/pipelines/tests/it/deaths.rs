//! A pipeline whose processes die in the middle of steps, and are replaced, delivers what one thread delivers: no frame
//! lost, none twice, no half of a state. On the heap, with a schedule and deaths drawn from a seed.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;

use proptest::prelude::*;
use punctual_pipelines::*;
use punctual_units::Time;
use serde::{Deserialize, Serialize};

const FRAMES: u64 = 60;

/// What every stage here keeps: how many steps it has seen, and a sum that depends on their order.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct StepSum {
    steps: u64,
    sum: u64,
}

impl State for StepSum {
    const VERSION: u32 = 1;
}

/// Makes of the frames that it takes as many as it may, of values that depend on all that it has seen. A source makes
/// numbers.
struct Mixer {
    inputs: usize,
    outputs: usize,
    /// Whether it dies at the end of its next step.
    dies: Rc<Cell<bool>>,
}

impl Stage for Mixer {
    type State = StepSum;

    fn begin(&self) -> StepSum {
        StepSum::default()
    }

    fn step(&mut self, state: &mut StepSum, frames: &mut Frames<'_>) -> Result<(), Failure> {
        let mut head = Head::default();
        for port in 0..self.inputs {
            for number in 0..frames.count(port) {
                head = frames.head(port, number);
                let value = u64::from_le_bytes(frames.input(port, number).try_into().unwrap());
                state.sum = state.sum.rotate_left(7) ^ value.wrapping_mul(0x9e37_79b9_7f4a_7c15);
            }
        }
        state.steps += 1;
        if self.inputs == 0 {
            head.sequence = state.steps - 1;
            state.sum = head.sequence;
            if state.steps == FRAMES {
                frames.end();
            }
        }
        for port in 0..self.outputs {
            while frames.left(port) > 0 {
                let value = state.sum ^ u64::from(frames.left(port));
                frames.output(port)[..8].copy_from_slice(&value.to_le_bytes());
                frames.make(port, 8, head);
            }
        }
        // Its state is changed by then, and its frames are made.
        if self.dies.get() {
            Err(Failure("killed".into()))
        } else {
            Ok(())
        }
    }
}

/// A source, a split by two outputs and a broadcast, ways of several rates, a join.
fn graph(slots: u32, save_every: u32) -> Graph {
    let edge = EdgeSpec {
        slots,
        frame_bytes: 8,
        full: WhenFull::Wait,
    };
    let stage = |name: &str, takes: &[u32], makes: &[u32]| {
        StageSpec::new(name).takes(takes).makes(makes).save_every(save_every)
    };
    Graph::builder("diamond")
        .stage(stage("source", &[], &[2]))
        .stage(stage("split", &[1], &[1, 3]))
        .stage(stage("left", &[2], &[1]))
        .stage(stage("right", &[3], &[1]))
        .stage(stage("join", &[1, 2, 2], &[1]))
        .stage(stage("sink", &[1], &[]))
        .edge(("source", 0), ("split", 0), edge)
        .edge(("split", 0), ("left", 0), edge)
        .edge(("split", 1), ("right", 0), edge)
        .edge(("left", 0), ("join", 0), edge)
        .edge(("right", 0), ("join", 1), edge)
        .edge(("split", 0), ("join", 2), edge)
        .edge(("join", 0), ("sink", 0), edge)
        .build()
        .unwrap()
}

fn body(graph: &Graph, number: usize, dies: &Rc<Cell<bool>>) -> Box<dyn AnyStage> {
    let spec = &graph.stages()[number];
    erase(Mixer {
        inputs: spec.takes.len(),
        outputs: spec.makes.len(),
        dies: Rc::clone(dies),
    })
}

fn saved(body: &dyn AnyStage) -> Vec<u8> {
    let mut room = vec![0; 64];
    let length = body.save(&mut room).unwrap();
    room.truncate(length);
    room
}

/// The states of all stages at the end, in one thread without deaths.
fn reference(graph: &Graph) -> Vec<Vec<u8>> {
    let lives = Rc::default();
    let mut stages: Vec<_> = (0..graph.stages().len())
        .map(|number| body(graph, number, &lives))
        .collect();
    run_serially(graph, &mut stages).unwrap();
    stages.iter().map(|stage| saved(stage.as_ref())).collect()
}

/// The process that has a stage.
struct Process {
    dies: Rc<Cell<bool>>,
    body: Box<dyn AnyStage>,
    runner: Runner,
    ended: bool,
}

struct Pipeline {
    graph: Graph,
    layout: Arc<Layout>,
    region: Region,
    epoch: u16,
}

impl Pipeline {
    /// A process that takes the stage on.
    fn start(&mut self, number: usize) -> Process {
        self.epoch += 1;
        let dies = Rc::default();
        let mut body = body(&self.graph, number, &dies);
        let runner = Runner::take(&self.layout, &self.region, number, self.epoch, body.as_mut()).unwrap();
        let ended = false;
        Process {
            dies,
            body,
            runner,
            ended,
        }
    }
}

impl Process {
    fn turn(&mut self) -> TurnResult {
        self.runner.turn(self.body.as_mut(), Time::default(), &mut |_| {})
    }
}

/// What happens to a process.
#[derive(Clone, Copy, Debug)]
enum Fate {
    Lives,
    /// It dies in the middle of its next step.
    Dies,
    /// It is declared dead, and goes on all the same.
    DeclaredDead,
}

fn schedule() -> impl Strategy<Value = Vec<(usize, Fate)>> {
    let fate = prop_oneof![20 => Just(Fate::Lives), 1 => Just(Fate::Dies), 1 => Just(Fate::DeclaredDead)];
    prop::collection::vec((0usize..6, fate), 400..3000)
}

proptest! {
    #![proptest_config(ProptestConfig { ..ProptestConfig::default() })]
    #[test]
    fn whichever_process_dies_in_whatever_step_the_outcome_is_that_of_one_thread(
        slots in 12u32..30,
        save_every in 1u32..4,
        schedule in schedule(),
    ) {
        let graph = graph(slots, save_every);
        let layout = Arc::new(Layout::new(&graph));
        let region = Region::on_heap(layout.bytes());
        layout.prepare(&region).unwrap();
        let mut pipeline = Pipeline { graph, layout, region, epoch: 0 };
        let mut processes: Vec<Process> = (0..6).map(|number| pipeline.start(number)).collect();
        let afterwards = (0..6).cycle().map(|number| (number, Fate::Lives));
        for (number, fate) in schedule.into_iter().chain(afterwards) {
            processes[number].dies.set(matches!(fate, Fate::Dies));
            let turn = processes[number].turn();
            processes[number].ended = turn == TurnResult::Ended;
            prop_assert!(turn != TurnResult::ShutOut && (processes[number].dies.get() || !matches!(turn, TurnResult::Failed(_))));
            if !matches!(fate, Fate::Lives) {
                let mut stale = std::mem::replace(&mut processes[number], pipeline.start(number));
                stale.dies.set(false);
                let allowed = [TurnResult::ShutOut, TurnResult::Wait, TurnResult::Ended];
                prop_assert!(matches!(fate, Fate::Dies) || allowed.contains(&stale.turn()));
            }
            if processes.iter().all(|process| process.ended) {
                break;
            }
        }
        let states: Vec<Vec<u8>> = processes.iter().map(|process| saved(process.body.as_ref())).collect();
        prop_assert_eq!(states, reference(&pipeline.graph), "after {} deaths", pipeline.epoch - 6);
    }
}
