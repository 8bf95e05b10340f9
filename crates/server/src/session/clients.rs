//! CLIENT: the connection itself, and which connections CLIENT LIST shows and CLIENT KILL ends.

use super::{Limits, Next, Session};
use crate::commands::{SYNTAX, unknown_part, wrong_number_of_arguments};
use crate::login::plain;
use crate::resp::request::Request;
use crate::resp::{Reply, Resp};

/// Names of the parts of CLIENT, as CLIENT LIST shows them.
const PARTS: [&str; 9] = [
    "client|deadline",
    "client|getname",
    "client|id",
    "client|info",
    "client|kill",
    "client|list",
    "client|reply",
    "client|setinfo",
    "client|setname",
];

/// Which replies a connection gets, by CLIENT REPLY.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Mute {
    /// The connection gets all replies.
    #[default]
    Off,
    /// The connection gets no reply until CLIENT REPLY ON.
    On,
    /// The connection does not get the reply to the next request.
    Next,
}

/// Conditions on connections; those that meet all of them are meant.
#[derive(Debug, Default)]
pub struct ClientFilter {
    /// Numbers of connections; empty: any.
    ids: Vec<u64>,
    /// Addresses of the client and of this process.
    addresses: [Option<String>; 2],
    user: Option<String>,
    /// Redis' type of a client; `pubsub`: with subscriptions.
    kind: Option<String>,
    /// Number of the connection that is left out.
    but: Option<u64>,
    /// Whether CLIENT KILL named an address alone, and is answered with an error where there is none.
    pub is_one: bool,
}

/// State of a connection, as CLIENT LIST shows it beside its session.
#[derive(Debug)]
pub struct ClientState {
    /// Addresses of the client and of this process.
    pub addresses: [String; 2],
    /// Descriptor of the socket.
    pub descriptor: i32,
    /// Seconds since the connection began.
    pub age_s: u64,
    /// Seconds since the last byte came.
    pub idle_s: u64,
    /// Bytes of requests that are read and not begun.
    pub unread: usize,
    /// Bytes of replies that are not sent.
    pub unsent: usize,
    /// Bytes of the connection in all.
    pub bytes: usize,
}

impl ClientFilter {
    /// Conditions of CLIENT LIST.
    fn listed(request: &Request) -> Result<ClientFilter, String> {
        let mut filter = ClientFilter::default();
        match request.argument(2).to_ascii_lowercase().as_slice() {
            b"" if request.len() == 2 => {}
            b"type" if request.len() == 4 => filter.kind = Some(kind(request.argument(3))?),
            b"id" if request.len() > 3 => {
                for id in request.from(3) {
                    filter.ids.push(number(id).ok_or("ERR Invalid client ID")?);
                }
            }
            _ => return Err(SYNTAX.into()),
        }
        Ok(filter)
    }

    /// Conditions of CLIENT KILL from the connection `me`.
    fn killed(request: &Request, me: &Session) -> Result<ClientFilter, String> {
        let text = |word: &[u8]| String::from_utf8_lossy(word).into_owned();
        let mut filter = ClientFilter::default();
        if request.len() == 3 {
            filter.addresses[0] = Some(text(request.argument(2)));
            filter.is_one = true;
            return Ok(filter);
        }
        filter.but = Some(me.id);
        let mut words = request.from(2);
        while let Some(word) = words.next() {
            let value = words.next().ok_or(SYNTAX)?;
            match word.to_ascii_lowercase().as_slice() {
                b"id" => filter.ids = vec![number(value).ok_or("ERR client-id should be greater than 0")?],
                b"addr" => filter.addresses[0] = Some(text(value)),
                b"laddr" => filter.addresses[1] = Some(text(value)),
                b"type" => filter.kind = Some(kind(value)?),
                b"user" if me.login.knows(value) => filter.user = Some(text(value)),
                b"user" => return Err(format!("ERR No such user '{}'", text(value))),
                b"skipme" => match value.to_ascii_lowercase().as_slice() {
                    b"yes" => filter.but = Some(me.id),
                    b"no" => filter.but = None,
                    _ => return Err(SYNTAX.into()),
                },
                _ => return Err(SYNTAX.into()),
            }
        }
        Ok(filter)
    }

    /// Whether a connection meets all conditions.
    pub fn fits(&self, session: &Session, state: &ClientState) -> bool {
        let has = |wanted: &Option<String>, there: &str| wanted.as_ref().is_none_or(|wanted| wanted == there);
        let kind = if session.subscriptions() > 0 {
            "pubsub"
        } else {
            "normal"
        };
        (self.ids.is_empty() || self.ids.contains(&session.id))
            && self
                .addresses
                .iter()
                .zip(&state.addresses)
                .all(|(wanted, there)| has(wanted, there))
            && has(&self.user, session.login.user())
            && has(&self.kind, kind)
            && self.but != Some(session.id)
    }
}

/// Redis' types of clients; there are no replicas, and no master whose replica this is.
fn kind(word: &[u8]) -> Result<String, String> {
    let kind = String::from_utf8_lossy(word).to_lowercase();
    match kind.as_str() {
        "normal" | "pubsub" | "master" | "replica" | "slave" => Ok(kind),
        _ => Err(format!("ERR Unknown client type '{kind}'")),
    }
}

fn number(word: &[u8]) -> Option<u64> {
    std::str::from_utf8(word)
        .ok()?
        .parse()
        .ok()
        .filter(|number| *number > 0)
}

impl Session {
    /// Decides whether the client gets the reply to the request that begins now.
    pub fn begin(&mut self) {
        self.is_muted = self.mute != Mute::Off;
        if self.mute == Mute::Next {
            self.mute = Mute::Off;
        }
    }

    /// Carries out CLIENT, as far as it concerns this connection alone.
    pub(super) fn client(&mut self, request: &Request, limits: &Limits, out: &mut Vec<u8>) -> Result<Next, String> {
        let what = request.argument(1).to_ascii_lowercase();
        let is_it = |part: &&&str| part.as_bytes()["client|".len()..] == what;
        let part = *PARTS
            .iter()
            .find(is_it)
            .ok_or_else(|| unknown_part("CLIENT", request))?;
        self.last = part;
        let takes = match what.as_slice() {
            b"setname" | b"deadline" | b"reply" => request.len() == 3,
            b"setinfo" => request.len() == 4,
            b"list" => true,
            b"kill" => request.len() > 2,
            _ => request.len() == 2,
        };
        if !takes {
            return Err(wrong_number_of_arguments(part));
        }
        let done = match what.as_slice() {
            b"id" => Reply::Integer(self.id as i64),
            b"getname" if self.name.is_empty() => Reply::Null,
            b"getname" => Reply::bulk(&self.name),
            b"setname" => {
                let wrong = "Client names cannot contain spaces, newlines or special characters.";
                self.name = plain(request.argument(2), wrong)?;
                Reply::ok()
            }
            b"setinfo" => {
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
                let ids = vec![self.id];
                return Ok(Next::List(ClientFilter {
                    ids,
                    ..ClientFilter::default()
                }));
            }
            b"reply" => {
                self.mute = match (request.argument(2).to_ascii_lowercase().as_slice(), self.mute) {
                    (b"on", _) => Mute::Off,
                    (b"off", _) | (b"skip", Mute::On) => Mute::On,
                    (b"skip", _) => Mute::Next,
                    _ => return Err(SYNTAX.into()),
                };
                if self.mute != Mute::Off {
                    return Ok(Next::Answered);
                }
                self.is_muted = false;
                Reply::ok()
            }
            b"list" => return Ok(Next::List(ClientFilter::listed(request)?)),
            b"kill" => return Ok(Next::Kill(ClientFilter::killed(request, self)?)),
            _ => {
                self.time_left = match request.argument(2) {
                    b"0" => None,
                    text => Some(limits.millis(text)?),
                };
                Reply::ok()
            }
        };
        Ok(self.reply(&done, out))
    }

    /// The line of the connection in CLIENT LIST.
    pub fn line(&self, state: &ClientState) -> String {
        let [address, here] = &state.addresses;
        let is_subscriber = self.subscriptions() > 0;
        let flags: String = match (is_subscriber, self.multi.is_some()) {
            (false, false) => "N".into(),
            (hears, queues) => [(hears, 'P'), (queues, 'x')]
                .iter()
                .filter_map(|(is, flag)| is.then_some(*flag))
                .collect(),
        };
        format!(
            "id={} addr={address} laddr={here} fd={} name={} age={} idle={} flags={flags} db=0 sub={} psub={} ssub=0 \
             multi={} qbuf={} qbuf-free=0 argv-mem=0 multi-mem={} rbs={unsent} rbp={unsent} obl=0 oll={} omem={unsent} \
             tot-mem={} events={} cmd={} user={} redir=-1 resp={} lib-name={} lib-ver={} deadline-ms={}\n",
            self.id,
            state.descriptor,
            self.name,
            state.age_s,
            state.idle_s,
            self.heard(false).len(),
            self.heard(true).len(),
            self.queued(),
            state.unread,
            self.multi.as_ref().map_or(0, |multi| multi.bytes),
            u8::from(state.unsent > 0),
            state.bytes,
            if state.unsent > 0 { "rw" } else { "r" },
            self.last,
            self.login.user(),
            if self.version == Resp::Three { 3 } else { 2 },
            self.library.0,
            self.library.1,
            self.time_left.map_or(0, |left| left.0 / 1_000_000),
            unsent = state.unsent,
        )
    }
}
