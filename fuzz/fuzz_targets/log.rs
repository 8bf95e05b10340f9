//! Files of logs: opened, torn tails cut off, or refused; the same again when they are opened a second time. Their
//! entries as followers read them: one of ours is read as it was written, whatever else there is.
#![no_main]

use libfuzzer_sys::arbitrary::{self, Arbitrary};
use libfuzzer_sys::fuzz_target;
use punctual_federation::entry::Entry;
use punctual_logs::{CommitLog, FORMAT, FederationId, Identity, Local, LocalError, Revision};

/// The bytes of a file's head, as `logs::local` tells it.
const HEAD: usize = 36;

#[derive(Arbitrary, Debug)]
struct Input<'b> {
    /// Where the log begins, and what its entries are.
    after: u8,
    entries: Vec<&'b [u8]>,
    /// Bytes that are changed, and where.
    changes: Vec<(u16, u8)>,
    /// Bytes that are left, at most.
    left: u16,
    /// What stands behind.
    behind: &'b [u8],
    /// Whether all of it is bytes that were never a log.
    is_plain: bool,
}

fn file(input: &Input) -> Vec<u8> {
    let mut bytes = b"PNCTLLOG".to_vec();
    if input.is_plain {
        return input.behind.to_vec();
    }
    bytes.extend_from_slice(&1u32.to_le_bytes());
    bytes.extend_from_slice(&FORMAT.to_le_bytes());
    bytes.extend_from_slice(&7u64.to_le_bytes());
    bytes.extend_from_slice(&u64::from(input.after).to_le_bytes());
    let sum = crc32c::crc32c(&bytes);
    bytes.extend_from_slice(&sum.to_le_bytes());
    assert_eq!(bytes.len(), HEAD);
    for (number, entry) in input.entries.iter().enumerate() {
        let revision = u64::from(input.after) + number as u64 + 1;
        let begin = bytes.len();
        bytes.extend_from_slice(&(entry.len() as u32).to_le_bytes());
        bytes.extend_from_slice(&revision.to_le_bytes());
        let sum = crc32c::crc32c_append(crc32c::crc32c(&bytes[begin..]), entry);
        bytes.extend_from_slice(&sum.to_le_bytes());
        bytes.extend_from_slice(entry);
    }
    for (at, change) in &input.changes {
        let at = usize::from(*at) % bytes.len();
        bytes[at] ^= change;
    }
    bytes.truncate(usize::from(input.left).max(HEAD));
    bytes.extend_from_slice(input.behind);
    bytes
}

fn entries(log: &mut Local) -> Option<Vec<(Revision, Vec<u8>)>> {
    let identity = Identity { format: FORMAT, federation: FederationId(7) };
    let last = log.open(identity).ok()?;
    let after = Revision(0);
    let records = match log.read_from(after, usize::MAX) {
        Ok(stretch) => stretch.records,
        // It begins later.
        Err(_) => return Some(vec![(last, Vec::new())]),
    };
    Some(records.into_iter().map(|record| (record.revision, record.bytes.to_vec())).collect())
}

fuzz_target!(|input: Input| {
    let folder = tempfile::tempdir_in("/dev/shm").expect("a folder in memory");
    let path = folder.path().join("log");
    std::fs::write(&path, file(&input)).expect("room in memory");
    let first = match Local::open(&path) {
        Ok(mut log) => entries(&mut log),
        Err(LocalError::Io { source, .. }) => panic!("not the file's fault: {source}"),
        Err(_) => return,
    };
    let mut again = Local::open(&path).expect("what was opened once is opened again");
    assert_eq!(entries(&mut again), first);
    // Whatever stands behind, what was whole is there.
    if input.changes.is_empty() && !input.is_plain && input.left == u16::MAX && input.after == 0 {
        let kept = first.clone().unwrap_or_default();
        let all = input.entries.iter().enumerate().all(|(at, entry)| kept.get(at).is_some_and(|(_, bytes)| bytes == entry));
        assert!(all, "an entry is gone");
    }
    for (revision, bytes) in first.into_iter().flatten() {
        if let Ok(entry) = Entry::decode(&bytes, revision, FederationId(7)) {
            let written = entry.encode(FederationId(7));
            assert_eq!(Entry::decode(&written, revision, FederationId(7)), Ok(entry));
        }
    }
});
