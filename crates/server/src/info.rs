//! The texts of INFO and CLIENT LIST.

use std::fmt::Write;
use std::sync::atomic::Ordering;

use punctual_store::engine::Durability;

use crate::resp::Resp;
use crate::session::Session;
use crate::tasks::TasksNow;
use crate::work::{Counts, LateStage};

/// The server's state, for INFO.
pub struct About<'a> {
    pub port: u16,
    pub threads: usize,
    pub uptime_s: u64,
    pub connections: usize,
    pub connections_max: usize,
    pub connections_all: u64,
    pub refused: u64,
    pub dropped: u64,
    pub wrong_passwords: u64,
    pub bytes: usize,
    pub bytes_max: usize,
    pub waiting: usize,
    pub channels: (usize, usize),
    pub objects: usize,
    pub durability: Durability,
    pub trouble: Option<String>,
    pub counts: &'a Counts,
    /// State of the tasks beside the server, if there are any.
    pub tasks: Option<&'a TasksNow>,
}

/// Writes the sections in `wanted`; all if it is empty.
pub fn text(about: &About<'_>, wanted: &[String]) -> String {
    let is_wanted = |name: &str| {
        let all = ["all", "everything", "default"];
        wanted.is_empty() || wanted.iter().any(|word| word == name || all.contains(&word.as_str()))
    };
    let load = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
    let mut text = String::new();
    let mut section = |name: &str, lines: &[(&str, String)]| {
        if is_wanted(&name.to_lowercase()) {
            if !text.is_empty() {
                text.push_str("\r\n");
            }
            let _ = write!(text, "# {name}\r\n");
            for (key, value) in lines {
                let _ = write!(text, "{key}:{value}\r\n");
            }
        }
    };
    let counts = about.counts;
    section(
        "Server",
        &[
            ("punctual_version", env!("CARGO_PKG_VERSION").into()),
            // The Redis version whose commands these are; clients check it.
            ("redis_version", "7.0.0".into()),
            ("redis_mode", "standalone".into()),
            ("process_id", std::process::id().to_string()),
            ("tcp_port", about.port.to_string()),
            ("uptime_in_seconds", about.uptime_s.to_string()),
            ("io_threads_active", "0".into()),
            ("store_threads", about.threads.to_string()),
        ],
    );
    section(
        "Clients",
        &[
            ("connected_clients", about.connections.to_string()),
            ("maxclients", about.connections_max.to_string()),
            ("pubsub_channels", about.channels.0.to_string()),
            ("pubsub_patterns", about.channels.1.to_string()),
        ],
    );
    section(
        "Persistence",
        &[
            ("loading", "0".into()),
            ("durability", durability(about.durability).into()),
            ("commits", load(&counts.commits).to_string()),
            ("last_trouble", about.trouble.clone().unwrap_or_else(|| "none".into())),
        ],
    );
    section(
        "Stats",
        &[
            ("total_connections_received", about.connections_all.to_string()),
            ("total_commands_processed", load(&counts.carried_out).to_string()),
            ("rejected_connections", about.refused.to_string()),
            ("dropped_connections", about.dropped.to_string()),
            ("wrong_passwords", about.wrong_passwords.to_string()),
            ("timely_commands", load(&counts.timely).to_string()),
            ("client_bytes", about.bytes.to_string()),
            ("client_bytes_max", about.bytes_max.to_string()),
            ("late_expired", load(&counts.expired).to_string()),
            ("late_backlog", load(&counts.backlog).to_string()),
            ("queue_length", about.waiting.to_string()),
            ("queue_wait_us", (load(&counts.waited) / 1_000).to_string()),
            ("temporal_objects", about.objects.to_string()),
        ],
    );
    let mut latency = Vec::new();
    for (at, spent, stage) in [
        ("late_before_queue", "late_before_queue_us", LateStage::Before),
        ("late_in_queue", "late_queue_us", LateStage::Queue),
        ("late_at_lock", "late_lock_us", LateStage::Lock),
        ("late_in_store", "late_store_us", LateStage::Store),
    ] {
        latency.push((at, load(counts.late_at(stage)).to_string()));
        latency.push((spent, (load(counts.late_spent(stage)) / 1_000).to_string()));
    }
    section("Latency", &latency);
    if let Some(tasks) = about.tasks {
        let lines = tasks.lines();
        let lines: Vec<_> = lines
            .iter()
            .map(|(name, value)| (name.as_str(), value.clone()))
            .collect();
        section("Tasks", &lines);
    }
    section(
        "Replication",
        &[("role", "master".into()), ("connected_slaves", "0".into())],
    );
    text
}

/// Name of a durability for CONFIG and the command line.
pub fn durability(durability: Durability) -> &'static str {
    match durability {
        Durability::Durable => "durable",
        Durability::NoMetaSync => "no-meta-sync",
        Durability::Volatile => "volatile",
    }
}

/// Writes the line of a connection in CLIENT LIST.
pub fn client(session: &Session, address: &str, here: &str, age_s: u64, idle_s: u64, unsent: usize) -> String {
    format!(
        "id={} addr={address} laddr={here} name={} age={age_s} idle={idle_s} db=0 sub={} psub={} multi={} omem={unsent} \
         cmd={} user={} resp={} lib-name={} lib-ver={} deadline-ms={}\n",
        session.id,
        session.name,
        session.channels.len(),
        session.patterns.len(),
        session.queued(),
        session.last,
        session.login.user(),
        if session.version == Resp::Three { 3 } else { 2 },
        session.library.0,
        session.library.1,
        session.time_left.map_or(0, |left| left.0 / 1_000_000),
    )
}
