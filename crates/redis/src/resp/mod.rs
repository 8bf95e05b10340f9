//! Which bytes mean which values? RESP2 and RESP3, the protocol of Redis; pure.
//!
//! **Requests** are arrays of strings, or words on a line ([`request`]). **Replies** are [`Reply`]s, written by
//! [`Writer`] and read back by [`reply`]. Both parsers take bytes as they arrive, however they are split, and keep no
//! more than their [`Bounds`]. Malformed, too long or endless input is a [`ProtocolError`] as soon as that shows.
//!
//! Sources: "RESP protocol spec" at redis.io, and the RESP3 specification of S. Sanfilippo.

pub mod reply;
pub mod request;
mod write;

pub use write::Writer;

/// Limits of one request or reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// The most arguments of a request, its name included; the most elements of all arrays of a reply together.
    pub arguments: usize,
    /// The most bytes of one string.
    pub bulk: usize,
    /// The most bytes of all arguments of a request together.
    pub request: usize,
    /// The most bytes of a request that is a line of words.
    pub inline: usize,
    /// The greatest depth of arrays within arrays of a reply.
    pub depth: usize,
}

impl Bounds {
    /// Limits for clients that may use the store.
    pub const ADMITTED: Bounds = Bounds {
        arguments: 1 << 17,
        bulk: 16 << 20,
        request: 32 << 20,
        inline: 64 << 10,
        depth: 16,
    };
    /// Limits for clients that have yet to log in: enough for `HELLO` with a name and a password.
    pub const STRANGER: Bounds = Bounds {
        arguments: 10,
        bulk: 16 << 10,
        request: 32 << 10,
        inline: 4 << 10,
        depth: 2,
    };
}

/// Bytes that are no RESP, or exceed the bounds. The connection cannot go on, because the start of its next request is
/// unknown.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("Protocol error: {0}")]
pub struct ProtocolError(pub String);

impl ProtocolError {
    fn new(what: impl Into<String>) -> ProtocolError {
        ProtocolError(what.into())
    }
}

/// Which protocol a connection speaks; 2 until it says `HELLO 3`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Resp {
    /// RESP2, the version before `HELLO`.
    #[default]
    Two,
    /// RESP3, after `HELLO 3`.
    Three,
}

/// A value of a reply.
#[derive(Clone, Debug, PartialEq)]
pub enum Reply {
    /// A text of one line.
    Simple(String),
    /// An error in one line: a word in capitals, and the reason.
    Error(String),
    /// A signed number of 64 bits.
    Integer(i64),
    /// A string of any bytes.
    Bulk(Vec<u8>),
    /// The absence of a value.
    Null,
    /// The absence of an array, which RESP2 tells from other nulls.
    NullArray,
    /// Values in their order.
    Array(Vec<Reply>),
    /// Pairs; in RESP2 an array of twice the length.
    Map(Vec<(Reply, Reply)>),
    /// Values in no order; an array in RESP2.
    Set(Vec<Reply>),
    /// A message that no request asked for; an array in RESP2.
    Push(Vec<Reply>),
    /// Text for people to read; a string in RESP2.
    Verbatim(String),
}

impl Reply {
    /// Makes a string of these bytes.
    pub fn bulk(bytes: impl AsRef<[u8]>) -> Reply {
        Reply::Bulk(bytes.as_ref().to_vec())
    }

    /// The reply `OK`, one line.
    pub fn ok() -> Reply {
        Reply::Simple("OK".into())
    }
}

/// The longest header of an array or a string: room for a mark, a sign, 19 digits and the end of the line.
const HEADER_MAX: usize = 32;

/// Finds the line at `at`: its text without the end, and where the next one begins; `None` while its end is missing.
fn line(bytes: &[u8], at: usize, max: usize) -> Result<Option<(&[u8], usize)>, ProtocolError> {
    let rest = &bytes[at..];
    let looked_at = &rest[..rest.len().min(max)];
    match looked_at.iter().position(|byte| *byte == b'\n') {
        Some(end) => {
            let text = &rest[..end];
            Ok(Some((text.strip_suffix(b"\r").unwrap_or(text), at + end + 1)))
        }
        None if rest.len() >= max => Err(ProtocolError::new(format!("a line has at most {max} bytes"))),
        None => Ok(None),
    }
}

/// Parses a decimal number of at most 19 digits, as headers have it.
fn number(text: &[u8]) -> Option<i64> {
    let digits = text
        .strip_prefix(b"-")
        .or_else(|| text.strip_prefix(b"+"))
        .unwrap_or(text);
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    std::str::from_utf8(text).ok()?.parse().ok()
}
