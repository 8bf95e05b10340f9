//! Frame rate, changed by keys.

use punctual_units::Nanos;

/// Highest frame rate, in frames per second.
pub const RATE_MAX: f64 = 100_000.0;
/// Lowest frame rate that keys can set, in frames per second.
const RATE_MIN: f64 = 1.0;

/// Keys that change the frame rate, and what they do.
pub const KEYS: (&str, &str) = ("+ - r", "faster, slower, real");

/// Time between two frames after a key, `None` if the key does not change it; `real` is the time of the recording, and
/// `period` the present one.
pub fn after(key: char, real: Nanos, period: Option<Nanos>) -> Option<Nanos> {
    let real = real.as_secs_f64();
    let now = period.map_or(real, Nanos::as_secs_f64);
    let changed = match key {
        'r' => real,
        '+' | '=' => now / 2.0,
        '-' => now * 2.0,
        _ => return None,
    };
    Some(Nanos::from_secs_f64(changed.clamp(1.0 / RATE_MAX, 1.0 / RATE_MIN)))
}
