//! `punctual store inspect`: prints the contents and sizes of a store.

use std::fmt::Write;

use punctual_engines::lmdb::{Visitor, reserve_of};
use punctual_os::LinuxOs;
use punctual_os::linux::clock_origin;
use punctual_store::batch::{is_reserved, revision_of, tells_of_a_part};
use punctual_store::engine::{EngineError, Table};
use punctual_store::temporal::{ClockOrigin, decode};
use punctual_units::{Clock, Nanos};
use serde::Serialize;

use super::refused;
use crate::args::store::Inspect;
use crate::commands::print;
use punctual_files::failure::Failure;
use punctual_files::size::shown;
use punctual_report::output::OutputFile;
use punctual_report::summary::counted;

/// Most temporal objects in the text; JSON lists all.
const LISTED_MAX: usize = 100;

/// Result of the inspection, as JSON prints it.
#[derive(Debug, Serialize)]
struct Inspection {
    store: String,
    format: u32,
    commit: u64,
    checksums: bool,
    /// Process that has the store open.
    owner: Option<u32>,
    /// Whether the store is open, or was left open in this boot, with durability `volatile`.
    volatile: bool,
    /// Quota and reserve set by the last owner; `None` if that was an earlier version, which recorded none.
    quota_bytes: Option<u64>,
    reserve_bytes: Option<u64>,
    file_bytes: u64,
    records_bytes: u64,
    free_bytes: u64,
    medium_bytes: u64,
    records: u64,
    readers: Vec<Reader>,
    /// Last entry of a federation's log in the store; `None` if the store is not a node's.
    revision: Option<u64>,
    /// Whether the store holds only a part of a node's records, because its copy from another node has not ended.
    part: bool,
    temporal: Vec<Object>,
}

#[derive(Debug, Serialize)]
struct Reader {
    process: u32,
    /// Number of commits since its snapshot was taken.
    commits_behind: u64,
    held_bytes: u64,
}

#[derive(Debug, Serialize)]
struct Object {
    key: String,
    bytes: usize,
    /// `None` if the age is unknown: from before a restart of the machine, or from another time namespace.
    age_ns: Option<u64>,
}

/// Carries out `punctual store inspect`.
pub fn inspect(arguments: &Inspect) -> Result<(), Failure> {
    let json = OutputFile::report(arguments.json.as_ref())?;
    let found = look(arguments).map_err(|error| refused(error.into()))?;
    print(&told(&found))?;
    json.map_or(Ok(()), |file| file.json(&found))
}

fn look(arguments: &Inspect) -> Result<Inspection, EngineError> {
    let visitor = Visitor::open(&arguments.store)?;
    let space = visitor.space()?;
    let (medium_bytes, _) = visitor.on_medium()?;
    let readers = visitor.readers().into_iter().map(|(process, commit)| Reader {
        process,
        commits_behind: visitor.commit().saturating_sub(commit),
        held_bytes: space.held_by(commit),
    });
    let free = space.freed.iter().map(|(_, bytes)| bytes).sum();
    let (mut revision, mut part, mut temporal) = (None, false, Vec::new());
    let origin = clock_origin().map_or(ClockOrigin::UNKNOWN, |name| ClockOrigin::named(name.as_bytes()));
    visitor.visit::<EngineError>(Table::Temporal, &mut |key, record| {
        revision = revision.or(revision_of(key, record).map(|revision| revision.0));
        part |= tells_of_a_part(key);
        if !is_reserved(key) {
            temporal.push(object(key, record, origin));
        }
        Ok(())
    })?;
    super::check_length(&visitor, &space)?;
    Ok(Inspection {
        store: arguments.store.display().to_string(),
        format: visitor.format(),
        commit: visitor.commit(),
        checksums: visitor.has_checksums(),
        owner: visitor.owner(),
        volatile: visitor.is_volatile(),
        quota_bytes: space.quota,
        reserve_bytes: space.quota.map(reserve_of),
        file_bytes: space.taken,
        records_bytes: space.data,
        free_bytes: free,
        medium_bytes,
        records: visitor.records(Table::Data),
        readers: readers.collect(),
        revision,
        part,
        temporal,
    })
}

fn object(key: &[u8], record: &[u8], origin: ClockOrigin) -> Object {
    let now = LinuxOs.since_boot();
    let decoded = decode(record, origin);
    let sampled_at = decoded
        .and_then(|(sample, _)| sample.sampled_at)
        .filter(|at| *at <= now);
    Object {
        key: key.escape_ascii().to_string(),
        bytes: decoded.map_or(record.len(), |(_, value)| value.len()),
        age_ns: sampled_at.map(|at| now.since(at).0),
    }
}

fn told(found: &Inspection) -> String {
    let mut text = String::new();
    let mut line = |name: &str, what: String| {
        let _ = writeln!(text, "{name:<11} {what}");
    };
    line("store", found.store.clone());
    let sums = match found.checksums {
        true => "all records",
        false => "temporal objects only",
    };
    line(
        "format",
        format!("{}, checksums on {sums}, commit {}", found.format, found.commit),
    );
    let owner = found.owner.map(|process| format!("process {process}"));
    line("open in", owner.unwrap_or_else(|| "no process".into()));
    let durability = match found.volatile {
        true => "volatile: a power cut loses all of it until it is closed",
        false => "what was synced survives a power cut",
    };
    line("durability", durability.into());
    let bytes = [
        found.file_bytes,
        found.records_bytes,
        found.free_bytes,
        found.medium_bytes,
    ];
    let [file, records, free, medium] = bytes.map(shown);
    let quota = found.quota_bytes.map_or("unknown size".to_owned(), shown);
    line(
        "file",
        format!("{file} of a quota of {quota}: {records} in records, {free} free; {medium} on the medium"),
    );
    let reserve = found.reserve_bytes.map_or("unknown".to_owned(), shown);
    line(
        "reserve",
        format!("{reserve} for deletes, temporal objects and commits"),
    );
    let temporal = counted(found.temporal.len() as u64, "temporal object");
    line("records", format!("{}, and {temporal}", found.records));
    if let Some(revision) = found.revision {
        let what = match found.part {
            true => "a part of a node's records: its copy from another node has not ended; they are of revision",
            false => "a node's records, up to revision",
        };
        line("federation", format!("{what} {revision}"));
    }
    for reader in &found.readers {
        let (process, behind, held) = (reader.process, reader.commits_behind, shown(reader.held_bytes));
        line(
            "reader",
            format!("of process {process}, {behind} commits behind, keeps {held} from reuse"),
        );
    }
    if !found.temporal.is_empty() {
        let _ = writeln!(text, "\n{:<32} {:>8} {:>12}", "temporal object", "bytes", "age");
    }
    for Object { key, bytes, age_ns } in found.temporal.iter().take(LISTED_MAX) {
        let age = age_ns.map_or("unknown".to_owned(), |age| Nanos(age).to_string());
        let _ = writeln!(text, "{key:<32} {bytes:>8} {age:>12}");
    }
    if let Some(more) = found.temporal.len().checked_sub(LISTED_MAX).filter(|more| *more > 0) {
        let _ = writeln!(text, "and {more} more, which --json lists");
    }
    text
}
