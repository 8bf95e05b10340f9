//! Figures that a node or a balancer reports by INFO.

use std::collections::BTreeMap;

use punctual_node::spans::{SHOWN_MAX, SpanStage};

/// Most peers, and most tasks of a process, that are summed.
const PEERS_MAX: usize = 64;
const TASKS_MAX: usize = 256;

/// Reasons why requests were not done: outcome in INFO, and name. The last one is no lateness.
pub const WHY: [(&str, &str); 5] = [
    ("late_backlog", "backlog"),
    ("late_expired", "expired"),
    ("late_no_master", "no master"),
    ("unknown", "unknown"),
    ("refused", "refused"),
];

/// An answer to INFO of a node or a balancer; a balancer has no number, standing and log.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Look {
    /// All fields of the answer, by name.
    pub all: BTreeMap<String, String>,
}

impl Look {
    /// Parses an answer to INFO; `None` if it is not from a cluster.
    pub fn of(text: &str) -> Option<Look> {
        let pairs = text.lines().filter_map(|line| line.trim_end().split_once(':'));
        let all = pairs.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let look = Look { all: all.collect() };
        let is_of_one = look.is_balancer() || look.all.contains_key("standing");
        (is_of_one && look.all.contains_key("federation")).then_some(look)
    }

    /// Whether this is the answer of a balancer.
    pub fn is_balancer(&self) -> bool {
        self.word("role") == "balancer"
    }

    /// Whether this is the answer of the master.
    pub fn is_master(&self) -> bool {
        self.word("role") == "master"
    }

    /// Role of the node: `INFO` calls a replica `slave`, as Redis does.
    pub fn role(&self) -> &str {
        match self.word("role") {
            "slave" => "replica",
            role => role,
        }
    }

    /// A field; empty if it is missing.
    pub fn word(&self, name: &str) -> &str {
        self.all.get(name).map_or("", String::as_str)
    }

    /// A number; `None` if it is missing or no number.
    pub fn number(&self, name: &str) -> Option<u64> {
        self.word(name).parse().ok()
    }

    /// A number; 0 if it is missing.
    pub fn count(&self, name: &str) -> u64 {
        self.number(name).unwrap_or(0)
    }

    /// Number of requests, queries and transactions, with this outcome.
    pub fn requests(&self, outcome: &str) -> u64 {
        self.count(&format!("queries_{outcome}")) + self.count(&format!("transactions_{outcome}"))
    }

    /// Requests received and not answered.
    pub fn waiting(&self) -> u64 {
        self.requests("waiting") + self.count("under_way")
    }

    /// Requests not executed, in the order of [`WHY`].
    pub fn not_done(&self) -> [u64; WHY.len()] {
        WHY.map(|(outcome, _)| self.requests(outcome))
    }

    /// Bound d: queries are admitted up to this many items of backlog.
    pub fn bound(&self) -> f64 {
        let none = if self.is_balancer() { f64::INFINITY } else { 0.0 };
        self.word("bound_items").parse().unwrap_or(none)
    }

    /// Late requests per stage.
    pub fn late_at(&self) -> [u64; SpanStage::ALL.len()] {
        SpanStage::ALL.map(|place| self.count(&format!("late_at_{}", place.name())))
    }

    /// Time that late requests spent per stage, in microseconds.
    pub fn late_us(&self) -> [u64; SpanStage::ALL.len()] {
        SpanStage::ALL.map(|place| self.count(&format!("late_{}_us", place.name())))
    }

    /// Newest late requests, a line each.
    pub fn late(&self) -> impl Iterator<Item = &str> {
        self.lines("late", SHOWN_MAX)
    }

    /// Readings received from clients and from peers.
    pub fn readings(&self) -> u64 {
        self.count("readings_set") + self.of_peers("readings_taken")
    }

    /// Sum of a part of all peers' lines.
    pub fn of_peers(&self, name: &str) -> u64 {
        sum(self.lines("peer", PEERS_MAX), name)
    }

    /// Peers that are alive, and all peers.
    pub fn live(&self) -> (u64, usize) {
        (self.of_peers("live"), self.lines("peer", PEERS_MAX).count())
    }

    /// Jobs of tasks in the process, and the late ones among them; `None` without tasks.
    pub fn jobs(&self) -> Option<(u64, u64)> {
        let [jobs, late] = ["jobs", "late"].map(|name| sum(self.lines("task", TASKS_MAX), name));
        self.number("tasks").map(|_| (jobs, late))
    }

    /// The lines of a kind, such as `peer0` and `peer2`.
    fn lines(&self, kind: &str, most: usize) -> impl Iterator<Item = &str> {
        let line = move |number| Some(self.all.get(&format!("{kind}{number}"))?.as_str());
        (0..most).filter_map(line)
    }
}

/// A part of a line: `a=1,b=2`; empty if it is missing.
pub fn part<'l>(line: &'l str, name: &str) -> &'l str {
    let mut parts = line.split(',');
    let found = parts.find_map(|part| part.strip_prefix(name)?.strip_prefix('='));
    found.unwrap_or_default()
}

/// Sum of a part of several lines.
fn sum<'l>(lines: impl Iterator<Item = &'l str>, name: &str) -> u64 {
    lines.filter_map(|line| part(line, name).parse::<u64>().ok()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_node_tells_is_read() {
        let text = "# Federation\r\nnode:2\r\nfederation:7\r\nrole:slave\r\nstanding:serving\r\nepoch:3\r\napplied:40\r\n\
                    lag_entries:2\r\nbound_items:inf\r\nqueries_done:5\r\ntransactions_done:1\r\nqueries_late_expired:3\r\n\
                    late_at_log:3\r\nlate_log_us:900\r\nage_ms_max:none\r\n\
                    late0:ago_ms=5,kind=query,at=log\r\n\
                    peer0:address=127.0.0.1:1,live=1,readings_taken=4\r\npeer1:live=0,readings_taken=5,readings_skipped=2\r\n";
        let look = Look::of(text).unwrap();
        assert_eq!(look.role(), "replica");
        let words = ["node", "role", "epoch"].map(|name| look.word(name));
        assert_eq!(words, ["2", "slave", "3"]);
        let counts = ["applied", "lag_entries"].map(|name| look.count(name));
        assert_eq!((counts, look.requests("done")), ([40, 2], 6));
        assert!(look.bound().is_infinite() && look.number("age_ms_max").is_none());
        assert_eq!(look.not_done(), [0, 3, 0, 0, 0]);
        assert_eq!((look.late_at()[4], look.late_us()[4]), (3, 900));
        let skipped = look.of_peers("readings_skipped");
        assert_eq!((look.readings(), skipped, look.live()), (9, 2, (1, 2)));
        assert_eq!(look.jobs(), None);
        let tasks = "tasks:2\r\ntask0:name=a,jobs=5,late=1\r\ntask1:name=b,jobs=7,late=2\r\n";
        assert_eq!(Look::of(&format!("{text}{tasks}")).unwrap().jobs(), Some((12, 3)));
        assert_eq!(look.late().collect::<Vec<_>>(), ["ago_ms=5,kind=query,at=log"]);
        assert_eq!(Look::of("# Server\r\nredis_version:7.0.0\r\n"), None);
        assert_eq!(Look::of("federation:7\r\nrole:master\r\n"), None);
        let text = "role:balancer\r\nfederation:7\r\nunder_way:3\r\nqueries_done:5\r\nlate_balancer_us:70\r\n\
                    node0:standing=serving,epoch=2\r\n";
        let look = Look::of(text).unwrap();
        assert!(look.is_balancer() && look.bound().is_infinite());
        assert_eq!((look.waiting(), look.requests("done"), look.late_us()[0]), (3, 5, 70));
    }
}
