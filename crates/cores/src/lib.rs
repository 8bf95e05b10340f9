//! Places tasks on cores and decides when an exclusive core is lent.
//!
//! **Problem.** A real-time job that has a core of its own never waits for others, but an idle core is wasted. So
//! several tasks share an exclusive core as long as all their deadlines hold. That is proven, if no job takes longer
//! than declared; a time measured on a medium only estimates that. Other work has the core whenever there is time
//! enough to take it back. And a job polls its medium only where leaving the core would cost more (E. Lee, Y. Kim and
//! H. Bahn, "Dual Management of Real-Time and Interactive Jobs in Smartphones", 2014).
//!
//! **Terms.** A [`Sporadic`] task releases jobs at least a period apart, each with an execution time (polling included)
//! and a relative deadline. A *lease* is the time for which an idle exclusive core is lent. *Taking back* a core costs
//! the time from the decision until the real-time job could run there.
//!
//! **Method.** [`place`] assigns every task of a run to cores, as a [`Placement`] that both machines obey.
//! [`responses`] is the test for fixed priorities on one core, which is what Linux runs. [`Tenants`] decides on the
//! leases of a core with several tasks: a lease ends as long before the next release as taking the core back takes.
//! [`LearntCosts`] learns how long that took lately, and [`Usage`] stops leases that borrowers do not use. The
//! machine's figures are arguments; none is a constant of this crate.

mod budget;
mod completion;
#[cfg(test)]
mod drawn;
mod fixed_priority;
mod learnt;
mod lending;
mod packing;
mod placement;
mod sporadic;
mod tenants;
mod usage;

pub use completion::Completion;
pub use fixed_priority::{Bandwidth, responses};
pub use learnt::LearntCosts;
pub use lending::LendingCosts;
pub use placement::{
    Chair, Limits, PlaceError, Placement, PlacementRequest, Seat, TASKS_PER_CORE_MAX, first_set_apart, place,
};
pub use sporadic::{Sporadic, TASKS_MAX, Unfit};
pub use tenants::{TenantEvent, Tenants};
pub use usage::{PAUSE_MAX, USED_MIN, Usage};
