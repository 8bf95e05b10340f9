//! The forgotten reader: puts beside a reader that never ends its snapshot, and the same puts without one, in turns.
//!
//! ```text
//! cargo run --release -p punctual-engines --example forgotten_reader [PUTS [READERS]]
//! ```
//!
//! One store has a reader that has forgotten its snapshot; when that is ended, the next reader forgets its own, every
//! second one with a firm deadline; READERS is 2 by default. Each put beside a reader takes new pages of the file;
//! thousands of readers keep one open all the time. The other store has no reader. Both take the same puts, a thousand
//! in turn. The no-op line is what the clock around a put costs by itself. Then the first store is closed and opened
//! again without a check.

use std::path::Path;
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Instant;

use punctual_engines::Lmdb;
use punctual_engines::lmdb::{LmdbOptions, Verify};
use punctual_os::LinuxOs;
use punctual_store::engine::{Durability, EndedBecause, Engine};
use punctual_store::readers::EndedReader;
use punctual_store::{Deadline, Store, StoreOptions};
use punctual_units::{Clock, Nanos};

const TURN: usize = 1_000;
const VALUE_LEN: usize = 100;
/// Firm deadline of every second reader.
const FIRM: Nanos = Nanos::from_millis(50);

type AnyError = Box<dyn std::error::Error>;
type LinuxStore = Store<Lmdb, LinuxOs>;

fn main() -> Result<(), AnyError> {
    let argument = |at, default| {
        std::env::args()
            .nth(at)
            .map_or(Ok(default), |text| text.parse::<usize>())
    };
    let (puts, readers_max) = (argument(1, 1_000_000)?, argument(2, 2)?);
    let folder = tempfile::tempdir()?;
    let (with, without) = (folder.path().join("with"), folder.path().join("without"));
    let (tell, ended) = mpsc::channel();
    let beside = open(&with, Verify::Full)?;
    beside.set_reader_alarm(move |reader| {
        let _ = tell.send(reader); // the thread that forgets may have ended
    });
    let alone = open(&without, Verify::Full)?;
    let readers = Arc::clone(&beside);
    let forgetting = thread::spawn(move || forget(&readers, &ended, readers_max));

    let mut spans = [
        Vec::with_capacity(puts),
        Vec::with_capacity(puts),
        Vec::with_capacity(puts),
    ];
    let mut wrote = [const { Vec::new() }; 3];
    for turn in 0..puts.div_ceil(TURN) {
        let keys = turn * TURN..((turn + 1) * TURN).min(puts);
        let stores = [Some(&beside), Some(&alone), None].into_iter();
        for ((store, spans), wrote) in stores.zip(&mut spans).zip(&mut wrote) {
            let before = written();
            for key in keys.clone() {
                let began = LinuxOs.now();
                if let Some(store) = store {
                    store.put(key_of(key).as_bytes(), [7; VALUE_LEN])?;
                }
                spans.push(LinuxOs.now().since(began));
            }
            wrote.push((written() - before) / keys.len() as u64);
        }
    }
    let mut medians = [Nanos::ZERO; 3];
    for ((name, spans), median) in ["beside a reader", "alone", "no-op"]
        .into_iter()
        .zip(&mut spans)
        .zip(&mut medians)
    {
        spans.sort_unstable();
        *median = spans[spans.len() / 2];
        println!(
            "put {name:<16} p50 {median}, p99 {}, {} of them, no error",
            spans[spans.len() * 99 / 100],
            spans.len()
        );
    }
    for (name, wrote) in ["beside a reader", "alone"].into_iter().zip(&mut wrote) {
        let at = |part: usize| wrote[(wrote.len() - 1) * part / 4];
        println!(
            "written for a put, {name}: {} bytes in the first turn, {}, {}, {} after quarters, {} in the last",
            at(0),
            at(1),
            at(2),
            at(3),
            at(4)
        );
    }
    println!("ratio of the medians {:.3}", medians[0].0 as f64 / medians[1].0 as f64);
    let space = beside.engine().space()?;
    let times = space.taken as f64 / space.data as f64;
    println!(
        "file {} bytes, data {} bytes: {times:.2} times the data",
        space.taken, space.data
    );
    println!("{} readers ended", beside.readers_ended().count);
    beside.set_reader_alarm(|_| ()); // drops the sender of alarms, so that the forgetting thread ends
    report(forgetting.join().map_err(|_| "the thread that forgets panicked")?);

    drop((beside, alone));
    for verify in [Verify::Full, Verify::Structure, Verify::None] {
        let began = Instant::now();
        open(&with, verify)?;
        println!(
            "opened with verify {verify:?} in {:?}, in the page cache",
            began.elapsed()
        );
    }
    Ok(())
}

/// Bytes that this process has handed to the kernel to be written so far (proc(5)); 0 if unknown.
fn written() -> u64 {
    let told = std::fs::read_to_string("/proc/self/io").unwrap_or_default();
    let line = told.lines().find_map(|line| line.strip_prefix("wchar: "));
    line.and_then(|number| number.parse().ok()).unwrap_or(0)
}

fn open(folder: &Path, verify: Verify) -> Result<Arc<LinuxStore>, AnyError> {
    let options = LmdbOptions {
        durability: Durability::Volatile,
        verify,
        ..LmdbOptions::default()
    };
    Ok(Arc::new(Store::open(
        options.open(folder)?,
        LinuxOs,
        StoreOptions::default(),
    )?))
}

/// Takes snapshots and forgets them, one after the other, until there were enough or no more alarms can come.
fn forget(store: &LinuxStore, ended: &mpsc::Receiver<EndedReader>, readers_max: usize) -> Vec<EndedReader> {
    let mut all = Vec::new();
    for number in 0..readers_max {
        let deadline = match number % 2 {
            0 => Deadline::NONE,
            _ => Deadline::firm(LinuxOs.now() + FIRM),
        };
        let Ok(forgotten) = store.read_transaction(deadline) else {
            continue;
        };
        let _ = forgotten.get(key_of(number).as_bytes());
        match ended.recv() {
            Ok(reader) => all.push(reader),
            Err(_) => break,
        }
    }
    all
}

/// Delay between each reader's bound and its end, for bounds that are an instant.
fn report(ended: Vec<EndedReader>) {
    for why in EndedBecause::ALL {
        let of_it: Vec<_> = ended.iter().filter(|reader| reader.why == why).collect();
        if let Some(longest) = of_it.iter().map(|reader| reader.age).max() {
            println!("{} ended because {why}, the oldest {longest} old", of_it.len());
        }
    }
    let late = ended.iter().filter(|reader| reader.why == EndedBecause::Deadline);
    if let Some(late) = late.map(|reader| reader.age - FIRM).max() {
        println!("alarm at the latest {late} after a firm deadline");
    }
}

/// Scattered, so that each put touches another leaf.
fn key_of(number: usize) -> String {
    format!("key/{:012}", number.wrapping_mul(61_803_398_875) % 1_000_000_007)
}
