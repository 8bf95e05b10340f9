//! How a core is kept, and what protection that really gives it.

use std::fmt;

use punctual_units::CoreId;
use serde::{Deserialize, Serialize};

use super::super::real_time::RealTimeLimits;
use crate::{Refusal, Stay, Why};

/// How a core is kept, the best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mechanism {
    /// A cpuset partition without load balancing (cgroup version 2).
    IsolatedPartition,
    /// A cpuset partition (cgroup version 2).
    Partition,
    /// All other threads in a cpuset without the core (cgroup version 1).
    Cpuset,
    /// The affinity of every thread.
    Affinity,
    /// The kernel was booted to keep the core free (`isolcpus`).
    Isolated,
}

impl fmt::Display for Mechanism {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Mechanism::IsolatedPartition => "isolated cpuset partition (cgroup v2)",
            Mechanism::Partition => "cpuset partition (cgroup v2)",
            Mechanism::Cpuset => "cpuset (cgroup v1)",
            Mechanism::Affinity => "affinity of every thread",
            Mechanism::Isolated => "the kernel's command line (isolcpus)",
        })
    }
}

/// How many threads a sweep met.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Census {
    /// Moved away.
    pub moved: usize,
    /// Bound to the core by the kernel.
    pub kept: usize,
    /// Not this user's to move.
    #[serde(default)]
    pub not_ours: usize,
    /// Left alone on purpose.
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
        write!(
            f,
            "{} threads moved away, {} bound to their cores, ",
            self.moved, self.kept
        )?;
        if self.not_ours > 0 {
            write!(f, "{} not this user's to move, ", self.not_ours)?;
        }
        write!(f, "{} left alone", self.spared)
    }
}

/// Programs that are listed of those that may still run on a core: a core has about ten kernel threads of its own.
pub const STAYS_MAX: usize = 64;

/// What protection the core really has.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Obtained {
    /// Which core.
    pub core: CoreId,
    /// How it is kept.
    pub mechanism: Mechanism,
    /// The threads met when it was taken; all zero for a partition, where the kernel moves them itself.
    pub threads: Census,
    /// The programs that may still run there, the first [`STAYS_MAX`].
    #[serde(default)]
    pub stays: Vec<Stay>,
    /// Interrupts that left it, and interrupts that would not.
    pub interrupts: (usize, usize),
    /// Interrupts that were steered onto it.
    #[serde(default)]
    pub steered: Vec<String>,
    /// Whether kernel work that is bound to no core stays off it.
    pub unbound_work: bool,
    /// How long leaving an idle state of the core takes at most, in microseconds; none where that is as the kernel
    /// likes.
    #[serde(default)]
    pub idle_exit_max_us: Option<u32>,
    /// What bounds real-time threads on it.
    pub limits: RealTimeLimits,
    /// Better mechanisms, and why this machine refused them.
    pub refused: Vec<Refusal>,
}

impl fmt::Display for Obtained {
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
