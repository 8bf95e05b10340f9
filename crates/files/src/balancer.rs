//! Configuration file of a balancer: keys that it shares with a server's file, in the same sections.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;

use punctual_federation::balancer::BalancerKind;
use punctual_server::users::User;
use punctual_toml::Section;

use crate::failure::Failure;
use crate::server::{self, TlsPaths};
use crate::{document, node};

/// Default address to listen on.
pub const LISTEN: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 6380);

/// Settings of a balancer.
#[derive(Clone, Debug)]
pub struct BalancerFile {
    pub listen: SocketAddr,
    /// Address of the metrics for Prometheus.
    pub metrics: Option<SocketAddr>,
    /// Policy that chooses the node of a read.
    pub balancer: BalancerKind,
    /// Addresses on which nodes listen for each other, as host and port.
    pub nodes: Vec<String>,
    pub users: Vec<User>,
    /// Certificate to present to clients.
    pub tls: Option<TlsPaths>,
    /// Certificate to present to nodes, and the authority of theirs in [`TlsPaths::clients`].
    pub of_nodes: Option<TlsPaths>,
}

/// Reads a balancer's file; missing keys keep their defaults.
///
/// # Errors
/// [`Failure::Input`] with one line per problem: file, line, key, remedy.
pub fn load(file: &Path) -> Result<BalancerFile, Failure> {
    let mut settings = document::load(file, "the file of a balancer", |text, shown| {
        punctual_toml::read(text, shown, read)
    })?;
    let folder = file.parent().unwrap_or(Path::new(""));
    for tls in [&mut settings.tls, &mut settings.of_nodes].into_iter().flatten() {
        tls.lie_in(folder);
    }
    Ok(settings)
}

pub(crate) fn read(top: &mut Section<'_, '_>) -> BalancerFile {
    let tls = top.table_if("tls", server::tls);
    let (nodes, of_nodes, balancer) = top.table("federation", |section| {
        let balancer = section.choice("balancer", &BalancerKind::NAMED);
        (node::nodes(section), node::of_nodes(section), balancer)
    });
    let (listen, metrics) = top.table("server", |section| (server::listen(section), server::metrics(section)));
    BalancerFile {
        listen: listen.unwrap_or(LISTEN),
        metrics,
        balancer: balancer.unwrap_or_default(),
        nodes,
        users: server::users(top),
        tls,
        of_nodes,
    }
}
