//! Freshness as a question that the store answers: `get_fresh` instead of a timestamp that every reader has to check.
//!
//! A wall-follower steers by its lidar. When the lidar stalls, a plain `get` would go on returning the last distance.

use std::thread::sleep;
use std::time::Duration;

use punctual::store::{SensorId, Seq};
use punctual::{Clock, Freshness, LinuxOs, ObjectSpec, Store, StoreError, ms};

fn main() -> Result<(), StoreError> {
    let lidar = ObjectSpec::number("lidar/left").valid_for(ms(100)).period(ms(50));
    let store = Store::in_memory().object(lidar).open()?;

    for step in 1..=8u64 {
        // The lidar reports every 50 ms, and falls silent after the fourth reading.
        if step <= 4 {
            let metres = 1.0 - 0.1 * step as f64;
            store.offer(SensorId(0), Seq(step), LinuxOs.now(), &metres.to_le_bytes())?;
            store.install_pending(1)?;
        }
        sleep(Duration::from_millis(40));
        let action = match store.get_fresh(b"lidar/left", ms(100))? {
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
