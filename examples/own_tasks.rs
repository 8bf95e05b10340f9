//! Your own closures as real-time tasks: periods and deadlines in, tardiness and misses out.
//!
//! Runs for a second on this machine. Without permission for real-time scheduling it runs all the same, and says so.

use std::{error::Error, thread, time::Duration};

use punctual::{Runtime, Store, ms};

fn main() -> Result<(), Box<dyn Error>> {
    let runtime = Runtime::start(Store::in_memory().open()?)?;
    let steer = runtime.task("steer").every(ms(20)).due_in(ms(10));
    steer.run(|job| {
        let angle = (job.number() as f64 * 0.1).sin();
        job.write(|store| store.put(b"angle", angle.to_le_bytes()))
    })?;
    let log = runtime.task("log").after_pauses(ms(1), ms(9)).best_effort();
    log.run(|job| job.read(|store| store.get(b"angle").map(drop)))?;

    thread::sleep(Duration::from_secs(1));
    let report = runtime.stop()?.report;
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
