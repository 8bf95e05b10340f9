//! Keeps soft real-time work on time: monitor, modes, controllers and the loop that joins them.
pub mod report;
