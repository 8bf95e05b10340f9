//! Strings, numbers, and temporal objects.

use punctual_store::{Freshness, StoreError};
use punctual_units::Nanos;

use super::float::Float;
use super::look::{Edit, Look};
use super::record::of_text;
use super::{Command, CommandResult, Failure, NOT_AN_INTEGER, SYNTAX, Verb, age, integer, reply, wrong_number};
use crate::resp::Writer;
use crate::resp::request::Request;

/// The longest string that commands make, in bytes.
const STRING_MAX: usize = crate::resp::Bounds::ADMITTED.bulk;
const TOO_LONG: &str = "ERR string exceeds maximum allowed size (proto-max-bulk-len)";

#[inline]
pub(super) fn get(look: &impl Look, request: &Request, out: &mut Writer<'_>) -> CommandResult {
    if look.text(request.argument(1), |text| out.bulk(text))?.is_none() {
        out.null();
    }
    Ok(())
}

pub(super) fn mget(look: &impl Look, request: &Request, out: &mut Writer<'_>) -> CommandResult {
    out.array(request.len() - 1);
    for key in request.from(1) {
        match look.text(key, |text| out.bulk(text)) {
            Ok(Some(())) => {}
            // A hash counts as null here, as in Redis.
            Ok(None) | Err(Failure::Reply(_)) => out.null(),
            Err(refused) => return Err(refused),
        }
    }
    Ok(())
}

pub(super) fn strlen(look: &impl Look, request: &Request, out: &mut Writer<'_>) -> CommandResult {
    out.integer(look.text(request.argument(1), <[u8]>::len)?.unwrap_or(0) as i64);
    Ok(())
}

/// GETRANGE: bytes from the first to the last position, both counted from the end where negative.
pub(super) fn get_range(look: &impl Look, request: &Request, out: &mut Writer<'_>) -> CommandResult {
    let [first_asked, last_asked] = [integer(request.argument(2))?, integer(request.argument(3))?];
    let shown = look.text(request.argument(1), |text| {
        let length = text.len() as i64;
        let place = |at: i64| if at < 0 { at.saturating_add(length) } else { at };
        let (first, last) = (place(first_asked).max(0), place(last_asked).max(0).min(length - 1));
        // As in Redis: two negative positions in the wrong order give nothing, wherever they are.
        let is_none = first_asked < 0 && last_asked < 0 && first_asked > last_asked;
        let part = text.get(first as usize..(last + 1).max(first) as usize);
        out.bulk(part.filter(|_| !is_none).unwrap_or_default());
    });
    if shown?.is_none() {
        out.bulk(b"");
    }
    Ok(())
}

pub(super) fn get_fresh(look: &impl Look, request: &Request, out: &mut Writer<'_>) -> CommandResult {
    let max_age = age(request.argument(2)).map_err(Failure::Reply)?;
    let found = match look.fresh(request.argument(1), max_age) {
        // An error of this command alone, as a wrong type is.
        Err(StoreError::NotTemporal { key }) => {
            return reply(format!(
                "ERR key {}: this is no temporal object here, so it has no age: set it by TSET, or use GET",
                key.escape_ascii()
            ));
        }
        found => found?,
    };
    match found {
        Freshness::Fresh { value, age } => {
            out.array(2);
            out.bulk(&value);
            out.integer(whole_millis(age));
            Ok(())
        }
        Freshness::Stale { age: Nanos::MAX, .. } => reply("STALE age-ms=unknown"),
        Freshness::Stale { age, .. } => reply(format!("STALE age-ms={}", whole_millis(age))),
        Freshness::NotFound => {
            out.null_array();
            Ok(())
        }
    }
}

/// Rounds up, so that an age is never shown as less than it is.
fn whole_millis(age: Nanos) -> i64 {
    i64::try_from(age.0.div_ceil(1_000_000)).unwrap_or(i64::MAX)
}

/// Unit of an expiry: a span from now on, or an instant since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unit {
    Seconds,
    Millis,
    Instant,
    InstantMillis,
}

/// Options of SET behind key and value, and of GETEX behind the key.
#[derive(Default)]
struct ValueOptions<'r> {
    expiry: Option<(Unit, &'r [u8])>,
    keep: bool,
    persist: bool,
    only_new: bool,
    only_old: bool,
    get: bool,
}

impl ValueOptions<'_> {
    fn read(request: &Request, is_set: bool) -> Result<ValueOptions<'_>, Failure> {
        let mut options = ValueOptions::default();
        let mut words = request.from(if is_set { 3 } else { 2 });
        while let Some(word) = words.next() {
            let is_free = options.expiry.is_none();
            let unit = match word.to_ascii_uppercase().as_slice() {
                b"NX" if is_set && !options.only_old => {
                    options.only_new = true;
                    continue;
                }
                b"XX" if is_set && !options.only_new => {
                    options.only_old = true;
                    continue;
                }
                b"GET" if is_set => {
                    options.get = true;
                    continue;
                }
                b"KEEPTTL" if is_set && is_free => {
                    options.keep = true;
                    continue;
                }
                b"PERSIST" if !is_set && is_free => {
                    options.persist = true;
                    continue;
                }
                b"EX" => Unit::Seconds,
                b"PX" => Unit::Millis,
                b"EXAT" => Unit::Instant,
                b"PXAT" => Unit::InstantMillis,
                _ => return reply(SYNTAX),
            };
            // As in Redis, the last of several of the same unit counts.
            let fits = !options.keep && !options.persist && options.expiry.is_none_or(|(known, _)| known == unit);
            match words.next().filter(|_| fits) {
                Some(amount) => options.expiry = Some((unit, amount)),
                None => return reply(SYNTAX),
            }
        }
        Ok(options)
    }

    /// The expiry: `Some(None)` of an instant that has passed.
    fn life(&self, look: &impl Look, name: &str) -> Result<Option<Option<Nanos>>, Failure> {
        let Some((unit, amount)) = self.expiry else {
            return Ok(None);
        };
        if integer(amount)? <= 0 {
            return invalid_expiry(name);
        }
        term(look, name, amount, unit).map(Some)
    }
}

/// The longest life: 292 years, as 63 bits of nanoseconds hold.
const LIFE_MAX: u64 = i64::MAX as u64;

fn invalid_expiry<T>(name: &str) -> Result<T, Failure> {
    reply(format!("ERR invalid expire time in '{name}' command"))
}

/// Parses the rest of a life: `None` if it has ended already.
pub(super) fn term(look: &impl Look, name: &str, amount: &[u8], unit: Unit) -> Result<Option<Nanos>, Failure> {
    let unit_ms = match unit {
        Unit::Seconds | Unit::Instant => 1_000,
        Unit::Millis | Unit::InstantMillis => 1,
    };
    let Some(ms) = integer(amount)?.checked_mul(unit_ms) else {
        return invalid_expiry(name);
    };
    let begin = match unit {
        Unit::Seconds | Unit::Millis => Nanos::ZERO,
        Unit::Instant | Unit::InstantMillis => look.wall(),
    };
    match i128::from(ms) * 1_000_000 - i128::from(begin.0) {
        ..=0 => Ok(None),
        life => match u64::try_from(life) {
            Ok(life @ ..=LIFE_MAX) => Ok(Some(Nanos(life))),
            _ => invalid_expiry(name),
        },
    }
}

/// Carries out `SET`, and `SETNX`, `GETSET`, `SETEX` and `PSETEX`, which are SET with an option.
pub(super) fn set<T: Edit>(
    transaction: &mut T,
    command: &Command,
    request: &Request,
    out: &mut Writer<'_>,
) -> CommandResult {
    let key = request.argument(1);
    let mut value = request.argument(2);
    let mut options = ValueOptions::default();
    match command.verb {
        Verb::Set if request.len() == 3 => {
            transaction.put(key, &of_text(value))?;
            out.simple("OK");
            return Ok(());
        }
        Verb::SetNx => options.only_new = true,
        Verb::GetSet => options.get = true,
        Verb::SetEx | Verb::PSetEx => {
            let is_seconds = command.verb == Verb::SetEx;
            let unit = if is_seconds { Unit::Seconds } else { Unit::Millis };
            options.expiry = Some((unit, value));
            value = request.argument(3);
        }
        _ => options = ValueOptions::read(request, true)?,
    }
    let life = options.life(transaction, command.name)?;
    // The store's one write lock is held: the key is read at most once, and only where an option asks for it.
    let (before, is_there, life_left) = if options.get {
        let (text, life) = transaction.text_and_life(key, <[u8]>::to_vec)?.unzip();
        let is_there = text.is_some();
        (text, is_there, life.flatten())
    } else if options.only_new || options.only_old || options.keep {
        let found = transaction.found(key)?;
        (None, found.is_there, found.life)
    } else {
        (None, false, None)
    };
    let wanted = !(options.only_new && is_there || options.only_old && !is_there);
    match life {
        _ if !wanted => {}
        Some(None) => {
            transaction.delete(key)?;
        }
        _ if options.keep => put(transaction, key, &of_text(value), life_left)?,
        life => put(transaction, key, &of_text(value), life.flatten())?,
    }
    match (options.get, before, wanted) {
        _ if command.verb == Verb::SetNx => out.integer(i64::from(wanted)),
        (true, Some(before), _) => out.bulk(&before),
        (true, None, _) | (false, _, false) => out.null(),
        (false, _, true) => out.simple("OK"),
    }
    Ok(())
}

/// Whether `key` exists, with a value of any type.
pub(super) fn exists(look: &impl Look, key: &[u8]) -> Result<bool, Failure> {
    Ok(look.found(key)?.is_there)
}

/// Sets a record. The caller read `life` together with the old value: a record that has expired since then gets a short
/// life, not none.
pub(super) fn put<T: Edit>(transaction: &mut T, key: &[u8], bytes: &[u8], life: Option<Nanos>) -> CommandResult {
    match life {
        Some(life) => transaction.put_for(key, bytes, life)?,
        None => transaction.put(key, bytes)?,
    }
    Ok(())
}

pub(super) fn get_del<T: Edit>(transaction: &mut T, request: &Request, out: &mut Writer<'_>) -> CommandResult {
    let key = request.argument(1);
    let before = transaction.text(key, <[u8]>::to_vec)?;
    if before.is_some() {
        transaction.delete(key)?;
    }
    out.optional(before);
    Ok(())
}

pub(super) fn get_ex<T: Edit>(transaction: &mut T, request: &Request, out: &mut Writer<'_>) -> CommandResult {
    let key = request.argument(1);
    let options = ValueOptions::read(request, false)?;
    let Some(text) = transaction.text(key, <[u8]>::to_vec)? else {
        out.null();
        return Ok(());
    };
    match options.life(transaction, "getex")? {
        Some(None) => transaction.delete(key)?,
        Some(life) => transaction.set_life(key, life)?,
        None => options.persist && transaction.set_life(key, None)?,
    };
    out.bulk(&text);
    Ok(())
}

pub(super) fn set_range<T: Edit>(transaction: &mut T, request: &Request, out: &mut Writer<'_>) -> CommandResult {
    let (key, part) = (request.argument(1), request.argument(3));
    let Ok(offset) = usize::try_from(integer(request.argument(2))?) else {
        return reply("ERR offset is out of range");
    };
    let (mut text, life) = transaction.text_and_life(key, <[u8]>::to_vec)?.unwrap_or_default();
    if !part.is_empty() {
        let end = offset.saturating_add(part.len());
        if end > STRING_MAX {
            return reply(TOO_LONG);
        }
        text.resize(text.len().max(end), 0);
        text[offset..end].copy_from_slice(part);
        put(transaction, key, &of_text(&text), life)?;
    }
    out.integer(text.len() as i64);
    Ok(())
}

/// Position of a bit: its byte, and its mask in that.
fn bit(text: &[u8]) -> Result<(usize, u8), Failure> {
    let most = STRING_MAX as i64 * 8;
    match integer(text) {
        Ok(at) if (0..most).contains(&at) => Ok(((at / 8) as usize, 0x80 >> (at % 8))),
        _ => reply("ERR bit offset is not an integer or out of range"),
    }
}

pub(super) fn get_bit(look: &impl Look, request: &Request, out: &mut Writer<'_>) -> CommandResult {
    let (at, mask) = bit(request.argument(2))?;
    let is_set = |text: &[u8]| text.get(at).is_some_and(|byte| byte & mask != 0);
    out.integer(look.text(request.argument(1), is_set)?.map_or(0, i64::from));
    Ok(())
}

pub(super) fn set_bit<T: Edit>(transaction: &mut T, request: &Request, out: &mut Writer<'_>) -> CommandResult {
    let (key, (at, mask)) = (request.argument(1), bit(request.argument(2))?);
    let is_on = match request.argument(3) {
        b"0" => false,
        b"1" => true,
        _ => return reply("ERR bit is not an integer or out of range"),
    };
    let (mut text, life) = transaction.text_and_life(key, <[u8]>::to_vec)?.unwrap_or_default();
    let (grows, was_on) = (at >= text.len(), text.get(at).is_some_and(|byte| byte & mask != 0));
    out.integer(i64::from(was_on));
    if grows || was_on != is_on {
        text.resize(text.len().max(at + 1), 0);
        text[at] = if is_on { text[at] | mask } else { text[at] & !mask };
        put(transaction, key, &of_text(&text), life)?;
    }
    Ok(())
}

pub(super) fn append<T: Edit>(transaction: &mut T, request: &Request, out: &mut Writer<'_>) -> CommandResult {
    let (key, more) = (request.argument(1), request.argument(2));
    let (mut text, life) = transaction.text_and_life(key, <[u8]>::to_vec)?.unwrap_or_default();
    if text.len() + more.len() > STRING_MAX {
        return reply(TOO_LONG);
    }
    text.extend_from_slice(more);
    put(transaction, key, &of_text(&text), life)?;
    out.integer(text.len() as i64);
    Ok(())
}

/// Carries out `MSET` and `MSETNX`.
pub(super) fn mset<T: Edit>(
    transaction: &mut T,
    command: &Command,
    request: &Request,
    out: &mut Writer<'_>,
) -> CommandResult {
    if request.len().is_multiple_of(2) {
        return wrong_number(command.name);
    }
    let is_for_new = command.verb == Verb::MSetNx;
    if is_for_new {
        for key in request.from(1).step_by(2) {
            if exists(transaction, key)? {
                out.integer(0);
                return Ok(());
            }
        }
    }
    for at in (1..request.len()).step_by(2) {
        transaction.put(request.argument(at), &of_text(request.argument(at + 1)))?;
    }
    if is_for_new {
        out.integer(1);
    } else {
        out.simple("OK");
    }
    Ok(())
}

pub(super) fn add<T: Edit>(transaction: &mut T, verb: Verb, request: &Request, out: &mut Writer<'_>) -> CommandResult {
    let key = request.argument(1);
    let by = match verb {
        Verb::Incr => 1,
        Verb::Decr => -1,
        Verb::IncrBy => integer(request.argument(2))?,
        _ => match integer(request.argument(2))?.checked_neg() {
            Some(by) => by,
            None => return reply("ERR decrement would overflow"),
        },
    };
    let (before, life) = match transaction.text_and_life(key, integer)? {
        Some((Ok(number), life)) => (number, life),
        Some((Err(_), _)) => return reply(NOT_AN_INTEGER),
        None => (0, None),
    };
    let Some(after) = before.checked_add(by) else {
        return reply("ERR increment or decrement would overflow");
    };
    put(transaction, key, after.to_string().as_bytes(), life)?;
    out.integer(after);
    Ok(())
}

pub(super) fn add_float<T: Edit>(transaction: &mut T, request: &Request, out: &mut Writer<'_>) -> CommandResult {
    let key = request.argument(1);
    let (before, life) = match transaction.text_and_life(key, Float::read)? {
        Some((number, life)) => (number?, life),
        None => (Float::ZERO, None),
    };
    let sum = before.plus(Float::read(request.argument(2))?)?.shown()?;
    put(transaction, key, sum.as_bytes(), life)?;
    out.bulk(sum.as_bytes());
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::ops::{Bound, ControlFlow};

    use super::*;
    use crate::commands::find;
    use crate::resp::Resp;

    /// A store of a single record, which counts reads of its bytes.
    #[derive(Default)]
    struct One {
        record: Option<(Vec<u8>, Option<Nanos>)>,
        reads: Cell<u32>,
    }

    impl Look for One {
        fn bytes<T>(&self, _key: &[u8], look: impl FnOnce(&[u8]) -> T) -> Result<Option<T>, StoreError> {
            self.reads.update(|reads| reads + 1);
            Ok(self.record.as_ref().map(|(bytes, _)| look(bytes)))
        }

        fn life_left(&self, _key: &[u8]) -> Result<Option<Nanos>, StoreError> {
            Ok(self.record.as_ref().and_then(|(_, life)| *life))
        }

        fn fresh(&self, _key: &[u8], _max_age: Nanos) -> Result<Freshness<Vec<u8>>, StoreError> {
            Ok(Freshness::NotFound)
        }

        fn keys(&self, _from: Bound<&[u8]>, _visit: impl FnMut(&[u8]) -> ControlFlow<()>) -> Result<(), StoreError> {
            Ok(())
        }
    }

    impl Edit for One {
        fn put(&mut self, _key: &[u8], bytes: &[u8]) -> Result<(), StoreError> {
            self.record = Some((bytes.to_vec(), None));
            Ok(())
        }

        fn put_for(&mut self, _key: &[u8], bytes: &[u8], life: Nanos) -> Result<(), StoreError> {
            self.record = Some((bytes.to_vec(), Some(life)));
            Ok(())
        }

        fn delete(&mut self, _key: &[u8]) -> Result<bool, StoreError> {
            Ok(self.record.take().is_some())
        }

        fn set_life(&mut self, _key: &[u8], _life: Option<Nanos>) -> Result<bool, StoreError> {
            Ok(self.record.is_some())
        }
    }

    /// Requests with their replies, the number of reads, and the record's life afterwards in seconds.
    #[test]
    fn a_set_reads_only_what_its_options_ask_for() {
        let mut one = One::default();
        for (line, expected, reads, life) in [
            ("SET k 1 XX", "$-1", 1, None),
            ("SET k 1 NX GET", "$-1", 1, None),
            ("SET k 2 NX GET", "$1 1", 1, None),
            ("SETNX k 2", ":0", 1, None),
            ("SETEX k 9 3", "+OK", 0, Some(9)),
            ("SET k 4 KEEPTTL", "+OK", 1, Some(9)),
            ("SET k 5 KEEPTTL GET", "$1 4", 1, Some(9)),
            ("GETSET k 6", "$1 5", 1, None),
            ("SET k 7 EX 8", "+OK", 0, Some(8)),
            ("PSETEX k 7000 8", "+OK", 0, Some(7)),
            ("SET k 9", "+OK", 0, None),
            ("SET k 8 XX EXAT 1", "+OK", 1, None),
            ("GETSET k 1", "$-1", 1, None),
        ] {
            let request = Request::of(line.split(' '));
            let (command, mut reply) = (find(request.argument(0)).unwrap(), Vec::new());
            one.reads.set(0);
            set(&mut one, command, &request, &mut Writer::new(&mut reply, Resp::Two)).unwrap();
            let reply = String::from_utf8(reply).unwrap().replace("\r\n", " ");
            let left = one.record.as_ref().and_then(|(_, life)| *life);
            assert_eq!((reply.trim_end(), one.reads.get()), (expected, reads), "{line}");
            assert_eq!(left, life.map(Nanos::from_secs), "{line}");
        }
    }
}
