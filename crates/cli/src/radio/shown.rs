//! What the live view shows, as a value, and how it follows from two looks at a running pipeline.

use std::time::Instant;

use punctual_radio::{IQ_RATE, Spectrum};
use punctual_runtime::linux::pipeline::{Cause, QueueNow, StageNow, Supervisor};
use punctual_units::{CoreId, Nanos};

use super::meddler::Meddler;
use super::plan::Plan;
use super::report::{Spans, dropped};
use super::sink::{Counts, Wires};

/// Bands of the spectrum.
pub const BANDS: usize = 32;

/// A stage between two looks.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StageShown {
    pub name: String,
    /// `None`: it is pinned to the process of the command.
    pub core: Option<CoreId>,
    pub pid: i32,
    pub steps_per_s: f64,
    /// The share of a core that its steps take.
    pub load: f64,
    pub restarts: u64,
    /// Frames that wait at its fullest input, and how many that may hold; none of the first stage.
    pub queue: Option<(u64, u32)>,
}

/// Everything that the view shows.
#[derive(Clone, Debug, Default)]
pub struct Shown {
    pub recording: String,
    pub mechanism: &'static str,
    pub elapsed_s: f64,
    pub counts: Counts,
    pub dropped: u64,
    /// Played since the last look.
    pub frames_per_s: f64,
    /// How many times as fast as real time it is to play; `None`: as fast as possible.
    pub rate: Option<f64>,
    pub cores: Vec<CoreId>,
    pub stages: Vec<StageShown>,
    pub migrations: u64,
    pub kills: u64,
    pub upgrades: u64,
    /// Blackouts of the last moves, and times from a kill until another process had the stage.
    pub moved: Option<Spans>,
    pub died: Option<Spans>,
    /// In decibels of full scale.
    pub spectrum: Vec<f32>,
    pub answer: Option<String>,
}

/// Looks again and again.
pub struct Observer {
    plan: Plan,
    spectrum: Spectrum,
    begin: Instant,
    last: Instant,
    before: Vec<StageNow>,
    frames: u64,
}

impl Observer {
    pub fn new(plan: &Plan) -> Observer {
        let now = Instant::now();
        Observer {
            plan: plan.clone(),
            spectrum: Spectrum::new(BANDS),
            begin: now,
            last: now,
            before: Vec::new(),
            frames: 0,
        }
    }

    /// When the last look was.
    pub fn last(&self) -> Instant {
        self.last
    }

    pub fn look(&mut self, supervisor: &Supervisor, meddler: &Meddler, wires: &Wires) -> Shown {
        let (now, counts, queues) = (Instant::now(), wires.counts(), supervisor.queues());
        let seconds = now.duration_since(self.last).as_secs_f64().max(1e-9);
        let stages = supervisor.stages();
        let mut spectrum = Vec::new();
        self.spectrum.measure(&wires.sound.latest(), &mut spectrum);
        let spans = |cause: Cause| {
            let its = meddler.recent.iter().filter(|it| it.cause == cause);
            Spans::of(&its.map(|it| it.blackout.as_micros_f64()).collect::<Vec<_>>())
        };
        let shown = Shown {
            recording: self.plan.name().display().to_string(),
            mechanism: self.plan.mechanism.name(),
            elapsed_s: now.duration_since(self.begin).as_secs_f64(),
            counts,
            dropped: dropped(&queues),
            frames_per_s: counts.frames.saturating_sub(self.frames) as f64 / seconds,
            rate: wires
                .pace
                .period()
                .map(|period| times_real(self.plan.radio.frame, period)),
            cores: supervisor.cores(),
            stages: between(&self.before, &stages, &queues, seconds),
            migrations: meddler.migrations,
            kills: meddler.kills,
            upgrades: meddler.upgrades,
            moved: spans(Cause::Moved),
            died: spans(Cause::Died),
            spectrum,
            answer: meddler.answer.clone(),
        };
        (self.last, self.before, self.frames) = (now, stages, counts.frames);
        shown
    }
}

/// How many times as fast as real time frames of so many samples come.
fn times_real(samples: usize, period: Nanos) -> f64 {
    samples as f64 / f64::from(IQ_RATE) / period.as_secs_f64()
}

/// Stages between two looks that are `seconds` apart.
fn between(before: &[StageNow], now: &[StageNow], queues: &[QueueNow], seconds: f64) -> Vec<StageShown> {
    let stages = now.iter().enumerate().map(|(number, stage)| {
        let (steps, busy) = before
            .get(number)
            .map_or((stage.steps, stage.busy), |it| (it.steps, it.busy));
        let inputs = queues.iter().filter(|queue| queue.to == number);
        StageShown {
            name: stage.name.clone(),
            core: stage.core,
            pid: if stage.core.is_some() {
                stage.pid
            } else {
                std::process::id() as i32
            },
            steps_per_s: stage.steps.saturating_sub(steps) as f64 / seconds,
            load: stage.busy.0.saturating_sub(busy.0) as f64 * 1e-9 / seconds,
            restarts: stage.restarts,
            queue: inputs.map(|queue| (queue.waiting, queue.slots)).max(),
        }
    });
    stages.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_those_between_two_looks() {
        let stage = |steps, busy| StageNow {
            name: "sum".into(),
            core: Some(CoreId(1)),
            pid: 7,
            steps,
            busy: Nanos(busy),
            ..StageNow::default()
        };
        let queue = |waiting| QueueNow {
            from: 1,
            to: 0,
            waiting,
            slots: 14,
            dropped: 0,
        };
        let shown = between(&[stage(10, 1000)], &[stage(20, 50_001_000)], &[queue(3), queue(5)], 0.1);
        assert!((shown[0].steps_per_s - 100.0).abs() < 1e-9 && (shown[0].load - 0.5).abs() < 1e-9);
        assert_eq!(shown[0].queue, Some((5, 14)));
        let first = between(&[], &[stage(20, 50)], &[], 0.1);
        assert_eq!(
            (first[0].steps_per_s, first[0].queue),
            (0.0, None),
            "nothing is known of the time before"
        );
        assert!((times_real(250, Nanos::from_millis(1)) - 1.0).abs() < 1e-9);
    }
}
