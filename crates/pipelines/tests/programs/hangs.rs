//! A stage that stands still is killed and its step repeated by another process: whatever its priority, in a step or
//! between two, and also if its supervisor is dead. Processes that are killed while they wait for frames end no
//! pipeline; a step that hangs again and again does.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use punctual_pipelines::linux::*;
use punctual_pipelines::*;
use punctual_platform::linux::process::{ProcessId, exit_now, fork};
use punctual_platform::linux::thread::{self, Scheduling, Tid};
use punctual_testing::{WAIT_MAX, machine, start, wait_until};
use punctual_units::Nanos;
use serde::{Deserialize, Serialize};

/// Environment variable: folder of the files that make the stage misbehave, once each.
const FOLDER: &str = "PUNCTUAL_TEST_FAULTS";
/// The next process that finds this file spins.
const SPIN: &str = "spin";
/// The next process that finds this file gives itself the highest priority, and spins.
const RAISE: &str = "raise";
/// As long as there is this file, every process spins, and takes long to die.
const LINGER: &str = "linger";
/// Time that such a process takes to die, more than its worker waits for that.
const DIES: Duration = Duration::from_millis(80);
/// Written by a process that is about to spin: its process id.
const SPINS: &str = "spins";
/// Environment variable: this process is to be killed while its stage spins, at that priority (0: ordinary).
const DOOMED: &str = "PUNCTUAL_TEST_DOOMED";
/// Environment variable, any value: try every priority, which takes minutes.
const ALL: &str = "PUNCTUAL_TEST_PRIORITIES";
/// Longest step of these pipelines.
const STEP_MAX: Nanos = Nanos::from_millis(100);
/// Longest step where the program is to be killed before its worker kills the stage; where no worker can, the kernel's
/// limit follows from it.
const DOOMED_STEP_MAX: [Nanos; 2] = [Nanos::from_secs(1000), Nanos::from_secs(1)];

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Count(u64);

impl State for Count {
    const VERSION: u32 = 1;
}

/// Frames that the source may have made by now.
static OPEN: AtomicU64 = AtomicU64::new(0);

/// Numbers frames, as many as `OPEN` allows.
struct Source;

impl Stage for Source {
    type State = Count;

    fn begin(&self) -> Count {
        Count(0)
    }

    fn step(&mut self, state: &mut Count, frames: &mut Frames<'_>) -> Result<(), Failure> {
        let head = Head {
            sequence: state.0,
            ..Head::default()
        };
        frames.make(0, 8, head);
        state.0 += 1;
        Ok(())
    }
}

/// Hands frames on, and checks that each comes once, in order.
struct Passing {
    makes: bool,
}

impl Stage for Passing {
    type State = Count;

    fn begin(&self) -> Count {
        Count(0)
    }

    fn step(&mut self, state: &mut Count, frames: &mut Frames<'_>) -> Result<(), Failure> {
        let head = frames.head(0, 0);
        assert_eq!(head.sequence, state.0, "frames come in order, each once");
        if self.makes && state.0 > 0 {
            misbehave();
        }
        state.0 += 1;
        if self.makes {
            frames.make(0, 8, head);
        }
        Ok(())
    }
}

fn folder() -> PathBuf {
    std::env::var_os(FOLDER).expect("a folder").into()
}

/// Keeps this process from being reaped until some time after its death: the kernel reports the end of a traced process
/// to its tracer first. Where tracing is not permitted, it dies at once.
fn linger() {
    let own = std::process::id() as i32;
    // SAFETY: this process has one thread; plain numbers.
    unsafe {
        libc::prctl(libc::PR_SET_PTRACER, libc::PR_SET_PTRACER_ANY);
        if let Ok(None) = fork() {
            libc::ptrace(libc::PTRACE_SEIZE, own, 0, 0);
            while libc::getppid() == own {
                std::thread::sleep(Duration::from_millis(1));
            }
            std::thread::sleep(DIES);
            exit_now(0);
        }
    }
}

fn misbehave() {
    if folder().join(LINGER).exists() {
        linger();
        loop {
            std::hint::spin_loop();
        }
    }
    let found = |name: &str| fs::remove_file(folder().join(name)).is_ok();
    let raises = found(RAISE);
    if raises {
        thread::set_scheduling(Tid::current(), Scheduling::Fifo(99)).expect("permitted before");
    }
    if raises || found(SPIN) {
        let (path, own) = (folder().join(SPINS), std::process::id().to_string());
        fs::write(path.with_extension("new"), own).expect("a file");
        fs::rename(path.with_extension("new"), path).expect("a file");
        loop {
            std::hint::spin_loop();
        }
    }
}

fn body(name: &str) -> Option<Box<dyn AnyStage>> {
    match name {
        "source" => Some(erase(Source)),
        "stage" => Some(erase(Passing { makes: true })),
        "sink" => Some(erase(Passing { makes: false })),
        _ => None,
    }
}

fn started(priority: Option<u8>, step_max: Nanos) -> Result<Pipeline, PipelineError> {
    let edge = EdgeSpec {
        slots: 14,
        frame_bytes: 8,
        full: WhenFull::Wait,
    };
    let graph = Graph::builder("hangs")
        .stage(StageSpec::new("source").makes(&[1]).pinned())
        .stage(StageSpec::new("stage").takes(&[1]).makes(&[1]))
        .stage(StageSpec::new("sink").takes(&[1]).pinned())
        .edge(("source", 0), ("stage", 0), edge)
        .edge(("stage", 0), ("sink", 0), edge)
        .build()
        .unwrap();
    let options = PipelineOptions {
        priority,
        step_max: Some(step_max),
        ..PipelineOptions::default()
    };
    Pipeline::start(graph, &options, Arc::new(body))
}

/// A pipeline whose ends are threads, which end with it.
struct Running {
    pipeline: Pipeline,
}

impl Running {
    fn new(priority: Option<u8>, step_max: Nanos) -> Running {
        OPEN.store(0, Relaxed);
        let pipeline = started(priority, step_max).unwrap();
        let (mut source, mut sink) = (pipeline.pinned("source").unwrap(), pipeline.pinned("sink").unwrap());
        std::thread::spawn(move || {
            let mut body = body("source").unwrap();
            while source.runs() {
                match source.made(0) < OPEN.load(Relaxed) {
                    true if source.turn(body.as_mut()) == TurnResult::Stepped => {}
                    // Until more frames are allowed, or there is room.
                    _ => std::thread::sleep(Duration::from_millis(1)),
                }
            }
        });
        std::thread::spawn(move || sink.run(body("sink").unwrap().as_mut()));
        Running { pipeline }
    }

    fn stage(&self) -> StageNow {
        self.pipeline.supervisor().stages()[1].clone()
    }

    /// Lets `more` frames through.
    fn frames(&self, more: u64) {
        let open = OPEN.fetch_add(more, Relaxed) + more;
        wait_until("the frames reach the sink", || {
            let supervisor = self.pipeline.supervisor();
            assert!(supervisor.runs(), "the pipeline ended: {:?}", supervisor.stages());
            supervisor.stages()[2].steps >= open
        });
    }

    /// The stage's process, once it waits for frames.
    fn resting(&self) -> i32 {
        let mut quiet = 0;
        wait_until("the stage's process waits", || {
            let pid = self.stage().pid;
            let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            let sleeps = pid != 0 && stat.contains(") S ");
            quiet = if sleeps { quiet + 1 } else { 0 };
            quiet >= 5
        });
        self.stage().pid
    }

    fn end(self) {
        self.pipeline.end().unwrap();
    }
}

/// The priorities to try: ordinary, and those that are permitted here.
fn priorities() -> Vec<Option<u8>> {
    let permitted = |priority: &u8| {
        let priority = *priority;
        std::thread::spawn(move || thread::real_time(priority).is_ok())
            .join()
            .unwrap()
    };
    let all: Vec<u8> = match std::env::var_os(ALL) {
        Some(_) => (1..=99).collect(),
        None => vec![1, 20, 98, 99],
    };
    let permitted: Vec<u8> = all.into_iter().filter(permitted).collect();
    if permitted.is_empty() {
        println!("skipped: spinning at a real-time priority: not permitted here");
    }
    std::iter::once(None).chain(permitted.into_iter().map(Some)).collect()
}

/// A process that spins in a step is killed, and its step is repeated.
fn spins(folder: &Path, priority: Option<u8>, fault: &str) {
    let running = Running::new(priority, STEP_MAX);
    running.frames(3);
    let expected = priority.map_or(0, |priority| priority.min(98));
    let process = Tid(running.resting());
    assert_eq!(
        thread::scheduling(process).unwrap().rank(),
        expected,
        "a worker is above its stages"
    );
    fs::write(folder.join(fault), "").unwrap();
    running.frames(20);
    assert!(!folder.join(fault).exists(), "no process has spun");
    assert!(running.stage().restarts >= 1, "{:?}", running.stage());
    if fault == SPIN {
        assert!(running.stage().hung >= 1, "{:?}", running.stage());
    }
    running.end();
}

/// The program that has a spinning stage is killed: the stage ends, too.
fn spins_without_supervisor(folder: &Path, priority: Option<u8>, fault: &str) {
    let _ = fs::remove_file(folder.join(SPINS));
    fs::write(folder.join(fault), "").unwrap();
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.env(DOOMED, priority.unwrap_or(0).to_string());
    let mut doomed = start(&mut command, WAIT_MAX).unwrap();
    let mut spinning = None;
    wait_until("a stage spins", || {
        let pid = fs::read_to_string(folder.join(SPINS)).ok();
        spinning = pid.and_then(|pid| ProcessId::of(pid.trim().parse().ok()?));
        spinning.is_some()
    });
    doomed.kill().unwrap();
    let spinning = spinning.unwrap();
    wait_until("the stage ends after its program", || !spinning.lives());
}

/// A process that is stopped while it waits for frames is replaced once it has some.
fn stops() {
    let running = Running::new(None, STEP_MAX);
    running.frames(3);
    let stopped = running.resting();
    // SAFETY: plain numbers.
    assert_eq!(unsafe { libc::kill(stopped, libc::SIGSTOP) }, 0);
    running.frames(20);
    assert_ne!(running.stage().pid, stopped);
    assert!(running.stage().hung >= 1, "{:?}", running.stage());
    running.end();
}

/// A group whose processes are frozen until this is dropped.
struct FrozenGroup(PathBuf);

impl FrozenGroup {
    fn put(&self, file: &str, text: &str) {
        fs::write(self.0.join(file), text).unwrap();
    }
}

impl Drop for FrozenGroup {
    fn drop(&mut self) {
        let _ = fs::write(self.0.join("freezer.state"), "THAWED");
    }
}

/// A process in a frozen group cannot be killed: another one goes on, and the frozen one commits nothing later.
fn freezes() {
    let path = PathBuf::from(format!("/sys/fs/cgroup/freezer/punctual-test-{}", std::process::id()));
    if let Err(why) = fs::create_dir(&path) {
        println!("skipped: a frozen group: {}: {why}", path.display());
        return;
    }
    let (running, group) = (Running::new(None, STEP_MAX), FrozenGroup(path.clone()));
    running.frames(3);
    let frozen = running.resting();
    group.put("cgroup.procs", &frozen.to_string());
    group.put("freezer.state", "FROZEN");
    running.frames(20);
    assert_ne!(running.stage().pid, frozen);
    drop(group);
    running.frames(20);
    wait_until("the thawed process ends", || fs::remove_dir(&path).is_ok());
    running.end();
}

/// A stage without frames is killed more often than one that dies in its steps may be.
fn idle_kills() {
    let running = Running::new(None, STEP_MAX);
    running.frames(3);
    for _ in 0..40 {
        let before = running.resting();
        assert!(running.pipeline.supervisor().kill("stage").unwrap());
        wait_until("another process has the stage", || {
            assert!(running.pipeline.supervisor().runs(), "{:?}", running.stage());
            ![0, before].contains(&running.stage().pid)
        });
    }
    running.frames(20);
    running.end();
}

/// A step that always hangs ends the pipeline, although none of its processes dies in time.
fn hangs_again_and_again(folder: &Path) {
    let running = Running::new(None, STEP_MAX);
    running.frames(3);
    fs::write(folder.join(LINGER), "").unwrap();
    OPEN.fetch_add(1, Relaxed);
    wait_until("the pipeline ends", || !running.pipeline.supervisor().runs());
    let stage = running.stage();
    fs::remove_file(folder.join(LINGER)).unwrap();
    assert!(stage.hung >= 16, "{stage:?}");
    assert!(running.pipeline.end().is_err(), "the stage has failed");
}

pub fn main() {
    if told().is_some() {
        // In the processes of a pipeline, this serves. It fails where the program has been killed meanwhile.
        drop(started(None, STEP_MAX));
        return;
    }
    if let Ok(priority) = std::env::var(DOOMED) {
        let priority = Some(priority.parse().unwrap()).filter(|priority| *priority > 0);
        let raises = folder().join(RAISE).exists();
        let running = Running::new(priority, DOOMED_STEP_MAX[usize::from(raises)]);
        running.frames(1000);
        return;
    }
    let _machine = machine();
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    // SAFETY: no other thread runs.
    unsafe { std::env::set_var(FOLDER, folder) };
    let priorities = priorities();
    for priority in &priorities {
        spins(folder, *priority, SPIN);
        spins_without_supervisor(folder, *priority, SPIN);
    }
    println!("stages spin at {priorities:?}: ok");
    if priorities.contains(&Some(99)) {
        spins(folder, Some(20), RAISE);
        spins_without_supervisor(folder, Some(20), RAISE);
        println!("stages spin above their worker: ok");
    }
    stops();
    freezes();
    println!("stages stand still between steps: ok");
    idle_kills();
    println!("stages are killed while they wait: ok");
    hangs_again_and_again(folder);
    println!("a stage hangs again and again: ok");
}
