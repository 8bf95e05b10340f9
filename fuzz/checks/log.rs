//! Files of logs: opened, torn tails cut off, or refused; the same again when they are opened a second time. Their
//! entries as followers read them: one of ours is read as it was written, whatever else there is.

use std::sync::OnceLock;

use punctual_federation::entry::{Body, Entry, KeyEvent, LoggedTransaction};
use punctual_federation::ids::{BatchId, Boot, Epoch, Member, NodeId, RequestId, SessionId};
use punctual_logs::{CommitLog, FORMAT, FederationId, HistoryId, Identity, Local, LocalError, LogHistory, Revision};
use punctual_store::batch::{TemporalRead, WriteSet};
use punctual_store::temporal::{Creation, ObjectSpec};
use punctual_units::{Nanos, ObjectName, Seq};

use super::source::{Source, change};

/// The bytes of a file's head, as `logs::local` tells it: of formats 1 and 2.
const HEADS: [usize; 2] = [36, 60];
const OURS: FederationId = FederationId(7);

/// Entries as a master writes them: with each kind of change.
fn samples() -> &'static [Vec<u8>] {
    static SAMPLES: OnceLock<Vec<Vec<u8>>> = OnceLock::new();
    SAMPLES.get_or_init(|| {
        let id = BatchId {
            member: Member {
                node: NodeId(2),
                boot: Boot(300),
            },
            epoch: Epoch(4),
            number: 1,
        };
        let changes = [(b"arm/1".to_vec(), Some(b"up".to_vec())), (b"leg".to_vec(), None)];
        let made = ObjectName {
            source: 1,
            boot: 2,
            sequence: 3,
        };
        let set = WriteSet {
            changes: changes.into_iter().collect(),
            created: vec![Creation {
                made,
                spec: ObjectSpec {
                    key: b"pose".to_vec(),
                    avi: Nanos(1_000_000),
                    period: Nanos(500_000),
                    max_len: 64,
                    history: 1,
                },
            }],
            read: vec![TemporalRead {
                key: b"pose".to_vec(),
                seq: Seq(9),
                age: Nanos(77),
                value: Some(b"21.5".to_vec()),
            }],
        };
        let id_of = |number| RequestId {
            session: SessionId(5),
            number,
        };
        let logged = vec![
            LoggedTransaction {
                id: id_of(1),
                set,
                events: Vec::new(),
            },
            LoggedTransaction {
                id: id_of(2),
                set: WriteSet::default(),
                events: vec![KeyEvent {
                    name: 3,
                    key: b"k".to_vec(),
                }],
            },
        ];
        [Body::Reign(HistoryId(7)), Body::Batch(logged)]
            .map(|body| Entry { id, body }.encode(OURS))
            .to_vec()
    })
}

/// A file as the product writes it, until it is changed.
struct File {
    bytes: Vec<u8>,
    /// The entries, if nothing of them was changed or cut off.
    entries: Option<Vec<Vec<u8>>>,
}

/// A case: whether it is a file at all; after which revision it begins, in format 1 where that is odd; its entries,
/// samples or bytes; which bytes are changed; how many are left; and what stands behind.
fn file(source: &mut Source<'_>) -> File {
    if source.is_so() {
        return File {
            bytes: source.rest().to_vec(),
            entries: None,
        };
    }
    let after = source.byte();
    let entries = source.list(|source| match source.byte() {
        kind @ 0..=1 => samples()[usize::from(kind)].clone(),
        len => source.take(usize::from(len)).to_vec(),
    });
    let changes = source.list(|source| (source.number(), source.byte()));
    let left = source.number();
    let mut bytes = b"PNCTLLOG".to_vec();
    let format = 2 - u32::from(after % 2);
    bytes.extend_from_slice(&format.to_le_bytes());
    bytes.extend_from_slice(&FORMAT.to_le_bytes());
    bytes.extend_from_slice(&OURS.0.to_le_bytes());
    bytes.extend_from_slice(&u64::from(after).to_le_bytes());
    let head = HEADS[format as usize - 1];
    if format == 2 {
        // Number, base and parent of its history.
        bytes.extend([7, u64::from(after), 0].iter().flat_map(|number| number.to_le_bytes()));
    }
    let sum = crc32c::crc32c(&bytes);
    bytes.extend_from_slice(&sum.to_le_bytes());
    assert_eq!(bytes.len(), head);
    for (number, entry) in entries.iter().enumerate() {
        let revision = u64::from(after) + number as u64 + 1;
        let begin = bytes.len();
        bytes.extend_from_slice(&(entry.len() as u32).to_le_bytes());
        bytes.extend_from_slice(&revision.to_le_bytes());
        let sum = crc32c::crc32c_append(crc32c::crc32c(&bytes[begin..]), entry);
        bytes.extend_from_slice(&sum.to_le_bytes());
        bytes.extend_from_slice(entry);
    }
    change(&mut bytes, &changes);
    let is_whole = usize::from(left) >= bytes.len() && changes.iter().all(|(_, bits)| *bits == 0);
    bytes.truncate(usize::from(left).max(head));
    bytes.extend_from_slice(source.rest());
    File {
        bytes,
        entries: (is_whole && after == 0).then_some(entries),
    }
}

fn entries(log: &mut Local) -> Option<Vec<(Revision, Vec<u8>)>> {
    let identity = Identity {
        format: FORMAT,
        federation: OURS,
        history: LogHistory::default(),
    };
    let last = log.open(identity).ok()?.last;
    let records = match log.read_from(Revision(0), usize::MAX) {
        Ok(stretch) => stretch.records,
        // It begins later.
        Err(_) => return Some(vec![(last, Vec::new())]),
    };
    Some(
        records
            .into_iter()
            .map(|record| (record.revision, record.bytes.to_vec()))
            .collect(),
    )
}

/// See [`file`].
pub fn check(case: &[u8]) -> &'static str {
    let folder = tempfile::tempdir_in("/dev/shm").expect("a folder in memory");
    let path = folder.path().join("log");
    let file = file(&mut Source(case));
    std::fs::write(&path, &file.bytes).expect("room in memory");
    let first = match Local::open(&path) {
        Ok(mut log) => entries(&mut log),
        Err(LocalError::Refused { what, .. }) => panic!("not the file's fault: {what}"),
        Err(_) => {
            let left = std::fs::read(&path).expect("the file is there");
            assert_eq!(left, file.bytes, "a file that is refused is not changed");
            return "refused";
        }
    };
    // A child that another test forks meanwhile has the lock, too, until it executes.
    let again = (0..10_000).find_map(|_| match Local::open(&path) {
        Err(LocalError::InUse { .. }) => {
            std::thread::sleep(std::time::Duration::from_millis(1));
            None
        }
        opened => Some(opened),
    });
    let again = again.expect("it is let go of");
    let mut again = again.expect("what was opened once is opened again");
    assert_eq!(entries(&mut again), first);
    // Whatever stands behind, what was whole is there.
    if let Some(written) = &file.entries {
        let kept = first.clone().unwrap_or_default();
        let all = written
            .iter()
            .enumerate()
            .all(|(at, entry)| kept.get(at).is_some_and(|(_, bytes)| bytes == entry));
        assert!(all, "an entry is gone");
    }
    let Some(first) = first else {
        return "of another federation";
    };
    let mut came_to = if first.is_empty() { "empty" } else { "entries" };
    for (revision, bytes) in first {
        if let Ok(entry) = Entry::decode(&bytes, revision, OURS) {
            let written = entry.encode(OURS);
            came_to = if written == bytes {
                "entries of ours"
            } else {
                "entries that are written otherwise"
            };
            assert_eq!(Entry::decode(&written, revision, OURS), Ok(entry));
        }
    }
    came_to
}
