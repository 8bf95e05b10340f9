//! Bytes of a client: the same requests however they are split, or the same error, and no more is kept than the bounds
//! say; what was read is read again as it was written. The same bytes as replies.

use punctual_server::resp::reply::ReplyParser;
use punctual_server::resp::request::{Request, RequestParser};
use punctual_server::resp::{Bounds, ProtocolError, Reply, Resp, Writer};

use super::source::{Source, pieces};

/// Small, so that they are met.
const SMALL: Bounds = Bounds {
    arguments: 8,
    bulk: 64,
    request: 128,
    inline: 64,
    depth: 3,
};

fn requests(pieces: &[&[u8]], bounds: &Bounds) -> (Vec<Request>, Option<ProtocolError>) {
    let mut parser = RequestParser::default();
    let mut found = Vec::new();
    for piece in pieces {
        parser.feed(piece);
        loop {
            match parser.next(bounds) {
                Ok(Some(request)) => found.push(request),
                Ok(None) => break,
                Err(error) => return (found, Some(error)),
            }
        }
        // One request that is not whole, each argument of which has a header of a few bytes.
        let most = bounds.request + bounds.bulk + bounds.inline + 64 * bounds.arguments + piece.len();
        assert!(parser.kept() <= most, "{} bytes are kept", parser.kept());
    }
    (found, None)
}

fn replies(pieces: &[&[u8]], bounds: &Bounds) -> (Vec<Reply>, bool) {
    let mut parser = ReplyParser::default();
    let mut found = Vec::new();
    for piece in pieces {
        parser.feed(piece);
        loop {
            match parser.next(bounds) {
                Ok(Some(value)) => found.push(value),
                Ok(None) => break,
                Err(_) => return (found, true),
            }
        }
    }
    (found, false)
}

/// A case: whether bounds are small, where it is cut, and the bytes.
pub fn check(case: &[u8]) -> &'static str {
    let mut source = Source(case);
    let bounds = if source.is_so() { &SMALL } else { &Bounds::STRANGER };
    let cuts = source.list(Source::number);
    let bytes = source.rest();
    let cut = pieces(bytes, &cuts);
    let (found, error) = requests(&cut, bounds);
    assert_eq!(
        (&found, &error),
        (&requests(&[bytes], bounds).0, &requests(&[bytes], bounds).1)
    );
    let mut again = Vec::new();
    for request in &found {
        assert!((1..=bounds.arguments).contains(&request.len()));
        let longest = request.from(0).map(<[u8]>::len).max().unwrap_or_default();
        assert!(
            longest <= bounds.bulk.max(bounds.inline),
            "an argument of {longest} bytes"
        );
        let arguments = request.from(0).map(Reply::bulk).collect();
        Writer::new(&mut again, Resp::Two).value(&Reply::Array(arguments));
    }
    // Words on a line may be longer than a string may be.
    if found
        .iter()
        .all(|request| request.from(0).all(|argument| argument.len() <= bounds.bulk))
    {
        assert_eq!(requests(&[&again], bounds).0, found);
    }
    let (values, is_broken) = replies(&cut, bounds);
    let (whole, is_whole_broken) = replies(&[bytes], bounds);
    // Compared as text: what is no number is not equal to itself.
    assert_eq!(
        (format!("{values:?}"), is_broken),
        (format!("{whole:?}"), is_whole_broken)
    );
    let is_nested = |value: &Reply| matches!(value, Reply::Array(_) | Reply::Map(_) | Reply::Set(_) | Reply::Push(_));
    match error {
        _ if values.iter().any(is_nested) => "nested replies",
        Some(_) if found.len() > 1 => "malformed behind requests",
        Some(_) => "malformed",
        None if found.len() > 1 => "requests",
        None if found.len() == 1 => "a request",
        None => "half a request",
    }
}
