//! Whatever stage is moved and killed meanwhile, the sound is that of one thread, to the last bit. Without the usual
//! test harness, because the processes of a pipeline run the program again: `main` is that of a user's program.

#[cfg(not(target_os = "linux"))]
fn main() {}

#[cfg(target_os = "linux")]
fn main() {
    linux::main();
}

#[cfg(target_os = "linux")]
mod linux {
    use std::io::Cursor;
    use std::path::Path;
    use std::sync::Arc;
    use std::thread;
    use std::time::{Duration, Instant};

    use punctual_pipelines::linux::{Mechanism, Pinned, Pipeline, PipelineOptions, Supervisor};
    use punctual_pipelines::{Failure, Head, erase};
    use punctual_radio::stages::{Sink, Source};
    use punctual_radio::{IQ_BYTES, Options, Recording, SINK, SOURCE, STATION, graph, receive, stage};
    use rand::{RngExt, SeedableRng};
    use rand_chacha::ChaCha8Rng;

    /// What of the recording is received, in bytes: 4 s.
    const BYTES: usize = 4 * 250_000 * IQ_BYTES;
    /// Between two frames of 1 ms: four times as fast as real time.
    const PERIOD: Duration = Duration::from_micros(250);
    /// How long the run may take: far longer than it does on a busy machine.
    const PATIENCE: Duration = Duration::from_secs(100);
    const SEED: u64 = 0x00fa_d100;

    pub fn main() {
        let options = Options::default();
        // In the processes of a pipeline, this serves.
        let pipeline = start(&options);
        let mut bytes = Vec::new();
        let mut station = Recording::open(Path::new(STATION)).unwrap();
        station.copy_to(&mut bytes).unwrap();
        bytes.truncate(BYTES);
        let expected = receive(bytes.as_chunks().0, &options).unwrap();

        let (source, sink) = (pipeline.pinned(SOURCE).unwrap(), pipeline.pinned(SINK).unwrap());
        let source = thread::spawn(move || play(source, bytes, &options));
        let sink = thread::spawn(move || listen(sink));
        let (moves, kills) = meddle(pipeline.supervisor(), || sink.is_finished());
        source.join().unwrap().unwrap();
        let sound = sink.join().unwrap().unwrap();
        pipeline.end().unwrap();

        let differs = sound
            .iter()
            .zip(&expected)
            .position(|(a, b)| a.to_bits() != b.to_bits());
        assert_eq!(differs, None, "seed {SEED:#x}: the first sample that differs");
        assert_eq!(sound.len(), expected.len(), "seed {SEED:#x}");
        assert!(kills > 0 && moves > 0, "{moves} moves, {kills} kills");
        println!(
            "{} samples are those of one thread: ok, {moves} moves, {kills} kills",
            sound.len()
        );
    }

    fn start(options: &Options) -> Pipeline {
        let stages = options.clone();
        let bodies = Arc::new(move |name: &str| stage(name, &stages).ok());
        Pipeline::start(graph(options).unwrap(), &PipelineOptions::default(), bodies).unwrap()
    }

    fn play(mut source: Pinned, bytes: Vec<u8>, options: &Options) -> Result<(), Failure> {
        let recording = Recording::from_reader(Path::new(STATION), Box::new(Cursor::new(bytes)));
        let begin = Instant::now();
        let stamp = move |sequence| {
            let at = PERIOD * sequence as u32;
            thread::sleep(at.saturating_sub(begin.elapsed()));
            Head {
                sequence,
                ..Head::default()
            }
        };
        source.run(&mut *erase(Source::new(recording, options, stamp)))
    }

    /// All sound, of frames that come once each and in order.
    fn listen(mut sink: Pinned) -> Result<Vec<f32>, Failure> {
        let (give, take) = std::sync::mpsc::channel();
        let deliver = move |head, sound: &[f32]| {
            give.send((head, sound.to_vec())).expect("the other end is below");
            Ok(())
        };
        sink.run(&mut *erase(Sink::new(deliver)))?;
        let mut all = Vec::new();
        for (expected, (head, sound)) in take.into_iter().enumerate() {
            let Head { sequence, .. } = head;
            assert_eq!(sequence, expected as u64, "seed {SEED:#x}");
            all.extend(sound);
        }
        Ok(all)
    }

    /// Moves stages about and kills their processes until the sound has ended; how many of either.
    fn meddle(supervisor: &Supervisor, ended: impl Fn() -> bool) -> (u32, u32) {
        let mut rng = ChaCha8Rng::seed_from_u64(SEED);
        let cores = supervisor.cores();
        let stages = supervisor.stages();
        let movable: Vec<&str> = stages
            .iter()
            .filter(|stage| stage.core.is_some())
            .map(|stage| &*stage.name)
            .collect();
        let (mut moves, mut kills) = (0, 0);
        let begin = Instant::now();
        while !ended() {
            assert!(begin.elapsed() < PATIENCE, "seed {SEED:#x}: {:?}", supervisor.stages());
            let name = movable[rng.random_range(0..movable.len())];
            if rng.random_ratio(1, 20) {
                kills += u32::from(supervisor.kill(name).unwrap());
            } else {
                let (core, mechanism) = (
                    rng.random_range(0..cores.len()),
                    rng.random_range(0..Mechanism::ALL.len()),
                );
                // Busy, or not ready: another turn moves it.
                moves += u32::from(
                    supervisor
                        .move_stage(name, cores[core], Mechanism::ALL[mechanism])
                        .is_ok(),
                );
            }
            supervisor.keep_replicas(false);
            thread::sleep(Duration::from_millis(1));
        }
        (moves, kills)
    }
}
