//! What the kernel keeps back from real-time threads.
//!
//! Two rules bound `SCHED_FIFO`, and both are read, never changed: real-time *throttling* (sched(7):
//! `/proc/sys/kernel/sched_rt_runtime_us` of every `sched_rt_period_us`), and, since Linux 6.12, the *fair server*, which gives
//! ordinary threads a slice above real-time ones on every core (`/sys/kernel/debug/sched/fair_server`).

use std::fmt;

use punctual_units::{Nanos, Share};
use serde::{Deserialize, Serialize};

use super::KernelTree;
use super::tree::read_trimmed;

/// The rules in force.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RealTimeLimits {
    /// Real-time throttling.
    pub throttling: Throttling,
    /// The fair server.
    pub fair_server: FairServer,
}

/// How much of a core real-time threads may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Throttling {
    /// All of it.
    Off,
    /// So much of every period.
    Bounded {
        /// What they may use.
        runtime: Nanos,
        /// Of how much time.
        period: Nanos,
    },
    /// The kernel does not tell.
    Unknown,
}

/// Whether ordinary threads get a slice above real-time ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FairServer {
    /// This kernel has none.
    None,
    /// It has one, switched off on every core.
    Off,
    /// It is on.
    Reserves {
        /// The longest slice of any core.
        runtime: Nanos,
        /// On how many cores.
        cores: usize,
    },
    /// The scheduler's debugging files cannot be read.
    Unknown,
}

impl RealTimeLimits {
    /// Reads both.
    pub fn read(tree: &KernelTree) -> RealTimeLimits {
        RealTimeLimits {
            throttling: throttling(tree),
            fair_server: fair_server(tree),
        }
    }

    /// The share of a core that real-time threads may use as far as it is known: 1 where nothing bounds them.
    pub fn usable(&self) -> Share {
        match self.throttling {
            Throttling::Bounded { runtime, period } => Share::clamped(runtime.ratio(period)),
            Throttling::Off | Throttling::Unknown => Share::ONE,
        }
    }
}

impl fmt::Display for RealTimeLimits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.throttling {
            Throttling::Off => f.write_str("real-time throttling off"),
            Throttling::Bounded { runtime, period } => write!(f, "real-time throttling at {runtime} of {period}"),
            Throttling::Unknown => f.write_str("real-time throttling not to be read"),
        }?;
        match self.fair_server {
            FairServer::None => f.write_str(", no fair server"),
            FairServer::Off => f.write_str(", fair server off"),
            FairServer::Reserves { runtime, cores } => write!(f, ", fair server of {runtime} on {cores} cores"),
            FairServer::Unknown => f.write_str(", fair server not to be read"),
        }
    }
}

fn throttling(tree: &KernelTree) -> Throttling {
    let value = |file: &str| tree.read(format!("/proc/sys/kernel/{file}")).ok()?.parse::<i64>().ok();
    match (value("sched_rt_runtime_us"), value("sched_rt_period_us")) {
        (Some(runtime), Some(period)) if (0..period).contains(&runtime) => Throttling::Bounded {
            runtime: Nanos::from_micros(runtime as u64),
            period: Nanos::from_micros(period as u64),
        },
        (Some(_), _) => Throttling::Off,
        (None, _) => Throttling::Unknown,
    }
}

fn fair_server(tree: &KernelTree) -> FairServer {
    let scheduler = tree.path("/sys/kernel/debug/sched");
    if !scheduler.is_dir() {
        return FairServer::Unknown;
    }
    let Ok(servers) = std::fs::read_dir(scheduler.join("fair_server")) else {
        return FairServer::None;
    };
    let reserved: Vec<u64> = servers
        .flatten()
        .filter_map(|server| read_trimmed(&server.path().join("runtime")).ok()?.parse().ok())
        .filter(|runtime| *runtime > 0)
        .collect();
    match reserved.iter().max() {
        None => FairServer::Off,
        Some(longest) => FairServer::Reserves {
            runtime: Nanos(*longest),
            cores: reserved.len(),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::linux::testing;

    #[test]
    fn limits_are_told_as_the_files_say() {
        let (_folder, tree) = testing::tree(&[
            ("/proc/sys/kernel/sched_rt_runtime_us", "950000"),
            ("/proc/sys/kernel/sched_rt_period_us", "1000000"),
            ("/sys/kernel/debug/sched/fair_server/cpu0/runtime", "50000000"),
            ("/sys/kernel/debug/sched/fair_server/cpu1/runtime", "0"),
        ]);
        let limits = RealTimeLimits::read(&tree);
        assert_eq!(limits.usable(), Share::clamped(0.95));
        let told = limits.to_string();
        assert!(
            told.contains("950.00 ms of 1") && told.contains("50.00 ms on 1 cores"),
            "{told}"
        );
        let nothing = RealTimeLimits::read(&testing::tree(&[]).1);
        assert_eq!(nothing.throttling, Throttling::Unknown);
        assert_eq!(nothing.usable(), Share::ONE);
    }
}
