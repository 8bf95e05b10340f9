//! Encodes replies as bytes.

use super::{Reply, Resp};

/// Writes replies in the encoding of one protocol version.
///
/// ```
/// use punctual_redis::resp::{Reply, Resp, Writer};
/// let mut out = Vec::new();
/// Writer::new(&mut out, Resp::Two).value(&Reply::Map(vec![(Reply::bulk("age"), Reply::Integer(7))]));
/// assert_eq!(out, b"*2\r\n$3\r\nage\r\n:7\r\n");
/// ```
#[derive(Debug)]
pub struct Writer<'o> {
    out: &'o mut Vec<u8>,
    version: Resp,
    /// The greatest length of `out`; strings beyond it are left out.
    limit: usize,
    over: bool,
}

impl<'o> Writer<'o> {
    /// Makes a writer that appends to `out`.
    #[inline]
    pub fn new(out: &'o mut Vec<u8>, version: Resp) -> Writer<'o> {
        Writer {
            out,
            version,
            limit: usize::MAX,
            over: false,
        }
    }

    /// Makes a writer that appends to `out` at most `limit` bytes of strings, and a little more for headers.
    #[inline]
    pub fn bounded(out: &'o mut Vec<u8>, version: Resp, limit: usize) -> Writer<'o> {
        let limit = out.len().saturating_add(limit);
        Writer {
            limit,
            ..Writer::new(out, version)
        }
    }

    /// Whether something was left out; then the bytes written are no whole reply.
    #[inline]
    pub fn is_over(&self) -> bool {
        self.over
    }

    #[inline]
    fn header(&mut self, mark: u8, count: i64) {
        self.out.push(mark);
        let mut digits = [0; 20];
        let mut at = digits.len();
        let mut left = count.unsigned_abs();
        loop {
            at -= 1;
            digits[at] = b'0' + (left % 10) as u8;
            left /= 10;
            if left == 0 {
                break;
            }
        }
        if count < 0 {
            self.out.push(b'-');
        }
        self.out.extend_from_slice(&digits[at..]);
        self.out.extend_from_slice(b"\r\n");
    }

    /// Writes a line after its mark. Blanks replace line ends within it, which would end the reply.
    #[inline]
    fn line(&mut self, mark: u8, text: &str) {
        self.out.push(mark);
        let safe = |byte: u8| if byte == b'\r' || byte == b'\n' { b' ' } else { byte };
        self.out.extend(text.bytes().map(safe));
        self.out.extend_from_slice(b"\r\n");
    }

    /// Writes one line of text.
    #[inline]
    pub fn simple(&mut self, text: &str) {
        self.line(b'+', text);
    }

    /// Writes an error in one line.
    pub fn error(&mut self, text: &str) {
        self.line(b'-', text);
    }

    /// Writes a signed number of 64 bits.
    #[inline]
    pub fn integer(&mut self, number: i64) {
        self.header(b':', number);
    }

    /// Writes a string, unless that would exceed the limit.
    #[inline]
    pub fn bulk(&mut self, bytes: &[u8]) {
        if self.out.len().saturating_add(bytes.len()) > self.limit {
            self.over = true;
            return;
        }
        self.header(b'$', bytes.len() as i64);
        self.out.extend_from_slice(bytes);
        self.out.extend_from_slice(b"\r\n");
    }

    /// Writes a string, or the absence of one.
    pub fn optional(&mut self, bytes: Option<impl AsRef<[u8]>>) {
        match bytes {
            Some(bytes) => self.bulk(bytes.as_ref()),
            None => self.null(),
        }
    }

    /// Writes the absence of a value.
    #[inline]
    pub fn null(&mut self) {
        match self.version {
            Resp::Two => self.out.extend_from_slice(b"$-1\r\n"),
            Resp::Three => self.out.extend_from_slice(b"_\r\n"),
        }
    }

    /// Writes the absence of an array, which RESP2 tells from other nulls.
    pub fn null_array(&mut self) {
        match self.version {
            Resp::Two => self.out.extend_from_slice(b"*-1\r\n"),
            Resp::Three => self.out.extend_from_slice(b"_\r\n"),
        }
    }

    /// Writes the header of an array of `count` values, which the caller writes next.
    pub fn array(&mut self, count: usize) {
        self.header(b'*', count as i64);
    }

    /// Writes the header of an array of `count` pairs, which the caller writes next, each behind `pair`.
    pub fn pairs(&mut self, count: usize) {
        self.array(if self.version == Resp::Two { 2 * count } else { count });
    }

    /// Begins a pair: an array of its own in RESP3.
    pub fn pair(&mut self) {
        if self.version == Resp::Three {
            self.array(2);
        }
    }

    /// Writes the header of a map of `count` pairs, which the caller writes next.
    pub fn map(&mut self, count: usize) {
        match self.version {
            Resp::Two => self.header(b'*', count as i64 * 2),
            Resp::Three => self.header(b'%', count as i64),
        }
    }

    fn several(&mut self, mark: u8, values: &[Reply]) {
        let mark = match self.version {
            Resp::Two => b'*',
            Resp::Three => mark,
        };
        self.header(mark, values.len() as i64);
        values.iter().for_each(|value| self.value(value));
    }

    /// Writes a value with all values inside it.
    pub fn value(&mut self, value: &Reply) {
        let three = self.version == Resp::Three;
        match value {
            Reply::Simple(text) => self.simple(text),
            Reply::Error(text) => self.error(text),
            Reply::Integer(number) => self.integer(*number),
            Reply::Bulk(bytes) => self.bulk(bytes),
            Reply::Null => self.null(),
            Reply::NullArray => self.null_array(),
            Reply::Array(values) => self.several(b'*', values),
            Reply::Set(values) => self.several(b'~', values),
            Reply::Push(values) => self.several(b'>', values),
            Reply::Map(pairs) => {
                self.map(pairs.len());
                for (key, value) in pairs {
                    self.value(key);
                    self.value(value);
                }
            }
            Reply::Verbatim(text) if three => {
                self.header(b'=', text.len() as i64 + 4);
                self.out.extend_from_slice(b"txt:");
                self.out.extend_from_slice(text.as_bytes());
                self.out.extend_from_slice(b"\r\n");
            }
            Reply::Verbatim(text) => self.bulk(text.as_bytes()),
        }
    }
}
