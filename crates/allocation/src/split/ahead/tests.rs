use super::*;
use crate::allocator::PIECE;
use crate::grid::{Grid, Share};
use crate::policy::Policy;
use crate::profile::{Phase, Profile};
use crate::programs::Objective;
use crate::table::RateTable;

/// Four cores with three tasks each, in overload: jobs pile up.
fn overloaded() -> (Programs, Ahead) {
    let rate = |share: Share| 1e9 * f32::from(share.partitions + share.ways) / 40.0;
    let phase = |number: u32| Phase {
        ends: f64::from(number) / 8.0,
        rates: RateTable::new(Grid::PAPER, rate),
    };
    let profile = Profile {
        name: "program".into(),
        grid: Grid::PAPER,
        instructions: 1e7,
        phases: (1..=8).map(phase).collect(),
    };
    let programs = Programs::new(&[profile], Objective::Speed).unwrap();
    let task = |number: usize| PeriodicTask::new(0, Nanos::from_millis(60 + number as u64), number % 4);
    let tasks: Vec<PeriodicTask> = (0..12).map(task).collect();
    let settings = AllocatorSettings {
        refill: Some(Refill::PAPER),
        ..AllocatorSettings::paper(Policy::Dadna)
    };
    let ahead = Ahead::new(
        &programs,
        &tasks,
        (&settings, Refill::PAPER),
        None,
        &[None; 4],
        Time::ZERO,
    );
    (programs, ahead)
}

/// The planted fault is a look ahead in one piece.
#[test]
fn a_piece_does_no_more_than_its_work_and_one_decision() {
    let (programs, mut ahead) = overloaded();
    let mut finding = 0;
    while ahead.candidates.is_some() {
        assert_eq!(ahead.advance(&programs, PIECE), None);
        finding += 1;
    }
    // Four searches of some 20 thousand steps, two of them twice over.
    assert!(finding > 15, "{finding} pieces");
    let mut most = 0;
    for _ in 0..2_000 {
        let before = ahead.work;
        let jobs = |run: &Run| run.model.jobs() as u64;
        let jobs = ahead.runs.iter().map(jobs).max().unwrap_or(0);
        assert_eq!(ahead.advance(&programs, PIECE), None);
        let done = ahead.work - before;
        assert!(done <= PIECE + DECISION + jobs + 12, "{done} units beside {jobs} jobs");
        most = most.max(done);
    }
    assert!(most >= PIECE, "{most}");
    let (programs, mut ahead) = overloaded();
    assert!(ahead.advance(&programs, u64::MAX).is_some());
    assert!(ahead.work > PIECE * 1_000, "{}", ahead.work);
}
