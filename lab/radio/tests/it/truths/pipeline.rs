//! The stages in a graph: the sound is that of the receiver in one thread, wherever their states have been.

use std::cell::RefCell;
use std::f64::consts::PI;
use std::path::Path;
use std::rc::Rc;

use proptest::prelude::*;
use punctual_pipelines::{AnyStage, Failure, Frames, Graph, Head, Stage, erase, run_serially};
use punctual_radio::stages::{LoadState, Sink, Source, WorkStage};
use punctual_radio::{InputError, Options, RadioError, Recording, SINK, SOURCE, graph, receive, stage, streamit};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

type SoundFrames = Rc<RefCell<Vec<(u64, Vec<f32>)>>>;

fn source(iq: &[[u8; 2]], options: &Options) -> Box<dyn AnyStage> {
    let reader = std::io::Cursor::new(iq.as_flattened().to_vec());
    let recording = Recording::from_reader(Path::new("test.cu8"), Box::new(reader));
    let head = |sequence| Head {
        sequence,
        ..Head::default()
    };
    erase(Source::new(recording, options, head))
}

fn sink(heard: &SoundFrames) -> Box<dyn AnyStage> {
    let heard = Rc::clone(heard);
    erase(Sink::new(move |head: Head, sound: &[f32]| {
        heard.borrow_mut().push((head.sequence, sound.to_vec()));
        Ok(())
    }))
}

/// A stage that is another one before each step: new, with the state of the one before.
struct Moving {
    now: Box<dyn AnyStage>,
    make: Box<dyn Fn() -> Box<dyn AnyStage>>,
    room: Vec<u8>,
}

impl AnyStage for Moving {
    fn version(&self) -> u32 {
        self.now.version()
    }
    fn begin(&mut self) {
        self.now.begin();
    }
    fn load(&mut self, version: u32, bytes: &[u8]) -> Result<(), Failure> {
        self.now.load(version, bytes)
    }
    fn save(&self, room: &mut [u8]) -> Result<usize, Failure> {
        self.now.save(room)
    }
    fn step(&mut self, frames: &mut Frames<'_>) -> Result<(), Failure> {
        let saved = self.now.save(&mut self.room)?;
        let mut next = (self.make)();
        next.load(self.now.version(), &self.room[..saved])?;
        self.now = next;
        self.now.step(frames)
    }
}

/// Each stage of `graph`, new.
fn stages(
    graph: &Graph,
    options: &Options,
    iq: &[[u8; 2]],
    heard: &SoundFrames,
    moving: bool,
) -> Vec<Box<dyn AnyStage>> {
    let make = |name: &str| -> Box<dyn AnyStage> {
        match name {
            SOURCE => {
                let (iq, options) = (iq.to_vec(), options.clone());
                moves(moving, move || source(&iq, &options))
            }
            SINK => sink(heard),
            name => {
                let (name, options) = (name.to_string(), options.clone());
                moves(moving, move || stage(&name, &options).unwrap())
            }
        }
    };
    graph.stages().iter().map(|spec| make(&spec.name)).collect()
}

fn moves(moving: bool, make: impl Fn() -> Box<dyn AnyStage> + 'static) -> Box<dyn AnyStage> {
    if !moving {
        return make();
    }
    Box::new(Moving {
        now: make(),
        make: Box::new(make),
        room: vec![0; 1 << 14],
    })
}

fn bits(sound: &[f32]) -> Vec<u32> {
    sound.iter().map(|sample| sample.to_bits()).collect()
}

fn noise(seed: u64, samples: usize) -> Vec<[u8; 2]> {
    let mut iq = vec![[0; 2]; samples];
    ChaCha8Rng::seed_from_u64(seed).fill_bytes(iq.as_flattened_mut());
    iq
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn a_graph_of_stages_sounds_like_one_thread(
        seed: u64, samples in 1usize..9000, tenths in 1usize..60, bands in 1usize..6, slots in 1u32..5, moving: bool,
    ) {
        let iq = noise(seed, samples);
        let options = Options { frame: 10 * tenths, gains: vec![1.5; bands], slots, ..Options::default() };
        let (graph, heard) = (graph(&options).unwrap(), SoundFrames::default());
        run_serially(&graph, &mut stages(&graph, &options, &iq, &heard, moving)).unwrap();
        let heard = heard.borrow();
        let numbers: Vec<u64> = heard.iter().map(|(number, _)| *number).collect();
        prop_assert_eq!(numbers, (0..samples.div_ceil(options.frame) as u64).collect::<Vec<_>>());
        let sound: Vec<f32> = heard.iter().flat_map(|(_, sound)| sound.iter().copied()).collect();
        prop_assert_eq!(bits(&sound), bits(&receive(&iq, &options).unwrap()));
    }
}

#[test]
fn bad_input_ends_the_graph_and_says_why() {
    let options = Options::default();
    let (graph, heard) = (graph(&options).unwrap(), SoundFrames::default());
    let mut stages = stages(&graph, &options, &[], &heard, false);
    let why = run_serially(&graph, &mut stages).unwrap_err().to_string();
    assert!(why.starts_with("source: test.cu8: is empty"), "{why}");
    assert!(heard.borrow().is_empty());
}

#[test]
fn a_recording_that_breaks_off_is_heard_up_to_there() {
    let options = Options::default();
    let (graph, heard, told) = (
        graph(&options).unwrap(),
        SoundFrames::default(),
        Rc::new(RefCell::new(String::new())),
    );
    let iq = noise(9, 1100);
    let mut broken = iq.as_flattened().to_vec();
    broken.push(7);
    let make = |name: &str| match name {
        SOURCE => {
            let recording =
                Recording::from_reader(Path::new("test.cu8"), Box::new(std::io::Cursor::new(broken.clone())));
            let told = Rc::clone(&told);
            let complain = move |why: InputError| *told.borrow_mut() = why.to_string();
            erase(Source::new(recording, &options, |_| Head::default()).ending(complain))
        }
        SINK => sink(&heard),
        name => stage(name, &options).unwrap(),
    };
    let mut stages: Vec<Box<dyn AnyStage>> = graph.stages().iter().map(|spec| make(&spec.name)).collect();
    run_serially(&graph, &mut stages).unwrap();
    let sound: Vec<f32> = heard.borrow().iter().flat_map(|(_, sound)| sound.clone()).collect();
    assert_eq!(bits(&sound), bits(&receive(&iq, &options).unwrap()), "seed 9");
    assert!(
        told.borrow().contains("ends within an IQ sample: 2201 bytes"),
        "{}",
        told.borrow()
    );
}

#[test]
fn a_state_of_another_filter_is_refused() {
    let options = Options::default();
    let mut room = vec![0; 1 << 14];
    let saved = |name: &str, room: &mut [u8]| {
        let stage = stage(name, &options).unwrap();
        (stage.version(), stage.save(room).unwrap())
    };
    let (version, length) = saved("band-1", &mut room);
    let mut demodulator = stage("demodulator", &options).unwrap();
    let why = demodulator.load(version, &room[..length]).unwrap_err().to_string();
    assert!(why.contains("does not convert"), "{why}");
    assert!(
        stage("band-2", &options)
            .unwrap()
            .load(version, &room[..length])
            .is_ok()
    );
}

#[test]
fn every_state_has_room_and_little_more() {
    let options = Options::default();
    for spec in graph(&options).unwrap().stages().iter().filter(|spec| spec.migratable) {
        let saved = stage(&spec.name, &options)
            .unwrap()
            .save(&mut vec![0; 1 << 14])
            .unwrap();
        assert!(
            (saved + 16..saved + 96).contains(&spec.state_room),
            "{}: {saved}, {}",
            spec.name,
            spec.state_room
        );
    }
}

#[test]
fn what_no_graph_can_be_made_of_is_told() {
    let options = |frame, slots| Options {
        frame,
        slots,
        ..Options::default()
    };
    assert!(matches!(graph(&options(7, 14)), Err(RadioError::Option(_))));
    assert!(matches!(graph(&options(250, 0)), Err(RadioError::Graph(_))));
    let why = stage("band-5", &Options::default()).err().unwrap().to_string();
    assert!(why.contains("\"band-5\"") && why.contains("band-1 to band-4"), "{why}");
}

/// The second graph against a plain reading of its description, in double precision.
#[test]
fn the_second_graph_computes_what_its_description_says() {
    let (outputs, frames) = (40, 6);
    let graph = streamit::graph(outputs, 3).unwrap();
    let heard = SoundFrames::default();
    let make = |name: &str| match name {
        SINK => sink(&heard),
        name => streamit::stage(name, outputs, frames).unwrap(),
    };
    let mut stages: Vec<Box<dyn AnyStage>> = graph.stages().iter().map(|spec| make(&spec.name)).collect();
    assert_eq!(stages.len(), 35);
    run_serially(&graph, &mut stages).unwrap();
    let heard: Vec<f32> = heard.borrow().iter().flat_map(|(_, sound)| sound.clone()).collect();
    let expected = plain_streamit(5 * outputs * frames as usize);
    let loudest = expected
        .iter()
        .fold(0.0, |loudest: f64, sample| loudest.max(sample.abs()));
    assert_eq!(heard.len(), expected.len());
    for (at, (found, expected)) in heard.iter().zip(&expected).enumerate() {
        let apart = (f64::from(*found) - expected).abs();
        assert!(apart < 1e-4 * loudest, "output {at}: {found} in place of {expected}");
    }
}

fn plain_streamit(inputs: usize) -> Vec<f64> {
    let low_pass = |samples: &[f64], cutoff: f64| -> Vec<f64> {
        let taps: Vec<f64> = (0..64)
            .map(|tap| {
                let from_middle = f64::from(tap) - 31.5;
                let sinc = (2.0 * PI * cutoff / 250e6 * from_middle).sin() / PI / from_middle;
                sinc * (0.54 - 0.46 * (2.0 * PI * f64::from(tap) / 63.0).cos())
            })
            .collect();
        let at = |end: usize| (0..=end.min(63)).map(|back| taps[back] * samples[end - back]).sum();
        (0..samples.len()).map(at).collect()
    };
    let counted: Vec<f64> = (0..inputs).map(|at| at as f64).collect();
    let passed: Vec<f64> = low_pass(&counted, 108e6).into_iter().step_by(5).collect();
    let gain = 27_000.0 * 250e6 / (10_000.0 * PI);
    let before = std::iter::once(&0.0).chain(&passed);
    let demodulated: Vec<f64> = before
        .zip(&passed)
        .map(|(before, now)| gain * (before * now).atan())
        .collect();
    let mut sum = vec![0.0; demodulated.len()];
    for (band, weight) in [1.1, 1.3, 1.5, 1.7, 1.9, 1.9, 1.7, 1.5, 1.3, 1.1]
        .into_iter()
        .enumerate()
    {
        let edge = |number: usize| 55.0 * 2f64.powf(number as f64 / 2.0);
        let (low, high) = (
            low_pass(&demodulated, edge(band)),
            low_pass(&demodulated, edge(band + 1)),
        );
        for (sum, (low, high)) in sum.iter_mut().zip(low.iter().zip(&high)) {
            *sum += weight * (high - low);
        }
    }
    sum
}

/// A chain with a stage of any size in it, whose state tells a lost frame.
#[test]
fn a_load_hands_frames_on_and_its_state_tells_a_lost_one() {
    let load = WorkStage::new(4096, 300);
    let run = |frames: u64| {
        let mut state = load.begin();
        (0..frames).for_each(|_| load.work(&mut state));
        state
    };
    let (whole, one_lost) = (run(50), run(49));
    assert_ne!(whole.fingerprint(), one_lost.fingerprint());
    assert_eq!(whole.fingerprint(), run(50).fingerprint());
    let saved = postcard::to_stdvec(&whole).unwrap();
    assert!((4096..4096 + 32).contains(&saved.len()), "{}", saved.len());
    assert_eq!(postcard::from_bytes::<LoadState>(&saved).unwrap(), whole);
}
