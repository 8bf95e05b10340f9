//! Frames that are late and that a stage has not taken: a stage that hangs takes none, and would be on time.
//!
//! Missing are the frames that were dropped on the path to the stage, and those past their due time that wait there. A
//! frame in a step waits until the step is committed. Frames before earlier stages count by the rates of the graph: of
//! a stage that makes one frame of ten, ten frames before it are one behind it. Frames inside of a program in the
//! middle are not seen; those before it are.

use punctual_units::Time;

use crate::graph::Graph;
use crate::layout::Layout;
use crate::region::Region;

/// The late frames that a stage has not taken.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Missing {
    /// Frames past their due time that wait on their path to the stage.
    pub overdue: u64,
    /// Frames with a due time that were dropped on their path, since the start.
    pub dropped: u64,
    /// Tardiness so far of the oldest of those that wait; 0 if `overdue` is 0.
    pub tardiness: f64,
}

/// The path of frames to a stage.
#[derive(Clone, Debug, Default)]
pub(crate) struct FramePath {
    /// Stage and input of each edge, with the number of the last stage's frames that are made of one frame there.
    edges: Vec<(usize, usize, f64)>,
}

impl FramePath {
    /// The edges that lead to `stage`. `joined` are stages without an edge between them whose frames pass through a
    /// program: the one that feeds it, and the one that reads it.
    pub(crate) fn to(stage: usize, graph: &Graph, joined: &[(usize, usize)]) -> FramePath {
        let (mut path, mut open) = (FramePath::default(), vec![stage]);
        // Frames of the last stage that a step of each stage is good for.
        let mut per_step: Vec<Option<f64>> = vec![None; graph.stages().len()];
        per_step[stage] = Some(1.0);
        while let Some(at) = open.pop() {
            let each = per_step[at].unwrap_or(1.0);
            let mut before = |from: usize, each: f64| {
                if per_step[from].is_none() {
                    per_step[from] = Some(each);
                    open.push(from);
                }
            };
            for (port, takes) in graph.stages()[at].takes.iter().enumerate() {
                let weight = if at == stage {
                    1.0
                } else {
                    each / f64::from(*takes).max(1.0)
                };
                path.edges.push((at, port, weight));
                let link = graph.edge_into(at, port).map(|link| graph.links()[link]);
                if let Some((from, output)) = link.map(|link| link.from) {
                    before(from, weight * f64::from(graph.stages()[from].makes[output]));
                }
            }
            let feeds = joined.iter().filter(|(_, reads)| *reads == at);
            feeds.for_each(|(feeds, _)| before(*feeds, each));
        }
        path
    }

    /// The late frames at `now`. Each edge is looked at separately, while frames move.
    pub(crate) fn look(&self, layout: &Layout, region: &Region, now: Time) -> Missing {
        let (mut overdue, mut dropped, mut oldest) = (0.0, 0.0, 0.0_f64);
        let mut counted = None;
        for (stage, port, weight) in &self.edges {
            let (frames, tardiness) = layout.overdue(region, *stage, *port, now);
            overdue += weight * frames as f64;
            oldest = oldest.max(tardiness);
            // Of several inputs, the drops are counted together.
            if counted.replace(*stage) != Some(*stage) {
                dropped += weight * layout.tardiness(region, *stage).dropped() as f64;
            }
        }
        Missing {
            overdue: overdue as u64,
            dropped: dropped as u64,
            // Of less than a frame of the last stage, none is late yet.
            tardiness: if overdue < 1.0 { 0.0 } else { oldest },
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::{AnyStage, EdgeSpec, Failure, Frames, Head, Runner, StageSpec, TurnResult, WhenFull};

    /// A frame is due so long after its capture.
    const PATIENCE: u64 = 5;

    /// Makes frames, numbered and captured at their number; or hands on the last frame of each step.
    struct Numbered(u64);

    impl AnyStage for Numbered {
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
            let head = match frames.inputs() {
                0 => Head {
                    sequence: self.0,
                    captured_at: Time(self.0),
                    due_by: Time(self.0 + PATIENCE),
                },
                _ => frames.head(0, frames.count(0) - 1),
            };
            self.0 += 1;
            if frames.outputs() > 0 {
                frames.make(0, 0, head);
            }
            Ok(())
        }
    }

    #[test]
    fn late_frames_on_the_way_count_by_the_rates_of_the_graph() {
        let edge = |full| EdgeSpec {
            slots: 8,
            frame_bytes: 8,
            full,
        };
        let graph = Graph::builder("missing")
            .stage(StageSpec::new("source").makes(&[1]))
            .stage(StageSpec::new("thin").takes(&[2]).makes(&[1]))
            .stage(StageSpec::new("sink").takes(&[1]))
            .edge(("source", 0), ("thin", 0), edge(WhenFull::DropLate))
            .edge(("thin", 0), ("sink", 0), edge(WhenFull::Wait))
            .build()
            .unwrap();
        let layout = Arc::new(Layout::new(&graph));
        let region = Region::on_heap(layout.bytes());
        layout.prepare(&region).unwrap();
        let mut stages = [Numbered(0), Numbered(0), Numbered(0)];
        let mut runners: Vec<Runner> = (0..3)
            .map(|stage| Runner::take(&layout, &region, stage, 1, &mut stages[stage]).unwrap())
            .collect();
        let mut turn = |stage: usize, now: u64| {
            let turned = runners[stage].turn(&mut stages[stage], Time(now), &mut |_| {});
            assert_eq!(turned, TurnResult::Stepped);
        };
        let path = FramePath::to(2, &graph, &[]);
        let look = |now: u64| {
            let Missing {
                overdue,
                dropped,
                tardiness,
            } = path.look(&layout, &region, Time(now));
            (overdue, dropped, tardiness)
        };
        (0..6).for_each(|now| turn(0, now));
        turn(1, 5);
        assert_eq!(look(5), (0, 0, 0.0));
        // Frame 1 before the sink, and 2, 3 and 4 before the stage that makes one of two.
        assert_eq!(look(10), (2, 0, 1.8));
        turn(2, 10);
        assert_eq!(look(10), (1, 0, 1.6));
        // Half of the sink's next frame is late.
        assert_eq!(look(8), (0, 0, 0.0));
        turn(1, 100);
        assert_eq!(look(100), (0, 2, 0.0));
        // A program between two stages: what is late before the first is missing behind the second.
        assert_eq!(
            FramePath::to(0, &graph, &[(1, 0)])
                .look(&layout, &region, Time(100))
                .dropped,
            2
        );
    }
}
