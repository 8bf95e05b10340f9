//! The state of one connection's conversation, and where each of its requests is carried out. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use punctual_units::{Nanos, Time};

use crate::commands::{self, Class, Command, Failure, Scope, TABLE, Verb, wrong_number_of_arguments};
use crate::glob::{PATTERN_MAX, matches};
use crate::login::{Entry, Greeting, Login, LoginClaim, NO_HTTP, is_http, plain};
use crate::resp::request::Request;
use crate::resp::{Bounds, Reply, Resp, Writer};
use crate::subscribers::CHANNEL_MAX;
use crate::users::Users;
use crate::work::Flushing;

/// The most commands between MULTI and EXEC.
pub const QUEUED_MAX: usize = 4096;
/// The most bytes of all arguments between MULTI and EXEC.
pub const QUEUED_BYTES_MAX: usize = 32 << 20;
/// The most keys that a connection watches.
pub const WATCHED_MAX: usize = 1024;
/// The most bytes of watched keys and values.
pub const WATCHED_BYTES_MAX: usize = 4 << 20;
/// The most channels and patterns that a connection subscribes to.
pub const SUBSCRIPTIONS_MAX: usize = 1024;
/// The longest message of PUBLISH, in bytes: each subscriber gets a copy.
pub const MESSAGE_MAX: usize = 1 << 20;
/// The most names or patterns in one COMMAND or CONFIG.
const NAMES_MAX: usize = 1024;
/// Estimated overhead of an entry in a list, in bytes.
const ENTRY_BYTES: usize = 64;
/// The longest deadline, in milliseconds: a day.
pub const DEADLINE_MS_MAX: i64 = 86_400_000;

/// A command for the store, with its arguments and its deadline.
#[derive(Debug)]
pub struct Call {
    /// Entry of the command in `TABLE`.
    pub command: &'static Command,
    /// The arguments, the name first.
    pub request: Request,
    /// Instant after which the command is late; [`Time::MAX`] without a deadline.
    pub deadline: Time,
    /// When the server read the request.
    pub arrived: Time,
    /// Progress of FLUSHDB between its steps; `None` before the first.
    pub flushing: Option<Flushing>,
}

impl Call {
    /// Makes a command that has not begun.
    pub fn new(command: &'static Command, request: Request, deadline: Time, arrived: Time) -> Call {
        Call {
            command,
            request,
            deadline,
            arrived,
            flushing: None,
        }
    }

    /// Bytes of the arguments and of this entry.
    pub fn bytes(&self) -> usize {
        self.request.bytes() + size_of::<Call>() - size_of::<Request>()
    }
}

/// A key and its value when WATCH read it.
#[derive(Debug, PartialEq, Eq)]
pub struct WatchedKey {
    /// The key as the client gave it.
    pub key: Vec<u8>,
    /// The record's bytes; `None` if there was no record.
    pub value: Option<Vec<u8>>,
}

impl WatchedKey {
    /// Bytes of key and value, with the overhead of an entry.
    pub fn bytes(&self) -> usize {
        self.key.len() + self.value.as_ref().map_or(0, Vec::len) + ENTRY_BYTES
    }
}

/// How the event loop goes on with a request.
#[derive(Debug)]
pub enum Next {
    /// Nothing is left to do: the reply is written.
    Answered,
    /// The request's deadline has passed; no reply is written. Holds when the request was read.
    Late(Time),
    /// The reply is written; close the connection once it is sent.
    Close,
    /// The session is to be reset and its subscriptions removed; the reply is written.
    Reset,
    /// Carry out one command on the pool.
    Ask(Call),
    /// Carry out MULTI's commands on the pool if the watched records are unchanged, by the deadline.
    Exec(Vec<Call>, Vec<WatchedKey>, Time),
    /// Read the values of keys for WATCH on the pool, by the deadline.
    Watch(Request, Time),
    /// Subscribe to channels (`true`: patterns).
    Subscribe(Request, bool),
    /// Unsubscribe from channels (`true`: patterns); from all, if the request names none.
    Unsubscribe(Request, bool),
    /// Send a message to a channel's subscribers.
    Publish(Request),
    /// Reply with a line for each connection.
    List,
    /// Reply with the line of this connection.
    Describe,
    /// Reply with the server's figures.
    Info(Request),
    /// Check a password, then answer this request.
    Claim(LoginClaim, Request),
}

/// Settings of the server that sessions report.
#[derive(Clone, Debug, Default)]
pub struct ServerSettings {
    /// Names and values for CONFIG GET.
    pub config: BTreeMap<&'static str, String>,
}

/// State of one connection's conversation.
#[derive(Debug, Default)]
pub struct Session {
    /// Number of the connection, from 1.
    pub id: u64,
    /// Name given by CLIENT SETNAME or HELLO; empty at first.
    pub name: String,
    /// Name and version of the client's library, from CLIENT SETINFO.
    pub library: (String, String),
    /// The protocol version of replies.
    pub version: Resp,
    /// Time that each request has from its arrival, unless DEADLINE gives another; `None`: no deadline.
    pub time_left: Option<Nanos>,
    /// The channels that the connection subscribes to.
    pub channels: BTreeSet<Vec<u8>>,
    /// The patterns of channels that the connection subscribes to.
    pub patterns: BTreeSet<Vec<u8>>,
    /// Name of the last command, for CLIENT LIST.
    pub last: &'static str,
    /// Bytes of channels and patterns, here and in the event loop's table of subscribers.
    heard: usize,
    multi: Option<Multi>,
    watched: Vec<WatchedKey>,
    watched_bytes: usize,
    /// The user of the connection.
    pub login: Login,
}

/// Commands between MULTI and EXEC.
#[derive(Debug, Default)]
struct Multi {
    queued: Vec<Call>,
    bytes: usize,
    /// Whether a command was refused; then EXEC does nothing.
    broken: bool,
}

impl Session {
    /// Makes the session of a new connection.
    pub fn new(id: u64) -> Session {
        Session {
            id,
            last: "NULL",
            ..Session::default()
        }
    }

    /// Makes the session of a new connection to a server with these users.
    pub fn of(id: u64, users: Arc<Users>) -> Session {
        Session {
            login: Login::new(users),
            ..Session::new(id)
        }
    }

    /// Bounds of the connection's next request.
    pub fn bounds(&self) -> &'static Bounds {
        self.login.bounds(&Bounds::ADMITTED)
    }

    /// Takes the result of a password check (`None`: wrong), and answers the request that gave the password.
    pub fn judged(&mut self, request: &Request, user: Option<usize>, out: &mut Vec<u8>) {
        let value = match self.login.judged(user) {
            Ok(()) => self.admitted(request),
            Err(error) => Reply::Error(error),
        };
        self.say(&value, out);
    }

    /// Reply to AUTH or HELLO once the user is admitted.
    fn admitted(&mut self, request: &Request) -> Reply {
        if request.argument(0).eq_ignore_ascii_case(b"auth") {
            return Reply::ok();
        }
        Greeting::read(request, self.version).map_or_else(Reply::Error, |greeting| self.greet(greeting))
    }

    /// Number of channels and patterns that the connection subscribes to.
    pub fn subscriptions(&self) -> usize {
        self.channels.len() + self.patterns.len()
    }

    /// Number of commands that MULTI has queued; -1 outside of MULTI.
    pub fn queued(&self) -> i64 {
        self.multi.as_ref().map_or(-1, |multi| multi.queued.len() as i64)
    }

    /// Bytes kept for MULTI's commands, WATCH's records and the subscriptions.
    pub fn kept(&self) -> usize {
        self.heard + self.watched_bytes + self.multi.as_ref().map_or(0, |multi| multi.bytes)
    }

    /// Adds a subscription to a channel (`patterns`: to a pattern).
    pub fn hear(&mut self, name: &[u8], patterns: bool) {
        let names = if patterns {
            &mut self.patterns
        } else {
            &mut self.channels
        };
        if names.insert(name.to_vec()) {
            self.heard += 2 * (name.len() + ENTRY_BYTES);
        }
    }

    /// Removes a subscription to a channel (`patterns`: to a pattern).
    pub fn unhear(&mut self, name: &[u8], patterns: bool) {
        let names = if patterns {
            &mut self.patterns
        } else {
            &mut self.channels
        };
        if names.remove(name) {
            self.heard -= 2 * (name.len() + ENTRY_BYTES);
        }
    }

    /// Adds the records that WATCH has read.
    pub fn watch(&mut self, read: Vec<WatchedKey>) {
        for watched in read {
            // A key that is watched already keeps its first value.
            if !self.watched.iter().any(|known| known.key == watched.key) {
                self.watched_bytes += watched.bytes();
                self.watched.push(watched);
            }
        }
    }

    fn unwatch(&mut self) -> Vec<WatchedKey> {
        self.watched_bytes = 0;
        std::mem::take(&mut self.watched)
    }

    /// How many more keys and bytes WATCH may add.
    pub fn watch_room(&self) -> (usize, usize) {
        (
            WATCHED_MAX.saturating_sub(self.watched.len()),
            WATCHED_BYTES_MAX.saturating_sub(self.watched_bytes),
        )
    }

    /// Parses a request that arrived at `arrived`, answers it if it needs neither store nor event loop, and returns how
    /// to go on.
    pub fn step(
        &mut self,
        mut request: Request,
        arrived: Time,
        now: Time,
        settings: &ServerSettings,
        out: &mut Vec<u8>,
    ) -> Next {
        if is_http(&request) {
            self.say(&Reply::Error(NO_HTTP.into()), out);
            return Next::Close;
        }
        let mut deadline = self.time_left.map_or(Time::MAX, |left| arrived + left);
        if request.argument(0).eq_ignore_ascii_case(b"deadline") {
            match self.deadline(&request, arrived) {
                Ok(at) => deadline = at,
                Err(error) => return self.refuse(&error, out),
            }
            request.skip(2);
        }
        let command = match self.known(&request) {
            Ok(command) => command,
            Err(error) => return self.refuse(&error, out),
        };
        if let Err(error) = self.login.allowed(command, &request) {
            return self.refuse(&error, out);
        }
        self.last = command.name;
        // A command queued by MULTI has the deadline of EXEC.
        let is_queued = self.multi.is_some() && !matches!(command.verb, Verb::Exec | Verb::Discard);
        if now > deadline && !is_queued && self.multi.is_none() {
            return Next::Late(arrived);
        }
        if is_queued && !matches!(command.verb, Verb::Reset | Verb::Quit) {
            return self.queue(command, request, arrived, out);
        }
        match command.place {
            Scope::Transaction | Scope::Store => Next::Ask(Call::new(command, request, deadline, arrived)),
            Scope::Anywhere => self.answer(command, &request, out),
            Scope::Connection => self.own(command, request, deadline, settings, out),
        }
    }

    /// Whether `request` is a single command for the store, so that it may join the job of the commands before it.
    pub fn asks(&self, request: &Request) -> bool {
        let behind = if request.argument(0).eq_ignore_ascii_case(b"deadline") {
            2
        } else {
            0
        };
        let is_plain = |command: &Command| matches!(command.place, Scope::Transaction | Scope::Store);
        self.multi.is_none() && commands::find(request.argument(behind)).is_some_and(is_plain)
    }

    /// Parses `DEADLINE MS COMMAND ..`; returns the instant.
    fn deadline(&self, request: &Request, arrived: Time) -> Result<Time, String> {
        if request.len() < 3 {
            return Err(wrong_number_of_arguments("deadline"));
        }
        if request.argument(2).eq_ignore_ascii_case(b"deadline") {
            return Err("ERR DEADLINE is said once".into());
        }
        if self.multi.is_some() && !request.argument(2).eq_ignore_ascii_case(b"exec") {
            return Err("ERR within MULTI, give the deadline to EXEC".into());
        }
        Ok(arrived + millis(request.argument(1))?)
    }

    /// Finds the command and checks its number of arguments; RESP2 subscribers may send few commands only.
    fn known(&self, request: &Request) -> Result<&'static Command, String> {
        let Some(command) = commands::find(request.argument(0)) else {
            return Err(unknown(request));
        };
        if !command.takes(request.len()) {
            return Err(wrong_number_of_arguments(command.name));
        }
        let hears = [
            Verb::Subscribe,
            Verb::Unsubscribe,
            Verb::PSubscribe,
            Verb::PUnsubscribe,
            Verb::Ping,
            Verb::Quit,
            Verb::Reset,
        ];
        if self.version == Resp::Two && self.subscriptions() > 0 && !hears.contains(&command.verb) {
            return Err(format!(
                "ERR Can't execute '{}': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are allowed in \
                 this context",
                command.name
            ));
        }
        Ok(command)
    }

    fn refuse(&mut self, error: &str, out: &mut Vec<u8>) -> Next {
        if let Some(multi) = &mut self.multi {
            multi.broken = true;
        }
        self.say(&Reply::Error(error.to_owned()), out);
        Next::Answered
    }

    fn say(&self, value: &Reply, out: &mut Vec<u8>) {
        Writer::new(out, self.version).value(value);
    }

    fn queue(&mut self, command: &'static Command, request: Request, arrived: Time, out: &mut Vec<u8>) -> Next {
        let error = match (command.verb, command.place) {
            (Verb::Multi, _) => Some("ERR MULTI calls can not be nested".to_owned()),
            (Verb::Watch, _) => Some("ERR WATCH inside MULTI is not allowed".to_owned()),
            (_, Scope::Transaction | Scope::Anywhere) => None,
            _ => Some(format!(
                "ERR {} is not taken within MULTI here",
                command.name.to_uppercase()
            )),
        };
        // As in Redis, these two get an error, and EXEC still carries out the other commands.
        let is_harmless = matches!(command.verb, Verb::Multi | Verb::Watch);
        let Some(multi) = &mut self.multi else {
            return Next::Answered;
        };
        multi.bytes += request.bytes() + size_of::<Call>() - size_of::<Request>();
        let error = error.or_else(|| {
            (multi.queued.len() >= QUEUED_MAX || multi.bytes > QUEUED_BYTES_MAX)
                .then(|| format!("ERR at most {QUEUED_MAX} commands and {QUEUED_BYTES_MAX} bytes within MULTI"))
        });
        match error {
            Some(error) => {
                multi.broken |= !is_harmless;
                self.say(&Reply::Error(error), out);
            }
            None => {
                multi.queued.push(Call::new(command, request, Time::MAX, arrived));
                self.say(&Reply::Simple("QUEUED".into()), out);
            }
        }
        Next::Answered
    }

    fn answer(&mut self, command: &Command, request: &Request, out: &mut Vec<u8>) -> Next {
        if command.verb == Verb::Ping && self.version == Resp::Two && self.subscriptions() > 0 {
            let said = request.argument(1);
            self.say(&Reply::Array(vec![Reply::bulk("pong"), Reply::bulk(said)]), out);
            return Next::Answered;
        }
        let mut writer = Writer::new(out, self.version);
        match commands::anywhere(command.verb, request, &mut writer) {
            Ok(()) => {}
            Err(Failure::Reply(error)) => writer.error(&error),
            Err(Failure::Store(error)) => writer.error(&format!("ERR {error}")),
        }
        Next::Answered
    }

    /// Carries out commands about the connection.
    fn own(
        &mut self,
        command: &Command,
        request: Request,
        deadline: Time,
        settings: &ServerSettings,
        out: &mut Vec<u8>,
    ) -> Next {
        let value = match command.verb {
            Verb::Multi => {
                self.multi = Some(Multi::default());
                Reply::ok()
            }
            Verb::Exec => {
                let Some(multi) = self.multi.take() else {
                    return self.refuse("ERR EXEC without MULTI", out);
                };
                let watched = self.unwatch();
                if multi.broken {
                    let error = "EXECABORT Transaction discarded because of previous errors.";
                    return self.refuse(error, out);
                }
                return Next::Exec(multi.queued, watched, deadline);
            }
            Verb::Discard => {
                if self.multi.take().is_none() {
                    return self.refuse("ERR DISCARD without MULTI", out);
                }
                self.unwatch();
                Reply::ok()
            }
            Verb::Watch => return Next::Watch(request, deadline),
            Verb::Unwatch => {
                self.unwatch();
                Reply::ok()
            }
            Verb::Subscribe | Verb::PSubscribe => {
                if self.subscriptions() + request.len() - 1 > SUBSCRIPTIONS_MAX {
                    let error = format!("ERR a connection hears at most {SUBSCRIPTIONS_MAX} channels and patterns");
                    return self.refuse(&error, out);
                }
                let patterns = command.verb == Verb::PSubscribe;
                let (what, max) = if patterns {
                    ("pattern", PATTERN_MAX)
                } else {
                    ("channel", CHANNEL_MAX)
                };
                if request.from(1).any(|name| name.len() > max) {
                    return self.refuse(&format!("ERR a {what} has at most {max} bytes"), out);
                }
                return Next::Subscribe(request, patterns);
            }
            Verb::Unsubscribe | Verb::PUnsubscribe => {
                return Next::Unsubscribe(request, command.verb == Verb::PUnsubscribe);
            }
            Verb::Publish => {
                let (channel, message) = (request.argument(1).len(), request.argument(2).len());
                if channel > CHANNEL_MAX || message > MESSAGE_MAX {
                    let error = format!("ERR a channel has at most {CHANNEL_MAX} bytes, a message {MESSAGE_MAX}");
                    return self.refuse(&error, out);
                }
                return Next::Publish(request);
            }
            Verb::Info => return Next::Info(request),
            Verb::Quit => {
                self.say(&Reply::ok(), out);
                return Next::Close;
            }
            Verb::Reset => {
                self.say(&Reply::Simple("RESET".into()), out);
                return Next::Reset;
            }
            Verb::Hello | Verb::Auth => {
                let entry = match command.verb {
                    Verb::Auth => self.login.auth(&request),
                    _ => Greeting::read(&request, self.version).and_then(|greeting| self.login.hello(&greeting)),
                };
                match entry {
                    Ok(Entry::Admitted) => self.admitted(&request),
                    Ok(Entry::ToCheck(claimed)) => return Next::Claim(claimed, request),
                    Err(error) => Reply::Error(error),
                }
            }
            Verb::Acl if request.len() == 2 && request.argument(1).eq_ignore_ascii_case(b"whoami") => {
                Reply::bulk(self.login.user())
            }
            Verb::Acl => Reply::Error(unknown_part("ACL", &request)),
            Verb::Client => match self.client(&request) {
                Ok(Ok(value)) => value,
                Ok(Err(step)) => return step,
                Err(error) => Reply::Error(error),
            },
            Verb::Cmd => described(&request),
            Verb::Config => config(&request, settings),
            _ => Reply::Error(unknown(&request)),
        };
        self.say(&value, out);
        Next::Answered
    }

    fn greet(&mut self, greeting: Greeting) -> Reply {
        let Greeting { version, name, .. } = greeting;
        self.version = version;
        if let Some(name) = name {
            self.name = name;
        }
        let pair = |key: &str, value| (Reply::bulk(key), value);
        Reply::Map(vec![
            pair("server", Reply::bulk("punctual")),
            pair("version", Reply::bulk(env!("CARGO_PKG_VERSION"))),
            pair("proto", Reply::Integer(if version == Resp::Three { 3 } else { 2 })),
            pair("id", Reply::Integer(self.id as i64)),
            pair("mode", Reply::bulk("standalone")),
            pair("role", Reply::bulk("master")),
            pair("modules", Reply::Array(Vec::new())),
        ])
    }

    fn client(&mut self, request: &Request) -> Result<Result<Reply, Next>, String> {
        let what = request.argument(1).to_ascii_lowercase();
        let arguments = |wanted: usize| {
            let name = String::from_utf8_lossy(&what);
            let wrong = || Err(wrong_number_of_arguments(&format!("client|{name}")));
            if request.len() == wanted { Ok(()) } else { wrong() }
        };
        let done = match what.as_slice() {
            b"id" => {
                arguments(2)?;
                Reply::Integer(self.id as i64)
            }
            b"getname" => {
                arguments(2)?;
                if self.name.is_empty() {
                    Reply::Null
                } else {
                    Reply::bulk(&self.name)
                }
            }
            b"setname" => {
                arguments(3)?;
                let wrong = "Client names cannot contain spaces, newlines or special characters.";
                self.name = plain(request.argument(2), wrong)?;
                Reply::ok()
            }
            b"setinfo" => {
                arguments(4)?;
                let (option, wrong) = (
                    request.argument(2).to_ascii_lowercase(),
                    "cannot contain spaces, newlines or special characters.",
                );
                let field = match option.as_slice() {
                    b"lib-name" => &mut self.library.0,
                    b"lib-ver" => &mut self.library.1,
                    _ => return Err(format!("ERR Unrecognized option '{}'", option.escape_ascii())),
                };
                *field = plain(request.argument(3), &format!("{} {wrong}", option.escape_ascii()))?;
                Reply::ok()
            }
            b"info" => {
                arguments(2)?;
                return Ok(Err(Next::Describe));
            }
            b"list" => {
                arguments(2)?;
                return Ok(Err(Next::List));
            }
            b"deadline" => {
                arguments(3)?;
                self.time_left = match request.argument(2) {
                    b"0" => None,
                    text => Some(millis(text)?),
                };
                Reply::ok()
            }
            _ => return Err(unknown_part("CLIENT", request)),
        };
        Ok(Ok(done))
    }

    /// Resets the session but for its number, its library and its wrong passwords: the client has to log in again.
    pub fn reset(&mut self) {
        *self = Session {
            library: std::mem::take(&mut self.library),
            last: self.last,
            login: self.login.stranger(),
            ..Session::new(self.id)
        };
    }
}

/// The `LATE` reply to a request that is too late or finds no room.
pub fn late(reason: &str, retry_after: Nanos) -> String {
    format!(
        "LATE reason={reason} retry-after-ms={}",
        retry_after.0.div_ceil(1_000_000)
    )
}

fn millis(text: &[u8]) -> Result<Nanos, String> {
    let number = std::str::from_utf8(text).ok().and_then(|text| text.parse::<i64>().ok());
    match number {
        Some(ms @ 1..=DEADLINE_MS_MAX) => Ok(Nanos::from_millis(ms as u64)),
        _ => Err(format!(
            "ERR a deadline is 1 to {DEADLINE_MS_MAX} milliseconds from now"
        )),
    }
}

/// Redis' error for an unknown command: the name and the first arguments, cut off at 128 bytes.
fn unknown(request: &Request) -> String {
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

fn unknown_part(command: &str, request: &Request) -> String {
    let part = String::from_utf8_lossy(request.argument(1))
        .chars()
        .take(128)
        .collect::<String>();
    format!("ERR unknown subcommand '{part}'. Try {command} HELP.")
}

/// Reply to COMMAND, from the table.
pub fn described(request: &Request) -> Reply {
    if request.len() > NAMES_MAX {
        return Reply::Error(format!("ERR at most {NAMES_MAX} names at a time"));
    }
    let names = || request.from(2);
    match request.argument(1).to_ascii_lowercase().as_slice() {
        b"" => Reply::Array(TABLE.iter().map(entry).collect()),
        b"count" => Reply::Integer(TABLE.len() as i64),
        b"list" => Reply::Array(TABLE.iter().map(|command| Reply::bulk(command.name)).collect()),
        b"info" if request.len() == 2 => Reply::Array(TABLE.iter().map(entry).collect()),
        b"info" => Reply::Array(
            names()
                .map(|name| commands::find(name).map_or(Reply::Null, entry))
                .collect(),
        ),
        b"docs" => {
            let wanted: Vec<_> = if request.len() == 2 {
                TABLE.iter().collect()
            } else {
                names().filter_map(commands::find).collect()
            };
            let docs = |command: &&Command| {
                let summary = (Reply::bulk("summary"), Reply::bulk(command.summary));
                (Reply::bulk(command.name), Reply::Map(vec![summary]))
            };
            Reply::Map(wanted.iter().map(docs).collect())
        }
        b"getkeys" => match keys_of(request) {
            Ok(keys) => Reply::Array(keys.into_iter().map(Reply::bulk).collect()),
            Err(error) => Reply::Error(error),
        },
        _ => Reply::Error(unknown_part("COMMAND", request)),
    }
}

fn keys_of(request: &Request) -> Result<Vec<Vec<u8>>, String> {
    if request.len() < 4 {
        return Err(wrong_number_of_arguments("command|getkeys"));
    }
    let command = commands::find(request.argument(2)).ok_or("ERR Invalid command specified")?;
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
pub fn config(request: &Request, settings: &ServerSettings) -> Reply {
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
