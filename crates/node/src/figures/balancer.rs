//! Figures of a balancer, for INFO and for Prometheus.

use std::net::SocketAddr;

use punctual_federation::ids::{FederationId, NodeId};
use punctual_federation::message::Heartbeat;
use punctual_server::metrics::figure;
use punctual_units::{Nanos, Time};

use super::{Bytes, late_lines, owned, request_figures, request_lines, sections, standing};
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
    /// Number of clients now, and of all that ever connected.
    pub clients: (usize, u32),
    /// Bytes of clients' connections.
    pub client_bytes: Bytes,
}

impl BalancerFigures {
    /// The reply to INFO: the wanted sections; all, if none is named.
    pub fn info(&self, wanted: &[String]) -> String {
        let all = [
            ("Federation", self.federation_lines()),
            ("Requests", request_lines(&self.account)),
            ("Late", late_lines(&self.account, self.at)),
            ("Nodes", self.nodes.iter().map(node).collect()),
            ("Clients", self.client_lines()),
        ];
        sections(all.into_iter(), wanted)
    }

    fn federation_lines(&self) -> Vec<(String, String)> {
        let or_none = |text: Option<String>| text.unwrap_or_else(|| "none".into());
        owned([
            ("role", "balancer".into()),
            (
                "federation",
                or_none(self.federation.map(|federation| federation.to_string())),
            ),
            ("master_node", or_none(self.master.map(|node| node.to_string()))),
            ("under_way", self.under_way.to_string()),
            ("metrics", or_none(self.page.map(|page| page.to_string()))),
            ("uptime_in_seconds", (self.uptime.0 / 1_000_000_000).to_string()),
        ])
    }

    fn client_lines(&self) -> Vec<(String, String)> {
        owned([
            ("connected_clients", self.clients.0.to_string()),
            ("total_connections_received", self.clients.1.to_string()),
            ("client_bytes_read", self.client_bytes.read.to_string()),
            ("client_bytes_written", self.client_bytes.written.to_string()),
        ])
    }

    /// The page for Prometheus, as text.
    pub fn metrics(&self) -> String {
        let mut page = String::new();
        let to = &mut page;
        let gauges = [
            (
                "balancer_knows_a_master",
                "Whether it knows a node that takes transactions.",
                f64::from(u8::from(self.master.is_some())),
            ),
            (
                "balancer_nodes",
                "Nodes that it has heard lately.",
                self.nodes.len() as f64,
            ),
            (
                "balancer_under_way",
                "Requests without an answer.",
                self.under_way as f64,
            ),
            (
                "balancer_connections",
                "Clients that are connected.",
                self.clients.0 as f64,
            ),
        ];
        for (name, help, value) in gauges {
            figure(to, name, "gauge", help, &[(String::new(), value)]);
        }
        request_figures(to, "balancer", &self.account);
        page
    }
}

fn node((heartbeat, since): &(Heartbeat, Nanos)) -> (String, String) {
    let said = &heartbeat.said;
    let text = format!(
        "standing={},epoch={},applied={},backlog={},bound={:.0},heard_ms_ago={}",
        standing(said.standing),
        heartbeat.epoch,
        heartbeat.applied,
        said.report.backlog,
        said.report.bound,
        since.0 / 1_000_000,
    );
    (format!("node{}", heartbeat.from.node), text)
}

#[cfg(test)]
mod tests {
    use super::super::tests::{check_page, unknown};
    use super::*;
    use crate::spans::SpanStage;

    #[test]
    fn where_the_time_of_late_requests_went_is_told() {
        let figures = BalancerFigures {
            federation: None,
            page: None,
            at: Time(12_000_000),
            uptime: Nanos::from_secs(3),
            master: Some(NodeId(1)),
            nodes: Vec::new(),
            under_way: 2,
            account: unknown(SpanStage::Balancer, SpanStage::Network, [0, 3_000_000, 7_000_000]),
            clients: (3, 4),
            client_bytes: Bytes::default(),
        };
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
