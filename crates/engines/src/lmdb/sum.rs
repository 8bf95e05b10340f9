//! Checksums of records, and the file's format number.
//!
//! **Problem.** Now and then a medium silently returns other bytes than were written to it (Bairavasundaram et al., "An
//! Analysis of Data Corruption in the Storage Stack", FAST 2008). LMDB takes them for data.
//!
//! **Method.** The bytes of a value are followed by four more: CRC32C (RFC 3720, appendix B.4) of the key and the
//! value. A read compares them. Temporal records always have checksums, plain records if the store was created with
//! them. A flipped bit in a key is found when all records are read, a value under the wrong key at its first read.
//! CRC32C finds each error of up to 3 bits in a record of up to 64 KiB, and all but 1 of 2^32 others.
//!
//! **A commit names itself**: the main table holds the number of its commit. LMDB's meta page has no checksum; but a
//! meta page that names another commit than its tree does is damaged.
//!
//! | key of the main table | value |
//! |---|---|
//! | `commit` | number of the transaction (`mt_txnid`), 8 bytes |
//! | `format` | [`FORMAT`](super::FORMAT), 4 bytes |
//! | `room` | the quota with which it was opened last, in bytes, for visitors; 8 bytes |
//! | `sums` | 1 if plain records have checksums, else 0; 1 byte |
//!
//! All numbers are little-endian. Format 1 had `format` only, and no checksums. Opening such a store adds checksums to
//! temporal records, in one commit; plain records stay without.

use heed::{Env, RwTxn, WithTls};
use punctual_store::engine::{EngineError, Table};

use super::error::ErrorContext;
use super::{Records, crc, error};

/// Length of the checksum behind each value, in bytes.
pub(super) const LEN: usize = size_of::<u32>();

pub(super) const FORMAT_KEY: &[u8] = b"format";
pub(super) const COMMIT_KEY: &[u8] = b"commit";
/// Sorts behind `records`: of six names, bisection then meets `records` first.
pub(super) const QUOTA_KEY: &[u8] = b"room";
/// Sorts between the tables' names, so that bisection meets `records` first.
pub(super) const SUMS_KEY: &[u8] = b"sums";

/// The checksum of a record.
#[inline]
pub(super) fn of(key: &[u8], value: &[u8]) -> [u8; LEN] {
    crc::of(key, value).to_le_bytes()
}

/// The value in the bytes `stored` under `key`, without its checksum; `None` if the checksum does not match.
#[inline(always)]
pub(super) fn checked<'t>(key: &[u8], stored: &'t [u8]) -> Option<&'t [u8]> {
    let (value, sum) = stored.split_last_chunk()?;
    (of(key, value) == *sum).then_some(value)
}

/// Which tables of a store have checksums.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sums {
    /// Whether plain records have checksums; temporal ones always do.
    pub data: bool,
}

impl Sums {
    #[inline]
    pub(super) fn has(self, table: Table) -> bool {
        match table {
            Table::Data => self.data,
            Table::Temporal => true,
        }
    }
}

/// Reads the format, writes it into a new store, or upgrades an older store.
///
/// # Errors
/// [`EngineError::Version`] for a store of a newer format, [`EngineError::Corrupt`] for an invalid format number.
pub(super) fn settle(
    env: &Env<WithTls>,
    [main, temporal]: [Records; 2],
    place: ErrorContext<'_>,
    sums_if_new: bool,
    quota: u64,
) -> Result<Sums, EngineError> {
    let fail = error::engine(place, "read the store's format");
    let mut transaction = env.write_txn().map_err(fail)?;
    let found = match main.get(&transaction, FORMAT_KEY).map_err(fail)? {
        Some(bytes) => Some(number(bytes).ok_or_else(|| corrupt(place, "its format is not a number"))?),
        None => None,
    };
    let sums = match found {
        Some(super::FORMAT) => {
            let sums = current(main, &transaction, place)?;
            note_quota(main, transaction, quota).or_else(|refused| {
                match error::engine(place, "note the quota")(refused) {
                    // Only visitors read the note, so a full store may open without it.
                    EngineError::QuotaFull { .. } | EngineError::DiskFull { .. } => Ok(()),
                    other => Err(other),
                }
            })?;
            return Ok(sums);
        }
        Some(1) => {
            add_sums(temporal, &mut transaction).map_err(error::engine(place, "bring the store to the new format"))?;
            Sums { data: false }
        }
        None => Sums { data: sums_if_new },
        Some(found) => {
            return Err(EngineError::Version {
                path: place.path.to_path_buf(),
                found,
                expected: super::FORMAT,
            });
        }
    };
    let write = |transaction: &mut RwTxn<'_>| {
        main.put(transaction, FORMAT_KEY, &super::FORMAT.to_le_bytes())?;
        main.put(transaction, SUMS_KEY, &[u8::from(sums.data)])?;
        put_quota(main, transaction, quota)?;
        name_commit(main, transaction)
    };
    let fail = error::engine(place, "write the store's format");
    write(&mut transaction).map_err(fail)?;
    transaction.commit().map_err(fail)?;
    // A second commit: LMDB keeps two meta pages, and neither may lead back to a commit of the older format.
    let mut transaction = env.write_txn().map_err(fail)?;
    name_commit(main, &mut transaction).map_err(fail)?;
    transaction.commit().map_err(fail)?;
    Ok(sums)
}

fn current(main: Records, transaction: &RwTxn<'_>, place: ErrorContext<'_>) -> Result<Sums, EngineError> {
    let sums = main
        .get(transaction, SUMS_KEY)
        .map_err(error::engine(place, "read the store's format"))?;
    match sums {
        Some([data @ (0 | 1)]) => Ok(Sums { data: *data == 1 }),
        _ => Err(corrupt(place, "it does not say whether it has checksums")),
    }
}

/// Notes the quota in a commit of its own, if it has changed.
fn note_quota(main: Records, mut transaction: RwTxn<'_>, quota: u64) -> heed::Result<()> {
    if main.get(&transaction, QUOTA_KEY)? == Some(&quota.to_le_bytes()) {
        return Ok(());
    }
    put_quota(main, &mut transaction, quota)?;
    name_commit(main, &mut transaction)?;
    transaction.commit()
}

/// Writes the quota into the main table.
pub(super) fn put_quota(main: Records, transaction: &mut RwTxn<'_>, quota: u64) -> heed::Result<()> {
    main.put(transaction, QUOTA_KEY, &quota.to_le_bytes())
}

/// Writes the commit's own number into the main table.
pub(super) fn name_commit(main: Records, transaction: &mut RwTxn<'_>) -> heed::Result<()> {
    let number = transaction.id() as u64;
    main.put(transaction, COMMIT_KEY, &number.to_le_bytes())
}

/// Adds a checksum to each record of a table.
fn add_sums(table: Records, transaction: &mut RwTxn<'_>) -> heed::Result<()> {
    let copied = table
        .iter(transaction)?
        .map(|record| record.map(|(key, value)| (key.to_vec(), value.to_vec())));
    // All at once in memory, where temporal objects live anyway.
    let records: Vec<_> = copied.collect::<heed::Result<_>>()?;
    for (key, value) in records {
        let sum = of(&key, &value);
        table.put(transaction, &key, &[&value[..], &sum].concat())?;
    }
    Ok(())
}

fn number(bytes: &[u8]) -> Option<u32> {
    bytes.try_into().ok().map(u32::from_le_bytes)
}

fn corrupt(place: ErrorContext<'_>, reason: &str) -> EngineError {
    EngineError::Corrupt {
        path: place.path.to_path_buf(),
        reason: reason.to_owned(),
    }
}

/// The error for a record whose checksum does not match.
#[cold]
pub(super) fn damaged(place: ErrorContext<'_>, key: &[u8]) -> EngineError {
    let reason = format!("the record {} is not what was written", key.escape_ascii());
    corrupt(place, &reason)
}
