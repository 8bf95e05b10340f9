//! Connects the allocators to the simulated machine: its state is their input, their plan its split.

use punctual_allocation::hysteresis::{Aim, Keeper};
use punctual_allocation::policy::{Exact, dadna, dna, equal, static_best, static_fewest, vc2m};
use punctual_allocation::{CoreShares, Leftovers, Loads, PeriodicTask, Pool, Refill, RunningJob, placed};
use punctual_sim::split::{Instant, Slice, SplitModel, slices};
use punctual_units::Time;

use super::profiles::RunSet;
use super::variant::{Policy, Rule, Variant};

/// The resources to allocate, and the minimum per core: 3 ways (section VII), 1 partition (not stated in the paper).
pub const POOL: Pool = Pool::PAPER;

/// Decides for one task set under one variant.
#[derive(Debug)]
pub struct Decider<'p> {
    prepared: &'p RunSet,
    means: Means,
    even_utilisation: f64,
    begun: bool,
}

/// Method by which a decision is made.
#[derive(Debug)]
enum Means {
    /// The split never changes.
    Never(CoreShares),
    /// Recomputed by the policy at every change, and placed so that few ways change hands.
    EveryChange(Policy, CoreShares, Box<Option<Exact>>),
    /// Changed only where the gain exceeds the cost of the change.
    Kept(Box<Keeper>),
}

impl<'p> Decider<'p> {
    /// A decider of `variant` for `tasks` on `machine`.
    pub fn new(prepared: &'p RunSet, machine: &SplitModel, tasks: &[PeriodicTask], variant: Variant) -> Decider<'p> {
        let loads = Loads::new(&prepared.compiled, tasks, machine.cores);
        let even = equal(POOL, machine.cores);
        let split = CoreShares::side_by_side(match (variant.policy, variant.rule) {
            (Policy::Equal, _) => even.clone(),
            (Policy::Vc2m, _) => vc2m(&loads, POOL, Leftovers::HandedOut),
            (Policy::Vc2mStrict, _) => vc2m(&loads, POOL, Leftovers::Kept),
            (Policy::StaticFewest, _) | (_, Rule::Hysteresis) => static_fewest(&loads, POOL),
            _ => static_best(&loads, POOL),
        });
        let refill = Refill {
            way_bytes: machine.way_bytes,
            partition_bytes_per_second: machine.partition_bandwidth,
        };
        let exact = || (variant.policy == Policy::Exact).then(|| prepared.exact.clone());
        Decider {
            prepared,
            means: match variant.rule {
                Rule::Static => Means::Never(split),
                Rule::EveryChange => Means::EveryChange(variant.policy, split, Box::new(exact())),
                Rule::Hysteresis => Means::Kept(Box::new(Keeper::new(
                    split,
                    POOL,
                    refill,
                    aim(variant.policy),
                    machine.decision_gap,
                ))),
            },
            even_utilisation: loads.each(&even).sum(),
            begun: false,
        }
    }

    /// Utilisation of the set under an even split.
    pub fn even_utilisation(&self) -> f64 {
        self.even_utilisation
    }

    /// The shares of every core, at the first call and whenever they change; else `None`.
    pub fn decide(&mut self, instant: &Instant) -> Option<Vec<Option<Slice>>> {
        let begins = !std::mem::replace(&mut self.begun, true);
        if let Means::Never(plan) = &self.means {
            return begins.then(|| slices(plan));
        }
        self.step(&instant.cores(), instant.now)
            .or_else(|| begins.then(|| slices(self.plan())))
    }

    /// Decides for the programs that run on `cores`; `None`: the shares stay.
    pub fn step(&mut self, cores: &[Option<RunningJob>], now: Time) -> Option<Vec<Option<Slice>>> {
        let programs = &self.prepared.compiled;
        match &mut self.means {
            Means::Never(_) => None,
            Means::Kept(keeper) => keeper.decide(programs, cores, now).map(slices),
            Means::EveryChange(policy, plan, exact) => {
                let wanted = match (policy, exact.as_mut()) {
                    (_, Some(exact)) => exact.decide(programs, cores),
                    (Policy::Dadna, _) => dadna(programs, POOL, cores, now),
                    _ => dna(programs, POOL, cores),
                };
                let next = placed(&wanted, plan, POOL);
                if next == *plan {
                    return None;
                }
                *plan = next;
                Some(slices(plan))
            }
        }
    }

    fn plan(&self) -> &CoreShares {
        match &self.means {
            Means::Never(plan) | Means::EveryChange(_, plan, _) => plan,
            Means::Kept(keeper) => keeper.plan(),
        }
    }
}

/// Recipient of bandwidth that no core needs.
fn aim(policy: Policy) -> Aim {
    match policy {
        Policy::Dadna => Aim::Deadlines,
        Policy::Exact => Aim::Speed,
        _ => Aim::Gradient,
    }
}
