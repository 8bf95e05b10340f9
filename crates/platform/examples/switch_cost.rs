//! Cost of recording the thread switches on a core, and of reading the records.
//!
//! `cargo run --release -p punctual-platform --example switch_cost`
//!
//! Two threads on one core pass a byte back and forth by pipes: two switches each time. Rounds with a ring alternate
//! with rounds without one, each beside a control round without one.

use std::io::{Read, Write, pipe};
use std::time::{Duration, Instant};

use punctual_os::LinuxOs;
use punctual_platform::linux::switches::Switches;
use punctual_platform::linux::thread::{allowed_cores, pin};
use punctual_units::{Clock, CoreId, Nanos};

const ROUNDS: usize = 15;
const HANDS: u32 = 20_000;

/// Nanoseconds per thread switch.
fn changes(core: CoreId) -> f64 {
    let ((mut here, mut to_here), (mut there, mut to_there)) = (pipe().unwrap(), pipe().unwrap());
    let echo = std::thread::spawn(move || {
        pin(core).unwrap();
        let mut byte = [0];
        while there.read(&mut byte).unwrap() > 0 {
            to_here.write_all(&byte).unwrap();
        }
    });
    let ping = std::thread::spawn(move || {
        pin(core).unwrap();
        let (mut byte, begun) = ([0], Instant::now());
        for _ in 0..HANDS {
            to_there.write_all(&byte).unwrap();
            here.read_exact(&mut byte).unwrap();
        }
        begun.elapsed()
    });
    let took: Duration = ping.join().unwrap();
    echo.join().unwrap();
    took.as_nanos() as f64 / f64::from(2 * HANDS)
}

fn median(mut list: Vec<f64>) -> f64 {
    list.sort_by(f64::total_cmp);
    list[list.len() / 2]
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let core = *allowed_cores().last().ok_or("no core")?;
    let (mut with, mut without, mut control, mut reading, mut turns) = (vec![], vec![], vec![], vec![], 0);
    for _ in 0..ROUNDS {
        let switches = Switches::of(core).map_err(|refusal| refusal.to_string())?;
        with.push(changes(core));
        let begun = Instant::now();
        turns = turns.max(switches.since(LinuxOs.now() - Nanos::from_millis(10)).len());
        reading.push(begun.elapsed().as_nanos() as f64 * 1e-3);
        drop(switches);
        // The kernel removes its hooks a second after the last ring.
        std::thread::sleep(Duration::from_millis(1500));
        without.push(changes(core));
        control.push(changes(core));
    }
    let (with, without, control) = (median(with), median(without), median(control));
    println!(
        "a change of threads takes {with:.0} ns with a ring, {without:.0} ns without, {control:.0} ns in the control"
    );
    let more = with - without;
    println!(
        "a change costs {more:.0} ns more: {:.2} % of a core at 10,000 changes per second",
        more * 1e4 / 1e7
    );
    println!("reading the last 10 ms ({turns} turns) takes {:.0} us", median(reading));
    Ok(())
}
