//! Logs and nodes of two adjacent versions speak with each other.

#![cfg(unix)]

use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};

use punctual_logs::frame::{self, Frames};
use punctual_logs::socket::{
    FRAME_BYTES_MAX, LogClient, LogServer, NumberedAnswer, NumberedQuestion, OLDEST, Question, Response, VERSION,
};
use punctual_logs::{AppendResult, CommitLog, Identity, LogError, LogRecord, Revision, Stretch};
use punctual_testing::WAIT_MAX;

/// A log without room.
struct Full;

impl CommitLog for Full {
    fn open(&mut self, _: Identity) -> Result<Revision, LogError> {
        Ok(Revision::ZERO)
    }

    fn append(&mut self, _: Revision, _: &[u8]) -> Result<AppendResult, LogError> {
        Err(LogError::NoRoom)
    }

    fn read_from(&mut self, _: Revision, _: usize) -> Result<Stretch, LogError> {
        Err(LogError::NoRoom)
    }

    fn watch_from(&mut self, _: Revision, _: usize) -> Result<Vec<LogRecord>, LogError> {
        Ok(Vec::new())
    }

    fn trim(&mut self, _: Revision) -> Result<(), LogError> {
        Ok(())
    }
}

/// A log of the version before ends connections of this one, and nodes of that version do not know of a full log.
#[test]
fn the_version_before_is_spoken_with() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log.socket");
    let _server = LogServer::start(&path, || Some(Full)).unwrap();
    for (version, said) in [(OLDEST, LogError::NoAnswer), (VERSION, LogError::NoRoom)] {
        let mut stream = UnixStream::connect(&path).unwrap();
        let (mut bytes, mut frames) = (Vec::new(), Frames::new(version, FRAME_BYTES_MAX));
        let (last, entry) = (Revision::ZERO, Vec::new());
        let question = Question::Append { last, entry };
        frame::write(&mut bytes, version, &NumberedQuestion { ticket: 7, question });
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
        let said = Err(said);
        assert_eq!(answer, NumberedAnswer { ticket: 7, said });
    }
    let before = folder.path().join("before.socket");
    let listener = UnixListener::bind(&before).unwrap();
    let mut log = LogClient::at(&before, WAIT_MAX);
    let nodes = std::thread::spawn(move || {
        let ended = log.append(Revision::ZERO, b"one");
        (ended, log.append(Revision::ZERO, b"one"))
    });
    for version in [VERSION, OLDEST] {
        let (mut stream, _) = listener.accept().unwrap();
        let mut bytes = [0; 256];
        let count = stream.read(&mut bytes).unwrap();
        let mut frames = Frames::new(OLDEST, FRAME_BYTES_MAX);
        frames.feed(&bytes[..count]);
        let asked = frames.take::<NumberedQuestion>();
        assert_eq!(asked.is_ok(), version == OLDEST, "{asked:?}");
        if let Ok(Some(NumberedQuestion { ticket, .. })) = asked {
            let said = Ok(Response::Appended(AppendResult::At(Revision(1))));
            let mut bytes = Vec::new();
            frame::write(&mut bytes, version, &NumberedAnswer { ticket, said });
            stream.write_all(&bytes).unwrap();
        }
    }
    let (ended, appended) = nodes.join().unwrap();
    assert_eq!(
        (ended, appended),
        (Err(LogError::NoAnswer), Ok(AppendResult::At(Revision(1))))
    );
}
