//! Cost of starting a guardian, and so of replacing a dead one, for a process with much locked memory.
//!
//! `cargo run --release -p punctual-custody --example guardian_cost -- 256` (in MiB)

use std::time::Instant;

use punctual_custody::journal::Journal;
use punctual_platform::linux::thread;

const PAGE: usize = 4096;

/// Writes to every page; returns the average time per page in nanoseconds.
fn write_all(memory: &mut [u8], value: u8) -> u128 {
    let start = Instant::now();
    memory.iter_mut().step_by(PAGE).for_each(|byte| *byte = value);
    std::hint::black_box(&memory);
    start.elapsed().as_nanos() / (memory.len() / PAGE) as u128
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mebibytes = std::env::args().nth(1).map_or(Ok(256), |text| text.parse::<usize>())?;
    let mut memory = vec![1u8; mebibytes << 20];
    thread::lock_memory().map_err(|refusal| refusal.to_string())?;
    let before = write_all(&mut memory, 2);
    let folder = std::env::temp_dir().join(format!("punctual-guardian-cost-{}", std::process::id()));
    let start = Instant::now();
    let journal = Journal::open_in(&folder, true).map_err(|refusal| refusal.to_string())?;
    let started = start.elapsed();
    let (first, second) = (write_all(&mut memory, 3), write_all(&mut memory, 4));
    println!(
        "{mebibytes} MiB locked: a guardian is started in {started:?}; a write to a page takes {before} ns before, \
         {first} ns the first time after, {second} ns the second time"
    );
    drop(journal);
    std::fs::remove_dir_all(folder)?;
    Ok(())
}
