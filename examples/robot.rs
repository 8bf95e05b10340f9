//! A robot of one's own: two periodic tasks and a live sensor; the runtime learns how jobs answer to its knobs, then controls.
use std::{error::Error, thread, time::Duration};

use punctual::{Learning, ObjectSpec, Runtime, RuntimeOptions, in_memory, ms};

fn main() -> Result<(), Box<dyn Error>> {
    let seconds: u64 = std::env::args().nth(1).map_or(Ok(15), |text| text.parse())?;
    let store = in_memory([
        ObjectSpec::number("battery", ms(10)),
        ObjectSpec::number("angle", ms(20)),
    ])?;
    let options = RuntimeOptions::new(store)
        .run_for(ms(1000 * seconds))
        .learn(Learning::default());
    let runtime = Runtime::start(options)?;

    let angle = runtime.sensor("angle")?;
    runtime
        .task("balance")
        .every(ms(20))
        .due_in(ms(15))
        .late("1 %")
        .run(move |job| {
            angle.offer((job.number() as f64 * 0.1).sin())?;
            job.write(|store| store.put(b"torque", b"0.1"))?;
            Ok::<(), Box<dyn Error + Send + Sync>>(())
        })?;
    runtime
        .task("plan")
        .every(ms(50))
        .run(|job| job.read(|store| store.get(b"battery").map(drop)))?;

    let battery = runtime.sensor("battery")?;
    thread::spawn(move || {
        while battery.offer(12.6).is_ok() {
            thread::sleep(Duration::from_millis(10));
        }
    });

    let report = runtime.wait()?.report;
    for task in &report.tasks {
        println!(
            "{}: {} jobs, {} late, {:?}",
            task.name, task.jobs, task.late, task.response_us
        );
    }
    println!("{:#?}", report.summary.notes);
    Ok(())
}
