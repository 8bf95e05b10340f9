//! Commands on keys, whatever type their values have.

use std::hash::{BuildHasher, RandomState};
use std::ops::{Bound, ControlFlow};

use punctual_units::Nanos;

use super::look::{Edit, KeyInfo, Look};
use super::record::{MARK, StoredRecord};
use super::strings::{Unit, exists as is_there, put, term};
use super::{Command, CommandResult, Failure, SYNTAX, Verb, integer, reply, unknown_part, wrong_number};
use crate::cursors::Cursors;
use crate::glob::{PATTERN_MAX, matches};
use crate::resp::Writer;
use crate::resp::request::Request;

/// The most keys that KEYS replies with; SCAN has no such bound.
pub const KEYS_MAX: usize = 100_000;

/// The most records that one SCAN visits.
const SCANNED_MAX: i64 = 10_000;

pub(super) fn exists(look: &impl Look, request: &Request, out: &mut Writer<'_>) -> CommandResult {
    let mut count = 0;
    for key in request.from(1) {
        count += i64::from(is_there(look, key)?);
    }
    out.integer(count);
    Ok(())
}

pub(super) fn kind(look: &impl Look, request: &Request, out: &mut Writer<'_>) -> CommandResult {
    let kind = kind_of(look, request.argument(1))?;
    out.simple(kind);
    Ok(())
}

fn kind_of(look: &impl Look, key: &[u8]) -> Result<&'static str, Failure> {
    if look.is_hidden(key)? {
        return Ok("none");
    }
    let kind = |bytes: &[u8]| StoredRecord::of(bytes).map(|stored| matches!(stored, StoredRecord::Hash(_)));
    Ok(match look.bytes(key, kind)?.transpose()? {
        None => "none",
        Some(true) => "hash",
        Some(false) => "string",
    })
}

pub(super) fn ttl(look: &impl Look, verb: Verb, request: &Request, out: &mut Writer<'_>) -> CommandResult {
    let key = request.argument(1);
    let left = look.life_left(key)?;
    // As in Redis, seconds are rounded to the nearest.
    let seconds = |ms: u64| (ms + 500) / 1_000;
    // Both clocks are read apart, so their sum is rounded.
    let instant = |left: Nanos| (look.wall().0.saturating_add(left.0).saturating_add(500_000)) / 1_000_000;
    out.integer(match left {
        _ if !is_there(look, key)? => -2,
        None => -1,
        Some(left) => match verb {
            Verb::Ttl => seconds(left.0 / 1_000_000) as i64,
            Verb::PTtl => (left.0 / 1_000_000) as i64,
            Verb::ExpireTime => seconds(instant(left)) as i64,
            _ => instant(left) as i64,
        },
    });
    Ok(())
}

/// OBJECT: of a record's encoding what is true here, whatever Redis would choose.
pub(super) fn object(look: &impl Look, request: &Request, out: &mut Writer<'_>) -> CommandResult {
    let part = request.argument(1).to_ascii_lowercase();
    let name = String::from_utf8_lossy(&part);
    match part.as_slice() {
        b"encoding" | b"refcount" | b"idletime" | b"freq" if request.len() != 3 => {
            return wrong_number(&format!("object|{name}"));
        }
        b"encoding" | b"refcount" | b"idletime" | b"freq" => match (kind_of(look, request.argument(2))?, &*name) {
            ("none", _) => out.null(),
            (_, "refcount") => out.integer(1),
            (_, "idletime" | "freq") => return reply("ERR neither idle times nor access frequencies are tracked here"),
            ("hash", _) => out.bulk(b"listpack"),
            _ => out.bulk(b"raw"),
        },
        _ => return reply(unknown_part("OBJECT", request)),
    }
    Ok(())
}

/// MEMORY USAGE: bytes of the key and of its record as it is stored, without a share of the pages' heads.
pub(super) fn memory(look: &impl Look, request: &Request, out: &mut Writer<'_>) -> CommandResult {
    if !request.argument(1).eq_ignore_ascii_case(b"usage") {
        return reply(unknown_part("MEMORY", request));
    }
    match (request.len(), request.argument(3).to_ascii_lowercase().as_slice()) {
        (3, _) => {}
        (5, b"samples") if integer(request.argument(4))? >= 0 => {}
        (..3, _) => return wrong_number("memory|usage"),
        _ => return reply(SYNTAX),
    }
    let key = request.argument(2);
    match look.bytes(key, <[u8]>::len)? {
        Some(bytes) if !look.is_hidden(key)? => out.integer((key.len() + bytes) as i64),
        _ => out.null(),
    }
    Ok(())
}

/// Any key, each as likely as the others; visits all of them.
pub(super) fn random(look: &impl Look, out: &mut Writer<'_>) -> CommandResult {
    let (mut seen, mut chosen) = (0, None::<Vec<u8>>);
    // The standard library draws the keys of its hashes at random.
    let state = RandomState::new();
    each(look, Bound::Unbounded, |key| {
        seen += 1;
        if state.hash_one(seen) % seen == 0 {
            chosen = Some(key.to_vec());
        }
        ControlFlow::Continue(())
    })?;
    out.optional(chosen);
    Ok(())
}

/// Calls `visit` with all keys from `from` on that clients see.
fn each(look: &impl Look, from: Bound<&[u8]>, mut visit: impl FnMut(&[u8]) -> ControlFlow<()>) -> CommandResult {
    let mut failed = Ok(());
    look.keys(from, |key| match look.is_hidden(key) {
        Ok(false) => visit(key),
        Ok(true) => ControlFlow::Continue(()),
        Err(error) => {
            failed = Err(error);
            ControlFlow::Break(())
        }
    })?;
    Ok(failed?)
}

/// Counts the keys without a look at their records. As Redis does, a node counts records that have expired but are not
/// removed yet.
pub(super) fn count(look: &impl Look, out: &mut Writer<'_>) -> CommandResult {
    let mut count = 0;
    look.keys(Bound::Unbounded, |key| {
        count += i64::from(!key.starts_with(MARK));
        ControlFlow::Continue(())
    })?;
    out.integer(count);
    Ok(())
}

/// Returns the pattern, unless it is too long to be matched with every key.
fn pattern_of(pattern: &[u8]) -> Result<&[u8], Failure> {
    if pattern.len() > PATTERN_MAX {
        return reply(format!("ERR a pattern has at most {PATTERN_MAX} bytes"));
    }
    Ok(pattern)
}

pub(super) fn matching(look: &impl Look, request: &Request, out: &mut Writer<'_>) -> CommandResult {
    let pattern = pattern_of(request.argument(1))?;
    let mut found: Vec<Vec<u8>> = Vec::new();
    each(look, Bound::Unbounded, |key| {
        if matches(pattern, key) {
            found.push(key.to_vec());
        }
        if found.len() > KEYS_MAX {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    })?;
    if found.len() > KEYS_MAX {
        return reply(format!("ERR more than {KEYS_MAX} keys match: use SCAN"));
    }
    out.array(found.len());
    found.iter().for_each(|key| out.bulk(key));
    Ok(())
}

/// Options of SCAN and HSCAN.
pub(super) struct ScanOptions<'r> {
    pub pattern: Option<&'r [u8]>,
    count: i64,
    kind: Option<&'r [u8]>,
}

impl ScanOptions<'_> {
    /// Parses the words from position `from` on; `TYPE` is one of them for SCAN alone.
    pub fn read(request: &Request, from: usize, takes_kind: bool) -> Result<ScanOptions<'_>, Failure> {
        let mut options = ScanOptions {
            pattern: None,
            count: 10,
            kind: None,
        };
        let mut words = request.from(from);
        while let Some(word) = words.next() {
            let Some(argument) = words.next() else {
                return reply(SYNTAX);
            };
            match word.to_ascii_uppercase().as_slice() {
                b"MATCH" => options.pattern = Some(pattern_of(argument)?),
                b"COUNT" => options.count = integer(argument)?,
                b"TYPE" if takes_kind => options.kind = Some(argument),
                _ => return reply(SYNTAX),
            }
            if options.count < 1 {
                return reply(SYNTAX);
            }
        }
        Ok(options)
    }
}

pub(super) fn scan(look: &impl Look, request: &Request, cursors: &Cursors, out: &mut Writer<'_>) -> CommandResult {
    let last = match cursors.find(request.argument(1)) {
        Ok(last) => last,
        Err(error) => return reply(error),
    };
    let ScanOptions { pattern, count, kind } = ScanOptions::read(request, 2, true)?;
    let from = last.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
    let (mut found, mut seen, mut behind): (Vec<Vec<u8>>, i64, Option<Vec<u8>>) = (Vec::new(), 0, None);
    let mut more = false;
    each(look, from, |key| {
        if seen == count.min(SCANNED_MAX) {
            more = true;
            return ControlFlow::Break(());
        }
        seen += 1;
        if pattern.is_none_or(|pattern| matches(pattern, key)) {
            found.push(key.to_vec());
        }
        behind.get_or_insert_default().clear();
        behind.get_or_insert_default().extend_from_slice(key);
        ControlFlow::Continue(())
    })?;
    if let Some(kind) = kind {
        let mut of_kind = Vec::new();
        for key in found {
            if kind_of(look, &key)?.as_bytes().eq_ignore_ascii_case(kind) {
                of_kind.push(key);
            }
        }
        found = of_kind;
    }
    let next = match behind {
        Some(behind) if more => cursors.name(behind),
        _ => b"0".to_vec(),
    };
    out.array(2);
    out.bulk(&next);
    out.array(found.len());
    found.iter().for_each(|key| out.bulk(key));
    Ok(())
}

pub(super) fn delete<T: Edit>(transaction: &mut T, request: &Request, out: &mut Writer<'_>) -> CommandResult {
    let mut count = 0;
    for key in request.from(1) {
        let was_hidden = transaction.is_hidden(key)?;
        count += i64::from(transaction.delete(key)? && !was_hidden);
    }
    out.integer(count);
    Ok(())
}

/// Carries out `EXPIRE`, `PEXPIRE`, `EXPIREAT` and `PEXPIREAT`.
pub(super) fn expire<T: Edit>(
    transaction: &mut T,
    command: &Command,
    request: &Request,
    out: &mut Writer<'_>,
) -> CommandResult {
    let key = request.argument(1);
    let unit = match command.verb {
        Verb::Expire => Unit::Seconds,
        Verb::PExpire => Unit::Millis,
        Verb::ExpireAt => Unit::Instant,
        _ => Unit::InstantMillis,
    };
    let [mut only_without, mut only_with, mut only_longer, mut only_shorter] = [false; 4];
    for word in request.from(3) {
        match word.to_ascii_uppercase().as_slice() {
            b"NX" => only_without = true,
            b"XX" => only_with = true,
            b"GT" => only_longer = true,
            b"LT" => only_shorter = true,
            _ => {
                let word = word.escape_ascii();
                return reply(format!("ERR Unsupported option {word}"));
            }
        }
    }
    if only_without && (only_with || only_longer || only_shorter) {
        return reply("ERR NX and XX, GT or LT options at the same time are not compatible");
    }
    if only_longer && only_shorter {
        return reply("ERR GT and LT options at the same time are not compatible");
    }
    let life = term(transaction, command.name, request.argument(2), unit)?;
    if !is_there(transaction, key)? {
        out.integer(0);
        return Ok(());
    }
    // For GT and LT, a key without an expiry counts as the longest life. Instants are of whole milliseconds: what is
    // between two readings of the clocks is no difference.
    let left = transaction.life_left(key)?;
    let (new, same) = (life.unwrap_or(Nanos::ZERO).0, 500_000);
    let refused = only_without && left.is_some()
        || only_with && left.is_none()
        || only_longer && left.is_none_or(|left| new <= left.0 + same)
        || only_shorter && left.is_some_and(|left| new + same >= left.0);
    if refused {
        out.integer(0);
        return Ok(());
    }
    match life {
        Some(life) => transaction.set_life(key, Some(life))?,
        None => transaction.delete(key)?,
    };
    out.integer(1);
    Ok(())
}

/// Carries out `RENAME` and `RENAMENX`: the record keeps its expiry.
pub(super) fn rename<T: Edit>(
    transaction: &mut T,
    verb: Verb,
    request: &Request,
    out: &mut Writer<'_>,
) -> CommandResult {
    let (old, new) = (request.argument(1), request.argument(2));
    let KeyInfo {
        is_there: is_known,
        life,
    } = transaction.found(old)?;
    let bytes = transaction.bytes(old, <[u8]>::to_vec)?;
    let Some(bytes) = bytes.filter(|_| is_known) else {
        return reply("ERR no such key");
    };
    let is_taken = old == new || verb == Verb::RenameNx && is_there(transaction, new)?;
    if !is_taken {
        transaction.delete(old)?;
        put(transaction, new, &bytes, life)?;
    }
    match verb {
        Verb::RenameNx => out.integer(i64::from(!is_taken)),
        _ => out.simple("OK"),
    }
    Ok(())
}

/// Carries out `COPY`: the copy has the record's expiry.
pub(super) fn copy<T: Edit>(transaction: &mut T, request: &Request, out: &mut Writer<'_>) -> CommandResult {
    let (from, to) = (request.argument(1), request.argument(2));
    let (mut replaces, mut words) = (false, request.from(3));
    while let Some(word) = words.next() {
        match (word.to_ascii_lowercase().as_slice(), &mut words) {
            (b"replace", _) => replaces = true,
            (b"db", words) => match words.next().map(integer) {
                Some(Ok(0)) => {}
                Some(Ok(_)) => return reply("ERR DB index is out of range"),
                Some(Err(refused)) => return Err(refused),
                None => return reply(SYNTAX),
            },
            _ => return reply(SYNTAX),
        }
    }
    if from == to {
        return reply("ERR source and destination objects are the same");
    }
    let found = transaction.found(from)?;
    let bytes = transaction.bytes(from, <[u8]>::to_vec)?.filter(|_| found.is_there);
    let bytes = match bytes {
        Some(bytes) if replaces || !is_there(transaction, to)? => bytes,
        _ => {
            out.integer(0);
            return Ok(());
        }
    };
    put(transaction, to, &bytes, found.life)?;
    out.integer(1);
    Ok(())
}

pub(super) fn persist<T: Edit>(transaction: &mut T, request: &Request, out: &mut Writer<'_>) -> CommandResult {
    let key = request.argument(1);
    let has_term = transaction.life_left(key)?.is_some_and(|left| left > Nanos::ZERO);
    if has_term {
        transaction.set_life(key, None)?;
    }
    out.integer(i64::from(has_term));
    Ok(())
}
