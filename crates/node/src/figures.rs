//! Figures of a node: as INFO for clients, and as a page for Prometheus. Pure: values in, text out.

mod balancer;

use std::fmt::Write;
use std::net::SocketAddr;

use punctual_federation::ids::{FederationId, NodeId};
use punctual_federation::message::{Key, Report, Standing};
use punctual_server::metrics::{figure, label};
use punctual_server::tasks::TasksNow;
use punctual_units::{Nanos, Time};

pub use balancer::BalancerFigures;

use crate::sensing::{self, ExchangeCounts};
use crate::spans::{Account, LateOne, OutcomeCounts, SpanStage};

/// Bytes in and out of connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bytes {
    /// Bytes read from sockets.
    pub read: u64,
    /// Bytes written to sockets.
    pub written: u64,
}

/// Figures of one peer.
#[derive(Clone, Debug)]
pub struct Peer {
    /// The peer's node number.
    pub node: NodeId,
    /// Address at which the peer listens for nodes.
    pub address: SocketAddr,
    /// Whether the node counts on the peer: a message arrived within the time of a suspicion.
    pub is_live: bool,
    /// Heartbeats replaced by later ones, and messages dropped.
    pub lost: (u64, u64),
    /// Bytes written to the peer.
    pub written: u64,
    /// Readings sent to the peer, and received from it.
    pub exchanged: ExchangeCounts,
}

/// Figures of the temporal objects.
#[derive(Clone, Debug, Default)]
pub struct Objects {
    /// Upper bound of each object's age, for objects with a reading.
    pub ages: Vec<(Key, Nanos)>,
    /// Number of objects without a reading.
    pub without: u64,
    /// Number of objects whose source is this node.
    pub own: u64,
    /// Number of readings that clients have set here.
    pub sets: u64,
    /// Reports from peers that were not taken.
    pub turned: sensing::RejectedReports,
    /// Ages of reports on arrival that 50 and 99 % of the reports did not exceed.
    pub came: [Option<Nanos>; 2],
}

impl Objects {
    /// Age of the oldest reading, as an upper bound.
    pub fn oldest(&self) -> Option<Nanos> {
        self.ages.iter().map(|(_, age)| *age).max()
    }
}

/// All figures of a node at one instant.
#[derive(Clone, Debug)]
pub struct Figures {
    /// Number of this node.
    pub node: NodeId,
    /// Federation that the node belongs to.
    pub federation: FederationId,
    /// Address of the page for Prometheus, if there is one.
    pub page: Option<SocketAddr>,
    /// The instant of these figures.
    pub at: Time,
    /// Time since the node started.
    pub uptime: Nanos,
    /// Whether this node is the master.
    pub is_master: bool,
    /// The master, if the node knows one and counts on it.
    pub master: Option<NodeId>,
    /// Number of the master's term.
    pub epoch: u64,
    /// Revision up to which the log is applied here.
    pub applied: u64,
    /// Number of entries that another node has applied and this one has not.
    pub lag: u64,
    /// The node's state and load, as its heartbeats report them.
    pub said: Report,
    /// Queries that were taken but not answered.
    pub queries_waiting: usize,
    /// Bytes of records received with the last copy from other nodes.
    pub copied: u64,
    /// Outcomes of requests, and the times of late ones.
    pub account: Account,
    /// Figures of the temporal objects.
    pub objects: Objects,
    /// Figures of each peer, by node number.
    pub peers: Vec<Peer>,
    /// Number of clients now, and of all that ever connected.
    pub clients: (usize, u32),
    /// Unsent bytes of clients' replies; and replies to clients and balancers that were dropped for lack of room.
    pub replies: (usize, u64),
    /// Bytes of clients' connections.
    pub client_bytes: Bytes,
    /// Bytes of connections with other nodes and balancers.
    pub peer_bytes: Bytes,
    /// The control law that sets the bound of the backlog, if there is one.
    pub turned: Option<BoundFigures>,
    /// Tasks of this process, if there are any.
    pub tasks: Option<TasksNow>,
}

/// Figures of the control law that sets the bound of the backlog.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BoundFigures {
    /// Name of the law's present mode.
    pub mode: &'static str,
    /// The mean delay to reach.
    pub target: Nanos,
    /// Mean delay of the last period in which queries ended.
    pub delay: Option<Nanos>,
    /// CPU time spent on closing periods so far.
    pub cpu: Nanos,
}

/// Name of a standing, for INFO.
fn standing(standing: Standing) -> &'static str {
    match standing {
        Standing::Joining => "joining",
        Standing::Serving => "serving",
        Standing::Paused => "paused",
        Standing::Leaving => "leaving",
        Standing::Copying => "copying",
    }
}

fn micros(span: Nanos) -> String {
    (span.0 / 1_000).to_string()
}

/// Milliseconds, rounded up so that an age is never shown as less than it is.
fn millis(span: Option<Nanos>) -> String {
    match span {
        None => "none".into(),
        Some(Nanos::MAX) => "unknown".into(),
        Some(span) => span.0.div_ceil(1_000_000).to_string(),
    }
}

/// Joins the wanted sections of INFO; all, if none is named.
fn sections(all: impl Iterator<Item = (&'static str, Vec<(String, String)>)>, wanted: &[String]) -> String {
    let mut text = String::new();
    let words = ["all", "everything", "default"];
    for (name, lines) in all {
        let is_it = |word: &String| *word == name.to_lowercase() || words.contains(&word.as_str());
        if !wanted.is_empty() && !wanted.iter().any(is_it) {
            continue;
        }
        if !text.is_empty() {
            text.push_str("\r\n");
        }
        let _ = write!(text, "# {name}\r\n");
        for (key, value) in lines {
            let _ = write!(text, "{key}:{value}\r\n");
        }
    }
    text
}

fn request_lines(account: &Account) -> Vec<(String, String)> {
    let kinds = [("queries", &account.queries), ("transactions", &account.transactions)];
    let lines = kinds.into_iter().flat_map(|(kind, tally)| {
        let named = tally.named().into_iter();
        named.map(move |(name, count)| (format!("{kind}_{name}"), count.to_string()))
    });
    lines.collect()
}

fn late_lines(account: &Account, now: Time) -> Vec<(String, String)> {
    let at = SpanStage::ALL.into_iter().zip(account.late_at);
    let spent = SpanStage::ALL.into_iter().zip(account.late_spent);
    let at = at.map(|(place, count)| (format!("late_at_{}", place.name()), count.to_string()));
    let spent = spent.map(|(place, span)| (format!("late_{}_us", place.name()), micros(span)));
    let one = |(number, late): (usize, &LateOne)| {
        let parts = SpanStage::ALL.into_iter().zip(late.spent);
        let parts: String = parts
            .map(|(place, span)| format!(",{}_us={}", place.name(), micros(span)))
            .collect();
        let kind = if late.is_transaction { "transaction" } else { "query" };
        let told = if late.is_unknown { "unknown" } else { "expired" };
        let ago = now.since(late.at).0 / 1_000_000;
        let place = late.place.name();
        (
            format!("late{number}"),
            format!("ago_ms={ago},kind={kind},told={told},at={place}{parts}"),
        )
    };
    at.chain(spent).chain(account.late().enumerate().map(one)).collect()
}

/// Appends the figures of requests to the page; names begin with `process`.
fn request_figures(to: &mut String, process: &str, account: &Account) {
    let kinds = [("query", &account.queries), ("transaction", &account.transactions)];
    let of = |(kind, tally): (&str, &OutcomeCounts)| {
        let named = tally.named();
        named.map(|(name, count)| (format!("{{kind=\"{kind}\",outcome=\"{name}\"}}"), count as f64))
    };
    let samples: Vec<_> = kinds.into_iter().flat_map(of).collect();
    let help = "Requests of clients, by what they were told.";
    figure(to, &format!("{process}_requests_total"), "counter", help, &samples);
    let place = |place: SpanStage| format!("{{place=\"{}\"}}", place.name());
    let at: Vec<_> = SpanStage::ALL
        .into_iter()
        .zip(account.late_at)
        .map(|(at, count)| (place(at), count as f64))
        .collect();
    let help = "Requests that were late by time, or unknown at their deadline, by where they were then.";
    figure(to, &format!("{process}_late_requests_total"), "counter", help, &at);
    let spent = SpanStage::ALL.into_iter().zip(account.late_spent);
    let spent: Vec<_> = spent.map(|(at, span)| (place(at), seconds(span))).collect();
    let help = "Where the time of these went, from when they were read.";
    figure(
        to,
        &format!("{process}_late_requests_seconds_total"),
        "counter",
        help,
        &spent,
    );
}

impl Figures {
    /// The reply to INFO: the wanted sections; all, if none is named.
    pub fn info(&self, wanted: &[String]) -> String {
        let tasks = self.tasks.iter().map(|tasks| ("Tasks", tasks.lines()));
        let all = [
            ("Federation", self.federation_lines()),
            ("Admission", self.admission_lines()),
            ("Requests", request_lines(&self.account)),
            ("Late", late_lines(&self.account, self.at)),
            ("Temporal", self.temporal_lines()),
            ("Peers", self.peer_lines()),
            ("Clients", self.client_lines()),
        ];
        sections(all.into_iter().chain(tasks), wanted)
    }

    fn federation_lines(&self) -> Vec<(String, String)> {
        let role = if self.is_master { "master" } else { "slave" };
        let master = self.master.map_or("none".into(), |node| node.to_string());
        owned([
            ("node", self.node.to_string()),
            ("federation", self.federation.to_string()),
            ("role", role.into()),
            ("master_node", master),
            ("epoch", self.epoch.to_string()),
            ("applied", self.applied.to_string()),
            ("lag_entries", self.lag.to_string()),
            ("standing", standing(self.said.standing).into()),
            ("copied_bytes", self.copied.to_string()),
            ("serving_for_ms", (self.said.serving_for.0 / 1_000_000).to_string()),
            ("log_silent", u8::from(self.said.log_silent).to_string()),
            ("metrics", self.page.map_or("none".into(), |page| page.to_string())),
            ("uptime_in_seconds", (self.uptime.0 / 1_000_000_000).to_string()),
        ])
    }

    fn admission_lines(&self) -> Vec<(String, String)> {
        let report = &self.said.report;
        let delay = |span: Option<Nanos>| span.map_or("none".into(), micros);
        let turned = self.turned;
        owned([
            ("bound_law", turned.map_or("none", |turned| turned.mode).into()),
            ("delay_target_us", delay(turned.map(|turned| turned.target))),
            ("delay_mean_us", delay(turned.and_then(|turned| turned.delay))),
            ("bound_law_cpu_us", delay(turned.map(|turned| turned.cpu))),
            ("bound_items", report.bound.to_string()),
            ("backlog_items", report.backlog.to_string()),
            ("item_us", format!("{:.1}", report.cost * 1e6)),
            ("executors", report.executors.to_string()),
            ("queries_waiting", self.queries_waiting.to_string()),
            ("transactions_waiting", self.said.transactions.to_string()),
        ])
    }

    fn temporal_lines(&self) -> Vec<(String, String)> {
        let objects = &self.objects;
        let [half, most] = objects.came.map(|age| age.map_or("none".into(), micros));
        owned([
            ("objects", (objects.ages.len() as u64 + objects.without).to_string()),
            ("objects_own", objects.own.to_string()),
            ("objects_without_value", objects.without.to_string()),
            ("age_ms_max", millis(objects.oldest())),
            ("readings_set", objects.sets.to_string()),
            ("readings_unmade", objects.turned.unmade.to_string()),
            ("readings_refused", objects.turned.refused.to_string()),
            ("came_age_us_p50", half),
            ("came_age_us_p99", most),
        ])
    }

    fn peer_lines(&self) -> Vec<(String, String)> {
        let line = |peer: &Peer| {
            let ((superseded, dropped), ExchangeCounts { sent, came }) = (peer.lost, peer.exchanged);
            let text = format!(
                "address={},live={},written={},superseded={superseded},dropped={dropped},readings_offered={},\
                 readings_delivered={},readings_superseded={},readings_waiting={},readings_under_way={},\
                 readings_taken={},readings_older={},readings_skipped={}",
                peer.address,
                u8::from(peer.is_live),
                peer.written,
                sent.offered,
                sent.installed,
                sent.superseded,
                sent.pending,
                sent.in_flight,
                came.newer,
                came.older,
                came.skipped,
            );
            (format!("peer{}", peer.node), text)
        };
        self.peers.iter().map(line).collect()
    }

    fn client_lines(&self) -> Vec<(String, String)> {
        owned([
            ("connected_clients", self.clients.0.to_string()),
            ("total_connections_received", self.clients.1.to_string()),
            ("reply_bytes_waiting", self.replies.0.to_string()),
            ("replies_not_kept", self.replies.1.to_string()),
            ("client_bytes_read", self.client_bytes.read.to_string()),
            ("client_bytes_written", self.client_bytes.written.to_string()),
            ("peer_bytes_read", self.peer_bytes.read.to_string()),
            ("peer_bytes_written", self.peer_bytes.written.to_string()),
        ])
    }

    /// The page for Prometheus, as text.
    pub fn metrics(&self) -> String {
        let mut page = String::new();
        let to = &mut page;
        let plain = |value: f64| vec![(String::new(), value)];
        let gauges = self.state_gauges().into_iter().chain(self.admission_gauges());
        for (name, help, value) in gauges.chain(self.object_gauges()) {
            figure(to, name, "gauge", help, &plain(value));
        }
        if let Some(turned) = self.turned {
            let help = "The mean delay that the bound of the backlog is turned for.";
            let target = plain(seconds(turned.target));
            figure(to, "node_delay_target_seconds", "gauge", help, &target);
            let help = "The mean delay of queries in the last period in which some ended.";
            let delay = seconds(turned.delay.unwrap_or_default());
            figure(to, "node_delay_mean_seconds", "gauge", help, &plain(delay));
        }
        if let Some(tasks) = &self.tasks {
            tasks.metrics(to);
        }
        request_figures(to, "node", &self.account);
        self.exchange_figures(to);
        let ages = self
            .objects
            .ages
            .iter()
            .take(punctual_server::metrics::OBJECTS_SHOWN_MAX);
        let ages: Vec<_> = ages
            .map(|(key, age)| (format!("{{key=\"{}\"}}", label(key)), seconds(*age)))
            .collect();
        let help = "The ages at most of the readings of 100 objects.";
        figure(to, "node_object_age_seconds", "gauge", help, &ages);
        page
    }

    fn state_gauges(&self) -> [Gauge; 6] {
        let is_serving = self.said.standing == Standing::Serving;
        [
            ("node_is_master", "Whether it is the master.", flag(self.is_master)),
            (
                "node_epoch",
                "The number of the reign that it knows of.",
                self.epoch as f64,
            ),
            (
                "node_applied_revision",
                "The log is applied up to here.",
                self.applied as f64,
            ),
            (
                "node_lag_entries",
                "Entries that another node has applied and this one has not.",
                self.lag as f64,
            ),
            ("node_is_serving", "Whether it takes requests.", flag(is_serving)),
            (
                "node_log_is_silent",
                "It is the master, and the log does not answer it.",
                flag(self.said.log_silent),
            ),
        ]
    }

    fn admission_gauges(&self) -> [Gauge; 6] {
        let report = &self.said.report;
        let (queries, transactions) = (self.queries_waiting as f64, f64::from(self.said.transactions));
        let backlog = report.backlog as f64;
        [
            (
                "node_bound_items",
                "Items up to which it admits queries (d).",
                report.bound,
            ),
            (
                "node_backlog_items",
                "Items of queries admitted and not finished.",
                backlog,
            ),
            (
                "node_item_seconds",
                "What an item of a query takes, as learned.",
                report.cost,
            ),
            ("node_queries_waiting", "Queries taken and not answered.", queries),
            (
                "node_transactions_waiting",
                "Transactions taken and not answered.",
                transactions,
            ),
            ("node_connections", "Clients that are connected.", self.clients.0 as f64),
        ]
    }

    fn object_gauges(&self) -> [Gauge; 3] {
        let objects = &self.objects;
        let oldest = seconds(objects.oldest().unwrap_or_default());
        let (own, without) = (objects.own as f64, objects.without as f64);
        [
            ("node_objects_own", "Temporal objects whose source this node is.", own),
            (
                "node_objects_without_value",
                "Temporal objects without a reading.",
                without,
            ),
            (
                "node_object_age_seconds_max",
                "The age at most of the oldest reading.",
                oldest,
            ),
        ]
    }

    fn exchange_figures(&self, to: &mut String) {
        let readings = |peer: &Peer| {
            let ExchangeCounts { sent, came } = peer.exchanged;
            let node = peer.node;
            [
                ("offered", sent.offered),
                ("delivered", sent.installed),
                ("superseded", sent.superseded),
                ("taken", came.newer),
                ("older", came.older),
                ("skipped", came.skipped),
            ]
            .map(|(what, count)| (format!("{{peer=\"{node}\",what=\"{what}\"}}"), count as f64))
        };
        let samples: Vec<_> = self.peers.iter().flat_map(readings).collect();
        let help = "Readings for a peer (offered, delivered, superseded) and from it (taken, older, skipped numbers).";
        figure(to, "node_readings_total", "counter", help, &samples);
        let live = |peer: &Peer| (format!("{{peer=\"{}\"}}", peer.node), f64::from(u8::from(peer.is_live)));
        let live: Vec<_> = self.peers.iter().map(live).collect();
        figure(to, "node_peer_is_live", "gauge", "Whether a peer is counted on.", &live);
        let lost = |peer: &Peer| (format!("{{peer=\"{}\"}}", peer.node), peer.lost.1 as f64);
        let lost: Vec<_> = self.peers.iter().map(lost).collect();
        let help = "Messages for a peer that were dropped.";
        figure(to, "node_messages_dropped_total", "counter", help, &lost);
        let bytes = [
            ("client", "read", self.client_bytes.read),
            ("client", "written", self.client_bytes.written),
            ("peer", "read", self.peer_bytes.read),
            ("peer", "written", self.peer_bytes.written),
        ];
        let bytes = bytes.map(|(of, what, count)| (format!("{{of=\"{of}\",what=\"{what}\"}}"), count as f64));
        figure(to, "node_bytes_total", "counter", "Bytes of connections.", &bytes);
    }
}

/// Name, help and value of a gauge without labels.
type Gauge = (&'static str, &'static str, f64);

fn flag(is: bool) -> f64 {
    f64::from(u8::from(is))
}

fn owned<const N: usize>(lines: [(&'static str, String); N]) -> Vec<(String, String)> {
    lines.map(|(key, value)| (key.to_owned(), value)).into()
}

fn seconds(span: Nanos) -> f64 {
    span.0 as f64 / 1e9
}

#[cfg(test)]
pub(crate) mod tests {
    use punctual_federation::ids::{RequestId, Revision, SessionId};
    use punctual_federation::message::{Answer, Request, Work};

    use super::*;
    use crate::spans::Spans;

    /// The account of a transaction that arrived at an instant, spent these times at two stages, and is unknown then.
    pub(crate) fn unknown(first: SpanStage, then: SpanStage, [arrived, first_ns, then_ns]: [u64; 3]) -> Account {
        let request = Request {
            id: RequestId {
                session: SessionId(1),
                number: 1,
            },
            work: Work::Open,
            time_left: Nanos::from_secs(1),
            seen: Revision(0),
        };
        let (mut spans, moved) = (Spans::default(), arrived + first_ns);
        spans.begins(5, &request, first, Time(arrived));
        spans.moves(5, then, Time(moved));
        spans.ends(5, &Answer::Unknown, Time(moved + then_ns));
        spans.account
    }

    fn figures() -> Figures {
        let account = unknown(
            SpanStage::Queue,
            SpanStage::Log,
            [1_000_000_000 - 7_000_000, 0, 7_000_000],
        );
        Figures {
            node: NodeId(2),
            federation: FederationId(9),
            page: None,
            at: Time(1_250_000_000),
            uptime: Nanos::from_secs(61),
            is_master: true,
            master: Some(NodeId(2)),
            epoch: 4,
            applied: 71,
            lag: 0,
            said: Report::default(),
            queries_waiting: 3,
            copied: 0,
            account,
            objects: Objects {
                ages: vec![(b"a\"b".to_vec(), Nanos(1_500_000))],
                ..Objects::default()
            },
            peers: vec![Peer {
                node: NodeId(1),
                address: SocketAddr::from(([127, 0, 0, 1], 7)),
                is_live: true,
                lost: (5, 6),
                written: 11,
                exchanged: ExchangeCounts::default(),
            }],
            clients: (1, 2),
            replies: (3, 4),
            client_bytes: Bytes::default(),
            peer_bytes: Bytes::default(),
            turned: Some(BoundFigures {
                mode: "law",
                target: Nanos::from_millis(100),
                delay: Some(Nanos::from_millis(80)),
                cpu: Nanos::from_micros(30),
            }),
            tasks: Some(TasksNow {
                mode: "running".into(),
                ..TasksNow::default()
            }),
        }
    }

    #[test]
    fn info_tells_the_sections_that_are_wanted() {
        let figures = figures();
        let all = figures.info(&[]);
        for line in [
            "# Federation\r\nnode:2\r\n",
            "role:master\r\nmaster_node:2\r\nepoch:4\r\napplied:71\r\n",
            "late0:ago_ms=250,kind=transaction,told=unknown,at=log,balancer_us=0,queue_us=0,lock_us=0,store_us=0,\
             log_us=7000,network_us=0\r\n",
            "age_ms_max:2\r\n",
            "peer1:address=127.0.0.1:7,live=1,written=11,superseded=5,dropped=6,",
        ] {
            assert!(all.contains(line), "no {line} in {all}");
        }
        let some = figures.info(&["late".into(), "clients".into()]);
        let heads: Vec<&str> = some.split("\r\n").filter(|line| line.starts_with('#')).collect();
        assert_eq!(heads, ["# Late", "# Clients"]);
        assert_eq!(figures.info(&["all".into()]), all);
    }

    /// Checks that every sample stands below the help and the type of its name, and is a number.
    pub(crate) fn check_page(page: &str) {
        let mut known = String::new();
        for line in page.lines() {
            if let Some(named) = line.strip_prefix("# TYPE ") {
                known = named.split(' ').next().unwrap().to_owned();
            } else if !line.starts_with('#') {
                let (name, value) = line.rsplit_once(' ').unwrap();
                assert_eq!(name.split('{').next().unwrap(), known, "{line}");
                assert!(value.parse::<f64>().is_ok(), "{line}");
            }
        }
    }

    #[test]
    fn the_page_is_as_prometheus_reads_it() {
        let page = figures().metrics();
        check_page(&page);
        for line in [
            "punctual_node_is_master 1\n",
            "punctual_node_requests_total{kind=\"transaction\",outcome=\"unknown\"} 1\n",
            "punctual_node_late_requests_seconds_total{place=\"log\"} 0.007\n",
            "punctual_node_object_age_seconds{key=\"a\\\"b\"} 0.0015\n",
            "punctual_node_messages_dropped_total{peer=\"1\"} 6\n",
        ] {
            assert!(page.contains(line), "no {line} in {page}");
        }
    }
}
