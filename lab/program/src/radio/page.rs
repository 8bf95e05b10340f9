//! Report of a radio as one HTML page that loads nothing from elsewhere and contains its sound. Its size is bounded
//! whatever the length of the run: a minute of sound, and columns that become wider.

use std::fmt::Write;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use maud::{Markup, html};
use punctual_radio::{AUDIO_RATE, IQ_RATE, sound};

use super::report::RadioReport;
use punctual_cli::pipeline::Spans;
use punctual_cli::pipeline::history::History;
use punctual_cli::pipeline::page::{Along, along};
use punctual_report::page::chart::{BOTTOM, HEIGHT, LEFT, RIGHT, TOP, WIDTH, drawing};
use punctual_report::page::{figure, framed, sheet, tiles, what};
use punctual_report::summary::count;

/// Most samples of sound in the page: a minute, 4 MB.
pub const PAGE_SAMPLES: usize = 60 * AUDIO_RATE as usize;
/// Columns of the picture of the sound.
const WAVES: usize = 460;
/// Lowest level of spectra, in decibels of full scale.
const QUIET: f64 = -100.0;

/// Content of the page besides the report.
pub struct PageContent<'s> {
    pub history: &'s History,
    /// Indices of the stages before and after each queue, in the order of the history's levels.
    pub queues: Vec<(usize, usize)>,
    /// Capacity of each queue in frames.
    pub slots: u32,
    /// Mean spectrum of the input in decibels, from half the sample rate below the station to half above.
    pub input: Vec<f64>,
    /// Mean spectrum of the sound in decibels, and the frequencies between its bands in hertz.
    pub sound: Vec<f64>,
    pub edges: Vec<f32>,
    /// Beginning of the sound.
    pub samples: &'s [f32],
}

/// The page; `command` is the command line that produced it.
pub fn page(report: &RadioReport, shown: &PageContent<'_>, command: &str) -> String {
    let verdict = report.faults();
    let (good, said) = match &verdict {
        None if report.frames_late == 0 => (
            " good",
            format!("{} frames, each once and in time", count(report.frames_delivered)),
        ),
        None => (
            "",
            format!(
                "{} frames, each once; {}",
                count(report.frames_delivered),
                report.late()
            ),
        ),
        Some(why) => ("", why.clone()),
    };
    let head = html! { b { (report.source.recording) } " · an FM radio in processes" };
    let input = input_spectrum(&shown.input);
    let sound = sound_spectrum(&shown.sound, &shown.edges);
    let body = html! {
        p class={ "verdict" (good) } { (said) }
        @if let Some(why) = why(report) { p class="why" { (why) } }
        (tiles(&sums(report)))
        (listen(shown.samples))
        h2 { "Spectra" }
        div class="charts" {
            (figure("Input", &what("mean power, dB of full scale, around the station"), &[], &input))
            (figure("Sound", &what("mean power in bands, dB of full scale"), &[], &sound))
        }
        (along(&along_of(report, shown)))
        h2 { "Figures" }
        (sheet(&figures(report)))
        h2 { "Stages at the end" }
        (sheet(&stages(report)))
    };
    framed(&format!("{} · radio", report.source.recording), &head, &body, command)
}

/// Figures along the run; the queues of all bands are one curve.
fn along_of<'s>(report: &RadioReport, shown: &PageContent<'s>) -> Along<'s> {
    let group = |name: &str| if name.starts_with("band-") { "bands" } else { name }.to_string();
    Along {
        history: shown.history,
        stages: { report.stages.iter() }
            .map(|stage| (stage.name.clone(), stage.core.is_some()))
            .collect(),
        cores: report.cores.clone(),
        queues: { shown.queues.iter() }
            .map(|(_, to)| report.stages.get(*to).map_or(String::new(), |stage| group(&stage.name)))
            .collect(),
        slots: shown.slots,
    }
}

/// Remarks for the reader besides the verdict.
fn why(report: &RadioReport) -> Option<String> {
    let same = report
        .sound
        .audio_sha256_one_thread
        .as_ref()
        .map(|one| *one == report.sound.audio_sha256);
    let mut said = Vec::new();
    if same == Some(true) {
        said.push("The sound is that of one thread, to the last bit.".to_string());
    }
    match report.ended_by {
        "user" => said.push("The user ended the run.".into()),
        "reader" => said.push("The run ended because the reader of the sound had gone.".into()),
        "failure" => said.push("The run ended early, because of a failure.".into()),
        _ => {}
    }
    if report.input_stalls > 0 {
        said.push(format!(
            "The input was silent {} times when a frame was due.",
            report.input_stalls
        ));
    }
    (!said.is_empty()).then(|| said.join(" "))
}

fn sums(report: &RadioReport) -> [(String, String); 6] {
    let micros = |spans: &Option<Spans>| spans.map_or("-".into(), |it| format!("{:.1} us", it.p99));
    [
        (count(report.frames_lost), "frames lost".to_string()),
        (
            count(report.frames_late),
            format!("late, {} of them by gaps of the machine", report.frames_excused),
        ),
        (count(report.migrations), "moves".into()),
        (micros(&report.blackout_us), "blackout of a move, p99".into()),
        (count(report.kills), "kills".into()),
        (micros(&report.restart_us), "from a kill until it goes on, p99".into()),
    ]
}

/// Player for the sound, and its waveform.
fn listen(samples: &[f32]) -> Markup {
    let heard = &samples[..samples.len().min(PAGE_SAMPLES)];
    if heard.is_empty() {
        return Markup::default();
    }
    let seconds = heard.len() as f64 / f64::from(AUDIO_RATE);
    let said = match heard.len() < samples.len() {
        true => format!("the first {seconds:.0} s"),
        false => format!("all {seconds:.1} s"),
    };
    let source = format!("data:audio/wav;base64,{}", STANDARD.encode(sound::wav(heard)));
    html! {
        h2 { "Sound" }
        figure class="sound" {
            figcaption { b { "What the sink got" } span class="key" { (said) } }
            (waves(heard))
            audio controls="" preload="metadata" src=(source) {}
        }
    }
}

/// Path through the smallest and the largest sample of each column.
fn waves(samples: &[f32]) -> Markup {
    let (width, middle) = (WIDTH * 2.0, 40.0);
    let mut path = String::new();
    let every = samples.len().div_ceil(WAVES).max(1);
    for (column, part) in samples.chunks(every).enumerate() {
        let x = width * (column as f64 + 0.5) / samples.len().div_ceil(every) as f64;
        let (low, high) = part
            .iter()
            .fold((0f32, 0f32), |(low, high), it| (low.min(*it), high.max(*it)));
        let y = |value: f32| middle - 38.0 * f64::from(value.clamp(-1.0, 1.0));
        let _ = write!(path, "M{x:.1} {:.1}V{:.1}", y(high) - 0.3, y(low) + 0.3);
    }
    html! {
        svg viewBox={ "0 0 " (width) " 80" } role="img" aria-label="the sound over time" {
            path class="curve a" d=(path) {}
        }
    }
}

/// Labels of an axis in decibels, from [`QUIET`] to 0.
fn decibels() -> Vec<(f64, String)> {
    (0..=5)
        .map(|step| (f64::from(step) / 5.0, format!("{:.0}", QUIET + 20.0 * f64::from(step))))
        .collect()
}

/// A curve through shares of both axes.
fn curve(points: impl Iterator<Item = (f64, f64)>) -> Markup {
    let (foot, end) = (HEIGHT - BOTTOM, WIDTH - RIGHT);
    let mut path = String::new();
    for (along, up) in points {
        let command = if path.is_empty() { 'M' } else { 'L' };
        let (x, y) = (LEFT + (end - LEFT) * along, foot - (foot - TOP) * up.clamp(0.0, 1.0));
        let _ = write!(path, "{command}{x:.1} {y:.1}");
    }
    html! { path class="curve a" d=(path) {} }
}

fn loudness(decibels: f64) -> f64 {
    (decibels - QUIET) / -QUIET
}

fn input_spectrum(powers: &[f64]) -> Markup {
    let half = f64::from(IQ_RATE) / 2000.0;
    let alongs: Vec<(f64, String)> = [-100.0, -50.0, 0.0, 50.0, 100.0]
        .into_iter()
        .map(|khz| (0.5 + khz / (2.0 * half), format!("{khz:.0} kHz")))
        .collect();
    let points = powers.iter().enumerate();
    let points = points.map(|(at, power)| ((at as f64 + 0.5) / powers.len() as f64, loudness(*power)));
    drawing(
        "the spectrum of the input",
        LEFT,
        HEIGHT,
        &decibels(),
        &alongs,
        &curve(points),
    )
}

fn sound_spectrum(powers: &[f64], edges: &[f32]) -> Markup {
    let (from, upto) = (40f64, f64::from(AUDIO_RATE) / 2.0);
    let along = |hertz: f64| ((hertz / from).ln() / (upto / from).ln()).clamp(0.0, 1.0);
    let alongs = [
        (100.0, "100 Hz"),
        (300.0, "300 Hz"),
        (1000.0, "1 kHz"),
        (3000.0, "3 kHz"),
        (10_000.0, "10 kHz"),
    ];
    let alongs: Vec<(f64, String)> = alongs
        .into_iter()
        .map(|(hertz, text)| (along(hertz), text.into()))
        .collect();
    let middle = |pair: &[f32]| f64::from((pair[0] * pair[1]).sqrt().max(1.0));
    let points = edges
        .windows(2)
        .zip(powers)
        .map(|(pair, power)| (along(middle(pair)), loudness(*power)));
    drawing(
        "the spectrum of the sound",
        LEFT,
        HEIGHT,
        &decibels(),
        &alongs,
        &curve(points),
    )
}

fn figures(report: &RadioReport) -> Vec<Vec<String>> {
    let spans = |spans: &Option<Spans>| {
        spans.map_or("none".into(), |Spans { n, p50, p99, max }| {
            format!(
                "p50 {p50:.1} us, p99 {p99:.1} us, at most {max:.1} us ({})",
                count(n as u64)
            )
        })
    };
    let some = |value: Option<String>| value.unwrap_or("not known".into());
    let rows = [
        ("figure", "in this run".to_string()),
        (
            "frames",
            format!(
                "{} offered = {} delivered + {} dropped + {} under way; {} lost, {} twice",
                count(report.frames_offered),
                count(report.frames_delivered),
                count(report.frames_dropped),
                count(report.frames_under_way),
                count(report.frames_lost),
                count(report.frames_duplicated)
            ),
        ),
        (
            "late",
            format!(
                "{}, of which {} are explained by gaps of the machine",
                count(report.frames_late),
                count(report.frames_excused)
            ),
        ),
        (
            "time",
            format!("{:.1} s, {:.0} frames a second", report.seconds, report.frames_per_s),
        ),
        (
            "last queue",
            some(
                report
                    .queue_least
                    .map(|it| format!("{it} frames at least when one was due")),
            ),
        ),
        (
            "hand-overs",
            format!(
                "{} moves, {} kills, {} upgrades",
                report.migrations, report.kills, report.upgrades
            ),
        ),
        ("blackout of a move", spans(&report.blackout_us)),
        ("kill until it goes on", spans(&report.restart_us)),
        (
            "against the true sound",
            some(
                report
                    .sound
                    .correlation
                    .zip(report.sound.snr_db)
                    .map(|(correlation, snr)| format!("correlation {correlation:.5}, signal to noise {snr:.1} dB")),
            ),
        ),
        ("fingerprint", report.sound.audio_sha256.clone()),
        (
            "refused",
            match report.refused.is_empty() {
                true => "nothing".into(),
                false => report.refused.join("; "),
            },
        ),
    ];
    rows.into_iter().map(|(name, what)| vec![name.into(), what]).collect()
}

fn stages(report: &RadioReport) -> Vec<Vec<String>> {
    let head = ["stage", "core", "steps", "us a step", "starts after a death"]
        .map(String::from)
        .to_vec();
    let rows = report.stages.iter().map(|stage| {
        let core = stage.core.map_or("pinned".into(), |core| core.to_string());
        let each = format!("{:.1}", stage.step_us);
        vec![
            stage.name.clone(),
            core,
            count(stage.steps),
            each,
            count(stage.restarts),
        ]
    });
    std::iter::once(head).chain(rows).collect()
}

#[cfg(test)]
mod tests {
    use punctual_units::Nanos;

    use super::super::report::{SourceReport, Stage};
    use super::*;
    use crate::radio::report::SoundReport;
    use punctual_pipelines::linux::Cause;
    use punctual_report::fixture::check_nesting;

    fn report(name: &str) -> RadioReport {
        let names = ["source", "low-pass", "band-1", "band-2", "sink"];
        let stages = names.into_iter().enumerate().map(|(number, name)| Stage {
            name: name.into(),
            core: (1..4).contains(&number).then_some(number as u32 % 2),
            steps: 100,
            step_us: 1.5,
            restarts: 1,
            ..Stage::default()
        });
        let spans = Spans {
            n: 7,
            p50: 1.0,
            p99: 20.0,
            max: 30.0,
        };
        RadioReport {
            source: SourceReport {
                recording: name.into(),
                input: None,
            },
            frames_offered: 100,
            frames_delivered: 100,
            ended_by: "input",
            blackout_us: Some(spans),
            cores: vec![0, 1],
            stages: stages.collect(),
            sound: SoundReport {
                audio_sha256: "ab".into(),
                audio_sha256_one_thread: Some("ab".into()),
                ..SoundReport::default()
            },
            ..RadioReport::default()
        }
    }

    fn drawn(report: &RadioReport, looks: u64, seconds: usize) -> String {
        let mut history = History::new(2);
        for look in 0..looks {
            let (at, core) = (Nanos::from_millis(2 * look), (look % 3 == 0) as usize);
            history.look(at, &[None, Some(0), Some(core), Some(1), None], &[3, 4, 5]);
            history.blackout(at, Cause::Moved, Nanos(look * 1000));
            history.blackout(at, Cause::Died, Nanos(look * 9000));
        }
        let shown = PageContent {
            history: &history,
            queues: vec![(0, 1), (1, 2), (1, 3)],
            slots: 14,
            input: vec![-50.0; 256],
            sound: vec![-50.0; 3],
            edges: vec![40.0, 100.0, 1000.0, 12_500.0],
            samples: &vec![0.5; seconds * AUDIO_RATE as usize],
        };
        page(report, &shown, "punctual-lab radio")
    }

    #[test]
    fn the_page_is_whole_and_loads_nothing() {
        let page = drawn(&report("station.cu8"), 1000, 2);
        check_nesting(&page);
        for outside in ["http", "url(", "@import", "<link", "<script"] {
            assert!(!page.contains(outside), "{outside}");
        }
        assert_eq!(
            page.matches("src=").count(),
            page.matches("src=\"data:audio/wav;base64,").count()
        );
        for part in [
            "100 frames, each once and in time",
            "that of one thread",
            "all 2.0 s",
            "core 1",
            "before bands",
            "p99 20.0 us",
            "dot late",
            "punctual-lab radio</pre>",
        ] {
            assert!(page.contains(part), "no {part}");
        }
        assert_eq!(page.matches("<svg").count(), 6);
    }

    #[test]
    fn frames_that_the_machine_made_late_are_not_said_to_be_in_time() {
        let late = RadioReport {
            frames_delivered: 10_000,
            frames_late: 45,
            frames_excused: 45,
            ..report("station.cu8")
        };
        let page = drawn(&late, 10, 2);
        assert!(!page.contains("in time") && page.contains("45 frames late"));
        assert!(!page.contains("verdict good"));
    }

    #[test]
    fn a_long_run_makes_no_longer_page() {
        let long = drawn(&report("station.cu8"), 300_000, 200);
        assert!(long.contains("the first 60 s"));
        assert!(long.len() < 6_000_000, "{} bytes", long.len());
    }

    #[test]
    fn an_empty_run_and_odd_names_give_a_page() {
        let page = drawn(&report("<script>"), 0, 0);
        check_nesting(&page);
        assert!(!page.contains("<script") && !page.contains("<audio") && !page.contains("NaN"));
    }
}
