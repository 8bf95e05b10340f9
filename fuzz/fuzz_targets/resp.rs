//! Bytes of a client: the same requests however they are split, or the same error, and no more is kept than the bounds
//! say; what was read is read again as it was written. The same bytes as replies.
#![no_main]

use libfuzzer_sys::arbitrary::{self, Arbitrary};
use libfuzzer_sys::fuzz_target;
use punctual_server::resp::reply::ReplyParser;
use punctual_server::resp::request::{Request, RequestParser};
use punctual_server::resp::{Bounds, ProtocolError, Value, Version, Writer};

/// Small, so that they are met.
const SMALL: Bounds = Bounds {
    arguments: 8,
    bulk: 64,
    request: 128,
    inline: 64,
    depth: 3,
};

#[derive(Arbitrary, Debug)]
struct Input<'b> {
    bytes: &'b [u8],
    cuts: Vec<u16>,
    small: bool,
}

fn pieces<'b>(bytes: &'b [u8], cuts: &[u16]) -> Vec<&'b [u8]> {
    let mut cuts: Vec<usize> = cuts.iter().map(|cut| usize::from(*cut) % (bytes.len() + 1)).collect();
    cuts.extend([0, bytes.len()]);
    cuts.sort_unstable();
    cuts.windows(2).map(|pair| &bytes[pair[0]..pair[1]]).collect()
}

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

fn replies(pieces: &[&[u8]], bounds: &Bounds) -> (Vec<Value>, bool) {
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

fuzz_target!(|input: Input| {
    let bounds = if input.small { &SMALL } else { &Bounds::STRANGER };
    let cut = pieces(input.bytes, &input.cuts);
    let (found, error) = requests(&cut, bounds);
    assert_eq!((&found, &error), (&requests(&[input.bytes], bounds).0, &requests(&[input.bytes], bounds).1));
    let mut again = Vec::new();
    for request in &found {
        assert!((1..=bounds.arguments).contains(&request.len()));
        let arguments = request.from(0).map(Value::bulk).collect();
        Writer::new(&mut again, Version::Two).value(&Value::Array(arguments));
    }
    // Words on a line may be longer than a string may be.
    if found.iter().all(|request| request.from(0).all(|argument| argument.len() <= bounds.bulk)) {
        assert_eq!(requests(&[&again], bounds).0, found);
    }
    let (values, broken) = replies(&cut, bounds);
    let (whole, whole_broken) = replies(&[input.bytes], bounds);
    assert_eq!((format!("{values:?}"), broken), (format!("{whole:?}"), whole_broken));
});
