//! Connects the allocator to the simulated machine: its state is the allocator's input, the allocator's plan its split.

use punctual_allocation::{
    Allocator, AllocatorSettings, Base, CoreShares, Foresight, Loads, PeriodicTask, Pool, Programs, Refill,
};
use punctual_machine::split::SplitAnswer;
use punctual_sim::split::{Instant, SplitModel, slices};

use super::policy::Policy;
use super::profiles::RunSet;
use super::published::PaperAllocator;
use super::variant::{Rule, Variant};
use super::vc2m::vc2m;

/// The resources to allocate, and the minimum per core: 3 ways (section VII), 1 partition (not stated in the paper).
pub const POOL: Pool = Pool::PAPER;

/// Decides for one task set under one variant.
#[derive(Debug)]
pub struct Decider<'p> {
    programs: &'p Programs,
    splitter: Splitter,
    begun: bool,
}

/// Splits the machine by one policy.
#[derive(Debug)]
enum Splitter {
    /// By one of the product's.
    Ours(Box<Allocator>),
    /// Once and for all, after vC2M.
    Fixed(CoreShares),
    /// As the paper does.
    Paper(Box<PaperAllocator>),
}

impl<'p> Decider<'p> {
    /// A decider of `variant` for `tasks` on `machine`, whose least time between two decisions becomes the allocator's.
    ///
    /// # Errors
    /// A message that says what does not fit.
    pub fn new(
        prepared: &'p RunSet,
        machine: &mut SplitModel,
        tasks: &[PeriodicTask],
        variant: Variant,
    ) -> Result<Decider<'p>, String> {
        Decider::from_base(prepared, machine, tasks, (variant, Base::Ahead))
    }

    /// As `new`, where a rule that lends starts from `base`.
    ///
    /// # Errors
    /// As `new`.
    pub fn from_base(
        prepared: &'p RunSet,
        machine: &mut SplitModel,
        tasks: &[PeriodicTask],
        (variant, base): (Variant, Base),
    ) -> Result<Decider<'p>, String> {
        let lends = variant.rule == Rule::Hysteresis;
        let refill = Refill {
            way_bytes: machine.way_bytes,
            partition_bytes_per_second: machine.partition_bandwidth,
        };
        let gap = std::mem::take(&mut machine.decision_gap);
        let programs = prepared.compiled(variant.policy);
        let loads = || Loads::new(programs, tasks, machine.cores);
        let splitter = match variant.policy {
            Policy::Vc2m(leftovers) => Splitter::Fixed(CoreShares::side_by_side(vc2m(&loads(), POOL, leftovers))),
            Policy::DnaPaper | Policy::DadnaPaper => {
                let plan = Base::StaticBest.split(&loads(), POOL);
                let knows_deadlines = variant.policy == Policy::DadnaPaper;
                Splitter::Paper(Box::new(PaperAllocator::new(knows_deadlines, POOL, gap, plan)))
            }
            policy => {
                let settings = AllocatorSettings {
                    pool: POOL,
                    cores: machine.cores,
                    policy: policy.ours().ok_or("a policy of the product")?,
                    base: if lends { base } else { Base::StaticBest },
                    refill: lends.then_some(refill),
                    gap,
                };
                let allocator = Allocator::new(programs, tasks, settings).map_err(|error| error.to_string())?;
                Splitter::Ours(Box::new(allocator))
            }
        };
        Ok(Decider {
            programs,
            splitter,
            begun: false,
        })
    }

    /// Result of the allocator's look ahead, if it has looked.
    pub fn forecast(&self) -> Option<&Foresight> {
        match &self.splitter {
            Splitter::Ours(allocator) => allocator.forecast(),
            Splitter::Fixed(_) | Splitter::Paper(_) => None,
        }
    }

    /// The shares of every core, at the first call and whenever they change.
    pub fn decide(&mut self, instant: &Instant) -> SplitAnswer {
        let begins = !std::mem::replace(&mut self.begun, true);
        let (programs, cores, now) = (self.programs, instant.cores(), instant.now);
        let (changed, plan, due, decided) = match &mut self.splitter {
            Splitter::Ours(allocator) => {
                allocator.look(programs, now);
                let changed = allocator.step(programs, &cores, now).is_some();
                (changed, allocator.plan(), allocator.due(), allocator.decided())
            }
            Splitter::Fixed(plan) => (false, &*plan, None, None),
            Splitter::Paper(paper) => (paper.step(programs, &cores, now), &paper.plan, paper.due, paper.decided),
        };
        SplitAnswer {
            slices: (changed || begins).then(|| slices(plan)),
            due,
            put_off: decided != Some(now),
        }
    }
}
