//! Messages on a stream of bytes: each with its length, its version and a checksum.
//!
//! A frame is its length (4 bytes), the CRC32C of the rest (4 bytes), the version of the conversation (1 byte) and the
//! message, by postcard. Numbers are little-endian. Bytes that are no frame, or one too long or of another version,
//! cause a [`FrameError`] as soon as that shows: no memory is reserved for a length that was only claimed.

use serde::Serialize;
use serde::de::DeserializeOwned;

/// Bytes before the version: length and checksum.
const HEAD: usize = 8;
/// The most bytes of zero fields that are missing at the end of an older program's message.
const NEW_FIELDS_MAX: usize = 16;

/// Bytes that are no frame of this conversation. The connection cannot go on, because its next frame cannot be found.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FrameError {
    /// The frame is longer than any message of this conversation.
    #[error("a message of {len} bytes, at most {max} are taken: the other side is no program of this kind")]
    TooLong {
        /// The length in the frame's head, in bytes.
        len: usize,
        /// The longest allowed frame, in bytes.
        max: usize,
    },
    /// The frame is too short for a version, was changed on its way, or holds no message.
    #[error("bytes that are no message: the other side is no program of this kind")]
    Garbled,
    /// The frame's version is none that this program speaks.
    #[error(
        "the other side speaks version {found}, this program version {newest}{}: run the same version on both",
        or_older(*oldest, *newest)
    )]
    Version {
        /// Version of the other side.
        found: u8,
        /// The oldest version that this program speaks.
        oldest: u8,
        /// The newest version that it speaks.
        newest: u8,
    },
}

fn or_older(oldest: u8, newest: u8) -> String {
    match oldest < newest {
        true => format!(" and down to {oldest}"),
        false => String::new(),
    }
}

/// Appends `message` to `out` as a frame.
pub fn write(out: &mut Vec<u8>, version: u8, message: &impl Serialize) {
    let at = out.len();
    out.extend_from_slice(&[0; HEAD]);
    out.push(version);
    // Cannot fail: messages have no map or sequence of unknown length, and a vector grows.
    *out = postcard::to_extend(message, std::mem::take(out)).unwrap_or_default();
    let Some((head, body)) = out.get_mut(at..).and_then(|frame| frame.split_at_mut_checked(HEAD)) else {
        return;
    };
    head[..4].copy_from_slice(&(body.len() as u32).to_le_bytes());
    head[4..].copy_from_slice(&crc32c::crc32c(body).to_le_bytes());
}

/// Splits a stream of bytes into messages.
///
/// ```
/// use punctual_logs::frame::{Frames, write};
/// let mut bytes = Vec::new();
/// write(&mut bytes, 1, &"beat");
/// let mut frames = Frames::new(1, 100);
/// frames.feed(&bytes[..5]);
/// assert_eq!(frames.take::<String>(), Ok(None));
/// frames.feed(&bytes[5..]);
/// assert_eq!(frames.take(), Ok(Some("beat".to_owned())));
/// ```
#[derive(Debug)]
pub struct Frames {
    oldest: u8,
    newest: u8,
    /// Version of the last message.
    spoken: u8,
    max: usize,
    buffer: Vec<u8>,
    /// Bytes before this index have been returned as messages.
    at: usize,
}

impl Frames {
    /// Expects frames of `version`, of at most `max` bytes each.
    pub fn new(version: u8, max: usize) -> Frames {
        Frames::between([version; 2], max)
    }

    /// Expects frames of a version between the oldest and the newest one, of at most `max` bytes each. A newer version
    /// differs from an older one by variants behind the last one of an enum, which are not sent to older programs, and
    /// by fields at a message's end: older programs ignore them, and in their messages these fields are zero.
    pub fn between([oldest, newest]: [u8; 2], max: usize) -> Frames {
        Frames {
            oldest,
            newest,
            spoken: newest,
            max,
            buffer: Vec::new(),
            at: 0,
        }
    }

    /// Changes the bound: frames may have at most `max` bytes from now on.
    pub fn allow(&mut self, max: usize) {
        self.max = max;
    }

    /// Version of the last message; before the first one, the newest version.
    pub fn spoken(&self) -> u8 {
        self.spoken
    }

    pub fn feed(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// Number of bytes that belong to no returned message.
    pub fn kept(&self) -> usize {
        self.buffer.len() - self.at
    }

    /// The next message; `None` where more bytes are needed.
    ///
    /// # Errors
    /// [`FrameError`]; the rest of the stream cannot be read then.
    pub fn take<M: DeserializeOwned>(&mut self) -> Result<Option<M>, FrameError> {
        let rest = self.buffer.get(self.at..).unwrap_or_default();
        let Some((head, rest)) = rest.split_at_checked(HEAD) else {
            self.tidy();
            return Ok(None);
        };
        let number = |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        let (len, sum) = (number(0) as usize, number(4));
        if len > self.max {
            return Err(FrameError::TooLong { len, max: self.max });
        }
        let Some(body) = rest.get(..len) else {
            self.tidy();
            return Ok(None);
        };
        if crc32c::crc32c(body) != sum {
            return Err(FrameError::Garbled);
        }
        let (&found, message) = body.split_first().ok_or(FrameError::Garbled)?;
        let (oldest, newest) = (self.oldest, self.newest);
        if !(oldest..=newest).contains(&found) {
            return Err(FrameError::Version { found, oldest, newest });
        }
        let message = match found < newest {
            true => postcard::from_bytes(&[message, &[0; NEW_FIELDS_MAX]].concat()),
            false => postcard::from_bytes(message),
        };
        let message = message.map_err(|_| FrameError::Garbled)?;
        self.spoken = found;
        self.at += HEAD + len;
        Ok(Some(message))
    }

    /// Releases memory: returned messages, and the capacity that a long message needed.
    fn tidy(&mut self) {
        /// The capacity that an idle connection keeps, in bytes.
        const KEPT_MAX: usize = 64 << 10;
        self.buffer.drain(..self.at);
        self.at = 0;
        if self.buffer.is_empty() && self.buffer.capacity() > KEPT_MAX {
            self.buffer = Vec::new();
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    type Message = (u64, Vec<Vec<u8>>, Option<String>);

    fn split(bytes: &[u8], cuts: &[usize], mut take: impl FnMut(&[u8])) {
        let mut at = 0;
        for cut in cuts.iter().copied().cycle().take(bytes.len()) {
            let end = (at + cut).min(bytes.len());
            take(&bytes[at..end]);
            at = end;
        }
    }

    proptest! {
        #[test]
        fn what_was_written_is_read_however_it_is_split(
            messages in prop::collection::vec(any::<Message>(), 0..6), cuts in prop::collection::vec(1..50_usize, 1..9),
        ) {
            let mut bytes = Vec::new();
            messages.iter().for_each(|message| write(&mut bytes, 3, message));
            let (mut frames, mut found) = (Frames::new(3, 1 << 20), Vec::new());
            split(&bytes, &cuts, |piece| {
                frames.feed(piece);
                while let Some(message) = frames.take::<Message>().unwrap() {
                    found.push(message);
                }
            });
            prop_assert_eq!(found, messages);
            prop_assert_eq!(frames.kept(), 0);
        }

        #[test]
        fn any_bytes_are_frames_or_refused(bytes in any::<Vec<u8>>()) {
            let mut frames = Frames::new(3, 64);
            frames.feed(&bytes);
            while let Ok(Some(_)) = frames.take::<Message>() {}
            prop_assert!(frames.kept() <= bytes.len());
        }

        #[test]
        fn a_changed_bit_is_found(message in any::<Message>(), at in any::<prop::sample::Index>(), bit in 0..8_u32) {
            let mut bytes = Vec::new();
            write(&mut bytes, 3, &message);
            let at = at.index(bytes.len());
            bytes[at] ^= 1 << bit;
            let mut frames = Frames::new(3, 1 << 20);
            frames.feed(&bytes);
            // A length that is longer now waits for more, which the bound of the caller ends.
            prop_assert!(!matches!(frames.take::<Message>(), Ok(Some(_))));
        }
    }

    #[test]
    fn a_length_that_is_only_claimed_takes_no_room() {
        let mut frames = Frames::new(3, 1 << 20);
        frames.feed(b"GET / HTTP/1.1");
        assert_eq!(
            frames.take::<Message>(),
            Err(FrameError::TooLong {
                len: 0x2054_4547,
                max: 1 << 20
            })
        );
        // A vector of 2^62 elements, in ten bytes.
        let mut bytes = Vec::new();
        write(&mut bytes, 3, &(1_u64 << 62));
        let mut frames = Frames::new(3, 1 << 20);
        frames.feed(&bytes);
        assert_eq!(frames.take::<Vec<u64>>(), Err(FrameError::Garbled));
    }

    /// The newer program knows a further field, of which the older one has never heard.
    #[test]
    fn two_adjacent_versions_read_each_other() {
        let (mut older, mut newer) = (Vec::new(), Vec::new());
        write(&mut older, 4, &(7_u64, "both"));
        write(&mut newer, 5, &(7_u64, "both", true));
        let mut frames = Frames::between([4, 5], 1 << 20);
        assert_eq!(frames.spoken(), 5);
        frames.feed(&older);
        assert_eq!(frames.take(), Ok(Some((7_u64, "both".to_owned(), false))));
        assert_eq!(frames.spoken(), 4);
        frames.feed(&newer);
        assert_eq!(frames.take(), Ok(Some((7_u64, "both".to_owned(), true))));
        write(&mut older, 3, &7_u64);
        frames.feed(&older[older.len() - 10..]);
        let error = frames.take::<u64>().expect_err("of two versions ago");
        assert!(
            error
                .to_string()
                .contains("version 3, this program version 5 and down to 4"),
            "{error}"
        );
    }

    #[test]
    fn another_version_is_refused() {
        let mut bytes = Vec::new();
        write(&mut bytes, 4, &"later");
        let mut frames = Frames::new(3, 1 << 20);
        frames.feed(&bytes);
        assert_eq!(
            frames.take::<String>(),
            Err(FrameError::Version {
                found: 4,
                oldest: 3,
                newest: 3
            })
        );
    }
}
