//! A run of the radio: source and sink are threads of this process; moves and kills come from a third.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::SyncSender;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use punctual_os::LinuxOs;
use punctual_pipelines::linux::{ClockHand, Handover, Pipeline, QueueNow, StageNow, StageStatistics, Supervisor};
use punctual_pipelines::{Head, erase};
use punctual_platform::KnobId;
use punctual_platform::linux::probe::{self, GapProbe};
use punctual_platform::linux::thread;
use punctual_radio::sound::Sound;
use punctual_radio::stages::Source;
use punctual_radio::{SINK, SOURCE, Spectrum};
use punctual_units::{Clock, CoreId, Hertz, Nanos, Time};

use super::orders::Execution;
use super::plan::RadioPlan;
use super::rate;
use super::seen::RadioFigures;
use super::sink::{self, DeliveredFrames, LEAD, Pace, Player, Wires};
use super::view::draw_spectrum;
use punctual_cli::pipeline::display::{Display, ViewRequest};
use punctual_cli::pipeline::planted_panic;
use punctual_cli::pipeline::shown::{Observer, SidePanel, Tone, ViewContent};
use punctual_files::failure::Failure;
use punctual_report::summary::count;
use punctual_report::terminal::FRAME;

/// Priority of the stages' processes (`SCHED_FIFO`), if permitted; source and sink have one more.
pub const PRIORITY: u8 = 40;
/// Bands of the displayed spectrum.
const BANDS: usize = 32;
/// Longest interval between looks, for changes of the rate by another process.
const LOOK: Duration = FRAME;

/// Guard of a thread: when the thread ends in any way, its drop sets a flag and notifies the run.
struct EndNotice {
    ended: Arc<AtomicBool>,
    asks: SyncSender<ViewRequest>,
}

impl Drop for EndNotice {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Release);
        // If the queue is full, the run looks anyway.
        let _ = self.asks.try_send(ViewRequest::Look);
    }
}

/// Result of a run.
pub struct RadioResult {
    pub delivered: DeliveredFrames,
    pub offered: u64,
    pub queues: Vec<QueueNow>,
    pub handovers: Vec<Handover>,
    pub migrations: u64,
    pub kills: u64,
    pub upgrades: u64,
    /// Moves requested by the policy.
    pub policy_moves: u64,
    /// Clocks set at the end; empty if none was.
    pub clocks: Vec<(KnobId, Hertz)>,
    pub stages: Vec<StageNow>,
    pub measured: Vec<StageStatistics>,
    pub cores: Vec<CoreId>,
    /// Figures for a page, if one was requested.
    pub seen: Option<RadioFigures>,
    pub seconds: f64,
    /// Whether the user ended the run.
    pub stopped: bool,
    /// Refusals of the machine, once each.
    pub refused: Vec<String>,
    /// Why the run ended early: a stage that could not go on, or a recording that broke off.
    pub failed: Option<String>,
}

/// Plays the recording to its end, or until the user asks to stop.
///
/// # Errors
/// [`Failure::Input`] if the recording cannot be read, or the sound cannot be written. A stage that cannot continue
/// ends the run early: see [`RadioResult::failed`].
pub fn play(plan: &RadioPlan, pipeline: Pipeline, display: &Display) -> Result<RadioResult, Failure> {
    let failed = |why: String| Failure::of(why);
    let wires = Arc::new(Wires::new(plan.period, Spectrum::SAMPLES));
    let sound = sink::open(plan.wav.as_deref(), &wires.stop)?;
    let supervisor = pipeline.supervisor();
    let cores = supervisor.cores();
    if plan.orders.migrate_every.is_some() || plan.orders.kill_every.is_some() {
        prepare(supervisor, plan.orders.kill_every.is_some());
    }
    let (probes, mut refused) = probes(&cores);
    let hand = pipeline.clocks();
    let lacks = match &hand {
        Some(Err(refusal)) => Some(refusal.clone()),
        _ => supervisor.lacks(),
    };
    refused.extend(lacks.map(|refusal| refusal.to_string()));

    let begin = Instant::now();
    let feeding = feed(plan, &pipeline, &wires)?;
    let played = Arc::new(AtomicBool::new(false));
    let ending = EndNotice {
        ended: Arc::clone(&played),
        asks: display.asks.clone(),
    };
    let playing = start_player(plan, &pipeline, &wires, probes, sound, ending)?;
    let (mut execution, mut observer) = (Execution::new(&plan.orders, supervisor), Observer::default());
    let (mut frames, mut bands) = (0, Spectrum::new(BANDS));
    let mut seen = plan.records.then(|| RadioFigures::new(&cores));
    while !played.load(Ordering::Acquire) && supervisor.runs() {
        if display.stop.load(Ordering::Acquire) {
            wires.stop.store(true, Ordering::Release);
        }
        let handovers = execution.look(supervisor);
        if let Some(seen) = &mut seen {
            seen.look(supervisor, &wires, &handovers);
        }
        follow(supervisor, &wires);
        if display.live && observer.last().elapsed() >= FRAME {
            planted_panic("run");
            let (shown, seconds) = observer.look(supervisor, &execution.meddler);
            let all = wires.counts().frames;
            let played = all.saturating_sub(std::mem::replace(&mut frames, all));
            let spectrum = measured_bands(&mut bands, &wires);
            display.show(ViewContent {
                side: Some(SidePanel {
                    values: spectrum,
                    draw: draw_spectrum,
                }),
                ..with_sound(shown, plan, &wires, played as f64 / seconds)
            });
        }
        let picture = display.live.then(|| FRAME.saturating_sub(observer.last().elapsed()));
        let page = seen.as_ref().map(|seen| seen.watched.due_in().into());
        let due = [picture, page, execution.due_in()].into_iter().flatten().min();
        let asked = display.wait(due.map_or(LOOK, |due| due.min(LOOK)));
        for asked in asked.into_iter().chain(std::iter::from_fn(|| display.asked())) {
            match asked {
                ViewRequest::Stage(wish) => execution.meddler.wish(wish),
                ViewRequest::Key(key) => change(key, plan, supervisor, &wires.pace),
                ViewRequest::Look => {}
            }
        }
    }
    let seconds = begin.elapsed().as_secs_f64();
    execution.fetch(supervisor);
    let (stages, queues) = (supervisor.stages(), supervisor.queues());
    let measured = supervisor.measure().stages;
    let policy_moves = supervisor.coordinator().map_or(0, |coordinator| coordinator.moves);
    let hand = hand.and_then(Result::ok);
    let refusal = hand.as_ref().and_then(ClockHand::refused);
    refused.extend(refusal.map(|refusal| refusal.to_string()));
    let clocks = hand.as_ref().map(ClockHand::set).unwrap_or_default();
    // If a stage cannot continue, the source's thread ends, too.
    let in_order = wires.stop.swap(true, Ordering::AcqRel);
    let ended = pipeline.end().err().map(|why| why.to_string());
    let joined = |thread: &str| failed(format!("the {thread}'s thread panicked"));
    let (offered, broken_off) = feeding.join().map_err(|_| joined("source"))?.map_err(failed)?;
    let delivered = playing.join().map_err(|_| joined("sink"))??;
    let stopped = display.stop.load(Ordering::Acquire);
    Ok(RadioResult {
        offered,
        queues,
        handovers: execution.handovers,
        migrations: execution.meddler.migrations,
        kills: execution.meddler.kills,
        upgrades: execution.meddler.upgrades,
        policy_moves,
        clocks,
        stages,
        measured,
        cores,
        seen,
        seconds,
        stopped: stopped && !delivered.reader_gone,
        delivered,
        refused,
        // Frames read before the recording broke off were played to the end.
        failed: ended.or(broken_off.filter(|_| !in_order)),
    })
}

/// Starts the sink's thread; `ending` reports its end.
fn start_player(
    plan: &RadioPlan,
    pipeline: &Pipeline,
    wires: &Arc<Wires>,
    probes: Vec<GapProbe>,
    sound: Option<Sound>,
    ending: EndNotice,
) -> Result<JoinHandle<Result<DeliveredFrames, Failure>>, Failure> {
    let sink = pipeline.pinned(SINK).map_err(Failure::of)?;
    let (live, keeps, wires) = (plan.is_live(), plan.keeps(), Arc::clone(wires));
    Ok(std::thread::spawn(move || {
        let _ending = ending;
        set_up();
        let player = Player {
            sink,
            wires: &wires,
            probes: &probes,
            live,
            keeps,
            due: None,
        };
        player.play(sound)
    }))
}

fn measured_bands(bands: &mut Spectrum, wires: &Wires) -> Vec<f32> {
    let mut powers = Vec::new();
    bands.measure(&wires.sound.latest(), &mut powers);
    powers
}

/// The live view of a pipeline, with the counts and the rate of the radio added.
fn with_sound(shown: ViewContent, plan: &RadioPlan, wires: &Wires, fps: f64) -> ViewContent {
    let counts = wires.counts();
    let by_gaps = format!("{} of them by gaps of the machine", count(counts.excused));
    let silences = format!("{} silences of the input", counts.stalls);
    let mut told = vec![
        (format!("{} frames", count(counts.frames)), Tone::Plain),
        (format!("{} late", count(counts.late)), Tone::bad(counts.late)),
        (by_gaps, Tone::Aside),
        (format!("{} twice", counts.duplicated), Tone::bad(counts.duplicated)),
    ];
    told.extend((counts.stalls > 0).then_some((silences, Tone::Warning)));
    let real = plan.real_period().as_secs_f64();
    let pace = match wires.pace.period().map(|period| real / period.as_secs_f64()) {
        None => "as fast as possible".to_string(),
        Some(rate) if (rate - 1.0).abs() < 1e-3 => "real time".to_string(),
        Some(rate) => format!("{rate:.3} times real time"),
    };
    ViewContent {
        title: plan.name().display().to_string(),
        pace: format!("{pace}, {fps:.0} frames/s"),
        counts: told,
        keys: Some(rate::KEYS),
        ..shown
    }
}

/// Requests the rate of a key; a rate out of range is refused, and the rate stays.
fn change(key: char, plan: &RadioPlan, supervisor: &Supervisor, pace: &Pace) {
    if let Some(period) = rate::after(key, plan.real_period(), pace.period()) {
        let _ = supervisor.set_rate(1.0 / period.as_secs_f64());
    }
}

/// Adopts the requested rate, of a key or of another process (`punctual pipeline set rate`), and the cores on which
/// stages run.
fn follow(supervisor: &Supervisor, wires: &Wires) {
    wires.stages_run_on(supervisor.stages().iter().filter_map(|stage| stage.core));
    let pace = &wires.pace;
    let asked = supervisor.rate().map(|rate| Nanos::from_secs_f64(1.0 / rate));
    if asked.is_some() && asked != pace.period() {
        pace.set(asked);
    }
}

/// Waits, at most 5 s, until processes that may take a stage over are ready.
fn prepare(supervisor: &Supervisor, spares: bool) {
    let start = Instant::now();
    while !supervisor.keep_replicas(spares) && start.elapsed() < Duration::from_secs(5) {
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Probes that detect gaps of the cores, and the reasons for missing ones.
fn probes(cores: &[CoreId]) -> (Vec<GapProbe>, Vec<String>) {
    let (probes, refused): (Vec<_>, Vec<_>) = { cores.iter() }
        .map(|core| GapProbe::start(*core, PRIORITY + 10, probe::PERIOD))
        .partition(Result::is_ok);
    let refused = refused.into_iter().filter_map(Result::err);
    let told = refused.map(|refusal| refusal.to_string()).collect();
    (probes.into_iter().flatten().collect(), told)
}

/// Number of frames from the source, and the reason why the recording broke off.
type FeedResult = Result<(u64, Option<String>), String>;

/// Starts to read the recording.
fn feed(plan: &RadioPlan, pipeline: &Pipeline, wires: &Arc<Wires>) -> Result<JoinHandle<FeedResult>, Failure> {
    let recording = plan.open(&wires.stop, &wires.input)?;
    let source = pipeline.pinned(SOURCE);
    let mut source = source.map_err(Failure::of)?;
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

/// Real-time priority for source and sink, if permitted; a refusal was already reported by the probes.
fn set_up() {
    let _ = punctual_os::linux::thread::real_time(PRIORITY + 1);
    let _ = thread::pin_to(&thread::allowed_cores());
}

/// Sets the due time of frames: `LEAD` after the capture for the first frame, then a period after the previous one;
/// for a live input that was silent meanwhile, `LEAD` after the frame's own capture.
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
