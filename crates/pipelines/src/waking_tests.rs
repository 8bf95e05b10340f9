//! Stages that sleep, and are woken only for what `Layout::is_worth_waking` calls a reason.

use std::sync::Arc;

use proptest::prelude::*;
use punctual_units::Time;

use crate::{
    AnyStage, EdgeSpec, Failure, Frames, Graph, Head, Layout, Region, Runner, StageSpec, TurnResult, WhenFull,
};

/// Steps of the source.
const STEPS: u64 = 60;

/// Makes as many frames as a step may; the source ends after its steps.
struct Makes(u64);

impl AnyStage for Makes {
    fn version(&self) -> u32 {
        1
    }

    fn begin(&mut self) {}

    fn load(&mut self, _: u32, _: &[u8]) -> Result<(), Failure> {
        Ok(())
    }

    fn save(&self, _: &mut [u8]) -> Result<usize, Failure> {
        Ok(0)
    }

    fn step(&mut self, frames: &mut Frames<'_>) -> Result<(), Failure> {
        self.0 += 1;
        for port in 0..frames.outputs() {
            (0..frames.left(port)).for_each(|_| frames.make(port, 0, Head::default()));
        }
        if frames.inputs() == 0 && self.0 == STEPS {
            frames.end();
        }
        Ok(())
    }
}

/// A source, a fork, two ways of which one is of two stages, and a sink. `rates`: frames that stages of the ways take
/// and make a step.
fn graph(rates: [u32; 3], slots: u32, save_every: u32, full: WhenFull) -> Option<Graph> {
    let edge = |full| EdgeSpec {
        slots,
        frame_bytes: 8,
        full,
    };
    let [first, second, other] = rates;
    let way = |name: &str, takes, makes| StageSpec::new(name).takes(&[takes]).makes(&[makes]);
    let graph = Graph::builder("waking")
        .stage(StageSpec::new("source").makes(&[1]))
        .stage(StageSpec::new("fork").takes(&[1]).makes(&[1, 1]))
        .stage(way("first", first, second).save_every(save_every))
        .stage(way("second", second, rates[0]))
        .stage(way("other", other, other).save_every(save_every))
        .stage(StageSpec::new("sink").takes(&[1, 1]))
        .edge(("source", 0), ("fork", 0), edge(full))
        .edge(("fork", 0), ("first", 0), edge(WhenFull::Wait))
        .edge(("first", 0), ("second", 0), edge(WhenFull::Wait))
        .edge(("second", 0), ("sink", 0), edge(WhenFull::Wait))
        .edge(("fork", 1), ("other", 0), edge(WhenFull::Wait))
        .edge(("other", 0), ("sink", 1), edge(WhenFull::Wait));
    graph.build().ok()
}

/// Stages as threads of one processor: each does up to so many steps at a time, tells its neighbours of some of them at
/// once, and sleeps when it can do none.
struct Sleepers {
    layout: Arc<Layout>,
    region: Region,
    awake: Vec<bool>,
}

impl Sleepers {
    fn tell(&mut self, stage: usize, at_once: bool) {
        for neighbour in self.layout.neighbours(stage) {
            self.awake[neighbour] |= self.layout.is_worth_waking(&self.region, stage, neighbour, at_once);
        }
    }
}

/// The steps that all stages did, and whether all have ended, once no stage is awake.
fn play(graph: &Graph, schedule: &[(usize, u8, bool)]) -> (Vec<u64>, bool) {
    let layout = Arc::new(Layout::new(graph));
    let region = Region::on_heap(layout.bytes());
    layout.prepare(&region).unwrap();
    let stages = graph.stages().len();
    let mut bodies: Vec<Makes> = (0..stages).map(|_| Makes(0)).collect();
    let take = |(stage, body): (usize, &mut Makes)| Runner::take(&layout, &region, stage, 1, body).unwrap();
    let mut runners: Vec<Runner> = bodies.iter_mut().enumerate().map(take).collect();
    let awake = vec![true; stages];
    let mut sleepers = Sleepers { layout, region, awake };
    for (chosen, steps, at_once) in schedule.iter().cycle() {
        let awake: Vec<usize> = (0..stages).filter(|stage| sleepers.awake[*stage]).collect();
        let Some(stage) = awake.get(chosen % awake.len().max(1)).copied() else {
            break;
        };
        for _ in 0..*steps {
            match runners[stage].turn(&mut bodies[stage], Time::ZERO, &mut |_| {}) {
                TurnResult::Stepped => sleepers.tell(stage, *at_once),
                TurnResult::Wait | TurnResult::Ended => {
                    sleepers.tell(stage, true);
                    sleepers.awake[stage] = false;
                    break;
                }
                turn => panic!("{turn:?}"),
            }
        }
    }
    let ended = |stage| sleepers.layout.has_ended(&sleepers.region, stage);
    let steps = runners.iter().map(Runner::steps).collect();
    (steps, (0..stages).all(ended))
}

proptest! {
    #[test]
    fn no_stage_sleeps_while_it_could_go_on(
        rates in [1u32..5, 1u32..5, 1u32..5],
        slots in 1u32..24,
        save_every in 1u32..5,
        drops in any::<bool>(),
        schedule in prop::collection::vec((0usize..6, 1u8..20, any::<bool>()), 1..40),
    ) {
        let full = if drops { WhenFull::DropOldest } else { WhenFull::Wait };
        let Some(graph) = graph(rates, slots, save_every, full) else { return Ok(()) };
        let (steps, ended) = play(&graph, &schedule);
        prop_assert!(ended, "{steps:?}");
    }
}

#[test]
fn a_stage_sleeps_until_half_a_queue_waits_or_a_quarter_is_free() {
    let edge = EdgeSpec {
        slots: 8,
        frame_bytes: 8,
        full: WhenFull::Wait,
    };
    let graph = Graph::builder("half")
        .stage(StageSpec::new("source").makes(&[1]))
        .stage(StageSpec::new("sink").takes(&[1]))
        .edge(("source", 0), ("sink", 0), edge)
        .build()
        .unwrap();
    let layout = Arc::new(Layout::new(&graph));
    let region = Region::on_heap(layout.bytes());
    layout.prepare(&region).unwrap();
    let (mut makes, mut takes) = (Makes(0), Makes(0));
    let mut source = Runner::take(&layout, &region, 0, 1, &mut makes).unwrap();
    let mut sink = Runner::take(&layout, &region, 1, 1, &mut takes).unwrap();
    let wakes = |stage: usize| [false, true].map(|at_once| layout.is_worth_waking(&region, stage, 1 - stage, at_once));
    let seen: Vec<[bool; 2]> = { 0..8 }
        .map(|_| {
            source.turn(&mut makes, Time::ZERO, &mut |_| {});
            wakes(0)
        })
        .collect();
    assert_eq!(seen[..3], [[false, true]; 3]);
    assert_eq!(seen[3..], [[true, true]; 5]);
    let (seen, behind): (Vec<[bool; 2]>, Vec<bool>) = { 0..8 }
        .map(|_| {
            sink.turn(&mut takes, Time::ZERO, &mut |_| {});
            (wakes(1), layout.is_behind(&region, 1))
        })
        .unzip();
    assert_eq!(seen[..1], [[false, true]; 1]);
    assert_eq!(seen[1..], [[true, true]; 7]);
    // Of 8 slots: half of them or more.
    assert_eq!(behind, [true, true, true, true, false, false, false, false]);
}
