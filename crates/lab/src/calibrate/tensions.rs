//! Where the figures contradict each other, or the text around them: from the figures alone, whatever the machine.

use serde::Serialize;

use super::targets::{Kind, Quantity, Target, Targets, rms};

/// A contradiction, or how close the figures come to one.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case", rename_all_fields = "kebab-case", tag = "kind")]
pub enum Tension {
    /// At one clock, computation c = r - d should be the same whoever interferes.
    Computation {
        /// The clock.
        clock_mhz: u64,
        /// Interfering cores, and the c that the figures leave.
        implied: Vec<(u32, f64)>,
        /// The one c that fits all of them best.
        best: f64,
        /// The root mean square over *all* figures that is left then, even if everything else fits exactly.
        floor_rms: f64,
    },
    /// Work takes at most as many times longer as the clock is slower, unless what interferes with it grows too.
    Growth {
        /// Which time.
        quantity: Quantity,
        /// Interfering cores.
        interferers: u32,
        /// The two clocks, the slower first.
        clocks_mhz: (u64, u64),
        /// How many times slower the clock is.
        clock_ratio: f64,
        /// How many times longer the time is.
        time_ratio: f64,
    },
    /// With d = G + U qod, what the updates' part U qod of d is at the higher QoD, and what G remains for gets.
    Updates {
        /// The clock.
        clock_mhz: u64,
        /// Interfering cores.
        interferers: u32,
        /// U qod / d.
        share: f64,
        /// G.
        gets: f64,
    },
}

/// All of them, in the order of the figures.
pub fn tensions(targets: &Targets) -> Vec<Tension> {
    let figures = exact(targets);
    let mut found: Vec<Tension> = Vec::new();
    let mut clocks: Vec<u64> = Vec::new();
    for target in &figures {
        if !clocks.contains(&target.clock_mhz) {
            clocks.push(target.clock_mhz);
        }
    }
    found.extend(clocks.iter().filter_map(|clock| computation(targets, *clock)));
    for (i, a) in figures.iter().enumerate() {
        for b in &figures[i + 1..] {
            found.extend(growth(a, b).or_else(|| updates(a, b)));
        }
    }
    found
}

fn exact(targets: &Targets) -> Vec<&Target> {
    let equals = |target: &&Target| target.kind == Kind::Equals;
    targets.figures.iter().filter(equals).collect()
}

/// For given c, a pair (D, R) is met best by a data time d that shares the relative errors (d - D)/D and (d + c - R)/R
/// between them: the least sum of their squares is (R - D - c)^2 / (D^2 + R^2). So the best c is a weighted mean.
fn computation(targets: &Targets, clock_mhz: u64) -> Option<Tension> {
    let figures = exact(targets);
    let of = |quantity| move |t: &&&Target| t.clock_mhz == clock_mhz && t.quantity == quantity;
    let pairs: Vec<(u32, f64, f64)> = figures
        .iter()
        .filter(of(Quantity::Data))
        .filter_map(|d| {
            let mut responses = figures.iter().filter(of(Quantity::Response));
            let r = responses.find(|r| r.condition() == d.condition())?;
            Some((d.interferers, d.value, r.value))
        })
        .collect();
    if pairs.len() < 2 {
        return None;
    }
    let weight = |d: f64, r: f64| 1.0 / (d * d + r * r);
    let weights: f64 = pairs.iter().map(|(_, d, r)| weight(*d, *r)).sum();
    let best = pairs.iter().map(|(_, d, r)| weight(*d, *r) * (r - d)).sum::<f64>() / weights;
    let least = pairs.iter().map(|(_, d, r)| (r - d - best) * weight(*d, *r).sqrt());
    let others = std::iter::repeat_n(0.0, targets.figures.len() - pairs.len());
    Some(Tension::Computation {
        clock_mhz,
        implied: pairs.iter().map(|(cores, d, r)| (*cores, r - d)).collect(),
        best,
        floor_rms: rms(least.chain(others)),
    })
}

fn growth(a: &Target, b: &Target) -> Option<Tension> {
    let alike = a.quantity == b.quantity && a.interferers == b.interferers && a.qod == b.qod;
    if !alike || a.clock_mhz == b.clock_mhz {
        return None;
    }
    let (slow, fast) = if a.clock_mhz < b.clock_mhz { (a, b) } else { (b, a) };
    Some(Tension::Growth {
        quantity: a.quantity,
        interferers: a.interferers,
        clocks_mhz: (slow.clock_mhz, fast.clock_mhz),
        clock_ratio: fast.clock_mhz as f64 / slow.clock_mhz as f64,
        time_ratio: slow.value / fast.value,
    })
}

fn updates(a: &Target, b: &Target) -> Option<Tension> {
    let data = a.quantity == Quantity::Data && b.quantity == Quantity::Data;
    if !data || a.interferers != b.interferers || a.clock_mhz != b.clock_mhz || a.qod == b.qod {
        return None;
    }
    let (less, more) = if a.qod < b.qod { (a, b) } else { (b, a) };
    let updates = (more.value - less.value) / (more.qod - less.qod) * more.qod;
    Some(Tension::Updates {
        clock_mhz: a.clock_mhz,
        interferers: a.interferers,
        share: updates / more.value,
        gets: more.value - updates,
    })
}

#[cfg(test)]
mod tests {
    use super::super::search::{EDGE, minimise};
    use super::super::targets::tests::example;
    use super::*;

    fn target(quantity: Quantity, clock_mhz: u64, interferers: u32, qod: f64, value: f64) -> Target {
        Target {
            id: format!("{quantity:?}-{clock_mhz}-{interferers}-{qod}"),
            quantity,
            clock_mhz,
            interferers,
            qod,
            value,
            ..example().figures[0].clone()
        }
    }

    fn of(figures: Vec<Target>) -> Vec<Tension> {
        tensions(&Targets { figures, ..example() })
    }

    #[test]
    fn figures_that_agree_leave_nothing() {
        let figures = vec![
            target(Quantity::Data, 2000, 0, 1.0, 0.1),
            target(Quantity::Response, 2000, 0, 1.0, 0.3),
            target(Quantity::Data, 2000, 1, 1.0, 0.2),
            target(Quantity::Response, 2000, 1, 1.0, 0.4),
        ];
        let [Tension::Computation { best, floor_rms, .. }] = &of(figures)[..] else {
            panic!("one tension")
        };
        assert!((best - 0.2).abs() < 1e-12 && *floor_rms < 1e-12);
    }

    #[test]
    fn the_best_computation_is_the_one_that_a_search_finds() {
        let (d, r) = ([0.05, 0.16, 0.23], [0.21, 0.36, 0.42]);
        let figures = (0..3).flat_map(|i| {
            let cores = i as u32;
            let data = target(Quantity::Data, 2000, cores, 1.0, d[i]);
            [data, target(Quantity::Response, 2000, cores, 1.0, r[i])]
        });
        let [Tension::Computation { best, floor_rms, .. }] = &of(figures.collect())[..] else {
            panic!("one tension")
        };
        // c and the three data times, each up to 0.5.
        let misfit = |at: &[f64]| {
            let errors = (0..3).flat_map(|i| {
                let (c, data) = (at[0] / 2.0, at[1 + i] / 2.0);
                [data / d[i] - 1.0, (data + c) / r[i] - 1.0]
            });
            errors.map(|error| error * error).sum()
        };
        let found = minimise(misfit, &[0.5; 4], EDGE, 10_000);
        assert!((found.at[0] / 2.0 - best).abs() < 1e-3, "{found:?} and {best}");
        assert!(
            ((found.value / 6.0).sqrt() - floor_rms).abs() < 1e-5,
            "{found:?} and {floor_rms}"
        );
    }

    #[test]
    fn slower_clocks_and_fewer_updates_are_compared() {
        let figures = vec![
            target(Quantity::Data, 2000, 3, 1.0, 0.25),
            target(Quantity::Data, 1000, 3, 1.0, 0.5),
            target(Quantity::Data, 1000, 3, 0.5, 0.3),
        ];
        let found = of(figures);
        let [
            Tension::Growth {
                clock_ratio,
                time_ratio,
                ..
            },
            Tension::Updates { share, gets, .. },
        ] = &found[..]
        else {
            panic!("{found:?}")
        };
        assert_eq!((*clock_ratio, *time_ratio), (2.0, 2.0));
        assert!((share - 0.8).abs() < 1e-12 && (gets - 0.1).abs() < 1e-12);
    }
}
