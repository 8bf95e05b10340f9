//! Figures of a node, for INFO and for Prometheus. Pure: values in, text out.

mod balancer;

use std::net::SocketAddr;

use punctual_federation::ids::{FederationId, NodeId};
use punctual_federation::message::{Key, Report, Standing};
use punctual_server::door::DoorState;
use punctual_server::figures::{
    Figure, FigureValue, figure, info, object_ages, or_none, prometheus, row, section, word,
};
use punctual_server::link::Bytes;
use punctual_server::tasks::TasksNow;
use punctual_units::{Nanos, Time};

pub use balancer::BalancerFigures;

use crate::sensing::{self, ExchangeCounts};
use crate::spans::{Account, LateOne, SpanStage};

/// Help of the figures that a watch over nodes explains, too.
pub mod help {
    pub const EPOCH: &str = "Number of the master's term";
    pub const APPLIED: &str = "Revision up to which the log is applied";
    pub const LAG: &str = "Entries that another node has applied and this one has not";
    pub const BOUND: &str = "Items of queries up to which the node admits (d)";
    pub const OLDEST: &str = "Upper bound of the age of the oldest reading";
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
    pub rejected: sensing::RejectedReports,
    /// Ages of reports on arrival that 50 and 99 % of the reports did not exceed.
    pub arrival_ages: [Option<Nanos>; 2],
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
    /// Whether there is a master that can commit, as far as the node knows.
    pub commits: bool,
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
    /// State of the clients' door.
    pub door: DoorState,
    /// Replies to clients and balancers that were dropped for lack of room.
    pub unkept: u64,
    /// Bytes of connections with other nodes and balancers.
    pub peer_bytes: Bytes,
    /// The control law that sets the bound of the backlog, if there is one.
    pub bound: Option<BoundFigures>,
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

/// Name of a standing, for INFO; a node that serves while no master `commits` is read-only.
fn standing(standing: Standing, commits: bool) -> &'static str {
    match standing {
        Standing::Serving if !commits => "read-only",
        Standing::Joining => "joining",
        Standing::Serving => "serving",
        Standing::Paused => "paused",
        Standing::Leaving => "leaving",
        Standing::Copying => "copying",
    }
}

/// Outcomes of requests, and the stages at which late ones spent their time.
fn request_figures(account: &Account, now: Time) -> Vec<Figure> {
    let kinds = [
        ("queries", "query", &account.queries),
        ("transactions", "transaction", &account.transactions),
    ];
    let outcomes = kinds.into_iter().flat_map(|(kinds, kind, tally)| {
        let outcome = move |(outcome, count)| {
            let help = "Requests of clients, by their outcome";
            let figure = figure(format!("{kinds}_{outcome}"), count, help);
            figure.named("requests_total").of("kind", kind).of("outcome", outcome)
        };
        tally.named().map(outcome)
    });
    let late = SpanStage::ALL.into_iter().flat_map(|place| {
        let name = place.name();
        let help = "Requests that expired, or were unknown at their deadline, by their stage at that time";
        let at = figure(format!("late_at_{name}"), account.late_at[place as usize], help);
        let help = "Time of these requests from when they were read, by stage";
        let spent = figure(format!("late_{name}_us"), account.late_spent[place as usize], help);
        let at = at.named("late_requests_total").of("place", name);
        [at, spent.named("late_requests_seconds_total").of("place", name)]
    });
    let one = |(number, late): (usize, &LateOne)| {
        let about = [
            word("ago_ms", now.since(late.at)),
            word("kind", if late.is_transaction { "transaction" } else { "query" }),
            word("told", if late.is_unknown { "unknown" } else { "expired" }),
            word("at", late.place.name()),
        ];
        let spent = SpanStage::ALL.into_iter().zip(late.spent);
        let spent = spent.map(|(place, span)| word(format!("{}_us", place.name()), span));
        row("Late", format!("late{number}"), about.into_iter().chain(spent))
    };
    let ones = account.late().enumerate().flat_map(one);
    let sums = section("Requests", outcomes).chain(section("Late", late));
    sums.chain(ones).collect()
}

/// Clients now, and of all that ever connected; bytes of their connections.
fn client_figures(door: &DoorState) -> impl Iterator<Item = Figure> {
    let counts = [
        figure("connected_clients", door.connections, "Clients that are connected").named("connections"),
        figure(
            "total_connections_received",
            door.totals.begun,
            "Connections since the start",
        )
        .named("connections_received_total"),
    ];
    let bytes = byte_figures("client", ["client_bytes_read", "client_bytes_written"], door.traffic);
    section("Clients", counts.into_iter().chain(bytes))
}

fn byte_figures(of: &str, [read, written]: [&'static str; 2], bytes: Bytes) -> [Figure; 2] {
    [(read, "read", bytes.read), (written, "written", bytes.written)].map(|(key, what, count)| {
        let figure = figure(key, count, "Bytes of connections").named("bytes_total");
        figure.of("of", of).of("what", what)
    })
}

impl Figures {
    /// The reply to INFO: the wanted sections; all, if none is named.
    pub fn info(&self, wanted: &[String]) -> String {
        let tasks = self.tasks.iter().flat_map(TasksNow::figures);
        info(&self.list().into_iter().chain(tasks).collect::<Vec<_>>(), wanted)
    }

    /// The page for Prometheus, as text.
    pub fn metrics(&self) -> String {
        let ages = self.objects.ages.iter().map(|(key, age)| (key.as_slice(), *age));
        let all: Vec<_> = self.list().into_iter().chain(object_ages(ages)).collect();
        let tasks = self.tasks.as_ref().map(TasksNow::figures);
        prometheus("node_", &all) + &prometheus("", &tasks.unwrap_or_default())
    }

    fn list(&self) -> Vec<Figure> {
        let mut all: Vec<Figure> = section("Federation", self.federation()).collect();
        all.extend(section("Admission", self.admission()));
        all.extend(request_figures(&self.account, self.at));
        all.extend(section("Temporal", self.temporal()));
        let peer = |peer: &Peer| row("Peers", format!("peer{}", peer.node), peer.figures());
        all.extend(self.peers.iter().flat_map(peer));
        all.extend(client_figures(&self.door));
        let unsent = figure(
            "reply_bytes_waiting",
            self.door.unsent,
            "Unsent bytes of clients' replies",
        );
        let unkept = figure("replies_not_kept", self.unkept, "Replies dropped for lack of room");
        let replies = [unsent, unkept.named("replies_dropped_total")];
        let bytes = byte_figures("peer", ["peer_bytes_read", "peer_bytes_written"], self.peer_bytes);
        all.extend(section("Clients", replies.into_iter().chain(bytes)));
        all
    }

    #[rustfmt::skip] // a figure a line
    fn federation(&self) -> [Figure; 14] {
        let (said, role) = (&self.said, if self.is_master { "master" } else { "slave" });
        let standing = (said.standing == Standing::Serving, standing(said.standing, self.commits));
        let silent = "Whether the node is the master and the log does not answer";
        let full = "Whether the node is the master and the log's medium is full";
        [
            word("node", self.node.to_string()),
            word("federation", self.federation.to_string()),
            figure("role", (self.is_master, role), "Whether the node is the master").named("is_master"),
            word("master_node", or_none(self.master)),
            figure("epoch", self.epoch, help::EPOCH),
            figure("applied", self.applied, help::APPLIED).named("applied_revision"),
            figure("lag_entries", self.lag, help::LAG),
            figure("standing", standing, "Whether the node serves requests").named("is_serving"),
            figure("copied_bytes", self.copied, "Bytes of records received with the last copy from other nodes"),
            figure("serving_for_ms", said.serving_for, "Time for which the node has served"),
            figure("log_silent", said.log_silent, silent).named("log_is_silent"),
            figure("log_full", said.log_full, full).named("log_is_full"),
            word("metrics", or_none(self.page)),
            figure("uptime_in_seconds", self.uptime, "Time since the node started").named("uptime_seconds"),
        ]
    }

    #[rustfmt::skip] // a figure a line
    fn admission(&self) -> [Figure; 10] {
        let (report, law) = (&self.said.report, self.bound);
        let cost = FigureValue::Number(report.cost, format!("{:.1}", report.cost * 1e6));
        let delay = law.and_then(|law| law.delay);
        let cpu = law.map(|law| law.cpu);
        [
            word("bound_law", law.map_or("none", |law| law.mode)),
            figure("delay_target_us", law.map(|law| law.target), "Mean delay for which the bound is set"),
            figure("delay_mean_us", delay, "Mean delay of queries in the last period in which some ended"),
            figure("bound_law_cpu_us", cpu, "CPU time of the bound's control law").named("bound_law_cpu_seconds_total"),
            figure("bound_items", report.bound, help::BOUND),
            figure("backlog_items", report.backlog, "Items of queries admitted and not finished"),
            figure("item_us", cost, "Time of an item of a query, as learned"),
            figure("executors", report.executors, "Threads that execute queries"),
            figure("queries_waiting", self.queries_waiting, "Queries received and not answered"),
            figure("transactions_waiting", self.said.transactions, "Transactions received and not answered"),
        ]
    }

    #[rustfmt::skip] // a figure a line
    fn temporal(&self) -> [Figure; 9] {
        let objects = &self.objects;
        let [unmade, refused] = [objects.rejected.unmade, objects.rejected.refused];
        let came = |key, age, quantile| {
            let age = figure(key, age, "Ages of peers' reports on arrival").named("report_age_seconds");
            age.of("quantile", quantile)
        };
        [
            figure("objects", objects.ages.len() as u64 + objects.without, "Temporal objects"),
            figure("objects_own", objects.own, "Temporal objects whose source is this node"),
            figure("objects_without_value", objects.without, "Temporal objects without a reading"),
            figure("age_ms_max", objects.oldest(), help::OLDEST).named("object_age_seconds_max"),
            figure("readings_set", objects.sets, "Readings that clients have set here").named("readings_set_total"),
            figure("readings_unmade", unmade, "Reports of objects that do not exist here or have another source")
                .named("readings_unmade_total"),
            figure("readings_refused", refused, "Reports of other nodes' objects, of too many, or of too long a value")
                .named("readings_refused_total"),
            came("came_age_us_p50", objects.arrival_ages[0], "0.5"),
            came("came_age_us_p99", objects.arrival_ages[1], "0.99"),
        ]
    }
}

impl Peer {
    #[rustfmt::skip] // a figure a line
    fn figures(&self) -> [Figure; 13] {
        let ((superseded, dropped), ExchangeCounts { sent, came }) = (self.lost, self.exchanged);
        let of = |figure: Figure| figure.of("peer", self.node);
        let readings = |key, count: u64, what| {
            let help = "Readings for a peer (offered, delivered, superseded) and from it (taken, older, skipped)";
            of(figure(key, count, help).named("readings_total")).of("what", what)
        };
        let written = figure("written", self.written, "Bytes written to a peer").named("peer_written_bytes_total");
        let superseded = figure("superseded", superseded, "Heartbeats for a peer that later ones replaced");
        let dropped = figure("dropped", dropped, "Messages for a peer that were dropped");
        [
            word("address", self.address.to_string()),
            of(figure("live", self.is_live, "Whether the node counts on a peer").named("peer_is_live")),
            of(written),
            of(superseded.named("heartbeats_superseded_total")),
            of(dropped.named("messages_dropped_total")),
            readings("readings_offered", sent.offered, "offered"),
            readings("readings_delivered", sent.installed, "delivered"),
            readings("readings_superseded", sent.superseded, "superseded"),
            of(figure("readings_waiting", sent.pending, "Readings that wait for a peer")),
            of(figure("readings_under_way", sent.in_flight, "Readings on their way to a peer")),
            readings("readings_taken", came.newer, "taken"),
            readings("readings_older", came.older, "older"),
            readings("readings_skipped", came.skipped, "skipped"),
        ]
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use punctual_federation::ids::{RequestId, Revision, SessionId};
    use punctual_federation::message::{Answer, Request, Work};

    use punctual_server::door::Totals;

    use super::*;

    /// The state of a door with clients now, clients ever, and unsent bytes.
    pub(super) fn door(connections: usize, begun: u64, unsent: usize) -> DoorState {
        let totals = Totals {
            begun,
            ..Totals::default()
        };
        DoorState {
            connections,
            totals,
            unsent,
            ..DoorState::default()
        }
    }
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
            commits: true,
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
            door: door(1, 2, 3),
            unkept: 4,
            peer_bytes: Bytes::default(),
            bound: Some(BoundFigures {
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
        let page = punctual_server::figures::open_metrics(page);
        assert_eq!(punctual_testing::open_metrics::check(&page), Ok(()), "{page}");
    }

    /// The guide lists the figures of a node, by name, labels and help.
    #[test]
    fn the_guide_has_every_figure_of_a_node() {
        let mut figures = figures();
        figures.objects.arrival_ages = [Some(Nanos(1)); 2];
        check_page(&figures.metrics());
        let table = punctual_testing::guide::figures(&figures.metrics());
        punctual_testing::guide::holds("reference/figures.md", "figures of a node", &table);
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
