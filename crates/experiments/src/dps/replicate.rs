//! One seed: the same film, the same interactive side and the same flash for every run of the plan.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;

use punctual_allocation::exclusive::{Completion, LendingCosts, NoFigures, Sporadic, completion, place};
use punctual_sim::dual::{
    DualError, DualMachine, Exclusive, Management, Release, Report, Scheduling, Step, Task, simulate,
};
use punctual_sim::media::{Access, Device, Media, Medium, Request};
use punctual_units::{Nanos, Time};

use super::plan::{Approach, Planned, Source};
use super::setting::{LIMIT, PERIOD};
use super::{film, interactive};
use crate::samples::Run;

/// Columns of every frame: when it was done and how long it waited for a core and for its medium (all as shares of the period), whether it missed its
/// deadline (0 or 1), and how many requests it made.
pub const FRAME_SERIES: [&str; 5] = ["completion", "missed", "waited", "io", "requests"];
/// Columns of one sample each. Shares of all cores' time: jobs computing (`utilisation`), of them the interactive side's (`interactive`), `polling`,
/// `switching`, `idle`. Of the flash: the share of time spent `collecting` garbage, and the write `amplification`. `played`: the run's length in seconds.
pub const RUN_SERIES: [&str; 8] = [
    "utilisation",
    "interactive",
    "polling",
    "switching",
    "idle",
    "collecting",
    "amplification",
    "played",
];

/// The player reads from this device...
const PLAYERS: usize = 0;
/// ...and the interactive side from this one, where it is another.
const OTHERS: usize = 1;
/// Requests of which a medium's service times are measured, on an idle device.
const PROBES: u64 = 256;

/// One seed on one machine.
#[derive(Clone, Debug)]
pub struct Place<'g> {
    machine: &'g DualMachine,
    media: &'g Media,
    /// The seed.
    pub seed: u64,
    /// Aged once, and copied for each run.
    flash: Device,
    others: Vec<Task>,
}

impl<'g> Place<'g> {
    /// The same surroundings for every run with this seed.
    pub fn new(machine: &'g DualMachine, media: &'g Media, seed: u64) -> Place<'g> {
        let pages = media.flash.geometry().logical_pages;
        Place {
            machine,
            media,
            seed,
            flash: Device::new(&Medium::Flash(media.flash), media.page_bytes, seed),
            others: interactive::tasks(OTHERS, pages, seed),
        }
    }

    /// Carries out one run of the plan.
    ///
    /// # Errors
    /// What failed, in words.
    pub fn run(&self, planned: &Planned) -> Result<Run, String> {
        let failed = |error: &dyn std::fmt::Display| format!("seed {}: {:?}: {error}", self.seed, planned.labels());
        let player = self.player(planned);
        let devices = vec![self.device(planned.source), self.flash.clone()];
        let management = self
            .management(planned, &player, &devices)
            .map_err(|error| failed(&error))?;
        let tasks: Vec<Task> = std::iter::once(player).chain(self.others(planned.source)).collect();
        let report = simulate(self.machine, &management, &tasks, devices, Time::ZERO + LIMIT);
        let report = report.map_err(|error: DualError| failed(&error))?;
        if report.unfinished > 0 {
            return Err(failed(&format!(
                "{} frames were not shown within {LIMIT}",
                report.unfinished
            )));
        }
        Ok(Run {
            labels: planned.labels(),
            settled_from: 0,
            series: series(&report, planned.source),
        })
    }

    fn player(&self, planned: &Planned) -> Task {
        let pages = planned.cache.saturating_mul(self.machine.cache_step_pages) as usize;
        let cache = NonZeroUsize::new(pages).unwrap_or(NonZeroUsize::MIN);
        let frames = film::frames(planned.film, self.media.page_bytes, self.seed);
        Task {
            name: "player".into(),
            release: Release::Periodic {
                // The interactive side has begun, and quanta are anywhere.
                first: Time::ZERO + Nanos::from_millis(50),
                period: PERIOD,
                deadline: PERIOD,
            },
            jobs: film::jobs(&frames, cache, planned.ahead, PLAYERS),
        }
    }

    fn device(&self, source: Source) -> Device {
        let medium = match source {
            Source::Pcm => Medium::Memory(self.media.pcm),
            Source::Hdd => Medium::Disk(self.media.hdd),
            Source::Flash => return self.flash.clone(),
        };
        Device::new(&medium, self.media.page_bytes, self.seed)
    }

    /// The interactive side; there is one flash device, which a player that reads from flash shares with it.
    fn others(&self, source: Source) -> Vec<Task> {
        let mut others = self.others.clone();
        if source == Source::Flash {
            for step in others.iter_mut().flat_map(|task| &mut task.jobs).flatten() {
                if let Step::Io { device, .. } = step {
                    *device = PLAYERS;
                }
            }
        }
        others
    }

    fn management(&self, planned: &Planned, player: &Task, devices: &[Device]) -> Result<Management, NoFigures> {
        let set = |percent: u32| Scheduling::QuantumAfter(self.machine.quantum().scaled(f64::from(percent) / 100.0));
        Ok(match planned.approach {
            Approach::Blocking => Management::Shared(planned.wait.map_or(Scheduling::Quantum, set)),
            Approach::Fair => Management::Shared(Scheduling::Fair),
            Approach::Fifo => Management::Shared(Scheduling::Fifo),
            Approach::Dual => Management::Dual(Exclusive {
                places: self.machine.exclusive.iter().take(1).copied().collect(),
                waits: vec![Completion::Poll; devices.len()],
                costs: self.lending(),
                slack: Nanos::ZERO,
                wait: Nanos::ZERO,
            }),
            Approach::Computed => self.computed(player, devices)?,
        })
    }

    /// Every decision by `punctual_allocation::exclusive`, from measured figures.
    fn computed(&self, player: &Task, devices: &[Device]) -> Result<Management, NoFigures> {
        // On its exclusive core a job that blocked takes its core back at once: blocking costs two switches.
        let block = self.machine.switch() * 2;
        let services: Vec<Vec<Nanos>> = devices.iter().map(probe).collect();
        let waits = services
            .iter()
            .map(|services| completion(services, block))
            .collect::<Result<Vec<_>, _>>()?;
        let longest: Vec<Nanos> = services
            .iter()
            .map(|s| s.iter().copied().max().unwrap_or_default())
            .collect();
        let execution = |steps: &Vec<Step>| -> Nanos {
            let time = |step: &Step| match step {
                Step::Compute(span) => *span,
                Step::Io { device, .. } => longest[*device] + block,
            };
            steps.iter().map(time).sum::<Nanos>() + block
        };
        let demand = Sporadic {
            execution: player.jobs.iter().map(execution).max().unwrap_or_default(),
            deadline: PERIOD,
            period: PERIOD,
        };
        Ok(match place(&[demand], &self.machine.exclusive) {
            Ok(places) => Management::Dual(Exclusive {
                places,
                waits,
                costs: self.lending(),
                slack: demand.deadline - demand.execution,
                wait: Nanos::ZERO,
            }),
            Err(_) => Management::Shared(Scheduling::Fifo),
        })
    }

    /// Other work is switched to; it is interrupted at once, and the player is switched to.
    fn lending(&self) -> LendingCosts {
        LendingCosts {
            hand_over: self.machine.switch(),
            take_back: self.machine.switch(),
        }
    }
}

/// Service times of single pages, read from an idle device one after the other.
fn probe(device: &Device) -> Vec<Nanos> {
    let mut device = device.clone();
    let mut now = Time::ZERO;
    let read = |page| {
        let request = Request {
            access: Access::Read,
            page,
            pages: 1,
        };
        let begun = now;
        now = device.submit(request, begun);
        now.since(begun)
    };
    (0..PROBES).map(read).collect()
}

fn series(report: &Report, source: Source) -> BTreeMap<String, Vec<Option<f64>>> {
    let mut series = BTreeMap::new();
    let mut frames = |name: &str, of: &dyn Fn(&punctual_sim::dual::JobRecord) -> f64| {
        series.insert(
            name.to_string(),
            report.jobs.iter().map(|job| Some(of(job))).collect::<Vec<_>>(),
        );
    };
    frames("completion", &|job| job.response().ratio(PERIOD));
    frames("missed", &|job| f64::from(job.missed()));
    frames("waited", &|job| job.waited.ratio(PERIOD));
    frames("io", &|job| job.io.ratio(PERIOD));
    frames("requests", &|job| f64::from(job.requests));
    let length = report.ended.since(Time::ZERO);
    let others: Nanos = report.computed.iter().skip(1).copied().sum();
    let flash = if source == Source::Flash { PLAYERS } else { OTHERS };
    let values = [
        Some(report.utilisation()),
        Some(others.ratio(length) / report.cores.len() as f64),
        Some(report.part(|core| core.polling)),
        Some(report.part(|core| core.switching)),
        Some(report.part(|core| core.idle)),
        report.devices.get(flash).map(|device| device.collecting.ratio(length)),
        report.write_amplification.get(flash).copied().flatten(),
        Some(length.as_secs_f64()),
    ];
    for (name, value) in RUN_SERIES.into_iter().zip(values) {
        series.insert(name.into(), vec![value]);
    }
    series
}
