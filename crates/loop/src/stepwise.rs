//! The law without a model: each knob is a staircase, moved by the sign of its effect.
//!
//! **Problem.** Where nothing was learnt (the record was too short or too noisy, or a knob had no effect on it), no
//! gain is known. Leaving the knobs alone leaves jobs late that fewer updates would bring into time.
//!
//! **Method.** A cascade of [`Staircase`]s. Beyond the goal the clock goes to its top first, because that costs energy
//! and nothing that the user asked for; then the admitted share is cut towards the least that keeps the freshness
//! minimum. With slack the admitted share is given back first, then the clock is lowered. What is compared is the
//! leading task's distance from its goal (`goals.rs`), which for a goal of late jobs follows their measured share
//! ([`Tail`](punctual_control::Tail)). The knobs end near the best fixed setting: a cut too many is given back after
//! some calm windows, and each failed return makes the next one rarer.
//!
//! No model is about the frames of a stage: such a law bounds the knobs for them, beside whatever law the tasks have.

use punctual_platform::{ClockOffer, KnobId, Offers};
use punctual_units::Share;
use punctual_workload::ControllerKind;

use crate::controller::{Knobs, knobs_of};
use crate::staircase::{BestEffortRange, Staircase};

/// Part of the goal below which there is slack: where one step of a knob moves jobs by less than the rest. Chosen by
/// hand.
const SLACK: f64 = 0.92;

/// The staircases of the knobs that are turned, with the settings in force.
#[derive(Clone, Debug)]
pub(crate) struct Stepwise {
    turns: &'static [KnobId],
    /// Set point of the pressure.
    nominal: f64,
    /// What the clock leaves of its top; `None` where it is not turned.
    spared: Option<Staircase>,
    /// The admitted share; `None` where it is not turned.
    admitted: Option<Staircase>,
    held: Knobs,
}

impl Stepwise {
    /// The law for the knobs that `kind` turns, with all that costs jobs time given in full. `nominal`: the pressure
    /// of a task at its goal.
    pub(crate) fn new(kind: ControllerKind, nominal: f64, offers: &Offers) -> Stepwise {
        let turns = knobs_of(kind);
        let up_to = |most: Share| BestEffortRange {
            most,
            least: Share::ZERO,
        };
        let spare = |offer: &ClockOffer| Share::clamped(1.0 - offer.bottom().ratio(offer.top()));
        let spared = offers.clock().filter(|_| turns.contains(&KnobId::CLOCK)).map(spare);
        let mut law = Stepwise {
            turns,
            nominal,
            spared: spared.map(|most| Staircase::new(up_to(most)).of_clock().with_slack(SLACK)),
            admitted: turns
                .contains(&KnobId::AdmittedShare)
                .then(|| Staircase::new(up_to(Share::ONE)).with_slack(SLACK)),
            held: Knobs::each(|_| None),
        };
        // The clock starts at its top, as it does for any task that was not measured yet.
        if let Some(spared) = &mut law.spared {
            spared.resume(0.0);
        }
        law.hold();
        law
    }

    /// Knobs that the law turns.
    pub(crate) fn turns(&self) -> &'static [KnobId] {
        self.turns
    }

    /// The settings in force.
    pub(crate) fn knobs(&self) -> Knobs {
        self.held
    }

    /// Whether no knob has more to give to late jobs.
    pub(crate) fn is_spent(&self) -> bool {
        let mut knobs = self.spared.iter().chain(&self.admitted);
        knobs.all(|knob| knob.share() <= knob.least())
    }

    /// Takes a window in which the task furthest from its goal was at `pressure`; `None`: it was not measured. The
    /// admitted share is not cut below `floor`. Returns the settings for the next window.
    pub(crate) fn step(&mut self, pressure: Option<f64>, floor: Share) -> Knobs {
        let pressure = pressure.map(|pressure| pressure / self.nominal);
        let at_top = self.spared.as_ref().is_none_or(|spared| spared.share() == Share::ZERO);
        let mut given = true;
        if let Some(admitted) = &mut self.admitted {
            admitted.set_least(floor);
            admitted.step(pressure, at_top);
            given = admitted.is_full();
        }
        if let Some(spared) = &mut self.spared {
            // Without slack to spare as long as updates are shed.
            let pressure = pressure.map(|pressure| if given { pressure } else { pressure.max(SLACK) });
            spared.step(pressure, true);
        }
        self.hold();
        self.held
    }

    /// Goes on from these settings, the safe ones: after start-up and fallback.
    ///
    /// The knobs stand there, so nothing jolts. A jump back to where they stood before the fallback may make jobs late
    /// at once: silence may come from jobs that do not end. But a fault may as well say nothing of the load (a meter, a
    /// standstill of the machine), and failed returns may have made steps rare: at the longest wait data would be stale
    /// for a quarter of an hour. So each knob returns at the first pace as far as it stood before, or until jobs are
    /// beyond their goal.
    pub(crate) fn resume(&mut self, knobs: Knobs) {
        let before = self.held;
        let stood = |knob| before.get(knob).zip(knobs.get(knob));
        if let (Some(spared), Some((before, clock))) = (&mut self.spared, stood(KnobId::CLOCK)) {
            spared.go_on(1.0 - clock, Share::clamped(1.0 - before));
        }
        if let (Some(admitted), Some((before, share))) = (&mut self.admitted, stood(KnobId::AdmittedShare)) {
            admitted.go_on(share, Share::clamped(before));
        }
        self.hold();
    }

    /// Takes over the admitted share that is in force. The clock stays as asked for: rounded to the machine's steps, no
    /// small step would ever add up to one of them.
    pub(crate) fn applied(&mut self, knobs: Knobs) {
        if let (Some(admitted), Some(share)) = (&mut self.admitted, knobs.get(KnobId::AdmittedShare)) {
            admitted.resume(share);
        }
    }

    fn hold(&mut self) {
        if let Some(spared) = &self.spared {
            self.held.set(KnobId::CLOCK, Some(1.0 - spared.share().get()));
        }
        if let Some(admitted) = &self.admitted {
            self.held.set(KnobId::AdmittedShare, Some(admitted.share().get()));
        }
    }
}

#[cfg(test)]
mod tests {
    use punctual_platform::{KnobOffer, Provenance, Range};
    use punctual_units::{CoreId, Hertz};

    use super::*;

    /// Jobs whose time is that of the clock, and of something that no clock changes.
    #[test]
    fn the_clock_comes_near_the_least_that_holds_the_goal_and_stays_there() {
        let steps = (2..=20).map(|hundreds| Hertz::from_mhz(hundreds * 100)).collect();
        let clock = Range::Clock(ClockOffer::new(steps, Provenance::Simulated));
        let offers = Offers {
            machine: "test".into(),
            cores: vec![CoreId(0)],
            knobs: vec![KnobOffer {
                knob: KnobId::CLOCK,
                range: clock,
            }],
            domains: Vec::new(),
            meters: Vec::new(),
        };
        for (by_clock, fixed) in [(0.3, 0.0), (0.5, 0.1), (0.7, 0.2), (0.95, 0.0)] {
            let mut law = Stepwise::new(ControllerKind::Clock, 1.0, &offers);
            let (mut clocks, mut late) = (Vec::new(), 0);
            for window in 0..4000 {
                let clock = law.knobs().get(KnobId::CLOCK).unwrap();
                // Windows differ by up to 5 %.
                let noise = 1.0 + 0.05 * f64::from(window * 37 % 21 - 10) / 10.0;
                let pressure = (by_clock / clock + fixed) * noise;
                late += u32::from(pressure > 1.1);
                clocks.push(clock);
                law.step(Some(pressure), Share::ZERO);
            }
            let mean = |clocks: &[f64]| clocks.iter().sum::<f64>() / clocks.len() as f64;
            let best = by_clock / (1.0 - fixed);
            let told = format!(
                "{by_clock}, {fixed}: {:.2}, {:.2} of {best:.2}",
                mean(&clocks[..200]),
                mean(&clocks[1000..])
            );
            assert!(mean(&clocks[1000..]) < best + 0.15, "{told}");
            assert!(late < 20, "{told}: {late} late");
        }
    }
}
