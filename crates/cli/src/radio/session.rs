//! One run of the radio: source and sink in this process, moves and kills beside.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use punctual_os::LinuxOs;
use punctual_pipeline::{Head, erase};
use punctual_platform::linux::probe::{self, GapProbe};
use punctual_platform::linux::thread;
use punctual_radio::stages::Source;
use punctual_radio::{SINK, SOURCE, Spectrum};
use punctual_runtime::linux::pipeline::{Handover, Pipeline, QueueNow, StageNow, StageStatistics, Supervisor};
use punctual_units::{Clock, CoreId, Nanos, Time};

use super::display::{Asked, Display};
use super::meddler::Meddler;
use super::plan::Plan;
use super::seen::Seen;
use super::shown::Observer;
use super::sink::{self, Delivered, LEAD, Pace, Player, Wires};
use crate::failure::Failure;
use crate::terminal::FRAME;

/// The priority of the stages' processes (`SCHED_FIFO`), where it is allowed; source and sink have one more.
pub const PRIORITY: u8 = 40;
/// How often moves and kills are looked for.
const LOOK: Duration = Duration::from_micros(200);

/// What came of a run.
pub struct Heard {
    pub delivered: Delivered,
    pub offered: u64,
    pub queues: Vec<QueueNow>,
    pub handovers: Vec<Handover>,
    pub migrations: u64,
    pub kills: u64,
    pub upgrades: u64,
    /// Moves that the policy has had made.
    pub policy_moves: u64,
    pub stages: Vec<StageNow>,
    pub measured: Vec<StageStatistics>,
    pub cores: Vec<CoreId>,
    /// For a page, where one is asked for.
    pub seen: Option<Seen>,
    pub seconds: f64,
    /// The user has ended it.
    pub stopped: bool,
    /// What the machine refused, once each.
    pub refused: Vec<String>,
}

/// Plays the recording to its end, or until the user wants the end.
///
/// # Errors
/// [`Failure::Input`] where the recording cannot be read or a stage cannot go on.
pub fn play(plan: &Plan, pipeline: Pipeline, display: &Display) -> Result<Heard, Failure> {
    let failed = |why: String| Failure::input([why]);
    let wires = Arc::new(Wires::new(plan.period, Spectrum::SAMPLES));
    let sound = sink::open(plan.wav.as_deref(), &wires.stop)?;
    let supervisor = pipeline.supervisor();
    let cores = supervisor.cores();
    if plan.migrate_every.is_some() || plan.kill_every.is_some() {
        prepare(supervisor, plan.kill_every.is_some());
    }
    let (probes, mut refused) = probes(&cores);
    refused.extend(supervisor.lacks().map(|refusal| refusal.to_string()));

    let begin = Instant::now();
    let feeding = feed(plan, &pipeline, &wires)?;
    let player = pipeline.pinned(SINK).map_err(|why| failed(why.to_string()))?;
    let (live, heard) = (plan.is_live(), Arc::clone(&wires));
    let playing = std::thread::spawn(move || {
        set_up();
        let (wires, probes) = (&*heard, probes.as_slice());
        Player {
            sink: player,
            wires,
            probes,
            live,
            due: None,
        }
        .play(sound)
    });
    let (mut meddler, mut observer) = (Meddler::new(plan, supervisor), Observer::new(plan));
    let mut seen = plan.records.then(|| Seen::new(&cores));
    while !playing.is_finished() && supervisor.runs() {
        if display.stop.load(Ordering::Acquire) {
            wires.stop.store(true, Ordering::Release);
        }
        let handovers = meddler.look(supervisor);
        if let Some(seen) = &mut seen {
            seen.look(supervisor, &wires, &handovers);
        }
        while let Some(asked) = display.asked() {
            match asked {
                Asked::Stage(wish) => meddler.wish(wish),
                Asked::Rate(rate) => {
                    let period = rate.of(plan, wires.pace.period());
                    // Where it is out of range, the rate stays.
                    let _ = supervisor.set_rate(1.0 / period.as_secs_f64());
                }
            }
        }
        follow(supervisor, &wires.pace);
        if display.live && observer.last().elapsed() >= FRAME {
            display.show(observer.look(supervisor, &meddler, &wires));
        }
        std::thread::sleep(LOOK);
    }
    let seconds = begin.elapsed().as_secs_f64();
    meddler.fetch(supervisor);
    let (stages, queues) = (supervisor.stages(), supervisor.queues());
    let measured = supervisor.statistics().stages;
    let policy_moves = supervisor.coordinator().map_or(0, |coordinator| coordinator.moves);
    // Where a stage cannot go on, the source's thread ends, too.
    let in_order = wires.stop.swap(true, Ordering::AcqRel);
    pipeline.end().map_err(|why| failed(why.to_string()))?;
    let joined = |thread: &str| failed(format!("the {thread}'s thread panicked"));
    let (offered, broken_off) = feeding.join().map_err(|_| joined("source"))?.map_err(failed)?;
    let delivered = playing.join().map_err(|_| joined("sink"))??;
    let stopped = display.stop.load(Ordering::Acquire);
    // What was read before has been heard to its end.
    if let Some(why) = broken_off.filter(|_| !in_order) {
        return Err(failed(why));
    }
    Ok(Heard {
        offered,
        queues,
        handovers: meddler.handovers,
        migrations: meddler.migrations,
        kills: meddler.kills,
        upgrades: meddler.upgrades,
        policy_moves,
        stages,
        measured,
        cores,
        seen,
        seconds,
        stopped: stopped && !delivered.reader_gone,
        delivered,
        refused,
    })
}

/// Plays at the rate that is asked for: by a key, or by another process (`punctual pipeline set rate`).
fn follow(supervisor: &Supervisor, pace: &Pace) {
    let asked = supervisor.rate().map(|rate| Nanos::from_secs_f64(1.0 / rate));
    if asked.is_some() && asked != pace.period() {
        pace.set(asked);
    }
}

/// Waits until processes that may have a stage next are there, for a while.
fn prepare(supervisor: &Supervisor, spares: bool) {
    let start = Instant::now();
    while !supervisor.keep_replicas(spares) && start.elapsed() < Duration::from_secs(5) {
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Probes that notice gaps of the cores, and why some are not there.
fn probes(cores: &[CoreId]) -> (Vec<GapProbe>, Vec<String>) {
    let (probes, refused): (Vec<_>, Vec<_>) = { cores.iter() }
        .map(|core| GapProbe::start(*core, PRIORITY + 10, probe::PERIOD))
        .partition(Result::is_ok);
    let refused = refused.into_iter().filter_map(Result::err);
    let told = refused.map(|refusal| refusal.to_string()).collect();
    (probes.into_iter().flatten().collect(), told)
}

/// What the source has made, and why the recording could not be read on.
type Fed = Result<(u64, Option<String>), String>;

/// Begins to read the recording.
fn feed(plan: &Plan, pipeline: &Pipeline, wires: &Arc<Wires>) -> Result<JoinHandle<Fed>, Failure> {
    let recording = plan.open(&wires.stop, &wires.input)?;
    let source = pipeline.pinned(SOURCE);
    let mut source = source.map_err(|why| Failure::input([why.to_string()]))?;
    let (radio, stamp) = (plan.radio.clone(), stamper(plan.is_live(), wires));
    Ok(std::thread::spawn(move || {
        set_up();
        let broken_off = Rc::new(RefCell::new(None));
        let told = Rc::clone(&broken_off);
        let body = Source::new(recording, &radio, stamp).ending(move |why| *told.borrow_mut() = Some(why.to_string()));
        let ran = source.run(erase(body).as_mut());
        ran.map(|()| (source.made(0), broken_off.take()))
            .map_err(|why| why.to_string())
    }))
}

/// Real time for the two ends, where that is allowed: the machine's refusal was told by the probes.
fn set_up() {
    let _ = punctual_os::linux::thread::real_time(PRIORITY + 1);
    let _ = thread::pin_to(&thread::allowed_cores());
}

/// Stamps frames: captured now, due a while after the first frame's capture, and a period after the one before; of a
/// live input that was silent meanwhile, a while after their own capture.
fn stamper(live: bool, wires: &Arc<Wires>) -> impl FnMut(u64) -> Head + Send + 'static {
    let (clock, wires) = (LinuxOs, Arc::clone(wires));
    let mut due = None;
    move |sequence| {
        let captured_at = clock.now();
        let anchored = Time(captured_at.0 + LEAD.0);
        let due_by = due.filter(|due| !live || captured_at <= *due).unwrap_or(anchored);
        due = Some(Time(due_by.0 + wires.pace.period().unwrap_or(Nanos::ZERO).0));
        Head {
            sequence,
            captured_at,
            due_by,
        }
    }
}
