//! Logs and nodes of two adjacent versions speak with each other.

#![cfg(unix)]

use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};

use punctual_logs::frame::{self, Frames};
use punctual_logs::socket::{
    FRAME_BYTES_MAX, LogServer, NumberedAnswer, NumberedQuestion, OLDEST, Question, Response, VERSION,
};
use punctual_logs::{
    AppendResult, CommitLog, FORMAT, FederationId, HistoryId, Identity, LogError, LogHistory, LogState, Memory,
    Revision,
};
use punctual_testing::WAIT_MAX;

use crate::client::LogClient;

/// A log of the version before ends connections of this one, and nodes of that version do not name a history.
#[test]
fn the_version_before_is_spoken_with() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log.socket");
    let _server = LogServer::start(&path, || Some(Memory::default())).unwrap();
    let history = LogHistory {
        id: HistoryId(4),
        ..LogHistory::default()
    };
    let identity = Identity {
        federation: FederationId(3),
        format: FORMAT,
        history,
    };
    for version in [OLDEST, VERSION] {
        let question = Question::Open(identity);
        let mut stream = UnixStream::connect(&path).unwrap();
        let (mut bytes, mut frames) = (Vec::new(), Frames::new(version, FRAME_BYTES_MAX));
        match version {
            // As that version wrote it: ticket, the index of the question, federation, format.
            OLDEST => frame::write(&mut bytes, version, &(7_u64, 0_u32, 3_u64, FORMAT)),
            _ => frame::write(&mut bytes, version, &NumberedQuestion { ticket: 7, question }),
        }
        stream.write_all(&bytes).unwrap();
        let answer: NumberedAnswer = loop {
            if let Some(answer) = frames.take().unwrap() {
                break answer;
            }
            let mut bytes = [0; 64];
            let count = stream.read(&mut bytes).unwrap();
            assert!(count > 0, "it ended");
            frames.feed(&bytes[..count]);
        };
        let history = match version {
            OLDEST => LogHistory::default(),
            _ => history,
        };
        let opened = LogState {
            history,
            ..LogState::default()
        };
        let said = Ok(Response::Opened(opened));
        assert_eq!(answer, NumberedAnswer { ticket: 7, said });
    }
    let before = folder.path().join("before.socket");
    let listener = UnixListener::bind(&before).unwrap();
    let mut log = LogClient::at(&before, WAIT_MAX);
    let nodes = std::thread::spawn(move || {
        let ended = log.append(Revision::ZERO, b"one");
        (ended, log.open(identity), log.append(Revision::ZERO, b"one"))
    });
    for version in [VERSION, OLDEST] {
        let (mut stream, _) = listener.accept().unwrap();
        let mut frames = Frames::new(OLDEST, FRAME_BYTES_MAX);
        let mut ask = |stream: &mut UnixStream| {
            let mut bytes = [0; 256];
            let count = stream.read(&mut bytes).unwrap();
            frames.feed(&bytes[..count]);
            frames.take::<NumberedQuestion>()
        };
        let asked = ask(&mut stream);
        assert_eq!(asked.is_ok(), version == OLDEST, "{asked:?}");
        if let Ok(Some(NumberedQuestion { ticket, .. })) = asked {
            // As that version wrote it: ticket, success, the index of the answer, revision.
            let mut bytes = Vec::new();
            frame::write(&mut bytes, version, &(ticket, 0_u32, 0_u32, Revision(0)));
            stream.write_all(&bytes).unwrap();
            let ticket = ask(&mut stream).unwrap().expect("the next question").ticket;
            let said = Ok(Response::Appended(AppendResult::At(Revision(1))));
            bytes.clear();
            frame::write(&mut bytes, version, &NumberedAnswer { ticket, said });
            stream.write_all(&bytes).unwrap();
        }
    }
    let (ended, opened, appended) = nodes.join().unwrap();
    assert_eq!(ended, Err(LogError::NoAnswer));
    assert_eq!(opened, Ok(LogState::default()), "its history is unknown");
    assert_eq!(appended, Ok(AppendResult::At(Revision(1))));
}
