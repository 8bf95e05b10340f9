//! Parses the output of the tools. Pure: text in, figures out.
//!
//! `cyclictest` and `oslat` print a histogram in microseconds and three figures; `rt-app` writes a log with one line
//! per loop, whose columns its first lines name (rt-app's tutorial.txt, "Log and gnuplot"). Text of another form is
//! refused, with the offending line.

use serde::Serialize;

/// Latencies that one run of a tool reported, in microseconds.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Latencies {
    pub min_us: f64,
    pub average_us: f64,
    /// The 99th percentile; `None` where it lies beyond the histogram.
    pub p99_us: Option<f64>,
    pub max_us: f64,
    /// Deadlines; `None` for a tool without deadlines.
    pub loops: Option<Loops>,
    /// Number of observations of each latency.
    pub histogram: Histogram,
}

/// The loops of `rt-app`, whose deadline is the end of their period.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Loops {
    pub all: u64,
    /// Number of loops that were not done at the end of their period.
    pub late: u64,
    /// The least time left at the end of a loop, in microseconds; below 0 where a loop was late.
    pub slack_min_us: f64,
}

/// Number of observations of each latency.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Histogram {
    /// Latencies in microseconds, ascending, and their counts.
    pub bins: Vec<(f64, u64)>,
    /// Number of latencies above all bins.
    pub beyond: u64,
}

impl Histogram {
    /// Counts latencies, given in any order.
    pub fn of(latencies_us: impl IntoIterator<Item = f64>) -> Histogram {
        let mut sorted: Vec<f64> = latencies_us.into_iter().collect();
        sorted.sort_by(f64::total_cmp);
        let same = sorted.chunk_by(|a, b| a == b);
        Histogram {
            bins: same.map(|run| (run[0], run.len() as u64)).collect(),
            beyond: 0,
        }
    }

    /// Adds up several histograms.
    pub fn merged<'h>(all: impl IntoIterator<Item = &'h Histogram>) -> Histogram {
        let mut merged = Histogram::default();
        for one in all {
            merged.bins.extend(one.bins.iter().filter(|(_, count)| *count > 0));
            merged.beyond += one.beyond;
        }
        merged.bins.sort_by(|a, b| a.0.total_cmp(&b.0));
        merged.bins.dedup_by(|later, kept| {
            let same = later.0 == kept.0;
            kept.1 += if same { later.1 } else { 0 };
            same
        });
        merged
    }

    pub fn count(&self) -> u64 {
        self.bins.iter().map(|(_, count)| count).sum::<u64>() + self.beyond
    }

    /// The quantile `q` (0 to 1) by nearest rank; `None` without latencies, and where it lies beyond the bins.
    pub fn quantile(&self, q: f64) -> Option<f64> {
        let rank = ((q * self.count() as f64).ceil() as u64).max(1);
        let mut seen = 0;
        let reached = |(_, count): &&(f64, u64)| {
            seen += count;
            seen >= rank
        };
        self.bins.iter().find(reached).map(|(latency, _)| *latency)
    }
}

/// Parses the output of `cyclictest -q -h`: lines such as `000013 000123`, and `# Min Latencies: 00005`.
pub(super) fn cyclictest(text: &str) -> Result<Latencies, String> {
    let bin = |line: &str| {
        let (latency, count) = line.split_once(' ')?;
        Some((latency.parse().ok()?, count.trim().parse().ok()?))
    };
    let histogram = Histogram {
        bins: text.lines().filter_map(bin).collect(),
        beyond: figure(text, "# Histogram Overflows").unwrap_or(0.0) as u64,
    };
    summary(
        text,
        ["# Min Latencies", "# Avg Latencies", "# Max Latencies"],
        histogram,
    )
}

/// Parses the output of `oslat -q` for one core: lines such as `013 (us): 123`, the last with "(including overflows)",
/// and `Minimum: 1 (us)`.
pub(super) fn oslat(text: &str) -> Result<Latencies, String> {
    let bin = |line: &str| {
        let (latency, count) = line.trim().split_once("(us):")?;
        let count = count.split_whitespace().next()?.parse().ok()?;
        Some((latency.trim().parse().ok()?, count))
    };
    let mut histogram = Histogram {
        bins: text.lines().filter_map(bin).collect(),
        beyond: 0,
    };
    if text.contains("(including overflows)") {
        histogram.beyond = histogram.bins.pop().map_or(0, |(_, count)| count);
    }
    summary(text, ["Minimum", "Average", "Maximum"], histogram)
}

/// The number after `name:` on the first line that begins with `name`.
fn figure(text: &str, name: &str) -> Option<f64> {
    let rest = text.lines().find_map(|line| line.trim().strip_prefix(name))?;
    let figure = rest.trim_start().strip_prefix(':')?.split_whitespace().next()?;
    figure.parse().ok().filter(|figure: &f64| figure.is_finite())
}

fn summary(text: &str, names: [&str; 3], histogram: Histogram) -> Result<Latencies, String> {
    let named = |name: &str| figure(text, name).ok_or_else(|| format!("no figure follows \"{name}\""));
    let [min, average, max] = names;
    Ok(Latencies {
        min_us: named(min)?,
        average_us: named(average)?,
        max_us: named(max)?,
        p99_us: histogram.quantile(0.99),
        loops: None,
        histogram,
    })
}

/// Parses the log of one thread of `rt-app`: wake-up latencies of the loops that slept (`wu_lat`), and the slack of
/// each.
///
/// A loop that the end of the run cut off before its timer has a `c_period` of 0 and is skipped. A loop with negative
/// slack ended after its period; it did not sleep, so its `wu_lat` of 0 is not a latency.
pub(super) fn rt_app(log: &str) -> Result<Latencies, String> {
    let (mut latencies, mut slacks) = (Vec::new(), Vec::new());
    let mut columns = None;
    for (line, number) in log.lines().zip(1..) {
        if let Some(names) = line.strip_prefix("#idx") {
            let place = |name: &str| {
                names
                    .split_whitespace()
                    .position(|it| it == name)
                    .map(|place| place + 1)
            };
            columns = place("slack")
                .zip(place("wu_lat"))
                .map(|both| (both, place("c_period")));
        } else if !line.starts_with('#') && !line.trim().is_empty() {
            let Some(((slack, latency), period)) = columns else {
                return Err(format!(
                    "line {number}: no line before it names columns slack and wu_lat"
                ));
            };
            let cells: Vec<&str> = line.split_whitespace().collect();
            let cell = |place: usize| cells.get(place).and_then(|cell| cell.parse::<i64>().ok());
            let Some((slack, latency)) = cell(slack).zip(cell(latency)).filter(|(_, latency)| *latency >= 0) else {
                return Err(format!("line {number}: no slack or no wake-up latency in \"{line}\""));
            };
            if period.and_then(cell) == Some(0) {
                continue;
            }
            slacks.push(slack as f64);
            if slack >= 0 {
                latencies.push(latency as f64);
            }
        }
    }
    let slack_min_us = slacks.iter().copied().reduce(f64::min).ok_or("no loop is in it")?;
    let average_us = latencies.iter().sum::<f64>() / latencies.len() as f64;
    let histogram = Histogram::of(latencies);
    let (Some((min_us, _)), Some((max_us, _))) = (histogram.bins.first(), histogram.bins.last()) else {
        return Err("every loop was late: none slept, so none woke".into());
    };
    Ok(Latencies {
        min_us: *min_us,
        average_us,
        p99_us: histogram.quantile(0.99),
        max_us: *max_us,
        loops: Some(Loops {
            all: slacks.len() as u64,
            late: slacks.iter().filter(|slack| **slack < 0.0).count() as u64,
            slack_min_us,
        }),
        histogram,
    })
}

/// The fastest `run` of a loop: its time in microseconds, and the number of turns of its inner loop.
pub(super) fn rt_app_run(log: &str) -> Option<(f64, f64)> {
    let runs = log.lines().filter(|line| !line.starts_with('#')).filter_map(|line| {
        let mut cells = line.split_whitespace().skip(1);
        let (turns, run) = (cells.next()?.parse::<f64>().ok()?, cells.next()?.parse::<f64>().ok()?);
        (turns > 0.0 && run > 0.0).then_some((run, turns))
    });
    runs.min_by(|a, b| (a.0 / a.1).total_cmp(&(b.0 / b.1)))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_cyclictest_prints_is_read() {
        let text = "# /dev/cpu_dma_latency set to 0us\n# Histogram\n000003 000001\n000004 000097\n000009 000001\n\
                    # Total: 000000099\n# Min Latencies: 00003\n# Avg Latencies: 00004\n# Max Latencies: 31000\n\
                    # Histogram Overflows: 00001\n# Histogram Overflow at cycle number:\n# Thread 0: 00017\n";
        let read = cyclictest(text).unwrap();
        assert_eq!((read.min_us, read.average_us, read.max_us), (3.0, 4.0, 31000.0));
        assert_eq!((read.p99_us, read.histogram.count()), (Some(9.0), 100));
        assert_eq!(read.histogram.beyond, 1);
    }

    #[test]
    fn what_oslat_prints_is_read() {
        let text = "oslat V 2.40\n    Core:\t 1\n    001 (us):\t 97\n    002 (us):\t 1\n    003 (us):\t 2 (including overflows)\n\
                    \x20    Minimum:\t 1 (us)\n     Average:\t 1.016 (us)\n     Maximum:\t 4055 (us)\n";
        let read = oslat(text).unwrap();
        assert_eq!((read.min_us, read.average_us, read.max_us), (1.0, 1.016, 4055.0));
        assert_eq!(read.histogram.bins, [(1.0, 97), (2.0, 1)]);
        assert_eq!(
            (read.histogram.beyond, read.p99_us),
            (2, None),
            "the figure lies beyond the histogram"
        );
    }

    #[test]
    fn what_rt_app_logs_is_read() {
        // Loops as rt-app 1.0 wrote them, the second one late, the last one cut off.
        let log = "# Policy : SCHED_FIFO priority : 80\n\
            #idx     perf      run   period           start             end          rel_st      slack c_duration   c_period     wu_lat\n\
            \x20  0  1000000     9033     9987     23117949341     23117959317            4126        939       1000      10000         32\n\
            \x20  0  1000000    10003    10004     23117979318     23117989322           34103        -37       1000      10000          0\n\
            \x20  0  1000000     9010    10027     23117989323     23117999350           44108        989       1000      10000         28\n\
            \x20  0  1000000     9011     9020     23117999350     23118008370           54135          0       1000          0          0\n";
        let read = rt_app(log).unwrap();
        assert_eq!((read.min_us, read.average_us, read.max_us), (28.0, 30.0, 32.0));
        let loops = Loops {
            all: 3,
            late: 1,
            slack_min_us: -37.0,
        };
        assert_eq!(read.loops, Some(loops));
        assert_eq!(rt_app_run(log), Some((9010.0, 1e6)));
    }

    #[test]
    fn a_tool_that_says_something_else_is_not_believed() {
        assert!(cyclictest("cyclictest: unknown option\n").unwrap_err().contains("Min"));
        assert!(oslat("").is_err() && rt_app("").is_err());
        assert!(rt_app("0 1 2\n").unwrap_err().starts_with("line 1: "));
        assert!(
            rt_app("#idx slack wu_lat\n 0 5 x\n")
                .unwrap_err()
                .starts_with("line 2: ")
        );
        assert!(rt_app("#idx slack wu_lat\n 0 -5 0\n").unwrap_err().contains("late"));
    }

    proptest! {
        /// A log written from loops is read as these loops, wherever the two columns stand.
        #[test]
        fn a_log_says_what_was_written_into_it(
            loops in prop::collection::vec((-100i64..1000, 0i64..500), 1..60),
            before in 0usize..4,
            between in 0usize..4,
        ) {
            let fill = |n: usize, word: &str| format!(" {word}").repeat(n);
            let mut log = format!("# Policy\n#idx{} slack{} wu_lat\n", fill(before, "x"), fill(between, "y"));
            for (slack, latency) in &loops {
                log += &format!("  0{} {slack}{} {latency}\n", fill(before, "7"), fill(between, "8"));
            }
            let slept: Vec<i64> = loops.iter().filter(|(slack, _)| *slack >= 0).map(|(_, latency)| *latency).collect();
            match rt_app(&log) {
                Err(why) => prop_assert!(slept.is_empty(), "{}", why),
                Ok(read) => {
                    let told = read.loops.unwrap();
                    prop_assert_eq!((told.all, told.late), (loops.len() as u64, (loops.len() - slept.len()) as u64));
                    prop_assert_eq!(read.histogram.count(), slept.len() as u64);
                    prop_assert_eq!(read.max_us, *slept.iter().max().unwrap() as f64);
                    prop_assert!(read.min_us <= read.average_us && read.average_us <= read.max_us);
                }
            }
        }

        #[test]
        fn no_text_is_too_strange(text in "(#idx|slack|wu_lat|Minimum|[0-9.\\-:# ()us\n]){0,60}") {
            let _ = (cyclictest(&text), oslat(&text), rt_app(&text), rt_app_run(&text));
        }

        #[test]
        fn merging_loses_nothing(
            a in prop::collection::vec(0u32..40, 0..40),
            b in prop::collection::vec(0u32..40, 0..40),
            q in 0.0..=1.0f64,
        ) {
            let of = |values: &[u32]| Histogram::of(values.iter().map(|value| f64::from(*value)));
            let together: Vec<u32> = a.iter().chain(&b).copied().collect();
            let merged = Histogram::merged([&of(&a), &of(&b)]);
            prop_assert_eq!(&merged, &of(&together));
            if let Some(at) = merged.quantile(q) {
                let within = together.iter().filter(|value| f64::from(**value) <= at).count();
                prop_assert!(within as f64 >= q * together.len() as f64);
            }
        }
    }
}
