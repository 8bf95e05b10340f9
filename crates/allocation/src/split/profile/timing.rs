//! Turns a program's requests to the caches into its speed.

use serde::{Deserialize, Serialize};

use super::windows::ProfileWindow;
use crate::grid::Share;

/// Bytes that a miss fetches from memory.
const LINE_BYTES: f64 = 64.0;

/// Model of a core that waits for its caches. Turns misses, which a trace records, into time, which it does not record.
///
/// For a window of *n* instructions with *r* requests to the last-level cache, of which *m* miss with the ways that the
/// core has, under *b* bandwidth partitions:
///
/// ```text
/// cycles = max( n CPI0 + (r - m) L_llc + m L_mem ,  64 m f / (b B1) )
/// ```
///
/// It is deliberately plain, and wrong in known directions: latencies do not overlap, so a window that waits for memory
/// is slower here than on an out-of-order core; nothing is written back, so bandwidth lasts longer here.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Timing {
    /// CPI0: cycles of an instruction whose data is in the private caches; positive.
    pub base_cycles: f64,
    /// L_llc: cycles of a request that the last-level cache answers; not negative.
    pub llc_cycles: f64,
    /// L_mem: cycles of a request that memory answers; not negative.
    pub memory_cycles: f64,
    /// f: the core's clock in hertz; positive.
    pub clock_hz: f64,
    /// B1: bytes per second of one bandwidth partition; positive.
    pub partition_bytes_per_s: f64,
}

impl Timing {
    /// A core like those of the fifth paper's machine: 2.1 GHz, and the 72 MB/s that MemGuard gave a partition there.
    /// The cycles are round numbers of the usual size for such a core, not fitted to anything.
    pub const PAPER: Timing = Timing {
        base_cycles: 0.6,
        llc_cycles: 40.0,
        memory_cycles: 200.0,
        clock_hz: 2.1e9,
        partition_bytes_per_s: 72e6,
    };

    /// The first figure that is out of its range, by its name.
    pub fn wrong(&self) -> Option<(&'static str, f64)> {
        let positive = |value: f64| value.is_finite() && value > 0.0;
        let not_negative = |value: f64| value.is_finite() && value >= 0.0;
        [
            ("base_cycles", self.base_cycles, positive(self.base_cycles)),
            ("llc_cycles", self.llc_cycles, not_negative(self.llc_cycles)),
            ("memory_cycles", self.memory_cycles, not_negative(self.memory_cycles)),
            ("clock_hz", self.clock_hz, positive(self.clock_hz)),
            (
                "partition_bytes_per_s",
                self.partition_bytes_per_s,
                positive(self.partition_bytes_per_s),
            ),
        ]
        .into_iter()
        .find_map(|(name, value, right)| (!right).then_some((name, value)))
    }

    /// Seconds of `window` with `share`.
    ///
    /// # Panics
    /// If the window does not know as many ways.
    pub fn seconds(&self, window: &ProfileWindow, share: Share) -> f64 {
        let (instructions, requests) = (window.instructions as f64, window.requests as f64);
        let misses = window.misses(share.ways) as f64;
        let waiting =
            instructions * self.base_cycles + (requests - misses) * self.llc_cycles + misses * self.memory_cycles;
        let bandwidth = f64::from(share.partitions) * self.partition_bytes_per_s;
        let fetching = misses * LINE_BYTES / bandwidth * self.clock_hz;
        waiting.max(fetching) / self.clock_hz
    }
}

impl Default for Timing {
    fn default() -> Timing {
        Timing::PAPER
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn window(misses: u64) -> ProfileWindow {
        ProfileWindow {
            start: 0,
            instructions: 1_000_000,
            requests: 20_000,
            misses: [20_000, misses].into(),
        }
    }

    const ALL: Share = Share {
        ways: 2,
        partitions: 20,
    };

    #[test]
    fn a_window_waits_for_what_it_asks_for() {
        let cycles = 600_000.0 + 15_000.0 * 40.0 + 5_000.0 * 200.0;
        let seconds = Timing::PAPER.seconds(&window(5_000), ALL);
        assert!((seconds * 2.1e9 - cycles).abs() < 1e-3);
    }

    #[test]
    fn one_partition_brings_its_bytes_and_no_more() {
        let share = Share { partitions: 1, ..ALL };
        let seconds = Timing::PAPER.seconds(&window(5_000), share);
        assert!((seconds - 5_000.0 * 64.0 / 72e6).abs() < 1e-12);
    }

    #[test]
    fn figures_out_of_range_are_named() {
        assert_eq!(Timing::PAPER.wrong(), None);
        let stopped = Timing {
            clock_hz: 0.0,
            ..Timing::PAPER
        };
        assert_eq!(stopped.wrong(), Some(("clock_hz", 0.0)));
        let endless = Timing {
            memory_cycles: f64::INFINITY,
            ..Timing::PAPER
        };
        assert_eq!(endless.wrong(), Some(("memory_cycles", f64::INFINITY)));
    }
}
