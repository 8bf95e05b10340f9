//! Performs all runs of the plan with one seed: with the same film, interactive jobs and flash for every run.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;

use crate::dual::{DualReport, computes, simulate};
use punctual_machine::media::{MediaDevice, Medium};
use punctual_sim::{Jobs, Release, Step, Task};
use punctual_units::{Nanos, Time};
use punctual_workload::{Active, JobOutcome};

use super::decide::{Decision, decide};
use super::plan::{PlannedRun, Source};
use super::rehearsal::rehearse;
use super::setting::LIMIT;
use super::{Ground, film, interactive};
use crate::samples::Run;

/// Columns with a sample for every frame: when it was done and how long it waited for a core (with context switches)
/// and for its medium (all as shares of the period), whether it missed its deadline (0 or 1), and its number of
/// requests.
pub const FRAME_SERIES: [&str; 5] = ["completion", "missed", "waited", "io", "requests"];
/// Columns of one sample each. Shares of all cores' time: jobs computing (`utilisation`), of them the interactive jobs
/// (`interactive`), `polling`, `switching`, `idle`. Of the flash: the share of time spent `collecting` garbage, and the
/// write `amplification`. `played`: the run's length in seconds. `granted`: whether the player had an exclusive core (0
/// or 1). Where admission was asked: the `longest` read of the rehearsal in milliseconds, and the execution time
/// `demanded` for a frame as a share of the period.
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

/// Index of the device from which the player reads...
pub(super) const PLAYERS: usize = 0;
/// ...and of the interactive jobs' device, where it is another.
const OTHERS: usize = 1;
/// Changes the seed for the rehearsal, whose load must differ from that during the film.
const REHEARSAL: u64 = 1 << 32;

/// A seed on one machine, with everything that its runs share.
#[derive(Clone, Debug)]
pub struct SeededMachine<'g> {
    ground: &'g Ground,
    pub seed: u64,
    /// The flash, aged once and copied for each run.
    flash: MediaDevice,
    others: Vec<Task>,
    rehearsing: Vec<Task>,
}

impl<'g> SeededMachine<'g> {
    /// Prepares the load and the flash that all runs with this seed share.
    pub fn new(ground: &'g Ground, seed: u64) -> SeededMachine<'g> {
        let (media, jobs) = (&ground.media, ground.play.jobs);
        let pages = media.flash.geometry().logical_pages;
        SeededMachine {
            ground,
            seed,
            flash: MediaDevice::new(&Medium::Flash(media.flash), media.page_bytes, seed),
            others: interactive::tasks(jobs, OTHERS, pages, seed),
            rehearsing: interactive::tasks(jobs, OTHERS, pages, seed ^ REHEARSAL),
        }
    }

    /// Performs one run of the plan.
    ///
    /// # Errors
    /// A message that names the seed, the run and the failure.
    pub fn run(&self, planned: &PlannedRun) -> Result<Run, String> {
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

    fn player(&self, planned: &PlannedRun) -> Task {
        let pages = planned.cache.saturating_mul(self.ground.machine.cache_step_pages) as usize;
        let cache = NonZeroUsize::new(pages).unwrap_or(NonZeroUsize::MIN);
        let frames = film::frames(&self.ground.play, planned.film, self.ground.media.page_bytes, self.seed);
        // The player starts after 50 ms: by then the interactive jobs run, at arbitrary points of their quanta.
        let first = Time::ZERO + Nanos::from_millis(50);
        let jobs = film::jobs(&frames, cache, planned.ahead, PLAYERS);
        played("player", first, self.ground.play.period, jobs)
    }

    /// The player's device, and the interactive jobs' flash.
    fn devices(&self, source: Source, seed: u64) -> Vec<MediaDevice> {
        let media = &self.ground.media;
        let of = |medium| MediaDevice::new(&medium, media.page_bytes, seed);
        let players = match source {
            Source::Pcm => of(Medium::Memory(media.pcm)),
            Source::Hdd => of(Medium::Disk(media.hdd)),
            Source::Flash => self.flash.clone(),
        };
        vec![players, self.flash.clone()]
    }
}

/// A real-time task whose deadline is the end of its period, and which does not catch up after a late job.
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

/// Number of requests of each job of `player`.
fn requests(player: &Task) -> Vec<usize> {
    let of = |steps: &Vec<Step>| steps.iter().filter(|step| computes(step).is_none()).count();
    player.jobs.lists().iter().map(of).collect()
}

/// The interactive jobs; a player that reads from flash shares their flash device, so their requests are redirected to
/// it.
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
    report: &DualReport,
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
