//! A real program in the emulator, against caches that are lists and know the program's accesses beforehand.

use crate::common;
use crate::naive;

use common::{compiled, profiled, scaled};
use naive::{NaiveCaches, Source};
use punctual_profiler::{Geometry, ProgramEnding, Window};

/// Accesses of each of the program's two walks.
const ACCESSES: u64 = 400_000;

/// Requests and misses by ways of `tests/programs/walk.c`: its field, and nothing of what surrounds it.
fn expected(geometry: &Geometry) -> (u64, Vec<u64>) {
    let mut caches = NaiveCaches::new(geometry);
    let mut drawn: u64 = 1;
    for lines in [4096, 24_576] {
        for _ in 0..ACCESSES {
            drawn = drawn
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            caches.ask(Source::Data, &[(drawn >> 33) % lines]);
        }
    }
    caches.take()
}

fn totals(windows: &[Window], ways: usize) -> (u64, Vec<u64>) {
    let mut misses = vec![0; ways];
    for window in windows {
        misses
            .iter_mut()
            .zip(window.misses())
            .for_each(|(sum, more)| *sum += more);
    }
    (windows.iter().map(|window| window.requests).sum(), misses)
}

fn difference((requests, misses): (u64, Vec<u64>), less: (u64, Vec<u64>)) -> (u64, Vec<u64>) {
    (
        requests - less.0,
        misses.iter().zip(less.1).map(|(all, less)| all - less).collect(),
    )
}

/// How far the worst of `these` is from its counterpart, as a share of it.
fn worst_error((requests, misses): &(u64, Vec<u64>), (true_requests, true_misses): &(u64, Vec<u64>)) -> f64 {
    let error = |this: u64, truth: u64| (this as f64 - truth as f64).abs() / truth as f64;
    misses
        .iter()
        .zip(true_misses)
        .map(|(this, truth)| error(*this, *truth))
        .fold(error(*requests, *true_requests), f64::max)
}

#[test]
fn a_program_misses_as_naive_caches_say() {
    let folder = tempfile::tempdir().expect("a folder");
    let Some(program) = compiled("walk", folder.path()) else {
        return;
    };
    let geometry = scaled();
    let (run, ending) = profiled(&program, &[&ACCESSES.to_string()], &geometry);
    assert_eq!(ending, ProgramEnding::Finished);
    // What the program does around its walks: start, print, end.
    let (around, _) = profiled(&program, &["0"], &geometry);
    let found = difference(totals(run.windows(), 20), totals(around.windows(), 20));
    let error = worst_error(&found, &expected(&geometry));
    println!("off by {:.3} %", error * 100.0);
    assert!(error < 0.01, "off by {:.2} %: {found:?}", error * 100.0);

    // Planted faults: a sixteenth more sets, and one way less in L2, are not the caches that were asked for.
    for change in [
        |g: &mut Geometry| g.way_bytes += 4096,
        |g: &mut Geometry| {
            g.l2 = g.l2.map(|l2| punctual_profiler::Cache {
                bytes: l2.bytes / 8 * 7,
                ways: 7,
            })
        },
    ] {
        let mut other = geometry;
        change(&mut other);
        let error = worst_error(&found, &expected(&other));
        assert!(error > 0.01, "{other:?} is not told apart: {error}");
    }
}

#[test]
fn windows_end_at_blocks_and_miss_less_with_more_ways() {
    let folder = tempfile::tempdir().expect("a folder");
    let Some(program) = compiled("walk", folder.path()) else {
        return;
    };
    let geometry = Geometry {
        window: 100_000,
        ..scaled()
    };
    let (run, _) = profiled(&program, &[&ACCESSES.to_string()], &geometry);
    let (last, whole) = run.windows().split_last().expect("windows");
    assert!(whole.len() > 40, "{} windows", whole.len());
    for window in whole {
        assert!((100_000..100_600).contains(&window.instructions), "{window:?}");
    }
    assert!((1..100_600).contains(&last.instructions), "{last:?}");
    for window in run.windows() {
        let misses: Vec<u64> = window.misses().collect();
        assert!(
            misses.is_sorted_by(|more, fewer| more >= fewer) && misses[0] <= window.requests,
            "{window:?}"
        );
    }
    // Lines of the first walk fit into four ways, those of the second do not: the phases show.
    let (first, second) = (&whole[whole.len() / 3], &whole[whole.len() * 2 / 3]);
    let misses = |window: &Window| window.misses().nth(7).expect("8 ways") as f64 / window.requests as f64;
    assert!(misses(first) < 0.05 && misses(second) > 0.5, "{first:?} {second:?}");
}

#[test]
fn a_second_run_is_the_same() {
    let folder = tempfile::tempdir().expect("a folder");
    let Some(program) = compiled("walk", folder.path()) else {
        return;
    };
    let found = || {
        let (run, _) = profiled(&program, &["100000"], &scaled());
        totals(run.windows(), 20)
    };
    // What is random is not ours: the seed of the C library's hash tables, for one.
    let error = worst_error(&found(), &found());
    assert!(error < 0.01, "{error}");
}

#[test]
fn threads_have_private_caches_and_share_the_last_one() {
    let folder = tempfile::tempdir().expect("a folder");
    let Some(program) = compiled("threads", folder.path()) else {
        return;
    };
    let (run, ending) = profiled(&program, &[], &scaled());
    assert_eq!(ending, ProgramEnding::Finished);
    assert_eq!(run.progress().threads, 5);
    // Each sweep is far larger than L2, so that every line is asked for in every round, and all of it larger than the
    // LLC.
    let (requests, _) = totals(run.windows(), 20);
    let asked = 4 * 20 * 8192;
    assert!(
        (asked..asked + asked / 50).contains(&requests),
        "{requests} requests, {asked} in the sweeps"
    );
}

#[test]
fn an_error_of_the_program_is_told_and_loses_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let Some(program) = compiled("walk", folder.path()) else {
        return;
    };
    let (failed, ending) = profiled(&program, &["100000", "3"], &scaled());
    assert_eq!(ending, ProgramEnding::Failed(3));
    let (whole, _) = profiled(&program, &["100000"], &scaled());
    let instructions =
        |run: &punctual_profiler::ProfilerRun| run.windows().iter().map(|window| window.instructions).sum::<u64>();
    assert!(instructions(&failed) >= instructions(&whole) / 100 * 99);
}
