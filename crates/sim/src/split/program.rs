//! A profile that is ready to run.

use punctual_allocation::{Profile, Share, SplitError};

/// A checked profile, with derived figures that a run needs at every event.
#[derive(Clone, Debug)]
pub struct RunnableProfile {
    profile: Profile,
    /// Seconds of each phase with all ways and bandwidth.
    best: Box<[f64]>,
    envelope: f64,
}

impl RunnableProfile {
    /// Makes a program from `profile`. Tables are made monotone: a core may leave partitions unused.
    ///
    /// # Errors
    /// [`SplitError`] for a profile that cannot be run.
    pub fn new(mut profile: Profile) -> Result<RunnableProfile, SplitError> {
        profile.check()?;
        let mut envelope = 0.0;
        for (phase, length) in (0..).zip(lengths(&profile)) {
            let rates = &mut profile.phases[phase].rates;
            let best = rates.rates().iter().copied().fold(0.0, f32::max);
            envelope += length / f64::from(best);
            *rates = rates.monotone();
        }
        let all = profile.grid.all();
        let best = lengths(&profile).into_iter().zip(&profile.phases);
        let best = best
            .map(|(length, phase)| length / f64::from(phase.rates.rate(all)))
            .collect();
        Ok(RunnableProfile {
            best,
            profile,
            envelope,
        })
    }

    /// The profile, with monotone tables.
    pub fn profile(&self) -> &Profile {
        &self.profile
    }

    /// Seconds of a run in which every phase has the best rate of any share: a lower bound on every run.
    pub fn envelope(&self) -> f64 {
        self.envelope
    }

    /// Seconds of a whole run with all ways and bandwidth (the fifth paper's *reference WCET*).
    pub fn reference(&self) -> f64 {
        self.profile.duration(self.profile.grid.all())
    }

    /// Instructions per second in `phase` with `share`.
    pub fn rate(&self, phase: usize, share: Share) -> f64 {
        f64::from(self.profile.phases[phase].rates.rate(share))
    }

    /// Seconds that `phase` takes with all ways and bandwidth.
    pub(crate) fn best(&self, phase: usize) -> f64 {
        self.best[phase]
    }

    /// Seconds that `phase` takes longer with `share` than with all ways and bandwidth, at least 0.
    pub(crate) fn waits(&self, phase: usize, share: Share) -> f64 {
        let slower = self.rate(phase, self.profile.grid.all()) / self.rate(phase, share) - 1.0;
        (self.best[phase] * slower).max(0.0)
    }

    /// Part of a run that is done once `done` of `phase` is: from the begin of the phase to just below its end, so that
    /// rounding names no other phase.
    pub(crate) fn progress(&self, phase: usize, done: f64) -> f64 {
        let phases = &self.profile.phases;
        let begins = phase.checked_sub(1).map_or(0.0, |before| phases[before].ends);
        let ends = phases[phase].ends;
        (begins + done * (ends - begins)).clamp(begins, ends.next_down())
    }

    /// Number of phases of the program.
    pub fn phases(&self) -> usize {
        self.best.len()
    }
}

/// Number of instructions of each phase.
fn lengths(profile: &Profile) -> Vec<f64> {
    let mut before = 0.0;
    let length = |phase: &punctual_allocation::Phase| {
        let length = (phase.ends - before) * profile.instructions;
        before = phase.ends;
        length
    };
    profile.phases.iter().map(length).collect()
}
