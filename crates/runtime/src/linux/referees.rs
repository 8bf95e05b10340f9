//! Referees that we did not write, inside and outside of the protection of an exclusive core.
//!
//! `cyclictest` measures how late a real-time thread wakes, `oslat` the gaps in a loop that never sleeps; both are of the rt-tests.
//! Each runs pinned to the last core beside hogs on all cores, by turns without and with the core to itself: A, B, A, B. What is compared is
//! one machine with itself minutes apart at the most; no figure is a bound.

use std::ops::ControlFlow;
use std::process::{Command, Stdio};
use std::sync::Arc;

use punctual_platform::Refusal;
use punctual_platform::linux::clock::MonotonicClock;
use punctual_platform::linux::emulated::EmulatedClock;
use punctual_platform::linux::exclusive::{ExclusiveCore, spared};
use punctual_platform::linux::journal::Journal;
use punctual_platform::linux::thread::Tid;
use punctual_platform::linux::{KernelTree, cores};
use punctual_units::CoreId;
use serde::Serialize;

use super::movie::MovieError;
use super::movie::load::Load;

/// How often `cyclictest` wakes.
const INTERVAL_US: u64 = 1000;
/// Latencies that its histogram tells apart, in microseconds.
const HISTOGRAM_US: u64 = 20_000;
/// Above the hogs, and above everything of ours.
const PRIORITY: &str = "80";

/// A tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Referee {
    /// How late a thread wakes.
    Cyclictest,
    /// Gaps in a loop.
    Oslat,
}

impl Referee {
    /// Both.
    pub const ALL: [Referee; 2] = [Referee::Cyclictest, Referee::Oslat];

    /// The program's name.
    pub const fn program(self) -> &'static str {
        match self {
            Referee::Cyclictest => "cyclictest",
            Referee::Oslat => "oslat",
        }
    }

    /// Its arguments for `seconds` on `core`. `oslat` runs at ordinary priority: a real-time loop that never sleeps would be
    /// throttled.
    fn arguments(self, core: CoreId, seconds: u32) -> Vec<String> {
        let loops = u64::from(seconds) * 1_000_000 / INTERVAL_US;
        let line = match self {
            Referee::Cyclictest => {
                format!("--default-system -q -m -t1 -a{core} -p{PRIORITY} -i{INTERVAL_US} -l{loops} -h{HISTOGRAM_US}")
            }
            Referee::Oslat => format!("-q -c {core} -D {seconds}s"),
        };
        line.split(' ').map(Into::into).collect()
    }
}

/// What one run of a referee said, in microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Verdict {
    /// The least.
    pub min_us: f64,
    /// The mean.
    pub average_us: f64,
    /// 99 % are not above this; `cyclictest` only.
    pub p99_us: Option<f64>,
    /// The largest.
    pub max_us: f64,
}

/// One run.
#[derive(Clone, Debug, Serialize)]
pub struct Hearing {
    /// Who.
    pub referee: Referee,
    /// Which repetition, from 0.
    pub repetition: u32,
    /// Whether the core was exclusive.
    pub protected: bool,
    /// What came out.
    pub verdict: Verdict,
    /// The protection that was obtained.
    pub protection: Option<String>,
}

/// Whether `referee` can be run.
///
/// # Errors
/// [`Refusal`] that says how to install it.
pub fn present(referee: Referee) -> Result<(), Refusal> {
    let run = Command::new(referee.program())
        .arg("--help")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    run.map(drop).map_err(|why| Refusal {
        what: format!("running {}", referee.program()),
        why: why.to_string(),
        remedy: "install the rt-tests (Debian, Ubuntu: apt install rt-tests)".into(),
    })
}

/// Hears each referee `repetitions` times outside and inside of the protection, for `seconds` each; `say` hears of each run before it
/// begins and says whether to go on.
///
/// # Errors
/// [`MovieError`]; the machine has been put back but for what the error names.
pub fn hear(
    referees: &[Referee],
    repetitions: u32,
    seconds: u32,
    hogs_per_core: u32,
    say: &mut dyn FnMut(&str) -> ControlFlow<()>,
) -> Result<Vec<Hearing>, MovieError> {
    referees.iter().try_for_each(|referee| present(*referee))?;
    let (tree, journal) = (KernelTree::default(), Journal::open(true)?);
    let cores = cores::usable(&tree);
    let core = cores.last().copied().unwrap_or_default();
    let clock = Arc::new(EmulatedClock::of(&tree, &MonotonicClock));
    let load = Load::start(hogs_per_core as usize * cores.len(), None, &clock)?;
    let mut hearings = Vec::new();
    for repetition in 0..repetitions {
        for referee in referees {
            for protected in [false, true] {
                let what = format!(
                    "repetition {} of {repetitions}: {} {} the protection",
                    repetition + 1,
                    referee.program(),
                    if protected { "inside" } else { "outside" }
                );
                if say(&what).is_break() {
                    return Err(MovieError::Interrupted);
                }
                let heard = hear_once(*referee, core, seconds, protected, &tree, &journal, &load);
                if let Some(left) = journal.restore().pop() {
                    return Err(MovieError::NotPutBack(left));
                }
                let (verdict, protection) = heard?;
                hearings.push(Hearing {
                    referee: *referee,
                    repetition,
                    protected,
                    verdict,
                    protection,
                });
            }
        }
    }
    Ok(hearings)
}

fn hear_once(
    referee: Referee,
    core: CoreId,
    seconds: u32,
    protected: bool,
    tree: &KernelTree,
    journal: &Journal,
    load: &Load,
) -> Result<(Verdict, Option<String>), MovieError> {
    let mut spare = spared();
    spare.push(referee.program().into());
    let exclusive = protected
        .then(|| ExclusiveCore::take(tree, journal, core, &spare))
        .transpose()?;
    for thread in load.threads() {
        exclusive.iter().try_for_each(|core| core.confine(thread))?;
    }
    let run = || {
        // A program inherits the group of the thread that starts it.
        exclusive.iter().try_for_each(|core| core.enter(Tid::current()))?;
        let output = Command::new(referee.program())
            .args(referee.arguments(core, seconds))
            .output();
        output.map_err(|why| MovieError::File {
            what: format!("running {}", referee.program()),
            why,
        })
    };
    let output = std::thread::scope(|scope| scope.spawn(run).join());
    let output = output.unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let verdict = parse(&text).ok_or_else(|| {
        let said = String::from_utf8_lossy(&output.stderr);
        let said = said.lines().next().or(text.lines().next()).unwrap_or("nothing");
        MovieError::File {
            what: format!(
                "running {} {}",
                referee.program(),
                referee.arguments(core, seconds).join(" ")
            ),
            why: std::io::Error::other(format!("it gave no figures but said: {said}")),
        }
    })?;
    Ok((verdict, exclusive.map(|core| core.obtained().to_string())))
}

/// The figures in what either tool prints: `# Min Latencies: 00005` and a histogram, or `Minimum:  1 (us)`.
fn parse(text: &str) -> Option<Verdict> {
    let figure = |names: [&str; 2]| {
        text.lines().find_map(|line| {
            let line = line.trim().trim_start_matches("# ");
            let rest = names.iter().find_map(|name| line.strip_prefix(name))?;
            rest.trim_start_matches(':')
                .split_whitespace()
                .next()?
                .parse::<f64>()
                .ok()
        })
    };
    Some(Verdict {
        min_us: figure(["Min Latencies", "Minimum"])?,
        average_us: figure(["Avg Latencies", "Average"])?,
        max_us: figure(["Max Latencies", "Maximum"])?,
        p99_us: p99(text),
    })
}

/// Of a histogram with lines such as `000013 000123`; none where there is none, or the figure lies beyond it.
fn p99(text: &str) -> Option<f64> {
    let overflows = text
        .lines()
        .find_map(|line| line.strip_prefix("# Histogram Overflows:"));
    let overflows: u64 = overflows.and_then(|count| count.trim().parse().ok()).unwrap_or(0);
    let bins: Vec<(u64, u64)> = text
        .lines()
        .filter_map(|line| {
            let (latency, count) = line.split_once(' ')?;
            Some((latency.parse().ok()?, count.trim().parse().ok()?))
        })
        .collect();
    let all: u64 = bins.iter().map(|(_, count)| count).sum::<u64>() + overflows;
    let rank = (0.99 * all as f64).ceil() as u64;
    let mut seen = 0;
    let within = |(_, count): &&(u64, u64)| {
        seen += count;
        seen >= rank
    };
    bins.iter()
        .find(within)
        .filter(|_| all > 0)
        .map(|(latency, _)| *latency as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cyclictest_prints_is_read() {
        let text = "# /dev/cpu_dma_latency set to 0us\n# Histogram\n000003 000001\n000004 000097\n000009 000001\n\
                    # Total: 000000099\n# Min Latencies: 00003\n# Avg Latencies: 00004\n# Max Latencies: 31000\n\
                    # Histogram Overflows: 00001\n# Histogram Overflow at cycle number:\n# Thread 0: 00017\n";
        let expected = Verdict {
            min_us: 3.0,
            average_us: 4.0,
            p99_us: Some(9.0),
            max_us: 31000.0,
        };
        assert_eq!(parse(text), Some(expected));
    }

    #[test]
    fn what_oslat_prints_is_read() {
        let text = "oslat V 2.40\n    Core:    1\n    001 (us): 1234\n    Minimum:    1 (us)\n    Average:    1.016 (us)\n    Maximum:    4055 (us)\n";
        let read = parse(text).unwrap();
        assert_eq!(
            (read.min_us, read.average_us, read.max_us, read.p99_us),
            (1.0, 1.016, 4055.0, None)
        );
    }

    #[test]
    fn a_tool_that_says_something_else_is_not_believed() {
        assert_eq!(parse("cyclictest: unknown option\n"), None);
    }
}
