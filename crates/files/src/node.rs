//! Section `[federation]` of a node's file.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;

use punctual_federation::admission::AdmissionKind;
use punctual_federation::ids::{FederationId, NodeId};
use punctual_toml::Section;
use punctual_units::{Nanos, fnv1a};
use serde::{Deserialize, Serialize};

use crate::server::{TlsPaths, tls};

/// Most nodes of a federation: each has a connection to every other.
const NODES_MAX: usize = 64;
/// Largest artificial cost of a request that a file may state.
pub const WORK_MAX: Nanos = Nanos::from_secs(1);
/// Allowed sizes of a store, in bytes; at least 16 log entries of 1 MiB each.
pub const STORE_BYTES: std::ops::RangeInclusive<u64> = 16 << 20..=1 << 40;
/// Default size of a store, in bytes.
pub const STORE_BYTES_USUAL: u64 = 1 << 30;
/// Default number of entries that the log keeps for nodes that are behind.
pub const LOG_ENTRIES_MAX: u64 = 10_000;

/// Settings of a node within its federation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Membership {
    pub federation: FederationId,
    pub node: NodeId,
    /// Addresses at which nodes reach each other, by node number: host and port.
    pub nodes: Vec<String>,
    /// Address on which this node listens for the others; `None`: its own in `nodes`.
    pub listen: Option<SocketAddr>,
    pub log: LogAddress,
    pub log_entries_max: u64,
    pub store_bytes_max: u64,
    /// Certificates between nodes, with their authority in [`TlsPaths::clients`].
    pub tls: Option<TlsPaths>,
    /// Processor time that each request takes in addition to its own cost, to try out a load.
    pub work: Nanos,
    /// Admission of queries.
    pub admission: AdmissionKind,
    /// Control of the backlog's bound; `None`: a fixed bound.
    pub backlog: Option<BacklogFile>,
}

/// Settings of the control of a node's backlog.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BacklogFile {
    /// Target for the mean delay of queries.
    pub target: Nanos,
    /// Interval between changes of the bound.
    pub period: Nanos,
    /// File of the node's model; written once the model is learned.
    pub model: Option<PathBuf>,
}

impl Default for BacklogFile {
    /// Chronos-C's: a mean delay of 1 s, a period of 1 s; a model that each node learns.
    fn default() -> BacklogFile {
        BacklogFile {
            target: Nanos::from_secs(1),
            period: Nanos::from_secs(1),
            model: None,
        }
    }
}

/// The control of the backlog's bound that goes with an admission: the paper's has one, an open one has no bound.
pub fn control_of(admission: AdmissionKind, backlog: Option<BacklogFile>) -> Option<BacklogFile> {
    match admission {
        AdmissionKind::Open => None,
        AdmissionKind::Paper => Some(backlog.unwrap_or_default()),
        AdmissionKind::Timely => backlog,
    }
}

/// Reads `admission`, and the table `backlog` that goes with it.
pub fn admission(section: &mut Section<'_, '_>) -> (Option<AdmissionKind>, Option<BacklogFile>) {
    let kind = section.choice("admission", &AdmissionKind::NAMED);
    let control = section.table_if("backlog", backlog);
    if control.is_some() && kind == Some(AdmissionKind::Open) {
        let what = "no bound is kept with admission = \"open\": leave the table out, or choose \"paper\" or \"timely\"";
        section.complain("backlog", what);
    }
    (kind, control)
}

/// Reads the table `backlog`.
fn backlog(section: &mut Section<'_, '_>) -> BacklogFile {
    let targets = Nanos::from_millis(1)..=Nanos::from_secs(60);
    let target = section.within("target", targets);
    if target.is_none() {
        section.complain(
            "target",
            "expected the mean delay that queries are to have, such as \"100ms\"",
        );
    }
    let periods = Nanos::from_millis(100)..=Nanos::from_secs(60);
    BacklogFile {
        target: target.unwrap_or_default(),
        period: section.within("period", periods).unwrap_or(Nanos::from_secs(1)),
        model: section.text("model").map(PathBuf::from),
    }
}

/// Storage of a federation's log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogAddress {
    /// Unix socket on this machine (`punctual cluster log`).
    Socket(PathBuf),
    /// Address in etcd; `punctual cluster found` has created the log there.
    Etcd(String),
}

impl fmt::Display for LogAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LogAddress::Socket(path) => write!(f, "unix:{}", path.display()),
            LogAddress::Etcd(address) => write!(f, "{address}"),
        }
    }
}

impl FromStr for LogAddress {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<LogAddress, &'static str> {
        match text.strip_prefix("unix:") {
            Some(path) if !path.is_empty() => Ok(LogAddress::Socket(path.into())),
            None if text.starts_with("etcd://") || text.starts_with("etcds://") => Ok(LogAddress::Etcd(text.into())),
            _ => Err(
                "expected \"unix:PATH\", the socket of `punctual cluster log`, or an address of etcd such as \
                      \"etcd://10.0.0.1:2379,10.0.0.2:2379,10.0.0.3:2379/plant\"",
            ),
        }
    }
}

/// Reads the section `[federation]`.
pub fn read(section: &mut Section<'_, '_>) -> Membership {
    let name = section.text("name").unwrap_or_default();
    if name.is_empty() {
        section.complain(
            "name",
            "expected the federation's name, the same in the file of each node",
        );
    }
    let nodes = nodes(section);
    let number = section.count::<usize>("node");
    if number.is_none_or(|number| number >= nodes.len()) {
        section.complain(
            "node",
            "expected this node's number: its place among `nodes`, from 0 on",
        );
    }
    let listen = section.parsed("listen", "an address and a port such as \"0.0.0.0:7400\"");
    let log = match section.text("log").unwrap_or_default().parse() {
        Ok(log) => log,
        Err(what) => {
            section.complain("log", what);
            LogAddress::Socket(PathBuf::new())
        }
    };
    let (kind, backlog) = admission(section);
    let kind = kind.unwrap_or_default();
    Membership {
        admission: kind,
        backlog: control_of(kind, backlog),
        work: section.within("work", Nanos::ZERO..=WORK_MAX).unwrap_or(Nanos::ZERO),
        federation: FederationId(number_of(&name)),
        node: NodeId(number.unwrap_or_default() as u32),
        nodes,
        listen,
        log,
        log_entries_max: section
            .within("log_entries_max", 1..=u64::MAX)
            .unwrap_or(LOG_ENTRIES_MAX),
        store_bytes_max: section
            .within("store_bytes_max", STORE_BYTES)
            .unwrap_or(STORE_BYTES_USUAL),
        tls: of_nodes(section),
    }
}

/// Addresses at which nodes reach each other.
pub fn nodes(section: &mut Section<'_, '_>) -> Vec<String> {
    let nodes = section.texts("nodes").unwrap_or_default();
    if !(1..=NODES_MAX).contains(&nodes.len()) {
        let what = format!("expected where 1 to {NODES_MAX} nodes reach each other, by number: [\"robot-0:7400\", ..]");
        section.complain("nodes", what);
    }
    for (at, node) in nodes.iter().enumerate() {
        let port = node
            .rsplit_once(':')
            .and_then(|(host, port)| (!host.is_empty()).then_some(port));
        if !port.is_some_and(|port| port.parse::<u16>().is_ok_and(|port| port > 0)) {
            section.complain("nodes", format!("{node} is no host and port such as \"robot-0:7400\""));
        } else if nodes[..at].contains(node) {
            section.complain("nodes", format!("{node} is there twice: each node has its own place"));
        }
    }
    nodes
}

/// Certificates of nodes and balancers, which present one to each other.
pub fn of_nodes(section: &mut Section<'_, '_>) -> Option<TlsPaths> {
    let certificates = section.table_if("tls", tls);
    if certificates.as_ref().is_some_and(|tls| tls.clients.is_none()) {
        let what = "tls needs `clients`, the authority of all nodes' certificates: each shows one to each";
        section.complain("tls", what);
    }
    certificates
}

/// Number of a federation by its name, the same in every program and version (FNV-1a, 64 bits).
pub fn number_of(name: &str) -> u64 {
    fnv1a(name.bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_of_a_name_stays_what_it_is() {
        // As the reference of FNV-1a gives it: all nodes of all versions must agree.
        assert_eq!(number_of(""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(number_of("a"), 0xaf63_dc4c_8601_ec8c);
        assert_eq!(number_of("foobar"), 0x8594_4171_f739_67e8);
    }

    #[test]
    fn admission_is_chosen_by_name_and_an_unknown_one_is_refused_with_all_names() {
        let read = |text: &str| {
            punctual_toml::read(text, "x.toml", |top: &mut Section<'_, '_>| {
                let (kind, backlog) = admission(top);
                let kind = kind.unwrap_or_default();
                (kind, control_of(kind, backlog).map(|control| control.target))
            })
        };
        let table = "[backlog]\ntarget = \"50ms\"\n";
        let target = |text: &str| read(&format!("{text}\n{table}"));
        assert_eq!(read(""), Ok((AdmissionKind::Timely, None)));
        assert_eq!(read("admission = \"open\""), Ok((AdmissionKind::Open, None)));
        let paper = "admission = \"paper\"";
        assert_eq!(read(paper), Ok((AdmissionKind::Paper, Some(Nanos::from_secs(1)))));
        assert_eq!(target(paper), Ok((AdmissionKind::Paper, Some(Nanos::from_millis(50)))));
        assert_eq!(target(""), Ok((AdmissionKind::Timely, Some(Nanos::from_millis(50)))));
        let wrong = read("admission = \"strict\"").unwrap_err();
        assert!(wrong[0].contains("x.toml:1: admission: ") && wrong[0].contains("\"open\" or \"paper\" or \"timely\""));
        let wrong = target("admission = \"open\"").unwrap_err();
        assert!(wrong[0].contains("backlog: no bound is kept"), "{wrong:?}");
    }

    #[test]
    fn a_log_has_an_address() {
        assert_eq!("unix:/run/log".parse(), Ok(LogAddress::Socket("/run/log".into())));
        for shown in ["unix:/run/log", "etcd://a:1/x", "etcds://a:1?ca=x"] {
            assert_eq!(shown.parse::<LogAddress>().map(|log| log.to_string()), Ok(shown.into()));
        }
        for wrong in ["", "unix:", "/run/log", "etcd:"] {
            assert!(wrong.parse::<LogAddress>().is_err(), "{wrong}");
        }
    }
}
