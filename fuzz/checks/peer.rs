//! What nodes send each other: any bytes are frames or refused, however they are split, and nothing is kept beyond the
//! bound; a packet that is read is read again as it was written. The same bytes as a frame whose length and checksum
//! are right, so that the decoder itself sees them.

use std::sync::{Arc, OnceLock};

use punctual_federation::ids::{Boot, Epoch, FederationId, Member, NodeId, RequestId, SessionId};
use punctual_federation::message::{
    Answer, ClientCommand, ClientReading, Heartbeat, Message, Operation, Output, Position, RecordsRequest, Refusal,
    Reply, Report, Request, Work,
};
use punctual_federation::temporal::{ReadingReport, Stamp};
use punctual_logs::frame::{FrameError, Frames, write};
use punctual_node::wire::{Packet, VERSION, shortened};
use punctual_store::batch::Image;
use punctual_units::{Nanos, ObjectName, Revision, Seq, Time};

use super::source::{Source, change, pieces};

/// Small, so that it is met.
const MAX: usize = 4096;
/// Length and checksum.
const HEAD: usize = 8;

fn sample_works() -> Vec<Work> {
    let key = || b"arm/1".to_vec();
    let command = ClientCommand {
        words: vec![b"INCRBY".to_vec(), key(), b"5".to_vec()],
        items: 1,
        writes: true,
        version: 3,
    };
    let operations = vec![
        Operation::Get(key()),
        Operation::Put(key(), b"up".to_vec()),
        Operation::Append(key(), b"!".to_vec()),
        Operation::Delete(key()),
        Operation::Add(key(), -3),
        Operation::Expect(key(), Some(b"up".to_vec())),
        Operation::Fresh(b"pose".to_vec(), Nanos(1_000_000)),
        Operation::Run(command.clone()),
    ];
    vec![
        Work::Open,
        Work::Transaction(operations),
        Work::Query {
            keys: vec![key(), b"pose".to_vec()],
            latest: true,
            max_age: Nanos(9),
        },
        Work::Look(command),
        Work::Outcome(RequestId::default()),
        Work::Fresh(b"pose".to_vec()),
        Work::Sample(ClientReading {
            key: b"pose".to_vec(),
            value: b"21.5".to_vec(),
            age: Nanos(5),
            since: Some(Time(8)),
        }),
    ]
}

/// One of each kind, without its head.
fn samples() -> &'static [Vec<u8>] {
    static SAMPLES: OnceLock<Vec<Vec<u8>>> = OnceLock::new();
    SAMPLES.get_or_init(|| {
        let from = Member {
            node: NodeId(1),
            boot: Boot(7),
        };
        let id = RequestId {
            session: SessionId(3),
            number: 300,
        };
        let made = ObjectName {
            source: 1,
            boot: 2,
            sequence: 3,
        };
        let stamp = Stamp { boot: 7, at: Time(99) };
        let done = |output| Answer::Done {
            output,
            position: Position::default(),
            revision: Revision(40),
        };
        let values = Output::Values(vec![None, Some(b"up".to_vec())]);
        let image = Image {
            revision: Revision(40),
            after: Some(b"arm/0".to_vec()),
            upto: None,
            records: vec![(b"arm/1".to_vec(), b"up".to_vec())],
            created: Vec::new(),
        };
        let wanted = RecordsRequest {
            after: Some(b"arm/0".to_vec()),
            revision: Revision(40),
        };
        let heartbeat = Heartbeat {
            from,
            epoch: Epoch(4),
            master: true,
            applied: Revision(40),
            durable: Revision(39),
            said: Report::default(),
        };
        let report = ReadingReport {
            object: made,
            seq: Seq(8),
            age: Nanos(5),
            stamp,
            value: b"21.5".to_vec(),
        };
        let answers = [
            done(values),
            done(Output::Reading(Some((Nanos(5), b"21.5".to_vec())))),
            Answer::Unknown,
            Answer::Refused(Refusal::KeyLength { len: 501 }),
        ];
        let mut packets = vec![
            Packet::Hello {
                federation: FederationId(7),
                from,
                clients: ([127, 0, 0, 1], 6379).into(),
            },
            Packet::Message(Message::Heartbeat(heartbeat)),
            Packet::Message(Message::NameTaken(from)),
            Packet::Message(Message::CopyWanted(wanted)),
            Packet::Message(Message::Copied(Arc::new(image))),
            Packet::Front,
            Packet::Readings(vec![report.clone(), report]),
            Packet::Taken(stamp, vec![(made, Seq(8))]),
            Packet::Hear,
            Packet::Changed(Revision(40), vec![(b"arm/1".to_vec(), true)], vec![0]),
        ];
        for work in sample_works() {
            let request = Request {
                id,
                work,
                time_left: Nanos(1_000_000),
                seen: Revision(40),
            };
            packets.push(Packet::Request(9, request.clone()));
            packets.push(Packet::Message(Message::PassedOn(request)));
        }
        for answer in answers {
            packets.push(Packet::Message(Message::Answered(id, answer.clone())));
            let said = Report::default();
            packets.push(Packet::Reply(9, Reply { id, answer, said }));
        }
        let body = |packet: &Packet| {
            let mut bytes = Vec::new();
            write(&mut bytes, VERSION, packet);
            bytes.split_off(HEAD)
        };
        packets.iter().map(body).collect()
    })
}

fn packets(pieces: &[&[u8]]) -> (Vec<Packet>, Option<FrameError>) {
    let (mut frames, mut found) = (Frames::new(VERSION, MAX), Vec::new());
    for piece in pieces {
        frames.feed(piece);
        loop {
            match frames.take::<Packet>() {
                Ok(Some(packet)) => found.push(packet),
                Ok(None) => break,
                Err(error) => return (found, Some(error)),
            }
        }
        assert!(frames.kept() <= MAX + HEAD, "{} bytes are kept", frames.kept());
    }
    (found, None)
}

fn kind(packet: &Packet) -> &'static str {
    match packet {
        Packet::Hello { .. } => "hello",
        Packet::Message(Message::Heartbeat(_)) => "heartbeat",
        Packet::Message(Message::Copied(_)) => "copy",
        Packet::Message(_) => "message",
        Packet::Request(..) => "request",
        Packet::Reply(..) => "reply",
        Packet::Readings(_) | Packet::Taken(..) => "readings",
        _ => "other packets",
    }
}

/// A case: how long the packet has waited; where it is cut; frames, each a sample or bytes, with changes, and with or
/// without a head that is right; and what stands behind.
pub fn check(case: &[u8]) -> &'static str {
    let mut source = Source(case);
    let waited = Nanos(u64::from(source.number()) << 10);
    let cuts = source.list(Source::number);
    let framed = source.list(|source| {
        let has_head = !source.is_so();
        let mut body = match usize::from(source.byte()) {
            sample if sample < samples().len() => samples()[sample].clone(),
            len => [&[VERSION], source.take(len)].concat(),
        };
        change(&mut body, &source.list(|source| (source.number(), source.byte())));
        let mut frame = Vec::new();
        if has_head {
            frame.extend_from_slice(&(body.len() as u32).to_le_bytes());
            frame.extend_from_slice(&crc32c::crc32c(&body).to_le_bytes());
        }
        frame.extend_from_slice(&body);
        frame
    });
    let bytes = [&framed.concat(), source.rest()].concat();
    let (found, error) = packets(&pieces(&bytes, &cuts));
    // Compared as text: what is no number is not equal to itself.
    assert_eq!(
        format!("{found:?} {error:?}"),
        format!("{:?} {:?}", packets(&[&bytes]).0, packets(&[&bytes]).1)
    );
    let mut came_to = match error {
        Some(FrameError::TooLong { .. }) => "too long",
        Some(FrameError::Version { .. }) => "of another version",
        Some(_) => "garbled",
        None => "half a frame",
    };
    for packet in found {
        came_to = kind(&packet);
        let mut again = Vec::new();
        write(&mut again, VERSION, &packet);
        if again.len() <= MAX {
            let (read, error) = packets(&[&again]);
            assert_eq!((format!("{read:?}"), error), (format!("[{packet:?}]"), None));
        }
        if let Packet::Message(message) = packet {
            let _ = shortened(message, waited); // no panic
        }
    }
    came_to
}
