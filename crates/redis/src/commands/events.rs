//! Names of the changes of keys, as Redis has them: `__keyevent@0__:EVENT`.
//!
//! The store notes each change of a record; the label of its transaction says which command did it.

use punctual_store::watch::Change;

use super::{Command, TABLE, Verb};
use crate::resp::request::Request;

/// Classes of events that `A` stands for in `notify-keyspace-events`.
const ALL: &str = "g$lshzxetd";
/// The class of events about keys of any type, and its members; `x` is the class of ended lives.
const GENERIC: [&str; 6] = ["del", "expire", "persist", "rename_from", "rename_to", "copy_to"];

/// Names of all events. Logs and packets of a federation have their indices: new names go last.
#[rustfmt::skip]
const NAMES: [&str; 18] = [
    "set", "del", "expired", "expire", "persist", "append", "setrange", "setbit", "copy_to", "incrby", "incrbyfloat",
    "hset", "hincrby", "hincrbyfloat", "hdel", "rename_from", "rename_to", "tset",
];
/// Number of the event `set`.
pub const SET: u8 = 0;
/// Number of the event `del`.
pub const DEL: u8 = 1;

/// A change of a key, to be reported to subscribers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeyNotice {
    /// An event by Redis' name, such as `set` or `expired`, and the key.
    Event(&'static str, Vec<u8>),
    /// This many changes were missed, because the event loop was behind.
    Missed(u64),
}

/// The label of a command's changes.
pub(super) fn label(command: &Command, request: &Request) -> u8 {
    let keeps = |word: &[u8]| word.eq_ignore_ascii_case(b"keepttl");
    let verb = match command.verb {
        // SET with KEEPTTL writes the former expiry again, which is no event.
        Verb::Set if request.len() > 3 && request.from(3).any(keeps) => Verb::GetSet,
        verb => verb,
    };
    verb as u8 + 1
}

/// Number of an event's name.
pub fn number(name: &str) -> u8 {
    let found = NAMES.iter().position(|known| *known == name);
    found.map_or(SET, |at| at as u8)
}

/// The event's name of that number; `None` for one of a newer version.
pub fn name(number: u8) -> Option<&'static str> {
    NAMES.get(usize::from(number)).copied()
}

/// Whether an event of that name leaves no record under its key.
pub fn removes(name: &str) -> bool {
    ["del", "expired", "rename_from"].contains(&name)
}

/// The key of a change.
pub fn key<'c>(change: &Change<'c>) -> Option<&'c [u8]> {
    match *change {
        Change::Missed { .. } => None,
        Change::Put { key } | Change::Deleted { key } | Change::Expired { key } => Some(key),
        Change::Expiry { key, .. } | Change::Updated { key, .. } => Some(key),
    }
}

/// Notices of a change with this label, for subscribers.
pub fn of(change: &Change<'_>, label: u8) -> Vec<KeyNotice> {
    if let Change::Missed { changes } = change {
        return vec![KeyNotice::Missed(*changes)];
    }
    let key = key(change).unwrap_or_default();
    let notice = |name: &&'static str| KeyNotice::Event(name, key.to_vec());
    names(change, label).iter().map(notice).collect()
}

/// Events of a change; of a program's own change, without label, those of the plainest command.
pub fn names(change: &Change<'_>, label: u8) -> &'static [&'static str] {
    let command = usize::from(label).checked_sub(1).and_then(|at| TABLE.get(at));
    let verb = command.map_or(Verb::Set, |command| command.verb);
    match change {
        Change::Put { .. } => match verb {
            Verb::Append => &["append"],
            Verb::SetRange => &["setrange"],
            Verb::SetBit => &["setbit"],
            Verb::Copy => &["copy_to"],
            Verb::Incr | Verb::IncrBy | Verb::Decr | Verb::DecrBy => &["incrby"],
            Verb::IncrByFloat => &["incrbyfloat"],
            Verb::HSet | Verb::HMSet | Verb::HSetNx => &["hset"],
            Verb::HIncrBy => &["hincrby"],
            Verb::HIncrByFloat => &["hincrbyfloat"],
            Verb::HDel => &["hdel"],
            Verb::Rename | Verb::RenameNx => &["rename_to"],
            _ => &["set"],
        },
        Change::Deleted { .. } => match verb {
            Verb::HDel => &["hdel", "del"],
            Verb::Rename | Verb::RenameNx => &["rename_from"],
            _ => &["del"],
        },
        Change::Expired { .. } => &["expired"],
        Change::Expiry { expires: false, .. } => &["persist"],
        // Other commands write the expiry that the record had.
        Change::Expiry { .. } => match verb {
            Verb::Set | Verb::SetEx | Verb::PSetEx | Verb::GetEx | Verb::Eval | Verb::EvalSha => &["expire"],
            Verb::Expire | Verb::PExpire | Verb::ExpireAt | Verb::PExpireAt => &["expire"],
            _ => &[],
        },
        Change::Updated { .. } => &["tset"],
        Change::Missed { .. } => &[],
    }
}

/// Whether `notify-keyspace-events` has the class of an event.
pub fn is_wanted(event: &str, classes: &str) -> bool {
    let class = match event {
        "expired" => 'x',
        _ if GENERIC.contains(&event) => 'g',
        _ if event.starts_with('h') => 'h',
        _ => '$',
    };
    classes.contains(class) || classes.contains('A')
}

/// Brings a value of `notify-keyspace-events` into Redis' order.
///
/// # Errors
/// An unknown class, or one of which there are no events here: new keys, and reads of keys that are not there.
pub fn ordered(classes: &str) -> Result<String, &'static str> {
    if classes.contains(['n', 'm']) {
        return Err("there are no events of the classes n and m here");
    }
    if !classes
        .chars()
        .all(|class| "AKE".contains(class) || ALL.contains(class))
    {
        return Err("Invalid event class character. Use 'Ag$lshzxeKEtmdn'.");
    }
    let is_all = classes.contains('A') || ALL.chars().all(|class| classes.contains(class));
    let [all, named] = if is_all { ["A", ""] } else { ["", ALL] };
    let named = named
        .chars()
        .chain("KE".chars())
        .filter(|class| classes.contains(*class));
    Ok(all.chars().chain(named).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_are_ordered_as_in_redis() {
        for (given, ordered_as) in [
            ("gKE", "gKE"),
            ("KA", "AK"),
            ("KEA", "AKE"),
            ("$lshzxeKE", "$lshzxeKE"),
            ("", ""),
        ] {
            assert_eq!(ordered(given).as_deref(), Ok(ordered_as), "{given}");
        }
        assert!(ordered("KEq").is_err() && ordered("KEn").is_err());
        assert_eq!([SET, DEL, 200].map(name), [Some("set"), Some("del"), None]);
        assert!(is_wanted("expired", "Ex") && !is_wanted("set", "KExg") && is_wanted("hset", "AK"));
    }
}
