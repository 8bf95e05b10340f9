//! From what the simulated machine shows to what an allocator decides, and back.

use punctual_allocation::{
    Allocator, Event, Leftovers, Loads, Plan, Policy as Allocation, Pool, Refill as Cost, Running, Settings, Share,
    Task, Waiting, ZeroDelta, hysteresis::Keeper,
};
use punctual_sim::partitioned::{self, Core, Machine, Moment, Slice};
use punctual_units::{Nanos, Time};

use super::profiles::Prepared;
use super::variant::{Policy, Rule, Variant};

/// Decides for one task set under one variant.
pub struct Decider<'p> {
    prepared: &'p Prepared,
    allocator: Allocator,
    keeper: Option<Keeper>,
    next_release: Vec<f64>,
    even_utilisation: f64,
    begun: bool,
}

impl<'p> Decider<'p> {
    /// A decider of `variant` for `tasks` on `machine`.
    pub fn new(
        prepared: &'p Prepared,
        machine: &Machine,
        tasks: &[partitioned::Task],
        variant: Variant,
    ) -> Decider<'p> {
        let tasks: Vec<Task> = tasks
            .iter()
            .map(|task| Task {
                program: task.program,
                period: Nanos::from_secs_f64(task.period),
                core: task.core,
            })
            .collect();
        let settings = Settings {
            cores: machine.cores,
            refill: (variant.rule == Rule::Hysteresis).then_some(Cost {
                way_bytes: machine.way_bytes,
                partition_bytes_per_second: machine.partition_bandwidth,
            }),
            gap: Nanos::ZERO,
            ..Settings::paper(allocation(variant.policy))
        };
        let loads = Loads::new(&prepared.compiled, &tasks, machine.cores);
        let even = punctual_allocation::policy::equal(Pool::PAPER, machine.cores);
        let best = punctual_allocation::policy::static_best(&loads, Pool::PAPER);
        let keeper = settings
            .refill
            .map(|refill| Keeper::new(Plan::side_by_side(best), Pool::PAPER, refill));
        Decider {
            keeper,
            next_release: vec![0.0; tasks.len()],
            prepared,
            allocator: Allocator::new(&prepared.compiled, &tasks, settings).unwrap(),
            even_utilisation: loads.each(&even).sum(),
            begun: false,
        }
    }

    /// The utilisation of the set under an even split.
    pub fn even_utilisation(&self) -> f64 {
        self.even_utilisation
    }

    /// What every core gets now, if anything is different.
    pub fn decide(&mut self, moment: &Moment) -> Option<Vec<Option<Slice>>> {
        let now = Time((moment.now * 1e9).round() as u64);
        let waiting: Vec<Vec<Waiting>> = moment.cores.iter().map(|core| waiting(core, moment)).collect();
        let cores: Vec<Option<Running>> = moment
            .cores
            .iter()
            .zip(&waiting)
            .map(|(core, waiting)| running(core, waiting, moment))
            .collect();
        if let Some(keeper) = &mut self.keeper {
            for (number, next) in self.next_release.iter_mut().enumerate() {
                let task = moment.tasks[number];
                while *next < moment.next_release[number] {
                    keeper.released(
                        &self.prepared.compiled,
                        task.core,
                        task.program,
                        time(*next + task.period),
                        time(*next),
                    );
                    *next += task.period;
                }
            }
            return match keeper.decide(&self.prepared.compiled, &cores, now) {
                Some(plan) => Some(slices(plan)),
                None if !self.begun => Some(slices(keeper.plan())),
                None => None,
            }
            .inspect(|_| self.begun = true);
        }
        let plan = self.allocator.step(&self.prepared.compiled, Event::Due, &cores, now);
        match plan {
            Some(plan) => Some(slices(plan)),
            None if !self.begun => Some(slices(self.allocator.plan())),
            None => None,
        }
        .inspect(|_| self.begun = true)
    }
}

fn allocation(policy: Policy) -> Allocation {
    match policy {
        Policy::Equal => Allocation::Equal,
        Policy::Vc2m => Allocation::Vc2m(Leftovers::HandedOut),
        Policy::Vc2mStrict => Allocation::Vc2m(Leftovers::Kept),
        Policy::StaticBest => Allocation::StaticBest,
        Policy::Dna => Allocation::Dna(ZeroDelta::OtherResource),
        Policy::Dadna => Allocation::Dadna(ZeroDelta::OtherResource),
        Policy::Exact => Allocation::Exact,
    }
}

fn time(seconds: f64) -> Time {
    Time((seconds * 1e9).round() as u64)
}

fn waiting(core: &Core, moment: &Moment) -> Vec<Waiting> {
    let of = |job: &partitioned::Job| Waiting {
        program: job.program,
        progress: job.progress(&moment.programs[job.program]),
        deadline: time(job.deadline),
    };
    core.waiting().iter().map(of).collect()
}

fn running<'w>(core: &Core, waiting: &'w [Waiting], moment: &Moment) -> Option<Running<'w>> {
    core.running().map(|job| Running {
        program: job.program,
        progress: job.progress(&moment.programs[job.program]),
        deadline: time(job.deadline),
        waiting,
    })
}

fn slices(plan: &Plan) -> Vec<Option<Slice>> {
    let slice = |(share, mask): (&Share, &punctual_allocation::WayMask)| {
        Some(Slice {
            first: mask.first(),
            share: *share,
        })
    };
    plan.shares.iter().zip(&plan.masks).map(slice).collect()
}
