use std::time::Duration;

use punctual::{Late, ObjectSpec, Runtime, Store, ms};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // A reading of the battery is valid for 100 ms.
    let battery = ObjectSpec::number("battery").valid_for(ms(100));
    let runtime = Runtime::start(Store::in_memory().object(battery).open()?)?;

    // Every 20 ms, done within 10 ms, at most 1 % of the jobs late.
    let steer = runtime
        .task("steer")
        .every(ms(20))
        .due_in(ms(10))
        .late(Late::percent(1.0))
        .run(|job| {
            let angle = (job.number() as f64 * 0.1).sin();
            job.write(|store| store.put(b"angle", angle.to_le_bytes()))
        })?;

    // A sensor reports from a thread of its own, and never waits for a task.
    let battery = runtime.sensor("battery")?;
    for _ in 0..20 {
        battery.offer(12.6)?;
        std::thread::sleep(Duration::from_millis(50));
    }

    println!("{:?}", runtime.figures()?.task("steer"));
    steer.stop();
    let report = runtime.stop()?.report;
    println!("{} jobs, {} late", report.summary.jobs, report.summary.misses);
    Ok(())
}
