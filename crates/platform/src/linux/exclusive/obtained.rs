//! The method by which a core is kept, and the protection that it obtained.

use std::fmt;

use punctual_units::CoreId;
use serde::{Deserialize, Serialize};

use super::super::real_time::RealTimeLimits;
use crate::{Refusal, Stay, Why};

punctual_units::named! {
    /// Methods of keeping a core, the best first.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
    #[serde(rename_all = "kebab-case")]
    pub enum Mechanism by name {
        /// A cpuset partition without load balancing (cgroup version 2), and so of isolated cores.
        IsolatedPartition = "isolated cpuset partition (cgroup v2)",
        /// A cpuset partition with load balancing (cgroup version 2).
        Partition = "cpuset partition (cgroup v2)",
        /// A cpuset without the core for all other threads (cgroup version 1).
        Cpuset = "cpuset (cgroup v1)",
        /// The affinity of every other thread.
        Affinity = "affinity of every thread",
        /// The kernel was booted to keep the core free (`isolcpus`).
        Isolated = "the kernel's command line (isolcpus)",
    }
}

impl fmt::Display for Mechanism {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// Numbers of threads that a sweep met, by outcome.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Census {
    /// Threads that were moved away.
    pub moved: usize,
    /// Threads that the kernel binds to the core.
    pub kept: usize,
    /// Threads that this user may not move.
    #[serde(default)]
    pub not_ours: usize,
    /// Threads that were spared on purpose.
    pub spared: usize,
}

impl Census {
    pub(super) fn count(&mut self, stays: Why) {
        match stays {
            Why::NotPermitted => self.not_ours += 1,
            Why::Bound => self.kept += 1,
            Why::Own | Why::Init | Why::Spared | Why::Shares => self.spared += 1,
        }
    }
}

impl fmt::Display for Census {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Census { moved, kept, .. } = self;
        write!(f, "{moved} threads moved away, {kept} bound to their cores, ")?;
        if self.not_ours > 0 {
            write!(f, "{} not this user's to move, ", self.not_ours)?;
        }
        write!(f, "{} left alone", self.spared)
    }
}

/// Upper bound on listed programs that may still run on a core: a core has about ten kernel threads of its own.
pub const STAYS_MAX: usize = 64;

/// The protection that a core obtained.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CoreProtection {
    /// Number of the core.
    pub core: CoreId,
    /// Method by which the core is kept.
    pub mechanism: Mechanism,
    /// Threads met when the core was taken; all zero for a partition, where the kernel moves them itself.
    pub threads: Census,
    /// Programs that may still run there, the first [`STAYS_MAX`].
    #[serde(default)]
    pub stays: Vec<Stay>,
    /// Number of interrupts that left the core, and of those that could not.
    pub interrupts: (usize, usize),
    /// Names of the interrupts that were steered onto the core.
    #[serde(default)]
    pub steered: Vec<String>,
    /// Whether kernel work that is bound to no core stays off it.
    pub unbound_work: bool,
    /// Longest exit latency of the core's idle states, in microseconds; `None`: the kernel's choice.
    #[serde(default)]
    pub idle_exit_max_us: Option<u32>,
    /// Kernel rules that bound real-time threads on the core.
    pub limits: RealTimeLimits,
    /// Better methods, each with the reason why this machine refused it.
    pub refused: Vec<Refusal>,
}

impl fmt::Display for CoreProtection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "core {} kept by {}", self.core, self.mechanism)?;
        if self.threads != Census::default() {
            write!(f, "; {}", self.threads)?;
        }
        let (moved, kept) = self.interrupts;
        write!(f, "; {moved} interrupts moved, {kept} not; ")?;
        if !self.steered.is_empty() {
            write!(f, "interrupts {} steered here; ", self.steered.join(", "))?;
        }
        f.write_str(match self.unbound_work {
            true => "unbound kernel work elsewhere; ",
            false => "unbound kernel work anywhere; ",
        })?;
        if let Some(us) = self.idle_exit_max_us {
            write!(f, "idle states left within {us} us; ")?;
        }
        write!(f, "{}", self.limits)
    }
}
