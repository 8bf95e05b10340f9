//! The models against naive ones: lists of lines, a cache for each number of ways, every access at its own time.

use crate::naive;

use naive::{NaiveCaches, NaiveLru, Source};
use proptest::prelude::*;
use punctual_tracer::{Block, Cache, Geometry, LINE_BYTES, LruSets, Recorder, Stream, Window};

/// Small caches, so that short programs fill them; sets that are no power of two, too.
fn geometries() -> impl Strategy<Value = Geometry> {
    let l1 = (1_u64..5, 1_u8..4);
    let l2 = prop::option::of((1_u64..9, 1_u8..5));
    (l1, l2, 1_u8..9, 1_u64..8, 1_u64..60).prop_map(|(l1, l2, ways, sets, window)| {
        let cache = |(sets, ways): (u64, u8)| Cache {
            bytes: sets * u64::from(ways) * LINE_BYTES,
            ways,
        };
        Geometry {
            l1: cache(l1),
            l2: l2.map(cache),
            ways,
            way_bytes: sets * LINE_BYTES,
            window,
        }
    })
}

/// What a program does next.
#[derive(Clone, Copy, Debug)]
enum Act {
    /// Enter a block: first line, lines, instructions.
    Enter(u64, u64, u64),
    /// Access: address, bytes.
    Access(u64, u64),
}

fn acts() -> impl Strategy<Value = Vec<Act>> {
    let enter = (0_u64..40, 1_u64..4, 1_u64..30).prop_map(|(line, lines, n)| Act::Enter(line, lines, n));
    let access = (0_u64..80 * LINE_BYTES, 0_u32..6).prop_map(|(address, shift)| Act::Access(address, 1 << shift));
    prop::collection::vec(prop_oneof![1 => enter, 3 => access], 0..400)
}

/// The windows of a program as the plugin makes them: reports are taken before a block.
fn windows(geometry: &Geometry, acts: &[Act]) -> Vec<Window> {
    let (mut stream, mut recorder) = (Stream::new(geometry), Recorder::new(geometry));
    let mut windows = Vec::new();
    for act in acts {
        match *act {
            Act::Enter(line, lines, instructions) => {
                if stream.is_due() && stream.report(&mut recorder) {
                    windows.push(recorder.take());
                }
                stream.enter(Block::new(line, lines, instructions));
            }
            Act::Access(address, bytes) => stream.access(address, bytes),
        }
    }
    if stream.report(&mut recorder) {
        windows.push(recorder.take());
    }
    windows.extend((recorder.open() != &Window::new(geometry.ways.into())).then(|| recorder.open().clone()));
    windows
}

/// The same by the naive models; a window ends before the first block at which it is full.
fn naive_windows(geometry: &Geometry, acts: &[Act]) -> Vec<(u64, u64, Vec<u64>)> {
    let mut caches = NaiveCaches::new(geometry);
    let mut windows = Vec::new();
    let mut instructions = 0;
    for act in acts {
        match *act {
            Act::Enter(line, lines, count) => {
                if instructions >= geometry.window {
                    windows.push((instructions, caches.take()));
                    instructions = 0;
                }
                instructions += count;
                (line..line + lines).for_each(|line| caches.ask(Source::Instructions, &[line]));
            }
            Act::Access(address, bytes) => {
                let lines: std::collections::BTreeSet<u64> =
                    (address..address + bytes).map(|b| b / LINE_BYTES).collect();
                lines.into_iter().for_each(|line| caches.ask(Source::Data, &[line]));
            }
        }
    }
    windows.push((instructions, caches.take()));
    windows
        .into_iter()
        .map(|(instructions, (requests, misses))| (instructions, requests, misses))
        .filter(|(instructions, requests, _)| *instructions + *requests > 0)
        .collect()
}

fn rows(windows: &[Window]) -> Vec<(u64, u64, Vec<u64>)> {
    windows
        .iter()
        .map(|window| (window.instructions, window.requests, window.misses().collect()))
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn a_cache_of_c_ways_misses_what_stack_distances_say(
        sets in 1_u64..6, ways in 1_usize..9, lines in prop::collection::vec(0_u64..60, 0..300)
    ) {
        let mut stacks = LruSets::new(sets, ways);
        let mut caches: Vec<NaiveLru> = (1..=ways).map(|ways| NaiveLru::new(sets, ways)).collect();
        for line in lines {
            let distance = stacks.touch(line);
            for (fewer, cache) in caches.iter_mut().enumerate() {
                prop_assert_eq!(cache.misses(line), distance > fewer, "{} ways, line {}", fewer + 1, line);
            }
        }
    }

    #[test]
    fn windows_are_those_of_naive_caches(geometry in geometries(), acts in acts()) {
        prop_assert_eq!(rows(&windows(&geometry, &acts)), naive_windows(&geometry, &acts));
    }

    #[test]
    fn more_ways_never_miss_more(geometry in geometries(), acts in acts()) {
        for window in windows(&geometry, &acts) {
            let misses: Vec<u64> = window.misses().collect();
            prop_assert!(misses.is_sorted_by(|more, fewer| more >= fewer) && misses[0] <= window.requests);
        }
    }

    #[test]
    fn a_geometry_is_what_its_words_say(geometry in geometries()) {
        prop_assert_eq!(geometry.check(), Ok(()));
        prop_assert_eq!(Geometry::from_words(geometry.to_words()), Some(geometry));
    }
}

/// A planted fault: the naive model with the newest line replaced in place of the oldest must not pass for LRU.
#[test]
fn another_replacement_is_noticed() {
    let mut stacks = LruSets::new(1, 2);
    let mut wrong = NaiveLru::new(1, 2).replacing_the_newest();
    let lines = [1, 2, 3, 1, 2, 3, 2];
    let differs = lines
        .iter()
        .any(|line| wrong.misses(*line) != (stacks.touch(*line) >= 2));
    assert!(differs);
}

#[test]
fn caches_that_cannot_be_are_refused() {
    let wrong = |change: fn(&mut Geometry)| {
        let mut geometry = Geometry::FULL;
        change(&mut geometry);
        geometry.check().map_err(|error| error.to_string())
    };
    assert_eq!(wrong(|_| ()), Ok(()));
    let message = |change| wrong(change).expect_err("refused");
    let l1 = message(|g| g.l1.bytes = 1000);
    assert!(l1.starts_with("L1 has 1000 bytes: ") && l1.contains("512"), "{l1}");
    assert_eq!(message(|g| g.ways = 65), "65 ways: give 1 to 64");
    let way = message(|g| g.way_bytes = 100);
    assert!(way.starts_with("a way has 100 bytes: ") && way.contains("64"), "{way}");
    assert!(message(|g| g.way_bytes = 1 << 32).starts_with("all ways together"));
    assert!(message(|g| g.window = 0).starts_with("a window without instructions"));
}
