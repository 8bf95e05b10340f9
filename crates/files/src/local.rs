//! Settings of a local cluster.

use std::path::Path;

use punctual_federation::admission::AdmissionKind;
use punctual_federation::balancer::BalancerKind;
use punctual_toml::{Section, read_checked};
use punctual_units::Nanos;
use punctual_workload::Problems;

use crate::document;
use crate::failure::Failure;
use crate::node::{self, BacklogFile, LOG_ENTRIES_MAX, STORE_BYTES, STORE_BYTES_USUAL, WORK_MAX, control_of};
use crate::server::{OBJECTS_MAX, VALIDITIES};

/// Most nodes of a cluster on one machine.
const NODES_MAX: u32 = 16;
/// Most balancers of a cluster on one machine.
const BALANCERS_MAX: u32 = 8;
/// Longest time for which an item keeps a thread.
const ITEM_MAX: Nanos = Nanos::from_millis(10);
/// Allowed durations of a run.
const DURATIONS: std::ops::RangeInclusive<Nanos> = Nanos::from_secs(1)..=Nanos::from_secs(86_400);

/// Settings of a local cluster; the default is two balancers and three nodes.
#[derive(Clone, Debug, PartialEq)]
pub struct LocalSettings {
    /// Number of nodes, 1 to 16.
    pub nodes: u32,
    /// Number of balancers between nodes and clients: 1 to 8 in files and options, 0 for nodes alone.
    pub balancers: u32,
    /// Policy of the balancers.
    pub balancer: BalancerKind,
    /// Policies of further balancers, for comparisons on the same nodes; none in files and options.
    pub more_balancers: Vec<BalancerKind>,
    /// Admission of the nodes, and the control of the bound that goes with it.
    pub admission: AdmissionKind,
    pub backlog: Option<BacklogFile>,
    /// Time until the cluster ends, 1 s to 24 h; `None`: until Ctrl-C.
    pub duration: Option<Nanos>,
    /// Processor time that a node spends on each request, in addition to its own cost.
    pub work: Nanos,
    /// Time for which an item of a query keeps a node's thread without its processor, as on a machine of its own.
    pub item: Nanos,
    /// Most entries that the log keeps for nodes that are behind.
    pub log_entries_max: u64,
    /// Size limit of each node's store, in bytes.
    pub store_bytes_max: u64,
    /// Age up to which a temporal object counts as fresh.
    pub validity: Nanos,
    /// Most temporal objects that a node keeps.
    pub objects_max: usize,
}

impl Default for LocalSettings {
    fn default() -> LocalSettings {
        LocalSettings {
            nodes: 3,
            balancers: 2,
            balancer: BalancerKind::default(),
            more_balancers: Vec::new(),
            admission: AdmissionKind::default(),
            backlog: None,
            duration: None,
            work: Nanos::ZERO,
            item: Nanos::ZERO,
            log_entries_max: LOG_ENTRIES_MAX,
            store_bytes_max: STORE_BYTES_USUAL,
            validity: Nanos::from_secs(1),
            objects_max: 1024,
        }
    }
}

impl LocalSettings {
    /// Takes the keys of a file; what it leaves out stays.
    #[must_use]
    pub fn or_of(self, top: &mut Section<'_, '_>) -> LocalSettings {
        let (admission, backlog) = node::admission(top);
        let admission = admission.unwrap_or(self.admission);
        LocalSettings {
            admission,
            backlog: control_of(admission, backlog),
            nodes: top.count("nodes").unwrap_or(self.nodes),
            balancers: top.count("balancers").unwrap_or(self.balancers),
            more_balancers: self.more_balancers,
            balancer: top.choice("balancer", &BalancerKind::NAMED).unwrap_or(self.balancer),
            duration: top.time("duration").or(self.duration),
            work: top.time("work").unwrap_or(self.work),
            item: top.within("item", Nanos::ZERO..=ITEM_MAX).unwrap_or(self.item),
            log_entries_max: top.count("log_entries_max").unwrap_or(self.log_entries_max),
            store_bytes_max: top.count("store_bytes_max").unwrap_or(self.store_bytes_max),
            validity: top.within("validity", VALIDITIES).unwrap_or(self.validity),
            objects_max: top.within("objects_max", 0..=OBJECTS_MAX).unwrap_or(self.objects_max),
        }
    }

    /// Keys whose values are out of range, each with what is allowed.
    pub fn faults(&self) -> Problems {
        let mut faults = Problems::default();
        let (nodes, balancers) = (1..=NODES_MAX, 1..=BALANCERS_MAX);
        faults.require(
            nodes.contains(&self.nodes),
            "nodes",
            format!("1 to {NODES_MAX} nodes run on one machine"),
        );
        let what = format!("1 to {BALANCERS_MAX} balancers run on one machine");
        faults.require(balancers.contains(&self.balancers), "balancers", what);
        let lasts = self.duration.is_none_or(|duration| DURATIONS.contains(&duration));
        faults.require(lasts, "duration", "a run takes 1 s to 24 h");
        faults.require(
            self.work <= WORK_MAX,
            "work",
            format!("a request costs a node at most {WORK_MAX}"),
        );
        faults.require(
            self.log_entries_max > 0,
            "log_entries_max",
            "the log keeps at least 1 entry",
        );
        let what = "a store has 16777216 (16 MiB) to 1099511627776 (1 TiB) bytes";
        faults.require(STORE_BYTES.contains(&self.store_bytes_max), "store_bytes_max", what);
        faults
    }
}

/// Reads a file of settings by `read`, and checks them.
///
/// # Errors
/// [`Failure::Input`] with all problems of the file.
pub fn load<T>(
    file: &Path,
    read: impl FnOnce(&mut Section<'_, '_>) -> T,
    faults: impl FnOnce(&T) -> Problems,
) -> Result<T, Failure> {
    document::load(file, "a file of settings", |text, shown| {
        read_checked(text, shown, read, |settings| {
            faults(settings).0.into_iter().map(|fault| (fault.key, fault.what))
        })
    })
}
