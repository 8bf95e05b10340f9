//! Freshness as a question that the store answers: `get_fresh` instead of a timestamp that every reader has to check.
//!
//! A wall-follower steers by its lidar. When the lidar stalls, a plain `get` would go on returning the last distance.

use std::thread::sleep;
use std::time::Duration;

use punctual::{Clock, Freshness, LinuxOs, Nanos, ObjectSpec, SensorId, Seq, StoreError, StoreOptions, in_memory};

fn main() -> Result<(), StoreError> {
    let period = Nanos::from_millis(50);
    let lidar = ObjectSpec {
        key: b"lidar/left".into(),
        period,
        avi: period * 2,
        max_len: 8,
        history: 1,
    };
    let options = StoreOptions {
        objects: vec![lidar],
        ..StoreOptions::default()
    };
    let store = in_memory(options)?;

    for step in 1..=8u64 {
        // The lidar reports every 50 ms, and falls silent after the fourth reading.
        if step <= 4 {
            let metres = 1.0 - 0.1 * step as f64;
            store.offer(SensorId(0), Seq(step), LinuxOs.now(), &metres.to_le_bytes())?;
            store.install_pending(1)?;
        }
        sleep(Duration::from_millis(40));
        let action = match store.get_fresh(b"lidar/left", Nanos::from_millis(100))? {
            Freshness::Fresh { age, .. } => format!("follow the wall (reading is {age} old)"),
            Freshness::Stale { age, .. } => format!("stop: the reading is {age} old"),
            Freshness::NotFound => "wait for the first reading".into(),
        };
        println!(
            "step {step}: fresh share {}, {action}",
            store.fresh_share(LinuxOs.now())
        );
        sleep(Duration::from_millis(10));
    }
    Ok(())
}
