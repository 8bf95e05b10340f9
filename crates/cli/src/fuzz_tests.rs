//! Fuzz targets (`fuzz/checks`) without a fuzzer: seeds of `fuzz/seeds`, mutated at random, by the stable compiler.
//! `FUZZ_TIMES` multiplies the number of cases of each target (`.ci/nightly fuzz` sets millions), `FUZZ_SEED` selects
//! them; a failure prints how to replay it.
//!
//! These tests do not learn which mutation reaches new code. So each test lists outcomes that its cases must reach: a
//! test that sees only refusals shows nothing. `.ci/nightly fuzz` learns, for an hour per target.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::Command;

#[path = "../../../fuzz/checks/mod.rs"]
mod checks;
#[path = "../../../fuzz/checks/node.rs"]
mod node;

/// Checks a case, and returns its outcome.
type Check<'c> = &'c dyn Fn(&[u8]) -> &'static str;

/// The longest case in bytes.
const BYTES_MAX: usize = 16 << 10;
/// The most changes of a seed.
const CHANGES_MAX: usize = 8;

/// SplitMix64 (Steele, Lea and Flood, 2014).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let number = (self.0 ^ self.0 >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let number = (number ^ number >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        number ^ number >> 31
    }

    /// Below `bound`, which is not 0.
    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }

    fn of<'t, T>(&mut self, all: &'t [T]) -> &'t T {
        &all[self.below(all.len())]
    }
}

struct Target<'c> {
    name: &'c str,
    seeds: Vec<Vec<u8>>,
    /// Words with a meaning in the target's input.
    tokens: &'c [&'c [u8]],
    /// Number of cases: as many as run in some tenths of a second.
    cases: u64,
    check: Check<'c>,
}

/// A case that failed its check.
#[derive(Debug, PartialEq)]
struct FailedCase {
    case: u64,
    bytes: Vec<u8>,
}

fn number(name: &str, usual: u64) -> u64 {
    let given = std::env::var(name).ok();
    given.map_or(usual, |text| {
        text.parse().unwrap_or_else(|_| panic!("{name}={text} is no number"))
    })
}

/// The seeds of a target, in the order of their names.
fn seeds(target: &str) -> Vec<Vec<u8>> {
    let folder = tempfile::tempdir().unwrap();
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/seeds");
    let done = Command::new("bash").arg(script).arg(target).arg(folder.path()).status();
    assert!(done.is_ok_and(|status| status.success()), "{script} {target}");
    let mut files: Vec<_> = std::fs::read_dir(&folder)
        .unwrap()
        .map(|file| file.unwrap().path())
        .collect();
    files.sort();
    files.iter().map(|file| std::fs::read(file).unwrap()).collect()
}

impl Target<'_> {
    /// The case of that number; it depends on no other case, so it can be replayed alone.
    fn case(&self, seed: u64, case: u64) -> Vec<u8> {
        // The seeds themselves come first.
        if let Some(seed) = usize::try_from(case).ok().and_then(|case| self.seeds.get(case)) {
            return seed.clone();
        }
        let mut random = Random(seed ^ case.wrapping_mul(0xD6E8_FEB8_6659_FD93));
        let mut bytes = random.of(&self.seeds).clone();
        for _ in 0..=random.below(CHANGES_MAX) {
            self.change(&mut bytes, &mut random);
        }
        bytes.truncate(BYTES_MAX);
        bytes
    }

    fn change(&self, bytes: &mut Vec<u8>, random: &mut Random) {
        const NOTABLE: [u8; 8] = [0, 1, 0x7f, 0x80, 0xff, b'0', b'-', b'\n'];
        let len = bytes.len();
        let at = random.below(len + 1);
        let to = (at + random.below(16) + 1).min(len);
        match random.below(9) {
            0 if at < len => bytes[at] ^= 1 << random.below(8),
            1 if at < len => bytes[at] = *random.of(&NOTABLE),
            2 if at < len => bytes[at] = random.next() as u8,
            3 => drop(bytes.drain(at..to)),
            4 => {
                let again = bytes[at..to].to_vec();
                bytes.splice(at..at, again);
            }
            // A stretch of another seed, up to all of it.
            5 => {
                let other = random.of(&self.seeds);
                let from = random.below(other.len() + 1);
                let end = from + random.below(other.len() - from + 1);
                bytes.splice(at..at, other[from..end].iter().copied());
            }
            6 => {
                let token = random.of(self.tokens);
                bytes.splice(at..to, token.iter().copied());
            }
            7 => {
                let token = random.of(self.tokens);
                bytes.splice(at..at, token.iter().copied());
            }
            _ => {
                let count = random.below(8);
                let drawn: Vec<u8> = (0..count).map(|_| random.next() as u8).collect();
                bytes.splice(at..at, drawn);
            }
        }
    }

    /// Counts of cases by outcome; or the first case that fails.
    fn run(&self, seed: u64, cases: std::ops::Range<u64>) -> Result<BTreeMap<&'static str, u64>, FailedCase> {
        let mut came_to = BTreeMap::new();
        for case in cases {
            let bytes = self.case(seed, case);
            match catch_unwind(AssertUnwindSafe(|| (self.check)(&bytes))) {
                Ok(what) => *came_to.entry(what).or_default() += 1,
                Err(_) => return Err(FailedCase { case, bytes }),
            }
        }
        Ok(came_to)
    }

    /// Checks that the cases reach all of `wanted`. A fault planted where a mutated case reaches the last of these
    /// outcomes is found, and replayed by its number.
    fn holds(&self, wanted: &[&str]) {
        let (seed, count) = (number("FUZZ_SEED", 1), self.cases * number("FUZZ_TIMES", 1));
        let cases = match std::env::var_os("FUZZ_CASE") {
            Some(_) => number("FUZZ_CASE", 0)..number("FUZZ_CASE", 0) + 1,
            None => 0..count,
        };
        let (name, is_one) = (self.name, std::env::var_os("FUZZ_CASE").is_some());
        let came_to = self.run(seed, cases).unwrap_or_else(|FailedCase { case, bytes }| {
            panic!(
                "{name}: case {case} breaks a promise, as told above; FUZZ_SEED={seed} FUZZ_CASE={case} cargo test -p \
                 punctual-cli --lib fuzz_tests::{name} replays it: \"{}\"",
                bytes.escape_ascii()
            )
        });
        println!("{name}: {count} cases from seed {seed}: {came_to:?}");
        if is_one {
            return;
        }
        for what in wanted {
            assert!(
                came_to.contains_key(what),
                "{name}: no case came to \"{what}\": {came_to:?}"
            );
        }
        let rare = wanted[wanted.len() - 1];
        let planted = |bytes: &[u8]| {
            let what = (self.check)(bytes);
            assert!(what != rare || self.seeds.iter().any(|seed| seed == bytes), "planted");
            what
        };
        let faulty = Target {
            name: self.name,
            seeds: self.seeds.clone(),
            tokens: self.tokens,
            cases: self.cases,
            check: &planted,
        };
        let found = faulty.run(seed, 0..count).expect_err("a planted fault is found");
        let again = faulty.run(seed, found.case..found.case + 1);
        assert_eq!(again, Err(found), "it is replayed");
    }
}

fn holds(name: &str, cases: u64, tokens: &[&[u8]], check: Check<'_>, wanted: &[&str]) {
    let target = Target {
        name,
        seeds: seeds(name),
        tokens,
        cases,
        check,
    };
    target.holds(wanted);
}

#[test]
fn resp() {
    let tokens: [&[u8]; 12] = [
        b"\r\n",
        b"*2\r\n",
        b"$3\r\n",
        b"$-1\r\n",
        b"*-1\r\n",
        b"$999999999999999999\r\n",
        b"*1048577\r\n",
        b"%1\r\n",
        b"~2\r\n",
        b">1\r\n",
        b"\"",
        b"\\x",
    ];
    holds(
        "resp",
        8_000,
        &tokens,
        &checks::resp::check,
        &[
            "malformed",
            "requests",
            "half a request",
            "nested replies",
            "malformed behind requests",
        ],
    );
}

#[test]
fn log() {
    let tokens: [&[u8]; 5] = [
        b"PNCTLLOG",
        b"\0\0\0\0",
        b"\xff\xff\xff\xff",
        b"\x01\0\0\0",
        b"\0\xff\xff",
    ];
    let wanted = ["refused", "empty", "entries", "entries of ours"];
    holds("log", 1_000, &tokens, &checks::log::check, &wanted);
}

#[test]
fn peer() {
    let tokens: [&[u8]; 6] = [
        b"\x03",
        b"\xff\xff\xff\xff\x0f",
        b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
        b"\0\0\xc0\x7f",
        b"\x80\0",
        b"\x01\0",
    ];
    let wanted = [
        "garbled",
        "too long",
        "hello",
        "heartbeat",
        "message",
        "reply",
        "readings",
        "copy",
        "request",
    ];
    holds("peer", 8_000, &tokens, &checks::peer::check, &wanted);
}

#[test]
fn node() {
    let tokens: [&[u8]; 14] = [
        b"\"",
        b"'''",
        b"[[",
        b"]",
        b"\n",
        b"=",
        b"-1",
        b"1e308",
        b"nan",
        b"0",
        b"18446744073709551616",
        b"\"\"",
        b"{}",
        b"\0",
    ];
    let wanted = [
        "refused",
        "a store alone",
        "a store with users",
        "a node of a federation",
    ];
    holds("node", 1_500, &tokens, &node::check, &wanted);
}
