//! What a run of the radio tells.

use std::fmt;

use punctual_radio::sound::Fingerprint;
use punctual_radio::{IQ_BYTES, Quality, quality, receive};
use punctual_runtime::linux::pipeline::{Cause, Handover};
use punctual_units::percentile;
use serde::Serialize;

use super::plan::Plan;
use super::session::Heard;
use crate::failure::Failure;

/// Percentiles of a span.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Spans {
    pub n: usize,
    pub p50: f64,
    pub p99: f64,
    pub max: f64,
}

impl Spans {
    fn of(values: &[f64]) -> Option<Spans> {
        let at = |share| percentile(values.iter().copied(), share).unwrap_or(0.0);
        (!values.is_empty()).then(|| Spans {
            n: values.len(),
            p50: at(0.5),
            p99: at(0.99),
            max: at(1.0),
        })
    }
}

/// A stage at the end.
#[derive(Clone, Debug, Serialize)]
pub struct Stage {
    pub name: String,
    /// `None`: it is pinned to the process of the command.
    pub core: Option<u32>,
    pub steps: u64,
    /// Mean time of a step.
    pub step_us: f64,
    pub restarts: u64,
}

/// What a run tells, as `--json` writes it.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    pub recording: String,
    pub frames_offered: u64,
    pub frames_delivered: u64,
    pub frames_lost: u64,
    pub frames_duplicated: u64,
    pub frames_late: u64,
    pub frames_excused: u64,
    pub seconds: f64,
    pub frames_per_s: f64,
    pub migrations: u64,
    pub kills: u64,
    pub upgrades: u64,
    /// From the instant at which the old process stopped until the new one could go on.
    pub blackout_us: Option<Spans>,
    /// From a kill until another process had the stage.
    pub restart_us: Option<Spans>,
    pub queue_least: Option<u64>,
    pub cores: Vec<u32>,
    pub stages: Vec<Stage>,
    pub audio_sha256: String,
    /// Of the same graph in one thread; none where the recording was a pipe.
    pub audio_sha256_one_thread: Option<String>,
    pub correlation: Option<f64>,
    pub snr_db: Option<f64>,
    pub refused: Vec<String>,
}

impl Report {
    /// # Errors
    /// [`Failure`] where the recording or the true sound cannot be read.
    pub fn new(plan: &Plan, heard: &Heard) -> Result<Report, Failure> {
        let delivered = &heard.delivered;
        let quality = match plan.true_sound()? {
            Some(sound) => judged(&delivered.sound, &sound)?,
            None => None,
        };
        let spans = |cause: Cause| {
            let its = heard.handovers.iter().filter(|it| it.cause == cause);
            let spans: Vec<f64> = its.map(|it: &Handover| it.blackout.as_micros_f64()).collect();
            Spans::of(&spans)
        };
        let stages = heard.stages.iter().map(|stage| Stage {
            name: stage.name.clone(),
            core: stage.core.map(|core| core.0),
            steps: stage.steps,
            step_us: stage.busy.as_micros_f64() / (stage.steps.max(1)) as f64,
            restarts: stage.restarts,
        });
        Ok(Report {
            recording: plan.name().display().to_string(),
            frames_offered: heard.offered,
            frames_delivered: delivered.frames,
            frames_lost: heard.offered.saturating_sub(delivered.frames - delivered.duplicated),
            frames_duplicated: delivered.duplicated,
            frames_late: delivered.late,
            frames_excused: delivered.excused,
            seconds: heard.seconds,
            frames_per_s: delivered.frames as f64 / heard.seconds,
            migrations: heard.migrations,
            kills: heard.kills,
            upgrades: heard.upgrades,
            blackout_us: spans(Cause::Moved),
            restart_us: spans(Cause::Died),
            queue_least: delivered.queue_least,
            cores: heard.cores.iter().map(|core| core.0).collect(),
            stages: stages.collect(),
            audio_sha256: delivered.fingerprint.digits(),
            audio_sha256_one_thread: one_thread(plan)?,
            correlation: quality.map(|it| it.correlation),
            snr_db: quality.map(|it| it.snr_db),
            refused: heard.refused.clone(),
        })
    }

    /// Whether all came, once, in time, and sounds as in one thread.
    ///
    /// # Errors
    /// [`Failure::Refuted`] where `checked` and not so.
    pub fn verdict(&self, checked: bool) -> Result<(), Failure> {
        let late = self.frames_late > self.frames_excused;
        let differs = self
            .audio_sha256_one_thread
            .as_ref()
            .is_some_and(|it| *it != self.audio_sha256);
        let what = match () {
            () if self.frames_lost > 0 => format!("{} frames lost", self.frames_lost),
            () if self.frames_duplicated > 0 => format!("{} frames twice", self.frames_duplicated),
            () if differs => "the sound differs from that of one thread".into(),
            () if late => format!("{} frames late", self.frames_late - self.frames_excused),
            () => return Ok(()),
        };
        if checked { Err(Failure::Refuted(what)) } else { Ok(()) }
    }
}

fn judged(sound: &[f32], reference: &[f32]) -> Result<Option<Quality>, Failure> {
    // A part of the recording is compared with the same part of the sound.
    let reference = &reference[..reference.len().min(sound.len())];
    quality(sound, reference).map(Some).or(Ok(None))
}

fn fingerprint(sound: &[f32]) -> String {
    let mut fingerprint = Fingerprint::default();
    fingerprint.add(sound);
    fingerprint.digits()
}

/// What the sound is where the same stages run in one thread.
fn one_thread(plan: &Plan) -> Result<Option<String>, Failure> {
    if plan.is_pipe() {
        return Ok(None);
    }
    let failed = |why: String| Failure::input([why]);
    let mut bytes = Vec::new();
    plan.open()?
        .copy_to(&mut bytes)
        .map_err(|why| failed(why.to_string()))?;
    let samples: Vec<[u8; IQ_BYTES]> = bytes.as_chunks().0.to_vec();
    let sound = receive(&samples, &plan.radio).map_err(|why| failed(why.to_string()))?;
    Ok(Some(fingerprint(&sound)))
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Report {
            frames_delivered,
            frames_lost,
            frames_duplicated,
            frames_late,
            frames_excused,
            ..
        } = self;
        writeln!(
            f,
            "{}: {frames_delivered} frames in {:.1} s, {:.0} a second",
            self.recording, self.seconds, self.frames_per_s
        )?;
        writeln!(
            f,
            "lost {frames_lost}, twice {frames_duplicated}, late {frames_late} ({frames_excused} of them by gaps of the machine)"
        )?;
        if let Some(least) = self.queue_least {
            writeln!(f, "the last queue held {least} frames at least when one was due")?;
        }
        writeln!(
            f,
            "{} moves, {} kills, {} upgrades",
            self.migrations, self.kills, self.upgrades
        )?;
        for (what, spans) in [
            ("blackout of a move", &self.blackout_us),
            ("kill until it goes on", &self.restart_us),
        ] {
            if let Some(Spans { n, p50, p99, max }) = spans {
                writeln!(f, "{what}: p50 {p50:.1} us, p99 {p99:.1} us, max {max:.1} us ({n})")?;
            }
        }
        match &self.audio_sha256_one_thread {
            Some(one) if *one == self.audio_sha256 => writeln!(f, "the sound is that of one thread, to the last bit")?,
            Some(_) => writeln!(f, "the sound DIFFERS from that of one thread")?,
            None => {}
        }
        if let (Some(correlation), Some(snr)) = (self.correlation, self.snr_db) {
            writeln!(f, "against the true sound: correlation {correlation:.5}, {snr:.1} dB")?;
        }
        writeln!(
            f,
            "\n{:<12} {:>5} {:>9} {:>9} {:>9}",
            "stage", "core", "steps", "us/step", "restarts"
        )?;
        for stage in &self.stages {
            let core = stage.core.map_or("-".into(), |core| core.to_string());
            let Stage {
                name,
                steps,
                step_us,
                restarts,
                ..
            } = stage;
            writeln!(f, "{name:<12} {core:>5} {steps:>9} {step_us:>9.1} {restarts:>9}")?;
        }
        self.refused
            .iter()
            .try_for_each(|refusal| writeln!(f, "refused: {refusal}"))
    }
}
