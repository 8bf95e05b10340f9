//! The tools: arguments, configuration, and whether they are installed.

use std::process::{Command, Stdio};

use punctual_platform::Refusal;
use punctual_units::CoreId;
use serde::Serialize;
use serde_json::{Value, json};

use super::verdict::{self, Latencies};

/// Interval of the wake-ups of `cyclictest`, in microseconds.
const INTERVAL_US: u64 = 1000;
/// Size of the histogram of `cyclictest`, in bins of a microsecond.
const HISTOGRAM_US: u64 = 20_000;
/// Size of the histogram of `oslat`, in bins of a microsecond: its maximum.
const BUCKETS: u64 = 1024;
/// Real-time priority of the measuring threads: above the load and all threads of ours on the core but the probe, which
/// does not run beside referees.
const PRIORITY: u8 = 80;
/// Period and computation of the loop of `rt-app`, in microseconds, like the shipped player: 24 loops per second that
/// compute for 36 % of their period.
const PERIOD_US: u64 = 41_666;
const RUN_US: f64 = 15_000.0;
/// Size of the log that `rt-app` keeps in memory, in MB, so that writing it does not disturb the loop; a loop takes
/// below a hundred bytes.
const LOG_MB: u64 = 16;
/// Name of the thread in the configuration of `rt-app`, and so in the name of its log.
const THREAD: &str = "player";
/// Base name of the log of `rt-app`; the thread's name follows.
const LOG: &str = "rt-app";

punctual_units::named! {
    /// A tool that measures latencies.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
    #[serde(rename_all = "kebab-case")]
    pub enum Referee by program {
        /// Measures how late a thread wakes.
        Cyclictest = "cyclictest",
        /// Measures gaps in a loop that never sleeps.
        Oslat = "oslat",
        /// Measures how late a thread wakes that computes in every period, and whether it is done by the next.
        RtApp = "rt-app",
    }
}

/// Parameters of a run of a tool.
#[derive(Clone, Debug)]
pub(super) struct Setting<'s> {
    pub(super) core: CoreId,
    /// A core for threads that do not measure; the measured core where there is only one.
    pub(super) other: CoreId,
    pub(super) seconds: u32,
    pub(super) folder: &'s std::path::Path,
    /// Time of a thousand turns of the loop of `rt-app` on an undisturbed core, in microseconds.
    pub(super) thousand_turns_us: f64,
}

impl Referee {
    /// Description of the measured quantity, for the report.
    pub const fn measures(self) -> &'static str {
        match self {
            Referee::Cyclictest => "how late a thread wakes that sleeps for 1 ms",
            Referee::Oslat => "turns of a loop that never sleeps",
            Referee::RtApp => "how late a thread wakes that computes for 15 ms in every 41.666 ms",
        }
    }

    /// Name of the Debian package.
    const fn package(self) -> &'static str {
        match self {
            Referee::Cyclictest | Referee::Oslat => "rt-tests",
            Referee::RtApp => "rt-app",
        }
    }

    /// Arguments of the tool. Every tool measures at the same real-time priority, pinned to the core; its main thread,
    /// which measures nothing, is pinned elsewhere. (`rt-app` has no option for that, so the thread that starts it is
    /// pinned.)
    pub(super) fn arguments(self, setting: &Setting) -> Vec<String> {
        let Setting {
            core, other, seconds, ..
        } = setting;
        let loops = u64::from(*seconds) * 1_000_000 / INTERVAL_US;
        let line = match self {
            Referee::Cyclictest => format!(
                "--default-system -q -m -t1 -a{core} --mainaffinity={other} -p{PRIORITY} -i{INTERVAL_US} -l{loops} -h{HISTOGRAM_US}"
            ),
            Referee::Oslat => format!("-q -c {core} -C {other} -f {PRIORITY} -b {BUCKETS} -D {seconds}s"),
            Referee::RtApp => "-".into(),
        };
        line.split(' ').map(Into::into).collect()
    }

    /// Text for the tool's standard input: the configuration of `rt-app`.
    pub(super) fn input(self, setting: &Setting) -> String {
        match self {
            Referee::Cyclictest | Referee::Oslat => String::new(),
            Referee::RtApp => rt_app(setting, (RUN_US / setting.thousand_turns_us) as u64).to_string(),
        }
    }

    /// Parses the results from the tool's output or its log.
    pub(super) fn verdict(self, setting: &Setting, output: &str) -> Result<Latencies, String> {
        match self {
            Referee::Cyclictest => verdict::cyclictest(output),
            Referee::Oslat => verdict::oslat(output),
            Referee::RtApp => verdict::rt_app(&log(setting)?),
        }
    }
}

/// The configuration of `rt-app` for a thread that makes `thousand_turns` thousand turns of its loop in each period.
///
/// At a calibration of 1 ns a turn, "run" counts thousands of turns. The calibration of `rt-app` itself takes seconds,
/// is rounded to whole nanoseconds, and would differ with and without the load.
pub(super) fn rt_app(setting: &Setting, thousand_turns: u64) -> Value {
    json!({
        "global": {
            "duration": setting.seconds, "calibration": 1, "default_policy": "SCHED_FIFO", "lock_pages": true,
            "logdir": setting.folder, "log_basename": LOG, "log_size": LOG_MB, "gnuplot": false,
        },
        "tasks": {
            THREAD: {
                "cpus": [setting.core.0], "priority": PRIORITY, "run": thousand_turns,
                // The next period begins at the nominal end of the last, even if the thread woke late: slack is the
                // time to the deadline.
                "timer": { "ref": "period", "period": PERIOD_US, "mode": "absolute" },
            },
        },
    })
}

/// Reads the log of `rt-app`.
pub(super) fn log(setting: &Setting) -> Result<String, String> {
    let path = setting.folder.join(format!("{LOG}-{THREAD}-0.log"));
    std::fs::read_to_string(&path).map_err(|why| format!("no log at {}: {why}", path.display()))
}

/// Checks that `referee` is installed.
///
/// # Errors
/// [`Refusal`] that says how to install it.
pub fn present(referee: Referee) -> Result<(), Refusal> {
    let run = Command::new(referee.program())
        .arg("--help")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    let package = referee.package();
    run.map(drop).map_err(|why| Refusal {
        what: format!("running {}", referee.program()),
        why: why.to_string(),
        remedy: format!("install {package} (Debian, Ubuntu: apt install {package})"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_measure_at_one_priority_on_the_core_and_do_the_rest_elsewhere() {
        let setting = Setting {
            core: CoreId(3),
            other: CoreId(0),
            seconds: 2,
            folder: std::path::Path::new("/x"),
            thousand_turns_us: 9.0,
        };
        let line = |referee: Referee| referee.arguments(&setting).join(" ");
        assert!(line(Referee::Cyclictest).contains("-a3 --mainaffinity=0 -p80 -i1000 -l2000"));
        assert_eq!(line(Referee::Oslat), "-q -c 3 -C 0 -f 80 -b 1024 -D 2s");
        let task = &rt_app(&setting, 1666)["tasks"]["player"];
        assert_eq!((&task["cpus"][0], &task["priority"]), (&json!(3), &json!(80)));
        assert!(
            Referee::RtApp.input(&setting).contains("\"run\":1666"),
            "15 ms at 9 ns a turn"
        );
    }
}
