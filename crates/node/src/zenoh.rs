//! Readings from Zenoh (decision 48): a session that subscribes to key expressions, and leaves each put in the node's
//! [letterbox](crate::letterbox).
//!
//! A put's timestamp is of a hybrid logical clock, kept near the time of day, so the age that it gives is as accurate
//! as the clocks of both machines agree. Zenoh silently drops puts that do not fit into its queues; they are not
//! counted here.

use std::net::IpAddr;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::{Duration, SystemTime};

use ::zenoh::config::EndPoint;
use ::zenoh::key_expr::KeyExpr;
use ::zenoh::sample::{Sample, SampleKind};
use ::zenoh::{Config, Session, Wait};
use punctual_federation::message::Key;
use punctual_units::{Clock, Nanos};
use serde::{Deserialize, Serialize};

use crate::letterbox::{Dated, Letterbox};

/// The most subscriptions of a session.
pub const TABLES_MAX: usize = 64;
/// Size above which Zenoh drops a put before it is whole, uncounted; otherwise it would collect a stranger's gigabyte.
pub const MESSAGE_BYTES_MAX: usize = 1 << 20;
/// The longest name of an object, in bytes, as a federation's keys have it.
const NAME_MAX: usize = 500;
/// The first and the longest wait before a connection that failed is tried again.
const RETRY: [Duration; 2] = [Duration::from_millis(100), Duration::from_secs(1)];
/// Time limit for a client's first connection: without one there is no session.
const CLIENT_WAITS: Duration = Duration::from_secs(5);
/// Time limit for closing a session.
pub const CLOSES_WITHIN: Duration = Duration::from_secs(1);

/// A key expression, and the name of the object that its puts set.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Table {
    /// The key expression to subscribe to.
    pub key: String,
    /// Name of the object; `$1` stands for the text that the key's first part with a wildcard matches.
    pub object: String,
}

/// Settings of a Zenoh session.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spec {
    /// The subscriptions of the session.
    pub tables: Vec<Table>,
    /// Endpoints of other Zenoh processes to connect to.
    pub connect: Vec<String>,
    /// Endpoints at which the session listens.
    pub listen: Vec<String>,
    /// Whether the session is a client of one router, in place of a peer.
    pub is_client: bool,
    /// Whether the session looks for others by multicast and gossip.
    pub scouts: bool,
}

/// The reason for which there is no session.
#[derive(Debug, thiserror::Error)]
#[error("{what}: {why}")]
pub struct ZenohError {
    what: String,
    why: String,
}

fn error(what: impl Into<String>) -> impl FnOnce(::zenoh::Error) -> ZenohError {
    let what = what.into();
    move |why| ZenohError { what, why: words(&why) }
}

/// Zenoh's own message, without the positions in its source (` at /FILE.rs:LINE.`).
fn words(error: &::zenoh::Error) -> String {
    let text = error.to_string();
    let mut parts = text.split(" at /");
    let mut words = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let rest = part.split_once(".rs:").map_or("", |(_, rest)| rest);
        words += rest
            .trim_start_matches(|c: char| c.is_ascii_digit())
            .trim_start_matches('.');
    }
    words.trim().to_owned()
}

/// Whether this part of a key expression has a wildcard.
fn is_wild(chunk: &str) -> bool {
    chunk.contains('*')
}

/// Checks that this is a key expression of Zenoh.
///
/// # Errors
/// The reason for the operator.
pub fn check_key(key: &str) -> Result<(), String> {
    KeyExpr::try_from(key).map(drop).map_err(|error| {
        let why = words(&error);
        format!("no key expression of Zenoh, such as \"robot/*/pose\": {why}")
    })
}

/// A part of the name of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    Text(String),
    /// The chunk of the key with this number, counted from the front, or (`true`) from the back.
    Chunk(usize, bool),
    /// The chunks that `**` matches: all but these numbers of chunks at the front and at the back.
    Middle(usize, usize),
}

/// Derives the name of an object from the key of a put.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Naming {
    parts: Vec<Part>,
}

impl Naming {
    /// Parses the name of objects in a table.
    ///
    /// # Errors
    /// The reason for the operator.
    pub fn of(table: &Table) -> Result<Naming, String> {
        let chunks: Vec<&str> = table.key.split('/').collect();
        let wild: Vec<usize> = (0..chunks.len()).filter(|at| is_wild(chunks[*at])).collect();
        let middles: Vec<usize> = (0..chunks.len()).filter(|at| chunks[*at] == "**").collect();
        let mut parts = Vec::new();
        let mut pieces = table.object.split('$');
        let first = pieces.next().unwrap_or_default();
        parts.push(Part::Text(first.to_owned()));
        for piece in pieces {
            let digits = piece.bytes().take_while(u8::is_ascii_digit).count();
            let number: usize = piece[..digits].parse().unwrap_or(0);
            let Some(at) = number.checked_sub(1).and_then(|number| wild.get(number)) else {
                return Err(format!(
                    "${}: the key has {} parts with a wildcard, so $1 to ${} name what they stand for",
                    &piece[..digits],
                    wild.len(),
                    wild.len()
                ));
            };
            parts.push(match middles[..] {
                [] => Part::Chunk(*at, false),
                [middle] if *at < middle => Part::Chunk(*at, false),
                [middle] if *at == middle => Part::Middle(middle, chunks.len() - middle - 1),
                [_] => Part::Chunk(chunks.len() - 1 - at, true),
                _ => return Err("with `$` the key has at most one part `**`: otherwise several readings fit".into()),
            });
            parts.push(Part::Text(piece[digits..].to_owned()));
        }
        parts.retain(|part| *part != Part::Text(String::new()));
        match &parts[..] {
            [] => Err("name the object that is set".into()),
            [Part::Text(name)] if name.len() > NAME_MAX => {
                Err(format!("an object's name has at most {NAME_MAX} bytes"))
            }
            _ => Ok(Naming { parts }),
        }
    }

    /// The name, if it is the same for all puts.
    pub fn plain(&self) -> Option<&str> {
        match &self.parts[..] {
            [Part::Text(name)] => Some(name),
            _ => None,
        }
    }

    /// Returns the name of the object for a put with this key, which the table's key expression matches; `None` if the
    /// name would be empty or too long.
    pub fn name(&self, key: &str) -> Option<Key> {
        let chunks: Vec<&str> = key.split('/').collect();
        let mut name = Vec::new();
        for part in &self.parts {
            match part {
                Part::Text(text) => name.extend_from_slice(text.as_bytes()),
                Part::Chunk(at, false) => name.extend_from_slice(chunks.get(*at)?.as_bytes()),
                Part::Chunk(at, true) => {
                    let at = chunks.len().checked_sub(at + 1)?;
                    name.extend_from_slice(chunks[at].as_bytes());
                }
                Part::Middle(front, back) => {
                    let middle = chunks.get(*front..chunks.len().checked_sub(*back)?)?;
                    name.extend_from_slice(middle.join("/").as_bytes());
                }
            }
        }
        (1..=NAME_MAX).contains(&name.len()).then_some(name)
    }
}

/// Checks that this is an endpoint that this build can reach, or listen at (`listens`).
///
/// # Errors
/// The reason for the operator.
pub fn check_endpoint(text: &str, listens: bool) -> Result<(), String> {
    let endpoint = EndPoint::from_str(text)
        .map_err(|error| format!("{text} is no endpoint such as \"tcp/10.0.0.7:7447\": {}", words(&error)))?;
    let (protocol, address) = (endpoint.protocol(), endpoint.address());
    let protocol = protocol.as_str();
    if !["tcp", "udp"].contains(&protocol) {
        return Err(format!(
            "{text}: this build speaks tcp and udp, not {protocol}: have a router between"
        ));
    }
    let is_address = |(host, port): (&str, &str)| !host.is_empty() && port.parse::<u16>().is_ok();
    let (host, port) = address.as_str().rsplit_once(':').unwrap_or_default();
    if !is_address((host, port)) {
        return Err(format!(
            "{text} has no host and port: write it such as \"tcp/10.0.0.7:7447\""
        ));
    }
    let host = host.trim_matches(['[', ']']);
    let is_own = host == "localhost" || host.parse::<IpAddr>().is_ok_and(|host| host.is_loopback());
    if listens && !is_own {
        return Err(format!(
            "{text}: any machine that reaches this endpoint could tell readings: listen at 127.0.0.1 or [::1], and \
             have nodes connect to a router, or to robots"
        ));
    }
    Ok(())
}

impl Spec {
    fn config(&self) -> Result<Config, ZenohError> {
        let list = |texts: &[String]| {
            let quoted: Vec<String> = texts.iter().map(|text| format!("{text:?}")).collect();
            format!("[{}]", quoted.join(","))
        };
        let mode = if self.is_client { "\"client\"" } else { "\"peer\"" };
        let [first, most] = RETRY.map(|wait| wait.as_millis());
        let settings = [
            ("mode", mode.to_owned()),
            ("connect/endpoints", list(&self.connect)),
            ("listen/endpoints", list(&self.listen)),
            (
                "connect/retry",
                format!("{{period_init_ms:{first},period_max_ms:{most},period_increase_factor:2}}"),
            ),
            ("scouting/multicast/enabled", self.scouts.to_string()),
            ("scouting/gossip/enabled", self.scouts.to_string()),
            ("transport/link/rx/max_message_size", MESSAGE_BYTES_MAX.to_string()),
            // Timestamps stay as publishers set them: one added on the way would hide a reading's age.
            ("timestamping/enabled", "false".to_owned()),
        ];
        let waits = ("connect/timeout_ms", CLIENT_WAITS.as_millis().to_string());
        let mut config = Config::default();
        for (name, value) in settings.iter().chain(self.is_client.then_some(&waits)) {
            config
                .insert_json5(name, value)
                .map_err(error(format!("Zenoh does not take {name} = {value}")))?;
        }
        Ok(config)
    }

    /// Parses the names of objects in all tables.
    ///
    /// # Errors
    /// The reason for the first that is wrong.
    pub fn namings(&self) -> Result<Vec<Naming>, String> {
        self.tables.iter().map(Naming::of).collect()
    }
}

/// An open session that fills a letterbox.
#[derive(Debug)]
pub struct Source {
    session: Session,
    letterbox: Arc<Letterbox>,
}

impl Source {
    /// Opens a session, and has it leave puts in the letterbox, with the instants of `clock`, the node's. A peer waits
    /// for others up to half a second, and goes on looking for them; a client waits for one router.
    ///
    /// # Errors
    /// [`ZenohError`]: an endpoint in use, no router, or an invalid key expression.
    pub fn open(
        spec: &Spec,
        letterbox: &Arc<Letterbox>,
        clock: impl Clock + Clone + Send + Sync + 'static,
    ) -> Result<Source, ZenohError> {
        let session = ::zenoh::open(spec.config()?)
            .wait()
            .map_err(error("a session cannot be opened"))?;
        for table in &spec.tables {
            let naming = Naming::of(table).map_err(|why| ZenohError {
                what: table.object.clone(),
                why,
            })?;
            let (letterbox, clock) = (Arc::clone(letterbox), clock.clone());
            let subscribed = session
                .declare_subscriber(table.key.clone())
                .callback(move |sample| take(&sample, &naming, &letterbox, &clock))
                .background();
            subscribed
                .wait()
                .map_err(error(format!("{} cannot be subscribed to", table.key)))?;
        }
        let letterbox = Arc::clone(letterbox);
        Ok(Source { session, letterbox })
    }

    /// Called now and then: stores the number of connections in the letterbox.
    pub fn look(&self) {
        let info = self.session.info();
        let (routers, peers) = (info.routers_zid().wait(), info.peers_zid().wait());
        self.letterbox.links(routers.count() + peers.count());
    }

    /// Ends the session. Returns false if that takes longer than [`CLOSES_WITHIN`]; the session then ends with the
    /// process.
    pub fn close(&self) -> bool {
        let session = self.session.clone();
        let (tell, told) = channel();
        let closes = std::thread::Builder::new().name("zenoh-close".into()).spawn(move || {
            // A session that is closed already is closed as well.
            drop(session.close().wait());
            let _ = tell.send(());
        });
        closes.is_ok() && told.recv_timeout(CLOSES_WITHIN).is_ok()
    }
}

/// Takes a put, on a thread of Zenoh.
fn take(sample: &Sample, naming: &Naming, letterbox: &Letterbox, clock: &impl Clock) {
    if sample.kind() == SampleKind::Delete {
        letterbox.delete();
        return;
    }
    let came = clock.now();
    let key = sample.key_expr();
    // A put may be for all keys of an expression; its wildcard then gives no name.
    let name = match naming.plain() {
        Some(name) => Some(name.as_bytes().to_vec()),
        None if key.as_str().split('/').any(is_wild) => None,
        None => naming.name(key.as_str()),
    };
    let Some(name) = name else {
        letterbox.unnamed(|| format!("Zenoh: a put to {key} names no object: it has a wildcard, or is too long"));
        return;
    };
    let dated = match sample.timestamp() {
        None => Dated::Undated,
        Some(stamp) => {
            let nanos = |span: Duration| Nanos(u64::try_from(span.as_nanos()).unwrap_or(u64::MAX));
            match SystemTime::now().duration_since(stamp.get_time().to_system_time()) {
                Ok(age) => Dated::Old(nanos(age)),
                Err(ahead) => Dated::Ahead(nanos(ahead.duration())),
            }
        }
    };
    letterbox.leave(&name, &sample.payload().to_bytes(), dated, came);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn naming(key: &str, object: &str) -> Result<Naming, String> {
        check_key(key)?;
        Naming::of(&Table {
            key: key.into(),
            object: object.into(),
        })
    }

    #[test]
    fn an_object_is_named_by_what_wildcards_stand_for() {
        for (key, object, put, name) in [
            ("robot/*/pose", "pose", "robot/7/pose", "pose"),
            ("robot/*/pose", "$1/pose", "robot/7/pose", "7/pose"),
            ("robot/*/joint/*", "$2 of $1", "robot/a/joint/b", "b of a"),
            ("robot/arm$*/pose", "$1", "robot/arm12/pose", "arm12"),
            ("*/**/pose/*", "$1:$2:$3", "a/b/c/pose/d", "a:b/c:d"),
            ("*/**/pose", "$1:$2", "a/pose", "a:"),
            ("**", "z/$1", "a/b", "z/a/b"),
        ] {
            let naming = naming(key, object).unwrap();
            assert_eq!(naming.name(put), Some(name.as_bytes().to_vec()), "{key} {object}");
            assert_eq!(naming.plain().is_some(), !object.contains('$'));
        }
        assert_eq!(naming("**", "$1").unwrap().name(&"a".repeat(501)), None);
        assert_eq!(naming("a/*/**", "$1").unwrap().name("a"), None);
    }

    #[test]
    fn wrong_keys_names_and_endpoints_are_refused_with_what_to_do() {
        for key in ["", "/a", "a/", "a//b", "a/b?", "a/***"] {
            assert!(check_key(key).unwrap_err().contains("no key expression"), "{key}");
        }
        for (key, object, part) in [
            ("a/*", "$2", "$1 to $1"),
            ("a/b", "$1", "0 parts"),
            ("a/*", "$", "$1 to $1"),
            ("a/*", "$0", "$1 to $1"),
            ("a/**/b/**", "$1", "at most one"),
            ("a", "", "name the object"),
            ("a", &"x".repeat(501), "500 bytes"),
        ] {
            let why = naming(key, object).unwrap_err();
            assert!(why.contains(part), "{key} {object}: {why}");
        }
        for (endpoint, listens, part) in [
            ("", false, "no endpoint"),
            ("10.0.0.7:7447", false, "no endpoint"),
            ("tls/10.0.0.7:7447", false, "tcp and udp, not tls"),
            ("tcp/10.0.0.7", false, "no host and port"),
            ("tcp/10.0.0.7:x", false, "no host and port"),
            ("tcp/0.0.0.0:7447", true, "any machine"),
            ("tcp/[::]:7447", true, "any machine"),
        ] {
            let why = check_endpoint(endpoint, listens).unwrap_err();
            assert!(why.contains(part), "{endpoint}: {why}");
        }
        for (endpoint, listens) in [
            ("tcp/robot-7:7447", false),
            ("udp/10.0.0.7:7447", false),
            ("tcp/127.0.0.1:0", true),
            ("tcp/[::1]:7447", true),
            ("tcp/localhost:7447", true),
        ] {
            assert_eq!(check_endpoint(endpoint, listens), Ok(()), "{endpoint}");
        }
    }
}
