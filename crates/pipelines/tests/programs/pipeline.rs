//! A pipeline of processes delivers what one thread delivers, whatever is moved and killed meanwhile.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use punctual_pipelines::linux::mapping::MappingPolicy;
use punctual_pipelines::linux::*;
use punctual_pipelines::*;
use punctual_testing::{WAIT_MAX, wait_until};
use punctual_units::Nanos;
use serde::{Deserialize, Serialize};

/// Frames of a case; `PUNCTUAL_TEST_FRAMES` says another number.
const FRAMES: u64 = 4000;
/// Kills of a case; `PUNCTUAL_TEST_KILLS` says another number.
const KILLS: u64 = 60;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Sum {
    frames: u64,
    sum: u64,
    /// Something to copy.
    ballast: Vec<u64>,
}

impl State for Sum {
    const VERSION: u32 = 1;
}

/// Adds all up, in an order that shows: `Work` hands the sums on.
struct Adder {
    makes: bool,
}

/// The environment variable that names a file; the stage that removes it hangs.
const HANGS: &str = "PUNCTUAL_TEST_HANGS";
/// What a program is called that dies at its first step.
const DIES: &str = "dies";

impl Adder {
    fn misbehave(&self, frames: u64) {
        let file = std::env::var_os(HANGS).map(PathBuf::from);
        // One that finds the file, and so one only.
        if self.makes && frames > 100 && file.is_some_and(|file| std::fs::remove_file(file).is_ok()) {
            // Until it is killed.
            std::thread::sleep(Duration::from_secs(1000));
        }
        let own = std::env::current_exe().unwrap();
        if own.file_name() == Some(DIES.as_ref()) {
            std::process::abort();
        }
    }
}

impl Stage for Adder {
    type State = Sum;

    fn begin(&self) -> Sum {
        Sum {
            frames: 0,
            sum: 0,
            ballast: vec![0; 100],
        }
    }

    fn step(&mut self, state: &mut Sum, frames: &mut Frames<'_>) -> Result<(), Failure> {
        if frames.count(0) == 0 {
            return Ok(());
        }
        self.misbehave(state.frames);
        let value = u64::from_le_bytes(frames.input(0, 0).try_into().unwrap());
        let head = frames.head(0, 0);
        assert_eq!(head.sequence, state.frames, "frames come in order, each once");
        state.sum = state.sum.rotate_left(5) ^ value;
        let at = state.frames as usize % state.ballast.len();
        state.ballast[at] ^= state.sum;
        state.frames += 1;
        if self.makes {
            frames.output(0)[..8].copy_from_slice(&state.sum.to_le_bytes());
            frames.make(0, 8, head);
        }
        Ok(())
    }
}

/// Whether frames come one by one, and go on: until a case has seen what it waits for.
static PACED: AtomicBool = AtomicBool::new(false);
/// How many frames the last case had, once they are over.
static MADE: AtomicU64 = AtomicU64::new(0);

/// Counts.
struct Source;

impl Stage for Source {
    type State = Count;

    fn begin(&self) -> Count {
        Count(0)
    }

    fn step(&mut self, state: &mut Count, frames: &mut Frames<'_>) -> Result<(), Failure> {
        let paced = PACED.load(Relaxed);
        if paced {
            std::thread::sleep(Duration::from_micros(300));
        }
        let least = number("PUNCTUAL_TEST_FRAMES", FRAMES).max(MADE.load(Relaxed));
        let is_last = !paced && state.0 + 1 >= least;
        frames.output(0)[..8].copy_from_slice(&(state.0 * 7).to_le_bytes());
        frames.make(
            0,
            8,
            Head {
                sequence: state.0,
                ..Head::default()
            },
        );
        state.0 += 1;
        if is_last {
            MADE.store(state.0, Relaxed);
            frames.end();
        }
        Ok(())
    }
}

#[derive(Serialize, Deserialize)]
struct Count(u64);

impl State for Count {
    const VERSION: u32 = 1;
}

/// What the environment says, which the processes of the pipeline inherit.
fn number(name: &str, usual: u64) -> u64 {
    std::env::var(name).map_or(usual, |number| number.parse().unwrap())
}

fn graph() -> Graph {
    let edge = EdgeSpec {
        slots: 14,
        frame_bytes: 8,
        full: WhenFull::Wait,
    };
    let stage = |name: &str| StageSpec::new(name).takes(&[1]).makes(&[1]).state(4096);
    Graph::builder("test")
        .stage(StageSpec::new("source").makes(&[1]).pinned())
        .stage(stage("first"))
        .stage(stage("second").save_every(3))
        .stage(StageSpec::new("sink").takes(&[1]).state(4096).pinned())
        .edge(("source", 0), ("first", 0), edge)
        .edge(("first", 0), ("second", 0), edge)
        .edge(("second", 0), ("sink", 0), edge)
        .build()
        .unwrap()
}

fn body(name: &str) -> Option<Box<dyn AnyStage>> {
    match name {
        "source" => Some(erase(Source)),
        "first" | "second" => Some(erase(Adder { makes: true })),
        "sink" => Some(erase(Adder { makes: false })),
        _ => None,
    }
}

fn saved(body: &dyn AnyStage) -> Vec<u8> {
    let mut room = vec![0; 4096];
    let length = body.save(&mut room).unwrap();
    room.truncate(length);
    room
}

fn reference() -> Vec<u8> {
    let names = ["source", "first", "second", "sink"];
    let mut stages: Vec<_> = names.iter().map(|name| body(name).unwrap()).collect();
    run_serially(&graph(), &mut stages).unwrap();
    saved(stages[3].as_ref())
}

/// Runs the pipeline with `meddle` at work beside, and compares what came out.
fn run(case: &str, replicas: bool, spares: bool, mut meddle: impl FnMut(&Supervisor, u32) -> bool) -> Vec<Handover> {
    MADE.store(0, Relaxed);
    let pipeline = start();
    let start = Instant::now();
    let patient = |what: &str| {
        assert!(
            start.elapsed() < WAIT_MAX,
            "{case}: {what}: {:?}",
            pipeline.supervisor().stages()
        )
    };
    if replicas {
        wait_until("replicas", || pipeline.supervisor().keep_replicas(spares));
    }
    let mut source = pipeline.pinned("source").unwrap();
    let mut sink = pipeline.pinned("sink").unwrap();
    let source = std::thread::spawn(move || source.run(body("source").unwrap().as_mut()));
    let sink = std::thread::spawn(move || {
        let mut body = body("sink").unwrap();
        sink.run(body.as_mut()).map(|()| saved(body.as_ref()))
    });
    let mut handovers = Vec::new();
    for turn in 0.. {
        handovers.extend(pipeline.supervisor().handovers());
        if sink.is_finished() || !meddle(pipeline.supervisor(), turn) {
            PACED.store(false, Relaxed);
            break;
        }
        patient("the sink has not ended");
        // Between two turns of the meddling.
        std::thread::sleep(Duration::from_micros(500));
    }
    wait_until("the sink ends after the meddling", || sink.is_finished());
    source.join().unwrap().unwrap();
    let outcome = sink.join().unwrap().unwrap();
    let stages = pipeline.supervisor().stages();
    let processes: Vec<i32> = stages.iter().map(|stage| stage.pid).collect();
    handovers.extend(pipeline.supervisor().handovers());
    pipeline.end().unwrap_or_else(|why| panic!("{case}: {why}: {stages:?}"));
    assert_eq!(outcome, reference(), "{case}");
    // Process 1 reaps the orphans of a worker that was killed, sooner or later; in some containers never.
    let stat = |pid: &i32| std::fs::read_to_string(format!("/proc/{pid}/stat"));
    let is_left = |pid: &i32| *pid != 0 && stat(pid).is_ok_and(|stat| !stat.contains(") Z "));
    wait_until("no process is left", || !processes.iter().any(is_left));
    println!("{case}: ok, {} hand-overs", handovers.len());
    handovers
}

fn start() -> Pipeline {
    // A process that a busy machine puts off in the middle of a step would be taken for one that hangs.
    let step_max = match std::env::var_os(HANGS) {
        Some(_) => Nanos::from_millis(500),
        None => Nanos::from_secs(60),
    };
    let options = PipelineOptions {
        step_max: Some(step_max),
        ..PipelineOptions::default()
    };
    Pipeline::start(graph(), &options, Arc::new(body)).unwrap()
}

/// Both stages are put on one core, again and again, and the policy takes one away. The worker that decides is
/// killed as soon as a move is under way: another one goes on.
fn the_coordinator_is_killed() {
    const MOVES: u64 = 6;
    let mut kills = 0;
    PACED.store(true, Relaxed);
    let mut seen = None;
    run("the coordinator is killed", true, false, |supervisor, turn| {
        let cores = supervisor.cores();
        if cores.len() < 2 {
            return false;
        }
        if turn == 0 {
            supervisor.set_hold(Nanos::ZERO).unwrap();
            supervisor.set_period(Nanos::from_millis(10)).unwrap();
            supervisor.set_policy(MappingPolicy::Balance).unwrap();
        }
        let at: Vec<_> = supervisor.stages().iter().filter_map(|stage| stage.core).collect();
        let under_way = |name| supervisor.is_under_way(name).unwrap();
        let moving = under_way("first") || under_way("second");
        if let Some(now) = supervisor.coordinator() {
            let before = seen.unwrap_or(now);
            assert!(
                now.epoch >= before.epoch && now.moves >= before.moves,
                "{now:?} after {before:?}"
            );
            // In the middle of the policy's move, or right after it.
            if now.moves > before.moves && now.moves % 2 == 1 {
                kills += u64::from(supervisor.kill_worker(now.number));
            }
            seen = Some(now);
        }
        if at[0] != at[1] && !moving {
            let _ = supervisor.move_stage("first", at[1], Mechanism::Announced);
        }
        seen.is_none_or(|now| now.moves < MOVES || kills == 0 || now.epoch <= kills)
    });
    if let Some(last) = seen {
        assert!(kills > 0 && last.epoch > kills, "{kills} kills, {last:?}");
    }
}

pub fn main() {
    // In the processes of a pipeline, this serves.
    drop(start());
    run("nothing happens", false, false, |_, _| true);
    let kills = number("PUNCTUAL_TEST_KILLS", KILLS);
    let (mut killed, mut before) = (0, [0; 2]);
    PACED.store(true, Relaxed);
    run("processes are killed", true, true, |supervisor, turn| {
        let place = turn as usize % 2;
        // Killed again and again before it does anything, a stage would be given up.
        let steps = supervisor.stages()[1 + place].steps;
        if steps > before[place] {
            killed += u64::from(supervisor.kill(["first", "second"][place]).unwrap());
            before[place] = steps;
        }
        killed < kills
    });
    assert!(killed > 0, "no process was killed");
    for mechanism in Mechanism::ALL {
        run(
            mechanism.name(),
            mechanism != Mechanism::Recreate,
            false,
            |supervisor, turn| {
                let cores = supervisor.cores();
                let name = ["first", "second"][turn as usize % 2];
                let core = cores[turn as usize / 2 % cores.len()];
                // Busy, or not ready: the next turn tries again.
                let _ = supervisor.move_stage(name, core, mechanism);
                turn < 300
            },
        );
    }
    the_coordinator_is_killed();
    let own = std::env::current_exe().unwrap();
    let mut replaced = 0;
    PACED.store(true, Relaxed);
    run("a new version takes over", false, false, |supervisor, _| {
        replaced += u32::from(supervisor.replace("first", &own).is_ok());
        replaced < 20
    });
    assert!(replaced > 0, "no version took over");
    // One that ends at once, one that cannot be executed, one that never gets ready: the old one goes on.
    let folder = tempfile::tempdir().unwrap();
    let idle = folder.path().join("never-ready");
    std::fs::write(&idle, "#!/bin/sh\nexec sleep 1000\n").unwrap();
    std::fs::set_permissions(&idle, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    for broken in [
        Path::new("/bin/false"),
        Path::new("/bin/true"),
        Path::new("/nowhere"),
        &idle,
    ] {
        let handovers = run(
            &format!("{} does not take over", broken.display()),
            false,
            false,
            |supervisor, turn| {
                let _ = supervisor.replace("second", broken);
                turn < 100
            },
        );
        assert_eq!(
            handovers.iter().filter(|it| it.cause != Cause::Began).count(),
            0,
            "{broken:?}"
        );
    }
    a_refusal_stays(&folder);
    is_started_once_it_is_written(&folder);
    run("workers are killed", true, false, |supervisor, turn| {
        let cores = supervisor.cores();
        let _ = supervisor.move_stage("first", cores[turn as usize / 7 % cores.len()], Mechanism::Announced);
        if turn % 40 == 20 {
            supervisor.kill_worker(turn as usize / 40 % cores.len());
        }
        turn < 400
    });
    planted_kills();
    a_death_in_a_handover_is_logged_as_one();
    hangs(&folder);
    stays_of_its_version(&folder);
    goes_back(&folder);
}

/// A kill at each point at which a process of a hand-over can die, by each mechanism.
fn planted_kills() {
    for point in Point::ALL {
        let mut happened = 0;
        for mechanism in Mechanism::ALL {
            // The last mechanism goes on until the point is met.
            let is_last = mechanism == Mechanism::RecreateAhead;
            PACED.store(is_last, Relaxed);
            let mut planted = false;
            run(
                &format!("kills at {point:?}, {}", mechanism.name()),
                mechanism != Mechanism::Recreate,
                false,
                |supervisor, turn| {
                    happened += u32::from(planted && !supervisor.has_planted_kill());
                    planted = supervisor.has_planted_kill();
                    let cores = supervisor.cores();
                    let name = ["first", "second"][turn as usize % 2];
                    match turn % 20 {
                        5 => {
                            supervisor.plant_kill(point);
                            planted = true;
                        }
                        // Points of a worker are met where a process dies.
                        15 => drop(supervisor.kill(name)),
                        _ => {}
                    }
                    // Busy, or not ready: the next turn tries again.
                    let _ = supervisor.move_stage(name, cores[turn as usize / 2 % cores.len()], mechanism);
                    turn < 100 || is_last && happened == 0
                },
            );
        }
        println!("kills at {point:?}: {happened}");
        assert!(happened > 0, "{point:?} was never met");
    }
}

/// The owner dies as it yields; the next one dies before it has logged that it has the stage.
fn a_death_in_a_handover_is_logged_as_one() {
    for point in [Point::Asked, Point::Taken] {
        let (mut asked, mut dead) = (false, None);
        PACED.store(true, Relaxed);
        let handovers = run(&format!("one kill at {point:?}"), true, false, |supervisor, _| {
            let cores = supervisor.cores();
            let first = supervisor.stages().swap_remove(1);
            if !asked && first.steps > 0 {
                supervisor.plant_kill(point);
                let to = cores.iter().find(|core| first.core != Some(**core));
                asked = to.is_none_or(|to| supervisor.move_stage("first", *to, Mechanism::Replica).is_ok());
            }
            if first.restarts > 0 {
                dead.get_or_insert(first.steps);
            }
            cores.len() > 1 && dead.is_none_or(|steps| first.steps == steps)
        });
        let causes = handovers.iter().filter(|it| it.stage == 1 && it.cause != Cause::Began);
        let causes: Vec<Cause> = causes.map(|it| it.cause).collect();
        assert!(
            causes.iter().all(|cause| *cause == Cause::Died),
            "{point:?}: {causes:?}"
        );
    }
}

/// A step that does not end is killed, and done again.
fn hangs(folder: &tempfile::TempDir) {
    let file = folder.path().join("hangs");
    std::fs::write(&file, "").unwrap();
    // SAFETY: no other thread runs between two cases.
    unsafe { std::env::set_var(HANGS, &file) };
    PACED.store(true, Relaxed);
    // Once, or more often where the machine puts a process off for as long. Frames go on until then.
    let mut hung = 0;
    run("a step hangs", false, false, |supervisor, _| {
        hung = supervisor.stages().iter().map(|stage| stage.hung).sum();
        hung == 0
    });
    // SAFETY: as above.
    unsafe { std::env::remove_var(HANGS) };
    assert!(!file.exists() && hung >= 1, "the step that hung was killed");
}

fn runs_program(supervisor: &Supervisor, name: &str) -> Option<PathBuf> {
    let stage = supervisor
        .stages()
        .into_iter()
        .find(|stage| stage.name == name)
        .unwrap();
    std::fs::read_link(format!("/proc/{}/exe", stage.pid)).ok()
}

/// A refusal that was reported stays until the next request.
fn a_refusal_stays(folder: &tempfile::TempDir) {
    let none = folder.path().join("no-program");
    std::fs::write(&none, "").unwrap();
    let (mut reported, mut kept) = (None, None);
    PACED.store(true, Relaxed);
    run("no program does not start", false, false, |supervisor, _| {
        if let Err(MoveError::Refused(_, why)) = supervisor.replace("second", &none) {
            reported = Some(why);
            kept = supervisor.refusal("second").unwrap();
        }
        reported.is_none()
    });
    assert!(reported.is_some() && kept == reported, "{reported:?}, then {kept:?}");
}

/// A program that is still being written is no refusal.
fn is_started_once_it_is_written(folder: &tempfile::TempDir) {
    let written = program(folder, "written");
    let mut writer = Some(std::fs::OpenOptions::new().append(true).open(&written).unwrap());
    let (mut refused, mut is_replaced) = (None, false);
    PACED.store(true, Relaxed);
    run("a program is written", false, false, |supervisor, turn| {
        if turn == 100 {
            drop(writer.take());
        }
        match supervisor.replace("second", &written) {
            Err(MoveError::Refused(_, why)) => refused = Some(why),
            answer => is_replaced = answer.is_ok(),
        }
        refused.is_none() && !is_replaced
    });
    assert_eq!(refused, None);
    assert!(is_replaced);
}

fn program(folder: &tempfile::TempDir, name: &str) -> PathBuf {
    let path = folder.path().join(name);
    std::fs::copy(std::env::current_exe().unwrap(), &path).unwrap();
    path.canonicalize().unwrap()
}

/// A stage of a new version is of that version after a move and after a death, too.
fn stays_of_its_version(folder: &tempfile::TempDir) {
    let next = program(folder, "next");
    let (mut asked, mut version, mut before) = (false, 0, 0);
    let mut seen = Vec::new();
    PACED.store(true, Relaxed);
    run("a new version stays", true, true, |supervisor, turn| {
        if !asked {
            asked = supervisor.replace("first", &next).is_ok();
            return true;
        }
        version = supervisor.stages()[1].version;
        if version == 0 {
            return true; // being replaced
        }
        // A process that is about to end, or to be executed, is of no program that counts.
        let under_way = supervisor.is_under_way("first").unwrap();
        if let Some(program) = runs_program(supervisor, "first").filter(|_| !under_way) {
            seen.push((supervisor.stages()[1].steps, program));
        }
        let cores = supervisor.cores();
        // Killed again and again before it does anything, the version would be given up.
        let steps = supervisor.stages()[1].steps;
        if turn % 10 == 5 && std::mem::replace(&mut before, steps) == steps {
            return true;
        }
        match turn % 20 {
            5 => drop(supervisor.kill("first")),
            10 => drop(supervisor.move_stage("first", cores[turn as usize / 20 % cores.len()], Mechanism::Announced)),
            15 => drop(supervisor.kill_worker(turn as usize / 20 % cores.len())),
            _ => {}
        }
        turn < 300 || seen.len() <= 10
    });
    assert_eq!(version, 1);
    assert!(seen.len() > 10, "{} looks", seen.len());
    let others: Vec<_> = seen.iter().filter(|(_, program)| *program != next).collect();
    assert!(others.is_empty(), "{others:?}");
}

/// A version that dies before its first step is done gives way to the one before.
fn goes_back(folder: &tempfile::TempDir) {
    let dies = program(folder, DIES);
    let (mut asked, mut restarts, mut version) = (false, 0, 0);
    PACED.store(true, Relaxed);
    run("a version that dies gives way", false, false, |supervisor, _| {
        if !asked {
            asked = supervisor.replace("first", &dies).is_ok();
        }
        let stage = &supervisor.stages()[1];
        (restarts, version) = (stage.restarts, stage.version);
        restarts == 0 || version < 2
    });
    assert!(asked && restarts > 0, "{restarts} restarts");
    assert_eq!(version, 2, "the third version is the first one again");
}
