//! What runs, as data: programs, arrivals, sensors, traces, seeds
