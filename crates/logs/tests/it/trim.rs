//! What is left of a log after it was trimmed.

use punctual_logs::{AppendResult, CommitLog, LogError, Memory, Revision};

/// A log with entries 1 to `entries`, each of which is its own number.
fn log(entries: u8) -> Memory {
    let mut log = Memory::default();
    for entry in 1..=entries {
        let last = Revision(u64::from(entry) - 1);
        assert_eq!(log.append(last, &[entry]), Ok(AppendResult::At(last.next())));
    }
    log
}

fn read(log: &mut Memory, after: u64, max: usize) -> Result<(Vec<(u64, u8)>, u64), LogError> {
    let stretch = log.read_from(Revision(after), max)?;
    let numbers = stretch
        .records
        .iter()
        .map(|record| (record.revision.0, record.bytes[0]));
    Ok((numbers.collect(), stretch.last.0))
}

#[test]
fn what_is_left_keeps_its_place_and_appends_go_on() {
    let mut log = log(9);
    log.trim(Revision(5)).unwrap();
    assert_eq!(read(&mut log, 5, 2), Ok((vec![(6, 6), (7, 7)], 9)));
    assert_eq!(
        log.append(Revision(4), b"x"),
        Ok(AppendResult::Lost { last: Revision(9) })
    );
    assert_eq!(log.append(Revision(9), &[10]), Ok(AppendResult::At(Revision(10))));
    assert_eq!(read(&mut log, 9, 9), Ok((vec![(10, 10)], 10)));
}

#[test]
fn readers_that_are_behind_are_told_and_those_at_the_edge_are_not() {
    let mut log = log(9);
    log.trim(Revision(5)).unwrap();
    for after in 0..5 {
        let trimmed = Revision(5);
        assert_eq!(
            read(&mut log, after, 9),
            Err(LogError::Compacted { trimmed }),
            "{after}"
        );
        assert_eq!(
            log.watch_from(Revision(after), 9),
            Err(LogError::Compacted { trimmed }),
            "{after}"
        );
    }
    assert_eq!(log.watch_from(Revision(5), 9).map(|records| records.len()), Ok(4));
}

#[test]
fn a_trim_never_goes_back_and_never_beyond_the_end() {
    let mut log = log(3);
    for (upto, trimmed) in [(2, 2), (1, 2), (2, 2), (7, 3), (3, 3)] {
        log.trim(Revision(upto)).unwrap();
        assert_eq!(
            (log.trimmed(), log.last()),
            (Revision(trimmed), Revision(3)),
            "trim to {upto}"
        );
    }
    // Empty, and still where it was: what was appended once is not taken a second time.
    assert_eq!(read(&mut log, 3, 9), Ok((vec![], 3)));
    assert_eq!(
        log.append(Revision(0), &[1]),
        Ok(AppendResult::Lost { last: Revision(3) })
    );
    assert_eq!(log.append(Revision(3), &[4]), Ok(AppendResult::At(Revision(4))));
}
