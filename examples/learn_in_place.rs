//! A robot of one's own: two periodic tasks and a live sensor; the runtime learns how jobs answer to its knobs, then
//! controls.
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::{error::Error, thread::sleep, thread::spawn, time::Duration};

use punctual::{Late, Learning, ObjectSpec, Runtime, RuntimeOptions, Store, ms};

fn main() -> Result<(), Box<dyn Error>> {
    let seconds: u64 = std::env::args().nth(1).map_or(Ok(20), |text| text.parse())?;
    let store = Store::in_memory()
        .object(ObjectSpec::number("camera").period(ms(100)))
        .open()?;
    let options = RuntimeOptions::new(store).run_for(ms(1000 * seconds));
    let runtime = Runtime::start(options.learn(Learning::default()))?;

    let balance = runtime.task("balance").every(ms(20)).due_in(ms(15));
    balance.late(Late::percent(1.0)).run(|job| {
        let torque = (job.number() as f64 * 0.1).sin();
        job.write(|store| store.put(b"torque", torque.to_le_bytes()))
    })?;
    // Each picture that was let in since the last job takes 3 ms to look at: the fewer are let in, the earlier the job
    // ends.
    let seen = AtomicU64::new(0);
    runtime.task("plan").every(ms(50)).run(move |job| {
        let pictures = job.store().counts().admitted;
        sleep(Duration::from_millis(
            3 * (pictures - seen.swap(pictures, Relaxed)).min(16),
        ));
    })?;

    let camera = runtime.sensor("camera")?;
    spawn(move || {
        while camera.offer(12.6).is_ok() {
            sleep(Duration::from_millis(5));
        }
    });

    sleep(Duration::from_secs(seconds / 2));
    // The run may have ended on a machine that was stopped for long.
    if let Ok(figures) = runtime.figures() {
        println!("learnt: {:?}", figures.learnt);
    }
    let report = runtime.wait()?.report;
    for task in &report.tasks {
        println!("{}: {} of {} jobs late", task.name, task.late, task.jobs);
    }
    println!("{:#?}", report.summary.notes);
    Ok(())
}
