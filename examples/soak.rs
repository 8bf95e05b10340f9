//! Memory of a runtime that goes on and on: a 1 kHz task, a live sensor at 200 readings per second, tasks that come and
//! go.
//!
//! `cargo run --release -p punctual-examples --example soak -- 3m` prints resident memory twelve times, and fails where
//! it has grown after the first quarter by more than the bound.

use std::error::Error;
use std::time::{Duration, Instant};

use punctual::{ObjectSpec, Runtime, Store, ms};

/// What may come once after the first quarter, in kB. Memory is locked, so a thread's stack of 2 MiB is resident as
/// soon as the thread starts; the C library keeps it for the next thread, and needs one more where two threads overlap.
const GROWTH_MAX_KB: u64 = 2048 + 1024;

const LINES: u32 = 12;

fn main() -> Result<(), Box<dyn Error>> {
    let length = length(&std::env::args().nth(1).unwrap_or_else(|| "30s".into()))?;
    let runtime = Runtime::start(
        Store::in_memory()
            .object(ObjectSpec::number("battery").period(ms(5)))
            .open()?,
    )?;
    let steady = runtime.task("steady").every(ms(1)).due_in(ms(1));
    steady.run(|job| {
        let number = job.number();
        job.write(|store| store.put(b"tick", number.to_le_bytes()))
    })?;
    let battery = runtime.sensor("battery")?;
    let begun = Instant::now();
    let mut settled = None;
    for line in 1..=LINES {
        let guest = runtime.task(format!("guest {line}")).every(ms(5)).run(|_| ())?;
        let until = begun + length * line / LINES;
        while Instant::now() < until {
            battery.offer(12.6)?;
            std::thread::sleep(Duration::from_millis(5));
        }
        guest.stop();
        guest.wait(ms(60_000));
        let figures = runtime.figures()?;
        let resident = resident_kb()?;
        let jobs = figures.task("steady").map_or(0, |task| task.jobs);
        let (updates, tasks) = (figures.updates.offered, figures.tasks.len());
        println!(
            "{:6.0} s  VmRSS {resident} kB  {jobs} jobs, {updates} readings, {tasks} tasks so far",
            begun.elapsed().as_secs_f64()
        );
        if line == LINES / 4 {
            settled = Some(resident);
        }
    }
    let grown = resident_kb()?.saturating_sub(settled.unwrap_or_default());
    runtime.stop()?;
    println!("grown by {grown} kB since the first quarter");
    if grown > GROWTH_MAX_KB {
        return Err(format!("memory grew by {grown} kB, more than {GROWTH_MAX_KB}").into());
    }
    Ok(())
}

/// Resident memory of this process.
fn resident_kb() -> Result<u64, Box<dyn Error>> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))
        .ok_or("no VmRSS in /proc/self/status")?;
    Ok(line.trim().trim_end_matches(" kB").parse()?)
}

/// `90s`, `3m` or `1h`.
fn length(text: &str) -> Result<Duration, Box<dyn Error>> {
    let wrong = || format!("{text:?} is no length: give 90s, 3m or 1h");
    let (number, unit) = text.split_at(text.len().saturating_sub(1));
    let seconds = match unit {
        "s" => 1,
        "m" => 60,
        "h" => 3600,
        _ => return Err(wrong().into()),
    };
    Ok(Duration::from_secs(
        number.parse::<u64>().map_err(|_| wrong())? * seconds,
    ))
}
