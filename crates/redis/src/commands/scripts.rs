//! Scripts of the lock libraries of Redis' clients: EVAL, EVALSHA and SCRIPT.
//!
//! **Problem.** `lock()` of redis-py, redlock and redsync compare and change a record in one step, by scripts in Lua.
//!
//! **Method.** The server has no Lua. It knows these scripts by the SHA-1 of their text, and carries out what each does
//! in the same transaction as any command. All other scripts are refused before anything is done.

use sha1::{Digest, Sha1};

use super::look::Edit;
use super::record::of_text;
use super::strings::{Unit, exists, put, term};
use super::{Command, CommandResult, Failure, Verb, integer, reply, unknown_part, wrong_number};
use crate::resp::Writer;
use crate::resp::request::Request;

const UNKNOWN: &str =
    "ERR this script is not known: here is no Lua, only the lock scripts of redis-py, redlock and redsync";
const NO_SCRIPT: &str = "NOSCRIPT No matching script. Please use EVAL.";

/// Effect of a script. The first argument behind the keys is the token of the lock's holder.
#[derive(Clone, Copy)]
enum Effect {
    /// Removes the key if it holds the token; replies with the number where there is no key.
    Release(i64),
    /// Adds the second argument to the remaining life, or replaces it where the third is not 0.
    Prolong,
    /// Sets the remaining life to the second argument.
    Renew,
    /// As `Renew`, and sets a key that is not there.
    RenewOrSet,
    /// Sets all keys, if none is there.
    SetAll,
    /// Removes all keys that hold the token.
    ReleaseAll,
    /// Sets all keys anew, if each holds the token.
    RenewAll,
}

/// The known scripts: redis-py 4 to 8, redlock-py 1.0, redsync 4, redlock of Node.js 4.2 and 5.0.0-beta2.
const KNOWN: &[(&str, Effect)] = &[
    ("c3f8721cbb97f72bc19e972846bd7aaf91901658", Effect::Release(0)),
    ("a4e8783852e6b949f9ef3a97212805108459a890", Effect::Prolong),
    ("1cac51482acf5858da00f6d685d68f886cd6b6b2", Effect::Renew),
    ("4e92fdc63815b3a0a2dd1c1df3694de73607c88d", Effect::Release(0)),
    ("e950836ed1e694540c503ef9972b8de518044d3b", Effect::Release(-1)),
    ("d75bb8b5bd13532ddedd17762e772346e39b321e", Effect::Renew),
    ("b6b55c439e02c6f52ffb8be7ec8c0d0ac816ea79", Effect::RenewOrSet),
    ("e5a322e2634ef59a516e8ea150cb085afafee684", Effect::SetAll),
    ("0f0f23b9048b36752b5be114f357ba083449f908", Effect::ReleaseAll),
    ("ce46f80993d5dac20dd066eb301a4e37994bdbed", Effect::RenewAll),
    ("96da70f7716f27d278a5218544df37fd8b0a5e4c", Effect::SetAll),
    ("e4612211c9f8f51c257e26e056b0a654b3187242", Effect::ReleaseAll),
    ("aed6f382e410db8ba7926d4e5e9aab410bf2a78a", Effect::RenewAll),
];

fn known(sha: &[u8]) -> Option<Effect> {
    let found = KNOWN
        .iter()
        .find(|(known, _)| known.as_bytes().eq_ignore_ascii_case(sha));
    found.map(|(_, effect)| *effect)
}

/// Number of keys that EVAL and EVALSHA name, if that many arguments follow.
pub(super) fn keys(request: &Request) -> Result<usize, Failure> {
    match integer(request.argument(2))? {
        ..0 => reply("ERR Number of keys can't be negative"),
        count if count > request.len() as i64 - 3 => reply("ERR Number of keys can't be greater than number of args"),
        count => Ok(count as usize),
    }
}

/// Carries out `EVAL` and `EVALSHA`.
pub(super) fn run<T: Edit>(
    transaction: &mut T,
    command: &Command,
    request: &Request,
    out: &mut Writer<'_>,
) -> CommandResult {
    let count = keys(request)?;
    let script = request.argument(1);
    let found = match command.verb {
        Verb::EvalSha => known(script).ok_or(NO_SCRIPT),
        _ => known(sha1(script).as_bytes()).ok_or(UNKNOWN),
    };
    let effect = match found {
        Ok(effect) => effect,
        Err(error) => return reply(error),
    };
    let is_of_one = !matches!(effect, Effect::SetAll | Effect::ReleaseAll | Effect::RenewAll);
    let arguments = match effect {
        Effect::Release(_) | Effect::ReleaseAll => 1,
        Effect::Prolong => 3,
        _ => 2,
    };
    if is_of_one && count == 0 || request.len() < 3 + count + arguments {
        return reply("ERR this script takes more keys or arguments");
    }
    let keys: Vec<&[u8]> = request.from(3).take(count).collect();
    let key = keys.first().copied().unwrap_or_default();
    let argument = |at| request.argument(3 + count + at);
    let token = argument(0);
    let holds = |view: &T, key: &[u8]| view.text(key, |text| text == token);
    out.integer(match effect {
        Effect::Release(absent) => match holds(transaction, key)? {
            Some(true) => i64::from(transaction.delete(key)?),
            Some(false) => 0,
            None => absent,
        },
        Effect::Prolong => {
            let left = transaction.life_left(key)?.filter(|left| left.0 > 0);
            match left.filter(|_| argument(2) == b"0").map(|left| left.0 / 1_000_000) {
                _ if holds(transaction, key)? != Some(true) || left.is_none() => 0,
                None => renew(transaction, key, argument(1))?,
                Some(left) => {
                    let all = integer(argument(1))?.saturating_add(left as i64);
                    renew(transaction, key, all.to_string().as_bytes())?
                }
            }
        }
        Effect::Renew | Effect::RenewOrSet => match (holds(transaction, key)?, effect) {
            (Some(true), _) => renew(transaction, key, argument(1))?,
            (None, Effect::RenewOrSet) => set(transaction, &[key], token, argument(1))?,
            _ => 0,
        },
        Effect::SetAll => {
            for key in &keys {
                if exists(transaction, key)? {
                    out.integer(0);
                    return Ok(());
                }
            }
            set(transaction, &keys, token, argument(1))?
        }
        Effect::ReleaseAll | Effect::RenewAll => {
            let mut held = Vec::new();
            for key in &keys {
                held.extend((holds(transaction, key)? == Some(true)).then_some(*key));
            }
            match effect {
                Effect::RenewAll if held.len() < count => 0,
                Effect::RenewAll => set(transaction, &keys, token, argument(1))?,
                _ => {
                    let mut removed = 0;
                    for key in held {
                        removed += i64::from(transaction.delete(key)?);
                    }
                    removed
                }
            }
        }
    });
    Ok(())
}

/// Sets the remaining life of a key that is there, as PEXPIRE does.
fn renew<T: Edit>(transaction: &mut T, key: &[u8], ms: &[u8]) -> Result<i64, Failure> {
    let done = match term(transaction, "pexpire", ms, Unit::Millis)? {
        Some(life) => transaction.set_life(key, Some(life))?,
        None => transaction.delete(key)?,
    };
    Ok(i64::from(done))
}

/// Sets keys to a token for a while, as SET with PX does; returns their number.
fn set<T: Edit>(transaction: &mut T, keys: &[&[u8]], token: &[u8], ms: &[u8]) -> Result<i64, Failure> {
    let Some(life) = term(transaction, "set", ms, Unit::Millis)? else {
        return reply("ERR invalid expire time in 'set' command");
    };
    for key in keys {
        put(transaction, key, &of_text(token), Some(life))?;
    }
    Ok(keys.len() as i64)
}

/// Carries out `SCRIPT`: the known scripts are always loaded.
pub(super) fn script(request: &Request, out: &mut Writer<'_>) -> CommandResult {
    let part = request.argument(1).to_ascii_lowercase();
    let least = match part.as_slice() {
        b"load" | b"exists" => 3,
        b"flush" => 2,
        _ => return reply(unknown_part("SCRIPT", request)),
    };
    if request.len() < least || part == b"load" && request.len() > least {
        return wrong_number(&format!("script|{}", String::from_utf8_lossy(&part)));
    }
    match part.as_slice() {
        b"load" => {
            let sha = sha1(request.argument(2));
            if known(sha.as_bytes()).is_none() {
                return reply(UNKNOWN);
            }
            out.bulk(sha.as_bytes());
        }
        b"exists" => {
            out.array(request.len() - 2);
            let found = request.from(2).map(|sha| known(sha).is_some());
            found.for_each(|is_known| out.integer(i64::from(is_known)));
        }
        _ => {
            let mode = request.argument(2).to_ascii_lowercase();
            if request.len() > 3 || request.len() == 3 && mode != b"sync" && mode != b"async" {
                return reply("ERR SCRIPT FLUSH only support SYNC|ASYNC option");
            }
            out.simple("OK");
        }
    }
    Ok(())
}

/// SHA-1 of a text, in hexadecimal digits.
fn sha1(text: &[u8]) -> String {
    Sha1::digest(text).iter().map(|byte| format!("{byte:02x}")).collect()
}
