//! Time that the kernel reserves for ordinary threads against real-time ones.
//!
//! Two rules bound `SCHED_FIFO`, and both are read, never changed: real-time *throttling* (sched(7):
//! `/proc/sys/kernel/sched_rt_runtime_us` of every `sched_rt_period_us`), and, since Linux 6.12, the *fair server*,
//! which gives ordinary threads that wait a slice above real-time ones on every core
//! (`/sys/kernel/debug/sched/fair_server`, in nanoseconds).
//!
//! The fair server ended throttling (commit 5f6bd380c7bd), except in kernels with `CONFIG_RT_GROUP_SCHED`. The two
//! files of the old rule still exist, but bound other things. A kernel's configuration (`/boot/config-RELEASE`,
//! `/lib/modules/RELEASE/config`), or a `cpu.rt_runtime_us` in the control groups of version 1, says which rule
//! applies. If neither can be read (the compressed `/proc/config.gz` is not read), it is unknown whether the bound
//! holds.

use std::fmt;

use punctual_custody::tree::read_trimmed;
use punctual_units::Nanos;
use serde::{Deserialize, Serialize};

use super::KernelTree;

/// The first kernel with a fair server, and without throttling unless built for groups of real-time threads.
const FAIR_SERVER: (u32, u32) = (6, 12);

/// The rules in force on this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RealTimeLimits {
    /// Bound on all real-time threads of a core.
    pub throttling: Throttling,
    /// Reservation for ordinary threads.
    pub fair_server: FairServer,
}

/// The part of a core that real-time threads may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Throttling {
    /// No bound: real-time threads may use all of it.
    Off,
    /// Real-time threads may use `runtime` of every `period`.
    Bounded {
        /// Time that real-time threads may use.
        runtime: Nanos,
        /// Length of the period.
        period: Nanos,
    },
    /// As `Bounded` if this kernel still throttles, which it does not report.
    Possible {
        /// Time that real-time threads may use.
        runtime: Nanos,
        /// Length of the period.
        period: Nanos,
    },
    /// The kernel does not report its rule.
    Unknown,
}

/// Reservation of time for ordinary threads, above real-time ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FairServer {
    /// This kernel has no fair server.
    None,
    /// The fair server is switched off on every core.
    Off,
    /// The fair server is on, on some cores at least.
    Reserves {
        /// Longest reserved time of any core.
        runtime: Nanos,
        /// Length of that core's period; zero if it cannot be read.
        #[serde(default)]
        period: Nanos,
        /// Number of cores on which it is on.
        cores: usize,
    },
    /// The scheduler's debugging files cannot be read.
    Unknown,
}

impl RealTimeLimits {
    /// Reads both rules from `tree`.
    pub fn read(tree: &KernelTree) -> RealTimeLimits {
        RealTimeLimits {
            throttling: throttling(tree),
            fair_server: fair_server(tree),
        }
    }
}

impl fmt::Display for RealTimeLimits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.throttling {
            Throttling::Off => f.write_str("real-time throttling off"),
            Throttling::Bounded { runtime, period } => write!(f, "real-time throttling at {runtime} of {period}"),
            Throttling::Possible { runtime, period } => {
                write!(f, "real-time throttling unknown, at {runtime} of {period} if any")
            }
            Throttling::Unknown => f.write_str("real-time throttling not to be read"),
        }?;
        match self.fair_server {
            FairServer::None => f.write_str(", no fair server"),
            FairServer::Off => f.write_str(", fair server off"),
            FairServer::Reserves { runtime, period, cores } => {
                write!(f, ", fair server of {runtime} in {period} on {cores} cores")
            }
            FairServer::Unknown => f.write_str(", fair server not to be read"),
        }
    }
}

fn throttling(tree: &KernelTree) -> Throttling {
    let value = |file: &str| tree.read(format!("/proc/sys/kernel/{file}")).ok()?.parse::<i64>().ok();
    let (runtime, period) = match (value("sched_rt_runtime_us"), value("sched_rt_period_us")) {
        (Some(runtime), Some(period)) if (0..period).contains(&runtime) => {
            (Nanos::from_micros(runtime as u64), Nanos::from_micros(period as u64))
        }
        (Some(_), _) => return Throttling::Off,
        (None, _) => return Throttling::Unknown,
    };
    match throttles(tree) {
        Some(true) => Throttling::Bounded { runtime, period },
        Some(false) => Throttling::Off,
        None => Throttling::Possible { runtime, period },
    }
}

/// Whether this kernel throttles at all; `None` if unknown.
fn throttles(tree: &KernelTree) -> Option<bool> {
    let has_fair_server = tree.path(FAIR_SERVERS).is_dir();
    match tree.release() {
        Some(release) if release < FAIR_SERVER && !has_fair_server => Some(true),
        _ => groups_of_real_time(tree),
    }
}

/// Whether this kernel schedules groups of real-time threads (`CONFIG_RT_GROUP_SCHED`); `None` if unknown, or if the
/// boot parameter `rt_group_sched` switched it off.
fn groups_of_real_time(tree: &KernelTree) -> Option<bool> {
    let group = tree.hierarchy(Some("cpu")).map(|top| top.join("cpu.rt_runtime_us"));
    if group.is_some_and(|file| file.exists()) {
        return Some(true);
    }
    let configuration = configuration(tree)?;
    let has = |option: &str| configuration.lines().any(|line| line == option);
    if !has("CONFIG_RT_GROUP_SCHED=y") {
        return Some(false);
    }
    let told = tree.text("/proc/cmdline").contains("rt_group_sched=");
    let by_default = !has("CONFIG_RT_GROUP_SCHED_DEFAULT_DISABLED=y");
    (by_default && !told).then_some(true)
}

/// The options that the running kernel was built with, a line each; `None` where they are not installed as text.
pub(super) fn configuration(tree: &KernelTree) -> Option<String> {
    let release = tree.read("/proc/sys/kernel/osrelease").ok()?;
    let files = [
        format!("/boot/config-{release}"),
        format!("/lib/modules/{release}/config"),
    ];
    files.iter().find_map(|file| tree.read(file).ok())
}

const FAIR_SERVERS: &str = "/sys/kernel/debug/sched/fair_server";

fn fair_server(tree: &KernelTree) -> FairServer {
    if !tree.path("/sys/kernel/debug/sched").is_dir() {
        return FairServer::Unknown;
    }
    let Ok(servers) = std::fs::read_dir(tree.path(FAIR_SERVERS)) else {
        return FairServer::None;
    };
    let reserved: Vec<(Nanos, Nanos)> = servers
        .flatten()
        .filter_map(|server| {
            let value = |file: &str| read_trimmed(&server.path().join(file)).ok()?.parse().ok().map(Nanos);
            Some((value("runtime")?, value("period").unwrap_or(Nanos::ZERO)))
        })
        .filter(|(runtime, _)| *runtime > Nanos::ZERO)
        .collect();
    match reserved.iter().max() {
        None => FairServer::Off,
        Some((runtime, period)) => FairServer::Reserves {
            runtime: *runtime,
            period: *period,
            cores: reserved.len(),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::linux::testing;

    const THROTTLED: [(&str, &str); 2] = [
        ("/proc/sys/kernel/sched_rt_runtime_us", "950000"),
        ("/proc/sys/kernel/sched_rt_period_us", "1000000"),
    ];

    fn limits(files: &[(&str, &str)]) -> RealTimeLimits {
        RealTimeLimits::read(&testing::tree(&[&THROTTLED, files].concat()).1)
    }

    #[test]
    fn limits_are_told_as_the_files_say() {
        let limits = limits(&[
            ("/proc/sys/kernel/osrelease", "6.1.0-amd64"),
            ("/sys/kernel/debug/sched/latency_ns", "0"),
        ]);
        assert_eq!(limits.fair_server, FairServer::None);
        let told = limits.to_string();
        assert!(
            told.contains("950.00 ms of 1") && told.contains("no fair server"),
            "{told}"
        );
        let nothing = RealTimeLimits::read(&testing::tree(&[]).1);
        assert_eq!(nothing.throttling, Throttling::Unknown);
    }

    #[test]
    fn the_fair_server_is_told_with_its_period() {
        let servers = [
            ("/sys/kernel/debug/sched/fair_server/cpu0/runtime", "50000000"),
            ("/sys/kernel/debug/sched/fair_server/cpu0/period", "500000000"),
            ("/sys/kernel/debug/sched/fair_server/cpu1/runtime", "0"),
            ("/sys/kernel/debug/sched/fair_server/cpu1/period", "1000000000"),
        ];
        let limits = limits(&servers);
        assert!(
            limits.to_string().contains("50.00 ms in 500.00 ms on 1 cores"),
            "{limits}"
        );
    }

    #[test]
    fn throttling_ended_with_the_fair_server_but_for_groups() {
        let throttling = |release: &str, files: &[(&str, &str)]| {
            let release = [("/proc/sys/kernel/osrelease", release)];
            limits(&[&release, files].concat()).throttling
        };
        let (runtime, period) = (Nanos::from_millis(950), Nanos::from_secs(1));
        let bounded = Throttling::Bounded { runtime, period };
        let possible = Throttling::Possible { runtime, period };
        let groups = [("/boot/config-6.18.1", "CONFIG_SMP=y\nCONFIG_RT_GROUP_SCHED=y")];
        let none = [(
            "/boot/config-6.18.1",
            "CONFIG_SMP=y\n# CONFIG_RT_GROUP_SCHED is not set",
        )];
        assert_eq!(throttling("6.11.9", &[]), bounded);
        assert_eq!(throttling("6.18.1", &[]), possible);
        assert_eq!(throttling("strange", &[]), possible);
        assert_eq!(throttling("6.18.1", &groups), bounded);
        assert_eq!(throttling("6.18.1", &none), Throttling::Off);
        assert_eq!(throttling("6.18.2", &none), possible, "another kernel's configuration");
        let elsewhere = [("/lib/modules/6.18.1/config", none[0].1)];
        assert_eq!(throttling("6.18.1", &elsewhere), Throttling::Off);
        let off = [groups[0], ("/proc/cmdline", "quiet rt_group_sched=0")];
        assert_eq!(throttling("6.18.1", &off), possible);
        let version_1 = [
            ("/proc/self/mountinfo", "30 24 0:27 / /cpu rw - cgroup cgroup rw,cpu"),
            ("/cpu/cpu.rt_runtime_us", "950000"),
        ];
        assert_eq!(throttling("6.18.1", &version_1), bounded);
        // A fair server in a kernel of an older number: a distribution's.
        let backported = [("/sys/kernel/debug/sched/fair_server/cpu0/runtime", "0")];
        assert_eq!(throttling("6.6.0", &backported), possible);
        assert!(
            limits(&[])
                .to_string()
                .contains("unknown, at 950.00 ms of 1.00 s if any")
        );
    }
}
