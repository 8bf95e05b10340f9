//! Figures of a balancer, for INFO and for Prometheus.

use std::net::SocketAddr;

use punctual_federation::ids::{FederationId, NodeId};
use punctual_federation::message::Heartbeat;
use punctual_server::door::DoorState;
use punctual_server::figures::{Figure, figure, info, or_none, prometheus, row, section, word};
use punctual_units::{Nanos, Time};

use super::{client_figures, request_figures, standing};
use crate::spans::Account;

/// All figures of a balancer at one instant. The time of late requests at nodes counts as time at the network.
#[derive(Clone, Debug)]
pub struct BalancerFigures {
    /// Federation of the first node that sent its name.
    pub federation: Option<FederationId>,
    /// Address of the page for Prometheus, if there is one.
    pub page: Option<SocketAddr>,
    /// The instant of these figures.
    pub at: Time,
    /// Time since the balancer started.
    pub uptime: Nanos,
    /// The node to which transactions go.
    pub master: Option<NodeId>,
    /// The last heartbeat of each node, and how long ago it came.
    pub nodes: Vec<(Heartbeat, Nanos)>,
    /// Number of requests without an answer.
    pub under_way: usize,
    /// Outcomes of requests, and the times of late ones.
    pub account: Account,
    /// State of the clients' door.
    pub door: DoorState,
}

impl BalancerFigures {
    /// The reply to INFO: the wanted sections; all, if none is named.
    pub fn info(&self, wanted: &[String]) -> String {
        info(&self.list(), wanted)
    }

    /// The page for Prometheus, as text.
    pub fn metrics(&self) -> String {
        prometheus("balancer_", &self.list())
    }

    #[rustfmt::skip] // a figure a line
    fn list(&self) -> Vec<Figure> {
        let master = or_none(self.master);
        let master = (self.master.is_some(), master.as_str());
        let knows = "Whether the balancer knows a node that takes transactions";
        let nodes = figure("", self.nodes.len(), "Nodes with a recent heartbeat").named("nodes");
        let federation = section("Federation", [
            word("role", "balancer"),
            word("federation", or_none(self.federation)),
            figure("master_node", master, knows).named("knows_a_master"),
            figure("under_way", self.under_way, "Requests without an answer"),
            word("metrics", or_none(self.page)),
            figure("uptime_in_seconds", self.uptime, "Time since the balancer started").named("uptime_seconds"),
        ]);
        let mut all: Vec<Figure> = federation.chain([nodes]).chain(request_figures(&self.account, self.at)).collect();
        all.extend(self.nodes.iter().flat_map(node));
        all.extend(client_figures(&self.door));
        all
    }
}

fn node((heartbeat, since): &(Heartbeat, Nanos)) -> impl Iterator<Item = Figure> {
    let said = &heartbeat.said;
    let figures = [
        word("standing", standing(said.standing, said.commits())),
        word("epoch", heartbeat.epoch.to_string()),
        word("applied", heartbeat.applied.to_string()),
        word("backlog", said.report.backlog),
        word("bound", format!("{:.0}", said.report.bound)),
        word("heard_ms_ago", *since),
    ];
    row("Nodes", format!("node{}", heartbeat.from.node), figures)
}

#[cfg(test)]
mod tests {
    use super::super::tests::{check_page, door, unknown};
    use super::*;
    use crate::spans::SpanStage;

    fn figures() -> BalancerFigures {
        BalancerFigures {
            federation: None,
            page: None,
            at: Time(12_000_000),
            uptime: Nanos::from_secs(3),
            master: Some(NodeId(1)),
            nodes: Vec::new(),
            under_way: 2,
            account: unknown(SpanStage::Balancer, SpanStage::Network, [0, 3_000_000, 7_000_000]),
            door: door(3, 4, 0),
        }
    }

    /// The guide lists the figures of a balancer, by name, labels and help.
    #[test]
    fn the_guide_has_every_figure_of_a_balancer() {
        let table = punctual_testing::guide::figures(&figures().metrics());
        punctual_testing::guide::holds("reference/figures.md", "figures of a balancer", &table);
    }

    #[test]
    fn where_the_time_of_late_requests_went_is_told() {
        let figures = figures();
        let all = figures.info(&[]);
        for line in [
            "# Federation\r\nrole:balancer\r\nfederation:none\r\nmaster_node:1\r\nunder_way:2\r\n",
            "transactions_unknown:1\r\n",
            "late_at_network:1\r\n",
            "late_balancer_us:3000\r\n",
            "late0:ago_ms=2,kind=transaction,told=unknown,at=network,balancer_us=3000,queue_us=0,lock_us=0,\
             store_us=0,log_us=0,network_us=7000\r\n",
        ] {
            assert!(all.contains(line), "no {line} in {all}");
        }
        assert!(!figures.info(&["late".into()]).contains("role:"));
        let page = figures.metrics();
        check_page(&page);
        assert!(page.contains("punctual_balancer_late_requests_seconds_total{place=\"balancer\"} 0.003\n"));
    }
}
