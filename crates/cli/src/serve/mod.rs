//! `punctual serve`: one store for any client of Redis.

pub mod certificates;
pub mod password;
pub mod tasks;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use punctual_engines::Lmdb;
use punctual_engines::lmdb::LmdbOptions;
use punctual_os::LinuxOs;
use punctual_os::linux::clock_origin;
use punctual_server::metrics::Page;
use punctual_server::users::Users;
use punctual_server::{Listening, Options, RunningServer};
use punctual_store::batch::is_reserved;
use punctual_store::engine::{Engine, Read, Table};
use punctual_store::temporal::{ClockOrigin, ObjectSpec, decode};
use punctual_store::{Store, StoreError, StoreOptions};
use signal_hook::consts::SIGHUP;
use signal_hook::iterator::Signals;
use tasks::{ReadyTasks, RunningTasks};

use crate::args;
use crate::cluster::member;
use crate::commands::{metrics, print, replay};
use punctual_files::failure::Failure;
use punctual_files::server::{self, NodeFile};
use punctual_report::output::OutputFile;

/// Descriptors that are not connections: those of the store and the event loop.
const DESCRIPTORS_KEPT: u64 = 64;
/// Looks between two checks of the certificate files: once a second.
const CERTIFICATES_EVERY: u64 = 50;
/// Interval between looks at a running server.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Carries out `punctual serve`.
pub fn serve(arguments: &args::Serve) -> Result<(), Failure> {
    if let Some(rounds) = arguments.hash {
        return password::hash(rounds);
    }
    let mut node = settings(arguments)?;
    if let Some(membership) = node.federation.take() {
        return member::serve(node, &membership);
    }
    let mut tasks = node.tasks.as_ref().map(ReadyTasks::load).transpose()?;
    let record = OutputFile::log(node.record.as_ref())?;
    if let Some(tasks) = &mut tasks {
        tasks.within(node.quota as u64);
        if record.is_some() {
            tasks.record();
        }
    }
    let descriptors = raise_descriptors();
    let connections_max = node.options.connections_max;
    if let Some(room) =
        descriptors.map(|all| usize::try_from(all.saturating_sub(DESCRIPTORS_KEPT)).unwrap_or(usize::MAX))
        && room < connections_max
    {
        node.options.connections_max = room.max(1);
        let words = "connections, because this process may have no more descriptors: raise `ulimit -n`";
        print(&format!(
            "{connections_max} connections were asked for; at most {} {words}\n",
            room.max(1)
        ))?;
    }
    // Signals first: a signal while the store is opened also ends the server in order. A second one ends it at once,
    // like a kill.
    let (asked, signals) = member::signals(node.tls.is_some())?;
    if let Some(paths) = &node.tls {
        node.options.tls = Some(certificates::load(paths)?);
    }
    refuse_others_folder(&node.store)?;
    // The port before the store: a second server fails here, without opening the store.
    node.options.users = Arc::new(Users::new(std::mem::take(&mut node.users), password::salt()?));
    let mut listening = Listening::bind(node.listen, &node.options.users).map_err(Failure::of)?;
    if let Some(path) = &node.unix_socket {
        listening = listening.also(path, node.unix_socket_mode).map_err(Failure::of)?;
    }
    let page = metrics::bind("metrics", node.metrics)?;
    let Some(tasks) = tasks else {
        let store = open(&mut node, StoreOptions::default(), |engine, options| {
            Store::open(engine, LinuxOs, options)
        });
        let store = Arc::new(store.map_err(Failure::of)?);
        return serve_on(listening, store, &node, page, signals, None);
    };
    let mut shared = None;
    let running = tasks.start(&asked, &mut |file, needs| {
        let store = open(&mut node, needs.options.clone(), |engine, options| {
            needs.store(engine, options)
        });
        let opened = tasks::shared(file, Arc::new(store?));
        shared = Some(Arc::clone(&opened.store));
        Ok(opened)
    })?;
    let (Some(running), Some(store)) = (running, shared) else {
        return Ok(()); // a signal came before the tasks began
    };
    node.options.tasks = Some(running.told());
    serve_on(listening, store, &node, page, signals, Some((running, record)))
}

/// Settings of a node: those of its file, and the options before them.
fn settings(arguments: &args::Serve) -> Result<NodeFile, Failure> {
    let mut node = match &arguments.file {
        Some(file) => server::load(file)?,
        None => NodeFile::default(),
    };
    node.listen = arguments.listen.unwrap_or(node.listen);
    node.unix_socket = arguments.unix_socket.clone().or(node.unix_socket);
    if let Some(store) = &arguments.store {
        node.store.clone_from(store);
    }
    node.durability = arguments
        .durability
        .map_or(node.durability, args::StoreDurability::durability);
    if node.federation.is_some() && node.unix_socket.is_some() {
        let what = "--unix-socket: a node of a federation listens on its address alone: leave it out";
        return Err(Failure::of(what));
    }
    Ok(node)
}

/// Serves the store until a signal asks for the end.
fn serve_on<E: Engine + 'static>(
    listening: Listening,
    store: Arc<Store<E, LinuxOs>>,
    node: &NodeFile,
    page: Option<Page>,
    mut signals: Signals,
    tasks: Option<(RunningTasks, Option<OutputFile>)>,
) -> Result<(), Failure> {
    let metrics = page.as_ref().and_then(|page| page.address().ok());
    let (address, durability) = (listening.address(), store.durability());
    let running = listening.serve(store, &node.options, page).map_err(Failure::of)?;
    print(&format!(
        "serving {} ({}) on {address}; Ctrl-C ends it\n",
        node.store.display(),
        durability.name()
    ))?;
    if let Some(path) = &node.unix_socket {
        print(&format!("also on {}\n", path.display()))?;
    }
    if let Some(metrics) = metrics {
        print(&format!("figures on http://{metrics}/metrics\n"))?;
    }
    if !address.ip().is_loopback() && !node.options.speaks_tls() {
        print("other machines reach it, and passwords and data go over the network as they are: see [tls]\n")?;
    }
    let asked = until_asked(
        &mut signals,
        &running,
        &node.options,
        tasks.as_ref().map(|(tasks, _)| tasks),
    );
    // Tasks first: their last updates are flushed with those of clients.
    let ended = tasks.map_or(Ok(()), |(tasks, record)| replay::write(record, tasks.end()?));
    let stopped = running.stop().map_err(Failure::of);
    asked.and(ended).and(stopped)
}

/// Raises the limit of open descriptors to its hard limit; returns the new limit.
pub fn raise_descriptors() -> Option<u64> {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: a place for two numbers.
    if unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) } != 0 {
        return None;
    }
    let before = limit.rlim_cur;
    limit.rlim_cur = limit.rlim_max;
    // SAFETY: as above.
    let raised = unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &limit) } == 0;
    Some(if raised { limit.rlim_max } else { before })
}

fn until_asked<E: Engine>(
    signals: &mut Signals,
    running: &RunningServer<E, LinuxOs>,
    options: &Options,
    tasks: Option<&RunningTasks>,
) -> Result<(), Failure> {
    for round in 0u64.. {
        let pending: Vec<_> = signals.pending().collect();
        if pending.iter().any(|signal| *signal != SIGHUP) {
            break;
        }
        if let Some(tls) = &options.tls
            && (!pending.is_empty() || round % CERTIFICATES_EVERY == 0 && tls.has_changed())
        {
            certificates::reload(tls);
        }
        if running.has_ended() {
            let what =
                "a thread of the server has ended by itself, and so has the server; what was acknowledged is there";
            return Err(Failure::Internal(what.into()));
        }
        if tasks.is_some_and(|tasks| tasks.ended()()) {
            // The reason is printed with the results of the tasks.
            return Ok(());
        }
        std::thread::sleep(LOOK_EVERY);
    }
    Ok(())
}

/// Refuses a folder that holds files and no store: a wrong name would fill a folder of others.
fn refuse_others_folder(folder: &Path) -> Result<(), Failure> {
    let Ok(entries) = folder.read_dir() else {
        return Ok(()); // not there, or a reason that opening the store reports
    };
    // A file system of its own may have lost+found.
    let names: Vec<_> = entries.flatten().map(|entry| entry.file_name()).collect();
    let [any, store] = [
        names.iter().any(|name| name != "lost+found"),
        names.iter().any(|name| name == "data.mdb" || name == "lock.mdb"),
    ];
    if any && !store {
        let what = "holds files, and no store: name an empty folder, or one that is not there";
        return Err(Failure::at(folder, what));
    }
    Ok(())
}

/// Opens the store, with the objects of `base`, those of the file, and those that clients created in earlier runs.
fn open<E: Engine>(
    node: &mut NodeFile,
    base: StoreOptions,
    store: impl FnOnce(Lmdb, StoreOptions) -> Result<Store<E, LinuxOs>, StoreError>,
) -> Result<Store<E, LinuxOs>, StoreError> {
    let options = LmdbOptions {
        durability: node.durability,
        quota: node.quota,
        verify: node.verify,
        ..LmdbOptions::default()
    };
    let engine = options.open(&node.store)?;
    let mut objects = base.objects;
    objects.extend_from_slice(&node.objects);
    {
        let snapshot = engine.snapshot()?;
        for record in snapshot.scan(
            Table::Temporal,
            (std::ops::Bound::Unbounded, std::ops::Bound::Unbounded),
        )? {
            let (key, record) = record?;
            // The store of a federation's node has the store's own records in this table, too.
            if is_reserved(&key) || objects.iter().any(|known| known.key == *key) {
                continue;
            }
            let length = decode(&record, ClockOrigin::UNKNOWN).map_or(0, |(_, value)| value.len());
            objects.push(ObjectSpec {
                key: key.to_vec(),
                avi: node.options.validity,
                period: punctual_units::Nanos(node.options.validity.0 / 2),
                max_len: node.options.temporal_len_max.max(length),
                history: 1,
            });
        }
    }
    node.options.objects = objects.iter().map(|spec| spec.key.clone()).collect();
    let options = StoreOptions {
        created_max: node.objects_max.saturating_sub(objects.len()),
        objects,
        clock_origin: clock_origin().map_or(ClockOrigin::UNKNOWN, |name| ClockOrigin::named(name.as_bytes())),
        ..base
    };
    store(engine, options)
}
