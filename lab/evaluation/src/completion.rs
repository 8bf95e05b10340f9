//! Chooses how a job waits for its medium: polling, blocking, or polling for a while and then blocking.
//!
//! Polling for s costs min(X, s) of the core where the service takes X, and where X > s also the full cost B of
//! blocking (yielding the core, being scheduled again, and the price of lateness). The best s for a known distribution
//! of X is the minimum of E[min(X, s)] + P(X > s) B (A. Karlin, K. Li, M. Manasse and S. Owicki, "Empirical Studies of
//! Competitive Spinning", SOSP 1991). For a constant X that is the crossover X = B. For an empirical distribution the
//! minimum lies at zero or at one of the samples, since between samples only the first term grows.

use punctual_cores::Completion;
use punctual_units::Nanos;
use thiserror::Error;

/// Error: no service time was measured, so there is nothing to decide by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("no service times are known of the medium: measure some, or name a medium that has figures")]
pub struct NoFigures;

/// Chooses the method of waiting that costs the core least over the measured `services`, where blocking costs `block`:
/// two context switches, the wait until the job is on its core again, and whatever else the caller puts a price on. Of
/// equal costs, the longer polling wins, because it completes earlier.
///
/// # Errors
/// [`NoFigures`] if `services` is empty.
///
/// ```
/// use punctual_cores::Completion;
/// use punctual_evaluation::completion::completion;
/// use punctual_units::Nanos;
/// let switches = Nanos::from_micros(30);
/// assert_eq!(completion(&[Nanos::from_micros(6)], switches), Ok(Completion::Poll));
/// assert_eq!(completion(&[Nanos::from_micros(60)], switches), Ok(Completion::Block));
/// // Mostly quick, now and then a garbage collection:
/// let mut flash = vec![Nanos::from_micros(10); 99];
/// flash.push(Nanos::from_millis(50));
/// assert_eq!(completion(&flash, switches), Ok(Completion::SpinThenBlock(Nanos::from_micros(10))));
/// ```
pub fn completion(services: &[Nanos], block: Nanos) -> Result<Completion, NoFigures> {
    let mut sorted = services.to_vec();
    sorted.sort_unstable();
    let longest = *sorted.last().ok_or(NoFigures)?;
    // Total cost over all samples, exact in integers; `None`: block at once.
    let total = sorted.len() as u128;
    let mut best = (total * u128::from(block.0), None);
    let mut sum = 0u128;
    for (i, spin) in sorted.iter().enumerate() {
        sum += u128::from(spin.0);
        let beyond = total - (i as u128 + 1);
        let cost = sum + beyond * (u128::from(spin.0) + u128::from(block.0));
        if cost <= best.0 {
            best = (cost, Some(*spin));
        }
    }
    Ok(match best.1 {
        None => Completion::Block,
        Some(spin) if spin == longest => Completion::Poll,
        Some(spin) => Completion::SpinThenBlock(spin),
    })
}

/// Chooses how a job waits on a core that stays reserved for it, with `slack` left before it would be late. Polling
/// takes no time from other jobs there, so its price is zero, and blocking only delays the job: it polls as long as
/// that helps. [`completion`] is for cores that other threads use while the job is blocked; where the core is lent to
/// them, blocking costs handing it over and taking it back.
///
/// ```
/// use punctual_cores::Completion;
/// use punctual_evaluation::completion::completion_on_kept_core;
/// use punctual_units::Nanos;
/// assert_eq!(completion_on_kept_core(Nanos(5)), Completion::SpinThenBlock(Nanos(5)));
/// assert_eq!(completion_on_kept_core(Nanos::ZERO), Completion::Block);
/// ```
pub fn completion_on_kept_core(slack: Nanos) -> Completion {
    match slack {
        Nanos::ZERO => Completion::Block,
        slack => Completion::SpinThenBlock(slack),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The mean cost of one wait in nanoseconds: E[min(X, s)] + P(X > s) B; zero of no services.
    fn expected_cost(way: Completion, services: &[Nanos], block: Nanos) -> f64 {
        let cost = |service: &Nanos| match way {
            Completion::Poll => *service,
            Completion::SpinThenBlock(spin) if *service <= spin => *service,
            Completion::SpinThenBlock(spin) => spin + block,
            Completion::Block => block,
        };
        services.iter().map(|service| cost(service).0 as f64).sum::<f64>() / services.len().max(1) as f64
    }

    proptest! {
        #[test]
        fn nothing_else_costs_less(
            services in prop::collection::vec(0u64..200, 1..20),
            block in 0u64..200,
            other in 0u64..250,
        ) {
            let services: Vec<Nanos> = services.into_iter().map(Nanos).collect();
            let block = Nanos(block);
            let ours = expected_cost(completion(&services, block).unwrap(), &services, block);
            for way in [Completion::Poll, Completion::Block, Completion::SpinThenBlock(Nanos(other))] {
                prop_assert!(ours <= expected_cost(way, &services, block) + 1e-9, "{way:?}");
            }
        }

        #[test]
        fn a_constant_service_is_polled_up_to_the_cost_of_blocking(service in 1u64..1000, block in 1u64..1000) {
            let expected = if service <= block { Completion::Poll } else { Completion::Block };
            prop_assert_eq!(completion(&[Nanos(service); 3], Nanos(block)), Ok(expected));
        }

        #[test]
        fn it_costs_at_most_twice_what_hindsight_would(
            services in prop::collection::vec(1u64..200, 1..20),
            block in 1u64..200,
        ) {
            // Spinning for as long as blocking costs is 2-competitive, and the best way costs no more than that.
            let services: Vec<Nanos> = services.into_iter().map(Nanos).collect();
            let hindsight: f64 = services.iter().map(|s| s.0.min(block) as f64).sum::<f64>() / services.len() as f64;
            let ours = expected_cost(completion(&services, Nanos(block)).unwrap(), &services, Nanos(block));
            prop_assert!(ours <= 2.0 * hindsight + 1e-9);
        }
    }

    #[test]
    fn without_figures_nothing_is_decided() {
        assert_eq!(completion(&[], Nanos(1)), Err(NoFigures));
    }
}
