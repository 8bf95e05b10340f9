//! Describes packets in a few words.

use punctual_federation::entry::Entry;
use punctual_federation::ids::Revision;
use punctual_federation::message::{Answer, Fate, Key, Message, Output, Reply, Value, Work};
use punctual_logs::{AppendResult, LogError};

use super::world::{FEDERATION, Packet, Question};

/// Describes a packet in a few words.
pub(super) fn of(packet: &Packet) -> String {
    match packet {
        Packet::Peer(_, message) => of_message(message),
        Packet::Reset(node) => format!("node {node} is gone"),
        Packet::Request(_, request) => format!("{} {}", request.id, of_work(&request.work)),
        Packet::Reply(_, Reply { id, answer, .. }) | Packet::Answer(id, answer) => {
            format!("{id} {}", of_answer(answer))
        }
        Packet::Broken(id) => format!("{id} connection broken"),
        Packet::Ask(_, _, Question::Append(last, bytes)) => {
            let name = Entry::decode(bytes, Revision::ZERO, FEDERATION).map(|entry| entry.id.to_string());
            format!("append {} after {last}", name.unwrap_or_default())
        }
        Packet::Ask(_, _, Question::Read(after, _)) => format!("read after {after}"),
        Packet::Ask(_, _, Question::Trim(upto)) => format!("trim to {upto}"),
        Packet::Appended(_, _, Ok(AppendResult::At(at))) => format!("appended at {at}"),
        Packet::Appended(_, _, Ok(AppendResult::Lost { last })) => format!("lost: ends at {last}"),
        Packet::Appended(_, _, Err(error)) | Packet::Read(_, _, Err(error)) => of_error(error),
        Packet::Read(_, _, Ok(stretch)) => format!("{} entries, ends at {}", stretch.records.len(), stretch.last),
        Packet::Stamp(node, _) => format!("stamp of node {node}"),
        Packet::Report(_, report) => format!("reading {}", report.seq),
        Packet::Taken(_, _, seq) => format!("took reading {seq}"),
        Packet::Watched(record) => format!("new entry {}", record.revision),
    }
}

/// Describes an error in a few words: a row of a chart has no room for the remedy.
fn of_error(error: &LogError) -> String {
    match error {
        LogError::Compacted { trimmed } => format!("trimmed to {trimmed}"),
        LogError::EntryTooLong { len } => format!("{len} bytes are too long"),
        error => error.to_string(),
    }
}

fn of_message(message: &Message) -> String {
    match message {
        Message::Heartbeat(heartbeat) => {
            let role = if heartbeat.master { "master" } else { "slave" };
            format!("{role} of {} at {}", heartbeat.epoch, heartbeat.applied)
        }
        Message::NameTaken(member) => format!("the name of {member} is taken"),
        Message::CopyWanted(wanted) => format!("copy wanted, {} at {}", behind(wanted.after.as_ref()), wanted.revision),
        Message::Copied(image) => format!("copy {} of {}", behind(image.after.as_ref()), image.revision),
        Message::PassedOn(request) => format!("passed on {}", request.id),
        Message::Answered(id, answer) => format!("{id} {}", of_answer(answer)),
    }
}

fn behind(key: Option<&Key>) -> String {
    key.map_or("from the first record".to_owned(), |key| {
        format!("behind {}", key.escape_ascii())
    })
}

fn of_work(work: &Work) -> String {
    match work {
        Work::Open => "open".to_owned(),
        Work::Transaction(operations) => format!("transaction of {}", operations.len()),
        Work::Query { keys, latest: true, .. } => format!("latest {}", keys.len()),
        Work::Query { keys, .. } => format!("query {}", keys.len()),
        Work::Outcome(of) => format!("outcome {of}"),
        Work::Look(_) => "look".to_owned(),
        Work::Sweep => "sweep".to_owned(),
        Work::Fresh(_) => "reading".to_owned(),
        Work::Sample(_) => "sample".to_owned(),
    }
}

/// Describes an answer in a few words.
pub(super) fn of_answer(answer: &Answer) -> String {
    match answer {
        Answer::Done {
            output: Output::Fate(fate),
            ..
        } => of_fate(*fate),
        Answer::Done { revision, .. } => format!("done at {revision}"),
        Answer::Late { reason, .. } => format!("late ({reason})"),
        Answer::Unknown => "unknown".to_owned(),
        // The reason is a sentence, and a row of a chart has little room.
        Answer::Refused(_) => "refused".to_owned(),
    }
}

/// Describes a fate in a few words.
pub(super) fn of_fate(fate: Fate) -> String {
    match fate {
        Fate::Committed(revision) => format!("committed at {revision}"),
        Fate::NotExecuted => "not executed".to_owned(),
        Fate::Forgotten => "forgotten".to_owned(),
    }
}

/// Describes values read, in a few words. Clients never write a number twice: the seventh of client 3 is shown as 3.7.
pub(super) fn of_values(values: &[Option<Value>]) -> String {
    let each: Vec<_> = values.iter().map(|value| of_value(value.as_deref())).collect();
    match each.is_empty() {
        true => "nothing".to_owned(),
        false => each.join(", "),
    }
}

fn of_value(value: Option<&[u8]>) -> String {
    let Some(value) = value else {
        return "no record".to_owned();
    };
    let (numbers, _) = value.as_chunks::<8>();
    let number = |bytes: &[u8; 8]| {
        let number = u64::from_be_bytes(*bytes);
        format!("{}.{}", number >> 32, number & 0xffff_ffff)
    };
    let shown: Vec<_> = numbers.iter().map(number).collect();
    match &shown[..] {
        [] => "an empty record".to_owned(),
        [one] => one.clone(),
        [.., last] => format!("a list of {} up to {last}", shown.len()),
    }
}
