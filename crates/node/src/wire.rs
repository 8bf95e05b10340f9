//! Packets between nodes: frames (`logs::frame`) over TCP, one connection for each direction.
//!
//! The node that dials sends [`Packet::Hello`] first, then messages. The only packet that comes back on that connection
//! says that another process has its name ([`Message::NameTaken`]). So a connection that breaks shows that the node at
//! its other end is gone or unreachable, which counts as the same.
//!
//! A balancer dials nodes, and sends [`Packet::Front`] first. Its connection goes both ways: the node sends its name,
//! then its state and load on each heartbeat, and answers requests by their numbers.
//!
//! Deadlines travel as time left: the time that a message waited before it was sent is subtracted ([`shortened`]).

use std::net::SocketAddr;

use punctual_federation::ids::{FederationId, Member};
use punctual_federation::message::{Key, Message, Reply, Request};
use punctual_federation::temporal::{ReadingReport, Stamp, Together};
use punctual_units::{Nanos, ObjectName, Revision, Seq};
use serde::{Deserialize, Serialize, Serializer};

/// Version of the packets. Since 5, a [`Report`](punctual_federation::message::Report) says whether the log is full,
/// and [`Packet::Changed`] has names.
pub const VERSION: u8 = 5;
/// The first version in which [`Packet::Changed`] has names.
pub const NAMES_SINCE: u8 = 5;
/// The oldest version that this program speaks; nodes of others are refused. See [`Frames::between`] for what a newer
/// version may change.
///
/// [`Frames::between`]: punctual_logs::frame::Frames::between
pub const OLDEST: u8 = VERSION - 1;
/// The longest frame of a peer that has not sent its name, in bytes.
pub const STRANGER_BYTES_MAX: usize = 256;
/// The longest frame of a peer, in bytes: a request may have 128 values of 128 KiB. While the loop of a node sends or
/// takes a frame it does nothing else, so a longer frame would make its peers suspect it.
pub const FRAME_BYTES_MAX: usize = 32 << 20;

/// Whether there is a record under a key; otherwise it was removed.
pub type IsSet = bool;

/// A packet on a connection between nodes, or between a node and a balancer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Packet {
    /// The sender's name; the first packet of a node.
    Hello {
        /// The federation that the sender belongs to.
        federation: FederationId,
        /// Number and start of the node.
        from: Member,
        /// Address of the node for clients.
        clients: SocketAddr,
    },
    /// A message between state machines.
    Message(Message),
    /// The sender is a balancer; its first packet.
    Front,
    /// A balancer's request, under a number of the balancer's own.
    Request(u64, Request),
    /// The answer to the request of that number.
    Reply(u64, Reply),
    /// Readings of the sender's objects, at most [`crate::sensing::TOGETHER_MAX`].
    Readings(Vec<ReadingReport>),
    /// The sender's stamp, and the receiver's readings that the sender acknowledges.
    Taken(Stamp, Vec<(ObjectName, Seq)>),
    /// The sender, a balancer, asks for changes of keys from now on.
    Hear,
    /// Events of the entry at that revision, once the sender has applied it: each one's key, and the number of its
    /// [name](punctual_server::commands::events::name), which versions before 5 do not send. The first such packet has
    /// none: its revision is the entry behind which the sender begins to report.
    Changed(Revision, Vec<(Key, IsSet)>, Vec<u8>),
}

/// [`Packet::Readings`], encoded from the feed's memory without a copy.
#[derive(Clone, Copy, Debug)]
pub struct Readings<'f>(pub Together<'f>);

impl Serialize for Readings<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_newtype_variant("Packet", 5, "Readings", &self.0)
    }
}

/// Subtracts the time that a message waited from its time left; `None` where none is left.
pub fn shortened(message: Message, waited: Nanos) -> Option<Message> {
    match message {
        Message::PassedOn(mut request) => {
            request.time_left = Nanos(request.time_left.0.checked_sub(waited.0).filter(|left| *left > 0)?);
            Some(Message::PassedOn(request))
        }
        message => Some(message),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use proptest::prelude::*;
    use punctual_federation::ids::{Boot, Epoch, NodeId, RequestId, Revision, SessionId};
    use punctual_federation::message::{
        Answer, Heartbeat, Operation, Output, Position, RecordsRequest, Reply, Report, Request, Work,
    };
    use punctual_federation::temporal::{Feed, FeedBounds};
    use punctual_logs::frame::{Frames, write};
    use punctual_store::batch::Image;
    use punctual_units::Time;

    use super::*;

    fn member() -> impl Strategy<Value = Member> {
        any::<(u32, u64)>().prop_map(|(node, boot)| Member {
            node: NodeId(node),
            boot: Boot(boot),
        })
    }

    fn id() -> impl Strategy<Value = RequestId> {
        any::<(u64, u64)>().prop_map(|(session, number)| RequestId {
            session: SessionId(session),
            number,
        })
    }

    fn work() -> impl Strategy<Value = Work> {
        let key = || any::<Vec<u8>>();
        let operation = prop_oneof![
            key().prop_map(Operation::Get),
            (key(), key()).prop_map(|(key, value)| Operation::Put(key, value)),
            (key(), any::<Option<Vec<u8>>>()).prop_map(|(key, value)| Operation::Expect(key, value)),
            (key(), any::<i64>()).prop_map(|(key, by)| Operation::Add(key, by)),
        ];
        prop_oneof![
            Just(Work::Open),
            id().prop_map(Work::Outcome),
            prop::collection::vec(operation, 0..4).prop_map(Work::Transaction),
            (prop::collection::vec(key(), 0..4), any::<bool>(), any::<u64>()).prop_map(|(keys, latest, age)| {
                Work::Query {
                    keys,
                    latest,
                    max_age: Nanos(age),
                }
            }),
        ]
    }

    fn message() -> impl Strategy<Value = Message> {
        let heartbeat = (member(), any::<(u64, bool, u64, u64)>());
        let heartbeat = heartbeat.prop_map(|(from, (epoch, master, applied, durable))| {
            Message::Heartbeat(Heartbeat {
                from,
                epoch: Epoch(epoch),
                master,
                applied: Revision(applied),
                durable: Revision(durable),
                said: Report::default(),
            })
        });
        let request = (id(), work(), any::<(u64, u64)>());
        let passed_on = request.prop_map(|(id, work, (time_left, seen))| {
            Message::PassedOn(Request {
                id,
                work,
                time_left: Nanos(time_left),
                seen: Revision(seen),
            })
        });
        let key = any::<Option<Vec<u8>>>;
        let image = (any::<u64>(), key(), key(), any::<Vec<(Vec<u8>, Vec<u8>)>>());
        let image = image.prop_map(|(revision, after, upto, records)| {
            Message::Copied(Arc::new(Image {
                revision: Revision(revision),
                after,
                upto,
                records,
                created: Vec::new(),
            }))
        });
        let values = (id(), any::<Vec<Option<Vec<u8>>>>(), any::<u64>());
        let answered = values.prop_map(|(id, values, revision)| {
            let answer = Answer::Done {
                output: Output::Values(values),
                position: Position::default(),
                revision: Revision(revision),
            };
            Message::Answered(id, answer)
        });
        let wanted = (key(), any::<u64>()).prop_map(|(after, revision)| {
            let revision = Revision(revision);
            Message::CopyWanted(RecordsRequest { after, revision })
        });
        let unknown = id().prop_map(|id| Message::Answered(id, Answer::Unknown));
        let taken = member().prop_map(Message::NameTaken);
        prop_oneof![heartbeat, passed_on, image, answered, unknown, taken, wanted]
    }

    fn packet() -> impl Strategy<Value = Packet> {
        let hello = (any::<u64>(), member()).prop_map(|(federation, from)| Packet::Hello {
            clients: "127.0.0.1:6379".parse().unwrap(),
            federation: FederationId(federation),
            from,
        });
        let made =
            || any::<(u32, u64, u64)>().prop_map(|(source, boot, sequence)| ObjectName { source, boot, sequence });
        let stamp = || any::<(u64, u64)>().prop_map(|(boot, at)| Stamp { boot, at: Time(at) });
        let report = (made(), any::<(u64, u64)>(), stamp(), any::<Vec<u8>>());
        let report = report.prop_map(|(object, (seq, age), stamp, value)| ReadingReport {
            object,
            seq: Seq(seq),
            age: Nanos(age),
            stamp,
            value,
        });
        let readings = prop::collection::vec(report, 0..4).prop_map(Packet::Readings);
        let taken = prop::collection::vec((made(), any::<u64>().prop_map(Seq)), 0..4);
        let taken = (stamp(), taken).prop_map(|(stamp, taken)| Packet::Taken(stamp, taken));
        let asked = (any::<u64>(), id(), work(), any::<(u64, u64)>());
        let asked = asked.prop_map(|(ticket, id, work, (time_left, seen))| {
            let (time_left, seen) = (Nanos(time_left), Revision(seen));
            Packet::Request(
                ticket,
                Request {
                    id,
                    work,
                    time_left,
                    seen,
                },
            )
        });
        let replied = (any::<u64>(), id()).prop_map(|(ticket, id)| {
            let (answer, said) = (Answer::Unknown, Report::default());
            Packet::Reply(ticket, Reply { id, answer, said })
        });
        prop_oneof![1 => hello, 6 => message().prop_map(Packet::Message), 1 => Just(Packet::Front), 2 => asked, 2 => replied, 1 => readings, 1 => taken]
    }

    #[test]
    fn readings_are_written_from_their_feed_as_the_packet_that_peers_read() {
        let stamp = Stamp {
            boot: 7,
            at: Time(1 << 40),
        };
        let mut feed = Feed::new(FeedBounds::default(), stamp);
        for sequence in 0..3u64 {
            let object = ObjectName {
                source: 1,
                boot: 1 << 40,
                sequence,
            };
            feed.offer(
                object,
                Seq(1 << 20),
                Nanos(sequence),
                &[b'v'; 40][..10 * sequence as usize],
            )
            .unwrap();
        }
        let mut bytes = Vec::new();
        let mut room = Vec::new();
        let together = feed.together(Time(1), 8, &mut room).unwrap();
        let reports: Vec<ReadingReport> = together.iter().map(|reported| reported.report()).collect();
        write(&mut bytes, VERSION, &Readings(together));
        let mut frames = Frames::new(VERSION, FRAME_BYTES_MAX);
        frames.feed(&bytes);
        assert_eq!(frames.take(), Ok(Some(Packet::Readings(reports))));
    }

    proptest! {
        #[test]
        fn what_a_node_sends_its_peer_reads(packets in prop::collection::vec(packet(), 0..5), cut in 1..100_usize) {
            let mut bytes = Vec::new();
            packets.iter().for_each(|packet| write(&mut bytes, VERSION, packet));
            let (mut frames, mut found) = (Frames::new(VERSION, FRAME_BYTES_MAX), Vec::new());
            for piece in bytes.chunks(cut) {
                frames.feed(piece);
                while let Some(packet) = frames.take::<Packet>().unwrap() {
                    found.push(packet);
                }
            }
            prop_assert_eq!(found, packets);
        }

        /// With a right length and checksum, so that the decoder itself sees them.
        #[test]
        fn any_bytes_are_a_packet_or_refused(body in prop::collection::vec(any::<u8>(), 0..200)) {
            let mut bytes = Vec::new();
            write(&mut bytes, VERSION, &Raw(body));
            let mut frames = Frames::new(VERSION, FRAME_BYTES_MAX);
            frames.feed(&bytes);
            let _ = frames.take::<Packet>(); // no panic
        }
    }

    /// Bytes as they are, without a length before them.
    struct Raw(Vec<u8>);

    impl Serialize for Raw {
        fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
            use serde::ser::SerializeTuple;
            let mut tuple = serializer.serialize_tuple(self.0.len())?;
            self.0.iter().try_for_each(|byte| tuple.serialize_element(byte))?;
            tuple.end()
        }
    }
}
