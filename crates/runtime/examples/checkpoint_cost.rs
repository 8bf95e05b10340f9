//! Measures the cost of reporting a checkpoint for a real-time job: nanoseconds in the job's own thread.
//!
//! ```text
//! cargo run --release -p punctual-runtime --example checkpoint_cost
//! ```
//!
//! A job reports checkpoints at intervals while it computes, as a job that is paced from within does. By then the
//! control thread sleeps, so most of the cost is waking it. The no-op kind shows the cost of the two clock readings
//! around the call; a run on a loaded machine proves nothing.

use std::ops::ControlFlow;
use std::sync::{Arc, Mutex};

use punctual_engines::Memory;
use punctual_os::LinuxOs;
use punctual_platform::linux::{LinuxMachine, LinuxOptions};
use punctual_runtime::linux::RuntimeBuilder;
use punctual_store::{Store, StoreOptions};
use punctual_units::{Clock, Nanos, Share};
use punctual_workload::{Arrival, Class, Goal, TaskGoal};

/// Number of parts of a job, and computation time of each.
const PARTS: u32 = 32;
const PART: Nanos = Nanos::from_micros(500);
const SECONDS: u64 = 5;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let machine = LinuxMachine::open(LinuxOptions::default())?;
    let store = Arc::new(Store::open(Memory::default(), LinuxOs, StoreOptions::default())?);
    let took: Arc<Mutex<[Vec<Nanos>; 2]>> = Arc::default();
    let mut runtime = RuntimeBuilder::new(machine, store);
    let deadline = Nanos::from_millis(40);
    let every = Arrival::Periodic {
        period: Nanos::from_millis(50),
    };
    let seen = Arc::clone(&took);
    runtime.task("work", Class::RealTime { deadline }, every, move |job| {
        let mut costs = [Vec::new(), Vec::new()];
        for part in 1..PARTS {
            let until = LinuxOs.now() + PART;
            while LinuxOs.now() < until {}
            let begun = LinuxOs.now();
            let before = LinuxOs.now();
            job.progress(part, PARTS);
            let after = LinuxOs.now();
            costs[0].push(before.since(begun));
            costs[1].push(after.since(before));
        }
        if let Ok(mut all) = seen.lock() {
            all.iter_mut().zip(costs).for_each(|(all, costs)| all.extend(costs));
        }
    });
    let goal = Goal {
        tasks: TaskGoal::Tardiness(0.85),
        drr: 0.5,
        min_fresh: Share::ZERO,
    };
    let mut options = runtime.options("checkpoints", goal, Nanos::from_secs(SECONDS));
    options.regulator.within = true;
    runtime.run(options, &mut |_| ControlFlow::Continue(()))?;
    if let Ok(mut all) = took.lock() {
        for (kind, costs) in ["no-op", "checkpoint"].into_iter().zip(all.iter_mut()) {
            costs.sort_unstable();
            let at = |share: f64| {
                costs
                    .get((share * costs.len() as f64) as usize)
                    .map_or(0, |cost| cost.0)
            };
            println!(
                "{kind:<10} {} times: median {} ns, p99 {} ns",
                costs.len(),
                at(0.5),
                at(0.99)
            );
        }
    }
    Ok(())
}
