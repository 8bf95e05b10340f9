//! Every log passes the conformance suite, and the suite catches logs that should not pass.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::Path;

use proptest::prelude::*;
use proptest::test_runner::{TestCaseError, TestRunner};
use punctual_logs::{
    AppendResult, CommitLog, FORMAT, FederationId, HistoryId, Identity, Local, LogError, LogHistory, LogRecord,
    LogState, Memory, Revision, Stretch,
};
use tempfile::TempDir;

use crate::suite::{APPENDERS, LogCall, check};
use crate::unreliable::{FaultRates, Unreliable};

const OURS: Identity = Identity {
    federation: FederationId(1),
    format: FORMAT,
    history: LogHistory {
        id: HistoryId(1),
        base: Revision::ZERO,
        parent: HistoryId(0),
    },
};

const CASES: u32 = 400;
/// Fewer where each case makes files, or threads.
const SLOW_CASES: u32 = 40;

fn steps() -> impl Strategy<Value = Vec<LogCall>> {
    let appender = 0..APPENDERS;
    let step = prop_oneof![
        4 => appender.clone().prop_map(LogCall::Append),
        2 => appender.clone().prop_map(LogCall::Again),
        3 => appender.prop_map(LogCall::Read),
        2 => (0..8_u8, 0..8_u8).prop_map(|(back, max)| LogCall::ReadBack(back, max)),
        2 => (0..8_u8, 0..8_u8).prop_map(|(back, max)| LogCall::Watch(back, max)),
        1 => (0..8_u8).prop_map(LogCall::Trim),
    ];
    prop::collection::vec(step, 0..120)
}

/// Whether the suite is content with what `make` makes from a seed, and otherwise its complaint.
fn passes<L: CommitLog>(make: impl Fn(u64) -> L) -> Result<(), String> {
    passes_in(CASES, make)
}

fn passes_in<L: CommitLog>(cases: u32, make: impl Fn(u64) -> L) -> Result<(), String> {
    let mut runner = TestRunner::deterministic_with_cases(cases);
    runner
        .run(&(steps(), any::<u64>()), |(steps, seed)| {
            check(&mut make(seed), &steps).map_err(|violation| TestCaseError::fail(violation.to_string()))
        })
        .map_err(|failure| failure.to_string())
}

/// A runner whose cases are the same in every run: whether a planted fault is found must not depend on luck.
trait Deterministic {
    fn deterministic_with_cases(cases: u32) -> TestRunner;
}

impl Deterministic for TestRunner {
    fn deterministic_with_cases(cases: u32) -> TestRunner {
        let config = ProptestConfig {
            cases,
            failure_persistence: None,
            ..ProptestConfig::default()
        };
        let rng = prop::test_runner::TestRng::deterministic_rng(prop::test_runner::RngAlgorithm::ChaCha);
        TestRunner::new_with_rng(config, rng)
    }
}

const BAD_NETWORK: FaultRates = FaultRates {
    lost_request: 30,
    late_request: 30,
    repeated_request: 30,
    lost_answer: 30,
    silent_watch: 60,
    unsynced_loss: 0,
};

#[test]
fn memory_conforms() {
    passes(|_| Memory::default()).unwrap();
}

#[test]
fn a_log_behind_a_bad_network_conforms() {
    passes(|seed| Unreliable::new(Memory::default(), BAD_NETWORK, seed)).unwrap();
}

#[test]
fn a_log_that_forgets_what_it_acknowledged_is_caught() {
    let forgetful = FaultRates {
        unsynced_loss: 40,
        ..FaultRates::default()
    };
    assert!(passes(|seed| Unreliable::new(Memory::default(), forgetful, seed)).is_err());
}

/// What a log does wrong.
#[derive(Clone, Copy, Debug)]
enum LogFault {
    AppendsWhereverTheEndIs,
    AnswersTheWrongRevision,
    LosesWithoutNeed,
    ReadsStale,
    LeavesOneOutOfAWatch,
    TrimsInSilence,
    TrimsMoreThanAsked,
    RepeatsAtTheNextPlace,
    TakesEveryFederation,
    TakesEveryFormat,
    ForgetsItsHistory,
}

use LogFault::*;

const FAULTS: [LogFault; 11] = [
    AppendsWhereverTheEndIs,
    AnswersTheWrongRevision,
    LosesWithoutNeed,
    ReadsStale,
    LeavesOneOutOfAWatch,
    TrimsInSilence,
    TrimsMoreThanAsked,
    RepeatsAtTheNextPlace,
    TakesEveryFederation,
    TakesEveryFormat,
    ForgetsItsHistory,
];

struct Wrong {
    log: Memory,
    fault: LogFault,
    stale: Option<Stretch>,
    calls: u32,
}

impl CommitLog for Wrong {
    fn open(&mut self, identity: Identity) -> Result<LogState, LogError> {
        match (self.fault, self.log.open(identity)) {
            (TakesEveryFederation, Err(LogError::OtherFederation { .. })) => Ok(LogState::default()),
            (TakesEveryFormat, Err(LogError::NewerFormat { .. })) => Ok(LogState::default()),
            (ForgetsItsHistory, Ok(opened)) => Ok(LogState {
                history: identity.history,
                ..opened
            }),
            (_, answer) => answer,
        }
    }

    fn append(&mut self, last: Revision, entry: &[u8]) -> Result<AppendResult, LogError> {
        self.calls += 1;
        match self.fault {
            AppendsWhereverTheEndIs => self.log.append(self.log.last(), entry),
            AnswersTheWrongRevision => self.log.append(last, entry).map(|answer| match answer {
                AppendResult::At(at) => AppendResult::At(at.next()),
                lost => lost,
            }),
            LosesWithoutNeed if self.calls.is_multiple_of(5) => Ok(AppendResult::Lost { last: self.log.last() }),
            RepeatsAtTheNextPlace => {
                let answer = self.log.append(last, entry);
                if let Ok(AppendResult::At(at)) = answer {
                    self.log.append(at, entry)?;
                }
                answer
            }
            _ => self.log.append(last, entry),
        }
    }

    fn read_from(&mut self, after: Revision, max: usize) -> Result<Stretch, LogError> {
        let trimmed = self.log.trimmed();
        if matches!(self.fault, TrimsInSilence) && after < trimmed {
            return self.log.read_from(trimmed, max);
        }
        let now = self.log.read_from(after, max)?;
        if matches!(self.fault, ReadsStale) && max >= u32::MAX as usize {
            return Ok(self.stale.replace(now.clone()).unwrap_or(now));
        }
        Ok(now)
    }

    fn watch_from(&mut self, after: Revision, max: usize) -> Result<Vec<LogRecord>, LogError> {
        let mut records = self.log.watch_from(after, max)?;
        if matches!(self.fault, LeavesOneOutOfAWatch) && records.len() > 2 {
            records.remove(1);
        }
        Ok(records)
    }

    fn trim(&mut self, upto: Revision) -> Result<(), LogError> {
        let more = u64::from(matches!(self.fault, TrimsMoreThanAsked));
        self.log.trim(Revision(upto.0 + more))
    }
}

#[test]
fn every_planted_fault_is_caught() {
    for fault in FAULTS {
        let wrong = |_| Wrong {
            log: Memory::default(),
            fault,
            stale: None,
            calls: 0,
        };
        assert!(passes(wrong).is_err(), "{fault:?} was not caught");
    }
}

#[test]
fn an_entry_above_the_bound_is_refused() {
    let mut log = Memory::default();
    let long = vec![0; punctual_logs::ENTRY_BYTES_MAX + 1];
    let len = long.len();
    assert_eq!(log.append(Revision::ZERO, &long), Err(LogError::EntryTooLong { len }));
    assert_eq!(log.last(), Revision::ZERO);
}

/// A log in a file of its own, which is opened again before every so manieth call, as after a crash.
struct ReopenedLog {
    log: Option<Local>,
    /// Does to the file what a crash may have done, or may not.
    crash: fn(&Path),
    every: u64,
    calls: u64,
    folder: TempDir,
}

impl ReopenedLog {
    fn new(seed: u64, crash: fn(&Path)) -> ReopenedLog {
        ReopenedLog {
            log: None,
            crash,
            every: 2 + seed % 7,
            calls: 0,
            folder: tempfile::tempdir().expect("a folder"),
        }
    }

    fn log(&mut self) -> &mut Local {
        self.calls += 1;
        let path = self.folder.path().join("log");
        if self.calls.is_multiple_of(self.every) && self.log.take().is_some() {
            (self.crash)(&path);
        }
        self.log.get_or_insert_with(|| Local::open(&path).expect("a log"))
    }
}

impl CommitLog for ReopenedLog {
    fn open(&mut self, identity: Identity) -> Result<LogState, LogError> {
        self.log().open(identity)
    }

    fn append(&mut self, last: Revision, entry: &[u8]) -> Result<AppendResult, LogError> {
        self.log().append(last, entry)
    }

    fn read_from(&mut self, after: Revision, max: usize) -> Result<Stretch, LogError> {
        self.log().read_from(after, max)
    }

    fn watch_from(&mut self, after: Revision, max: usize) -> Result<Vec<LogRecord>, LogError> {
        self.log().watch_from(after, max)
    }

    fn trim(&mut self, upto: Revision) -> Result<(), LogError> {
        self.log().trim(upto)
    }
}

#[test]
fn a_log_in_a_file_conforms() {
    passes_in(SLOW_CASES, |_| ReopenedLog {
        every: u64::MAX,
        ..ReopenedLog::new(0, |_| {})
    })
    .unwrap();
}

#[test]
fn a_log_in_a_file_conforms_when_it_is_opened_again_and_again_with_half_an_append_at_its_end() {
    let half_written = |path: &Path| {
        if let Ok(mut file) = OpenOptions::new().append(true).open(path) {
            file.write_all(&[8, 0, 0, 0, 1, 0]).expect("room");
        }
    };
    passes_in(SLOW_CASES, |seed| ReopenedLog::new(seed, half_written)).unwrap();
}

#[test]
fn a_file_that_loses_its_last_record_is_caught() {
    let unsynced = |path: &Path| {
        if let Ok(file) = OpenOptions::new().write(true).open(path) {
            let len = file.metadata().expect("a length").len();
            file.set_len(len.saturating_sub(1).max(36)).expect("a shorter file");
        }
    };
    assert!(passes_in(SLOW_CASES, |seed| ReopenedLog::new(seed, unsynced)).is_err());
}

#[cfg(target_os = "linux")]
mod over_a_socket {
    use std::os::unix::net::UnixStream;
    use std::sync::atomic::AtomicBool;

    use punctual_logs::socket::{LogServer, SharedLog, answer};
    use punctual_testing::WAIT_MAX;

    use super::*;
    use crate::client::LogClient;

    /// `log`, asked from here by a thread at the other end of a socket.
    fn asked<L: CommitLog + Send + 'static>(log: L) -> LogClient {
        let shared = SharedLog::new(log);
        let connect = move || {
            let (ours, theirs) = UnixStream::pair()?;
            let mut shared = shared.clone();
            std::thread::spawn(move || answer(theirs, &mut shared, &AtomicBool::new(false)));
            Ok(ours)
        };
        LogClient::by(connect, WAIT_MAX)
    }

    #[test]
    fn memory_conforms() {
        passes_in(SLOW_CASES, |_| asked(Memory::default())).unwrap();
    }

    #[test]
    fn a_log_in_a_file_conforms() {
        passes_in(SLOW_CASES / 2, |seed| asked(ReopenedLog::new(seed, |_| {}))).unwrap();
    }

    #[test]
    fn a_log_behind_a_bad_network_conforms() {
        passes_in(SLOW_CASES, |seed| {
            asked(Unreliable::new(Memory::default(), BAD_NETWORK, seed))
        })
        .unwrap();
    }

    #[test]
    fn every_planted_fault_is_caught() {
        for fault in FAULTS {
            let wrong = |_| {
                asked(Wrong {
                    log: Memory::default(),
                    fault,
                    stale: None,
                    calls: 0,
                })
            };
            assert!(passes_in(CASES, wrong).is_err(), "{fault:?} was not caught");
        }
    }

    #[test]
    fn several_processes_share_a_log_at_a_path() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let mut log = Memory::default();
        log.open(OURS).unwrap();
        let log = SharedLog::new(log);
        let shared = log.clone();
        let _server = LogServer::start(&path, move || Some(shared.clone())).unwrap();
        let threads: Vec<_> = (0..4_u8)
            .map(|number| {
                let path = path.clone();
                std::thread::spawn(move || {
                    let mut log = LogClient::at(&path, WAIT_MAX);
                    let mut last = log.open(OURS).unwrap().last;
                    let mut mine = Vec::new();
                    while mine.len() < 50 {
                        match log.append(last, &[number]).unwrap() {
                            AppendResult::At(at) => {
                                mine.push(at);
                                last = at;
                            }
                            AppendResult::Lost { last: end } => last = end,
                        }
                    }
                    mine
                })
            })
            .collect();
        let places: Vec<_> = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
        let all = log.log().read_from(Revision::ZERO, usize::MAX).unwrap();
        assert_eq!(all.last, Revision(200));
        for (number, places) in places.iter().enumerate() {
            for at in places {
                assert_eq!(*all.records[at.0 as usize - 1].bytes, [number as u8]);
            }
        }
    }

    #[test]
    fn a_read_longer_than_a_page_is_whole() {
        let mut log = Memory::default();
        log.open(OURS).unwrap();
        for number in 0..12_u8 {
            log.append(log.last(), &vec![number; 1 << 20]).unwrap();
        }
        let whole = log.clone().read_from(Revision(1), 10);
        assert_eq!(asked(log).read_from(Revision(1), 10), whole);
    }

    #[test]
    fn a_log_that_nothing_answers_for_has_no_answer() {
        let folder = tempfile::tempdir().unwrap();
        let mut log = LogClient::at(&folder.path().join("none"), WAIT_MAX);
        assert_eq!(log.open(OURS), Err(LogError::NoAnswer));
    }
}

#[cfg(all(feature = "etcd", target_os = "linux"))]
mod in_etcd {
    use std::process::Command;
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
    use std::time::Duration;

    use punctual_logs::etcd::bridge;
    use punctual_logs::socket::LogServer;
    use punctual_logs::{AppendResult, Etcd};
    use punctual_testing::etcd::{EtcdProgram, Members};
    use punctual_testing::{WAIT_MAX, wait_for, wait_ok};

    use super::*;
    use crate::client::LogClient;

    /// Whether the suite is content with logs in so many members, while `beside` happens to them.
    fn etcd_passes(count: usize, cases: u32, beside: impl Fn(&mut Members, &AtomicBool) + Sync) {
        let program = match EtcdProgram::find() {
            Ok(program) => program,
            Err(why) => return println!("skipped: no etcd ({why})"),
        };
        let folder = tempfile::tempdir().unwrap();
        let members = Members::start(&program, folder.path(), count, WAIT_MAX, |program| {
            Command::new(program)
        });
        let mut members = members.unwrap();
        let address = members.address("log");
        let (places, ends) = (AtomicUsize::new(0), AtomicBool::new(false));
        let result = std::thread::scope(|scope| {
            let trouble = scope.spawn(|| beside(&mut members, &ends));
            let result = passes_in(cases, |_| {
                let mut address = address.clone();
                address.name = format!("log/{}", places.fetch_add(1, Ordering::SeqCst));
                Etcd::new(&address, true).unwrap()
            });
            ends.store(true, Ordering::SeqCst);
            trouble.join().unwrap();
            result
        });
        result.unwrap();
    }

    #[test]
    fn a_log_in_one_member_conforms() {
        etcd_passes(1, SLOW_CASES / 2, |_, _| {});
    }

    #[test]
    fn a_log_in_three_members_conforms_while_its_leaders_are_killed() {
        etcd_passes(3, SLOW_CASES / 5, |members, ends| {
            while !ends.load(Ordering::SeqCst) {
                if let Some(leader) = members.leader().unwrap() {
                    members.kill(leader);
                    // Time for another leader, and for entries without one.
                    std::thread::sleep(Duration::from_millis(200));
                    members.restart(leader).unwrap();
                }
                members.await_leader(WAIT_MAX).unwrap();
            }
        });
    }

    /// As a node asks it, but that the place is claimed beforehand, as a run does.
    #[test]
    fn a_log_over_the_bridge_of_a_node_conforms() {
        let Ok(program) = EtcdProgram::find() else {
            return println!("skipped: no etcd (see the other tests)");
        };
        let folder = tempfile::tempdir().unwrap();
        let members = Members::start(&program, folder.path(), 1, WAIT_MAX, |program| Command::new(program));
        let members = members.unwrap();
        let places = AtomicUsize::new(0);
        passes_in(SLOW_CASES / 4, |_| {
            let place = places.fetch_add(1, Ordering::SeqCst);
            let address = members.address(&format!("log/{place}"));
            let mut log = Etcd::new(&address, true).unwrap();
            wait_ok("the log is open", || log.open(OURS));
            let path = folder.path().join(format!("socket-{place}"));
            let server = bridge(&address.to_string(), &path).unwrap();
            BridgedLog(LogClient::at(&path, WAIT_MAX), server)
        })
        .unwrap();
    }

    #[test]
    fn several_threads_append_over_the_bridge_of_a_node() {
        let program = match EtcdProgram::find() {
            Ok(program) => program,
            Err(why) => return println!("skipped: no etcd ({why})"),
        };
        let folder = tempfile::tempdir().unwrap();
        let members = Members::start(&program, folder.path(), 3, WAIT_MAX, |program| Command::new(program));
        let members = members.unwrap();
        let address = members.address("x").to_string().parse().unwrap();
        let mut log = Etcd::new(&address, true).unwrap();
        sure(|| log.open(OURS)).unwrap();
        let path = folder.path().join("socket");
        let _bridge = bridge(&address.to_string(), &path).unwrap();
        let threads: Vec<_> = (0..4_u8)
            .map(|number| {
                let path = path.clone();
                std::thread::spawn(move || {
                    let mut log = LogClient::at(&path, WAIT_MAX);
                    let mut last = sure(|| log.open(OURS)).unwrap().last;
                    let mut mine = Vec::new();
                    while mine.len() < 20 {
                        match log.append(last, &[number]) {
                            Ok(AppendResult::At(at)) => {
                                mine.push(at);
                                last = at;
                            }
                            Ok(AppendResult::Lost { last: end }) => last = end,
                            Err(LogError::NoAnswer) => last = sure(|| log.open(OURS)).unwrap().last,
                            Err(error) => panic!("{error}"),
                        }
                    }
                    mine
                })
            })
            .collect();
        let places: Vec<_> = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
        let all = sure(|| log.read_from(Revision::ZERO, usize::MAX)).unwrap();
        assert!(all.last >= Revision(80));
        for (number, places) in places.iter().enumerate() {
            for at in places {
                assert_eq!(*all.records[at.0 as usize - 1].bytes, [number as u8]);
            }
        }
    }

    /// Asks until there is an answer.
    fn sure<T>(mut ask: impl FnMut() -> Result<T, LogError>) -> Result<T, LogError> {
        wait_for(
            || "an answer".into(),
            || match ask() {
                Err(LogError::NoAnswer) => None,
                answer => Some(answer),
            },
        )
    }

    struct BridgedLog(
        LogClient,
        #[expect(dead_code, reason = "it serves as long as it is there")] LogServer,
    );

    impl CommitLog for BridgedLog {
        fn open(&mut self, identity: Identity) -> Result<LogState, LogError> {
            self.0.open(identity)
        }

        fn append(&mut self, last: Revision, entry: &[u8]) -> Result<AppendResult, LogError> {
            self.0.append(last, entry)
        }

        fn read_from(&mut self, after: Revision, max: usize) -> Result<Stretch, LogError> {
            self.0.read_from(after, max)
        }

        fn watch_from(&mut self, after: Revision, max: usize) -> Result<Vec<LogRecord>, LogError> {
            self.0.watch_from(after, max)
        }

        fn trim(&mut self, upto: Revision) -> Result<(), LogError> {
            self.0.trim(upto)
        }
    }
}
