//! Runs a task set under every variant.

use punctual_allocation::policy::equal;
use punctual_allocation::{Base, Foresight, Loads, PeriodicTask};
use punctual_machine::split::run;
use punctual_sim::split::{Refill, SplitModel};
use punctual_units::Nanos;

use super::decide::{Decider, POOL};
use super::measured::SetFigures;
use super::profiles::RunSet;
use super::tasksets;
use super::variant::{Rule, Variant};

/// Time during which jobs are released.
pub const DURATION: Nanos = Nanos::from_secs(120);

/// A task set to run.
#[derive(Clone, Copy, Debug)]
pub struct Set<'p> {
    /// Profiles of the programs, and the machine.
    pub prepared: &'p RunSet,
    /// Utilisation of the set by reference WCETs.
    pub utilisation: f64,
    /// Index of the set among those of this utilisation.
    pub number: usize,
    pub seed: u64,
}

/// The results of a task set under each variant.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SetResults {
    /// In the order of [`Variant::all`].
    results: Vec<(Variant, SetFigures)>,
    /// Utilisation of the set by WCETs under an even split.
    pub even_utilisation: f64,
    /// Number of earlier draws that were rejected because they did not fit.
    pub refused: usize,
    /// Messages of failed runs, each with its cause.
    pub failures: Vec<String>,
}

impl SetResults {
    /// The result under `variant`; `None`: the run failed.
    pub fn of(&self, variant: Variant) -> Option<&SetFigures> {
        self.results
            .iter()
            .find(|(other, _)| *other == variant)
            .map(|(_, measured)| measured)
    }
}

impl Set<'_> {
    /// Draws the set and runs it under every variant.
    pub fn carry_out(&self) -> SetResults {
        let programs = &self.prepared.programs;
        let cores = self.prepared.machine.cores;
        let set = match tasksets::draw(programs, cores, self.utilisation, self.seed, self.number) {
            Ok(set) => set,
            Err(failure) => {
                return SetResults {
                    failures: vec![format!("{}: {failure}", self.prepared.name)],
                    ..SetResults::default()
                };
            }
        };
        let even = equal(POOL, cores);
        let loads = Loads::new(&self.prepared.by_speed, &set.tasks, cores);
        let mut results = SetResults {
            refused: set.refused,
            even_utilisation: loads.each(&even).sum(),
            ..SetResults::default()
        };
        let mut fixed: Option<(Variant, SetFigures)> = None;
        for variant in Variant::all() {
            // Under a static policy no resource changes hands, so the price of refilling makes no difference: one run
            // serves all.
            if let Some((_, measured)) = fixed
                .as_ref()
                .filter(|(done, _)| variant.rule == Rule::Static && done.policy == variant.policy)
            {
                results.results.push((variant, measured.clone()));
                continue;
            }
            match self.run(&set.tasks, variant) {
                Ok(measured) => {
                    fixed = (variant.rule == Rule::Static).then(|| (variant, measured.clone()));
                    results.results.push((variant, measured));
                }
                Err(error) => results.failures.push(format!(
                    "{}, utilisation {}, set {}, {}: {error}",
                    self.prepared.name,
                    self.utilisation,
                    self.number,
                    variant.title()
                )),
            }
        }
        results
    }

    /// Runs `tasks` under one variant.
    pub(super) fn run(&self, tasks: &[PeriodicTask], variant: Variant) -> Result<SetFigures, String> {
        Ok(carry(self.prepared, self.prepared.machine, tasks, (variant, Base::Ahead))?.0)
    }
}

/// Runs `tasks` on `machine`, with the variant's price of refilling, under a variant that starts from `base`. Also
/// returns what was foreseen, where the rule has looked ahead.
///
/// # Errors
/// A message, where the run is impossible or does not end.
pub(super) fn carry(
    prepared: &RunSet,
    mut machine: SplitModel,
    tasks: &[PeriodicTask],
    (variant, base): (Variant, Base),
) -> Result<(SetFigures, Option<Foresight>), String> {
    machine.refill = match variant.rule {
        Rule::Static => Refill::Free,
        _ => variant.refill,
    };
    let mut decider = Decider::from_base(prepared, &mut machine, tasks, (variant, base))?;
    let ran = run(&machine, &prepared.programs, tasks, DURATION, |instant| {
        decider.decide(instant)
    });
    let figures = SetFigures::of(&ran.map_err(|error| error.to_string())?);
    Ok((figures, decider.forecast().cloned()))
}
