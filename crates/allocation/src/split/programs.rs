//! Profiles, compiled for deciding: whole-number tables that a decision reads without a search.
//!
//! **Method.** Each phase's table is first made monotone ([`RateTable::monotone`]): a core may leave unused what slows
//! it down. Rates are then counted in [`crate::LEVELS`] whole levels, so that sums are exact, ties are ties, and an
//! optimum is equal to brute force's rather than near it. One level is less than 4e-6 of the whole: far below a
//! profile's noise.
//!
//! **Clock.** A profile holds for the top clock. With the whole machine a phase only computes, and its time grows as
//! the clock falls; the extra time under a smaller share is waiting for memory, which does not depend on the clock.
//! With k = top clock / clock,
//!
//! ```text
//! time(share) at the clock = time(share) + (k - 1) time(everything)
//! ```
//!
//! for any stretch of a run, and so for the rest of it. [`Programs::slow_down`] sets k; rates, speeds and times follow
//! it. Levels do not: which share is best for a phase is the same at every clock, and only its advantage shrinks.

use crate::grid::{Grid, Share};
use crate::here::Here;
use crate::levels::Levels;
use crate::profile::{Profile, SplitError, require};
use crate::table::RateTable;

/// Most phases of a program.
pub const PHASES_MAX: usize = 64;

/// Quantity that is summed over the cores when shares are compared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Objective {
    /// Instructions per second: the fifth paper's rate, in which a program that retires many instructions weighs more.
    Instructions,
    /// Speed: each rate over the best of its phase, which is seconds of undisturbed work done in a second. A second of
    /// a program that waits for memory counts as much as one of a program that computes.
    #[default]
    Speed,
}

/// All programs of a run, compiled.
#[derive(Clone, Debug)]
pub struct Programs {
    grid: Grid,
    programs: Vec<Program>,
    states: usize,
    /// The top clock over the one in force, at least 1.
    slowdown: f64,
}

#[derive(Clone, Debug)]
struct Program {
    name: String,
    instructions: f64,
    /// Progress at each phase's end.
    ends: Vec<f64>,
    phases: Vec<PhaseTables>,
    /// Number of the first phase among the phases of all programs.
    first_state: usize,
    /// Seconds of a whole run, by [`Grid::index`].
    durations: Box<[f64]>,
}

/// Tables of one phase.
#[derive(Clone, Debug)]
struct PhaseTables {
    levels: Levels,
    /// Instructions per second, monotone.
    rates: RateTable,
    /// Seconds from the phase's end to the run's end, by [`Grid::index`].
    after: Box<[f64]>,
}

impl Programs {
    /// Compiles `profiles`; a program's number is its index there.
    ///
    /// # Errors
    /// [`SplitError`], the first one found.
    pub fn new(profiles: &[Profile], objective: Objective) -> Result<Programs, SplitError> {
        let first = profiles.first();
        let grid = first.ok_or_else(|| SplitError("no profile given".into()))?.grid;
        for profile in profiles {
            check(profile, grid)?;
        }
        let monotone: Vec<Vec<RateTable>> = profiles
            .iter()
            .map(|profile| profile.phases.iter().map(|phase| phase.rates.monotone()).collect())
            .collect();
        let best = |rates: &RateTable| f64::from(rates.rate(grid.all()));
        let fastest = monotone.iter().flatten().map(best).fold(0.0, f64::max);
        let whole = |rates: &RateTable| match objective {
            Objective::Instructions => fastest,
            Objective::Speed => best(rates),
        };
        let mut states = 0;
        let mut programs = Vec::new();
        for (profile, rates) in profiles.iter().zip(monotone) {
            programs.push(Program::compile(profile, rates, states, whole));
            states += profile.phases.len();
        }
        Ok(Programs {
            grid,
            programs,
            states,
            slowdown: 1.0,
        })
    }

    /// Grid of all profiles.
    pub fn grid(&self) -> Grid {
        self.grid
    }

    /// Number of programs, at least 1.
    pub fn len(&self) -> usize {
        self.programs.len()
    }

    /// Always false: a run has at least one program.
    pub fn is_empty(&self) -> bool {
        self.programs.is_empty()
    }

    /// Bytes that the tables take.
    pub fn bytes(&self) -> usize {
        let cells = self.grid.len();
        let border = usize::from(self.grid.ways) + usize::from(self.grid.partitions) + 1;
        let phase = (2 * cells + border) * size_of::<i32>() + cells * (size_of::<f32>() + size_of::<f64>());
        self.states * phase + self.programs.len() * cells * size_of::<f64>()
    }

    /// Name of program number `program`.
    pub fn name(&self, program: usize) -> &str {
        &self.programs[program].name
    }

    /// Sets how many times lower than the top clock the clock is from now on; 1 at first. Values below 1, infinite ones
    /// and NaN count as 1.
    pub fn slow_down(&mut self, slowdown: f64) {
        self.slowdown = if slowdown.is_finite() { slowdown.max(1.0) } else { 1.0 };
    }

    /// The top clock over the one in force, at least 1.
    pub fn slowdown(&self) -> f64 {
        self.slowdown
    }

    /// Seconds of a whole run of `program` with `share` all along; the *WCET* under that share, as far as the profile
    /// goes.
    pub fn duration(&self, program: usize, share: Share) -> f64 {
        self.at_clock(&self.programs[program].durations, share)
    }

    /// The phase that a run of `program` is in at `progress` (0..=1), from 0.
    pub fn phase_at(&self, program: usize, progress: f64) -> usize {
        let ends = &self.programs[program].ends;
        ends.partition_point(|end| *end <= progress).min(ends.len() - 1)
    }

    /// Progress at the end of the phase that a run of `program` is in at `progress`.
    pub fn phase_end(&self, program: usize, progress: f64) -> f64 {
        self.programs[program].ends[self.phase_at(program, progress)]
    }

    /// Instructions per second of `program` at `progress` with `share`, or with the best part of it.
    pub fn rate(&self, program: usize, progress: f64, share: Share) -> f64 {
        let rates = &self.compiled(program, progress).rates;
        let (rate, best) = (f64::from(rates.rate(share)), f64::from(rates.rate(self.grid.all())));
        rate / (1.0 + (self.slowdown - 1.0) * rate / best)
    }

    /// The rate over the phase's best at the top clock: seconds of undisturbed work done in a second, 0..=1.
    pub fn speed(&self, program: usize, progress: f64, share: Share) -> f64 {
        let best = self.compiled(program, progress).rates.rate(self.grid.all());
        self.rate(program, progress, share) / f64::from(best)
    }

    /// Progress per second of `program` at `progress` with `share`.
    pub fn progress_rate(&self, program: usize, progress: f64, share: Share) -> f64 {
        self.rate(program, progress, share) / self.programs[program].instructions
    }

    /// Seconds until `program`, at `progress`, leaves its phase if it keeps `share`.
    pub fn phase_left(&self, program: usize, progress: f64, share: Share) -> f64 {
        (self.phase_end(program, progress) - progress).max(0.0) / self.progress_rate(program, progress, share)
    }

    /// Seconds until `program`, at `progress`, ends if it keeps `share`: the fifth paper's *TimeLeft* (Algorithm 2),
    /// over the current and the coming phases.
    pub fn time_left(&self, program: usize, progress: f64, share: Share) -> f64 {
        let after = &self.compiled(program, progress).after;
        self.phase_left(program, progress, share) + self.at_clock(after, share)
    }

    /// Seconds that a run of `program` with `share` has left, if it had `left` at a clock `slowdown` times lower than
    /// the top one.
    pub(crate) fn retimed(&self, program: usize, share: Share, mut left: f64, slowdown: f64) -> f64 {
        let whole = &self.programs[program];
        let mut retimed = 0.0;
        // From the last phase on.
        for number in (0..whole.phases.len()).rev() {
            let begins = if number == 0 { 0.0 } else { whole.ends[number - 1] };
            let instructions = (whole.ends[number] - begins) * whole.instructions;
            let rates = &whole.phases[number].rates;
            let [at_share, at_best] = [share, self.grid.all()].map(|share| instructions / f64::from(rates.rate(share)));
            let [then, now] = [slowdown, self.slowdown].map(|slowdown| at_share + (slowdown - 1.0) * at_best);
            let part = (left / then).min(1.0);
            retimed += part * now;
            left -= part * then;
            if part < 1.0 {
                break;
            }
        }
        retimed
    }

    /// Seconds with `share` at the clock in force, from those `at_top` by [`Grid::index`].
    fn at_clock(&self, at_top: &[f64], share: Share) -> f64 {
        at_top[self.grid.index(share)] + (self.slowdown - 1.0) * at_top[self.grid.index(self.grid.all())]
    }

    /// The rates that a decision compares.
    pub fn levels(&self, program: usize, progress: f64) -> &Levels {
        &self.compiled(program, progress).levels
    }

    /// Number of the phase among those of all programs.
    pub(crate) fn state(&self, program: usize, progress: f64) -> usize {
        self.programs[program].first_state + self.phase_at(program, progress)
    }

    /// The rates of every state, in their order.
    pub(crate) fn all_levels(&self) -> impl Iterator<Item = &Levels> {
        let phases = self.programs.iter().flat_map(|program| &program.phases);
        phases.map(|phase| &phase.levels)
    }

    /// Number of phases of all programs together.
    pub(crate) fn states(&self) -> usize {
        self.states
    }

    /// Position of a run of `program` at `progress`, prepared for many questions.
    pub(crate) fn here(&self, program: usize, progress: f64) -> Here<'_> {
        let whole = &self.programs[program];
        let phase = self.phase_at(program, progress);
        let PhaseTables { rates, after, .. } = &whole.phases[phase];
        let left = (whole.ends[phase] - progress).max(0.0) * whole.instructions;
        Here::new(rates, after, left, self.slowdown)
    }

    fn compiled(&self, program: usize, progress: f64) -> &PhaseTables {
        &self.programs[program].phases[self.phase_at(program, progress)]
    }
}

impl Program {
    fn compile(
        profile: &Profile,
        rates: Vec<RateTable>,
        first_state: usize,
        whole: impl Fn(&RateTable) -> f64,
    ) -> Program {
        let grid = profile.grid;
        let ends: Vec<f64> = profile.phases.iter().map(|phase| phase.ends).collect();
        let mut after = vec![0.0; grid.len()];
        let mut phases = Vec::new();
        for (number, rates) in rates.into_iter().enumerate().rev() {
            let begins = if number == 0 { 0.0 } else { ends[number - 1] };
            let instructions = (ends[number] - begins) * profile.instructions;
            let since: Vec<f64> = after
                .iter()
                .zip(rates.rates())
                .map(|(after, rate)| after + instructions / f64::from(*rate))
                .collect();
            let levels = Levels::new(&rates, whole(&rates));
            let after = std::mem::replace(&mut after, since).into();
            phases.push(PhaseTables { levels, rates, after });
        }
        phases.reverse();
        Program {
            name: profile.name.clone(),
            instructions: profile.instructions,
            ends,
            phases,
            first_state,
            durations: after.into(),
        }
    }
}

fn check(profile: &Profile, first: Grid) -> Result<(), SplitError> {
    profile.check()?;
    let (name, grid, phases, instructions) = (&profile.name, profile.grid, profile.phases.len(), profile.instructions);
    require(grid == first, || {
        format!(
            "{name} was profiled for {grid:?}, the first program for {first:?}: one run needs profiles of one machine"
        )
    })?;
    require(phases <= PHASES_MAX, || {
        format!("{name} has {phases} phases, at most {PHASES_MAX} are handled: join short ones")
    })?;
    require(instructions > 0.0 && instructions.is_finite(), || {
        format!("{name} runs {instructions} instructions: give a positive number")
    })
}

#[cfg(test)]
#[path = "programs_tests.rs"]
mod tests;
