//! The lab's results as HTML pages, like the report of a run.

mod bars;
mod experiment;
mod movie;
mod referees;
mod tail;

pub use experiment::experiment;
pub use movie::movie;
pub use referees::referees;
