//! What is written is read, however it is split; what is malformed or without end is an error, never growth.

use proptest::prelude::*;
use punctual_redis::resp::reply::ReplyParser;
use punctual_redis::resp::request::{Request, RequestParser};
use punctual_redis::resp::{Bounds, ProtocolError, Reply, Resp, Writer};

/// Small bounds, so that tests reach them.
const SMALL: Bounds = Bounds {
    arguments: 8,
    bulk: 64,
    request: 128,
    inline: 64,
    depth: 3,
};

/// Cuts `bytes` at the given places, feeds the pieces, and collects what comes out.
fn requests(bytes: &[u8], cuts: &[usize], bounds: &Bounds) -> Result<Vec<Request>, ProtocolError> {
    let mut parser = RequestParser::default();
    let mut found = Vec::new();
    for piece in pieces(bytes, cuts) {
        parser.feed(piece);
        while let Some(request) = parser.next(bounds)? {
            found.push(request);
        }
    }
    Ok(found)
}

fn pieces<'b>(bytes: &'b [u8], cuts: &[usize]) -> Vec<&'b [u8]> {
    let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut % (bytes.len() + 1)).collect();
    cuts.extend([0, bytes.len()]);
    cuts.sort_unstable();
    cuts.windows(2).map(|pair| &bytes[pair[0]..pair[1]]).collect()
}

fn encoded(arguments: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let values = arguments.iter().map(Reply::bulk).collect();
    Writer::new(&mut bytes, Resp::Two).value(&Reply::Array(values));
    bytes
}

fn arguments() -> impl Strategy<Value = Vec<Vec<u8>>> {
    prop::collection::vec(prop::collection::vec(any::<u8>(), 0..12), 1..6)
}

fn text() -> impl Strategy<Value = String> {
    "[ -~]{0,12}"
}

fn leaf(three: bool) -> BoxedStrategy<Reply> {
    let both = prop_oneof![
        text().prop_map(Reply::Simple),
        text().prop_map(Reply::Error),
        any::<i64>().prop_map(Reply::Integer),
        prop::collection::vec(any::<u8>(), 0..12).prop_map(Reply::Bulk),
        Just(Reply::Null),
    ];
    if three {
        prop_oneof![both, text().prop_map(Reply::Verbatim)].boxed()
    } else {
        prop_oneof![both, Just(Reply::NullArray)].boxed()
    }
}

fn value(three: bool) -> impl Strategy<Value = Reply> {
    leaf(three).prop_recursive(3, 40, 5, move |inner| {
        let several = prop::collection::vec(inner.clone(), 0..5);
        let pairs = prop::collection::vec((inner.clone(), inner), 0..4);
        if three {
            prop_oneof![
                several.clone().prop_map(Reply::Array),
                several.clone().prop_map(Reply::Set),
                several.prop_map(Reply::Push),
                pairs.prop_map(Reply::Map),
            ]
            .boxed()
        } else {
            several.prop_map(Reply::Array).boxed()
        }
    })
}

fn replies(bytes: &[u8], cuts: &[usize], bounds: &Bounds) -> Result<Vec<Reply>, ProtocolError> {
    let mut parser = ReplyParser::default();
    let mut found = Vec::new();
    for piece in pieces(bytes, cuts) {
        parser.feed(piece);
        while let Some(value) = parser.next(bounds)? {
            found.push(value);
        }
    }
    Ok(found)
}

#[test]
fn a_count_that_overflows_is_refused() {
    let refused = replies(b"*2\r\n%9223372036854775807\r\n", &[], &Bounds::ADMITTED);
    assert!(refused.is_err(), "{refused:?}");
}

proptest! {
    #[test]
    fn requests_are_read_as_they_were_written(
        all in prop::collection::vec(arguments(), 0..5),
        cuts in prop::collection::vec(any::<usize>(), 0..12),
    ) {
        let bytes: Vec<u8> = all.iter().flat_map(|arguments| encoded(arguments)).collect();
        let expected: Vec<Request> = all.iter().map(Request::of).collect();
        prop_assert_eq!(requests(&bytes, &cuts, &Bounds::ADMITTED), Ok(expected));
    }

    #[test]
    fn replies_are_read_as_they_were_written(
        (three, all) in any::<bool>().prop_flat_map(|three| (Just(three), prop::collection::vec(value(three), 0..4))),
        cuts in prop::collection::vec(any::<usize>(), 0..12),
    ) {
        let version = if three { Resp::Three } else { Resp::Two };
        let mut bytes = Vec::new();
        all.iter().for_each(|value| Writer::new(&mut bytes, version).value(value));
        prop_assert_eq!(replies(&bytes, &cuts, &Bounds::ADMITTED), Ok(all));
    }

    /// Whatever comes, the split does not matter, and no more is kept than the bounds say.
    #[test]
    fn any_bytes_are_requests_or_an_error(
        bytes in prop::collection::vec(prop_oneof![Just(b'*'), Just(b'$'), Just(b'\r'), Just(b'\n'), b'0'..=b'9', any::<u8>()], 0..200),
        cuts in prop::collection::vec(any::<usize>(), 0..12),
    ) {
        prop_assert_eq!(requests(&bytes, &cuts, &SMALL), requests(&bytes, &[], &SMALL));
        let every: Vec<usize> = (0..bytes.len()).collect();
        prop_assert_eq!(requests(&bytes, &every, &SMALL), requests(&bytes, &[], &SMALL));
        prop_assert_eq!(replies(&bytes, &cuts, &SMALL), replies(&bytes, &[], &SMALL));
    }
}

#[test]
fn what_has_no_end_is_an_error() {
    let endless: [(&[u8], &[u8]); 6] = [
        (b"", b"a"),                         // a line
        (b"*", b"1"),                        // a count
        (b"*3\r\n$", b"0"),                  // a length
        (b"*8\r\n", b"$3\r\nabc\r\n*8\r\n"), // no strings
        (b"*8\r\n$64\r\n", b"a"),            // a string without its end
        (b"\"", b"a"),                       // a quote
    ];
    for (begin, more) in endless {
        let mut parser = RequestParser::default();
        parser.feed(begin);
        let mut kept = 0;
        let ended = (0..1000).any(|_| {
            parser.feed(more);
            kept = kept.max(parser.kept());
            loop {
                match parser.next(&SMALL) {
                    Ok(Some(_)) => {}
                    Ok(None) => return false,
                    Err(_) => return true,
                }
            }
        });
        assert!(ended, "{}", begin.escape_ascii());
        assert!(kept <= SMALL.request + SMALL.bulk + more.len() + 2, "{kept}");
    }
}

#[test]
fn huge_numbers_are_refused_before_anything_is_kept() {
    for header in [
        "*9\r\n",
        "*2147483647\r\n",
        "*99999999999999999999999\r\n",
        "*1\r\n$65\r\n",
        "*1\r\n$-1\r\n",
    ] {
        let mut parser = RequestParser::default();
        parser.feed(header.as_bytes());
        assert!(parser.next(&SMALL).is_err(), "{header}");
    }
    // Each string fits, and all together do not.
    let mut parser = RequestParser::default();
    parser.feed(b"*3\r\n");
    for _ in 0..2 {
        parser.feed(b"$60\r\n");
        parser.feed(&[b'a'; 60]);
        parser.feed(b"\r\n");
    }
    assert_eq!(parser.next(&SMALL), Ok(None));
    parser.feed(b"$60\r\n");
    assert!(parser.next(&SMALL).is_err());
    for deep in [
        b"*1\r\n".repeat(4),
        b"*8\r\n:1\r\n*8\r\n".to_vec(),
        b"%9223372036854775807\r\n".to_vec(),
    ] {
        assert!(replies(&deep, &[], &SMALL).is_err(), "{}", deep.escape_ascii());
    }
}

#[test]
fn lines_have_words_and_quotes() {
    let read = |line: &str| requests(format!("{line}\r\n").as_bytes(), &[], &Bounds::ADMITTED);
    assert_eq!(read("  SET  a b "), Ok(vec![Request::of(["SET", "a", "b"])]));
    assert_eq!(
        read(r#"SET "a b" 'it\'s'"#),
        Ok(vec![Request::of(["SET", "a b", "it's"])])
    );
    assert_eq!(read(r#"ECHO "\x41\n\xzz""#), Ok(vec![Request::of(["ECHO", "A\nxzz"])]));
    assert_eq!(read(""), Ok(vec![]));
    for wrong in [r#"SET "a"#, r#"SET "a"b"#, "SET 'a"] {
        assert!(read(wrong).is_err(), "{wrong}");
    }
}

#[test]
fn an_end_of_a_line_in_an_error_does_not_end_the_reply() {
    let mut bytes = Vec::new();
    Writer::new(&mut bytes, Resp::Two).error("ERR unknown command 'a\r\n+OK\r\n'");
    assert_eq!(replies(&bytes, &[], &Bounds::ADMITTED).map(|found| found.len()), Ok(1));
}

#[test]
fn arguments_are_skipped_from_the_front() {
    let mut request = Request::of(["DEADLINE", "5", "GET", "a"]);
    request.skip(2);
    assert_eq!(
        (request.len(), request.argument(0), request.argument(1)),
        (2, &b"GET"[..], &b"a"[..])
    );
    assert_eq!(request.argument(2), b"");
    assert_eq!(request.from(0).count(), 2);
}
