//! Replies that describe commands and settings: COMMAND, CONFIG, and errors for what is unknown.

use super::{Limits, ServerSettings};
use crate::commands::{Class, Command, Scope, wrong_number_of_arguments};
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

pub(super) fn unknown_part(command: &str, request: &Request) -> String {
    let part = String::from_utf8_lossy(request.argument(1))
        .chars()
        .take(128)
        .collect::<String>();
    format!("ERR unknown subcommand '{part}'. Try {command} HELP.")
}

/// Reply to COMMAND, from the table.
pub(super) fn described(request: &Request, limits: &Limits) -> Reply {
    if request.len() > NAMES_MAX {
        return Reply::Error(format!("ERR at most {NAMES_MAX} names at a time"));
    }
    let names = || request.from(2);
    match request.argument(1).to_ascii_lowercase().as_slice() {
        b"count" => Reply::Integer(limits.commands().count() as i64),
        b"list" => Reply::Array(limits.commands().map(|command| Reply::bulk(command.name)).collect()),
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
    if command.keys.0 == 0 {
        return Err("ERR The command has no key arguments".into());
    }
    let mut named = request.clone();
    named.skip(2);
    Ok(command.keys_of(&named).map(<[u8]>::to_vec).collect())
}

fn entry(command: &Command) -> Reply {
    let flags: &[&str] = match (command.class, command.place) {
        (Class::Read, _) => &["readonly"],
        (Class::Write, _) => &["write"],
        (Class::Admin, Scope::Anywhere) => &["fast"],
        (Class::Admin, _) => &["noscript"],
    };
    let category = match command.class {
        Class::Read => "@read",
        Class::Write => "@write",
        Class::Admin => "@connection",
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
        Reply::Set(vec![Reply::Simple(category.into())]),
        Reply::Array(Vec::new()),
        Reply::Array(Vec::new()),
        Reply::Array(Vec::new()),
    ])
}

/// Reply to CONFIG; settings can be read only.
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
