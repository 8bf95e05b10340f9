//! What decisions of the loop cost: eight tasks with goals of their own and seven knobs, of which a period's decision
//! turns three (clock, admitted share, best-effort share) and a split's decision four (ways and bandwidth of two
//! cores). Beside them a piece of looking ahead, for which a decision may have to wait.
//!
//! ```sh
//! cargo run --release -p punctual-loop --features allocation --example decision_cost
//! ```
//!
//! *Cold*: between two decisions 64 MiB are written, more than the caches of a core hold, so that neither what the loop
//! knows nor its code is in them: as after a period in which other programs ran. Nothing is rehearsed; the event is
//! new, as the thread that asks has just written it. *Warm*: one decision right after the other. The *control* reads
//! the clock twice, with nothing in between.

#[path = "../tests/it/common/mod.rs"]
mod common;

use std::hint::black_box;
use std::time::Instant;

use punctual_allocation::{Base, PeriodicTask, Policy, Refill};
use punctual_loop::{Event, Regulator};
use punctual_units::{Hertz, Nanos, Time};

const DECISIONS: u64 = 400;
const SWEPT_BYTES: usize = 64 << 20;

fn timed<T>(what: impl FnOnce() -> T) -> Nanos {
    let begun = Instant::now();
    black_box(what());
    Nanos(begun.elapsed().as_nanos() as u64)
}

fn told(what: &str, mut times: Vec<Nanos>) {
    times.sort_unstable();
    let at = |share: f64| times[((times.len() - 1) as f64 * share) as usize].as_micros_f64();
    println!(
        "{what:<24} median {:6.2} us, p99 {:6.2} us, most {:6.2} us",
        at(0.5),
        at(0.99),
        at(1.0)
    );
}

/// A loop that has begun to look ahead for twelve tasks on four cores, in overload, and when.
fn looking() -> (Regulator, Time) {
    let mut split = common::split(Policy::Dna, Some(Refill::PAPER));
    (split.settings.cores, split.settings.base) = (4, Base::Ahead);
    let from = Time::ZERO + Nanos::from_secs(1);
    let task = |number: usize| PeriodicTask {
        from: if number < 4 { Time::ZERO } else { from },
        ..PeriodicTask::new(number % 2, Nanos::from_millis(150 + 7 * number as u64), number % 4)
    };
    split.tasks = (0..12).map(task).collect();
    let mut regulator = Regulator::new(punctual_loop::RegulatorOptions {
        split: Some(split),
        ..common::options()
    })
    .expect("options of this program");
    let jobs = Event::Jobs {
        clock: Hertz::from_mhz(2000),
        cores: Vec::new(),
        foreseen: false,
    };
    regulator.step(&jobs, from);
    (regulator, from)
}

fn main() {
    let mut swept = vec![0_u8; SWEPT_BYTES];
    for cold in [false, true] {
        let mut regulator = Regulator::new(punctual_loop::RegulatorOptions {
            split: Some(common::split(Policy::Exact, Some(Refill::PAPER))),
            ..common::options()
        })
        .expect("options of this program");
        let (mut periods, mut splits, mut control) = (Vec::new(), Vec::new(), Vec::new());
        let mut sweep = || {
            if cold {
                swept
                    .iter_mut()
                    .step_by(64)
                    .for_each(|byte| *byte = byte.wrapping_add(1));
                black_box(&swept);
            }
        };
        for number in 0..DECISIONS {
            let mut now = Time::ZERO;
            (0..common::TASKS).for_each(|task| now = common::job(&mut regulator, number, task));
            sweep();
            control.push(timed(|| ()));
            sweep();
            let period = Event::Period(common::vitals(now));
            periods.push(timed(|| regulator.step(&period, now)));
            common::decide(&mut regulator, now);
            sweep();
            let jobs = common::jobs(number, now);
            splits.push(timed(|| regulator.step(&jobs, now)));
        }
        let (mut looking, mut now) = looking();
        let mut pieces = Vec::new();
        loop {
            sweep();
            let mut due = None;
            pieces.push(timed(|| due = looking.look(now)));
            if due.is_some() || cold && pieces.len() as u64 >= DECISIONS {
                break;
            }
            now = looking.split_due().expect("a look ahead is under way");
        }
        let heat = if cold { "cold" } else { "warm" };
        told(&format!("decision per period, {heat}"), periods);
        told(&format!("decision of a split, {heat}"), splits);
        told(&format!("piece of a look, {heat}"), pieces);
        told(&format!("control, {heat}"), control);
    }
}
