//! Kills and power cuts at any step, by images of the memory between two states.

use std::ops::Range;
use std::sync::Arc;

use punctual_units::{Nanos, Seq, Time};
use rand::seq::IndexedRandom;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::super::record::decode;
use punctual_os::MappedMedium;

use super::*;

/// Memory that outlives the objects in it.
#[derive(Clone, Debug)]
struct TestWords(Arc<Vec<AtomicU64>>);

impl MappedWords for TestWords {
    fn words(&self) -> &[AtomicU64] {
        &self.0
    }

    fn write_back(&self, words: Range<usize>) {
        assert!(words.end <= self.0.len());
    }

    fn medium(&self) -> MappedMedium {
        MappedMedium::PersistentMemory
    }
}

impl TestWords {
    fn of(words: &[u64]) -> TestWords {
        TestWords(Arc::new(words.iter().copied().map(AtomicU64::new).collect()))
    }

    fn image(&self) -> Vec<u64> {
        self.0.iter().map(|word| word.load(Ordering::Relaxed)).collect()
    }
}

const LENGTHS: [usize; 4] = [0, 8, 20, 100];

fn specs() -> Vec<ObjectSpec> {
    let spec = |len: usize| ObjectSpec::bytes(format!("sensor {len}"), len).period(Nanos(1));
    LENGTHS.into_iter().map(spec).collect()
}

fn origin() -> ClockOrigin {
    ClockOrigin::named(b"this boot")
}

fn on(words: &TestWords) -> Result<MappedObjects, String> {
    MappedObjects::on(Box::new(words.clone()), &specs(), origin())
}

fn empty() -> TestWords {
    TestWords::of(&vec![0; layout(&specs()).1])
}

/// Number and value of each object, as the next run finds them.
type Values = Vec<Option<(u64, Vec<u8>)>>;

fn found(mapped: &MappedObjects) -> Values {
    let value = |object| {
        let record = mapped.record(ObjectId(object))?;
        let (sample, value) = decode(&record, origin()).unwrap();
        assert_eq!(sample.sampled_at, Some(Time(sample.seq.0 * 3)));
        Some((sample.seq.0, value.to_vec()))
    };
    (0..LENGTHS.len() as u32).map(value).collect()
}

/// The planted fault of a reader that takes the newest copy whether it is whole or not.
fn found_unchecked(mapped: &MappedObjects) -> Values {
    let value = |copies: &Copies| {
        let word = |at: usize| mapped.memory.words()[at].load(Ordering::Relaxed);
        let newest = [0, 1].map(|parity| copies.first + parity * copies.words);
        let at = newest.into_iter().max_by_key(|at| word(at + 1)).unwrap();
        let bytes = (at + BEFORE_RECORD + RECORD_HEADER..at + copies.words).flat_map(|at| word(at).to_ne_bytes());
        let value = bytes.take(word(at + 3) as usize).collect();
        (word(at + 1) > 0).then(|| (word(at + BEFORE_RECORD), value))
    };
    mapped.objects.iter().map(value).collect()
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Plant {
    None,
    /// The checksum is not compared.
    Unchecked,
    /// The newest copy is overwritten.
    Newest,
    /// Values that are installed together count before all are there.
    TooEarly,
}

/// A word of which the first bytes are new.
fn torn(old: u64, new: u64, bytes: usize) -> u64 {
    let (old, new) = (old.to_ne_bytes(), new.to_ne_bytes());
    u64::from_ne_bytes(std::array::from_fn(|at| if at < bytes { new[at] } else { old[at] }))
}

/// Memory that a kill or a power cut may leave between two states: of each word the old or the new content, up to some
/// byte, from some byte on, or by chance, line by line or word by word.
fn between(old: &[u64], new: &[u64], rng: &mut ChaCha8Rng) -> Vec<u64> {
    let differs: Vec<usize> = (0..old.len()).filter(|at| old[*at] != new[*at]).collect();
    let Some(&cut) = differs.choose(rng) else {
        return new.to_vec();
    };
    let (kind, bytes, coins): (u8, usize, u64) = (rng.random_range(0..4), rng.random_range(0..=8), rng.random());
    let word = |at: usize| match kind {
        0 if at == cut => torn(old[at], new[at], bytes),
        1 if at == cut => torn(new[at], old[at], bytes),
        0 if at < cut => new[at],
        1 if at > cut => new[at],
        2 if coins >> (at / LINE % 64) & 1 == 1 => new[at],
        3 if mix(coins ^ at as u64) & 1 == 1 => new[at],
        _ => old[at],
    };
    (0..old.len()).map(word).collect()
}

/// Random updates, each perhaps interrupted; every value that was acknowledged is there afterwards, or the one that was
/// being written.
fn model(seed: u64, steps: usize, plant: Plant) -> Result<(), String> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let mut words = empty();
    let mut mapped = on(&words)?;
    let mut acknowledged: Values = vec![None; LENGTHS.len()];
    for number in 1..=steps as u64 {
        let all: Vec<u32> = (0..LENGTHS.len() as u32).collect();
        let together = rng.random_bool(0.4);
        let objects: Vec<u32> = all.sample(&mut rng, if together { 3 } else { 1 }).copied().collect();
        let values: Vec<Vec<u8>> = objects
            .iter()
            .map(|object| {
                let len = rng.random_range(0..=LENGTHS[*object as usize]);
                (0..len).map(|_| rng.random()).collect()
            })
            .collect();
        let old = words.image();
        let sample = Sample {
            seq: Seq(number),
            sampled_at: Some(Time(number * 3)),
        };
        let updates = objects
            .iter()
            .zip(&values)
            .map(|(object, value)| (ObjectId(*object), sample, &value[..]));
        if plant == Plant::Newest {
            for object in &objects {
                let last = &mapped.objects[*object as usize].last;
                last.store(last.load(Ordering::Relaxed).saturating_sub(1), Ordering::Relaxed);
            }
        }
        match together {
            true => mapped.write_together(updates),
            false => updates.for_each(|(object, sample, value)| mapped.write(object, sample, value, 0)),
        }
        let mut next = acknowledged.clone();
        for (object, value) in objects.iter().zip(values) {
            next[*object as usize] = Some((number, value));
        }
        let mut image = words.image();
        if rng.random_bool(0.5) {
            let new = image.clone();
            // The medium has all copies of values that are installed together before it has their number.
            let raised = new[TOGETHER] != old[TOGETHER];
            let (mut before, mut after) = (old.clone(), new.clone());
            if raised && plant == Plant::TooEarly {
                before[TOGETHER..HEADER].copy_from_slice(&new[TOGETHER..HEADER]);
            } else if raised && rng.random_bool(0.2) {
                before = new.clone();
                before[TOGETHER..HEADER].copy_from_slice(&old[TOGETHER..HEADER]);
            } else {
                after[TOGETHER..HEADER].copy_from_slice(&old[TOGETHER..HEADER]);
            }
            image = between(&before, &after, &mut rng);
        }
        words = TestWords::of(&image);
        mapped = on(&words).map_err(|why| format!("step {number}: {why}"))?;
        let found = match plant {
            Plant::Unchecked => found_unchecked(&mapped),
            _ => found(&mapped),
        };
        if found != acknowledged && found != next {
            return Err(format!("step {number}: {found:?}, not {acknowledged:?} or {next:?}"));
        }
        acknowledged = found;
    }
    Ok(())
}

#[cfg(not(miri))]
const RUNS: (u64, usize) = (200, 200);
#[cfg(miri)]
const RUNS: (u64, usize) = (2, 20);

#[test]
fn an_interrupted_update_is_there_or_the_one_before_it() {
    for seed in 0..RUNS.0 {
        assert_eq!(model(seed, RUNS.1, Plant::None), Ok(()), "seed {seed}");
    }
}

#[test]
fn planted_faults_are_found_by_the_model() {
    for plant in [Plant::Unchecked, Plant::Newest, Plant::TooEarly] {
        assert!((0..20).any(|seed| model(seed, 50, plant).is_err()), "{plant:?}");
    }
}

/// Every byte of both copies.
#[test]
fn an_update_that_is_cut_at_any_byte_leaves_the_one_before_it() {
    let object = ObjectId(2);
    let update = |mapped: &MappedObjects, seq| {
        let sample = Sample {
            seq: Seq(seq),
            sampled_at: Some(Time(seq * 3)),
        };
        mapped.write(object, sample, &[seq as u8; 20], 0);
    };
    for updates in 1..=3 {
        let words = empty();
        let mapped = on(&words).unwrap();
        (1..updates).for_each(|seq| update(&mapped, seq));
        let old = words.image();
        update(&mapped, updates);
        let new = words.image();
        let changed: Vec<usize> = (0..old.len()).filter(|at| old[*at] != new[*at]).collect();
        for (at, bytes) in changed.iter().flat_map(|at| (0..8).map(move |bytes| (*at, bytes))) {
            for (before, after) in [(&new, &old), (&old, &new)] {
                let mut image: Vec<u64> = before[..at].iter().chain(&after[at..]).copied().collect();
                image[at] = torn(after[at], before[at], bytes);
                if image == new {
                    continue;
                }
                let found = found(&on(&TestWords::of(&image)).unwrap()).remove(2);
                let expected = (updates > 1).then(|| (updates - 1, vec![updates as u8 - 1; 20]));
                assert_eq!(found, expected, "update {updates}, word {at}, byte {bytes}");
            }
        }
    }
}

#[test]
fn a_header_that_was_cut_is_written_again_and_another_is_refused() {
    let made = empty();
    drop(on(&made).unwrap());
    let header = made.image();
    for known in 0_usize..8 {
        let image: Vec<u64> = (0..header.len())
            .map(|at| {
                if (1..4).contains(&at) && known >> (at - 1) & 1 == 1 {
                    header[at]
                } else {
                    0
                }
            })
            .collect();
        let words = TestWords::of(&image);
        drop(on(&words).unwrap());
        assert_eq!(words.image(), header);
    }
    for (at, word, why) in [
        (
            0,
            MAGIC.swap_bytes(),
            "a machine of the other byte order has written it",
        ),
        (0, 7, "it holds something else"),
        (1, 2, "another version of punctual has written it"),
        (2, 7, "it belongs to other objects or lengths"),
        (3, 7, "it belongs to other objects or lengths"),
        (8, 7, "its number of values installed together is damaged"),
        (9, 2, "its number of values installed together is damaged"),
    ] {
        let mut image = header.clone();
        image[at] = word;
        let words = TestWords::of(&image);
        assert_eq!(on(&words).unwrap_err(), why);
        assert_eq!(words.image(), image);
    }
    let mut garbage = header.clone();
    (garbage[0], garbage[1]) = (0, 77);
    assert_eq!(on(&TestWords::of(&garbage)).unwrap_err(), "it holds something else");
    // A whole copy in the place of the other one is none.
    let words = TestWords::of(&header);
    let mapped = on(&words).unwrap();
    let sample = Sample {
        seq: Seq(1),
        sampled_at: Some(Time(3)),
    };
    mapped.write(ObjectId(1), sample, b"value", 0);
    let mut image = words.image();
    let Copies { first, words, .. } = mapped.objects[1];
    image.copy_within(first + words..first + 2 * words, first);
    assert_eq!(
        found(&on(&TestWords::of(&image)).unwrap())[1],
        Some((1, b"value".to_vec()))
    );
    image[first + words..first + 2 * words].fill(0);
    assert_eq!(found(&on(&TestWords::of(&image)).unwrap())[1], None);
    let mut damaged = header;
    let first = layout(&specs()).0[1].first;
    damaged[first..].fill(7);
    assert_eq!(
        on(&TestWords::of(&damaged)).unwrap_err(),
        "both copies of sensor 8 are damaged"
    );
}

#[test]
fn instants_of_another_boot_are_unknown() {
    let words = empty();
    let sample = Sample {
        seq: Seq(9),
        sampled_at: Some(Time(27)),
    };
    on(&words).unwrap().write(ObjectId(1), sample, b"value", 0);
    let record = on(&words).unwrap().record(ObjectId(1)).unwrap();
    assert_eq!(decode(&record, origin()).unwrap(), (sample, &b"value"[..]));
    let (sample, value) = decode(&record, ClockOrigin::named(b"another boot")).unwrap();
    assert_eq!((sample.sampled_at, value), (None, &b"value"[..]));
}
