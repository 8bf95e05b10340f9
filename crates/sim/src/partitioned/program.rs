//! A profile, ready to run.

use punctual_allocation::{Profile, ProfileError, Share};

/// A profile that was checked, with what a run needs at every event.
#[derive(Clone, Debug)]
pub struct Program {
    profile: Profile,
    /// Instructions of each phase.
    lengths: Box<[f64]>,
    envelope: f64,
}

impl Program {
    /// A program that runs as `profile` says. Tables are made monotone: a core may leave partitions unused.
    ///
    /// # Errors
    /// [`ProfileError`] of a profile that cannot be run.
    pub fn new(mut profile: Profile) -> Result<Program, ProfileError> {
        profile.check()?;
        let mut before = 0.0;
        let mut lengths = Vec::with_capacity(profile.phases.len());
        let mut envelope = 0.0;
        for phase in &mut profile.phases {
            let length = (phase.ends - before) * profile.instructions;
            let best = phase.rates.rates().iter().copied().fold(0.0, f32::max);
            envelope += length / f64::from(best);
            lengths.push(length);
            before = phase.ends;
            phase.rates = phase.rates.monotone();
        }
        Ok(Program {
            profile,
            lengths: lengths.into(),
            envelope,
        })
    }

    /// The profile, its tables monotone.
    pub fn profile(&self) -> &Profile {
        &self.profile
    }

    /// Seconds of a run in which every phase has the best rate that any share gives it: nothing can be faster.
    pub fn envelope(&self) -> f64 {
        self.envelope
    }

    /// Seconds of a whole run with everything there is (the fifth paper's *reference WCET*).
    pub fn reference(&self) -> f64 {
        self.profile.duration(self.profile.grid.all())
    }

    /// Instructions of phase number `phase`.
    pub(super) fn length(&self, phase: usize) -> f64 {
        self.lengths[phase]
    }

    /// Instructions per second in `phase` with `share`.
    pub fn rate(&self, phase: usize, share: Share) -> f64 {
        f64::from(self.profile.phases[phase].rates.rate(share))
    }

    /// How many phases it has.
    pub fn phases(&self) -> usize {
        self.lengths.len()
    }
}
