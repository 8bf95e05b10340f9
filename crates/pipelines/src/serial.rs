//! Runs the whole graph in one thread: the reference for all other executions.

use std::sync::Arc;

use punctual_units::Time;

use crate::graph::Graph;
use crate::layout::Layout;
use crate::region::Region;
use crate::runner::{Runner, TurnResult};
use crate::stage::{AnyStage, Failure};

/// Runs `stages`, in the order of the graph's stages, until all of them have ended. Every step runs at time 0, so no
/// frame is late.
///
/// # Errors
/// [`Failure`] of the first stage that cannot continue, or of the graph if no stage can.
///
/// # Panics
/// If the number of stages differs from the graph's.
pub fn run_serially(graph: &Graph, stages: &mut [Box<dyn AnyStage>]) -> Result<(), Failure> {
    assert_eq!(stages.len(), graph.stages().len(), "a stage for each of the graph");
    let layout = Arc::new(Layout::new(graph));
    let region = Region::on_heap(layout.bytes());
    let failed = |why: &dyn std::fmt::Display| Failure(why.to_string());
    layout.prepare(&region).map_err(|why| failed(&why))?;
    let mut runners = Vec::new();
    for (number, stage) in stages.iter_mut().enumerate() {
        runners.push(Runner::take(&layout, &region, number, 1, stage.as_mut()).map_err(|why| failed(&why))?);
    }
    let mut left = graph.topological();
    while !left.is_empty() {
        let (before, mut progress) = (left.len(), false);
        let mut fault = None;
        left.retain(|number| {
            match runners[*number].turn(stages[*number].as_mut(), Time::default(), &mut |_| {}) {
                TurnResult::Stepped => progress = true,
                TurnResult::Failed(why) => fault = Some(failed(&format!("{}: {why}", graph.stages()[*number].name))),
                TurnResult::Ended => return false,
                TurnResult::Wait | TurnResult::ShutOut => {}
            }
            true
        });
        match fault {
            Some(fault) => return Err(fault),
            None if progress || left.len() < before => {}
            None => return Err(Failure("no stage can go on: frames do not fit together".into())),
        }
    }
    Ok(())
}
