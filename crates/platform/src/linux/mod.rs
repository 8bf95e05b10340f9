//! Linux behind the [`Machine`](crate::Machine) contract: threads, clocks, CPU shares, meters, and putting it all back.
//!
//! Every module asks one thing of the kernel and answers with a value or a [`Refusal`](crate::Refusal) that says what would help.
//! Nothing needs privileges to run; privileges only make more of it offered.

pub mod clock;
