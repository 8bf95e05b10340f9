//! A device's interrupts served on a core of one's own: each event releases a job, and no other thread runs there.
//!
//! Another thread rings an eventfd in place of the device; give `/dev/uio0` or a socket where you have one. Where no
//! core is to be had (one core only, or no permission) the same task runs all the same, and the program says so.

use std::{error::Error, thread, time::Duration};

use punctual::{Bell, Class, Clock, EventSource, LinuxOs, Nanos, RuntimeBuilder, Store, ms};

fn main() -> Result<(), Box<dyn Error>> {
    let device = Bell::new()?;
    let mut prepared = RuntimeBuilder::here(Store::in_memory().open()?)?;
    let (exclusive, events) = (Class::Exclusive { deadline: ms(2) }, EventSource::of(&device)?);
    prepared.task_on_event("codec", exclusive, events, ms(2), |job| {
        // Stands for work on what the device has.
        let until = LinuxOs.now() + Nanos::from_micros(250);
        while LinuxOs.now() < until {
            std::hint::spin_loop();
        }
        let served = job.number().to_le_bytes();
        job.write(|store| store.put(b"frames", served))
    });
    prepared.takes_at_most(Nanos::from_micros(500));
    let runtime = prepared.start(None)?;

    for event in 0..500 {
        device.ring();
        // Every hundredth time the device has two events at once.
        if event % 100 == 99 {
            device.ring();
        }
        thread::sleep(Duration::from_millis(2));
    }
    let report = runtime.stop()?.report;
    let codec = &report.tasks[0];
    println!(
        "{} jobs, {} late; {} events merged into others, {} put off",
        codec.jobs, codec.late, codec.merged, codec.put_off
    );
    for protection in &report.header.protection {
        match &protection.refused {
            None => println!("obtained  {}", protection.what),
            Some(refusal) => println!("refused   {}: {refusal}", protection.what),
        }
    }
    Ok(())
}
