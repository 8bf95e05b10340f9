//! Counts of the frames of a pipeline, from its memory, at a time that the caller gives: real or simulated.

use std::sync::Arc;

use punctual_units::Time;

use crate::missing::FramePath;
use crate::{Graph, Layout, Missing, Region, StageSpec, TardinessFigures, TardinessSince};

/// Reads how late each frame is that a stage takes.
pub struct FrameReader {
    counts: FrameCounts,
    stage: usize,
    since: TardinessSince,
}

impl FrameReader {
    /// Adds the tardiness of the frames since the last call, of more than [`FRAMES_MAX`](crate::FRAMES_MAX) that many.
    /// Returns the late frames that the stage had not taken before `now`.
    pub fn read(&mut self, now: Time, into: &mut Vec<f64>) -> Missing {
        let missing = self.counts.missing(self.stage, now);
        let FrameCounts { layout, region, .. } = &self.counts;
        self.since.frames(layout.tardiness(region, self.stage), into);
        missing
    }
}

/// A count of a port of a stage.
type PortCount = fn(&Layout, &Region, usize, usize) -> u64;

/// Counts of the frames of each stage, by the stage's name.
#[derive(Clone, Debug)]
pub struct FrameCounts {
    graph: Arc<Graph>,
    layout: Arc<Layout>,
    region: Region,
    /// The path of frames to each stage.
    paths: Vec<FramePath>,
    /// Copies of each stage's tardiness at the end of the start-up, and the frames dropped before it.
    start_up: Vec<(Vec<u64>, u64)>,
}

impl FrameCounts {
    /// Counts of the pipeline in `region`. `joined` are stages without an edge between them: the one that feeds a
    /// program, and the one that reads it.
    pub fn new(graph: &Arc<Graph>, layout: &Arc<Layout>, region: &Region, joined: &[(String, String)]) -> FrameCounts {
        let number = |name: &String| graph.number(name);
        let joined = joined.iter();
        let joined: Vec<_> = joined
            .filter_map(|(feeds, reads)| number(feeds).zip(number(reads)))
            .collect();
        let paths = 0..graph.stages().len();
        FrameCounts {
            paths: paths.map(|stage| FramePath::to(stage, graph, &joined)).collect(),
            graph: Arc::clone(graph),
            layout: Arc::clone(layout),
            region: region.clone(),
            start_up: Vec::new(),
        }
    }

    /// Reader of the frames that a stage takes; `None` if there is no such stage.
    pub fn frames(&self, name: &str) -> Option<FrameReader> {
        Some(FrameReader {
            stage: self.graph.number(name)?,
            counts: self.clone(),
            since: TardinessSince::default(),
        })
    }

    /// Tardiness of the frames that a stage took, and the late ones that it has not taken by `now`; `None` if there is
    /// no such stage.
    pub fn tardiness(&self, name: &str, now: Time) -> Option<TardinessFigures> {
        let stage = self.graph.number(name)?;
        let (words, dropped) = self
            .start_up
            .get(stage)
            .map_or((&[][..], 0), |(words, dropped)| (words, *dropped));
        let figures = self.layout.tardiness(&self.region, stage).figures(words);
        let missing = self.missing(stage, now);
        let missing = missing.overdue + missing.dropped.saturating_sub(dropped);
        Some(TardinessFigures {
            timed: figures.timed + missing,
            late: figures.late + missing,
            missing,
            ..figures
        })
    }

    /// Ends the start-up: tardiness counts from here.
    pub fn settle(&mut self, now: Time) {
        let begun = |stage| {
            let words = self.layout.tardiness(&self.region, stage).words();
            (words, self.missing(stage, now).dropped)
        };
        self.start_up = (0..self.paths.len()).map(begun).collect();
    }

    fn missing(&self, stage: usize, now: Time) -> Missing {
        self.paths[stage].look(&self.layout, &self.region, now)
    }

    /// Frames that a stage has made, at all outputs; 0 if there is no such stage.
    pub fn made(&self, name: &str) -> u64 {
        self.sum(name, |stage| &stage.makes, Layout::made)
    }

    /// Frames that were dropped before a stage, at all inputs; 0 if there is no such stage.
    pub fn dropped(&self, name: &str) -> u64 {
        self.sum(name, |stage| &stage.takes, Layout::dropped)
    }

    /// Frames that wait before a stage, at all inputs; 0 if there is no such stage.
    pub fn waiting(&self, name: &str) -> u64 {
        let of = |layout: &Layout, region: &Region, stage, port| layout.waiting(region, stage, port).0;
        self.sum(name, |stage| &stage.takes, of)
    }

    /// Sum of a number of each of the `ports` of the stage of that name.
    fn sum(&self, name: &str, ports: fn(&StageSpec) -> &Vec<u32>, of: PortCount) -> u64 {
        let numbers = self.graph.number(name).map(|stage| {
            let ports = 0..ports(&self.graph.stages()[stage]).len();
            ports.map(|port| of(&self.layout, &self.region, stage, port)).sum()
        });
        numbers.unwrap_or(0)
    }
}
