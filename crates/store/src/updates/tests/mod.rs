//! What holds of [`Updates`] as a whole. Each checker is shown a planted fault that it must find.

mod against_reference;
mod delay;
mod entered;
mod fairness;
mod minimum;
mod misuse;

use super::*;

/// Values of the tests are the update's number.
const VALUE_BYTES: u32 = 8;

fn spec(period: u64, avi: u64) -> SensorSpec {
    SensorSpec {
        period: Nanos(period),
        avi: Nanos(avi),
        value_bytes_max: VALUE_BYTES,
    }
}

fn options(minimum: f64, shedding: Shedding, margin: u64) -> AdmissionOptions {
    AdmissionOptions {
        minimum_fresh: Share::clamped(minimum),
        shedding,
        margin: Nanos(margin),
    }
}

/// Whether a value sampled at `sampled_at` is fresh `now`.
fn is_fresh(now: Time, sampled_at: Time, avi: Nanos) -> bool {
    now.since(sampled_at) <= avi
}

/// Offers the next update of `sensor`, sampled `now`.
fn offer(updates: &mut Updates, sensor: u32, now: u64) -> Receipt {
    let sensor = SensorId(sensor);
    let seq = Seq(updates.ledger.last(sensor).0 + 1);
    updates
        .offer(sensor, seq, Time(now), &seq.0.to_le_bytes(), Time(now))
        .expect("a sound update")
}

/// Installs all that waits.
fn install_all(updates: &mut Updates) {
    let mut value = Vec::new();
    while let Some(update) = updates.next(&mut value) {
        updates.installed(&update, update.sampled_at);
    }
}
