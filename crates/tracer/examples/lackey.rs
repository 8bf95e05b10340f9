//! The same figures by another way: a trace that Valgrind wrote, through caches that are lists.
//!
//! ```sh
//! valgrind --tool=lackey --trace-mem=yes --log-fd=9 PROGRAM ARGS 9>&1 >/dev/null |
//!     cargo run --release -p punctual-tracer --example lackey
//! ```
//!
//! Prints instructions, requests to the LLC and misses with 1, 2, ... ways, for the caches that `punctual profile`
//! models if it is not told otherwise. `L1`, `L2` (0 for none), `WAYS` and `WAY` change them: bytes, and a number of
//! ways. With `ONCE=1` an access that lies across two lines is one request at most, and one miss, as cachegrind counts;
//! else each line counts.

#[path = "../tests/it/naive/mod.rs"]
mod naive;

use std::io::BufRead;

use naive::{NaiveCaches, Source};
use punctual_tracer::{Cache, Geometry, LINE_BYTES};

fn main() -> std::io::Result<()> {
    let mut caches = NaiveCaches::new(&geometry());
    let once = number("ONCE", 0) != 0;
    let mut instructions: u64 = 0;
    let mut line = Vec::new();
    let mut trace = std::io::stdin().lock();
    while trace.read_until(b'\n', &mut line)? > 0 {
        if let Some((source, address, bytes)) = access(&line) {
            instructions += u64::from(source == Source::Instructions);
            let (first, last) = (address / LINE_BYTES, (address + bytes - 1) / LINE_BYTES);
            let lines: Vec<u64> = (first..=last).collect();
            if once {
                caches.ask(source, &lines);
            } else {
                lines.chunks(1).for_each(|line| caches.ask(source, line));
            }
        }
        line.clear();
    }
    let (requests, misses) = caches.take();
    println!("instructions {instructions}, requests {requests}, misses by ways {misses:?}");
    Ok(())
}

/// `I  04001000,3`, ` L 1ffe,8`, ` S 1ffe,8` or ` M 1ffe,8`; other lines are Valgrind's remarks.
fn access(line: &[u8]) -> Option<(Source, u64, u64)> {
    let line = std::str::from_utf8(line).ok()?;
    let source = match line.get(..3)? {
        "I  " => Source::Instructions,
        " L " | " S " | " M " => Source::Data,
        _ => return None,
    };
    let (address, bytes) = line[3..].trim_end().split_once(',')?;
    let bytes = bytes.parse().ok().filter(|bytes| *bytes > 0)?;
    Some((source, u64::from_str_radix(address, 16).ok()?, bytes))
}

fn geometry() -> Geometry {
    let full = Geometry::FULL;
    let private = |bytes| Cache { bytes, ways: 8 };
    Geometry {
        l1: private(number("L1", full.l1.bytes)),
        l2: Some(number("L2", 256 << 10)).filter(|bytes| *bytes > 0).map(private),
        ways: number("WAYS", full.ways.into()).try_into().unwrap_or(full.ways),
        way_bytes: number("WAY", full.way_bytes),
        ..full
    }
}

fn number(name: &str, usual: u64) -> u64 {
    let value = std::env::var(name).ok();
    value.and_then(|value| value.parse().ok()).unwrap_or(usual)
}
