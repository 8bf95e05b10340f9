//! A simulated machine: clock steps, memory traffic, updates, energy, deterministic by seed
