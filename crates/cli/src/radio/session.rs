//! One run of the radio: source and sink in this process, moves and kills beside.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use punctual_os::LinuxOs;
use punctual_pipeline::{Head, Turn, erase};
use punctual_platform::linux::probe::{self, GapProbe};
use punctual_platform::linux::thread;
use punctual_radio::sound::{Fingerprint, Sound};
use punctual_radio::stages::{Sink, Source};
use punctual_radio::{AUDIO_RATE, SINK, SOURCE};
use punctual_runtime::linux::pipeline::{Handover, Pinned, Pipeline, StageNow, Supervisor};
use punctual_units::{Clock, CoreId, Nanos, Time};

use super::plan::Plan;
use crate::failure::Failure;

/// The priority of the stages' processes (`SCHED_FIFO`), where it is allowed; source and sink have one more.
pub const PRIORITY: u8 = 40;
/// From the first frame's capture until it is due: queues are full by then.
const LEAD: Nanos = Nanos::from_millis(200);
/// Samples of sound that are kept: ten minutes. A radio may play for a year.
const SOUND_MAX: usize = 600 * AUDIO_RATE as usize;
/// Hand-overs that the report's figures are of, the first ones.
const HANDOVERS_MAX: usize = 500_000;
/// How often moves and kills are looked for.
const LOOK: Duration = Duration::from_micros(200);

/// What the sink got.
#[derive(Clone, Debug, Default)]
pub struct Delivered {
    /// Its beginning, to be compared with the true one.
    pub sound: Vec<f32>,
    /// Of all of it.
    pub fingerprint: Fingerprint,
    /// Of the last frame, until it is written.
    fresh: Vec<f32>,
    pub frames: u64,
    pub lost: u64,
    pub duplicated: u64,
    pub late: u64,
    /// Late frames that a gap of the machine explains.
    pub excused: u64,
    /// The fewest frames in the last queue when one was due.
    pub queue_least: Option<u64>,
}

/// What came of a run.
#[derive(Debug)]
pub struct Heard {
    pub delivered: Delivered,
    pub offered: u64,
    pub handovers: Vec<Handover>,
    pub migrations: u64,
    pub kills: u64,
    pub upgrades: u64,
    pub stages: Vec<StageNow>,
    pub cores: Vec<CoreId>,
    pub seconds: f64,
    /// What the machine refused, once each.
    pub refused: Vec<String>,
}

/// Plays the recording to its end.
///
/// # Errors
/// [`Failure::Input`] where the recording cannot be read or a stage cannot go on.
pub fn play(plan: &Plan, pipeline: Pipeline) -> Result<Heard, Failure> {
    let recording = plan.open()?;
    let failed = |why: String| Failure::input([why]);
    let supervisor = pipeline.supervisor();
    let cores = supervisor.cores();
    if plan.migrate_every.is_some() || plan.kill_every.is_some() {
        let (start, spares) = (Instant::now(), plan.kill_every.is_some());
        while !supervisor.keep_replicas(spares) && start.elapsed() < Duration::from_secs(5) {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    let (probes, refused): (Vec<_>, Vec<_>) = { cores.iter() }
        .map(|core| GapProbe::start(*core, PRIORITY + 10, probe::PERIOD))
        .partition(Result::is_ok);
    let probes: Vec<GapProbe> = probes.into_iter().flatten().collect();
    let refused = refused
        .into_iter()
        .filter_map(Result::err)
        .map(|refusal| refusal.to_string());

    let begin = Instant::now();
    let first = Arc::new(OnceLock::new());
    let mut source = pipeline.pinned(SOURCE).map_err(|why| failed(why.to_string()))?;
    let sink = pipeline.pinned(SINK).map_err(|why| failed(why.to_string()))?;
    let stamp = stamper(plan, &first);
    let radio = plan.radio.clone();
    let feeding = std::thread::spawn(move || {
        set_up();
        let broken_off = Rc::new(RefCell::new(None));
        let told = Rc::clone(&broken_off);
        let body = Source::new(recording, &radio, stamp).ending(move |why| *told.borrow_mut() = Some(why.to_string()));
        let ran = source.run(erase(body).as_mut());
        ran.map(|()| (source.made(0), broken_off.take()))
    });
    let (period, wav) = (plan.period, plan.wav.clone());
    let playing = std::thread::spawn(move || {
        set_up();
        deliver(sink, &first, period, wav.as_deref(), &probes)
    });
    let mut meddler = Meddler::new(plan, supervisor);
    while !playing.is_finished() && supervisor.runs() {
        meddler.look(supervisor);
        std::thread::sleep(LOOK);
    }
    let seconds = begin.elapsed().as_secs_f64();
    meddler.fetch(supervisor);
    let stages = supervisor.stages();
    pipeline.end().map_err(|why| failed(why.to_string()))?;
    let fed = feeding
        .join()
        .map_err(|_| failed("the source's thread panicked".into()))?;
    let (offered, broken_off) = fed.map_err(|why| failed(why.to_string()))?;
    let delivered = playing
        .join()
        .map_err(|_| failed("the sink's thread panicked".into()))??;
    // What was read before has been heard to its end.
    if let Some(why) = broken_off {
        return Err(failed(why));
    }
    Ok(Heard {
        offered,
        delivered,
        handovers: meddler.handovers,
        migrations: meddler.migrations,
        kills: meddler.kills,
        upgrades: meddler.upgrades,
        stages,
        cores,
        seconds,
        refused: refused.collect(),
    })
}

/// Real time for the two ends, where that is allowed: the machine's refusal was told by the probes.
fn set_up() {
    let _ = punctual_os::linux::thread::real_time(PRIORITY + 1);
    let _ = thread::pin_to(&thread::allowed_cores());
}

/// Stamps frames: captured now, due a while after the first frame's capture.
fn stamper(plan: &Plan, first: &Arc<OnceLock<Time>>) -> impl FnMut(u64) -> Head + Send + 'static {
    let (period, first) = (plan.period.unwrap_or(Nanos::ZERO), Arc::clone(first));
    let clock = LinuxOs;
    move |sequence| {
        let captured_at = clock.now();
        let begin = *first.get_or_init(|| captured_at);
        Head {
            sequence,
            captured_at,
            due_by: due(begin, period, sequence),
        }
    }
}

fn due(begin: Time, period: Nanos, sequence: u64) -> Time {
    Time(begin.0 + LEAD.0 + period.0 * sequence)
}

/// Takes a frame at each due time.
fn deliver(
    mut sink: Pinned,
    first: &OnceLock<Time>,
    period: Option<Nanos>,
    wav: Option<&std::path::Path>,
    probes: &[GapProbe],
) -> Result<Delivered, Failure> {
    let failed = |why: String| Failure::input([why]);
    let mut sound = wav
        .map(Sound::create)
        .transpose()
        .map_err(|why| failed(why.to_string()))?;
    let shared = Arc::new(std::sync::Mutex::new((Delivered::default(), 0u64)));
    let kept = Arc::clone(&shared);
    let mut body = erase(Sink::new(move |head: Head, samples: &[f32]| {
        let mut kept = kept.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let (delivered, next) = &mut *kept;
        delivered.frames += 1;
        delivered.lost += head.sequence.saturating_sub(*next);
        delivered.duplicated += u64::from(head.sequence < *next);
        *next = (*next).max(head.sequence + 1);
        delivered.fingerprint.add(samples);
        delivered.fresh.extend_from_slice(samples);
        if delivered.sound.len() < SOUND_MAX {
            delivered.sound.extend_from_slice(samples);
        }
        Ok(())
    }));
    let clock = LinuxOs;
    let (mut late, mut excused, mut least) = (0, 0, None::<u64>);
    for number in 0u64.. {
        let due = match (period, first.get()) {
            (Some(period), Some(begin)) => Some(due(*begin, period, number)),
            _ => None,
        };
        if let Some(due) = due {
            clock.sleep_until(due);
            let level = sink.waiting(0);
            if !sink.is_last(0) {
                least = Some(least.map_or(level, |least| least.min(level)));
            }
        }
        let mut was_late = false;
        let ended = loop {
            let heard = sink.heard();
            match sink.turn(body.as_mut()) {
                Turn::Stepped => break false,
                Turn::Wait => {
                    was_late |= due.is_some();
                    sink.wait(heard, None);
                }
                Turn::Ended | Turn::ShutOut => break true,
                Turn::Failed(why) => return Err(failed(why.to_string())),
            }
        };
        if ended {
            break;
        }
        if let (true, Some(due)) = (was_late, due) {
            late += 1;
            let overrun = sink.now().since(due);
            let gap = |probe: &GapProbe| probe.longest_gap(Time(due.0.saturating_sub(LEAD.0)), sink.now());
            excused += u64::from(probes.iter().any(|probe| gap(probe) >= overrun));
        }
        let mut kept = shared.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if let Some(sound) = &mut sound {
            let written = sound.write(&kept.0.fresh);
            written.map_err(|why| failed(why.to_string()))?;
        }
        kept.0.fresh.clear();
    }
    if let Some(sound) = sound {
        sound.finish().map_err(|why| failed(why.to_string()))?;
    }
    let kept = shared.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    Ok(Delivered {
        late,
        excused,
        queue_least: least,
        ..kept.0.clone()
    })
}

/// Moves and kills stages, as often as it is asked to.
struct Meddler {
    plan: Plan,
    cores: Vec<CoreId>,
    begin: Instant,
    next_move: Duration,
    next_kill: Duration,
    draw: u64,
    migrations: u64,
    kills: u64,
    /// Stages that are to be replaced yet.
    to_upgrade: Vec<String>,
    upgrades: u64,
    handovers: Vec<Handover>,
}

impl Meddler {
    fn new(plan: &Plan, supervisor: &Supervisor) -> Meddler {
        let migratable = supervisor.stages().into_iter().filter(|stage| stage.core.is_some());
        let names = migratable.map(|stage| stage.name).collect();
        Meddler {
            plan: plan.clone(),
            cores: supervisor.cores(),
            begin: Instant::now(),
            next_move: plan.migrate_every.unwrap_or(Duration::MAX),
            next_kill: plan.kill_every.unwrap_or(Duration::MAX),
            draw: plan.seed,
            migrations: 0,
            kills: 0,
            to_upgrade: names,
            upgrades: 0,
            handovers: Vec::new(),
        }
    }

    fn look(&mut self, supervisor: &Supervisor) {
        self.fetch(supervisor);
        let elapsed = self.begin.elapsed();
        if self.plan.upgrade_at.is_some_and(|at| elapsed >= at) {
            // One after the other; one that is not ready is asked for again.
            if let Some(name) = self.to_upgrade.last()
                && supervisor.replace(name, &self.plan.upgrade_to).is_ok()
            {
                self.to_upgrade.pop();
                self.upgrades += 1;
            }
        }
        if let Some(every) = self.plan.kill_every.filter(|_| elapsed >= self.next_kill) {
            self.next_kill = elapsed + every;
            if let Some(stage) = self.drawn(supervisor) {
                self.kills += u64::from(supervisor.kill(&stage.name).unwrap_or(false));
            }
        }
        if let Some(every) = self.plan.migrate_every.filter(|_| elapsed >= self.next_move) {
            // One that cannot be moved now is asked for at the next look: it is being handed over, or starts again.
            let moved = self.drawn(supervisor).is_some_and(|stage| {
                let elsewhere: Vec<CoreId> = self
                    .cores
                    .iter()
                    .copied()
                    .filter(|core| Some(*core) != stage.core)
                    .collect();
                let target = elsewhere.get(self.number(elsewhere.len())).copied();
                target.is_some_and(|core| supervisor.move_stage(&stage.name, core, self.plan.mechanism).is_ok())
            });
            if moved {
                self.next_move = (self.next_move + every).max(elapsed.saturating_sub(every));
                self.migrations += 1;
            }
        }
    }

    fn fetch(&mut self, supervisor: &Supervisor) {
        let room = HANDOVERS_MAX - self.handovers.len();
        self.handovers.extend(supervisor.handovers().into_iter().take(room));
    }

    fn drawn(&mut self, supervisor: &Supervisor) -> Option<StageNow> {
        let mut stages = supervisor.stages();
        stages.retain(|stage| stage.core.is_some());
        let number = self.number(stages.len());
        stages.into_iter().nth(number)
    }

    /// A number below `below`, drawn from the seed (the multiplier is Knuth's: The Art of Computer Programming, section
    /// 3.3.4).
    fn number(&mut self, below: usize) -> usize {
        self.draw = self
            .draw
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.draw >> 33) as usize % below.max(1)
    }
}
