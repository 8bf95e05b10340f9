//! Hashes: records with fields. A hash is one record of the store, so it is read and changed as a whole.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, RandomState};

use super::float::Float;
use super::keys::ScanOptions;
use super::look::{Edit, Look};
use super::record::{Fields, Pair, of_hash};
use super::strings::put;
use super::{Command, CommandResult, Failure, SYNTAX, Verb, integer, reply, wrong_number};
use crate::glob::matches;
use crate::resp::Writer;
use crate::resp::request::Request;

pub(super) fn read(look: &impl Look, verb: Verb, request: &Request, out: &mut Writer<'_>) -> CommandResult {
    look.hash(request.argument(1), |encoded| {
        let fields = || Fields(encoded);
        let value = |field: &[u8]| fields().find(|(name, _)| *name == field).map(|(_, value)| value);
        match verb {
            Verb::HGet => out.optional(value(request.argument(2))),
            Verb::HExists => out.integer(i64::from(value(request.argument(2)).is_some())),
            Verb::HStrLen => out.integer(value(request.argument(2)).map_or(0, <[u8]>::len) as i64),
            Verb::HLen => out.integer(fields().count() as i64),
            Verb::HMGet => {
                out.array(request.len() - 2);
                let all: Vec<_> = fields().collect();
                let places = places(&all);
                let value = |field: &[u8]| places.get(field).map(|place| all[*place].1);
                request.from(2).for_each(|field| out.optional(value(field)));
            }
            Verb::HKeys | Verb::HVals => {
                out.array(fields().count());
                let is_name = verb == Verb::HKeys;
                fields().for_each(|(field, value)| out.bulk(if is_name { field } else { value }));
            }
            _ => {
                out.map(fields().count());
                for (field, value) in fields() {
                    out.bulk(field);
                    out.bulk(value);
                }
            }
        }
    })
}

/// Index of fields by name, so that a command takes one step for each field that it names.
fn places<'h>(fields: &[Pair<'h>]) -> HashMap<&'h [u8], usize> {
    fields.iter().enumerate().map(|(at, (name, _))| (*name, at)).collect()
}

pub(super) fn set<T: Edit>(
    transaction: &mut T,
    command: &Command,
    request: &Request,
    out: &mut Writer<'_>,
) -> CommandResult {
    if !request.len().is_multiple_of(2) {
        return wrong_number(command.name);
    }
    let key = request.argument(1);
    let (encoded, life) = transaction.hash_and_life(key, <[u8]>::to_vec)?;
    let mut fields: Vec<_> = Fields(&encoded).collect();
    let mut places = places(&fields);
    let before = fields.len();
    if command.verb == Verb::HSetNx && places.contains_key(request.argument(2)) {
        out.integer(0);
        return Ok(());
    }
    for at in (2..request.len()).step_by(2) {
        let (field, value) = (request.argument(at), request.argument(at + 1));
        let place = *places.entry(field).or_insert(fields.len());
        match fields.get_mut(place) {
            Some((_, old)) => *old = value,
            None => fields.push((field, value)),
        }
    }
    put(transaction, key, &of_hash(&fields)?, life)?;
    match command.verb {
        Verb::HMSet => out.simple("OK"),
        _ => out.integer((fields.len() - before) as i64),
    }
    Ok(())
}

/// HSCAN: the whole hash at once, as Redis does with short ones, so that every scan ends with cursor 0.
pub(super) fn scan(look: &impl Look, request: &Request, out: &mut Writer<'_>) -> CommandResult {
    let cursor = std::str::from_utf8(request.argument(2)).ok();
    if cursor.and_then(|cursor| cursor.parse::<i128>().ok()).is_none() {
        return reply("ERR invalid cursor");
    }
    look.hash(request.argument(1), |encoded| {
        let pattern = match encoded {
            [] => None,
            _ => ScanOptions::read(request, 3, false)?.pattern,
        };
        let is_found = |(field, _): &Pair<'_>| pattern.is_none_or(|pattern| matches(pattern, field));
        let found: Vec<_> = Fields(encoded).filter(is_found).collect();
        out.array(2);
        out.bulk(b"0");
        out.array(2 * found.len());
        found.iter().for_each(|(field, value)| {
            out.bulk(field);
            out.bulk(value);
        });
        Ok(())
    })?
}

/// The most fields that HRANDFIELD draws with repeats.
const DRAWN_MAX: i64 = 1 << 20;

/// HRANDFIELD: one field, some different ones, or, where the count is negative, as many as asked for with repeats.
pub(super) fn random(look: &impl Look, request: &Request, out: &mut Writer<'_>) -> CommandResult {
    let count = (request.len() > 2).then(|| integer(request.argument(2))).transpose()?;
    let has_values = request.len() == 4 && request.argument(3).eq_ignore_ascii_case(b"withvalues");
    if request.len() > 3 && !has_values {
        return reply(SYNTAX);
    }
    if count.is_some_and(|count| count < -DRAWN_MAX || has_values && count > i64::MAX / 2) {
        return reply("ERR value is out of range");
    }
    look.hash(request.argument(1), |encoded| {
        let mut fields: Vec<_> = Fields(encoded).collect();
        let (length, state) = (fields.len(), RandomState::new());
        // The standard library draws the keys of its hashes at random.
        let below = |step: usize, bound: usize| (state.hash_one(step) % bound.max(1) as u64) as usize;
        let drawn: Vec<_> = match count {
            None => {
                return out.optional(fields.get(below(0, length)).map(|(field, _)| field));
            }
            Some(count @ ..0) if length > 0 => {
                let repeats = 0..count.unsigned_abs() as usize;
                repeats.map(|step| fields[below(step, length)]).collect()
            }
            Some(count) => {
                let wanted = usize::try_from(count).unwrap_or(0).min(length);
                (0..wanted).for_each(|at| fields.swap(at, at + below(at, length - at)));
                fields.truncate(wanted);
                fields
            }
        };
        if !has_values {
            out.array(drawn.len());
            return drawn.iter().for_each(|(field, _)| out.bulk(field));
        }
        out.pairs(drawn.len());
        for (field, value) in drawn {
            out.pair();
            out.bulk(field);
            out.bulk(value);
        }
    })
}

/// Replaces the value of a field, 0 where there is none, by a number that `add` makes of it and returns as text.
fn change<T: Edit>(
    transaction: &mut T,
    request: &Request,
    add: impl FnOnce(Option<&[u8]>) -> Result<String, Failure>,
) -> Result<String, Failure> {
    let (key, field) = (request.argument(1), request.argument(2));
    let (encoded, life) = transaction.hash_and_life(key, <[u8]>::to_vec)?;
    let mut fields: Vec<_> = Fields(&encoded).collect();
    let place = fields.iter().position(|(name, _)| *name == field);
    let text = add(place.map(|place| fields[place].1))?;
    match place {
        Some(place) => fields[place].1 = text.as_bytes(),
        None => fields.push((field, text.as_bytes())),
    }
    put(transaction, key, &of_hash(&fields)?, life)?;
    Ok(text)
}

pub(super) fn add<T: Edit>(transaction: &mut T, request: &Request, out: &mut Writer<'_>) -> CommandResult {
    let (by, mut sum) = (integer(request.argument(3))?, 0);
    change(transaction, request, |before| {
        let before = match before.map(integer) {
            None => 0,
            Some(Ok(before)) => before,
            Some(Err(_)) => return reply("ERR hash value is not an integer"),
        };
        let Some(after) = before.checked_add(by) else {
            return reply("ERR increment or decrement would overflow");
        };
        sum = after;
        Ok(after.to_string())
    })?;
    out.integer(sum);
    Ok(())
}

pub(super) fn add_float<T: Edit>(transaction: &mut T, request: &Request, out: &mut Writer<'_>) -> CommandResult {
    let by = Float::read(request.argument(3))?;
    if !by.is_finite() {
        return reply("ERR value is NaN or Infinity");
    }
    let text = change(transaction, request, |before| match before.map(Float::read) {
        None => Float::ZERO.plus(by)?.shown(),
        Some(Ok(before)) => before.plus(by)?.shown(),
        Some(Err(_)) => reply("ERR hash value is not a float"),
    })?;
    out.bulk(text.as_bytes());
    Ok(())
}

pub(super) fn delete<T: Edit>(transaction: &mut T, request: &Request, out: &mut Writer<'_>) -> CommandResult {
    let key = request.argument(1);
    let (encoded, life) = transaction.hash_and_life(key, <[u8]>::to_vec)?;
    let mut fields: Vec<_> = Fields(&encoded).collect();
    let before = fields.len();
    let unwanted: HashSet<&[u8]> = request.from(2).collect();
    fields.retain(|(name, _)| !unwanted.contains(name));
    let removed = before - fields.len();
    if fields.is_empty() && removed > 0 {
        transaction.delete(key)?; // a hash without fields does not exist
    } else if removed > 0 {
        put(transaction, key, &of_hash(&fields)?, life)?;
    }
    out.integer(removed as i64);
    Ok(())
}
