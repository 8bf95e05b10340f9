//! Faults that a run injects into its processes, and their cost for clients.

use punctual_federation::ids::NodeId;
use punctual_node::seen::{TimedNotice, What};
use punctual_units::{Nanos, Time};

use super::load::LoadProcess;
use crate::args::Fault;
use crate::cluster::load::RequestKind;
use punctual_cli::cluster::run::processes::{Part, Processes};

/// Time for which a killed process stays dead, a stopped one stopped, and a cut node cut.
pub(super) const AWAY: Nanos = Nanos::from_secs(1);
/// Time after a process is back during which its cost is still counted.
pub(super) const AFTER: Nanos = Nanos::from_millis(300);

impl Fault {
    /// All faults, in the order of the help.
    pub const ALL: [Fault; 8] = [
        Fault::Kill,
        Fault::Stop,
        Fault::Cut,
        Fault::ReplicaKill,
        Fault::BalancerKill,
        Fault::Upgrade,
        Fault::Leader,
        Fault::Both,
    ];

    /// Past participle for reports.
    pub fn name(self) -> &'static str {
        match self {
            Fault::Kill => "killed",
            Fault::Stop => "stopped",
            Fault::Cut => "cut",
            Fault::ReplicaKill => "replica killed",
            Fault::BalancerKill => "balancer killed",
            Fault::Upgrade => "upgraded",
            Fault::Leader => "left alone: the log's leader killed",
            Fault::Both => "killed with the log's leader",
        }
    }

    /// Process to inject the fault into; `None` if there is no suitable one.
    pub(super) fn victim(self, processes: &Processes, load: &LoadProcess, draw: u64) -> Option<Part> {
        let (master, _) = processes.master?;
        let master = master.0 as usize;
        match self {
            Fault::Kill | Fault::Stop | Fault::Cut | Fault::Upgrade | Fault::Leader | Fault::Both => Some(master),
            Fault::ReplicaKill => {
                let replicas: Vec<Part> = (0..processes.nodes()).filter(|part| *part != master).collect();
                replicas.get(draw as usize % replicas.len().max(1)).copied()
            }
            Fault::BalancerKill => Some(processes.nodes() + load.busiest().unwrap_or(0)),
        }
    }

    fn is_of_master(self) -> bool {
        !matches!(self, Fault::ReplicaKill | Fault::BalancerKill)
    }
}

/// An outage, from the fault on.
#[derive(Clone, Debug)]
pub struct Outage {
    /// Kind of the injected fault.
    pub fault: Fault,
    /// Name of the process that had the fault.
    pub name: String,
    /// Instant of the fault.
    pub at: Time,
    pub(super) part: Part,
    /// Instant at which the first other node suspected it.
    pub suspected: Option<Time>,
    /// Instant at which the next master had the whole log, and applied for the term.
    pub caught_up: Option<Time>,
    /// The next master, and the instant at which its term was decided.
    pub decided: Option<(NodeId, Time)>,
    /// First acknowledgement after that.
    pub acknowledged: Option<Time>,
    /// Longest time between two acknowledgements of transactions: until the first one after another node is the master,
    /// or, for a fault of another process, until that is back. For a balancer: the time that its clients went without
    /// an answer.
    pub gap: Option<Nanos>,
    /// Longest time between two answers to reads, until the process is back.
    pub reads_gap: Option<Nanos>,
    /// Longest time in which the log itself acknowledged nothing to the witness client; `None` without one.
    pub log_gap: Option<Nanos>,
    /// Instant at which the process was back, and served.
    pub back: Option<Time>,
    /// Requests not answered in time, from the fault until a moment after the process was back.
    pub not_served: u64,
}

impl Outage {
    pub(super) fn new(fault: Fault, part: Part, name: String, at: Time) -> Outage {
        Outage {
            fault,
            name,
            at,
            part,
            suspected: None,
            caught_up: None,
            decided: None,
            acknowledged: None,
            gap: None,
            reads_gap: None,
            log_gap: None,
            back: None,
            not_served: 0,
        }
    }

    /// Fills the figures from the nodes' reports and the clients' answers.
    pub(super) fn explain(&mut self, seen: &[(NodeId, TimedNotice)], load: &LoadProcess, nodes: usize, now: Time) {
        let until = self.back.unwrap_or(now) + AFTER;
        self.not_served = load.not_served(self.at, until);
        self.reads_gap = gap(&load.served(Some(RequestKind::Read), Time::ZERO), self.at, until);
        let counts = load.served(Some(RequestKind::Count), Time::ZERO);
        if self.fault == Fault::BalancerKill {
            self.gap = load.gap_of(self.part - nodes, self.at);
            return;
        }
        if !self.fault.is_of_master() {
            self.gap = gap(&counts, self.at, until);
            return;
        }
        self.explain_takeover(seen);
        let decided = match (self.fault, self.decided) {
            // The master may stay; while the log has no leader, several nodes may apply for the term in turn.
            (Fault::Leader, _) => self.at + AWAY,
            (_, Some((_, decided))) => decided,
            (_, None) => return,
        };
        let first = counts.partition_point(|at| *at < decided);
        self.acknowledged = counts.get(first).copied();
        self.gap = self.acknowledged.and_then(|first| gap(&counts, self.at, first));
    }

    fn explain_takeover(&mut self, seen: &[(NodeId, TimedNotice)]) {
        let after = || {
            seen.iter()
                .filter(|(node, seen)| node.0 as usize != self.part && seen.at >= self.at)
        };
        let first = |is: fn(&What) -> bool| {
            after()
                .filter(move |(_, seen)| is(&seen.what))
                .min_by_key(|(_, seen)| seen.at)
        };
        let decided = first(|what| matches!(what, What::Reigns(_))).map(|(node, seen)| (*node, seen.at));
        let suspected = first(|what| matches!(what, What::Suspects)).map(|(_, seen)| seen.at);
        let caught_up = decided.and_then(|(next, until)| {
            let of_next = after().filter(|(node, seen)| *node == next && seen.at <= until);
            let caught_up = of_next.filter(|(_, seen)| matches!(seen.what, What::CaughtUp(_)));
            caught_up.map(|(_, seen)| seen.at).max()
        });
        (self.decided, self.suspected, self.caught_up) = (decided, suspected, caught_up);
    }
}

/// Longest time between two consecutive instants, from the last one before `from` to the first one not before `until`.
fn gap(rising: &[Time], from: Time, until: Time) -> Option<Nanos> {
    let before = rising.partition_point(|at| *at < from).saturating_sub(1);
    let last = rising.partition_point(|at| *at < until);
    let around = rising
        .get(before..=last.min(rising.len().checked_sub(1)?))
        .unwrap_or_default();
    around.windows(2).map(|pair| pair[1].since(pair[0])).max()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_gap_is_the_longest_around_a_span() {
        let rising = [0, 10, 12, 40, 41, 90].map(Time);
        let of = |from, until| gap(&rising, Time(from), Time(until)).map(|gap| gap.0);
        assert_eq!(of(13, 41), Some(28));
        assert_eq!(of(11, 12), Some(2), "from the last one before it");
        assert_eq!(of(42, 80), Some(49), "to the first one after it");
        assert_eq!(of(95, 99), None, "nothing came any more");
        assert_eq!(gap(&[], Time(0), Time(9)), None);
    }
}
