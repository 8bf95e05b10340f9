//! `punctual cluster log`: a log in one file, for nodes of this machine that are separate programs. And `punctual
//! cluster found`: creates a log in etcd, or one that continues a backup.

use std::fs;
use std::hash::{BuildHasher, RandomState};
use std::io::ErrorKind;
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use punctual_engines::lmdb::Visitor;
use punctual_federation::ids::{FederationId, Revision};
use punctual_federation::records::reign;
use punctual_logs::socket::{LogServer, SharedLog};
use punctual_logs::{FORMAT, HistoryId, Identity, Local, LogHistory};
use punctual_os::{LinuxOs, claim_processor};
use punctual_store::batch::{revision_of, tells_of_a_part};
use punctual_store::engine::{EngineError, Table};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag::register;

use super::etcd;
use crate::commands::print;
use punctual_files::failure::Failure;
use punctual_files::node::number_of;

/// Interval between looks for the end signal.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Carries out `punctual cluster log`.
///
/// # Errors
/// If the file is no log or is in use, or the socket cannot be made; and once the medium fails.
pub(super) fn log(file: &Path, listen: &Path) -> Result<(), Failure> {
    let ends = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        register(signal, Arc::clone(&ends)).map_err(Failure::of)?;
    }
    // The file first: a second instance on the same file is refused here, and leaves the first one's socket alone.
    let log = Local::open(file).map_err(Failure::of)?;
    let shown = listen.display();
    clear(listen)?;
    // Inherited by the threads that answer nodes.
    if let Err(refusal) = claim_processor(&LinuxOs) {
        print(&format!("on a busy machine commits may be late: {refusal}\n"))?;
    }
    let log = SharedLog::new(log);
    let served = log.clone();
    let server = LogServer::start(listen, move || Some(served.clone())).map_err(|error| {
        Failure::of(format!(
            "{shown}: {error}; name a socket in a folder that this user may write"
        ))
    })?;
    print(&format!(
        "log {} (one file of this machine, not replicated) at {shown}; Ctrl-C ends it\n",
        file.display()
    ))?;
    let (mut failed, mut waits) = (None, None);
    while !ends.load(Ordering::SeqCst) && failed.is_none() {
        std::thread::sleep(LOOK_EVERY);
        let now = log.log().waits_for_room().map(str::to_owned);
        if now != waits {
            let said = now.as_deref().unwrap_or("there is room again: entries are committed");
            print(&format!("{said}\n"))?;
            waits = now;
        }
        failed = log.log().failure().map(str::to_owned);
    }
    drop(server);
    drop(fs::remove_file(listen));
    match failed {
        Some(why) => Err(Failure::of(format!("the log has failed, and answers nothing: {why}"))),
        None => Ok(()),
    }
}

/// Carries out `punctual cluster found`: `place` is an address of etcd, or a file.
///
/// # Errors
/// If the place has the log of another federation; with `from`, if it has a log at all, or `from` is no store of a
/// node.
pub(super) fn found(name: &str, place: &str, from: Option<&Path>) -> Result<(), Failure> {
    let (base, parent) = from.map_or(Ok(Default::default()), origin)?;
    let identity = Identity {
        federation: FederationId(number_of(name)),
        format: FORMAT,
        history: LogHistory {
            id: HistoryId(RandomState::new().hash_one(std::process::id())),
            base,
            parent,
        },
    };
    let is_in_etcd = place.starts_with("etcd://") || place.starts_with("etcds://");
    let last = match (is_in_etcd, from) {
        (true, from) => etcd::found(place, identity, from.is_some())?,
        (false, None) => {
            return Err(Failure::of(format!(
                "{place}: the first node makes a log in a file its own; give an address such as etcd://HOST:2379/NAME, or \
                 --from STORE to begin with a backup"
            )));
        }
        (false, Some(_)) => {
            let log = Local::begin(Path::new(place), identity);
            log.map_err(Failure::of)?.last()
        }
    };
    print(&match from {
        None => format!("{place}: the log of federation {name}, with {last} entries so far\n"),
        Some(store) => format!(
            "{place}: the log of federation {name}, which begins behind revision {last}; start one node with {}, and all \
             others with empty folders: they get a copy\n",
            store.display()
        ),
    })
}

/// Revision of the last log entry in a node's store, and the history of that log.
fn origin(store: &Path) -> Result<(Revision, HistoryId), Failure> {
    let shown = store.display();
    let (mut found, mut is_part) = (None, false);
    let visitor = Visitor::open(store).map_err(Failure::of)?;
    visitor
        .visit::<EngineError>(Table::Temporal, &mut |key, record| {
            found = found.or(revision_of(key, record));
            is_part |= tells_of_a_part(key);
            Ok(())
        })
        .map_err(Failure::of)?;
    if is_part {
        return Err(Failure::of(format!(
            "{shown}: a part of a node's records: its copy from another node had not ended; name the backup of a node \
             that served"
        )));
    }
    let found = found.ok_or_else(|| {
        Failure::of(format!(
            "{shown}: no node of a federation has had this store: name the backup of one that has"
        ))
    })?;
    let reign = reign(|key| visitor.get(Table::Data, key)).map_err(Failure::of)?;
    Ok((found, reign.history))
}

/// Removes the socket that a killed (kill -9) instance left.
fn clear(listen: &Path) -> Result<(), Failure> {
    let shown = listen.display();
    match fs::symlink_metadata(listen) {
        Ok(found) if !found.file_type().is_socket() => Err(Failure::of(format!(
            "{shown}: there is something else: name a socket that is to be made"
        ))),
        Ok(_) if UnixStream::connect(listen).is_ok() => Err(Failure::of(format!(
            "{shown}: another program listens there: end it, or name another socket"
        ))),
        Ok(_) => fs::remove_file(listen).map_err(|error| Failure::of(format!("{shown}: {error}: remove it"))),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        Err(error) => Err(Failure::of(format!("{shown}: {error}"))),
    }
}
