//! What a run does to its processes, and what that costs clients.

use punctual_federation::ids::NodeId;
use punctual_node::seen::{Seen, What};
use punctual_units::{Nanos, Time};

use super::load::Load;
use super::processes::{Part, Processes};
use crate::federation::load::Kind;

/// How long a killed process stays dead, a stopped one stopped, and a cut node cut.
pub(super) const AWAY: Nanos = Nanos::from_secs(1);
/// How long after a process is back what it costs is still looked for.
pub(super) const AFTER: Nanos = Nanos::from_millis(300);

/// What becomes of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum)]
pub enum Fault {
    /// The master is killed, and started again after a second
    Kill,
    /// The master stands still (SIGSTOP) for a second
    Stop,
    /// The master's network cable is out for a second; needs the rights to make network namespaces
    Cut,
    /// A slave is killed, and started again after a second
    SlaveKill,
    /// A balancer is killed, and started again after a second; its clients go to the other
    BalancerKill,
    /// The master gets the order to leave; when it has ended, another process takes its place
    Upgrade,
    /// The process that leads the log is killed, and started again after a second (with --log etcd)
    Leader,
    /// The master is killed with it
    Both,
}

impl Fault {
    /// All of them.
    pub const ALL: [Fault; 8] = [
        Fault::Kill,
        Fault::Stop,
        Fault::Cut,
        Fault::SlaveKill,
        Fault::BalancerKill,
        Fault::Upgrade,
        Fault::Leader,
        Fault::Both,
    ];

    /// In words.
    pub fn name(self) -> &'static str {
        match self {
            Fault::Kill => "killed",
            Fault::Stop => "stopped",
            Fault::Cut => "cut",
            Fault::SlaveKill => "slave killed",
            Fault::BalancerKill => "balancer killed",
            Fault::Upgrade => "upgraded",
            Fault::Leader => "left alone: the log's leader killed",
            Fault::Both => "killed with the log's leader",
        }
    }

    /// Which process it happens to now; `None` where there is no such one.
    pub(super) fn victim(self, processes: &Processes, load: &Load, draw: u64) -> Option<Part> {
        let (master, _) = processes.master?;
        let master = master.0 as usize;
        match self {
            Fault::Kill | Fault::Stop | Fault::Cut | Fault::Upgrade | Fault::Leader | Fault::Both => Some(master),
            Fault::SlaveKill => {
                let slaves: Vec<Part> = (0..processes.nodes()).filter(|part| *part != master).collect();
                slaves.get(draw as usize % slaves.len().max(1)).copied()
            }
            Fault::BalancerKill => Some(processes.nodes() + load.busiest().unwrap_or(0)),
        }
    }

    fn is_of_master(self) -> bool {
        !matches!(self, Fault::SlaveKill | Fault::BalancerKill)
    }
}

/// One outage, from the fault on.
#[derive(Clone, Debug)]
pub struct Outage {
    /// The fault, the process that had it, in words, and when.
    pub fault: Fault,
    /// See [`Outage::fault`].
    pub name: String,
    /// See [`Outage::fault`].
    pub at: Time,
    pub(super) part: Part,
    /// When the first other node no longer counted on it.
    pub suspected: Option<Time>,
    /// When the next master had the whole log, and asked for the reign.
    pub caught_up: Option<Time>,
    /// When it had it.
    pub decided: Option<(NodeId, Time)>,
    /// The first acknowledgement after that.
    pub acknowledged: Option<Time>,
    /// The longest time between two acknowledgements of transactions: until the first one after another node is the
    /// master, or, where it was not the master, until the process is back. Of a balancer: the time that its clients
    /// went without an answer.
    pub gap: Option<Nanos>,
    /// The longest time between two answers to reads, until the process is back.
    pub reads_gap: Option<Nanos>,
    /// The longest time in which the log itself acknowledged nothing to a client of its own, where there is one.
    pub log_gap: Option<Nanos>,
    /// When the process was back, and served.
    pub back: Option<Time>,
    /// Requests that were not answered in time, from the fault until a moment after the process was back.
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

    /// From what nodes have told, and from what clients were answered.
    pub(super) fn explain(&mut self, seen: &[(NodeId, Seen)], load: &Load, nodes: usize, now: Time) {
        let until = self.back.unwrap_or(now) + AFTER;
        self.not_served = load.not_served(self.at, until);
        self.reads_gap = gap(&load.served(Some(Kind::Read), Time::ZERO), self.at, until);
        let counts = load.served(Some(Kind::Count), Time::ZERO);
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
            // The master may stay; while the log is without a leader, nodes may also ask for the reign one after the
            // other.
            (Fault::Leader, _) => self.at + AWAY,
            (_, Some((_, decided))) => decided,
            (_, None) => return,
        };
        let first = counts.partition_point(|at| *at < decided);
        self.acknowledged = counts.get(first).copied();
        self.gap = self.acknowledged.and_then(|first| gap(&counts, self.at, first));
    }

    fn explain_takeover(&mut self, seen: &[(NodeId, Seen)]) {
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

/// The longest time between two instants that follow each other, from the last one before `from` to the first one that
/// is not before `until`.
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
