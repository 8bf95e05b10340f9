//! Every log passes the conformance suite, and the suite catches logs that should not pass.

use proptest::prelude::*;
use proptest::test_runner::{TestCaseError, TestRunner};
use punctual_logs::conformance::{APPENDERS, Step, check};
use punctual_logs::{Appended, CommitLog, Faults, Identity, LogError, Memory, Record, Revision, Stretch, Unreliable};

const CASES: u32 = 400;

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let appender = 0..APPENDERS;
    let step = prop_oneof![
        4 => appender.clone().prop_map(Step::Append),
        2 => appender.clone().prop_map(Step::Again),
        3 => appender.prop_map(Step::Read),
        2 => (0..8_u8, 0..8_u8).prop_map(|(back, max)| Step::ReadBack(back, max)),
        2 => (0..8_u8, 0..8_u8).prop_map(|(back, max)| Step::Watch(back, max)),
        1 => (0..8_u8).prop_map(Step::Trim),
    ];
    prop::collection::vec(step, 0..120)
}

/// Whether the suite is content with what `make` makes from a seed, and otherwise its complaint.
fn passes<L: CommitLog>(make: impl Fn(u64) -> L) -> Result<(), String> {
    let mut runner = TestRunner::deterministic_with_cases(CASES);
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

const BAD_NETWORK: Faults = Faults {
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
    let forgetful = Faults {
        unsynced_loss: 40,
        ..Faults::default()
    };
    assert!(passes(|seed| Unreliable::new(Memory::default(), forgetful, seed)).is_err());
}

/// What a log does wrong.
#[derive(Clone, Copy, Debug)]
enum Planted {
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
}

use Planted::*;

struct Wrong {
    log: Memory,
    fault: Planted,
    stale: Option<Stretch>,
    calls: u32,
}

impl CommitLog for Wrong {
    fn open(&mut self, identity: Identity) -> Result<Revision, LogError> {
        match (self.fault, self.log.open(identity)) {
            (TakesEveryFederation, Err(LogError::OtherFederation { .. })) => Ok(self.log.last()),
            (TakesEveryFormat, Err(LogError::NewerFormat { .. })) => Ok(self.log.last()),
            (_, answer) => answer,
        }
    }

    fn append(&mut self, last: Revision, entry: &[u8]) -> Result<Appended, LogError> {
        self.calls += 1;
        match self.fault {
            AppendsWhereverTheEndIs => self.log.append(self.log.last(), entry),
            AnswersTheWrongRevision => self.log.append(last, entry).map(|answer| match answer {
                Appended::At(at) => Appended::At(at.next()),
                lost => lost,
            }),
            LosesWithoutNeed if self.calls.is_multiple_of(5) => Ok(Appended::Lost { last: self.log.last() }),
            RepeatsAtTheNextPlace => {
                let answer = self.log.append(last, entry);
                if let Ok(Appended::At(at)) = answer {
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
        if matches!(self.fault, ReadsStale) && max == usize::MAX {
            return Ok(self.stale.replace(now.clone()).unwrap_or(now));
        }
        Ok(now)
    }

    fn watch_from(&mut self, after: Revision, max: usize) -> Result<Vec<Record>, LogError> {
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
    let faults = [
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
    ];
    for fault in faults {
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
