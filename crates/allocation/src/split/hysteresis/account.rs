//! Lead and debt of one core: how much time it can afford to lose.
//!
//! **Terms.** A core's *debt* is what it takes, in seconds under its base share, to have the base's ways back and full:
//! its cold bytes and those of the base's ways that it has not. Its *lead* is how far its work is ahead of the base
//! ([`Shadow::lead`]). The rest of the lead once the debt is paid, lead - debt, is the time that the core can lose.
//!
//! **Method.** [`LossLimits::allow`] is the rule of the module's proof.

use punctual_units::{Nanos, Time};

use super::Refill;
use super::shadow::Shadow;
use super::ways::WayGains;
use crate::grid::Share;
use crate::here::Here;
use crate::masks::WayMask;
use crate::programs::Programs;
use crate::running::RunningJob;

/// Seconds that rounding may take from what a core can lose: times are whole nanoseconds.
pub(super) const RESOLUTION: f64 = 1e-6;

/// Share, debt and lead of one core.
#[derive(Clone, Debug)]
pub(super) struct CoreDebt {
    base: Share,
    /// Ways under the base split.
    own: WayMask,
    refill: Refill,
    /// Seconds to fill one way under the base share.
    back: f64,
    /// Most seconds between an event and its decision.
    gap: f64,
    /// The ways in force.
    mask: WayMask,
    /// The bandwidth in force.
    partitions: u8,
    shadow: Shadow,
    /// Bytes of the core's ways that are not filled yet.
    cold: f64,
    /// Deadline and program of the job that ran at the last decision.
    ran: Option<(Time, usize)>,
    /// Seconds that the core's work is ahead of the base; infinite at rest.
    lead: f64,
}

/// Limits of a core's losses, whatever share is considered.
#[derive(Clone, Copy, Debug)]
pub(super) struct LossLimits {
    /// Seconds that the core is ahead of the base.
    pub lead: f64,
    /// Seconds that the core owes now.
    pub debt: f64,
    /// Most seconds between an event and its decision; also the most that may be owed.
    pub gap: f64,
}

impl LossLimits {
    /// Whether a core may let its debt become `debt` seconds and lose `loses` more until its phase ends. `dominates`:
    /// the core has at least the base's ways and bandwidth, and so loses nothing in any phase.
    pub fn allow(self, debt: f64, loses: f64, dominates: bool) -> bool {
        let grows = debt > self.debt;
        let left = self.lead - debt;
        if grows && debt > self.gap {
            false
        } else if grows || loses > 0.0 {
            left >= loses
        } else {
            dominates || left >= -(self.gap + RESOLUTION)
        }
    }
}

impl CoreDebt {
    /// A core that has its base share, without jobs.
    pub fn new(base: Share, own: WayMask, refill: Refill, gap: Nanos) -> CoreDebt {
        CoreDebt {
            base,
            own,
            refill,
            back: refill.seconds(1, base.partitions),
            gap: gap.as_secs_f64(),
            mask: own,
            partitions: base.partitions,
            shadow: Shadow::new(base),
            cold: 0.0,
            ran: None,
            lead: f64::INFINITY,
        }
    }

    /// Goes on with `mask` and `partitions` and the jobs of `running` from `now` on; ways that are not the base's count
    /// as full.
    pub fn go_on(
        &mut self,
        programs: &Programs,
        running: Option<&RunningJob<'_>>,
        (mask, partitions): (WayMask, u8),
        now: Time,
    ) {
        (self.mask, self.partitions) = (mask, partitions);
        self.ran = running.map(|job| (job.deadline, job.program));
        self.shadow.begin_with(programs, running, now);
    }

    /// Limits under the ways in force.
    pub fn limits(&self) -> LossLimits {
        LossLimits {
            lead: self.lead,
            debt: self.debt(self.mask),
            gap: self.gap,
        }
    }

    /// Advances from the last decision, at `before`, to `now`, at which `job` runs.
    ///
    /// The keeper learns only at the gap's end of events within the gap after `before`. Their exact time is unknown, so
    /// the worst is assumed: a job was released at `before`, so that the base has begun it; a core that changed its job
    /// was at rest, so that nothing was filled.
    pub fn pass(&mut self, programs: &Programs, job: Option<&RunningJob<'_>>, before: Time, now: Time) {
        let seconds = now.since(before).as_secs_f64();
        let at_once = seconds > self.gap + RESOLUTION;
        let runs = job.map(|job| (job.deadline, job.program));
        if self.ran.is_some() && (at_once || runs == self.ran) {
            self.cold = (self.cold - seconds * self.refill.bandwidth(self.partitions)).max(0.0);
        }
        self.ran = runs;
        let released = if at_once { now } else { before };
        self.shadow.follow(programs, job, released, now);
        self.lead = job.map_or(f64::INFINITY, |job| self.shadow.lead(programs, job));
    }

    /// Takes the ways of `mask` and `partitions`; ways that are new are cold.
    pub fn take(&mut self, mask: WayMask, partitions: u8) {
        self.cold = self.cold_with(mask);
        (self.mask, self.partitions) = (mask, partitions);
    }

    /// Returns a test: whether the core can afford `mask` with a number of partitions, until its job's phase ends or
    /// while it rests.
    pub fn affords<'a>(&self, here: Option<&'a Here<'a>>, mask: WayMask) -> impl Fn(u8) -> bool + use<'a> {
        let (limits, base, refill) = (self.limits(), self.base, self.refill);
        let (debt, cold, ways) = (self.debt(mask), self.cold_with(mask), mask.count());
        let filled = cold / refill.bandwidth(base.partitions);
        let left = here.map_or(0.0, |here| here.phase_left(base));
        move |partitions| {
            let Some(here) = here else {
                return limits.allow(debt, 0.0, true);
            };
            let filling = cold / refill.bandwidth(partitions) - filled;
            let running = here.phase_left(Share { ways, partitions }) - left;
            // The core fills first and runs then: its largest loss on the way counts.
            let loses = filling.max(filling + running).max(0.0);
            limits.allow(debt, loses, ways >= base.ways && partitions >= base.partitions)
        }
    }

    /// Whether the gap allows a debt of one way.
    pub fn may_owe_a_way(&self) -> bool {
        self.back <= self.gap
    }

    /// Seconds until its phase ends with `mask` and `partitions`, filling counted.
    pub fn until_phase_end(&self, here: &Here<'_>, mask: WayMask, partitions: u8) -> f64 {
        let share = Share {
            ways: mask.count(),
            partitions,
        };
        here.phase_left(share) + self.cold_with(mask) / self.refill.bandwidth(partitions)
    }

    /// Seconds saved and lost with each number of ways in `least..=most`, under `partitions`; `saved` and `loses` are 0
    /// at rest.
    pub fn claim(&self, here: Option<&Here<'_>>, partitions: u8, least: u8, most: u8) -> WayGains {
        let mut claim = WayGains::new(self.limits(), self.mask, self.own);
        claim.fill = self.refill.seconds(1, partitions);
        claim.back = self.back;
        claim.cold = self.cold / self.refill.bandwidth(self.base.partitions);
        let Some(here) = here else {
            claim.loses[usize::from(least)..=usize::from(most)].fill(0.0);
            return claim;
        };
        let pace = here.phase_left(self.base);
        for ways in least..=most {
            let at = usize::from(ways);
            let base = self.base.partitions;
            claim.saved[at] = -here.phase_left(Share { ways, partitions });
            claim.loses[at] = (here.phase_left(Share { ways, partitions: base }) - pace).max(0.0);
        }
        claim
    }

    /// Seconds under the base share to have the base's ways back and full, if it takes `mask` now.
    fn debt(&self, mask: WayMask) -> f64 {
        let ways = f64::from(mask.gained(self.mask)) + f64::from(self.own.gained(mask));
        self.cold / self.refill.bandwidth(self.base.partitions) + ways * self.back
    }

    /// Bytes that are cold if it takes `mask` now.
    fn cold_with(&self, mask: WayMask) -> f64 {
        let gained = f64::from(mask.gained(self.mask)) * self.refill.way_bytes;
        (self.cold + gained).min(f64::from(mask.count()) * self.refill.way_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A core that is ahead by `lead` ms and owes half of a gap of 1 ms.
    fn limits(lead: f64) -> LossLimits {
        LossLimits {
            lead: lead * 1e-3,
            debt: 0.5e-3,
            gap: 1e-3,
        }
    }

    /// Whether it may come to owe `debt` ms and lose `loses` ms.
    fn allows(lead: f64, debt: f64, loses: f64) -> bool {
        limits(lead).allow(debt * 1e-3, loses * 1e-3, false)
    }

    #[test]
    fn a_core_loses_what_it_is_ahead_beyond_its_debt() {
        assert!(allows(2.0, 0.5, 1.4) && !allows(2.0, 0.5, 1.6));
        assert!(allows(2.0, 1.0, 0.9) && !allows(2.0, 1.0, 1.1));
    }

    #[test]
    fn no_core_comes_to_owe_more_than_the_gap() {
        assert!(!limits(f64::INFINITY).allow(1.1e-3, 0.0, true));
        let owes_much = LossLimits {
            debt: 3e-3,
            ..limits(0.0)
        };
        assert!(owes_much.allow(3e-3, 0.0, true), "a core in debt may regain its own");
    }

    #[test]
    fn a_core_behind_by_less_than_the_gap_keeps_the_pace_and_others_the_bases_share() {
        assert!(allows(0.0, 0.5, 0.0) && !allows(0.0, 0.5, 0.1) && !allows(0.0, 0.6, 0.0));
        assert!(!allows(-0.6, 0.5, 0.0) && limits(-0.6).allow(0.5e-3, 0.0, true));
        // A job is overdue.
        assert!(!allows(f64::NEG_INFINITY, 0.5, 0.0) && limits(f64::NEG_INFINITY).allow(0.5e-3, 0.0, true));
    }
}
