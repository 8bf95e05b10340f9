//! Memory, descriptors and processor time of each process of a run, and whether memory or descriptors grow.

use std::collections::BTreeMap;
use std::fs;

use punctual_os::linux::thread::process_cpu_time_of;
use punctual_units::Nanos;
use serde::Serialize;

/// Most samples kept per process: beyond, every second one is dropped, and the interval doubles.
const SAMPLES_MAX: usize = 512;
/// Shortest run from which growth is judged.
const LEAST: Nanos = Nanos::from_secs(60);
/// Allowed growth in bytes, beyond a quarter.
const BYTES_SLACK: u64 = 8 << 20;
/// Allowed growth of descriptors, beyond those of clients: connections come and go with faults.
const DESCRIPTORS_SLACK: u64 = 64;

/// Usage of a process at one instant. A process that replaces another keeps its name, but has another number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct UsageSample {
    /// Milliseconds since the run's beginning.
    pub at_ms: u64,
    /// Private memory that is not backed by a file, in bytes.
    pub bytes: u64,
    /// Number of open descriptors.
    pub descriptors: u64,
    /// Process id, which changes at a restart.
    pub process: u32,
    /// Processor time of all its threads since it started, in microseconds.
    pub cpu_us: u64,
}

/// Samples of all processes, by name.
#[derive(Clone, Debug)]
pub struct Usage {
    every: Nanos,
    next: Nanos,
    pub samples: BTreeMap<String, Vec<UsageSample>>,
}

impl Default for Usage {
    fn default() -> Usage {
        Usage {
            every: Nanos::from_millis(500),
            next: Nanos::ZERO,
            samples: BTreeMap::new(),
        }
    }
}

impl Usage {
    /// Whether the next samples are due, at `after` the run's beginning.
    pub fn is_due(&mut self, after: Nanos) -> bool {
        let is_due = after >= self.next;
        if is_due {
            self.next = after + self.every;
        }
        is_due
    }

    /// Samples a process, unless it has ended.
    pub fn look(&mut self, name: String, process: u32, after: Nanos) {
        // A process that has just ended has neither.
        if let Some(((bytes, descriptors), cpu)) = taken(process).zip(process_cpu_time_of(process)) {
            let sample = UsageSample {
                at_ms: after.0 / 1_000_000,
                bytes,
                descriptors,
                process,
                cpu_us: cpu.0 / 1000,
            };
            self.add(name, sample);
        }
    }

    fn add(&mut self, name: String, sample: UsageSample) {
        let samples = self.samples.entry(name).or_default();
        samples.push(sample);
        if samples.len() > SAMPLES_MAX {
            self.every = Nanos(self.every.0 * 2);
            for samples in self.samples.values_mut() {
                let mut number = 0;
                samples.retain(|_| {
                    number += 1;
                    number % 2 == 1
                });
            }
        }
    }

    /// Largest samples of each process in the second quarter and in the last quarter of the run, in bytes and
    /// descriptors.
    pub fn rows(&self) -> Vec<(String, [UsageSample; 2])> {
        let row = |(name, samples): (&String, &Vec<UsageSample>)| {
            let end = samples.last()?.at_ms;
            let most = |from: u64, until: u64| {
                let within = samples.iter().filter(|sample| (from..=until).contains(&sample.at_ms));
                within.copied().reduce(|a, b| UsageSample {
                    at_ms: b.at_ms,
                    bytes: a.bytes.max(b.bytes),
                    descriptors: a.descriptors.max(b.descriptors),
                    ..b
                })
            };
            Some((name.clone(), [most(end / 4, end / 2)?, most(end / 4 * 3, end)?]))
        };
        self.samples.iter().filter_map(row).collect()
    }

    /// Share of a core that each process used, on average from its first to its last sample, without the time it was
    /// away.
    pub fn shares(&self) -> BTreeMap<String, f64> {
        let share = |samples: &Vec<UsageSample>| {
            let pairs = samples.iter().zip(samples.iter().skip(1));
            let of_one = pairs.filter(|(a, b)| a.process == b.process);
            let (us, ms) = of_one.fold((0, 0), |(us, ms), (a, b)| {
                (us + b.cpu_us.saturating_sub(a.cpu_us), ms + b.at_ms - a.at_ms)
            });
            (ms > 0).then(|| us as f64 / (ms * 1000) as f64)
        };
        let named = |(name, samples)| Some((String::clone(name), share(samples)?));
        self.samples.iter().filter_map(named).collect()
    }

    /// Sentences on processes that grew. All `clients` of the run may have moved to one balancer, when the others died.
    pub fn growth(&self, clients: usize) -> Vec<String> {
        let descriptors_slack = DESCRIPTORS_SLACK + clients as u64;
        let grew = |(name, [early, late]): (String, [UsageSample; 2])| {
            if Nanos::from_millis(late.at_ms) < LEAST {
                return None;
            }
            let more = late.bytes > early.bytes / 4 * 5 + BYTES_SLACK;
            let opened = late.descriptors > early.descriptors + descriptors_slack;
            (more || opened).then(|| {
                format!(
                    "{name} grew from {} to {} bytes, from {} to {} descriptors",
                    early.bytes, late.bytes, early.descriptors, late.descriptors
                )
            })
        };
        self.rows().into_iter().filter_map(grew).collect()
    }
}

fn taken(process: u32) -> Option<(u64, u64)> {
    let status = fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"))?;
    let kib: u64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
    let descriptors = fs::read_dir(format!("/proc/{process}/fd")).ok()?.count() as u64;
    Some((kib << 10, descriptors))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn usage(seconds: u64, bytes: impl Fn(u64) -> u64, descriptors: impl Fn(u64) -> u64) -> Usage {
        let mut usage = Usage::default();
        for second in 0..seconds {
            let after = Nanos::from_secs(second);
            if usage.is_due(after) {
                let at_ms = second * 1000;
                let (bytes, descriptors) = (bytes(second), descriptors(second));
                usage.add(
                    "node 0".into(),
                    UsageSample {
                        at_ms,
                        bytes,
                        descriptors,
                        process: 7 + u32::from(second > 100),
                        cpu_us: (second % 101) * 300_000,
                    },
                );
            }
        }
        usage
    }

    #[test]
    fn what_grows_is_told_and_what_warms_up_or_swings_is_not() {
        let mib = |count: u64| count << 20;
        let steady = usage(3600, |at| mib(60 + at % 20 + at.min(600) / 10), |at| 40 + at % 30);
        assert!(steady.growth(0).is_empty(), "{:?}", steady.growth(0));
        assert!(steady.samples["node 0"].len() <= SAMPLES_MAX);
        assert_eq!(usage(3600, |at| mib(60) + at * 30_000, |_| 40).growth(0).len(), 1);
        let opens = usage(3600, |_| mib(60), |at| 40 + at / 10);
        assert_eq!((opens.growth(100).len(), opens.growth(150).len()), (1, 0));
        assert!(usage(50, |at| mib(at * 10), |_| 40).growth(0).is_empty(), "too short");
        // Its place is taken by another one after 100 s, which has used no CPU time yet.
        let share = usage(150, |_| mib(60), |_| 40).shares()["node 0"];
        assert!((share - 0.3).abs() < 1e-9, "{share}");
    }

    #[test]
    fn this_process_takes_something() {
        let (bytes, descriptors) = taken(std::process::id()).unwrap();
        assert!(bytes > 10_000 && descriptors > 2);
    }
}
