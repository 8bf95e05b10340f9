//! Delay of accesses by memory traffic: one queue, shared by all cores, in steady state between two events.
//!
//! **Problem.** Core *i* alternates between its own work (Z_i nanoseconds per access, "think time") and an access to
//! the one shared server, which takes s nanoseconds of service and may have to wait for others. How long is an access,
//! R_i?
//!
//! **Method.** This is a closed queueing network with one customer per core. Bard and Schweitzer's approximation of
//! mean value analysis (Y. Bard 1979; P. Schweitzer 1979; Lazowska et al., *Quantitative System Performance*, 1984,
//! chapters 6 and 7): an arriving access finds at the server what the other cores have there on average,
//!
//! ```text
//! R_i = s (1 + sum over j != i of q_j),    q_j = R_j / (Z_j + R_j)
//! ```
//!
//! where q_j is the share of its time that core *j* spends in accesses. A core alone has R = s exactly; n saturating
//! cores have R = n s, the server's full capacity. The right-hand side grows with every R and falls with every Z, and
//! it is concave: so it has one fixed point, and **one more core, or a more data-intensive one, never makes any access
//! shorter**. An open formula such as s / (1 - U) with rates that give way to the delay guarantees neither.
//!
//! All cores see one queue Q = sum of q_j, which makes the fixed point a single equation: given Q, each q_i is the
//! smaller root of
//!
//! ```text
//! s q^2 - (s (2 + Q) + Z) q + s (1 + Q) = 0
//! ```
//!
//! and is concave and growing in Q. So Newton's iteration for Q = sum of q_i(Q), begun at the number of cores, descends
//! to the solution and never passes it.
//!
//! For two cores, the most frequent mix, no iteration is needed: inserted into each other, their two equations are
//!
//! ```text
//! A q_1^2 + B q_1 - C = 0,   A = s (Z_1 + 2 s),  B = Z_1 Z_2 + s (Z_1 + Z_2),  C = s (Z_2 + 2 s)
//! ```
//!
//! and for q_2 the same with A and C exchanged.
//!
//! The mean-value view is the approximation of this machine: the mean delay is computed; single accesses are not
//! events.

/// Bound on Newton steps; the queue of the last one is used. A test shows that they suffice for a full machine.
const ITERATIONS_MAX: usize = 50;
/// Relative size of the last step. Newton's error after a step is of the order of the step's square, so the remaining
/// error is below the precision of the numbers.
const TOLERANCE: f64 = 1e-7;

/// Think time of a core that makes no accesses, in nanoseconds.
pub(crate) const NEVER: f64 = f64::INFINITY;

/// Share of its time that a core spends in accesses while the queue is this long.
fn presence(service: f64, think: f64, queue: f64) -> f64 {
    let half = service * (2.0 + queue) + think;
    let root = (half * half - 4.0 * service * service * (1.0 + queue)).max(0.0).sqrt();
    // The smaller root, in the form that loses no digits where the core thinks for long.
    (2.0 * service * (1.0 + queue) / (half + root)).min(1.0)
}

/// Derivative of that share with respect to the queue.
fn growth(service: f64, think: f64, queue: f64, share: f64) -> f64 {
    let root = service * (2.0 + queue - 2.0 * share) + think;
    // Zero for a core that only accesses memory.
    if root > 0.0 {
        service * (1.0 - share) / root
    } else {
        0.0
    }
}

/// Shares of their time that two cores spend in accesses while no other core makes any.
fn presence_of_two(service: f64, think: [f64; 2]) -> [f64; 2] {
    let [a, c] = think.map(|z| service * (z + 2.0 * service));
    let b = think[0] * think[1] + service * (think[0] + think[1]);
    // The positive root, in the form that loses no digits where the cores think for long.
    let sum = b + (b * b + 4.0 * a * c).sqrt();
    [2.0 * c / sum, 2.0 * a / sum]
}

/// Mean length of an access of each core, in nanoseconds: `residence[i]` for `think[i]`, both in nanoseconds.
///
/// `service` is above 0; think times are at least 0, [`NEVER`] for a core without accesses. The wait of such a core is
/// not computed: it gets the bare service.
pub(crate) fn residence(service: f64, think: &[f64], residence: &mut [f64]) {
    residence.fill(service);
    let mut accessing = think.iter().enumerate().filter(|(_, z)| **z < NEVER);
    match (accessing.next(), accessing.next(), accessing.next()) {
        (Some((i, a)), Some((j, b)), None) => {
            let present = presence_of_two(service, [*a, *b]);
            residence[i] = service * (1.0 + present[1]);
            residence[j] = service * (1.0 + present[0]);
        }
        (Some(_), Some(_), Some(_)) => residence_of_many(service, think, residence),
        _ => {}
    }
}

/// [`residence`] by Newton's iteration, for any number of cores.
fn residence_of_many(service: f64, think: &[f64], residence: &mut [f64]) {
    let accessing = || think.iter().filter(|z| **z < NEVER);
    // No access takes longer than if it were behind all others, so no queue is longer than this.
    let longest = service * accessing().count() as f64;
    let mut queue: f64 = accessing().map(|z| longest / (z + longest)).sum();
    let mut step = 0.0;
    for _ in 0..ITERATIONS_MAX {
        let (mut sum, mut slope) = (0.0, 0.0);
        for (z, share) in think.iter().zip(residence.iter_mut()).filter(|(z, _)| **z < NEVER) {
            // Holds the share until the length of the access is known.
            *share = presence(service, *z, queue);
            sum += *share;
            slope += growth(service, *z, queue, *share);
        }
        step = (sum - queue) / (1.0 - slope);
        if step.abs() <= TOLERANCE * queue {
            break;
        }
        queue += step;
    }
    // The last step is so small that each share follows its tangent; the queue is the sum of the shares.
    for (z, r) in think.iter().zip(residence).filter(|(z, _)| **z < NEVER) {
        let share = *r + growth(service, *z, queue, *r) * step;
        *r = service * (1.0 + (queue + step - share).max(0.0));
    }
}

/// Contention of the cores' accesses at one clock.
#[derive(Clone, Debug)]
pub(crate) struct Contention {
    service: f64,
    residence: Vec<f64>,
}

impl Contention {
    pub(crate) fn new(cores: usize) -> Contention {
        Contention {
            service: f64::NAN,
            residence: vec![f64::NAN; cores],
        }
    }

    /// Sets the service time in nanoseconds, which changes with the clock.
    pub(crate) fn retune(&mut self, service: f64) {
        self.service = service;
    }

    /// Mean length of an access of each core for `think`, in nanoseconds.
    pub(crate) fn residence(&mut self, think: &[f64]) -> &[f64] {
        residence(self.service, think, &mut self.residence);
        &self.residence
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn solve(service: f64, think: &[f64]) -> Vec<f64> {
        let mut found = vec![0.0; think.len()];
        residence(service, think, &mut found);
        found
    }

    /// The largest relative difference between the two sides of the fixed-point equation.
    fn residual(service: f64, think: &[f64], residence: &[f64]) -> f64 {
        let share = |i: usize| residence[i] / (think[i] + residence[i]);
        let cores = 0..think.len();
        let others = |i: usize| -> f64 { cores.clone().filter(|j| *j != i).map(share).sum() };
        let off = |i: usize| (service * (1.0 + others(i)) / residence[i] - 1.0).abs();
        cores.clone().map(off).fold(0.0, f64::max)
    }

    /// The exact answer for two alike cores: R^2 + (Z - 2s) R - s Z = 0.
    fn of_two(service: f64, think: f64) -> f64 {
        let b = think - 2.0 * service;
        (-b + (b * b + 4.0 * service * think).sqrt()) / 2.0
    }

    #[test]
    fn a_core_alone_is_served_at_once() {
        assert_eq!(solve(110.0, &[NEVER, 300.0, NEVER])[1], 110.0);
    }

    #[test]
    fn saturating_cores_share_the_server() {
        for r in solve(50.0, &[0.0; 5]) {
            assert!((r - 250.0).abs() < 1e-6, "{r}");
        }
    }

    proptest! {
        #[test]
        fn two_alike_cores_match_the_closed_form(service in 1.0f64..500.0, think in 0.0f64..5000.0) {
            let expected = of_two(service, think);
            for r in solve(service, &[think, think]) {
                prop_assert!((r - expected).abs() < 1e-6 * expected, "{r} for {expected}");
            }
        }

        #[test]
        fn two_cores_need_no_iteration(
            service in 1.0f64..500.0,
            think in prop::array::uniform2(0.0f64..5000.0),
            idle in 0usize..3,
        ) {
            let mut all = think.to_vec();
            all.insert(idle, NEVER);
            let mut iterated = vec![service; 3];
            residence_of_many(service, &all, &mut iterated);
            for (at_once, iterated) in solve(service, &all).iter().zip(&iterated) {
                prop_assert!((at_once / iterated - 1.0).abs() < 1e-9, "{at_once} and {iterated}");
            }
        }

        #[test]
        fn a_core_that_never_accesses_is_in_no_others_way(
            service in 1.0f64..500.0,
            think in prop::collection::vec(0.0f64..5000.0, 1..6),
            idle in 0usize..6,
        ) {
            let expected = solve(service, &think);
            let mut all = think.clone();
            let at = idle.min(think.len());
            all.insert(at, NEVER);
            let mut found = solve(service, &all);
            prop_assert_eq!(found.remove(at), service);
            for (expected, found) in expected.iter().zip(&found) {
                prop_assert!((expected / found - 1.0).abs() < 1e-9, "{found} for {expected}");
            }
        }

        #[test]
        fn the_solution_solves_the_equation(
            service in 1.0f64..500.0,
            think in prop::collection::vec(0.0f64..5000.0, 1..=crate::CORES_MAX as usize),
        ) {
            let found = solve(service, &think);
            prop_assert!(residual(service, &think, &found) < 1e-9);
        }

        #[test]
        fn more_traffic_never_shortens_an_access(
            service in 1.0f64..500.0,
            think in prop::collection::vec(0.0f64..5000.0, 2..8),
            busier in 0.0f64..1.0,
        ) {
            let before = solve(service, &think);
            let mut more = think.clone();
            more[0] *= busier;
            more.push(1000.0 * busier);
            let after = solve(service, &more);
            for (b, a) in before.iter().zip(&after) {
                prop_assert!(*a >= b * (1.0 - 1e-9), "{b} became {a}");
            }
        }
    }
}
