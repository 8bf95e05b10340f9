//! A step of a stage allocates nothing: however many frames there are, a graph allocates as often.

use std::path::Path;

use punctual_pipelines::{AnyStage, Graph, Head, erase, run_serially};
use punctual_radio::stages::{Sink, Source};
use punctual_radio::{Options, Recording, SINK, SOURCE, graph, stage, streamit};
use punctual_testing::{CountingAllocator, allocations_of};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

fn allocations_of_running(graph: &Graph, make: impl Fn(&str) -> Box<dyn AnyStage>) -> usize {
    let mut stages: Vec<Box<dyn AnyStage>> = graph.stages().iter().map(|spec| make(&spec.name)).collect();
    allocations_of(|| run_serially(graph, &mut stages).unwrap())
}

fn sink() -> Box<dyn AnyStage> {
    erase(Sink::new(|_, _: &[f32]| Ok(())))
}

#[test]
fn more_frames_of_radio_allocate_nothing_more() {
    let options = Options::default();
    let graph = graph(&options).unwrap();
    let of = |bytes: &'static [u8]| {
        allocations_of_running(&graph, |name| match name {
            SOURCE => {
                let recording = Recording::from_reader(Path::new("test.cu8"), Box::new(bytes));
                erase(Source::new(recording, &options, |_| Head::default()))
            }
            SINK => sink(),
            name => stage(name, &options).unwrap(),
        })
    };
    static RECORDING: [u8; 150_000] = [90; 150_000];
    assert_eq!(of(&RECORDING), of(&RECORDING[..50_000]));
}

#[test]
fn more_frames_of_the_second_graph_allocate_nothing_more() {
    let graph = streamit::graph(25, 4).unwrap();
    let of = |frames: u64| {
        allocations_of_running(&graph, |name| match name {
            SINK => sink(),
            name => streamit::stage(name, 25, frames).unwrap(),
        })
    };
    assert_eq!(of(300), of(100));
}
