//! Your own closures as real-time tasks: periods and deadlines in, tardiness and misses out.
//!
//! Runs for a second on this machine. Without permission for real-time scheduling it runs all the same, and says so.

use punctual::{Arrival, Class, Nanos, Runtime, StoreOptions, TaskGoal, in_memory};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut runtime = Runtime::here(in_memory(StoreOptions::default())?)?;

    let steer = Class::RealTime {
        deadline: Nanos::from_millis(10),
    };
    let every_20_ms = Arrival::Periodic {
        period: Nanos::from_millis(20),
    };
    runtime.task("steer", steer, every_20_ms, |job| {
        let angle = (job.number() as f64 * 0.1).sin();
        job.write(|store| store.put(b"angle", &angle.to_le_bytes()))
    });
    let now_and_then = Arrival::AfterCompletion {
        pause_min: Nanos::from_millis(1),
        pause_max: Nanos::from_millis(9),
    };
    runtime.task("log", Class::BestEffort, now_and_then, |job| {
        job.read(|store| store.get(b"angle").map(drop))
    });

    let report = runtime.run_for(Nanos::from_secs(1), TaskGoal::default())?.report;
    for protection in &report.header.protection {
        match &protection.refused {
            None => println!("obtained  {}", protection.what),
            Some(refusal) => println!("refused   {}: {refusal}", protection.what),
        }
    }
    for task in &report.tasks {
        let p99 = task.response_us.map_or(0.0, |response| response.p99);
        println!(
            "{}: {} of {} jobs late, p99 {p99:.0} us",
            task.name, task.late, task.jobs
        );
    }
    println!("{} best-effort jobs beside them", report.summary.best_effort_jobs);
    Ok(())
}
