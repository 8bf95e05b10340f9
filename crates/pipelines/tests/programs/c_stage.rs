//! Stages in C: the example's outcome is that of one thread, whatever is moved, killed and replaced meanwhile;
//! libraries that are none are refused.
//!
//! Needs a C compiler, `cc`, as the workspace does.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use punctual_pipelines::linux::*;
use punctual_pipelines::*;
use punctual_testing::{WAIT_MAX, wait_until};
use punctual_units::Nanos;

const FRAME: usize = 200;
const FRAMES: usize = 1500;
/// Tells the processes of the pipeline which library is meant.
const LIBRARY: &str = "PUNCTUAL_TEST_LIBRARY";

/// A library of `source`, built as the header says.
fn built(folder: &Path, name: &str, source: &Path, flags: &[&str]) -> PathBuf {
    let (root, library) = (Path::new(env!("CARGO_MANIFEST_DIR")).join("../.."), folder.join(name));
    let mut cc = Command::new("cc");
    cc.args([
        "-shared", "-fPIC", "-O2", "-std=c11", "-Wall", "-Wextra", "-Werror", "-I",
    ]);
    cc.arg(root.join("include"))
        .args(flags)
        .arg("-o")
        .arg(&library)
        .arg(source);
    let status = cc.status().expect("a C compiler, cc: install gcc or clang");
    assert!(status.success(), "{cc:?}");
    library
}

fn example(folder: &Path) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/c/mean.c");
    built(folder, "mean.so", &source, &[])
}

fn open(path: &Path) -> Result<CStage, CStageError> {
    // SAFETY: the libraries of this test keep what the header asks for.
    unsafe { CStage::open(path) }
}

/// What examples/c/mean.c computes.
fn model(samples: &[i16]) -> Vec<i16> {
    let mut sum = 0i64;
    let next = |sample: &i16| {
        let off = i32::from(*sample) - (sum / 65536) as i32;
        sum += i64::from(off) * 256;
        off.clamp(i16::MIN.into(), i16::MAX.into()) as i16
    };
    samples.iter().map(next).collect()
}

fn samples(count: usize) -> Vec<i16> {
    let wave = |at: usize| ((at as f64 * 0.05).sin() * 9000.0) as i16 + 7000;
    (0..count)
        .map(|at| wave(at).wrapping_add((at * at % 31) as i16))
        .collect()
}

fn bytes(samples: &[i16]) -> Vec<u8> {
    samples.iter().flat_map(|sample| sample.to_le_bytes()).collect()
}

fn graph() -> Graph {
    let edge = EdgeSpec {
        slots: 8,
        frame_bytes: FRAME,
        full: WhenFull::Wait,
    };
    Graph::builder("c")
        .stage(StageSpec::new("source").makes(&[1]).pinned())
        .stage(StageSpec::new("mean").takes(&[1]).makes(&[1]).state(64))
        .stage(StageSpec::new("sink").takes(&[1]).pinned())
        .edge(("source", 0), ("mean", 0), edge)
        .edge(("mean", 0), ("sink", 0), edge)
        .build()
        .unwrap()
}

fn started() -> Pipeline {
    let body = |name: &str| {
        let path = PathBuf::from(std::env::var_os(LIBRARY)?);
        let stage: Box<dyn AnyStage> = Box::new(open(&path).ok()?);
        (name == "mean").then_some(stage)
    };
    Pipeline::start(graph(), &PipelineOptions::default(), Arc::new(body)).unwrap()
}

fn piped(name: &str, peer: Peer, period: Option<Nanos>) -> PipeSpec {
    PipeSpec {
        name: name.into(),
        takes: (name == "sink").then(|| name.into()),
        makes: (name == "source").then(|| name.into()),
        peer,
        period,
        deadline: None,
        restart: false,
    }
}

/// Bytes whose second half comes once `open` says so: what a case is about happens before, however busy the machine
/// is.
struct Gate {
    bytes: Vec<u8>,
    read: usize,
    open: Arc<AtomicBool>,
}

impl Read for Gate {
    fn read(&mut self, room: &mut [u8]) -> std::io::Result<usize> {
        let half = self.bytes.len() / 2;
        if self.read >= half {
            wait_until("the second half may come", || self.open.load(Ordering::Relaxed));
        }
        let left = if self.read < half { half } else { self.bytes.len() } - self.read;
        let count = room.len().min(left);
        room[..count].copy_from_slice(&self.bytes[self.read..self.read + count]);
        self.read += count;
        Ok(count)
    }
}

/// What comes out of the pipeline, while `meddle` is called again and again with the number of the call; the second
/// half of the input goes in once it has answered true.
fn through(folder: &Path, input: Vec<u8>, mut meddle: impl FnMut(&Supervisor, u64) -> bool) -> Vec<u8> {
    let (pipeline, to) = (started(), folder.join("to"));
    pipeline.supervisor().keep_replicas(true);
    let open = Arc::new(AtomicBool::new(false));
    let from = Peer::From(Box::new(Gate {
        bytes: input,
        read: 0,
        open: Arc::clone(&open),
    }));
    let sink = Peer::To(Box::new(fs::File::create(&to).unwrap()));
    let source = piped("source", from, Some(Nanos::from_micros(500)));
    let pipes = Pipes::start(&pipeline, vec![source, piped("sink", sink, None)]).unwrap();
    let begun = Instant::now();
    for turn in 0.. {
        if pipes.are_over() {
            break;
        }
        assert!(begun.elapsed() < WAIT_MAX, "not over after {WAIT_MAX:?}");
        assert!(pipeline.supervisor().runs(), "{:?}", pipeline.supervisor().stages());
        if meddle(pipeline.supervisor(), turn) {
            open.store(true, Ordering::Relaxed);
        }
        // Between two turns of the meddling.
        std::thread::sleep(Duration::from_millis(3));
    }
    for report in pipes.finish() {
        assert!(report.failure.is_none(), "{report:?}");
    }
    pipeline.end().unwrap();
    fs::read(&to).unwrap()
}

/// How many steps the stage in C has made.
fn steps(supervisor: &Supervisor) -> u64 {
    let stages = supervisor.stages();
    stages.iter().find(|stage| stage.name == "mean").unwrap().steps
}

/// Moved at every other turn, killed at every tenth.
fn moved_and_killed(folder: &Path) {
    let input = samples(FRAMES * FRAME / 2);
    let (mut moves, mut kills, mut before) = (0, 0, 0);
    let output = through(folder, bytes(&input), |supervisor, turn| {
        let cores = supervisor.cores();
        if turn % 10 == 9 {
            // Killed again and again before it does anything, it would be given up.
            let now = steps(supervisor);
            if now > before {
                kills += u64::from(supervisor.kill("mean").unwrap());
                before = now;
            }
        } else {
            let core = cores[turn as usize / 2 % cores.len()];
            // Busy, or not ready: the next turn tries again.
            moves += u64::from(supervisor.move_stage("mean", core, Mechanism::Announced).is_ok());
        }
        moves > 0 && kills > 0
    });
    assert!(
        output == bytes(&model(&input)),
        "after {moves} moves and {kills} kills the sound is another one"
    );
    println!("  {moves} moves asked for, {kills} kills: the outcome of one thread");
}

/// A frame's bytes, each one more by what the version says; the state counts frames.
const COUNTER: &str = r#"
    #include "punctual_stage.h"
    #include <string.h>
    struct counter { uint64_t frames; };
    PUNCTUAL_STAGE(struct counter, VERSION)
    void punctual_stage_begin(void *memory) { (void)memory; }
    int punctual_stage_step(void *memory, struct punctual_frames *frames) {
        struct counter *counter = memory;
        size_t bytes;
        const unsigned char *in = frames->input(frames, 0, 0, &bytes, 0);
        unsigned char *out = frames->output(frames, 0, 0);
        if (frames->inputs != 1 || frames->outputs != 1 || frames->count(frames, 0) != 1)
            return 1;
        if (frames->input(frames, 1, 0, 0, 0) || frames->input(frames, 0, 1, 0, 0) || frames->output(frames, 1, 0))
            return 2;
        if (frames->make(frames, 0, 1000000, 0) != -1)
            return 3;
        if (((uintptr_t)in | (uintptr_t)out | (uintptr_t)memory) % 64 != 0)
            return 4;
        memset(out, VERSION, bytes);
        memcpy(out, &counter->frames, sizeof counter->frames);
        counter->frames++;
        if (frames->make(frames, 0, bytes, 0) != 0 || frames->output(frames, 0, 0))
            return 5;
        return 0;
    }
    #if VERSION > 1
    int punctual_stage_convert(uint32_t version, const void *old, size_t bytes, void *memory) {
        if (version != VERSION - 1 || bytes != sizeof(struct counter))
            return 1;
        memcpy(memory, old, bytes);
        return 0;
    }
    #endif
"#;

fn counter(folder: &Path, version: u32) -> PathBuf {
    let source = folder.join("counter.c");
    fs::write(&source, COUNTER).unwrap();
    let define = format!("-DVERSION={version}");
    built(folder, &format!("counter-{version}.so"), &source, &[&define])
}

/// A new version of the library takes over while frames flow, with the state of the old one.
fn replaced(folder: &Path) {
    let library = folder.join("counter.so");
    fs::copy(counter(folder, 1), &library).unwrap();
    let next = counter(folder, 2);
    // SAFETY: no other thread runs.
    unsafe { std::env::set_var(LIBRARY, &library) };
    let own = std::env::current_exe().unwrap();
    let (mut is_next, mut asked) = (false, false);
    let output = through(folder, vec![0; FRAMES * FRAME], |supervisor, _| {
        // The first version has counted.
        if !is_next && steps(supervisor) > 0 {
            // In one step: a process that starts meanwhile finds the one or the other.
            fs::copy(&next, folder.join("counter.new")).unwrap();
            fs::rename(folder.join("counter.new"), &library).unwrap();
            is_next = true;
        }
        asked = asked || is_next && supervisor.replace("mean", &own).is_ok();
        asked && supervisor.handovers().iter().any(|it| it.cause == Cause::Moved)
    });
    let frames: Vec<&[u8]> = output.chunks(FRAME).collect();
    assert_eq!(frames.len(), FRAMES);
    for (number, frame) in frames.iter().enumerate() {
        let counted = u64::from_le_bytes(frame[..8].try_into().unwrap());
        assert_eq!(counted, number as u64, "the state went along");
    }
    let versions: Vec<u8> = frames.iter().map(|frame| frame[8]).collect();
    assert_eq!((versions[0], versions[FRAMES - 1]), (1, 2));
    assert!(versions.is_sorted(), "one version after the other");
}

fn refused(folder: &Path) {
    let told = |source: &str| {
        let path = folder.join("bad.c");
        fs::write(&path, source).unwrap();
        let library = built(folder, &format!("bad-{}.so", source.len()), &path, &[]);
        open(&library).unwrap_err().to_string()
    };
    let told_missing = told("int nothing;");
    assert!(told_missing.contains("punctual_stage_abi_version"), "{told_missing}");
    let told_older = told("unsigned punctual_stage_abi_version(void) { return 7; }");
    assert!(told_older.contains("version 7"), "{told_older}");
    let half = "#include \"punctual_stage.h\"\nPUNCTUAL_STAGE(int, 1)\nvoid punctual_stage_begin(void *s) {(void)s;}";
    let told_half = told(half);
    assert!(told_half.contains("punctual_stage_step"), "{told_half}");
    let told_absent = open(&folder.join("nowhere.so")).unwrap_err().to_string();
    assert!(told_absent.contains("nowhere.so: cannot be loaded"), "{told_absent}");
    fs::write(folder.join("text.so"), "text").unwrap();
    let told_text = open(&folder.join("text.so")).unwrap_err().to_string();
    assert!(told_text.contains("text.so: cannot be loaded:"), "{told_text}");
}

/// A state goes only where its version and its length are known.
fn states(folder: &Path) {
    let (mut first, mut second) = (open(&counter(folder, 1)).unwrap(), open(&counter(folder, 2)).unwrap());
    assert_eq!((first.version(), first.state_bytes()), (1, 8));
    let mut room = [0; 64];
    assert_eq!(first.save(&mut room), Ok(8));
    assert_eq!(second.load(1, &room[..8]), Ok(()));
    let told = |refused: Result<(), Failure>| refused.unwrap_err().to_string();
    let other_version = told(first.load(2, &room[..8]));
    assert!(
        other_version.contains("version 1") && other_version.contains("version 2"),
        "{other_version}"
    );
    let other_length = told(first.load(1, &room[..7]));
    assert!(
        other_length.contains("7 bytes") && other_length.contains('8'),
        "{other_length}"
    );
    assert!(first.save(&mut room[..4]).is_err());
}

pub fn main() {
    // In the processes of a pipeline, this serves.
    if told().is_some() {
        drop(started());
    }
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    // SAFETY: no other thread runs.
    unsafe { std::env::set_var(LIBRARY, example(folder)) };
    let case = |name: &str, case: &dyn Fn(&Path)| {
        let begun = Instant::now();
        case(folder);
        println!("{name}: ok, {:.1} s", begun.elapsed().as_secs_f64());
    };
    case("libraries that are no stages", &refused);
    case("states of other versions", &states);
    case("a stage in C is moved and killed", &moved_and_killed);
    case("a stage in C is replaced by a new version", &replaced);
}
