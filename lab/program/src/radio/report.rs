//! Report of a run of the radio.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use punctual_pipelines::linux::{Cause, Handover, QueueNow};
use punctual_radio::format::Layout;
use punctual_radio::sound::Fingerprint;
use punctual_radio::{Quality, Receiver, quality};
use serde::Serialize;

use super::pipes::Tap;
use super::plan::RadioPlan;
use super::session::RadioResult;
use punctual_cli::pipeline::Spans;
use punctual_files::failure::Failure;
use punctual_runtime::collector::EXCUSED_MAX;

/// Figures of a stage at the end of the run.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Stage {
    pub name: String,
    /// Core of its process; `None` if it is pinned to the process of the command.
    pub core: Option<u32>,
    pub steps: u64,
    /// Mean time of a step, in microseconds.
    pub step_us: f64,
    /// Processor time of its processes per step, wake-ups included, in microseconds; `None` for a pinned stage.
    pub cpu_us: Option<f64>,
    /// Resident memory of its process in bytes, shared pages included; 0 for a pinned stage.
    pub memory_bytes: u64,
    pub restarts: u64,
}

/// Name and format of the recording.
#[derive(Clone, Debug, Default, Serialize)]
pub struct SourceReport {
    pub recording: String,
    /// Format of the recording; `None` for the shipped one, and for a pipe.
    pub input: Option<Input>,
}

/// Format of a recording.
#[derive(Clone, Debug, Serialize)]
pub struct Input {
    pub format: String,
    /// IQ samples per second.
    pub iq_rate: f64,
}

/// The sound that was made, compared with that of one thread and with the true one.
#[derive(Clone, Debug, Default, Serialize)]
pub struct SoundReport {
    pub audio_sha256: String,
    /// SHA-256 of the sound of the same graph in one thread; `None` if the recording was a pipe.
    pub audio_sha256_one_thread: Option<String>,
    pub correlation: Option<f64>,
    pub snr_db: Option<f64>,
}

/// Report of a run, as `--json` writes it.
#[derive(Clone, Debug, Default, Serialize)]
pub struct RadioReport {
    #[serde(flatten)]
    pub source: SourceReport,
    pub frames_offered: u64,
    pub frames_delivered: u64,
    pub frames_lost: u64,
    /// Dropped because the first queue was full or the frames were late: only from a live input, and only on request.
    pub frames_dropped: u64,
    /// Frames in queues at the end.
    pub frames_under_way: u64,
    pub frames_duplicated: u64,
    pub frames_late: u64,
    pub frames_excused: u64,
    /// Number of times that a live input was silent when a frame was due.
    pub input_stalls: u64,
    /// Cause of the end: `input` (its end), `user`, `reader` (the reader of the sound has gone), or `failure`.
    pub ended_by: &'static str,
    pub seconds: f64,
    pub frames_per_s: f64,
    pub migrations: u64,
    /// Moves requested by the policy.
    pub policy_moves: u64,
    /// Processor clocks at the end in MHz, by the name of their knob, if a table set them.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub clocks_mhz: BTreeMap<String, f64>,
    pub kills: u64,
    pub upgrades: u64,
    /// Time from the stop of the old process until the new one could continue.
    pub blackout_us: Option<Spans>,
    /// Time from a kill until another process had the stage.
    pub restart_us: Option<Spans>,
    pub queue_least: Option<u64>,
    pub cores: Vec<u32>,
    pub stages: Vec<Stage>,
    #[serde(flatten)]
    pub sound: SoundReport,
    pub refused: Vec<String>,
}

impl RadioReport {
    /// Computes the report.
    ///
    /// # Errors
    /// [`Failure`] if the recording or the true sound cannot be read.
    pub fn new(plan: &RadioPlan, layout: Option<Layout>, heard: &RadioResult) -> Result<RadioReport, Failure> {
        let (delivered, counts) = (&heard.delivered, &heard.delivered.counts);
        let (dropped, under_way) = (dropped(&heard.queues), under_way(&heard.queues));
        let accounted = counts.frames - counts.duplicated + dropped + under_way;
        let quality = match plan.true_sound()? {
            Some(sound) => judged(&delivered.sound, &sound)?,
            None => None,
        };
        let spans = |cause: Cause| {
            let its = heard.handovers.iter().filter(|it| it.cause == cause);
            let spans: Vec<f64> = its.map(|it: &Handover| it.blackout.as_micros_f64()).collect();
            Spans::of(&spans)
        };
        let stages = heard.stages.iter().zip(&heard.measured).map(|(stage, measured)| Stage {
            name: stage.name.clone(),
            core: stage.core.map(|core| core.0),
            steps: stage.steps,
            step_us: stage.busy.as_micros_f64() / (stage.steps.max(1)) as f64,
            cpu_us: (stage.core.is_some()).then(|| measured.ran.as_micros_f64() / (stage.steps.max(1)) as f64),
            memory_bytes: measured.memory_bytes,
            restarts: stage.restarts,
        });
        Ok(RadioReport {
            source: SourceReport {
                recording: plan.name().display().to_string(),
                input: layout.map(|layout| Input {
                    format: layout.format.to_string(),
                    iq_rate: layout.rate,
                }),
            },
            frames_offered: heard.offered,
            frames_delivered: counts.frames,
            frames_lost: heard.offered.saturating_sub(accounted),
            frames_dropped: dropped,
            frames_under_way: under_way,
            frames_duplicated: counts.duplicated,
            frames_late: counts.late,
            frames_excused: counts.excused,
            input_stalls: counts.stalls,
            ended_by: match heard {
                RadioResult { failed: Some(_), .. } => "failure",
                RadioResult { stopped: true, .. } => "user",
                _ if delivered.reader_gone => "reader",
                _ => "input",
            },
            seconds: heard.seconds,
            frames_per_s: counts.frames as f64 / heard.seconds,
            migrations: heard.migrations,
            policy_moves: heard.policy_moves,
            clocks_mhz: { heard.clocks.iter() }
                .map(|(knob, clock)| (knob.to_string(), clock.0 as f64 / 1e6))
                .collect(),
            kills: heard.kills,
            upgrades: heard.upgrades,
            blackout_us: spans(Cause::Moved),
            restart_us: spans(Cause::Died),
            queue_least: counts.queue_least,
            cores: heard.cores.iter().map(|core| core.0).collect(),
            stages: stages.collect(),
            sound: SoundReport {
                audio_sha256: delivered.fingerprint.digits(),
                audio_sha256_one_thread: one_thread(plan, heard.offered)?,
                correlation: quality.map(|it| it.correlation),
                snr_db: quality.map(|it| it.snr_db),
            },
            refused: heard.refused.clone(),
        })
    }

    /// The first fault found: lost or repeated frames, a sound that differs from that of one thread, or late frames.
    /// Late frames that gaps of the machine explain are no fault of the radio as long as they are few.
    pub fn faults(&self) -> Option<String> {
        let one = self.sound.audio_sha256_one_thread.as_ref();
        let differs = one.is_some_and(|one| *one != self.sound.audio_sha256);
        match () {
            () if self.frames_lost > 0 => Some(format!("{} frames lost", self.frames_lost)),
            () if self.frames_duplicated > 0 => Some(format!("{} frames twice", self.frames_duplicated)),
            () if differs => Some("the sound differs from that of one thread".into()),
            () if self.is_inconclusive() => Some(format!(
                "inconclusive: {}, more than {:.0} % of all; repeat on a quieter machine",
                self.late(),
                EXCUSED_MAX * 100.0
            )),
            () if self.frames_late > self.frames_excused => Some(self.late()),
            () => None,
        }
    }

    /// Late frames, with those that gaps of the machine explain.
    pub fn late(&self) -> String {
        let by_gaps = match self.frames_excused {
            0 => String::new(),
            excused => format!(", {excused} of them by gaps of the machine"),
        };
        format!("{} frames late{by_gaps}", self.frames_late)
    }

    /// Whether gaps of the machine explain more than [`EXCUSED_MAX`] of the frames: the run then says nothing about the
    /// radio.
    pub fn is_inconclusive(&self) -> bool {
        self.frames_excused as f64 > EXCUSED_MAX * self.frames_delivered as f64
    }

    /// Checks that every frame came once and in time, and that the sound equals that of one thread.
    ///
    /// # Errors
    /// [`Failure::Refuted`] for a fault, if `checked`.
    pub fn verdict(&self, checked: bool) -> Result<(), Failure> {
        match self.faults().filter(|_| checked) {
            Some(what) => Err(Failure::Refuted(what)),
            None => Ok(()),
        }
    }
}

fn judged(sound: &[f32], reference: &[f32]) -> Result<Option<Quality>, Failure> {
    // For a part of the recording, the same part of the true sound is compared.
    let reference = &reference[..reference.len().min(sound.len())];
    quality(sound, reference).map(Some).or(Ok(None))
}

/// Frames dropped by queues.
pub fn dropped(queues: &[QueueNow]) -> u64 {
    queues.iter().map(|queue| queue.dropped).sum()
}

/// Frames between the first stage and the last one. Each stage makes one frame of one, so any path gives the number.
pub fn under_way(queues: &[QueueNow]) -> u64 {
    let (mut at, mut frames) = (0, 0);
    // The walk ends, because a graph has no cycle.
    while let Some(queue) = queues.iter().find(|queue| queue.from == at) {
        frames += queue.waiting;
        at = queue.to;
    }
    frames
}

/// Fingerprint of the sound of `frames` frames from the same stages in one thread; frame by frame, because a recording
/// may be longer than memory.
fn one_thread(plan: &RadioPlan, frames: u64) -> Result<Option<String>, Failure> {
    if !plan.can_be_read_again() {
        return Ok(None);
    }
    let failed = |why: String| Failure::of(why);
    let mut recording = plan.open(&Arc::default(), &Arc::new(Tap::new(0)))?;
    let mut receiver = Receiver::new(&plan.radio).map_err(|why| failed(why.to_string()))?;
    let (mut fingerprint, mut sound) = (Fingerprint::default(), Vec::new());
    let mut frame = vec![0; plan.frame_bytes() as usize];
    for _ in 0..frames {
        let read = recording.read(&mut frame).map_err(|why| failed(why.to_string()))?;
        sound.clear();
        receiver.frame(frame[..read].as_chunks().0, &mut sound);
        fingerprint.add(&sound);
    }
    Ok(Some(fingerprint.digits()))
}

impl RadioReport {
    /// Writes lines on the input and the end of the run, unless both were as usual.
    fn write_input(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (offered, delivered) = (self.frames_offered, self.frames_delivered);
        let (dropped, under_way) = (self.frames_dropped, self.frames_under_way);
        match self.ended_by {
            "user" => writeln!(f, "ended by the user")?,
            "reader" => writeln!(f, "ended because the reader of the sound has gone")?,
            "failure" => writeln!(f, "ended early, because of a failure")?,
            _ => {}
        }
        if dropped > 0 || under_way > 0 {
            writeln!(
                f,
                "{offered} offered = {delivered} delivered + {dropped} dropped + {under_way} under way"
            )?;
        }
        if self.input_stalls > 0 {
            writeln!(
                f,
                "the input was silent {} times when a frame was due",
                self.input_stalls
            )?;
        }
        Ok(())
    }
}

impl fmt::Display for RadioReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let RadioReport {
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
            self.source.recording, self.seconds, self.frames_per_s
        )?;
        writeln!(
            f,
            "lost {frames_lost}, twice {frames_duplicated}, late {frames_late} ({frames_excused} of them by gaps of \
             the machine)"
        )?;
        if let Some(Input { format, iq_rate }) = &self.source.input {
            writeln!(f, "input: {format}, {iq_rate} IQ samples a second")?;
        }
        self.write_input(f)?;
        if let Some(least) = self.queue_least {
            writeln!(f, "the last queue held {least} frames at least when one was due")?;
        }
        writeln!(
            f,
            "{} moves, {} kills, {} upgrades; the policy made {} moves",
            self.migrations, self.kills, self.upgrades, self.policy_moves
        )?;
        for (knob, mhz) in &self.clocks_mhz {
            writeln!(f, "{knob}: {mhz:.0} MHz at the end")?;
        }
        for (what, spans) in [
            ("blackout of a move", &self.blackout_us),
            ("kill until it goes on", &self.restart_us),
        ] {
            if let Some(Spans { n, p50, p99, max }) = spans {
                writeln!(f, "{what}: p50 {p50:.1} us, p99 {p99:.1} us, max {max:.1} us ({n})")?;
            }
        }
        match &self.sound.audio_sha256_one_thread {
            Some(one) if *one == self.sound.audio_sha256 => {
                writeln!(f, "the sound is that of one thread, to the last bit")?
            }
            Some(_) => writeln!(f, "the sound DIFFERS from that of one thread")?,
            None => {}
        }
        if let (Some(correlation), Some(snr)) = (self.sound.correlation, self.sound.snr_db) {
            writeln!(f, "against the true sound: correlation {correlation:.5}, {snr:.1} dB")?;
        }
        writeln!(
            f,
            "\n{:<12} {:>5} {:>9} {:>9} {:>9} {:>7} {:>9}",
            "stage", "core", "steps", "us/step", "CPU us", "MiB", "restarts"
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
            let cpu = stage.cpu_us.map_or("-".into(), |us| format!("{us:.1}"));
            let mib = stage.memory_bytes as f64 / f64::from(1 << 20);
            writeln!(
                f,
                "{name:<12} {core:>5} {steps:>9} {step_us:>9.1} {cpu:>9} {mib:>7.1} {restarts:>9}"
            )?;
        }
        self.refused
            .iter()
            .try_for_each(|refusal| writeln!(f, "refused: {refusal}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn late(late: u64, excused: u64) -> RadioReport {
        RadioReport {
            frames_delivered: 10_000,
            frames_late: late,
            frames_excused: excused,
            ..RadioReport::default()
        }
    }

    #[test]
    fn excused_frames_are_late_and_many_of_them_conclude_nothing() {
        assert_eq!(late(0, 0).faults(), None);
        assert_eq!(late(45, 45).faults(), None);
        assert!(late(45, 45).late().starts_with("45 frames late"));
        for (report, said) in [(late(46, 45), "46 frames late"), (late(1069, 1069), "inconclusive")] {
            let fault = report.faults().unwrap();
            assert!(fault.contains(said), "{fault}");
            assert!(report.verdict(true).is_err() && report.verdict(false).is_ok());
        }
    }
}
