//! The state of one connection's conversation, and where each of its requests is carried out. Pure.
//!
//! A session parses each request, refuses wrong ones, answers what concerns the connection itself, and hands the rest
//! to its backend: the pool of a store, or a node or balancer of a federation. What they take differs only by their
//! [`Limits`] and by [`Scope::Federation`].

mod clients;
mod described;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use punctual_units::{Nanos, Time};

use self::clients::Mute;
pub use self::clients::{ClientFilter, ClientState};
use self::described::{EVENTS, HINTS, config, described, unknown};
use crate::commands::{self, Command, Failure, Scope, TABLE, Verb, unknown_part, wrong_number_of_arguments};
use crate::glob::PATTERN_MAX;
use crate::login::{Entry, Greeting, Login, LoginClaim, NO_HTTP, is_http};
use crate::logins::CLAIMS_MAX;
use crate::resp::request::Request;
use crate::resp::{Bounds, Reply, Resp, Writer};
use crate::subscribers::CHANNEL_MAX;
use crate::users::Users;
use crate::work::{Flushing, Work};

/// The longest message of PUBLISH, in bytes: each subscriber gets a copy.
pub const MESSAGE_MAX: usize = 1 << 20;
/// Estimated overhead of an entry in a list, in bytes.
const ENTRY_BYTES: usize = 64;
/// The error reply to a WATCH beyond [`Limits::watched`] or [`Limits::watched_bytes`].
pub const TOO_MUCH_WATCHED: &str = "ERR too many keys are watched, or their values are too long: UNWATCH some";

/// Limits of a backend for each connection.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// The most commands between MULTI and EXEC.
    pub queued: usize,
    /// The most bytes of all arguments between MULTI and EXEC.
    pub queued_bytes: usize,
    /// The most keys that a connection watches.
    pub watched: usize,
    /// The most bytes of watched keys and values.
    pub watched_bytes: usize,
    /// The most channels and patterns that a connection subscribes to.
    pub subscriptions: usize,
    /// The longest deadline, in milliseconds.
    pub deadline_ms: u64,
    /// Time that a request of the backend has where its client sets no deadline; `None`: no deadline.
    pub time_left: Option<Nanos>,
    /// Bounds of one request.
    pub request: &'static Bounds,
    /// Whether MULTI takes commands that look at all keys.
    pub scans_in_multi: bool,
    /// Whether the backend is a federation: it takes [`Scope::Federation`], and no PUBLISH.
    pub is_federation: bool,
}

impl Limits {
    /// The limits of a store that is served alone.
    pub const ALONE: Limits = Limits {
        queued: 4096,
        queued_bytes: 32 << 20,
        watched: 1024,
        watched_bytes: 4 << 20,
        subscriptions: 1024,
        deadline_ms: 86_400_000,
        time_left: None,
        request: &Bounds::ADMITTED,
        scans_in_multi: true,
        is_federation: false,
    };

    /// The commands that the backend takes.
    fn commands(&self) -> impl Iterator<Item = &'static Command> {
        TABLE.iter().filter(|command| self.takes(command))
    }

    fn find(&self, name: &[u8]) -> Option<&'static Command> {
        commands::find(name).filter(|command| self.takes(command))
    }

    fn takes(&self, command: &Command) -> bool {
        self.is_federation || command.place != Scope::Federation
    }

    /// Parses a deadline; returns the time from the arrival of its request on.
    fn millis(&self, text: &[u8]) -> Result<Nanos, String> {
        let max = self.deadline_ms;
        let number = std::str::from_utf8(text).ok().and_then(|text| text.parse::<u64>().ok());
        let number = number.filter(|ms| (1..=max).contains(ms)).map(Nanos::from_millis);
        number.ok_or_else(|| format!("ERR a deadline is 1 to {max} milliseconds from now"))
    }
}

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
    /// The deadline of a request that needs no backend has passed; no reply is written.
    Late,
    /// The reply is written; close the connection once it is sent.
    Close,
    /// The session is to be reset and its subscriptions removed; the reply is written.
    Reset,
    /// Pass one command to the backend, which writes the reply; a late one is the backend's to refuse.
    Call(Call),
    /// As `Call`, for EXEC or WATCH.
    Ask(Work),
    /// Reply with the number of other nodes that have all that the client has written.
    Wait,
    /// Send a message to a channel's subscribers.
    Publish(Request),
    /// Subscribe to channels (`true`: patterns).
    Subscribe(Request, bool),
    /// Unsubscribe from channels (`true`: patterns); from all, if the request names none.
    Unsubscribe(Request, bool),
    /// Reply with a line for each of these connections.
    List(ClientFilter),
    /// End these connections, and reply with their number.
    Kill(ClientFilter),
    /// Reply to PUBSUB from the table of subscribers.
    Hearing(Request),
    /// Reply with the role of this process.
    Role,
    /// Change settings, as CONFIG SET asks, and reply.
    Configure(Request),
    /// Reply with these sections of the server's figures, in small letters; with all, if there are none.
    Info(Vec<String>),
    /// Check a password, then call [`Session::judged`], or [`Session::not_judged`] if there is no room.
    Claim(LoginClaim),
}

/// Settings of a backend that hold for its sessions.
#[derive(Clone, Debug)]
pub struct ServerSettings {
    /// Names and values for CONFIG GET.
    pub config: BTreeMap<&'static str, String>,
    /// Limits for each connection.
    pub limits: Limits,
}

impl ServerSettings {
    /// Settings of a backend with these limits, some names and values for CONFIG GET being its own.
    pub fn of(limits: Limits, own: impl IntoIterator<Item = (&'static str, String)>) -> ServerSettings {
        let common = [
            ("databases", "1".into()),
            ("maxmemory", "0".into()),
            ("maxmemory-policy", "noeviction".into()),
            (EVENTS, "AKE".into()),
            ("proto-max-bulk-len", limits.request.bulk.to_string()),
            ("save", String::new()),
            ("timeout", "0".into()),
        ];
        ServerSettings {
            config: HINTS
                .map(|(name, value)| (name, value.into()))
                .into_iter()
                .chain(common)
                .chain(own)
                .collect(),
            limits,
        }
    }
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
    /// Name of the last command, for CLIENT LIST.
    pub last: &'static str,
    mute: Mute,
    /// Whether the client gets no reply to the present request, as CLIENT REPLY asks.
    pub is_muted: bool,
    /// The channels, then the patterns, that the connection subscribes to.
    heard: [BTreeSet<Vec<u8>>; 2],
    /// Bytes of channels and patterns, here and in the event loop's table of subscribers.
    heard_bytes: usize,
    multi: Option<Multi>,
    watched: Vec<WatchedKey>,
    watched_bytes: usize,
    /// The request whose password is being checked.
    claim: Option<Request>,
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
    pub fn bounds(&self, settings: &ServerSettings) -> &'static Bounds {
        self.login.bounds(settings.limits.request)
    }

    /// Whether a password of the connection is being checked; its next request begins after that.
    pub fn is_claiming(&self) -> bool {
        self.claim.is_some()
    }

    /// Takes the result of a password check (`None`: wrong), and answers the request that gave the password.
    pub fn judged(&mut self, user: Option<usize>, out: &mut Vec<u8>) {
        let Some(request) = self.claim.take() else { return };
        let value = match self.login.judged(user) {
            Ok(()) => self.admitted(&request),
            Err(error) => Reply::Error(error),
        };
        self.say(&value, out);
    }

    /// Answers a request whose password is not checked, because too many wait for that.
    pub fn not_judged(&mut self, out: &mut Vec<u8>) {
        self.claim = None;
        let error = format!("ERR {CLAIMS_MAX} passwords wait to be checked: try again");
        self.say(&Reply::Error(error), out);
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
        self.heard.iter().map(BTreeSet::len).sum()
    }

    /// Number of commands that MULTI has queued; -1 outside of MULTI.
    pub fn queued(&self) -> i64 {
        self.multi.as_ref().map_or(-1, |multi| multi.queued.len() as i64)
    }

    /// Bytes kept for MULTI's commands, WATCH's records, the subscriptions and a password.
    pub fn kept(&self) -> usize {
        let claim = self.claim.as_ref().map_or(0, Request::bytes);
        self.heard_bytes + self.watched_bytes + self.multi.as_ref().map_or(0, |multi| multi.bytes) + claim
    }

    /// The names of the channels (`patterns`: of the patterns) that the connection subscribes to.
    pub fn heard(&self, patterns: bool) -> &BTreeSet<Vec<u8>> {
        &self.heard[usize::from(patterns)]
    }

    /// Adds (`begins`) or removes a subscription to a channel (`patterns`: to a pattern).
    pub fn hears(&mut self, name: &[u8], patterns: bool, begins: bool) {
        let (names, bytes) = (&mut self.heard[usize::from(patterns)], 2 * (name.len() + ENTRY_BYTES));
        if begins && names.insert(name.to_vec()) {
            self.heard_bytes += bytes;
        } else if !begins && names.remove(name) {
            self.heard_bytes -= bytes;
        }
    }

    /// Adds the records that WATCH has read.
    pub fn watch(&mut self, read: Vec<WatchedKey>) {
        for watched in read {
            // A key that is watched already keeps its first value.
            if !self.watches(&watched.key) {
                self.watched_bytes += watched.bytes();
                self.watched.push(watched);
            }
        }
    }

    /// Whether WATCH has read this key.
    pub fn watches(&self, key: &[u8]) -> bool {
        self.watched.iter().any(|known| known.key == key)
    }

    fn unwatch(&mut self) -> Vec<WatchedKey> {
        self.watched_bytes = 0;
        std::mem::take(&mut self.watched)
    }

    /// How many more keys and bytes WATCH may add.
    fn watch_room(&self, limits: &Limits) -> (usize, usize) {
        (
            limits.watched.saturating_sub(self.watched.len()),
            limits.watched_bytes.saturating_sub(self.watched_bytes),
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
        let behind = named_at(&request);
        let is_exec = request.argument(behind).eq_ignore_ascii_case(b"exec");
        let mut deadline = self.time_left.map(|left| arrived + left);
        let admitted = self.admit(&mut request, behind, arrived, settings, &mut deadline);
        let command = match admitted {
            Ok(command) => command,
            // As in Redis, a transaction whose EXEC is refused is over.
            Err(error) if is_exec => {
                self.multi = None;
                self.unwatch();
                let why = error.strip_prefix("ERR ").unwrap_or(&error);
                let error = format!("EXECABORT Transaction discarded because of: {why}");
                return self.reply(&Reply::Error(error), out);
            }
            Err(error) => {
                if let Some(multi) = &mut self.multi {
                    multi.broken = true;
                }
                return self.reply(&Reply::Error(error), out);
            }
        };
        self.last = command.name;
        let ends_multi = matches!(command.verb, Verb::Exec | Verb::Discard | Verb::Reset | Verb::Quit);
        if self.multi.is_some() && !ends_multi {
            // The command has the deadline of EXEC.
            return self.queue(command, request, arrived, &settings.limits, out);
        }
        let is_late = deadline.is_some_and(|deadline| now > deadline);
        let default = settings.limits.time_left.map_or(Time::MAX, |left| arrived + left);
        let by = deadline.unwrap_or(default);
        match (command.verb, command.place) {
            (_, Scope::Transaction | Scope::Store | Scope::Federation) => {
                Next::Call(Call::new(command, request, by, arrived))
            }
            (Verb::Watch, _) => Next::Ask(Work::Watch(request, by, self.watch_room(&settings.limits))),
            (Verb::Exec, _) => self.exec(by, out),
            _ if is_late && self.multi.is_none() => Next::Late,
            (_, Scope::Anywhere) => self.answer(command, &request, out),
            _ => match self.own(command, request, settings, out) {
                Ok(next) => next,
                Err(error) => self.reply(&Reply::Error(error), out),
            },
        }
    }

    /// The command of `request`, if it is a single one for the store: it may join the job of the commands before it.
    pub fn asks(&self, request: &Request) -> Option<&'static Command> {
        let is_plain = |command: &&Command| matches!(command.place, Scope::Transaction | Scope::Store);
        let is_answered = !self.is_muted && self.mute == Mute::Off;
        let found = commands::find(request.argument(named_at(request))).filter(is_plain);
        found.filter(|_| is_answered && self.multi.is_none())
    }

    /// Parses `DEADLINE MS` in front of a command, and checks whether the connection may send the command now.
    fn admit(
        &self,
        request: &mut Request,
        behind: usize,
        arrived: Time,
        settings: &ServerSettings,
        deadline: &mut Option<Time>,
    ) -> Result<&'static Command, String> {
        if behind > 0 {
            if request.len() < 3 {
                return Err(wrong_number_of_arguments("deadline"));
            }
            if request.argument(2).eq_ignore_ascii_case(b"deadline") {
                return Err("ERR DEADLINE is said once".into());
            }
            if self.multi.is_some() && !request.argument(2).eq_ignore_ascii_case(b"exec") {
                return Err("ERR within MULTI, give the deadline to EXEC".into());
            }
            *deadline = Some(arrived + settings.limits.millis(request.argument(1))?);
            request.skip(behind);
        }
        let command = self.known(request, &settings.limits)?;
        self.login.allowed(command, request)?;
        Ok(command)
    }

    /// Finds the command and checks its number of arguments; RESP2 subscribers may send few commands only.
    fn known(&self, request: &Request, limits: &Limits) -> Result<&'static Command, String> {
        let command = limits.find(request.argument(0)).ok_or_else(|| unknown(request))?;
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

    fn say(&self, value: &Reply, out: &mut Vec<u8>) {
        Writer::new(out, self.version).value(value);
    }

    fn reply(&self, value: &Reply, out: &mut Vec<u8>) -> Next {
        self.say(value, out);
        Next::Answered
    }

    /// Queues a command between MULTI and EXEC.
    fn queue(
        &mut self,
        command: &'static Command,
        request: Request,
        arrived: Time,
        limits: &Limits,
        out: &mut Vec<u8>,
    ) -> Next {
        let name = || command.name.to_uppercase();
        let error = match (command.verb, command.place) {
            (Verb::Multi, _) => Some("ERR MULTI calls can not be nested".to_owned()),
            (Verb::Watch, _) => Some("ERR WATCH inside MULTI is not allowed".to_owned()),
            (Verb::Keys | Verb::DbSize | Verb::RandomKey | Verb::Scan, _) if !limits.scans_in_multi => {
                Some(format!("ERR {} looks at all keys: say it outside of MULTI", name()))
            }
            (_, Scope::Transaction | Scope::Anywhere) => None,
            _ => Some(format!("ERR {} is not taken within MULTI here", name())),
        };
        // As in Redis, these two get an error, and EXEC still carries out the other commands.
        let is_harmless = matches!(command.verb, Verb::Multi | Verb::Watch);
        let Some(multi) = &mut self.multi else {
            return Next::Answered;
        };
        multi.bytes += request.bytes() + size_of::<Call>() - size_of::<Request>();
        let (most, most_bytes) = (limits.queued, limits.queued_bytes);
        let error = error.or_else(|| {
            (multi.queued.len() >= most || multi.bytes > most_bytes)
                .then(|| format!("ERR at most {most} commands and {most_bytes} bytes within MULTI"))
        });
        let value = match error {
            Some(error) => {
                multi.broken |= !is_harmless;
                Reply::Error(error)
            }
            None => {
                multi.queued.push(Call::new(command, request, Time::MAX, arrived));
                Reply::Simple("QUEUED".into())
            }
        };
        self.reply(&value, out)
    }

    fn exec(&mut self, deadline: Time, out: &mut Vec<u8>) -> Next {
        let Some(multi) = self.multi.take() else {
            return self.reply(&Reply::Error("ERR EXEC without MULTI".into()), out);
        };
        let watched = self.unwatch();
        if multi.broken {
            let error = "EXECABORT Transaction discarded because of previous errors.";
            return self.reply(&Reply::Error(error.into()), out);
        }
        Next::Ask(Work::Exec(multi.queued, watched, deadline))
    }

    fn answer(&mut self, command: &Command, request: &Request, out: &mut Vec<u8>) -> Next {
        if command.verb == Verb::Ping && self.version == Resp::Two && self.subscriptions() > 0 {
            let said = request.argument(1);
            self.say(&Reply::Array(vec![Reply::bulk("pong"), Reply::bulk(said)]), out);
            return Next::Answered;
        }
        let mut writer = Writer::new(out, self.version);
        let done = match command.verb {
            Verb::Wait => match commands::wait(request) {
                Ok(()) => return Next::Wait,
                refused => refused,
            },
            verb => commands::anywhere(verb, request, &mut writer),
        };
        match done {
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
        settings: &ServerSettings,
        out: &mut Vec<u8>,
    ) -> Result<Next, String> {
        let value = match command.verb {
            Verb::Multi => {
                self.multi = Some(Multi::default());
                Reply::ok()
            }
            Verb::Discard => {
                self.multi.take().ok_or("ERR DISCARD without MULTI")?;
                self.unwatch();
                Reply::ok()
            }
            Verb::Unwatch => {
                self.unwatch();
                Reply::ok()
            }
            Verb::Subscribe | Verb::PSubscribe => {
                let most = settings.limits.subscriptions;
                if self.subscriptions() + request.len() - 1 > most {
                    return Err(format!("ERR a connection hears at most {most} channels and patterns"));
                }
                let patterns = command.verb == Verb::PSubscribe;
                let (what, max) = if patterns {
                    ("pattern", PATTERN_MAX)
                } else {
                    ("channel", CHANNEL_MAX)
                };
                if request.from(1).any(|name| name.len() > max) {
                    return Err(format!("ERR a {what} has at most {max} bytes"));
                }
                return Ok(Next::Subscribe(request, patterns));
            }
            Verb::Unsubscribe | Verb::PUnsubscribe => {
                return Ok(Next::Unsubscribe(request, command.verb == Verb::PUnsubscribe));
            }
            Verb::Publish => {
                let (channel, message) = (request.argument(1).len(), request.argument(2).len());
                if channel > CHANNEL_MAX || message > MESSAGE_MAX {
                    return Err(format!(
                        "ERR a channel has at most {CHANNEL_MAX} bytes, a message {MESSAGE_MAX}"
                    ));
                }
                if settings.limits.is_federation {
                    return Err(
                        "ERR PUBLISH is not taken in a federation: set a key, and have others subscribe to its \
                         changes, __keyspace@0__:KEY"
                            .into(),
                    );
                }
                return Ok(Next::Publish(request));
            }
            Verb::Info => {
                let sections = request.from(1).map(|word| String::from_utf8_lossy(word).to_lowercase());
                return Ok(Next::Info(sections.collect()));
            }
            Verb::PubSub => return Ok(Next::Hearing(request)),
            Verb::Role => return Ok(Next::Role),
            Verb::Quit => {
                self.say(&Reply::ok(), out);
                return Ok(Next::Close);
            }
            Verb::Reset => {
                self.say(&Reply::Simple("RESET".into()), out);
                return Ok(Next::Reset);
            }
            Verb::Hello | Verb::Auth => {
                let entry = match command.verb {
                    Verb::Auth => self.login.auth(&request)?,
                    _ => self.login.hello(&Greeting::read(&request, self.version)?)?,
                };
                match entry {
                    Entry::Admitted => self.admitted(&request),
                    Entry::ToCheck(claimed) => {
                        self.claim = Some(request);
                        return Ok(Next::Claim(claimed));
                    }
                }
            }
            Verb::Acl if request.len() == 2 && request.argument(1).eq_ignore_ascii_case(b"whoami") => {
                Reply::bulk(self.login.user())
            }
            Verb::Acl => Reply::Error(unknown_part("ACL", &request)),
            Verb::Client => return self.client(&request, &settings.limits, out),
            Verb::Cmd => described(&request, &settings.limits),
            Verb::Config if request.argument(1).eq_ignore_ascii_case(b"set") => return Ok(Next::Configure(request)),
            Verb::Config => config(&request, settings),
            _ => Reply::Error(unknown(&request)),
        };
        Ok(self.reply(&value, out))
    }

    fn greet(&mut self, greeting: Greeting) -> Reply {
        let Greeting { version, name, .. } = greeting;
        self.version = version;
        if let Some(name) = name {
            self.name = name;
        }
        let pair = |key: &str, value| (Reply::bulk(key), value);
        Reply::Map(vec![
            // The Redis version whose commands these are; clients look at it.
            pair("server", Reply::bulk("redis")),
            pair("version", Reply::bulk("7.0.0")),
            pair("proto", Reply::Integer(if version == Resp::Three { 3 } else { 2 })),
            pair("id", Reply::Integer(self.id as i64)),
            pair("mode", Reply::bulk("standalone")),
            pair("role", Reply::bulk("master")),
            pair("modules", Reply::Array(Vec::new())),
        ])
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

/// Position of the command's name, which `DEADLINE MS` may precede.
fn named_at(request: &Request) -> usize {
    if request.argument(0).eq_ignore_ascii_case(b"deadline") {
        2
    } else {
        0
    }
}
