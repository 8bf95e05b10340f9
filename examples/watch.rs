//! A watch, and how long it takes from an install to the thread that it wakes.
//!
//! `cargo run --release -p punctual-examples --example watch -- 20000` installs so many values, 1000 in a second, each
//! of which wakes a thread that watches the object. Between them a second thread is woken without a store, in the same
//! way: the no-op control.

use std::error::Error;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use punctual::os::Os;
use punctual::{Change, Clock, LinuxOs, Nanos, ObjectSpec, Store, Together, WatchTarget, ms};

/// Longer than any pause between two installs.
const PATIENCE_MS: u64 = 200;

fn main() -> Result<(), Box<dyn Error>> {
    let installs: u64 = std::env::args().nth(1).map_or(Ok(2_000), |number| number.parse())?;
    let store = Store::in_memory()
        .object(ObjectSpec::number("pose").period(ms(1)))
        .open()?;
    let pose = store.object(b"pose").ok_or("the object is registered")?;
    let mut watch = store.watch(WatchTarget::Object(pose), 16)?;
    let (over, parker, rung_at) = (AtomicBool::new(false), LinuxOs.new_parker(), AtomicU64::new(0));
    let (mut woken, mut control, mut missed) = (Vec::new(), Vec::new(), 0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut value = Vec::new();
            while !over.load(Ordering::Relaxed) {
                match watch.wait(LinuxOs.now() + ms(PATIENCE_MS)) {
                    Some(Change::Missed { changes }) => missed += changes,
                    Some(_) => {
                        let now = LinuxOs.now();
                        // The value is when it was about to be installed.
                        if let Ok(Some(_)) = store.read(pose, &mut value)
                            && let Ok(bytes) = value[..].try_into()
                        {
                            woken.push(now.0.saturating_sub(u64::from_le_bytes(bytes)));
                        }
                    }
                    None => {}
                }
            }
        });
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                let wake = parker.park_until(LinuxOs.now() + ms(PATIENCE_MS));
                let now = LinuxOs.now();
                if wake == punctual::os::Wake::Woken {
                    control.push(now.0.saturating_sub(rung_at.load(Ordering::Relaxed)));
                }
            }
        });
        let begun = LinuxOs.now();
        for number in 0..installs {
            LinuxOs.sleep_until(begun + ms(number));
            let value = LinuxOs.now().0.to_le_bytes();
            let installed = store.install_together(&[Together {
                object: pose,
                sampled_at: None,
                value: &value,
            }]);
            installed.expect("one value of the right length");
            // In between, so that neither thread disturbs the other.
            LinuxOs.sleep_until(begun + ms(number) + Nanos(500_000));
            rung_at.store(LinuxOs.now().0, Ordering::Relaxed);
            parker.unpark();
        }
        LinuxOs.sleep(ms(10));
        over.store(true, Ordering::Relaxed);
    });
    for (what, mut took) in [("install to wake-up", woken), ("no-op control", control)] {
        took.sort_unstable();
        let at = |per_mille: usize| took.get(took.len() * per_mille / 1000).copied().unwrap_or_default() as f64 / 1e3;
        println!(
            "{what:18} {} times: p50 {:.1} us, p99 {:.1} us, p99.9 {:.1} us",
            took.len(),
            at(500),
            at(990),
            at(999)
        );
    }
    println!("missed: {missed} of {installs}");
    Ok(())
}
