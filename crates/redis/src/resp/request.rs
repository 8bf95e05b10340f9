//! Parses requests from a socket.

use super::{Bounds, HEADER_MAX, ProtocolError, line, number};

/// A request: the name of a command, and its arguments.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Request {
    /// All arguments without gaps; `ends` has the end of each.
    bytes: Vec<u8>,
    ends: Vec<u32>,
    /// Number of arguments in front that are left out.
    skipped: usize,
}

impl Request {
    /// Makes a request of these arguments, the name first.
    pub fn of<A: AsRef<[u8]>>(arguments: impl IntoIterator<Item = A>) -> Request {
        let mut request = Request::default();
        for argument in arguments {
            request.push(argument.as_ref());
        }
        request
    }

    fn push(&mut self, argument: &[u8]) {
        /// Room for a name and a short key, so that most requests allocate once.
        const ROOM: usize = 32;
        if self.bytes.capacity() == 0 {
            self.bytes.reserve(argument.len().max(ROOM));
        }
        self.bytes.extend_from_slice(argument);
        self.ends.push(self.bytes.len() as u32);
    }

    /// Number of arguments, the name included.
    #[inline]
    pub fn len(&self) -> usize {
        self.ends.len() - self.skipped
    }

    /// Whether the request has neither name nor arguments.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Argument `at`, where 0 is the name; empty beyond the last.
    #[inline]
    pub fn argument(&self, at: usize) -> &[u8] {
        let at = at + self.skipped;
        let begin = at
            .checked_sub(1)
            .and_then(|before| self.ends.get(before))
            .map_or(0, |end| *end as usize);
        let end = self.ends.get(at).map_or(begin, |end| *end as usize);
        &self.bytes[begin..end]
    }

    /// Returns the arguments from `at` on.
    #[inline]
    pub fn from(&self, at: usize) -> impl Iterator<Item = &[u8]> {
        (at..self.len()).map(|at| self.argument(at))
    }

    /// Bytes of the request in memory: its arguments, their ends, and itself.
    #[inline]
    pub fn bytes(&self) -> usize {
        self.bytes.len() + size_of_val(&self.ends[..]) + size_of::<Request>()
    }

    /// Leaves out `count` more arguments in front.
    #[inline]
    pub fn skip(&mut self, count: usize) {
        self.skipped = (self.skipped + count).min(self.ends.len());
    }
}

/// Parser of requests: takes bytes as they arrive, returns whole requests.
///
/// ```
/// use punctual_redis::resp::{Bounds, request::{Request, RequestParser}};
/// let mut parser = RequestParser::default();
/// parser.feed(b"*2\r\n$3\r\nGET\r\n$4\r\ndo");
/// assert_eq!(parser.next(&Bounds::ADMITTED), Ok(None));
/// parser.feed(b"or\r\nPING\r\n");
/// assert_eq!(parser.next(&Bounds::ADMITTED), Ok(Some(Request::of(["GET", "door"]))));
/// assert_eq!(parser.next(&Bounds::ADMITTED), Ok(Some(Request::of(["PING"]))));
/// ```
#[derive(Debug, Default)]
pub struct RequestParser {
    buffer: Vec<u8>,
    /// Start of the bytes in `buffer` that are not parsed yet.
    at: usize,
    /// A request with arguments missing.
    partial: Option<Partial>,
}

#[derive(Debug)]
struct Partial {
    request: Request,
    missing: usize,
    /// Length of the next argument, if its header has been read.
    bulk: Option<usize>,
}

impl RequestParser {
    /// Appends bytes that have arrived.
    #[inline]
    pub fn feed(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// Bytes kept of requests that are not returned yet.
    #[inline]
    pub fn kept(&self) -> usize {
        self.buffer.len() - self.at + self.partial.as_ref().map_or(0, |partial| partial.request.bytes())
    }

    /// Whether part of a request has arrived that is not returned yet.
    #[inline]
    pub fn is_inside(&self) -> bool {
        self.kept() > 0 || self.partial.is_some()
    }

    /// Returns the next request; `None` if more bytes are needed.
    ///
    /// # Errors
    /// [`ProtocolError`]; nothing that follows can be read.
    #[inline]
    pub fn next(&mut self, bounds: &Bounds) -> Result<Option<Request>, ProtocolError> {
        let found = self.advance(bounds)?;
        if found.is_none() || self.at == self.buffer.len() {
            self.tidy();
        }
        Ok(found)
    }

    /// Frees memory: parsed bytes, and the room that a long request has left.
    fn tidy(&mut self) {
        /// The most room that an idle connection keeps.
        const KEPT_MAX: usize = 16 << 10;
        self.buffer.drain(..self.at);
        self.at = 0;
        if self.buffer.is_empty() && self.buffer.capacity() > KEPT_MAX {
            self.buffer = Vec::new();
        }
    }

    fn advance(&mut self, bounds: &Bounds) -> Result<Option<Request>, ProtocolError> {
        loop {
            if let Some(mut partial) = self.partial.take() {
                if self.arguments(&mut partial, bounds)? {
                    return Ok(Some(partial.request));
                }
                self.partial = Some(partial);
                return Ok(None);
            }
            match self.buffer.get(self.at) {
                None => return Ok(None),
                Some(b'*') => {
                    let Some((header, next)) = line(&self.buffer, self.at, HEADER_MAX)? else {
                        return Ok(None);
                    };
                    let most = i64::try_from(bounds.arguments).unwrap_or(i64::MAX);
                    let count = number(&header[1..]).filter(|count| *count <= most);
                    let count = count.ok_or_else(|| ProtocolError::new("invalid multibulk length"))?;
                    self.at = next;
                    // Redis ignores an array of no elements, or of a negative number of them.
                    if count > 0 {
                        self.partial = Some(Partial {
                            request: Request::default(),
                            missing: count as usize,
                            bulk: None,
                        });
                    }
                }
                Some(_) => {
                    let Some((text, next)) = line(&self.buffer, self.at, bounds.inline)
                        .map_err(|_| ProtocolError::new("too big inline request"))?
                    else {
                        return Ok(None);
                    };
                    let words = words(text)?;
                    self.at = next;
                    if words.len() > bounds.arguments {
                        return Err(ProtocolError::new("too many words on a line"));
                    }
                    if !words.is_empty() {
                        return Ok(Some(words));
                    }
                }
            }
        }
    }

    /// Parses arguments as far as their bytes are there; returns whether the request is whole.
    fn arguments(&mut self, partial: &mut Partial, bounds: &Bounds) -> Result<bool, ProtocolError> {
        while partial.missing > 0 {
            let length = match partial.bulk {
                Some(length) => length,
                None => {
                    let Some((header, next)) = line(&self.buffer, self.at, HEADER_MAX)? else {
                        return Ok(false);
                    };
                    match header.first() {
                        Some(b'$') => {}
                        other => {
                            let found = other.map_or(String::new(), |byte| byte.escape_ascii().to_string());
                            return Err(ProtocolError::new(format!("expected '$', got '{found}'")));
                        }
                    }
                    let length = number(&header[1..]).and_then(|length| usize::try_from(length).ok());
                    let length = length.filter(|length| *length <= bounds.bulk);
                    let length = length.ok_or_else(|| ProtocolError::new("invalid bulk length"))?;
                    if partial.request.bytes.len() + length > bounds.request {
                        return Err(ProtocolError::new(format!(
                            "a request has at most {} bytes",
                            bounds.request
                        )));
                    }
                    self.at = next;
                    *partial.bulk.insert(length)
                }
            };
            let Some(content) = self.buffer.get(self.at..self.at + length + 2) else {
                return Ok(false);
            };
            if !content.ends_with(b"\r\n") {
                return Err(ProtocolError::new("a string is longer than its header says"));
            }
            partial.request.push(&content[..length]);
            self.at += length + 2;
            partial.missing -= 1;
            partial.bulk = None;
        }
        Ok(true)
    }
}

/// Splits a line into words. Quoted words may hold blanks; double quotes allow `\n`, `\r`, `\t`, `\a`, `\b` and `\xHH`.
fn words(line: &[u8]) -> Result<Request, ProtocolError> {
    let unbalanced = || ProtocolError::new("unbalanced quotes in request");
    let mut request = Request::default();
    let mut rest = line.iter().copied().peekable();
    loop {
        while rest.next_if(u8::is_ascii_whitespace).is_some() {}
        let Some(first) = rest.peek().copied() else {
            return Ok(request);
        };
        let mut word = Vec::new();
        match first {
            b'"' | b'\'' => {
                rest.next();
                loop {
                    match rest.next().ok_or_else(unbalanced)? {
                        quote if quote == first => break,
                        b'\\' if first == b'"' => {
                            let escaped = rest.next().ok_or_else(unbalanced)?;
                            word.push(unescaped(escaped, &mut rest));
                        }
                        b'\\' if rest.next_if_eq(&b'\'').is_some() => word.push(b'\''),
                        byte => word.push(byte),
                    }
                }
                if rest.peek().is_some_and(|next| !next.is_ascii_whitespace()) {
                    return Err(unbalanced());
                }
            }
            _ => {
                while let Some(byte) = rest.next_if(|byte| !byte.is_ascii_whitespace()) {
                    word.push(byte);
                }
            }
        }
        request.push(&word);
    }
}

/// Returns the byte that an escape after a backslash stands for.
fn unescaped(escaped: u8, rest: &mut (impl Iterator<Item = u8> + Clone)) -> u8 {
    match escaped {
        b'n' => b'\n',
        b'r' => b'\r',
        b't' => b'\t',
        b'a' => 7,
        b'b' => 8,
        b'x' => {
            let mut ahead = rest.clone();
            let mut digit = || char::from(ahead.next()?).to_digit(16);
            match (digit(), digit()) {
                (Some(high), Some(low)) => {
                    *rest = ahead;
                    (high * 16 + low) as u8
                }
                _ => b'x',
            }
        }
        other => other,
    }
}
