//! The real-time side of the data: temporal objects, admission, deadlines, transactions

pub mod engine;
pub mod updates;
