//! Figures that a node or a balancer reports by INFO.

use std::collections::BTreeMap;

use punctual_node::spans::SpanStage;

/// An answer to INFO of a node or a balancer; a balancer has no number, standing and log.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Look {
    /// All fields of the answer, by name.
    pub all: BTreeMap<String, String>,
    /// Number of the node.
    pub node: String,
    /// Role: master, slave or balancer.
    pub role: String,
    /// Standing: joining, serving, paused, leaving or copying.
    pub standing: String,
    /// Epoch of the present term.
    pub epoch: u64,
    /// Last revision of the log that is applied.
    pub applied: u64,
    /// Number of log entries not yet applied.
    pub lag: u64,
    /// Bound d: queries are admitted up to this many items of backlog.
    pub bound: f64,
    /// Items admitted and not finished.
    pub backlog: u64,
    /// Requests received and not answered.
    pub waiting: u64,
    /// Number of requests executed.
    pub done: u64,
    /// Requests not executed, in the order of `WHY`: backlog, expired, no master; unknown; refused.
    pub not_done: [u64; 5],
    /// Late requests per stage.
    pub late_at: [u64; SpanStage::ALL.len()],
    /// Time that late requests spent per stage, in microseconds.
    pub late_us: [u64; SpanStage::ALL.len()],
    /// Number of temporal objects.
    pub objects: u64,
    /// Temporal objects with this node as their source.
    pub own: u64,
    /// Age of the oldest reading in milliseconds.
    pub age_ms: Option<u64>,
    /// Readings set by its clients.
    pub set: u64,
    /// Readings received from its peers.
    pub taken: u64,
    /// Readings of its peers that were skipped, by their sequence numbers.
    pub skipped: u64,
    /// Peers that are alive, and all peers.
    pub live: (u64, u64),
    /// Newest late requests, a line each.
    pub late: Vec<String>,
    /// Jobs of tasks in its process, and the late ones among them; `None` without tasks.
    pub jobs: Option<(u64, u64)>,
}

/// Role that a balancer reports.
const BALANCER: &str = "balancer";
/// Most tasks of a process that are summed.
const TASKS_MAX: usize = 256;

/// Reasons why requests were not done, in the order of [`Look::not_done`]: field, and name.
pub const WHY: [(&str, &str); 5] = [
    ("late_backlog", "backlog"),
    ("late_expired", "expired"),
    ("late_no_master", "no master"),
    ("unknown", "unknown"),
    ("refused", "refused"),
];

impl Look {
    /// Whether this is the answer of a balancer.
    pub fn is_balancer(&self) -> bool {
        self.role == BALANCER
    }

    /// Parses an answer to INFO; `None` if it is not from a federation.
    pub fn of(text: &str) -> Option<Look> {
        let pairs = text.lines().filter_map(|line| line.trim_end().split_once(':'));
        let all: BTreeMap<String, String> = pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        let word = |name: &str| all.get(name).cloned().unwrap_or_default();
        let number = |name: &str| all.get(name).and_then(|value| value.parse::<u64>().ok());
        let count = |name: &str| number(name).unwrap_or(0);
        let both = |what: &str| count(&format!("queries_{what}")) + count(&format!("transactions_{what}"));
        let is_node = all.contains_key("standing");
        if !all.contains_key("federation") || !is_node && word("role") != BALANCER {
            return None;
        }
        let peers: Vec<&String> = (0..64).filter_map(|node| all.get(&format!("peer{node}"))).collect();
        let tasks: Vec<&String> = (0..TASKS_MAX)
            .filter_map(|task| all.get(&format!("task{task}")))
            .collect();
        let of_tasks = |name: &str| tasks.iter().filter_map(|task| part(task, name)).sum();
        let of_peers = |name: &str| peers.iter().filter_map(|peer| part(peer, name)).sum();
        let place = |of: &dyn Fn(&str) -> String| SpanStage::ALL.map(|place| count(&of(place.name())));
        Some(Look {
            node: word("node"),
            role: word("role"),
            standing: word("standing"),
            epoch: count("epoch"),
            applied: count("applied"),
            lag: count("lag_entries"),
            bound: word("bound_items")
                .parse()
                .unwrap_or(if is_node { 0.0 } else { f64::INFINITY }),
            backlog: count("backlog_items"),
            waiting: both("waiting") + count("under_way"),
            done: both("done"),
            not_done: WHY.map(|(what, _)| both(what)),
            late_at: place(&|name| format!("late_at_{name}")),
            late_us: place(&|name| format!("late_{name}_us")),
            objects: count("objects"),
            own: count("objects_own"),
            age_ms: number("age_ms_max"),
            set: count("readings_set"),
            taken: of_peers("readings_taken"),
            skipped: of_peers("readings_skipped"),
            jobs: number("tasks").map(|_| (of_tasks("jobs"), of_tasks("late"))),
            live: (of_peers("live"), peers.len() as u64),
            late: (0..)
                .map_while(|number| all.get(&format!("late{number}")).cloned())
                .collect(),
            all,
        })
    }
}

/// Number of a field within a line of parts: `a=1,b=2`.
pub fn part(line: &str, name: &str) -> Option<u64> {
    let value = line
        .split(',')
        .find_map(|part| part.strip_prefix(name)?.strip_prefix('='))?;
    value.parse().ok()
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
        assert_eq!((look.node.as_str(), look.role.as_str(), look.epoch), ("2", "slave", 3));
        assert_eq!((look.applied, look.lag, look.done), (40, 2, 6));
        assert!(look.bound.is_infinite() && look.age_ms.is_none());
        assert_eq!(look.not_done, [0, 3, 0, 0, 0]);
        assert_eq!((look.late_at[4], look.late_us[4]), (3, 900));
        assert_eq!((look.taken, look.skipped, look.live), (9, 2, (1, 2)));
        assert_eq!(look.jobs, None);
        let tasks = "tasks:2\r\ntask0:name=a,jobs=5,late=1\r\ntask1:name=b,jobs=7,late=2\r\n";
        assert_eq!(Look::of(&format!("{text}{tasks}")).unwrap().jobs, Some((12, 3)));
        assert_eq!(look.late, ["ago_ms=5,kind=query,at=log"]);
        assert_eq!(Look::of("# Server\r\nredis_version:7.0.0\r\n"), None);
        assert_eq!(Look::of("federation:7\r\nrole:master\r\n"), None);
        let text = "role:balancer\r\nfederation:7\r\nunder_way:3\r\nqueries_done:5\r\nlate_balancer_us:70\r\n\
                    node0:standing=serving,epoch=2\r\n";
        let look = Look::of(text).unwrap();
        assert!(look.is_balancer() && look.bound.is_infinite());
        assert_eq!((look.waiting, look.done, look.late_us[0]), (3, 5, 70));
    }
}
