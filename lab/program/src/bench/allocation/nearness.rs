//! Distance of each policy from the optimum, at random instants.

use punctual_allocation::policy::{Exact, summed};
use punctual_allocation::{Pool, Programs};
use serde::Serialize;

use super::instants::{Cores, Instants};
use super::policies::{self, NamedPolicy};

/// Speed of one policy relative to the optimum.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Nearness {
    pub name: &'static str,
    /// Mean over the instants of the policy's summed speed divided by the optimum's.
    pub of_exact: f64,
    /// The least of these quotients.
    pub of_exact_least: f64,
}

/// Measures every policy on `instants`.
pub fn nearness(programs: &Programs, pool: Pool, exact: Exact, instants: &Instants) -> Vec<Nearness> {
    let mut policies = policies::all(programs, pool, exact, instants);
    let cores: Vec<Cores<'_>> = instants.iter().collect();
    let sums: Vec<Vec<f64>> = policies
        .iter_mut()
        .map(|policy| sums(policy, programs, &cores))
        .collect();
    let exact = policies.iter().position(|policy| policy.name == policies::EXACT);
    let best = exact.map_or(&[][..], |exact| &sums[exact]);
    let of = |(policy, sums): (&NamedPolicy<'_>, &Vec<f64>)| {
        // If every core rests, there is nothing to compare.
        let busy = sums.iter().zip(best).filter(|(_, best)| **best > 0.0);
        let ratios: Vec<f64> = busy.map(|(sum, best)| sum / best).collect();
        Nearness {
            name: policy.name,
            of_exact: punctual_units::mean(&ratios).unwrap_or(f64::NAN),
            of_exact_least: ratios.iter().copied().fold(f64::INFINITY, f64::min),
        }
    };
    policies.iter().zip(&sums).map(of).collect()
}

fn sums(policy: &mut NamedPolicy<'_>, programs: &Programs, instants: &[Cores<'_>]) -> Vec<f64> {
    let sum = |(number, cores): (usize, &Cores<'_>)| summed(programs, cores, &(policy.decide)(number, cores)) as f64;
    instants.iter().enumerate().map(sum).collect()
}
