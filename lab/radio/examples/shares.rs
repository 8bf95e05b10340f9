//! Measures each stage's share of the receiver's work, and the cost of rings and saved states. Times over a whole
//! recording: of each stage alone, of the receiver in one thread, and of the graph in one thread.
//!
//! `cargo run -p punctual-radio --example shares [-- FRAME]` with FRAME in IQ samples, 250 by default. The time of each
//! stage is the least of several passes, because other programs only add to it.

use std::error::Error;
use std::hint::black_box;
use std::io::Cursor;
use std::path::Path;
use std::time::{Duration, Instant};

use punctual_pipelines::{AnyStage, Head, Stage, erase, run_serially};
use punctual_radio::stages::{Demodulator, LowPass, Sink, Source, Sum};
use punctual_radio::{
    DECIMATION, Options, Recording, SINK, SOURCE, STATION, Spectrum, equalizer, graph, receive, stage,
};

/// Passes over the recording; each is ten seconds of radio.
const PASSES: usize = 3;

/// Shares of the whole load in the fourth paper, with three bands, in the order of the table.
const PAPER: [&str; 4] = ["5 %", "45 %", "13 %", "5 %, with the consumer"];

struct Row {
    stage: String,
    paper: &'static str,
    time: Duration,
    save: Duration,
    state: usize,
}

fn main() -> Result<(), Box<dyn Error>> {
    let frame = std::env::args().nth(1).map_or(Ok(250), |frame| frame.parse())?;
    let options = Options {
        frame,
        ..Options::default()
    };
    options.check()?;
    let iq = whole(Recording::open(Path::new(STATION))?)?;
    print_table(&measure(&iq, &options), &options);
    print_whole(&iq, &options)
}

fn measure(iq: &[[u8; 2]], options: &Options) -> Vec<Row> {
    let mut rows = Vec::new();
    let (mut low_pass, mut complex) = (LowPass::new(), vec![[0.0; 2]; iq.len()]);
    rows.push(row("low-pass", PAPER[0], erase(low_pass.clone()), || {
        let mut state = low_pass.begin();
        for (input, output) in iq.chunks(options.frame).zip(complex.chunks_mut(options.frame)) {
            low_pass.filter(&mut state, input, output);
        }
    }));
    let mut demodulator = Demodulator::new(options.emphasis);
    let mut sound = vec![0.0; iq.len().div_ceil(DECIMATION as usize)];
    rows.push(row("demodulator", PAPER[1], erase(demodulator.clone()), || {
        let mut state = demodulator.begin();
        for (input, output) in complex.chunks(options.frame).zip(sound.chunks_mut(options.sound())) {
            demodulator.filter(&mut state, input, output);
        }
    }));
    let mut bands = Vec::new();
    for (number, mut band) in equalizer(options).into_iter().enumerate() {
        let mut filtered = vec![0.0; sound.len()];
        rows.push(row(
            &format!("band-{}", number + 1),
            PAPER[2],
            erase(band.clone()),
            || {
                let mut state = band.begin();
                for (input, output) in sound.chunks(options.sound()).zip(filtered.chunks_mut(options.sound())) {
                    band.filter(&mut state, input, output);
                }
            },
        ));
        bands.push(filtered);
    }
    let sum = Sum::new(bands.len());
    let mut all = vec![0.0; sound.len()];
    rows.push(row("sum", PAPER[3], erase(sum.clone()), || {
        for (port, band) in bands.iter().enumerate() {
            for (input, output) in band.chunks(options.sound()).zip(all.chunks_mut(options.sound())) {
                sum.add(port, input, output);
            }
        }
    }));
    black_box(all);
    rows
}

fn row(stage: &str, paper: &'static str, body: Box<dyn AnyStage>, mut pass: impl FnMut()) -> Row {
    let mut room = vec![0; 1 << 16];
    let state = body
        .save(&mut room)
        .expect("no stage of the receiver has a larger state");
    let saves = 10_000;
    let save = least(|| {
        for _ in 0..saves {
            black_box(body.save(black_box(&mut room))).expect("as before");
        }
    });
    Row {
        stage: stage.into(),
        paper,
        time: least(&mut pass),
        save: save / saves,
        state,
    }
}

fn least(mut pass: impl FnMut()) -> Duration {
    (0..PASSES).map(|_| timed(&mut pass)).min().unwrap_or_default()
}

fn print_table(rows: &[Row], options: &Options) {
    let frames = 2_500_000.0 / options.frame as f64;
    let whole: f64 = rows.iter().map(|row| row.time.as_secs_f64()).sum();
    println!(
        "measured, frames of {} IQ samples, {} bands:",
        options.frame,
        options.gains.len()
    );
    println!("stage        us/frame  share  in the paper             state, bytes  saving it, us");
    for row in rows {
        let time = row.time.as_secs_f64();
        println!(
            "{:<12} {:>8.2} {:>5.1} %  {:<24} {:>12} {:>14.3}",
            row.stage,
            time / frames * 1e6,
            100.0 * time / whole,
            row.paper,
            row.state,
            row.save.as_secs_f64() * 1e6,
        );
    }
    println!(
        "all          {:>8.2} 100.0 %; {:.1} times as fast as real time",
        whole / frames * 1e6,
        10.0 / whole
    );
}

/// Times the receiver, and the same stages with rings between them and their states saved at each step.
fn print_whole(iq: &[[u8; 2]], options: &Options) -> Result<(), Box<dyn Error>> {
    let frames = iq.len().div_ceil(options.frame) as f64;
    let graph = graph(options)?;
    let (mut plain, mut ringed) = (Duration::MAX, Duration::MAX);
    for _ in 0..PASSES {
        plain = plain.min(timed(|| drop(black_box(receive(iq, options)))));
        let mut stages = graph
            .stages()
            .iter()
            .map(|spec| make(&spec.name, iq, options))
            .collect::<Result<Vec<_>, _>>()?;
        let mut ended = Ok(());
        ringed = ringed.min(timed(|| ended = run_serially(&graph, &mut stages)));
        ended?;
    }
    let (mut spectrum, mut powers, sound) = (Spectrum::new(32), Vec::new(), receive(&iq[..25_000], options)?);
    spectrum.measure(&sound, &mut powers);
    let one = least(|| spectrum.measure(black_box(&sound), &mut powers));
    println!(
        "a spectrum of the last sound, for the live view: {:.1} us",
        one.as_secs_f64() * 1e6
    );
    let [plain, ringed] = [plain, ringed].map(|time| time.as_secs_f64() / frames * 1e6);
    println!(
        "in one thread: {plain:.2} us/frame; as a graph {ringed:.2} us/frame, {:.2} times",
        ringed / plain
    );
    Ok(())
}

fn make(name: &str, iq: &[[u8; 2]], options: &Options) -> Result<Box<dyn AnyStage>, Box<dyn Error>> {
    Ok(match name {
        SOURCE => {
            let bytes = Cursor::new(iq.as_flattened().to_vec());
            let recording = Recording::from_reader(Path::new(STATION), Box::new(bytes));
            erase(Source::new(recording, options, |_| Head::default()))
        }
        SINK => erase(Sink::new(|_, sound: &[f32]| {
            black_box(sound);
            Ok(())
        })),
        name => stage(name, options)?,
    })
}

fn timed(pass: impl FnOnce()) -> Duration {
    let begin = Instant::now();
    pass();
    begin.elapsed()
}

fn whole(mut recording: Recording) -> Result<Vec<[u8; 2]>, Box<dyn Error>> {
    let (mut iq, mut frame) = (Vec::new(), vec![0; 1 << 16]);
    loop {
        match recording.read(&mut frame)? {
            0 => return Ok(iq),
            read => iq.extend_from_slice(frame[..read].as_chunks().0),
        }
    }
}
