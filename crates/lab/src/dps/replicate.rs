//! One seed: the same film, the same interactive side and the same flash for every run of the plan.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;

use crate::dual::{Report, computes, simulate};
use punctual_sim::media::{Device, Medium};
use punctual_sim::{Jobs, Release, Step, Task};
use punctual_units::{Nanos, Time};
use punctual_workload::{Active, JobOutcome};

use super::decide::{Decision, decide};
use super::plan::{Planned, Source};
use super::rehearsal::rehearse;
use super::setting::LIMIT;
use super::{Ground, film, interactive};
use crate::samples::Run;

/// Columns of every frame: when it was done and how long it waited for a core (switches to it included) and for its
/// medium (all as shares of the period), whether it missed its deadline (0 or 1), and how many requests it made.
pub const FRAME_SERIES: [&str; 5] = ["completion", "missed", "waited", "io", "requests"];
/// Columns of one sample each. Shares of all cores' time: jobs computing (`utilisation`), of them the interactive
/// side's (`interactive`), `polling`, `switching`, `idle`. Of the flash: the share of time spent `collecting` garbage,
/// and the write `amplification`. `played`: the run's length in seconds. `granted`: whether the player had an exclusive
/// core (0 or 1). Of what admission was asked, where it was: the `longest` read of the rehearsal in milliseconds, and
/// the execution time `demanded` for a frame as a share of the period.
pub const RUN_SERIES: [&str; 11] = [
    "utilisation",
    "interactive",
    "polling",
    "switching",
    "idle",
    "collecting",
    "amplification",
    "played",
    "granted",
    "longest",
    "demanded",
];

/// The player reads from this device...
pub(super) const PLAYERS: usize = 0;
/// ...and the interactive side from this one, where it is another.
const OTHERS: usize = 1;
/// The seed of what happens before the film, which is not what happens during it.
const REHEARSAL: u64 = 1 << 32;

/// One seed on one machine.
#[derive(Clone, Debug)]
pub struct Place<'g> {
    ground: &'g Ground,
    /// The seed.
    pub seed: u64,
    /// Aged once, and copied for each run.
    flash: Device,
    others: Vec<Task>,
    rehearsing: Vec<Task>,
}

impl<'g> Place<'g> {
    /// The same surroundings for every run with this seed.
    pub fn new(ground: &'g Ground, seed: u64) -> Place<'g> {
        let (media, jobs) = (&ground.media, ground.play.jobs);
        let pages = media.flash.geometry().logical_pages;
        Place {
            ground,
            seed,
            flash: Device::new(&Medium::Flash(media.flash), media.page_bytes, seed),
            others: interactive::tasks(jobs, OTHERS, pages, seed),
            rehearsing: interactive::tasks(jobs, OTHERS, pages, seed ^ REHEARSAL),
        }
    }

    /// Carries out one run of the plan.
    ///
    /// # Errors
    /// What failed, in words.
    pub fn run(&self, planned: &Planned) -> Result<Run, String> {
        let Ground { machine, play, .. } = self.ground;
        let failed = |error: &dyn std::fmt::Display| format!("seed {}: {:?}: {error}", self.seed, planned.labels());
        let player = self.player(planned);
        let rehearse = || {
            let devices = self.devices(planned.source, self.seed ^ REHEARSAL);
            rehearse(
                machine,
                play.period,
                of_source(&self.rehearsing, planned.source),
                devices,
            )
        };
        let decision = decide(planned, machine, &player, rehearse).map_err(|error| failed(&error))?;
        let others = of_source(&self.others, planned.source);
        let requests = requests(&player);
        let tasks: Vec<Task> = std::iter::once(player).chain(others).collect();
        let devices = self.devices(planned.source, self.seed);
        let report = simulate(machine, &decision.management, &tasks, devices, Time::ZERO + LIMIT);
        let report = report.map_err(|error| failed(&error))?;
        if report.unfinished > 0 {
            return Err(failed(&format!(
                "{} frames were not shown within {LIMIT}",
                report.unfinished
            )));
        }
        Ok(Run {
            labels: planned.labels(),
            settled_from: 0,
            series: series(&report, play.period, &requests, &decision, planned.source),
        })
    }

    fn player(&self, planned: &Planned) -> Task {
        let pages = planned.cache.saturating_mul(self.ground.machine.cache_step_pages) as usize;
        let cache = NonZeroUsize::new(pages).unwrap_or(NonZeroUsize::MIN);
        let frames = film::frames(&self.ground.play, planned.film, self.ground.media.page_bytes, self.seed);
        // The interactive side has begun, and quanta are anywhere.
        let first = Time::ZERO + Nanos::from_millis(50);
        let jobs = film::jobs(&frames, cache, planned.ahead, PLAYERS);
        played("player", first, self.ground.play.period, jobs)
    }

    /// The player's, and that of the others.
    fn devices(&self, source: Source, seed: u64) -> Vec<Device> {
        let media = &self.ground.media;
        let of = |medium| Device::new(&medium, media.page_bytes, seed);
        let players = match source {
            Source::Pcm => of(Medium::Memory(media.pcm)),
            Source::Hdd => of(Medium::Disk(media.hdd)),
            Source::Flash => self.flash.clone(),
        };
        vec![players, self.flash.clone()]
    }
}

/// A real-time task that is due when its period ends, and does not catch up.
pub(super) fn played(name: &str, first: Time, period: Nanos, jobs: Vec<Vec<Step>>) -> Task {
    Task {
        name: name.into(),
        deadline: Some(period),
        release: Release::Paced { first, period },
        active: Active::ALWAYS,
        core: None,
        jobs: Jobs::Once(jobs),
        program: None,
        backlog_max: 0,
    }
}

/// How many requests each job of `player` makes.
fn requests(player: &Task) -> Vec<usize> {
    let of = |steps: &Vec<Step>| steps.iter().filter(|step| computes(step).is_none()).count();
    player.jobs.lists().iter().map(of).collect()
}

/// The interactive side; there is one flash device, which a player that reads from flash shares with it.
fn of_source(others: &[Task], source: Source) -> Vec<Task> {
    let mut others = others.to_vec();
    if source == Source::Flash {
        for task in &mut others {
            if let Jobs::Cycled(lists) = &mut task.jobs {
                lists.iter_mut().flatten().for_each(ask_players);
            }
        }
    }
    others
}

fn ask_players(step: &mut Step) {
    if let Step::Io { device, .. } = step {
        *device = PLAYERS;
    }
}

fn series(
    report: &Report,
    period: Nanos,
    requests: &[usize],
    decision: &Decision,
    source: Source,
) -> BTreeMap<String, Vec<Option<f64>>> {
    let mut series = BTreeMap::new();
    let mut frames = |name: &str, of: &dyn Fn(&JobOutcome) -> f64| {
        series.insert(
            name.to_string(),
            report.jobs.iter().map(|job| Some(of(job))).collect::<Vec<_>>(),
        );
    };
    frames("completion", &|job| job.response().ratio(period));
    frames("missed", &|job| f64::from(job.overrun().is_some()));
    frames("waited", &|job| {
        (job.split.released_late + job.split.preempted).ratio(period)
    });
    frames("io", &|job| job.split.data.ratio(period));
    frames("requests", &|job| requests[job.job as usize] as f64);
    let length = report.ended.since(Time::ZERO);
    let others: Nanos = report.computed.iter().skip(1).copied().sum();
    let flash = if source == Source::Flash { PLAYERS } else { OTHERS };
    let values = [
        Some(report.utilisation()),
        Some(others.ratio(length) / report.cores.len() as f64),
        Some(report.part(|core| core.polling)),
        Some(report.part(|core| core.switching)),
        Some(report.idle()),
        report.devices.get(flash).map(|device| device.collecting.ratio(length)),
        report.write_amplification.get(flash).copied().flatten(),
        Some(length.as_secs_f64()),
        Some(f64::from(decision.is_granted())),
        decision.longest.map(Nanos::as_millis_f64),
        decision.demanded.map(|demanded| demanded.ratio(period)),
    ];
    for (name, value) in RUN_SERIES.into_iter().zip(values) {
        series.insert(name.into(), vec![value]);
    }
    series
}
