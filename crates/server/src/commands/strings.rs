//! Strings, numbers, and temporal objects.

use punctual_store::{Freshness, StoreError};
use punctual_units::Nanos;

use super::look::{Edit, Look};
use super::record::of_text;
use super::{Command, Failure, NOT_AN_INTEGER, SYNTAX, Verb, age, integer, reply, wrong_number};
use crate::resp::Writer;
use crate::resp::request::Request;

#[inline]
pub(super) fn get(look: &impl Look, request: &Request, out: &mut Writer<'_>) -> Result<(), Failure> {
    if look.text(request.argument(1), |text| out.bulk(text))?.is_none() {
        out.null();
    }
    Ok(())
}

pub(super) fn mget(look: &impl Look, request: &Request, out: &mut Writer<'_>) -> Result<(), Failure> {
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

pub(super) fn strlen(look: &impl Look, request: &Request, out: &mut Writer<'_>) -> Result<(), Failure> {
    out.integer(look.text(request.argument(1), <[u8]>::len)?.unwrap_or(0) as i64);
    Ok(())
}

/// GETRANGE: bytes from the first to the last position, both counted from the end where negative.
pub(super) fn get_range(look: &impl Look, request: &Request, out: &mut Writer<'_>) -> Result<(), Failure> {
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

pub(super) fn get_fresh(look: &impl Look, request: &Request, out: &mut Writer<'_>) -> Result<(), Failure> {
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

/// Options of SET after key and value.
#[derive(Default)]
struct SetOptions {
    life: Option<Nanos>,
    keep: bool,
    only_new: bool,
    only_old: bool,
    get: bool,
}

fn set_options(request: &Request) -> Result<SetOptions, Failure> {
    let mut options = SetOptions::default();
    let mut words = request.from(3);
    while let Some(word) = words.next() {
        let unit = match word.to_ascii_uppercase().as_slice() {
            b"NX" => {
                options.only_new = true;
                continue;
            }
            b"XX" => {
                options.only_old = true;
                continue;
            }
            b"GET" => {
                options.get = true;
                continue;
            }
            b"KEEPTTL" => {
                options.keep = true;
                continue;
            }
            b"EX" => 1_000,
            b"PX" => 1,
            _ => return reply(SYNTAX),
        };
        let Some(amount) = words.next() else {
            return reply(SYNTAX);
        };
        if options.life.is_some() {
            return reply(SYNTAX);
        }
        options.life = Some(life("set", integer(amount)?, unit)?);
    }
    if options.only_new && options.only_old || options.keep && options.life.is_some() {
        return reply(SYNTAX);
    }
    Ok(options)
}

/// The longest life: 292 years, as 63 bits of nanoseconds hold.
const LIFE_MS_MAX: i64 = i64::MAX / 1_000_000;

/// Parses the life of a new value, which must be more than zero.
fn life(name: &str, amount: i64, unit_ms: i64) -> Result<Nanos, Failure> {
    match amount.checked_mul(unit_ms) {
        Some(ms @ 1..=LIFE_MS_MAX) => Ok(Nanos::from_millis(ms as u64)),
        _ => reply(format!("ERR invalid expire time in '{name}' command")),
    }
}

/// Parses a life from now on: `None` if it has ended already.
pub(super) fn term(name: &str, amount: i64, unit_ms: i64) -> Result<Option<Nanos>, Failure> {
    match amount.checked_mul(unit_ms) {
        Some(..=0) => Ok(None),
        _ => life(name, amount, unit_ms).map(Some),
    }
}

pub(super) fn set<T: Edit>(transaction: &mut T, request: &Request, out: &mut Writer<'_>) -> Result<(), Failure> {
    let (key, value) = (request.argument(1), request.argument(2));
    if request.len() == 3 {
        transaction.put(key, &of_text(value))?;
        out.simple("OK");
        return Ok(());
    }
    let options = set_options(request)?;
    let before = if options.get {
        transaction.text(key, <[u8]>::to_vec)?
    } else {
        None
    };
    let found = transaction.found(key)?;
    let wanted = !(options.only_new && found.is_there || options.only_old && !found.is_there);
    if wanted {
        let life = if options.keep { found.life } else { options.life };
        put(transaction, key, &of_text(value), life)?;
    }
    match (options.get, before, wanted) {
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
pub(super) fn put<T: Edit>(transaction: &mut T, key: &[u8], bytes: &[u8], life: Option<Nanos>) -> Result<(), Failure> {
    match life {
        Some(life) => transaction.put_for(key, bytes, life)?,
        None => transaction.put(key, bytes)?,
    }
    Ok(())
}

pub(super) fn set_nx<T: Edit>(transaction: &mut T, request: &Request, out: &mut Writer<'_>) -> Result<(), Failure> {
    let key = request.argument(1);
    let is_there = exists(transaction, key)?;
    if !is_there {
        transaction.put(key, &of_text(request.argument(2)))?;
    }
    out.integer(i64::from(!is_there));
    Ok(())
}

pub(super) fn get_set<T: Edit>(transaction: &mut T, request: &Request, out: &mut Writer<'_>) -> Result<(), Failure> {
    let key = request.argument(1);
    let before = transaction.text(key, <[u8]>::to_vec)?;
    transaction.put(key, &of_text(request.argument(2)))?;
    match before {
        Some(before) => out.bulk(&before),
        None => out.null(),
    }
    Ok(())
}

pub(super) fn get_del<T: Edit>(transaction: &mut T, request: &Request, out: &mut Writer<'_>) -> Result<(), Failure> {
    let key = request.argument(1);
    match transaction.text(key, <[u8]>::to_vec)? {
        Some(before) => {
            transaction.delete(key)?;
            out.bulk(&before);
        }
        None => out.null(),
    }
    Ok(())
}

pub(super) fn append<T: Edit>(transaction: &mut T, request: &Request, out: &mut Writer<'_>) -> Result<(), Failure> {
    let (key, more) = (request.argument(1), request.argument(2));
    let (mut text, life) = transaction.text_and_life(key, <[u8]>::to_vec)?.unwrap_or_default();
    if text.len() + more.len() > crate::resp::Bounds::ADMITTED.bulk {
        return reply("ERR string exceeds maximum allowed size");
    }
    text.extend_from_slice(more);
    put(transaction, key, &of_text(&text), life)?;
    out.integer(text.len() as i64);
    Ok(())
}

/// Carries out `SETEX` and `PSETEX`.
pub(super) fn set_ex<T: Edit>(
    transaction: &mut T,
    command: &Command,
    request: &Request,
    out: &mut Writer<'_>,
) -> Result<(), Failure> {
    let unit_ms = if command.verb == Verb::SetEx { 1_000 } else { 1 };
    let life = life(command.name, integer(request.argument(2))?, unit_ms)?;
    put(
        transaction,
        request.argument(1),
        &of_text(request.argument(3)),
        Some(life),
    )?;
    out.simple("OK");
    Ok(())
}

/// Carries out `MSET` and `MSETNX`.
pub(super) fn mset<T: Edit>(
    transaction: &mut T,
    command: &Command,
    request: &Request,
    out: &mut Writer<'_>,
) -> Result<(), Failure> {
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

pub(super) fn add<T: Edit>(
    transaction: &mut T,
    verb: Verb,
    request: &Request,
    out: &mut Writer<'_>,
) -> Result<(), Failure> {
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
