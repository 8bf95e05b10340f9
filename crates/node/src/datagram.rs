//! Readings for all peers at once, in one datagram: its bytes, and which numbers have arrived.
//!
//! A datagram is a head and, as a frame, the newest stamp of each peer and the readings. The head names the federation,
//! the source, the number of its start and the datagram's number in it, from 1 on. Where nodes speak TLS with each
//! other, all but the head is sealed (ChaCha20-Poly1305, with the head as associated data): each source draws a key at
//! its start and sends it to each peer by TLS. A number is used once in a start, so no nonce is used twice.
//!
//! A datagram may be lost. Its readings are replaced by the objects' next readings, or after 200 ms sent over TCP,
//! because the peer has not acknowledged them: for a peer's feed a datagram is one more way of sending.

use std::fmt;
use std::net::{Ipv4Addr, SocketAddrV4};

use punctual_federation::ids::{FederationId, NodeId};
use punctual_federation::temporal::{ReadingReport, Stamp, Together};
use punctual_logs::frame::{self, Frames};
use serde::{Deserialize, Serialize};

/// Version of the format of datagrams.
const VERSION: u8 = 1;
/// Length of a head in bytes.
const HEAD: usize = 30;
/// A reading is added to a datagram of at most this many bytes: as an Ethernet frame carries.
pub const TOGETHER_BYTES: usize = 1_400;
/// The longest datagram that is read: one reading of 1 KiB with stamps of 63 peers, twice.
pub const DATAGRAM_BYTES_MAX: usize = 8 << 10;
/// Numbers behind the newest by up to this are remembered: a late datagram is taken, a repeated one refused.
const WINDOW: u64 = 64;

/// The multicast group through which each node sends to all others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Multicast {
    /// The group's address, and the port, the same on all nodes.
    pub group: SocketAddrV4,
    /// The address of this machine's interface; [`Ipv4Addr::UNSPECIFIED`]: as the system chooses.
    pub interface: Ipv4Addr,
}

/// Counts of datagrams since the node started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Datagrams {
    /// Datagrams sent to the group.
    pub sent: u64,
    /// Datagrams that the system did not take; their readings go out over TCP.
    pub unsent: u64,
    /// Datagrams that were no peer's, or could not be opened.
    pub refused: u64,
}

/// Key that a source draws at its start and gives to its peers only; no message shows it.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Secret([u8; 32]);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

#[cfg(feature = "tls")]
impl Secret {
    /// Draws a new key; `None` where the system has no random bytes.
    pub fn draw() -> Option<Secret> {
        use ring::rand::SecureRandom;
        let mut bytes = [0; 32];
        ring::rand::SystemRandom::new().fill(&mut bytes).ok()?;
        Some(Secret(bytes))
    }
}

/// Seals and opens datagrams with one key.
#[cfg(feature = "tls")]
pub struct Seal(ring::aead::LessSafeKey);

/// Uninhabited without TLS, where nothing is sealed.
#[cfg(not(feature = "tls"))]
pub enum Seal {}

impl fmt::Debug for Seal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Seal(..)")
    }
}

#[cfg(feature = "tls")]
impl Seal {
    /// Makes a seal with this key; `None` if the key does not fit the cipher.
    pub fn new(secret: &Secret) -> Option<Seal> {
        let key = ring::aead::UnboundKey::new(&ring::aead::CHACHA20_POLY1305, &secret.0).ok()?;
        Some(Seal(ring::aead::LessSafeKey::new(key)))
    }

    fn nonce(number: u64) -> ring::aead::Nonce {
        let mut nonce = [0; 12];
        nonce[..8].copy_from_slice(&number.to_le_bytes());
        ring::aead::Nonce::assume_unique_for_key(nonce)
    }

    fn close(&self, out: &mut Vec<u8>, number: u64) -> bool {
        let Some((head, _)) = out.split_first_chunk::<HEAD>() else {
            return false;
        };
        let along = ring::aead::Aad::from(*head);
        let mut body = out.split_off(HEAD);
        let closed = self.0.seal_in_place_append_tag(Seal::nonce(number), along, &mut body);
        out.append(&mut body);
        closed.is_ok()
    }

    fn open<'b>(&self, head: &[u8], body: &'b mut [u8], number: u64) -> Option<&'b [u8]> {
        let along = ring::aead::Aad::from(head);
        let opened = self.0.open_in_place(Seal::nonce(number), along, body);
        opened.ok().map(|opened| &*opened)
    }
}

#[cfg(not(feature = "tls"))]
impl Seal {
    /// Without TLS there is no seal.
    pub fn new(_: &Secret) -> Option<Seal> {
        None
    }

    fn close(&self, _: &mut Vec<u8>, _: u64) -> bool {
        match *self {}
    }

    fn open<'b>(&self, _: &[u8], _: &'b mut [u8], _: u64) -> Option<&'b [u8]> {
        match *self {}
    }
}

/// The unsealed part of a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// The federation whose nodes may read the datagram.
    pub federation: FederationId,
    /// The node whose readings these are.
    pub source: NodeId,
    /// Number of the source's start, above those of all starts before.
    pub boot: u64,
    /// Number of the datagram in that start, from 1 on.
    pub number: u64,
    /// Whether the frame after the head is sealed.
    pub is_sealed: bool,
}

impl Head {
    /// Parses the head; `None` if the bytes are no datagram of this version.
    pub fn of(bytes: &[u8]) -> Option<Head> {
        let (head, _) = bytes.split_first_chunk::<HEAD>()?;
        let number = |at: usize| head[at..].first_chunk().map(|bytes| u64::from_le_bytes(*bytes));
        let source = head[10..].first_chunk().map(|bytes| u32::from_le_bytes(*bytes))?;
        (head[0] == VERSION && head[1] <= 1).then_some(())?;
        Some(Head {
            federation: FederationId(number(2)?),
            source: NodeId(source),
            boot: number(14)?,
            number: number(22)?,
            is_sealed: head[1] == 1,
        })
    }

    fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&[VERSION, u8::from(self.is_sealed)]);
        out.extend_from_slice(&self.federation.0.to_le_bytes());
        out.extend_from_slice(&self.source.0.to_le_bytes());
        out.extend_from_slice(&self.boot.to_le_bytes());
        out.extend_from_slice(&self.number.to_le_bytes());
    }
}

/// Writes a datagram over the bytes of `out`; returns whether sealing it succeeded.
pub fn write(
    out: &mut Vec<u8>,
    head: &Head,
    seal: Option<&Seal>,
    stamps: &[(NodeId, Stamp)],
    readings: Together<'_>,
) -> bool {
    out.clear();
    head.write(out);
    frame::write(out, VERSION, &(stamps, readings));
    seal.is_none_or(|seal| seal.close(out, head.number))
}

/// Reads a datagram with this head, for the peer `me`. Each report gets the stamp of `me` in the datagram: the newest
/// that the source had received before it took any of the readings. `Ok(None)`: the source had no stamp of `me` yet.
///
/// # Errors
/// The datagram cannot be opened, or is malformed.
pub fn read(
    head: &Head,
    bytes: &mut [u8],
    seal: Option<&Seal>,
    me: NodeId,
) -> Result<Option<Vec<ReadingReport>>, NoDatagram> {
    let (front, body) = bytes.split_at_mut_checked(HEAD).ok_or(NoDatagram)?;
    let body = match seal {
        Some(seal) => seal.open(front, body, head.number).ok_or(NoDatagram)?,
        None => body,
    };
    let mut frames = Frames::new(VERSION, DATAGRAM_BYTES_MAX);
    frames.feed(body);
    let whole = frames.take::<(Vec<(NodeId, Stamp)>, Vec<ReadingReport>)>();
    let (stamps, mut reports) = whole.ok().flatten().ok_or(NoDatagram)?;
    let Some((_, stamp)) = stamps.into_iter().find(|(node, _)| *node == me) else {
        return Ok(None);
    };
    reports.iter_mut().for_each(|report| report.stamp = stamp);
    Ok(Some(reports))
}

/// Bytes that are no datagram of a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("bytes that are no datagram of a peer")]
pub struct NoDatagram;

/// Numbers of a source's datagrams that have arrived. A new start of the source begins anew, without a gap.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Came {
    boot: u64,
    newest: u64,
    /// Bit n: number `newest - n` has arrived.
    window: u64,
    /// Datagrams that arrived for the first time.
    pub taken: u64,
    /// Numbers missing between those that arrived.
    pub missing: u64,
    /// Datagrams that came twice, too late, or from an earlier start.
    pub repeated: u64,
}

impl Came {
    /// Takes note of a number; returns whether it has arrived for the first time.
    pub fn takes(&mut self, boot: u64, number: u64) -> bool {
        let is_new = if boot > self.boot {
            // Numbers before the first are no gap: this node has come later.
            (self.boot, self.newest, self.window) = (boot, number, u64::MAX);
            true
        } else if boot < self.boot {
            false
        } else if number > self.newest {
            let ahead = number - self.newest;
            self.missing += ahead - 1;
            self.window = if ahead < WINDOW { self.window << ahead | 1 } else { 1 };
            self.newest = number;
            true
        } else {
            let behind = self.newest - number;
            let is_missing = behind < WINDOW && self.window >> behind & 1 == 0;
            if is_missing {
                self.window |= 1 << behind;
                self.missing -= 1;
            }
            is_missing
        };
        match is_new {
            true => self.taken += 1,
            false => self.repeated += 1,
        }
        is_new
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use punctual_federation::temporal::{Feed, FeedBounds};
    use punctual_units::{Nanos, ObjectName, Seq, Time};

    use super::*;

    const HEAD_OF_3: Head = Head {
        federation: FederationId(7),
        source: NodeId(3),
        boot: 1 << 40,
        number: 9,
        is_sealed: false,
    };

    fn written(head: &Head, seal: Option<&Seal>) -> Vec<u8> {
        let mut feed = Feed::new(FeedBounds::default(), Stamp { boot: 0, at: Time(0) });
        for sequence in 0..3 {
            let made = ObjectName {
                source: 3,
                boot: 1,
                sequence,
            };
            feed.offer(made, Seq(5), Nanos(sequence), b"value").unwrap();
        }
        let (mut room, mut out) = (Vec::new(), vec![1, 2, 3]);
        let stamps = [2, 1].map(|node| {
            (
                NodeId(node),
                Stamp {
                    boot: 4,
                    at: Time(u64::from(node)),
                },
            )
        });
        let together = feed.given(TOGETHER_BYTES, &mut room).unwrap();
        assert!(write(&mut out, head, seal, &stamps, together));
        out
    }

    #[test]
    fn each_peer_reads_its_own_stamp() {
        let mut bytes = written(&HEAD_OF_3, None);
        let head = Head::of(&bytes).unwrap();
        assert_eq!(head, HEAD_OF_3);
        for node in [1, 2] {
            let reports = read(&head, &mut bytes, None, NodeId(node)).unwrap().unwrap();
            assert_eq!(reports.len(), 3);
            let is_right =
                |report: &ReadingReport| report.stamp.at == Time(u64::from(node)) && report.value == b"value";
            assert!(reports.iter().all(is_right), "{reports:?}");
        }
        assert_eq!(read(&head, &mut bytes, None, NodeId(9)), Ok(None));
    }

    #[cfg(feature = "tls")]
    #[test]
    fn what_is_sealed_is_read_with_the_key_alone_and_as_it_was_written() {
        let secret = Secret::draw().unwrap();
        assert_eq!(format!("{secret:?}"), "Secret(..)");
        let (seal, other) = (
            Seal::new(&secret).unwrap(),
            Seal::new(&Secret::draw().unwrap()).unwrap(),
        );
        let sealed = Head {
            is_sealed: true,
            ..HEAD_OF_3
        };
        let bytes = written(&sealed, Some(&seal));
        assert!(!bytes.windows(5).any(|part| part == b"value"), "it is shown");
        let read = |bytes: &[u8], seal| {
            let head = Head::of(bytes).ok_or(NoDatagram)?;
            read(&head, &mut bytes.to_vec(), seal, NodeId(1)).map(|reports| reports.map(|reports| reports.len()))
        };
        assert_eq!(read(&bytes, Some(&seal)), Ok(Some(3)));
        assert_eq!(read(&bytes, Some(&other)), Err(NoDatagram));
        assert_eq!(read(&bytes, None), Err(NoDatagram));
        for at in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[at] ^= 1;
            assert_eq!(read(&changed, Some(&seal)), Err(NoDatagram), "byte {at}");
        }
    }

    proptest! {
        /// Numbers that are lost, doubled and moved by a few places, against a set of all that have come.
        #[test]
        fn gaps_are_what_has_not_come(moves in prop::collection::vec((0..5_u8, 0..20_u64), 1..300)) {
            let mut sent: Vec<(u64, u64)> = Vec::new();
            for (number, (what, by)) in (1u64..).zip(&moves) {
                let copies = [1, 1, 1, 0, 2][usize::from(*what)];
                (0..copies).for_each(|copy| sent.push((number + by * copy, number)));
            }
            sent.sort_by_key(|(at, _)| *at);
            let (mut came, mut seen) = (Came::default(), std::collections::BTreeSet::new());
            for (_, number) in &sent {
                let is_new = seen.first().is_none_or(|first| number > first) && !seen.contains(number);
                prop_assert_eq!(came.takes(5, *number), is_new);
                if is_new {
                    seen.insert(*number);
                }
            }
            let (Some(first), Some(last)) = (seen.first(), seen.last()) else { return Ok(()) };
            prop_assert_eq!(came.missing, last - first + 1 - seen.len() as u64);
            prop_assert_eq!((came.taken, came.repeated), (seen.len() as u64, (sent.len() - seen.len()) as u64));
            // A start of the source is no gap; one of before is no news.
            let missing = came.missing;
            prop_assert!(came.takes(6, 700) && !came.takes(5, 9_999) && came.takes(6, 701));
            prop_assert_eq!(came.missing, missing);
        }

        #[test]
        fn any_bytes_are_a_datagram_or_refused(mut bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            if let Some(first) = bytes.first_mut() {
                *first = VERSION;
            }
            if let Some(head) = Head::of(&bytes) {
                let _ = read(&head, &mut bytes, None, NodeId(1)); // no panic
            }
        }
    }
}
