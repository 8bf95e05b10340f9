//! Replies that describe commands and settings: COMMAND, CONFIG, and errors for what is unknown.

use std::collections::BTreeMap;

use super::{Limits, ServerSettings};
use crate::commands::{Class, Command, SYNTAX, Scope, events, unknown_part, wrong_number_of_arguments};
use crate::glob::{PATTERN_MAX, matches};
use crate::resp::Reply;
use crate::resp::request::Request;

/// The most names or patterns in one COMMAND or CONFIG.
const NAMES_MAX: usize = 1024;

/// Redis' error for an unknown command: the name and the first arguments, cut off at 128 bytes.
pub(super) fn unknown(request: &Request) -> String {
    const SHOWN_MAX: usize = 128;
    let cut = |bytes: &[u8], max: usize| {
        let text: String = String::from_utf8_lossy(&bytes[..bytes.len().min(max)]).into_owned();
        text
    };
    let mut arguments = String::new();
    for argument in request.from(1) {
        if arguments.len() >= SHOWN_MAX {
            break;
        }
        arguments += &format!("'{}' ", cut(argument, SHOWN_MAX - arguments.len()));
    }
    let name = cut(request.argument(0), SHOWN_MAX);
    format!("ERR unknown command '{name}', with args beginning with: {arguments}")
}

/// Reply to COMMAND, from the table.
pub(super) fn described(request: &Request, limits: &Limits) -> Reply {
    if request.len() > NAMES_MAX {
        return Reply::Error(format!("ERR at most {NAMES_MAX} names at a time"));
    }
    let names = || request.from(2);
    match request.argument(1).to_ascii_lowercase().as_slice() {
        b"count" => Reply::Integer(limits.commands().count() as i64),
        b"list" => listed(request, limits),
        b"" | b"info" if request.len() < 3 => Reply::Array(limits.commands().map(entry).collect()),
        b"info" => Reply::Array(
            names()
                .map(|name| limits.find(name).map_or(Reply::Null, entry))
                .collect(),
        ),
        b"docs" => {
            let wanted: Vec<_> = if request.len() == 2 {
                limits.commands().collect()
            } else {
                names().filter_map(|name| limits.find(name)).collect()
            };
            let docs = |command: &&Command| {
                let summary = (Reply::bulk("summary"), Reply::bulk(command.summary));
                (Reply::bulk(command.name), Reply::Map(vec![summary]))
            };
            Reply::Map(wanted.iter().map(docs).collect())
        }
        b"getkeys" => match keys_of(request, limits) {
            Ok(keys) => Reply::Array(keys.into_iter().map(Reply::bulk).collect()),
            Err(error) => Reply::Error(error),
        },
        _ => Reply::Error(unknown_part("COMMAND", request)),
    }
}

/// Reply to COMMAND LIST.
fn listed(request: &Request, limits: &Limits) -> Reply {
    let (kind, wanted) = (request.argument(3).to_ascii_lowercase(), request.argument(4));
    let is_filter = request.len() == 5 && request.argument(2).eq_ignore_ascii_case(b"filterby");
    let is_known = [&b"module"[..], b"aclcat", b"pattern"].contains(&kind.as_slice());
    if request.len() > 2 && !(is_filter && is_known) {
        return Reply::Error(SYNTAX.into());
    }
    let pattern = wanted.to_ascii_lowercase();
    if pattern.len() > PATTERN_MAX {
        return Reply::Error(format!("ERR a pattern has at most {PATTERN_MAX} bytes"));
    }
    let is_wanted = |command: &&Command| match kind.as_slice() {
        b"module" => false,
        b"aclcat" => category(command).as_bytes()[1..] == *pattern,
        b"pattern" => matches(&pattern, command.name.as_bytes()),
        _ => true,
    };
    let names = limits.commands().filter(is_wanted);
    Reply::Array(names.map(|command| Reply::bulk(command.name)).collect())
}

fn keys_of(request: &Request, limits: &Limits) -> Result<Vec<Vec<u8>>, String> {
    if request.len() < 4 {
        return Err(wrong_number_of_arguments("command|getkeys"));
    }
    let command = limits
        .find(request.argument(2))
        .ok_or("ERR Invalid command specified")?;
    let count = request.len() - 2;
    if !command.takes(count) {
        return Err("ERR Invalid number of arguments specified for command".into());
    }
    if !command.names_keys() {
        return Err("ERR The command has no key arguments".into());
    }
    let mut named = request.clone();
    named.skip(2);
    Ok(command.keys_of(&named).map(<[u8]>::to_vec).collect())
}

fn category(command: &Command) -> &'static str {
    match command.class {
        Class::Read => "@read",
        Class::Write => "@write",
        Class::Admin => "@connection",
    }
}

fn entry(command: &Command) -> Reply {
    let flags: &[&str] = match (command.class, command.place) {
        _ if command.counts_keys() => &["write", "movablekeys"],
        (Class::Read, _) => &["readonly"],
        (Class::Write, _) => &["write"],
        (Class::Admin, Scope::Anywhere) => &["fast"],
        (Class::Admin, _) => &["noscript"],
    };
    let (first, last, step) = command.keys;
    let number = |number: i32| Reply::Integer(i64::from(number));
    Reply::Array(vec![
        Reply::bulk(command.name),
        number(command.arity),
        Reply::Set(flags.iter().map(|flag| Reply::Simple((*flag).into())).collect()),
        number(first),
        number(last),
        number(step),
        Reply::Set(vec![Reply::Simple(category(command).into())]),
        Reply::Array(Vec::new()),
        Reply::Array(Vec::new()),
        Reply::Array(Vec::new()),
    ])
}

/// The setting that names the classes of events that subscribers get.
pub(super) const EVENTS: &str = "notify-keyspace-events";

/// Settings of how Redis keeps records in its memory, with their defaults. They can be set, and change nothing here.
pub(super) const HINTS: [(&str, &str); 15] = [
    ("activerehashing", "yes"),
    ("hash-max-listpack-entries", "512"),
    ("hash-max-listpack-value", "64"),
    ("hash-max-ziplist-entries", "512"),
    ("hash-max-ziplist-value", "64"),
    ("lazyfree-lazy-expire", "no"),
    ("lazyfree-lazy-server-del", "no"),
    ("lazyfree-lazy-user-del", "no"),
    ("lazyfree-lazy-user-flush", "no"),
    ("list-max-listpack-size", "-2"),
    ("set-max-intset-entries", "512"),
    ("zset-max-listpack-entries", "128"),
    ("zset-max-listpack-value", "64"),
    ("zset-max-ziplist-entries", "128"),
    ("zset-max-ziplist-value", "64"),
];

impl ServerSettings {
    /// The classes of events that subscribers get, as `notify-keyspace-events` has them.
    pub fn events(&self) -> &str {
        self.config.get(EVENTS).map_or("", String::as_str)
    }

    /// Carries out CONFIG SET: all of the settings, or none where one is refused.
    pub fn configure(&mut self, request: &Request) -> Reply {
        if request.len() < 4 {
            return Reply::Error(wrong_number_of_arguments("config|set"));
        }
        if request.len() > NAMES_MAX {
            return Reply::Error(format!("ERR at most {NAMES_MAX} arguments of CONFIG SET"));
        }
        let fails = |name: &str, why: &str| {
            Reply::Error(format!(
                "ERR CONFIG SET failed (possibly related to argument '{name}') - {why}"
            ))
        };
        let mut set = BTreeMap::new();
        let mut words = request.from(2);
        while let Some(name) = words.next() {
            let is_it = |known: &&&'static str| name.eq_ignore_ascii_case(known.as_bytes());
            let (Some(known), Some(value)) = (self.config.keys().find(is_it), words.next()) else {
                let shown = String::from_utf8_lossy(name);
                return Reply::Error(format!(
                    "ERR Unknown option or number of arguments for CONFIG SET - '{shown}'"
                ));
            };
            if set
                .insert(*known, String::from_utf8_lossy(value).into_owned())
                .is_some()
            {
                return fails(known, "duplicate parameter");
            }
        }
        for (known, value) in &mut set {
            let fails = |why: &str| fails(known, why);
            match *known {
                EVENTS => match events::ordered(value) {
                    Ok(classes) => *value = classes,
                    Err(why) => return fails(why),
                },
                name if let Some((_, default)) = HINTS.iter().find(|(hint, _)| *hint == name) => {
                    match default.parse::<i64>().is_ok() {
                        true if value.parse::<i64>().is_err() => {
                            return fails("argument couldn't be parsed into an integer");
                        }
                        false if !["yes", "no"].contains(&value.as_str()) => {
                            return fails("argument must be 'yes' or 'no'");
                        }
                        _ => {}
                    }
                }
                name if self.config.get(name) == Some(value) => {}
                _ => return fails("can't set immutable config"),
            }
        }
        self.config.extend(set);
        Reply::ok()
    }
}

/// Reply to CONFIG GET.
pub(super) fn config(request: &Request, settings: &ServerSettings) -> Reply {
    if !request.argument(1).eq_ignore_ascii_case(b"get") {
        return Reply::Error(unknown_part("CONFIG", request));
    }
    if request.len() < 3 {
        return Reply::Error(wrong_number_of_arguments("config|get"));
    }
    if request.len() > NAMES_MAX || request.from(2).any(|pattern| pattern.len() > PATTERN_MAX) {
        return Reply::Error(format!(
            "ERR at most {NAMES_MAX} patterns of at most {PATTERN_MAX} bytes"
        ));
    }
    let is_asked = |name: &str| {
        let mut patterns = request.from(2).map(<[u8]>::to_ascii_lowercase);
        patterns.any(|pattern| matches(&pattern, name.as_bytes()))
    };
    let asked = settings.config.iter().filter(|(name, _)| is_asked(name));
    Reply::Map(
        asked
            .map(|(name, value)| (Reply::bulk(name), Reply::bulk(value)))
            .collect(),
    )
}
