//! A connection that this process dials, and dials again after it has ended.

use std::io;

use mio::Token;
use punctual_federation::ids::FederationId;
use punctual_logs::frame::{self, FrameError, Frames};
use punctual_server::link::{Link, Turn};
use punctual_server::net::{Net, Remote};
use punctual_server::stream::Ready;
use punctual_units::{Nanos, Time};

use super::{Access, PeerAddress, RETRY_FIRST, RETRY_MAX};
use crate::wire::{OLDEST, Packet, VERSION};

/// Time after which a connection counts as accepted: the next attempt after its end does not wait.
const LASTED: Nanos = RETRY_MAX;
/// Least time between the first two different reasons that are reported of a connection; then twice as long each time.
const REPORT_FIRST: Nanos = Nanos::from_secs(60);
/// Least time between two different reasons at last: a day.
const REPORT_MAX: Nanos = Nanos::from_secs(24 * 60 * 60);

/// The reason for which a connection with another process is over.
#[derive(Debug, thiserror::Error)]
pub(super) enum LinkEnd {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error(transparent)]
    Frame(#[from] FrameError),
    #[error("it belongs to federation {theirs}, and this process to {ours}: correct the addresses, there or here")]
    OtherFederation { ours: FederationId, theirs: FederationId },
    #[error("a message without a name before it")]
    NoName,
    #[error("a second name")]
    SecondName,
    #[error("a front's message of a node, or a node's of a front")]
    OutOfPlace,
    #[error("it has ended")]
    Ended,
}

impl LinkEnd {
    /// The reason in words: the same ones for all bytes of a program that is none of a federation.
    fn why(&self) -> String {
        match self {
            LinkEnd::Frame(FrameError::TooLong { .. }) => FrameError::Garbled.to_string(),
            other => other.to_string(),
        }
    }

    /// Whether an operator need not know. Refusals by TLS are reported; after other errors of the system, the process
    /// at the other end counts as gone.
    pub fn is_plain(&self) -> bool {
        match self {
            LinkEnd::Io(error) => error.kind() != io::ErrorKind::InvalidData,
            gone => matches!(gone, LinkEnd::Ended),
        }
    }
}

/// The connection to a node, or the next attempt at it.
pub(super) struct Way {
    pub address: PeerAddress,
    pub token: Token,
    pub link: Option<Link>,
    frames: Frames,
    /// The longest frame that the other end may send.
    frame_max: usize,
    /// Version that this process speaks on the connection: the newest, or the oldest where the other end has closed the
    /// last one at once.
    pub version: u8,
    /// Whether the other end has accepted the connection.
    is_connected: bool,
    is_older: bool,
    dialled: Time,
    retry_at: Time,
    backoff: Nanos,
    /// Whether a node sends packets on such a connection, unless it refuses it.
    is_answered: bool,
    /// Whether a packet has come on the connection.
    is_heard: bool,
    /// The last reason that was reported, and the instant before which no other one is; forgotten at the end of a
    /// connection that lasted, brought packets if it is answered, and was not refused.
    refused: Option<(String, Time)>,
    report_wait: Nanos,
    /// Attempts since then that ended by a reason which was not reported.
    unreported: u64,
}

impl Way {
    pub fn new(address: PeerAddress, token: Token, frame_max: usize, is_answered: bool) -> Way {
        Way {
            address,
            token,
            link: None,
            frames: Frames::between([OLDEST, VERSION], frame_max),
            frame_max,
            version: 0,
            is_connected: false,
            is_older: false,
            dialled: Time::ZERO,
            retry_at: Time::ZERO,
            backoff: RETRY_FIRST,
            is_answered,
            is_heard: false,
            refused: None,
            report_wait: REPORT_FIRST,
            unreported: 0,
        }
    }

    pub fn next_due(&self) -> Time {
        match self.link {
            Some(_) => Time::MAX,
            None => self.retry_at,
        }
    }

    /// Makes the next attempt at once, because the program at the other end has connected here. A node that has just
    /// started listens for less time than an attempt may wait; without this it would replace a master that it has not
    /// heard.
    pub fn is_there(&mut self) {
        self.retry_at = Time::ZERO;
    }

    pub fn ready(&mut self, ready: Ready) {
        if let Some(link) = &mut self.link {
            link.ready(ready);
        }
    }

    /// Dials if it is time to, and sends this process' name first. Returns the reason of a refusal that an operator
    /// should know.
    pub fn connect(&mut self, net: &mut dyn Net, access: &Access, name: &Packet, now: Time) -> Option<String> {
        if self.link.is_some() || self.retry_at > now {
            return None;
        }
        self.dialled = now;
        self.retry_at = now + self.backoff;
        self.backoff = Nanos(self.backoff.0 * 2).min(RETRY_MAX);
        let socket = net.connect(Remote::Address(self.address.socket), self.token).ok()?;
        let stream = match access.dial(socket, &self.address.name) {
            Ok(stream) => stream,
            Err(refused) => return self.refused(refused, now),
        };
        let mut link = Link::new(stream);
        let [oldest, newest] = access.versions;
        self.version = if self.is_older { oldest } else { newest };
        (self.is_connected, self.is_heard) = (false, false);
        frame::write(&mut link.out, self.version, name);
        self.link = Some(link);
        None
    }

    /// Drops the connection, which has ended. Where it was accepted and lasted for less than [`LASTED`], the other end
    /// may be an older program: the next attempt speaks the other version. Returns a reason that an operator should
    /// know, once for any number of attempts that end by it, and another one [`REPORT_FIRST`] later at the earliest.
    pub fn ended(&mut self, gone: &LinkEnd, now: Time) -> Option<String> {
        let has_lasted = now.since(self.dialled) >= LASTED;
        let was_open = self.link.take().is_some_and(|link| !link.stream.is_handshaking());
        self.frames = Frames::between([OLDEST, VERSION], self.frame_max);
        self.is_older = !self.is_older && self.is_connected && !has_lasted;
        if !gone.is_plain() {
            return self.refused(gone.why(), now);
        }
        let is_taken = if self.is_answered {
            self.is_heard
        } else {
            self.is_connected
        };
        if is_taken && was_open && has_lasted {
            (self.refused, self.unreported, self.report_wait) = (None, 0, REPORT_FIRST);
        }
        None
    }

    /// Returns a refusal to report, with the number of those before it that were not.
    fn refused(&mut self, why: String, now: Time) -> Option<String> {
        let is_known = |(last, until): &(String, Time)| *last == why || now < *until;
        if self.refused.as_ref().is_some_and(is_known) {
            self.unreported += 1;
            return None;
        }
        self.refused = Some((why.clone(), now + self.report_wait));
        self.report_wait = Nanos(self.report_wait.0 * 2).min(REPORT_MAX);
        Some(match std::mem::take(&mut self.unreported) {
            0 => why,
            more => format!("{why} ({more} attempts that failed since the last report are not reported)"),
        })
    }

    /// Reads the packets that have arrived, also those before the end; returns whether there may be more.
    pub fn turn(&mut self, scratch: &mut Vec<u8>, now: Time, mut take: impl FnMut(Packet)) -> Result<bool, LinkEnd> {
        let turn = self.read(scratch, now);
        while let Some(packet) = self.frames.take()? {
            self.is_heard = true;
            take(packet);
        }
        match turn? {
            Turn::Ended => Err(LinkEnd::Ended),
            turn => Ok(turn == Turn::More),
        }
    }

    fn read(&mut self, scratch: &mut Vec<u8>, now: Time) -> io::Result<Turn> {
        let Some(link) = &mut self.link else {
            return Ok(Turn::Empty);
        };
        self.is_connected |= link.is_writable;
        let turn = link.read(scratch, |bytes| self.frames.feed(bytes))?;
        if link.is_writable && turn != Turn::Ended {
            // A socket that is ready to write is connected.
            if now.since(self.dialled) >= LASTED && !link.stream.is_handshaking() {
                self.backoff = RETRY_FIRST;
            }
        }
        Ok(turn)
    }

    /// Adds a packet to the unsent bytes, unless these are as many as `max`; returns whether it did.
    pub fn push(&mut self, max: usize, packet: impl FnOnce() -> Packet) -> bool {
        let link = self.link.as_mut().filter(|link| link.unsent() < max);
        link.map(|link| frame::write(&mut link.out, self.version, &packet()))
            .is_some()
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::net::TcpListener;

    use punctual_server::net::Sockets;

    use super::*;
    use crate::wire::FRAME_BYTES_MAX;

    fn way_to(listener: &TcpListener) -> Way {
        let address = PeerAddress::of(listener.local_addr().unwrap());
        Way::new(address, Token(1), FRAME_BYTES_MAX, true)
    }

    /// An older program closes the connection of a newer one at once; one that lasted may have been upgraded since.
    #[test]
    fn what_is_closed_at_once_is_tried_in_the_older_version() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut net = Sockets::new().unwrap();
        let mut way = way_to(&listener);
        let (mut now, mut spoken, access) = (Time::ZERO, Vec::new(), Access::default());
        for (is_accepted, lasts) in [
            (false, Nanos::ZERO),
            (true, Nanos::ZERO),
            (true, LASTED),
            (true, LASTED),
            (true, Nanos::ZERO),
            (true, Nanos::ZERO),
            (true, Nanos::ZERO),
        ] {
            way.connect(&mut net, &access, &Packet::Front, now);
            spoken.push(way.version);
            way.is_connected = is_accepted;
            assert_eq!(way.ended(&LinkEnd::Ended, now + lasts), None);
            now = now + lasts + RETRY_MAX;
        }
        let [oldest, newest] = access.versions;
        assert_eq!(spoken, [newest, newest, oldest, newest, newest, oldest, newest]);
    }

    /// A program that is none of the federation: it takes the connection, and ends it.
    #[test]
    fn one_that_accepts_and_closes_is_dialled_less_and_less_often() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut net = Sockets::new().unwrap();
        let mut way = way_to(&listener);
        let (mut now, mut waits, mut scratch) = (Time::ZERO, Vec::new(), Vec::new());
        for _ in 0..8 {
            way.connect(&mut net, &Access::default(), &Packet::Front, now);
            drop(listener.accept().unwrap());
            while way.link.is_some() {
                way.ready(Ready {
                    reads: true,
                    writes: true,
                    ends: true,
                });
                if way.turn(&mut scratch, now, |_| {}).is_err() {
                    way.link = None;
                }
            }
            waits.push(way.next_due().since(now));
            now = way.next_due();
        }
        assert!(waits.is_sorted() && waits[0] == RETRY_FIRST, "{waits:?}");
        assert_eq!(waits[7], RETRY_MAX);
        // One that calls is dialled at once, and once.
        let mut dial = |way: &mut Way, now| way.connect(&mut net, &Access::default(), &Packet::Front, now);
        dial(&mut way, now);
        way.link = None;
        assert_eq!(way.next_due(), now + RETRY_MAX);
        way.is_there();
        assert!(way.next_due() <= now);
        dial(&mut way, now);
        assert!(way.link.is_some());
        way.link = None;
        assert_eq!(way.next_due(), now + RETRY_MAX);
    }

    /// A node whose name comes late is one of another federation at each attempt; only one that lasted until its
    /// process ended may be another since.
    #[test]
    fn a_reason_is_reported_once_however_long_the_connection_lasted() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut net = Sockets::new().unwrap();
        let mut way = way_to(&listener);
        let (mut now, mut scratch) = (Time::ZERO, Vec::new());
        let [ours, theirs] = [FederationId(1), FederationId(2)];
        let other = LinkEnd::OtherFederation { ours, theirs };
        let ends = [
            (&other, LASTED, true),
            (&other, LASTED, false),
            (&LinkEnd::Ended, Nanos::ZERO, false),
            (&other, LASTED, false),
            (&LinkEnd::Ended, LASTED, false),
            (&other, LASTED, true),
            (&other, Nanos::ZERO, false),
        ];
        for (at, (gone, lasts, is_reported)) in ends.into_iter().enumerate() {
            way.connect(&mut net, &Access::default(), &Packet::Front, now);
            let mut name = Vec::new();
            frame::write(&mut name, VERSION, &Packet::Front);
            let mut node = listener.accept().unwrap().0;
            node.write_all(&name).unwrap();
            let mut packets = 0;
            while packets == 0 {
                way.ready(Ready {
                    reads: true,
                    writes: true,
                    ends: false,
                });
                way.turn(&mut scratch, now + lasts, |_| packets += 1).unwrap();
            }
            assert_eq!(way.ended(gone, now + lasts).is_some(), is_reported, "end {at}");
            now = now + lasts + RETRY_MAX;
        }
    }

    /// A node sends nothing to one that dials it, unless it refuses it.
    #[test]
    fn a_connection_that_is_not_answered_and_lasted_was_taken() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut net = Sockets::new().unwrap();
        for (is_answered, reports) in [(true, 1), (false, 2)] {
            let mut way = way_to(&listener);
            way.is_answered = is_answered;
            let (mut now, mut reported) = (Time::ZERO, 0);
            for gone in [LinkEnd::SecondName, LinkEnd::Ended, LinkEnd::SecondName] {
                way.connect(&mut net, &Access::default(), &Packet::Front, now);
                way.is_connected = true;
                reported += usize::from(way.ended(&gone, now + LASTED).is_some());
                now = now + LASTED + RETRY_MAX;
            }
            assert_eq!(reported, reports);
        }
    }

    /// Two reasons in turn are reported less and less often.
    #[test]
    fn reasons_that_change_are_reported_less_and_less_often() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut way = way_to(&listener);
        let reports = (0..24 * 60).filter(|minute| {
            let now = Time::ZERO + REPORT_FIRST * *minute;
            way.refused((minute % 2).to_string(), now).is_some()
        });
        assert!(reports.count() <= 12);
    }

    /// A program that is none of a federation answers each attempt with other bytes, or lasts and says nothing.
    #[test]
    fn bytes_that_are_no_packets_are_reported_once_and_other_reasons_seldom() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut net = Sockets::new().unwrap();
        let mut way = way_to(&listener);
        let mut now = Time::ZERO;
        let garbage = |len| LinkEnd::Frame(FrameError::TooLong { len, max: 1 });
        let version = || {
            LinkEnd::Frame(FrameError::Version {
                found: 9,
                oldest: 1,
                newest: 2,
            })
        };
        let mut reports = Vec::new();
        for gone in [
            garbage(7),
            garbage(8),
            LinkEnd::Ended,
            LinkEnd::Frame(FrameError::Garbled),
            version(),
            version(),
            garbage(9),
        ] {
            way.connect(&mut net, &Access::default(), &Packet::Front, now);
            way.is_connected = true;
            reports.extend(way.ended(&gone, now + LASTED));
            now = now
                + if reports.len() < 2 && matches!(gone, LinkEnd::Frame(FrameError::Version { .. })) {
                    REPORT_FIRST
                } else {
                    RETRY_MAX + LASTED
                };
        }
        let [first, second] = &reports[..] else {
            panic!("{reports:?}")
        };
        assert!(first.contains("no program of this kind"), "{first}");
        assert!(
            second.contains("version 9") && second.contains("(3 attempts"),
            "{second}"
        );
    }
}
