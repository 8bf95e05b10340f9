//! The report of a radio as one HTML page that loads nothing from elsewhere: its sound is in it. Its size has a bound
//! whatever the length of the run: a minute of sound, and columns that become wider.

use std::fmt::Write;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use punctual_radio::{AUDIO_RATE, IQ_RATE, sound};
use punctual_units::Nanos;

use super::history::{DECADES, History, Kind, PARTS};
use super::report::{Report, Spans};
use crate::page::chart::{BOTTOM, Chart, Curve, HEIGHT, LEFT, RIGHT, TOP, WIDTH, label, ticks};
use crate::page::{escape, framed, sheet};
use crate::summary::count;

/// Seconds of sound in the page: 4 MB of it.
const SOUND_S: usize = 60;
/// Columns of the picture of the sound.
const WAVES: usize = 460;
/// Classes of the style sheet, by the core's number among the pipeline's, and by curve.
const CLASSES: [&str; 6] = ["a", "b", "c", "d", "e", "f"];
/// The height of a stage's lane, and the room for its name.
const LANE: f64 = 17.0;
const NAMES: f64 = 84.0;
/// Shares of a lane are drawn in so many steps.
const STEPS: f64 = 16.0;
/// The quietest that spectra show, in decibels of full scale.
const QUIET: f64 = -100.0;

/// What the page shows besides the report.
pub struct Shown<'s> {
    pub history: &'s History,
    /// The numbers of the stages that each queue is between, in the order of the history's levels.
    pub queues: Vec<(usize, usize)>,
    /// Frames that a queue holds.
    pub slots: u32,
    /// The mean spectrum of the input in decibels, from half of the rate below the station to half of it above.
    pub input: Vec<f64>,
    /// That of the sound, and the frequencies between its bands in hertz.
    pub sound: Vec<f64>,
    pub edges: Vec<f32>,
    /// The beginning of the sound.
    pub samples: &'s [f32],
}

/// The page; `command` is what was typed to get it.
pub fn page(report: &Report, shown: &Shown<'_>, command: &str) -> String {
    let verdict = report.faults();
    let (good, said) = match &verdict {
        None => (
            " good",
            format!("{} frames, each once and in time", count(report.frames_delivered)),
        ),
        Some(why) => ("", why.clone()),
    };
    let mut body = format!("<p class=\"verdict{good}\">{}</p>\n", escape(&said));
    if let Some(why) = why(report) {
        let _ = writeln!(body, "<p class=\"why\">{}</p>", escape(&why));
    }
    tiles(&mut body, report);
    listen(&mut body, shown.samples);
    body += "<h2>Spectra</h2>\n<div class=\"charts\">\n";
    figure(
        &mut body,
        "Input",
        "mean power, dB of full scale, around the station",
        &[],
        &input_spectrum(&shown.input),
    );
    figure(
        &mut body,
        "Sound",
        "mean power in bands, dB of full scale",
        &[],
        &sound_spectrum(&shown.sound, &shown.edges),
    );
    body += "</div>\n<h2>Along the run</h2>\n<div class=\"charts\">\n";
    let cores = report.cores.iter().zip(CLASSES.iter().cycle());
    let keys: Vec<(String, &str)> = cores.map(|(core, class)| (format!("core {core}"), *class)).collect();
    figure(&mut body, "Stages on cores", "", &keys, &lanes(report, shown.history));
    let queues = queues(report, shown);
    let keys: Vec<(String, &str)> = queues.curves.iter().map(|it| (it.name.clone(), it.class)).collect();
    figure(&mut body, "Frames in queues", "mean", &keys, &queues.svg());
    let keys = [("moved".to_string(), "a"), ("died".to_string(), "late")];
    figure(
        &mut body,
        "Time without a process",
        "each hand-over",
        &keys,
        &blackouts(shown.history),
    );
    body += "</div>\n<p class=\"note\">Pinned stages have no core of their own. A stage that moved within a column is drawn as \
             a part of its lane for each core. The larger a dot, the more hand-overs.</p>\n<h2>Figures</h2>\n";
    sheet(&mut body, &figures(report));
    body += "<h2>Stages at the end</h2>\n";
    sheet(&mut body, &stages(report));
    let head = format!("<b>{}</b> · an FM radio in processes", escape(&report.recording));
    framed(&format!("{} · radio", report.recording), &head, &body, command)
}

/// What a reader should know besides the verdict.
fn why(report: &Report) -> Option<String> {
    let same = report
        .audio_sha256_one_thread
        .as_ref()
        .map(|one| *one == report.audio_sha256);
    let mut said = Vec::new();
    if same == Some(true) {
        said.push("The sound is that of one thread, to the last bit.".to_string());
    }
    match report.ended_by {
        "user" => said.push("The user ended the run.".into()),
        "reader" => said.push("The run ended because the reader of the sound had gone.".into()),
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

fn tiles(body: &mut String, report: &Report) {
    let micros = |spans: &Option<Spans>| spans.map_or("-".into(), |it| format!("{:.1} us", it.p99));
    let tiles = [
        (count(report.frames_lost), "frames lost".to_string()),
        (
            count(report.frames_late),
            format!("late, {} of them by gaps of the machine", report.frames_excused),
        ),
        (count(report.migrations), "moves".into()),
        (micros(&report.blackout_us), "blackout of a move, p99".into()),
        (count(report.kills), "kills".into()),
        (micros(&report.restart_us), "from a kill until it goes on, p99".into()),
    ];
    *body += "<div class=\"tiles\">\n";
    for (figure, what) in tiles {
        let _ = writeln!(body, "<div class=\"tile\"><b>{figure}</b><span>{what}</span></div>");
    }
    *body += "</div>\n";
}

/// The sound itself, and its waves.
fn listen(body: &mut String, samples: &[f32]) {
    let heard = &samples[..samples.len().min(SOUND_S * AUDIO_RATE as usize)];
    if heard.is_empty() {
        return;
    }
    let seconds = heard.len() as f64 / f64::from(AUDIO_RATE);
    let said = match heard.len() < samples.len() {
        true => format!("the first {seconds:.0} s"),
        false => format!("all {seconds:.1} s"),
    };
    let _ = writeln!(
        body,
        "<h2>Sound</h2>\n<figure class=\"sound\"><figcaption><b>What the sink got</b><span class=\"key\">{said}</span>\
         </figcaption>\n{}\n<audio controls=\"\" preload=\"metadata\" src=\"data:audio/wav;base64,{}\"></audio></figure>",
        waves(heard),
        STANDARD.encode(sound::wav(heard))
    );
}

/// The least and the greatest sample of each column.
fn waves(samples: &[f32]) -> String {
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
    format!(
        "<svg viewBox=\"0 0 {width} 80\" role=\"img\" aria-label=\"the sound over time\">\n<path class=\"curve a\" \
         d=\"{path}\"/></svg>"
    )
}

fn figure(body: &mut String, title: &str, what: &str, keys: &[(String, &str)], svg: &str) {
    let _ = write!(body, "<figure><figcaption><b>{title}</b>");
    if !what.is_empty() {
        let _ = write!(body, "<span class=\"what\">{what}</span>");
    }
    for (name, class) in keys {
        let _ = write!(body, "<span class=\"key {class}\">{}</span>", escape(name));
    }
    let _ = writeln!(body, "</figcaption>\n{svg}\n</figure>");
}

/// A drawing with axes, of which both have labels at shares of their length.
fn drawing(what: &str, left: f64, height: f64, ups: &[(f64, String)], alongs: &[(f64, String)], inner: &str) -> String {
    let mut svg = format!(
        "<svg viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" aria-label=\"{}\">\n",
        escape(what)
    );
    let (foot, end) = (height - BOTTOM, WIDTH - RIGHT);
    for (share, text) in ups {
        let y = foot - (foot - TOP) * share;
        let _ = writeln!(
            svg,
            "<line class=\"grid\" x1=\"{left}\" x2=\"{end}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/><text class=\"tick\" \
             x=\"{:.1}\" y=\"{:.1}\">{text}</text>",
            left - 5.0,
            y + 4.0
        );
    }
    for (share, text) in alongs {
        let x = left + (end - left) * share;
        let _ = writeln!(
            svg,
            "<text class=\"second\" x=\"{x:.1}\" y=\"{:.1}\">{text}</text>",
            foot + 15.0
        );
    }
    svg + inner + "</svg>"
}

/// Seconds along an axis that is `length` long.
fn seconds(length: f64) -> Vec<(f64, String)> {
    let ticks = ticks(0.0, length).into_iter();
    ticks
        .map(|at| (at / length, format!("{} s", label(at, length))))
        .collect()
}

/// Decibels up an axis from [`QUIET`] to 0.
fn decibels() -> Vec<(f64, String)> {
    (0..=5)
        .map(|step| (f64::from(step) / 5.0, format!("{:.0}", QUIET + 20.0 * f64::from(step))))
        .collect()
}

/// A curve through shares of both axes.
fn curve(points: impl Iterator<Item = (f64, f64)>) -> String {
    let (foot, end) = (HEIGHT - BOTTOM, WIDTH - RIGHT);
    let mut path = String::new();
    for (along, up) in points {
        let command = if path.is_empty() { 'M' } else { 'L' };
        let (x, y) = (LEFT + (end - LEFT) * along, foot - (foot - TOP) * up.clamp(0.0, 1.0));
        let _ = write!(path, "{command}{x:.1} {y:.1}");
    }
    format!("<path class=\"curve a\" d=\"{path}\"/>\n")
}

fn loudness(decibels: f64) -> f64 {
    (decibels - QUIET) / -QUIET
}

fn input_spectrum(powers: &[f64]) -> String {
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

fn sound_spectrum(powers: &[f64], edges: &[f32]) -> String {
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

/// A lane for each stage, coloured by the core that it was on.
fn lanes(report: &Report, history: &History) -> String {
    let moving: Vec<usize> = (0..report.stages.len())
        .filter(|it| report.stages[*it].core.is_some())
        .collect();
    let (height, length) = (TOP + BOTTOM + LANE * moving.len() as f64, length(history));
    let mut inner = String::new();
    for (lane, stage) in moving.iter().enumerate() {
        let top = TOP + LANE * lane as f64;
        let _ = writeln!(
            inner,
            "<text class=\"tick\" x=\"{:.1}\" y=\"{:.1}\">{}</text>",
            NAMES - 6.0,
            top + LANE - 5.0,
            escape(&report.stages[*stage].name)
        );
        for core in 0..report.cores.len() {
            let class = CLASSES[core % CLASSES.len()];
            let _ = writeln!(
                inner,
                "<path class=\"bar {class}\" d=\"{}\"/>",
                lane_path(history, *stage, core, top)
            );
        }
    }
    drawing(
        "the core of each stage over time",
        NAMES,
        height,
        &[],
        &seconds(length),
        &inner,
    )
}

/// The part of a stage's lane that belongs to one core: in each column as high as the share of the time there.
fn lane_path(history: &History, stage: usize, core: usize, top: f64) -> String {
    let across = (WIDTH - RIGHT - NAMES) / history.columns.len().max(1) as f64;
    let steps = |share: f64| (share * STEPS).round();
    let part = |number: usize| {
        let column = &history.columns[number];
        let before: f64 = (0..core).map(|other| history.share(column, stage, other)).sum();
        let from = steps(before);
        (from, steps(before + history.share(column, stage, core)) - from)
    };
    let (mut path, mut at, tall) = (String::new(), 0, LANE - 3.0);
    while at < history.columns.len() {
        let (from, high) = part(at);
        let end = (at..history.columns.len())
            .take_while(|it| part(*it) == (from, high))
            .count()
            + at;
        if high > 0.0 {
            let (x, wide) = (NAMES + across * at as f64, across * (end - at) as f64);
            let (y, high) = (top + tall * from / STEPS, tall * high / STEPS);
            let _ = write!(path, "M{x:.1} {y:.1}h{wide:.1}v{high:.1}h-{wide:.1}z");
        }
        at = end;
    }
    path
}

/// How long the columns are together, in seconds.
fn length(history: &History) -> f64 {
    (Nanos(history.width.0 * history.columns.len() as u64))
        .as_secs_f64()
        .max(1e-3)
}

/// The mean levels of the queues; those of all bands are one.
fn queues(report: &Report, shown: &Shown<'_>) -> Chart {
    let mut groups: Vec<(String, Vec<usize>)> = Vec::new();
    for (queue, (_, to)) in shown.queues.iter().enumerate() {
        let name = report.stages.get(*to).map_or("", |stage| stage.name.as_str());
        let name = if name.starts_with("band-") { "bands" } else { name };
        match groups.iter_mut().find(|(known, _)| known == name) {
            Some((_, queues)) => queues.push(queue),
            None => groups.push((name.into(), vec![queue])),
        }
    }
    let curves = groups
        .iter()
        .zip(CLASSES.iter().cycle())
        .map(|((name, queues), class)| Curve {
            name: format!("before {name}"),
            class,
            points: levels(shown.history, queues),
        });
    Chart {
        description: "frames in the queues over time".into(),
        curves: curves.collect(),
        at_least: (0.0, f64::from(shown.slots)),
        length_s: length(shown.history),
        ..Chart::default()
    }
}

fn levels(history: &History, queues: &[usize]) -> Vec<(f64, Option<f64>)> {
    let points = history.columns.iter().enumerate().map(|(number, column)| {
        let sum: u64 = queues.iter().filter_map(|queue| column.waiting.get(*queue)).sum();
        let looks = f64::from(column.looks) * queues.len() as f64;
        let at = history.width.as_secs_f64() * (number as f64 + 0.5);
        (at, (looks > 0.0).then(|| sum as f64 / looks))
    });
    points.collect()
}

/// Each hand-over, by when and how long no process could carry out a step, on a logarithmic scale.
fn blackouts(history: &History) -> String {
    let (foot, end, length) = (HEIGHT - BOTTOM, WIDTH - RIGHT, length(history));
    let texts = [
        "0.1 us", "1 us", "10 us", "100 us", "1 ms", "10 ms", "100 ms", "1 s", "10 s",
    ];
    let highest =
        { history.columns.iter() }.flat_map(|column| column.blackouts.keys().map(|(_, part)| part / PARTS + 1));
    let decades = f64::from(highest.max().unwrap_or(1).clamp(4, DECADES));
    let ups = (0..).zip(texts).take_while(|(decade, _)| f64::from(*decade) <= decades);
    let ups: Vec<(f64, String)> = ups
        .map(|(decade, text)| (f64::from(decade) / decades, text.into()))
        .collect();
    let mut inner = String::new();
    for (number, column) in history.columns.iter().enumerate() {
        let x = LEFT + (end - LEFT) * (number as f64 + 0.5) / history.columns.len() as f64;
        for ((kind, part), times) in &column.blackouts {
            let up = (f64::from(*part) + 0.5) / f64::from(PARTS) / decades;
            let (y, radius) = (foot - (foot - TOP) * up, 1.1 + 0.45 * f64::from(*times).ln());
            let class = match kind {
                Kind::Moved => "a",
                Kind::Died => "late",
            };
            let radius = radius.min(4.0);
            let _ = write!(
                inner,
                "<circle class=\"dot {class}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{radius:.1}\"/>"
            );
        }
    }
    drawing(
        "time without a process at each hand-over",
        LEFT,
        HEIGHT,
        &ups,
        &seconds(length),
        &inner,
    )
}

fn figures(report: &Report) -> Vec<Vec<String>> {
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
                    .correlation
                    .zip(report.snr_db)
                    .map(|(correlation, snr)| format!("correlation {correlation:.5}, signal to noise {snr:.1} dB")),
            ),
        ),
        ("fingerprint", report.audio_sha256.clone()),
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

fn stages(report: &Report) -> Vec<Vec<String>> {
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
    use super::super::report::Stage;
    use super::*;
    use crate::page::tests::check_nesting;

    fn report(name: &str) -> Report {
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
        Report {
            recording: name.into(),
            frames_offered: 100,
            frames_delivered: 100,
            ended_by: "input",
            blackout_us: Some(spans),
            cores: vec![0, 1],
            stages: stages.collect(),
            audio_sha256: "ab".into(),
            audio_sha256_one_thread: Some("ab".into()),
            ..Report::default()
        }
    }

    fn drawn(report: &Report, looks: u64, seconds: usize) -> String {
        let mut history = History::new(2);
        for look in 0..looks {
            let (at, core) = (Nanos::from_millis(2 * look), (look % 3 == 0) as usize);
            history.look(at, &[None, Some(0), Some(core), Some(1), None], &[3, 4, 5]);
            history.blackout(at, Kind::Moved, Nanos(look * 1000));
            history.blackout(at, Kind::Died, Nanos(look * 9000));
        }
        let shown = Shown {
            history: &history,
            queues: vec![(0, 1), (1, 2), (1, 3)],
            slots: 14,
            input: vec![-50.0; 256],
            sound: vec![-50.0; 3],
            edges: vec![40.0, 100.0, 1000.0, 12_500.0],
            samples: &vec![0.5; seconds * AUDIO_RATE as usize],
        };
        page(report, &shown, "punctual radio")
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
            "punctual radio</pre>",
        ] {
            assert!(page.contains(part), "no {part}");
        }
        assert_eq!(page.matches("<svg").count(), 6);
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
