//! Health of a store: its rows in `punctual doctor`.

use std::path::Path;
use std::time::SystemTime;

use punctual_engines::lmdb::{CheckNote, Verify, Visitor, last_check};
use punctual_platform::linux::doctor::{Facility, Finding, Status};
use punctual_store::engine::{EngineError, Space};

use punctual_files::failure::Failure;
use punctual_files::size::shown;

/// Share of its quota, in percent, from which a store is reported as nearly full.
const NEARLY_FULL: u128 = 80;

/// Examines the store in `folder`, which another process may have open. Skips checks that take long. A store that
/// cannot be read is also a failure, for the command that was given this folder.
pub fn examine(folder: &Path) -> (Finding, Result<(), Failure>) {
    let looked = look(folder);
    let failure = match &looked {
        Ok(_) => Ok(()),
        Err(corrupt @ EngineError::Corrupt { .. }) => Err(Failure::Refuted(corrupt.to_string())),
        Err(error) => Err(Failure::of(error)),
    };
    // Errors name the folder themselves.
    let error = match looked {
        Ok((detail, remedies)) => {
            let detail = format!("{}: {detail}", folder.display());
            return (
                Facility::Store.found(Status::Offered, detail, remedies.join("; ")),
                failure,
            );
        }
        Err(error) => error,
    };
    let (status, remedy) = match error {
        EngineError::NoStore { .. } => (Status::Missing, "name the folder that has the file data.mdb"),
        EngineError::Corrupt { .. } => (Status::Refused, "see \"After damage\" in docs/guide/store.md"),
        _ => (Status::Refused, "do what the message says"),
    };
    (Facility::Store.found(status, error.to_string(), remedy), failure)
}

/// Description of the store, and remedies for its problems.
fn look(folder: &Path) -> Result<(String, Vec<String>), EngineError> {
    let visitor = Visitor::open(folder)?;
    let space = visitor.space()?;
    super::check_length(&visitor, &space)?;
    let (mut told, mut remedies) = (vec![format!("format {}", visitor.format())], Vec::new());
    told.push(match visitor.owner() {
        Some(process) => format!("open in process {process}, which is alive"),
        None => "open in no process".into(),
    });
    if visitor.is_volatile() {
        told.push("volatile and not closed".into());
        if visitor.owner().is_none() {
            remedies.push("open and close it once before the machine stops: a power cut loses all of it".into());
        }
    }
    let in_use = used(&space);
    match space.quota {
        Some(quota) => {
            let percent = u128::from(in_use) * 100 / u128::from(quota.max(1));
            told.push(format!("{percent} % of its quota of {} in use", shown(quota)));
            if percent >= NEARLY_FULL {
                remedies.push("delete records, or raise the quota".into());
            }
        }
        None => told.push(format!("{} in use, of a quota that is not known yet", shown(in_use))),
    }
    told.push(readers(&visitor, &space));
    let (checked, since) = checked(last_check(folder));
    told.push(checked);
    if since {
        remedies.push(format!("punctual store verify {}", folder.display()));
    }
    Ok((told.join(", "), remedies))
}

/// Bytes in pages that no later transaction may take.
fn used(space: &Space) -> u64 {
    let free: u64 = space.freed.iter().map(|(_, bytes)| bytes).sum();
    space.taken.saturating_sub(free)
}

fn readers(visitor: &Visitor, space: &Space) -> String {
    let readers = visitor.readers();
    let most = readers.iter().map(|(_, commit)| space.held_by(*commit)).max();
    match most {
        None => "no readers".into(),
        Some(held) => format!("{} readers, of which one keeps {}", readers.len(), shown(held)),
    }
}

/// Time of the last full check in words, and whether a new check is due.
fn checked(last: Option<CheckNote>) -> (String, bool) {
    let Some(CheckNote { verify, commit, at }) = last else {
        return ("never checked".into(), true);
    };
    let what = match verify {
        Verify::Full => "all records",
        Verify::Structure | Verify::None => "its structure",
    };
    let hours = SystemTime::now()
        .duration_since(at)
        .map_or(0, |age| age.as_secs() / 3600);
    let when = match hours {
        0 => "within the last hour".into(),
        1..48 => format!("{hours} hours ago"),
        _ => format!("{} days ago", hours / 24),
    };
    (format!("{what} checked {when}, at commit {commit}"), false)
}
