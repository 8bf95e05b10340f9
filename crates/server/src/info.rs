//! Figures of a server, and the text of CLIENT LIST.

use std::net::SocketAddr;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicU64, Ordering};

use punctual_os::Os;
use punctual_store::engine::{Durability, Engine};
use punctual_units::Nanos;

use crate::door::DoorState;
use crate::figures::{Figure, figure, object_ages, or_none, row, section, word};
use crate::node::Options;
use crate::pool::PoolState;
use crate::work::{Counts, LateStage};

fn load(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}

/// Figures of a server, but for the ages of its objects.
#[rustfmt::skip] // a figure a line
pub(crate) fn figures<E: Engine + 'static, O: Os>(
    shared: &PoolState<E, O>, options: &Options, address: SocketAddr, now: &DoorState,
) -> Vec<Figure> {
    let (counts, store, totals) = (&shared.counts, &shared.store, &now.totals);
    let trouble = shared.trouble.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let waited = Nanos(load(&counts.waited));
    let usage = *shared.usage.lock().unwrap_or_else(PoisonError::into_inner);
    let mut all: Vec<Figure> = section("Server", [
        word("punctual_version", env!("CARGO_PKG_VERSION")),
        // The Redis version whose commands these are; clients check it.
        word("redis_version", "7.0.0"),
        word("redis_mode", "standalone"),
        word("process_id", std::process::id().to_string()),
        word("tcp_port", address.port().to_string()),
        figure("uptime_in_seconds", now.uptime, "Time since the server started").named("uptime_seconds"),
        word("io_threads_active", "0"),
        figure("store_threads", options.threads, "Threads that call the store"),
    ]).collect();
    all.extend(section("Clients", [
        figure("connected_clients", now.connections, "Connections").named("connections"),
        figure("maxclients", options.connections_max, "Limit of the connections").named("connections_max"),
        word("blocked_clients", "0"),
        figure("pubsub_channels", now.subscriptions.0, "Channels with subscribers").named("channels"),
        figure("pubsub_patterns", now.subscriptions.1, "Patterns with subscribers").named("patterns"),
    ]));
    all.extend(section("Memory", [
        word("used_memory", usage.bytes[0] + now.bytes as u64),
        word("used_memory_human", human(usage.bytes[0] + now.bytes as u64)),
        figure("used_memory_dataset", usage.bytes[0], "Bytes of the store's records").named("store_bytes"),
        figure("maxmemory", usage.bytes[1], "Limit of the bytes of the store's records").named("store_bytes_max"),
        word("maxmemory_human", human(usage.bytes[1])),
        word("maxmemory_policy", "noeviction"),
    ]));
    all.extend(section("Persistence", [
        word("loading", "0"),
        word("durability", durability(store.durability())),
        figure("commits", load(&counts.commits), "Commits of the store for requests").named("commits_total"),
        word("last_trouble", or_none(trouble)),
    ]));
    let ended = "Connections that were refused, or ended because their clients did not read, stalled or took too much";
    let ended = |key, count: u64, why| figure(key, count, ended).named("connections_ended_total").of("why", why);
    let [carried_out, timely, expired, backlog] = outcomes(counts);
    let found = "Values that GET, HGET and MGET asked for, by whether they were there";
    all.extend(section("Stats", [
        figure("total_connections_received", totals.begun, "Connections since the start").named("connections_received_total"),
        carried_out,
        ended("rejected_connections", totals.refused, "too_many"),
        ended("dropped_connections", totals.dropped, "slow"),
        figure("wrong_passwords", totals.wrong_passwords, "Wrong passwords").named("wrong_passwords_total"),
        timely,
        word("instantaneous_ops_per_sec", usage.per_second),
        figure("expired_keys", store.expired(), "Records that were removed because their life had ended").named("expired_total"),
        word("evicted_keys", "0"),
        figure("keyspace_hits", load(&counts.found), found).named("reads_total").of("result", "hit"),
        figure("keyspace_misses", load(&counts.missed), found).named("reads_total").of("result", "miss"),
        figure("client_bytes", now.bytes, "Memory of connections: requests, replies, watches, subscriptions")
            .named("memory_bytes"),
        figure("client_bytes_max", options.bytes_max, "Limit of that memory").named("memory_bytes_max"),
        expired,
        backlog,
        figure("queue_length", shared.waiting(), "Jobs that wait for a thread"),
        figure("queue_length_max", options.queue_max, "Limit of the jobs that wait"),
        figure("queue_wait_us", waited, "Wait of the job that a thread took last"),
        figure("orphans", now.orphans, "Jobs whose connections have ended"),
        figure("temporal_objects", store.objects(), "Temporal objects").named("objects"),
    ]));
    all.extend(section("Latency", late_requests(counts)));
    all.extend(options.tasks.iter().flat_map(|tasks| tasks.now().figures()));
    all.extend(section("Replication", [word("role", "master"), word("connected_slaves", "0"), word("master_repl_offset", "0")]));
    all.extend(section("CPU", processor_times().into_iter().map(|(key, time)| word(key, format!("{:.6}", time.0 as f64 / 1e9)))));
    all.extend(row("Keyspace", "db0".into(), [
        figure("keys", usage.keys, "Keys").named("keys"),
        figure("expires", usage.expiring, "Keys that expire").named("keys_expiring"),
        word("avg_ttl", usage.lives_ms / usage.expiring.max(1)),
    ].into_iter().filter(|_| usage.keys > 0)));
    all
}

/// Bytes as Redis shows them: `1.50M`.
fn human(bytes: u64) -> String {
    let (mut amount, mut unit) = (bytes as f64, 0);
    while amount >= 1024.0 && unit < 4 {
        (amount, unit) = (amount / 1024.0, unit + 1);
    }
    match ["B", "K", "M", "G", "T"][unit] {
        "B" => format!("{bytes}B"),
        letter => format!("{amount:.2}{letter}"),
    }
}

/// Processor time of this process and of its children, by Redis' keys.
fn processor_times() -> [(&'static str, Nanos); 4] {
    let of = |processes| {
        // SAFETY: zeros are a value of this plain structure, which the call fills.
        let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
        // SAFETY: a pointer to a structure that is there.
        unsafe { libc::getrusage(processes, &raw mut usage) };
        let time = |time: libc::timeval| Nanos(time.tv_sec as u64 * 1_000_000_000 + time.tv_usec as u64 * 1_000);
        [time(usage.ru_stime), time(usage.ru_utime)]
    };
    let ([system, user], [of_children, by_children]) = (of(libc::RUSAGE_SELF), of(libc::RUSAGE_CHILDREN));
    [
        ("used_cpu_sys", system),
        ("used_cpu_user", user),
        ("used_cpu_sys_children", of_children),
        ("used_cpu_user_children", by_children),
    ]
}

/// Requests by their outcome: carried out, in time, expired, refused for the backlog.
pub(crate) fn outcomes(counts: &Counts) -> [Figure; 4] {
    let help = "Commands that asked the store: carried out (timely: those of them with a deadline), or not because no \
                time was left (expired) or no room in the queue (backlog)";
    let outcome = |key, outcome, count| {
        let figure = figure(key, load(count), help);
        figure.named("requests_total").of("outcome", outcome)
    };
    [
        outcome("total_commands_processed", "carried_out", &counts.carried_out),
        outcome("timely_commands", "timely", &counts.timely),
        outcome("late_expired", "expired", &counts.expired),
        outcome("late_backlog", "backlog", &counts.backlog),
    ]
}

/// Requests that expired: where, and where their time went.
pub(crate) fn late_requests(counts: &Counts) -> impl Iterator<Item = Figure> {
    let keys = [
        ("late_before_queue", "late_before_queue_us"),
        ("late_in_queue", "late_queue_us"),
        ("late_at_lock", "late_lock_us"),
        ("late_in_store", "late_store_us"),
    ];
    let of = |((at, spent_key), stage): ((&'static str, &'static str), LateStage)| {
        let help = "Requests that expired, by where the deadline passed: before the queue, in it, at the write lock, \
                    in the store";
        let at = figure(at, load(counts.late_at(stage)), help).named("late_requests_total");
        let spent = Nanos(load(counts.late_spent(stage)));
        let help = "Time of the requests that expired, from when they were read";
        let spent = figure(spent_key, spent, help).named("late_requests_seconds_total");
        [at.of("stage", stage.name()), spent.of("stage", stage.name())]
    };
    keys.into_iter().zip(LateStage::ALL).flat_map(of)
}

/// Ages of the temporal objects, for the page alone: all objects are asked.
pub(crate) fn ages<E: Engine + 'static, O: Os>(shared: &PoolState<E, O>) -> Vec<Figure> {
    let (objects, now) = (shared.objects(), shared.os.since_boot());
    let age = |object| Some(shared.store.sample(object).ok()??.age(now)).filter(|age| *age != Nanos::MAX);
    let ages = objects
        .iter()
        .filter_map(|(key, object)| Some((key.as_slice(), age(*object)?)));
    let ages: Vec<_> = ages.collect();
    let without = objects.len() - ages.len();
    let without = figure("", without, "Objects without a value of a known age").named("objects_without_value");
    let oldest = ages.iter().map(|(_, age)| *age).max();
    let oldest = figure("", oldest, "Age of the oldest value").named("object_age_seconds_max");
    [without, oldest].into_iter().chain(object_ages(ages)).collect()
}

/// Name of a durability for CONFIG and the command line.
pub fn durability(durability: Durability) -> &'static str {
    match durability {
        Durability::Durable => "durable",
        Durability::NoMetaSync => "no-meta-sync",
        Durability::Volatile => "volatile",
    }
}
