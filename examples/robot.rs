//! A robot of one's own: two periodic tasks and a live sensor; the runtime learns how jobs answer to its knobs, then
//! controls.
use std::{error::Error, thread::spawn, time::Duration};

use punctual::{Learning, ObjectSpec, Runtime, RuntimeOptions, in_memory, ms};

fn main() -> Result<(), Box<dyn Error>> {
    let seconds: u64 = std::env::args().nth(1).map_or(Ok(15), |text| text.parse())?;
    let store = in_memory([ObjectSpec::number("battery", ms(10))])?;
    let options = RuntimeOptions::new(store).run_for(ms(1000 * seconds));
    let runtime = Runtime::start(options.learn(Learning::default()))?;

    let balance = runtime.task("balance").every(ms(20)).due_in(ms(15));
    balance.late("1 %").run(|job| {
        let torque = (job.number() as f64 * 0.1).sin();
        job.write(|store| store.put(b"torque", &torque.to_le_bytes()))
    })?;
    let plan = runtime.task("plan").every(ms(50));
    plan.run(|job| job.read(|store| store.get(b"battery").map(drop)))?;

    let battery = runtime.sensor("battery")?;
    spawn(move || {
        while battery.offer(12.6).is_ok() {
            std::thread::sleep(Duration::from_millis(10));
        }
    });

    let report = runtime.wait()?.report;
    for task in &report.tasks {
        println!("{}: {} of {} jobs late", task.name, task.late, task.jobs);
    }
    println!("{:#?}", report.summary.notes);
    Ok(())
}
