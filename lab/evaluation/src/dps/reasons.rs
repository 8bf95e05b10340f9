//! Reasons why claims do not hold, computed from the machine, the media, the load and the results.

use super::setting::FRAMES;
use super::{Ground, over};
use crate::claims::Reasons;
use crate::samples::Replication;
use crate::stats::median;
use punctual_units::Nanos;

/// Lateness of a blocking frame by the paper's text on Fig. 4, as a share of the period.
const PAPERS_BLOCKING_LATE: f64 = 0.22;
/// Loss of CPU utilisation on flash by the paper, as a share.
const PAPERS_LOSS_ON_FLASH: f64 = 0.38;

/// A text about the runs; `None` where a run that it needs is missing.
type Why = fn(&RunResults) -> Option<String>;

/// Texts with the ids of the claims that each explains.
pub(super) const KNOWN: [(&[&str], Why); 9] = [
    (&["blocking-at-7k", "blocking-missed"], blocking),
    (&["blocking-late"], blocking_late),
    (&["blocking-at-20-percent"], at_a_fifth),
    (&["wait-harms", "wait-harms-exponentially"], by_wait),
    (
        &["utilisation-pcm", "utilisation-pcm-only", "switches-saved"],
        polling_on_pcm,
    ),
    (&["interactive-pcm-only"], interactive_side),
    (&["utilisation-flash"], polling_on_flash),
    (&["utilisation-hdd", "slower-media-cost-more"], polling),
    (
        &[
            "misses-fewer",
            "misses-fewer-at-every-size",
            "dual-none-at-7k",
            "dual-unmoved-by-wait",
            "dual-unmoved-at-any-wait",
            "dual-early",
            "dual-in-time",
        ],
        dual,
    ),
];

/// Reasons why claims do not hold, by the claim's id.
pub fn reasons(ground: &Ground, replications: &[Replication]) -> Reasons {
    let ran = RunResults { ground, replications };
    let of = |(ids, why): (&'static [&str], Why)| {
        let why = why(&ran);
        ids.iter().filter_map(move |id| Some((id.to_string(), why.clone()?)))
    };
    KNOWN.into_iter().flat_map(of).collect()
}

/// The conditions and the results of all runs.
pub(super) struct RunResults<'r> {
    ground: &'r Ground,
    replications: &'r [Replication],
}

impl RunResults<'_> {
    /// The median of a formula over all replications; `None` where none can be evaluated.
    fn of(&self, formula: &str) -> Option<f64> {
        median(&over(self.replications, &self.ground.play.film.named(formula)))
    }

    /// The mean of a series in a run with the paper's own setting.
    fn mean(&self, series: &str, approach: &str, medium: &str) -> Option<f64> {
        self.of(&format!(
            "mean({series}, approach={approach}, medium={medium}, wait=own, film=bd, ahead=1, cache=7)"
        ))
    }

    /// The share of blocking frames that miss their deadline, where the wait is set.
    fn at_wait(&self, percent: u32) -> Option<f64> {
        self.of(&format!(
            "mean(missed, approach=blocking, wait={percent}, film=bd, ahead=1)"
        ))
    }

    /// Share of a period for which a frame computes.
    fn computes(&self) -> f64 {
        self.ground.play.computes()
    }

    fn period(&self, share: f64) -> Nanos {
        self.ground.play.period.scaled(share)
    }

    fn cores(&self) -> f64 {
        f64::from(self.ground.machine.cores)
    }

    fn flash_read(&self) -> Nanos {
        Nanos::from_secs_f64(self.ground.media.flash.read_us * 1e-6)
    }

    fn pcm_read(&self) -> [Nanos; 2] {
        let media = &self.ground.media;
        let lines = f64::from(media.page_bytes) / f64::from(media.pcm.line_bytes);
        media.pcm.read_ns.map(|line| Nanos((line * lines) as u64))
    }

    /// The means of these runs; `None` if one is missing.
    fn all<const N: usize>(&self, asked: [(&str, &str, &str); N]) -> Option<[f64; N]> {
        let means: Option<Vec<f64>> = asked
            .iter()
            .map(|(series, approach, medium)| self.mean(series, approach, medium))
            .collect();
        means?.try_into().ok()
    }
}

fn blocking(ran: &RunResults) -> Option<String> {
    let [waited, io, requests, missed] =
        ran.all(["waited", "io", "requests", "missed"].map(|series| (series, "blocking", "flash")))?;
    let (computes, machine, jobs) = (ran.computes(), &ran.ground.machine, ran.ground.play.jobs);
    let sum = computes + waited + io;
    let taken = if jobs >= machine.cores {
        "a job has the core as soon as the player blocks"
    } else {
        "a core is often free when the player blocks"
    };
    Some(format!(
        "A frame takes {sum:.2} of its period on average: {computes:.2} to compute, {waited:.2} to wait for a core and switch, {io:.2} to wait for flash. It makes {requests:.0} reads, each of which waits {} for a core, of a quantum of {}: {jobs} interactive jobs on {} cores never rest, so {taken}. {} The paper's own figures ask for a shorter wait here than in Fig. 3(b): 48 % is less than the 84 % that a wait of a fifth of the quantum makes.",
        ran.period(waited / requests.max(1.0)),
        machine.quantum(),
        machine.cores,
        judged(sum, missed),
    ))
}

fn blocking_late(ran: &RunResults) -> Option<String> {
    let [waited, io, completion] =
        ran.all(["waited", "io", "completion"].map(|series| (series, "blocking", "flash")))?;
    let computes = ran.computes();
    let left = (1.0 + PAPERS_BLOCKING_LATE - computes).max(0.0);
    Some(format!(
        "With {computes:.2} of the period to compute, {:.0} % late leaves {left:.2} of a period, {}, for all reads of a frame. Here flash takes {io:.2} of a period and the ready queue {waited:.2}; a frame is done after {completion:.2}.",
        PAPERS_BLOCKING_LATE * 100.0,
        ran.period(left)
    ))
}

fn at_a_fifth(ran: &RunResults) -> Option<String> {
    let missed = ran.at_wait(20)?;
    let requests = ran.of("mean(requests, approach=blocking, wait=20, film=bd, ahead=1)")?;
    let (read, switch) = (ran.flash_read(), ran.ground.machine.switch());
    let wait = ran.ground.machine.quantum().scaled(0.2);
    let each = read + switch + wait;
    let computes = ran.computes();
    let reads = ran.period((1.0 - computes).max(0.0)).ratio(each).ceil();
    Some(format!(
        "A frame that computes for {computes:.2} of its period misses under a wait of {wait} from {reads:.0} reads on ({read} + {switch} + {wait} each). The paper's trace would have that many in 84 % of the frames. Here a frame makes {requests:.0} on average, they vary as the film's frames do, and {:.0} % of the frames miss.",
        missed * 100.0
    ))
}

fn by_wait(ran: &RunResults) -> Option<String> {
    let [none, first, second, last] = [ran.at_wait(0)?, ran.at_wait(20)?, ran.at_wait(40)?, ran.at_wait(100)?];
    let saturated = match first - none > 1.0 - first {
        true => " The first adds more than is left, so no later one can add as much.",
        false => "",
    };
    Some(format!(
        "The first fifth of the quantum adds {:.1} points to the misses, the second {:.1}, and at a whole quantum {:.0} % miss.{saturated} By the paper's own figures it cannot rise exponentially either: where a fifth makes 84 % miss, the next one can add 16 % at most.",
        (first - none) * 100.0,
        (second - first) * 100.0,
        last * 100.0
    ))
}

fn polling_on_pcm(ran: &RunResults) -> Option<String> {
    let [polling, requests] = ran.all(["polling", "requests"].map(|series| (series, "dual", "pcm")))?;
    let polled = ran.period(polling * ran.cores());
    let switch = ran.ground.machine.switch();
    let saved = (switch * 2).scaled(requests);
    let [least, most] = ran.pcm_read();
    let so = match polled < saved {
        true => "less than it saves, so utilisation is not reduced by it",
        false => "more than it saves, so utilisation is reduced",
    };
    Some(format!(
        "A page takes {least} to {most} on PCM. Polling for {requests:.0} of them takes {polled} of a frame's {}; two switches of {switch} for each would take {saved}. Polling costs {so}.",
        ran.ground.play.period
    ))
}

fn interactive_side(ran: &RunResults) -> Option<String> {
    let both = |approach| ran.all(["utilisation", "interactive"].map(|series| (series, approach, "pcm")));
    let ([blocked, blocked_side], [dual, dual_side]) = (both("blocking")?, both("dual")?);
    let [fifo, missed] = ran.all([("interactive", "fifo", "pcm"), ("missed", "blocking", "pcm")])?;
    let (late, kept) = (blocked - blocked_side, dual - dual_side);
    Some(format!(
        "Under blocking on PCM {:.0} % of the frames miss, and the player computes {late:.2} of all cores' time; under dual management {kept:.2}. Utilisation counts the player as well. Of what its computation leaves, the interactive side gets {:.3} under blocking and {:.3} under dual management. Of all cores' time it gets {dual_side:.3} there, and {fifo:.3} beside SCHED_FIFO on PCM.",
        missed * 100.0,
        blocked_side / (1.0 - late),
        dual_side / (1.0 - kept)
    ))
}

fn polling_on_flash(ran: &RunResults) -> Option<String> {
    let [polling, requests, collecting] =
        ran.all(["polling", "requests", "collecting"].map(|series| (series, "dual", "flash")))?;
    let asked = PAPERS_LOSS_ON_FLASH * ran.cores();
    let could = match asked <= 1.0 {
        true => format!(
            "For {:.0} % it would have to poll for {:.0} % of its time, {} for each read.",
            PAPERS_LOSS_ON_FLASH * 100.0,
            asked * 100.0,
            ran.period(asked / requests.max(1.0))
        ),
        false => format!(
            "One core of {} cannot cost {:.0} %.",
            ran.cores(),
            PAPERS_LOSS_ON_FLASH * 100.0
        ),
    };
    Some(format!(
        "{requests:.0} reads a frame, of {} each where flash is idle (it collects garbage for {:.1} % of the time), keep the exclusive core polling for {:.0} % of its time, {:.0} % of all cores'. {could}",
        ran.flash_read(),
        collecting * 100.0,
        polling * ran.cores() * 100.0,
        polling * 100.0
    ))
}

fn polling(ran: &RunResults) -> Option<String> {
    let media = ["pcm", "flash", "hdd"];
    let [pcm, flash, disk] = ran.all(media.map(|medium| ("polling", "dual", medium)))?;
    Some(format!(
        "Polling takes {:.1} % of all cores' time on PCM, {:.1} % on flash and {:.1} % on the disk, where a read takes {}.",
        pcm * 100.0,
        flash * 100.0,
        disk * 100.0,
        Nanos::from_secs_f64(ran.ground.media.hdd.read_us * 1e-6)
    ))
}

fn dual(ran: &RunResults) -> Option<String> {
    let [completion, io, requests, missed] =
        ran.all(["completion", "io", "requests", "missed"].map(|series| (series, "dual", "pcm")))?;
    let computes = ran.computes();
    let [least, most] = ran.pcm_read();
    Some(format!(
        "Under dual management a frame is done after {completion:.2} of its period on average: {computes:.2} to compute, {io:.2} to poll for {requests:.0} reads of {least} to {most}. {}",
        judged(completion, missed)
    ))
}

/// Conclusion for frames that take `takes` of their period on average; `missed` is the share of late frames.
fn judged(takes: f64, missed: f64) -> String {
    let late = (missed * FRAMES as f64).round();
    let which = if takes > 1.0 {
        "misses its deadline"
    } else {
        "is in time"
    };
    format!("So a frame of average size {which}, and {late:.0} of {FRAMES} miss theirs.")
}
