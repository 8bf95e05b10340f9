//! Which commands exist, and what does each do to a store?
//!
//!
//! [`TABLE`] has the name, arity, keys and class of each as data: `COMMAND` answers from it, and the session decides by
//! it where a command is carried out. [`read`] and [`change`] carry out the commands for the store.

pub mod events;
mod float;
mod hashes;
mod keys;
mod look;
mod record;
mod scripts;
mod strings;

use punctual_store::StoreError;
use punctual_units::Nanos;

use crate::cursors::Cursors;
use crate::resp::request::Request;
use crate::resp::{Resp, Writer};
pub use keys::KEYS_MAX;
pub use look::{Edit, Look};
pub use record::HASH_BYTES_MAX;

/// Effect of a command on records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// Reads records but changes none.
    Read,
    /// Changes records, and may read them.
    Write,
    /// Concerns the connection or the server, not records.
    Admin,
}

/// Thread and transaction that carry a command out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// In a transaction of the store, on the pool.
    Transaction,
    /// On the pool, with the whole store: not within `MULTI`.
    Store,
    /// On the event loop or in a transaction: needs nothing of the store.
    Anywhere,
    /// On the event loop: not within `MULTI`, except for the commands that end it.
    Connection,
    /// By a node or a balancer of a federation: not within `MULTI`, and unknown to a store alone.
    Federation,
}

/// A command, as an entry of `TABLE`.
#[derive(Clone, Copy, Debug)]
pub struct Command {
    /// Name of the command, in small letters.
    pub name: &'static str,
    /// Number of arguments, the name included; negative: at least that many.
    pub arity: i32,
    /// Positions of the keys: first, last (from the end where negative) and step; 0 without keys.
    pub keys: (i32, i32, i32),
    /// Effect of the command on records.
    pub class: Class,
    /// Thread and transaction that carry the command out.
    pub place: Scope,
    /// Identifier of the command in code.
    pub verb: Verb,
    /// Summary in one line, for COMMAND DOCS.
    pub summary: &'static str,
}

macro_rules! table {
    ($($verb:ident $name:literal $arity:literal ($first:literal $last:literal $step:literal) $class:ident $place:ident
       $summary:literal;)*) => {
        /// Identifier of a command, in the order of the table.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[allow(missing_docs, reason = "the table says what each does")]
        pub enum Verb { $($verb),* }

        /// All commands, sorted by name.
        pub const TABLE: &[Command] = &[$(Command {
            name: $name,
            arity: $arity,
            keys: ($first, $last, $step),
            class: Class::$class,
            place: Scope::$place,
            verb: Verb::$verb,
            summary: $summary,
        }),*];
    };
}

table! {
    Acl "acl" -2 (0 0 0) Admin Connection "Which user this connection is";
    Append "append" 3 (1 1 1) Write Transaction "Appends to a string";
    Auth "auth" -2 (0 0 0) Admin Connection "Says which user this connection is";
    Client "client" -2 (0 0 0) Admin Connection "About connections, and the deadline of this one";
    Cmd "command" -1 (0 0 0) Admin Connection "About commands";
    Config "config" -2 (0 0 0) Admin Connection "Settings, to be read";
    Copy "copy" -3 (1 2 1) Write Transaction "Gives a copy of a record to another key";
    DbSize "dbsize" 1 (0 0 0) Read Transaction "Counts the keys";
    Deadline "deadline" -3 (0 0 0) Admin Connection "Carries out a command within N milliseconds, or not at all";
    Decr "decr" 2 (1 1 1) Write Transaction "Takes one from a number";
    DecrBy "decrby" 3 (1 1 1) Write Transaction "Takes from a number";
    Del "del" -2 (1 -1 1) Write Transaction "Removes keys";
    Discard "discard" 1 (0 0 0) Admin Connection "Forgets what MULTI has queued";
    Echo "echo" 2 (0 0 0) Admin Anywhere "Says it again";
    Eval "eval" -3 (0 0 0) Write Transaction "Carries out a lock script of the clients";
    EvalSha "evalsha" -3 (0 0 0) Write Transaction "Carries out a lock script of the clients, named by its SHA-1";
    Exec "exec" 1 (0 0 0) Admin Connection "Carries out what MULTI has queued, in one transaction";
    Exists "exists" -2 (1 -1 1) Read Transaction "Counts which of the keys are there";
    Expire "expire" -3 (1 1 1) Write Transaction "Lets a key expire after N seconds";
    ExpireAt "expireat" -3 (1 1 1) Write Transaction "Lets a key expire at an instant, in seconds since 1970";
    ExpireTime "expiretime" 2 (1 1 1) Read Transaction "When a key expires, in seconds since 1970";
    FlushAll "flushall" -1 (0 0 0) Write Store "Removes all records but temporal objects";
    FlushDb "flushdb" -1 (0 0 0) Write Store "Removes all records but temporal objects";
    Get "get" 2 (1 1 1) Read Transaction "The value of a string";
    GetBit "getbit" 3 (1 1 1) Read Transaction "A bit of a string";
    GetDel "getdel" 2 (1 1 1) Write Transaction "The value of a string, which is removed";
    GetEx "getex" -2 (1 1 1) Write Transaction "The value of a string, which gets another expiry";
    GetFresh "getfresh" 3 (1 1 1) Read Transaction "The value of a temporal object and its age, unless it is too old";
    GetRange "getrange" 4 (1 1 1) Read Transaction "A part of a string";
    GetSet "getset" 3 (1 1 1) Write Transaction "Sets a string; its value before";
    HDel "hdel" -3 (1 1 1) Write Transaction "Removes fields";
    Hello "hello" -1 (0 0 0) Admin Connection "Chooses the protocol";
    HExists "hexists" 3 (1 1 1) Read Transaction "Whether a field is there";
    HGet "hget" 3 (1 1 1) Read Transaction "The value of a field";
    HGetAll "hgetall" 2 (1 1 1) Read Transaction "All fields and values";
    HIncrBy "hincrby" 4 (1 1 1) Write Transaction "Adds to a field";
    HIncrByFloat "hincrbyfloat" 4 (1 1 1) Write Transaction "Adds a number with a fraction to a field";
    HKeys "hkeys" 2 (1 1 1) Read Transaction "All fields";
    HLen "hlen" 2 (1 1 1) Read Transaction "How many fields there are";
    HMGet "hmget" -3 (1 1 1) Read Transaction "The values of fields";
    HMSet "hmset" -4 (1 1 1) Write Transaction "Sets fields";
    HRandField "hrandfield" -2 (1 1 1) Read Transaction "Any of the fields";
    HScan "hscan" -3 (1 1 1) Read Transaction "All fields and values that match a pattern";
    HSet "hset" -4 (1 1 1) Write Transaction "Sets fields";
    HSetNx "hsetnx" 4 (1 1 1) Write Transaction "Sets a field that is not there";
    HStrLen "hstrlen" 3 (1 1 1) Read Transaction "The length of a field's value";
    HVals "hvals" 2 (1 1 1) Read Transaction "The values of all fields";
    Incr "incr" 2 (1 1 1) Write Transaction "Adds one to a number";
    IncrBy "incrby" 3 (1 1 1) Write Transaction "Adds to a number";
    IncrByFloat "incrbyfloat" 3 (1 1 1) Write Transaction "Adds a number with a fraction";
    Info "info" -1 (0 0 0) Admin Connection "About the server";
    Keys "keys" 2 (0 0 0) Read Transaction "The keys that match a pattern";
    Memory "memory" -2 (2 2 1) Read Transaction "How many bytes a record takes";
    MGet "mget" -2 (1 -1 1) Read Transaction "The values of strings";
    MSet "mset" -3 (1 -1 2) Write Transaction "Sets strings";
    MSetNx "msetnx" -3 (1 -1 2) Write Transaction "Sets strings, if none of them is there";
    Multi "multi" 1 (0 0 0) Admin Connection "Queues commands for one transaction";
    Object "object" -2 (2 2 1) Read Transaction "How a value is stored";
    Outcome "outcome" 2 (0 0 0) Admin Federation "What became of a transaction of a session";
    Persist "persist" 2 (1 1 1) Write Transaction "Takes the term from a key";
    PExpire "pexpire" -3 (1 1 1) Write Transaction "Lets a key expire after N milliseconds";
    PExpireAt "pexpireat" -3 (1 1 1) Write Transaction "Lets a key expire at an instant, in milliseconds since 1970";
    PExpireTime "pexpiretime" 2 (1 1 1) Read Transaction "When a key expires, in milliseconds since 1970";
    Ping "ping" -1 (0 0 0) Admin Anywhere "Answers";
    PSetEx "psetex" 4 (1 1 1) Write Transaction "Sets a string that expires after N milliseconds";
    PSubscribe "psubscribe" -2 (0 0 0) Admin Connection "Hears channels that match patterns";
    PTtl "pttl" 2 (1 1 1) Read Transaction "How many milliseconds a key has";
    Publish "publish" 3 (0 0 0) Admin Connection "Says something on a channel";
    PubSub "pubsub" -2 (0 0 0) Admin Connection "Which channels and patterns are heard";
    PUnsubscribe "punsubscribe" -1 (0 0 0) Admin Connection "Hears patterns no more";
    Quit "quit" -1 (0 0 0) Admin Connection "Ends the connection";
    RandomKey "randomkey" 1 (0 0 0) Read Transaction "Any of the keys";
    ReadOnly "readonly" 1 (0 0 0) Admin Anywhere "Does nothing: there is one node";
    ReadWrite "readwrite" 1 (0 0 0) Admin Anywhere "Does nothing: there is one node";
    Rename "rename" 3 (1 2 1) Write Transaction "Gives a record another key";
    RenameNx "renamenx" 3 (1 2 1) Write Transaction "Gives a record another key, if that is free";
    Reset "reset" 1 (0 0 0) Admin Connection "Makes the connection as new";
    Role "role" 1 (0 0 0) Admin Connection "Whether this is a master";
    Scan "scan" -2 (0 0 0) Read Transaction "Some keys, and where to go on";
    Script "script" -2 (0 0 0) Admin Anywhere "Which scripts are known";
    Select "select" 2 (0 0 0) Admin Anywhere "There is database 0";
    Sentinel "sentinel" -2 (0 0 0) Admin Federation "Where the master is";
    Session "session" -1 (0 0 0) Admin Federation "The session of this connection, or one to go on with";
    Set "set" -3 (1 1 1) Write Transaction "Sets a string";
    SetBit "setbit" 4 (1 1 1) Write Transaction "Sets a bit of a string";
    SetEx "setex" 4 (1 1 1) Write Transaction "Sets a string that expires after N seconds";
    SetNx "setnx" 3 (1 1 1) Write Transaction "Sets a string that is not there";
    SetRange "setrange" 4 (1 1 1) Write Transaction "Writes a part of a string";
    StrLen "strlen" 2 (1 1 1) Read Transaction "The length of a string";
    Subscribe "subscribe" -2 (0 0 0) Admin Connection "Hears channels";
    SubStr "substr" 4 (1 1 1) Read Transaction "A part of a string";
    TimeOfDay "time" 1 (0 0 0) Admin Anywhere "Seconds since 1970, and microseconds";
    Touch "touch" -2 (1 -1 1) Read Transaction "Counts which of the keys are there";
    TSet "tset" -3 (1 1 1) Write Store "Gives a temporal object a value, with its age";
    Ttl "ttl" 2 (1 1 1) Read Transaction "How many seconds a key has";
    Type "type" 2 (1 1 1) Read Transaction "string, hash or none";
    Unlink "unlink" -2 (1 -1 1) Write Transaction "Removes keys";
    Unsubscribe "unsubscribe" -1 (0 0 0) Admin Connection "Hears channels no more";
    Unwatch "unwatch" 1 (0 0 0) Admin Connection "Forgets the keys of WATCH";
    Wait "wait" 3 (0 0 0) Admin Anywhere "How many other nodes have what was written: none";
    Watch "watch" -2 (1 -1 1) Admin Connection "Has EXEC do nothing if one of the keys has another value by then";
}

/// The longest name of a command, in bytes.
const NAME_MAX: usize = 16;

/// Names of the table as numbers, in the same order: a comparison takes one step, and each request is looked up here.
const NUMBERS: [u128; TABLE.len()] = {
    let (mut numbers, mut at) = ([0; TABLE.len()], 0);
    while at < TABLE.len() {
        let (name, mut padded, mut letter) = (TABLE[at].name.as_bytes(), [0; NAME_MAX], 0);
        while letter < name.len() {
            padded[letter] = name[letter];
            letter += 1;
        }
        numbers[at] = u128::from_be_bytes(padded);
        at += 1;
    }
    numbers
};

/// Finds the command of that name, in capitals or small letters.
#[inline]
pub fn find(name: &[u8]) -> Option<&'static Command> {
    let mut padded = [0; NAME_MAX];
    let small = padded.get_mut(..name.len())?;
    small.copy_from_slice(name);
    small.make_ascii_lowercase();
    // A name with a zero at its end would equal the padded name without it.
    let is_whole = name.last().is_some_and(|last| *last != 0);
    let at = NUMBERS.binary_search(&u128::from_be_bytes(padded)).ok()?;
    is_whole.then(|| &TABLE[at])
}

impl Command {
    /// Whether the command names keys.
    #[inline]
    pub fn names_keys(&self) -> bool {
        self.keys.0 > 0 || self.counts_keys()
    }

    /// Whether a number in front of the keys says how many there are.
    #[inline]
    pub fn counts_keys(&self) -> bool {
        matches!(self.verb, Verb::Eval | Verb::EvalSha)
    }

    /// Returns the keys that a request of this command names.
    #[inline]
    pub fn keys_of<'r>(&self, request: &'r Request) -> impl Iterator<Item = &'r [u8]> {
        let (first, last, step) = self.keys;
        let count = request.len() as i32;
        let last = if last < 0 { count + last } else { last.min(count - 1) };
        let places = match first {
            _ if self.counts_keys() => 3..3 + scripts::keys(request).unwrap_or(0) as i32,
            0 => 0..0,
            _ => first..last + 1,
        };
        places
            .step_by(step.max(1) as usize)
            .map(|at| request.argument(at as usize))
    }

    /// Whether the command takes `arguments` arguments, its name included.
    #[inline]
    pub fn takes(&self, arguments: usize) -> bool {
        let least = self.arity.unsigned_abs() as usize;
        if self.arity < 0 {
            arguments >= least
        } else {
            arguments == least
        }
    }
}

/// Reason for which a command did nothing.
#[derive(Debug)]
pub enum Failure {
    /// An error reply to the client; the transaction goes on.
    Reply(String),
    /// An error of the store; all changes of the transaction are undone.
    Store(StoreError),
}

/// Result of a command: `Ok` after a whole reply, otherwise the reason for which it did nothing.
pub type CommandResult = Result<(), Failure>;

impl<E: Into<StoreError>> From<E> for Failure {
    fn from(error: E) -> Failure {
        Failure::Store(error.into())
    }
}

fn reply<T>(text: impl Into<String>) -> Result<T, Failure> {
    Err(Failure::Reply(text.into()))
}

/// Error replies in the words of Redis, which clients compare.
const WRONG_TYPE: &str = "WRONGTYPE Operation against a key holding the wrong kind of value";
const NOT_AN_INTEGER: &str = "ERR value is not an integer or out of range";
/// Redis' error for arguments that a command does not have.
pub const SYNTAX: &str = "ERR syntax error";

fn integer(text: &[u8]) -> Result<i64, Failure> {
    let plain = || {
        let text = std::str::from_utf8(text).ok()?;
        let number: i64 = text.parse().ok()?;
        // As in Redis: no plus sign, no zero in front.
        (number.to_string() == text).then_some(number)
    };
    plain().map_or_else(|| reply(NOT_AN_INTEGER), Ok)
}

/// Parses an age in milliseconds.
///
/// # Errors
/// The error reply.
pub fn age(text: &[u8]) -> Result<Nanos, String> {
    let number = integer(text).ok().and_then(|number| u64::try_from(number).ok());
    let age = number.map(Nanos::from_millis);
    age.ok_or_else(|| "ERR an age is a number of milliseconds, not negative".into())
}

/// Returns the age that TSET gives its value.
///
/// # Errors
/// The error reply.
pub fn sample_age(request: &Request) -> Result<Nanos, String> {
    match request.len() {
        3 => Ok(Nanos::ZERO),
        5 if request.argument(3).eq_ignore_ascii_case(b"age") => age(request.argument(4)),
        _ => Err(SYNTAX.into()),
    }
}

/// Carries out a command that changes nothing.
///
/// # Errors
/// [`Failure`]; then `out` holds no whole reply.
pub fn read<L: Look>(
    look: &L,
    command: &Command,
    request: &Request,
    cursors: &Cursors,
    out: &mut Writer<'_>,
) -> CommandResult {
    match command.verb {
        Verb::Get => strings::get(look, request, out),
        Verb::MGet => strings::mget(look, request, out),
        Verb::StrLen => strings::strlen(look, request, out),
        Verb::GetFresh => strings::get_fresh(look, request, out),
        Verb::GetBit => strings::get_bit(look, request, out),
        Verb::GetRange | Verb::SubStr => strings::get_range(look, request, out),
        Verb::Exists | Verb::Touch => keys::exists(look, request, out),
        Verb::Type => keys::kind(look, request, out),
        Verb::Ttl | Verb::PTtl | Verb::ExpireTime | Verb::PExpireTime => keys::ttl(look, command.verb, request, out),
        Verb::Object => keys::object(look, request, out),
        Verb::Memory => keys::memory(look, request, out),
        Verb::RandomKey => keys::random(look, out),
        Verb::HScan => hashes::scan(look, request, out),
        Verb::HRandField => hashes::random(look, request, out),
        Verb::DbSize => keys::count(look, out),
        Verb::Keys => keys::matching(look, request, out),
        Verb::Scan => keys::scan(look, request, cursors, out),
        Verb::HGet
        | Verb::HMGet
        | Verb::HGetAll
        | Verb::HKeys
        | Verb::HVals
        | Verb::HExists
        | Verb::HLen
        | Verb::HStrLen => hashes::read(look, command.verb, request, out),
        _ => anywhere(command.verb, request, out),
    }
}

/// Carries out a command in a write transaction, even if the command only reads.
///
/// # Errors
/// [`Failure`]; after [`Failure::Reply`] the command has changed nothing. In either case `out` holds no whole reply.
pub fn change<T: Edit>(
    transaction: &mut T,
    command: &Command,
    request: &Request,
    cursors: &Cursors,
    out: &mut Writer<'_>,
) -> CommandResult {
    transaction.label(events::label(command, request));
    match command.verb {
        Verb::Set | Verb::SetNx | Verb::GetSet | Verb::SetEx | Verb::PSetEx => {
            strings::set(transaction, command, request, out)
        }
        Verb::GetDel => strings::get_del(transaction, request, out),
        Verb::GetEx => strings::get_ex(transaction, request, out),
        Verb::Append => strings::append(transaction, request, out),
        Verb::SetBit => strings::set_bit(transaction, request, out),
        Verb::SetRange => strings::set_range(transaction, request, out),
        Verb::IncrByFloat => strings::add_float(transaction, request, out),
        Verb::MSet | Verb::MSetNx => strings::mset(transaction, command, request, out),
        Verb::Incr | Verb::IncrBy | Verb::Decr | Verb::DecrBy => strings::add(transaction, command.verb, request, out),
        Verb::Del | Verb::Unlink => keys::delete(transaction, request, out),
        Verb::Expire | Verb::PExpire | Verb::ExpireAt | Verb::PExpireAt => {
            keys::expire(transaction, command, request, out)
        }
        Verb::Copy => keys::copy(transaction, request, out),
        Verb::Rename | Verb::RenameNx => keys::rename(transaction, command.verb, request, out),
        Verb::Persist => keys::persist(transaction, request, out),
        Verb::Eval | Verb::EvalSha => scripts::run(transaction, command, request, out),
        Verb::HSet | Verb::HMSet | Verb::HSetNx => hashes::set(transaction, command, request, out),
        Verb::HIncrByFloat => hashes::add_float(transaction, request, out),
        Verb::HIncrBy => hashes::add(transaction, request, out),
        Verb::HDel => hashes::delete(transaction, request, out),
        _ => read(transaction, command, request, cursors, out),
    }
}

/// Writes a command's reply, or its error. An error of the store is returned, and nothing is written.
pub fn bounded(
    reply: &mut Vec<u8>,
    version: Resp,
    max: usize,
    command: impl FnOnce(&mut Writer<'_>) -> CommandResult,
) -> Option<StoreError> {
    let length = reply.len();
    let mut out = Writer::bounded(reply, version, max);
    let answer = command(&mut out);
    let error = match (answer, out.is_over()) {
        (Ok(()), false) => return None,
        (Ok(()), true) => format!("ERR the reply would take more than {max} bytes: ask for less"),
        (Err(Failure::Reply(error)), _) => error,
        (Err(Failure::Store(error)), _) => {
            reply.truncate(length);
            return Some(error);
        }
    };
    reply.truncate(length);
    Writer::new(reply, version).error(&error);
    None
}

/// Checks the arguments of WAIT.
///
/// # Errors
/// [`Failure::Reply`].
pub fn wait(request: &Request) -> CommandResult {
    let [_, timeout] = [integer(request.argument(1))?, integer(request.argument(2))?];
    match timeout {
        0.. => Ok(()),
        _ => reply("ERR timeout is negative"),
    }
}

/// Carries out a command that needs nothing of the store.
///
/// # Errors
/// [`Failure::Reply`], for wrong arguments.
pub fn anywhere(verb: Verb, request: &Request, out: &mut Writer<'_>) -> CommandResult {
    match verb {
        Verb::Ping if request.len() > 2 => return wrong_number("ping"),
        Verb::Ping if request.len() == 2 => out.bulk(request.argument(1)),
        Verb::Ping => out.simple("PONG"),
        Verb::Echo => out.bulk(request.argument(1)),
        Verb::Select => match integer(request.argument(1)) {
            Ok(0) => out.simple("OK"),
            Ok(_) => return reply("ERR DB index is out of range"),
            Err(refused) => return Err(refused),
        },
        Verb::Wait => {
            wait(request)?;
            out.integer(0);
        }
        Verb::Script => scripts::script(request, out)?,
        Verb::TimeOfDay => {
            let now = look::wall_clock();
            out.array(2);
            out.bulk(now.as_secs().to_string().as_bytes());
            out.bulk(now.subsec_micros().to_string().as_bytes());
        }
        Verb::ReadOnly | Verb::ReadWrite => out.simple("OK"),
        _ => return reply("ERR this command is not carried out here"),
    }
    Ok(())
}

fn wrong_number<T>(name: &str) -> Result<T, Failure> {
    reply(wrong_number_of_arguments(name))
}

/// Redis' error for a wrong number of arguments.
pub fn wrong_number_of_arguments(name: &str) -> String {
    format!("ERR wrong number of arguments for '{name}' command")
}

/// Redis' error for an unknown subcommand.
pub fn unknown_part(command: &str, request: &Request) -> String {
    let part = String::from_utf8_lossy(request.argument(1))
        .chars()
        .take(128)
        .collect::<String>();
    format!("ERR unknown subcommand '{part}'. Try {command} HELP.")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_command_is_found_in_letters_of_any_size() {
        for command in TABLE {
            for name in [command.name.to_owned(), command.name.to_uppercase()] {
                assert_eq!(
                    find(name.as_bytes()).map(|found| found.verb),
                    Some(command.verb),
                    "{name}"
                );
            }
            assert!(command.name.len() <= NAME_MAX);
        }
        assert!(TABLE.is_sorted_by_key(|command| command.name));
        assert!(find(b"").is_none());
        assert!(find(b"get\0").is_none() && find(b"\0get").is_none());
        assert!(find(&[b'g'; 100]).is_none());
    }

    #[test]
    fn only_plain_decimals_are_numbers() {
        for (text, expected) in [
            ("0", Some(0)),
            ("-7", Some(-7)),
            ("+7", None),
            ("07", None),
            ("", None),
            ("-0", None),
        ] {
            assert_eq!(integer(text.as_bytes()).ok(), expected, "{text}");
        }
    }
}
