//! The stages in a graph: the sound is that of the receiver in one thread, wherever their states have been.

use std::cell::RefCell;
use std::path::Path;
use std::rc::Rc;

use proptest::prelude::*;
use punctual_pipeline::{AnyStage, Failure, Frames, Graph, Head, erase, run_serially};
use punctual_radio::stages::{Sink, Source};
use punctual_radio::{Options, RadioError, Recording, SINK, SOURCE, graph, receive, stage};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

type Heard = Rc<RefCell<Vec<(u64, Vec<f32>)>>>;

fn source(iq: &[[u8; 2]], options: &Options) -> Box<dyn AnyStage> {
    let reader = std::io::Cursor::new(iq.as_flattened().to_vec());
    let recording = Recording::from_reader(Path::new("test.cu8"), Box::new(reader));
    let head = |sequence| Head {
        sequence,
        ..Head::default()
    };
    erase(Source::new(recording, options, head))
}

fn sink(heard: &Heard) -> Box<dyn AnyStage> {
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
fn stages(graph: &Graph, options: &Options, iq: &[[u8; 2]], heard: &Heard, moving: bool) -> Vec<Box<dyn AnyStage>> {
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
        let (graph, heard) = (graph(&options).unwrap(), Heard::default());
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
    let (graph, heard) = (graph(&options).unwrap(), Heard::default());
    let mut stages = stages(&graph, &options, &[], &heard, false);
    let why = run_serially(&graph, &mut stages).unwrap_err().to_string();
    assert!(why.starts_with("source: test.cu8: is empty"), "{why}");
    assert!(heard.borrow().is_empty());
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
fn what_no_graph_can_be_made_of_is_told() {
    let options = |frame, slots| Options {
        frame,
        slots,
        ..Options::default()
    };
    assert!(matches!(graph(&options(7, 14)), Err(RadioError::Option(_))));
    assert!(matches!(graph(&options(250, 0)), Err(RadioError::Graph(_))));
    let why = stage("band-5", &Options::default()).err().unwrap().to_string();
    assert_eq!(
        why,
        "no stage is called \"band-5\"; there are low-pass, demodulator, band-1 to band-4, sum"
    );
}
