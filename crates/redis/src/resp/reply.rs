//! Parses replies from a socket, for programs of this project that ask other nodes, and for tests.

use super::{Bounds, HEADER_MAX, ProtocolError, Reply, line, number};

/// Parser of replies: takes bytes as they arrive, returns whole replies.
///
/// ```
/// use punctual_redis::resp::{Bounds, Reply, reply::ReplyParser};
/// let mut parser = ReplyParser::default();
/// parser.feed(b"*2\r\n:1\r\n$-");
/// assert_eq!(parser.next(&Bounds::ADMITTED), Ok(None));
/// parser.feed(b"1\r\n");
/// assert_eq!(parser.next(&Bounds::ADMITTED), Ok(Some(Reply::Array(vec![Reply::Integer(1), Reply::Null]))));
/// ```
#[derive(Debug, Default)]
pub struct ReplyParser {
    buffer: Vec<u8>,
    at: usize,
    /// The arrays that have begun but not ended, the outermost first.
    open: Vec<Open>,
    /// Number of elements of all arrays in `open`, announced by their headers.
    elements: usize,
}

/// An array, a map, a set or a push with elements missing.
#[derive(Debug)]
struct Open {
    mark: u8,
    missing: usize,
    values: Vec<Reply>,
}

impl Open {
    fn end(self) -> Reply {
        match self.mark {
            b'~' => Reply::Set(self.values),
            b'>' => Reply::Push(self.values),
            b'%' => {
                let mut values = self.values.into_iter();
                Reply::Map(std::iter::from_fn(|| Some((values.next()?, values.next()?))).collect())
            }
            _ => Reply::Array(self.values),
        }
    }
}

impl ReplyParser {
    /// Appends bytes that have arrived.
    pub fn feed(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// Returns the next reply; `None` if more bytes are needed.
    ///
    /// # Errors
    /// [`ProtocolError`]; nothing that follows can be read.
    pub fn next(&mut self, bounds: &Bounds) -> Result<Option<Reply>, ProtocolError> {
        loop {
            let Some(mut value) = self.element(bounds)? else {
                self.buffer.drain(..self.at);
                self.at = 0;
                return Ok(None);
            };
            // The value completes arrays from the inside out.
            loop {
                let Some(mut open) = self.open.pop() else {
                    self.elements = 0;
                    return value.map_or_else(
                        || Err(ProtocolError::new("an array that has not begun")),
                        |v| Ok(Some(v)),
                    );
                };
                if let Some(value) = value.take() {
                    open.values.push(value);
                    open.missing -= 1;
                }
                if open.missing > 0 {
                    self.open.push(open);
                    break;
                }
                value = Some(open.end());
            }
        }
    }

    /// Parses a value that is no array (`Some(Some(value))`), or the header of an array (`Some(None)`).
    fn element(&mut self, bounds: &Bounds) -> Result<Option<Option<Reply>>, ProtocolError> {
        let Some(mark) = self.buffer.get(self.at).copied() else {
            return Ok(None);
        };
        let is_text = matches!(mark, b'+' | b'-');
        let max = if is_text { bounds.inline } else { HEADER_MAX };
        let Some((header, next)) = line(&self.buffer, self.at, max)? else {
            return Ok(None);
        };
        let Some(header) = header.get(1..) else {
            return Err(ProtocolError::new("an empty line begins no value"));
        };
        let text = || {
            let text = std::str::from_utf8(header).map_err(|_| ProtocolError::new("a line that is no text"))?;
            Ok::<_, ProtocolError>(text.to_owned())
        };
        let counted = || number(header).ok_or_else(|| ProtocolError::new("a number was expected"));
        let value = match mark {
            b'+' => Reply::Simple(text()?),
            b'-' => Reply::Error(text()?),
            b':' => Reply::Integer(counted()?),
            b'_' => Reply::Null,
            b'$' | b'=' if counted()? < 0 => Reply::Null,
            b'$' | b'=' => {
                let length = usize::try_from(counted()?).ok().filter(|length| *length <= bounds.bulk);
                let length = length.ok_or_else(|| ProtocolError::new("invalid bulk length"))?;
                let Some(content) = self.buffer.get(next..next + length + 2) else {
                    return Ok(None);
                };
                let content = content
                    .strip_suffix(b"\r\n")
                    .ok_or_else(|| ProtocolError::new("a string is longer than its header says"))?;
                let value = if mark == b'$' {
                    Reply::bulk(content)
                } else {
                    let text = std::str::from_utf8(content).ok().and_then(|text| text.get(4..));
                    Reply::Verbatim(
                        text.ok_or_else(|| ProtocolError::new("a text without a format"))?
                            .to_owned(),
                    )
                };
                self.at = next + length + 2;
                return Ok(Some(Some(value)));
            }
            b'*' if counted()? < 0 => Reply::NullArray,
            b'*' | b'%' | b'~' | b'>' => {
                let times = if mark == b'%' { 2 } else { 1 };
                let count = usize::try_from(counted()?)
                    .ok()
                    .and_then(|count| count.checked_mul(times));
                let count = count.filter(|count| self.elements.saturating_add(*count) <= bounds.arguments);
                let count = count.ok_or_else(|| ProtocolError::new("too many elements"))?;
                if self.open.len() >= bounds.depth {
                    return Err(ProtocolError::new("too many arrays within arrays"));
                }
                self.elements += count;
                self.open.push(Open {
                    mark,
                    missing: count,
                    values: Vec::new(),
                });
                self.at = next;
                return Ok(Some(None));
            }
            other => {
                let found = other.escape_ascii();
                return Err(ProtocolError::new(format!("'{found}' begins no value")));
            }
        };
        self.at = next;
        Ok(Some(Some(value)))
    }
}
