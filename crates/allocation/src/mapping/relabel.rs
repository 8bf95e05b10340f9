//! Chooses among like cores so that the fewest stages move.
//!
//! Cores of a domain may be exchanged with each other, and domains that are alike as wholes. Both are assignments of
//! the greatest weight, where the weight of a pair is the number of stages that stay; they are found over subsets, in
//! 2^n n steps for n cores.

use super::model::{CORES_MAX, Configuration, Cores, Mapping};

/// Weight of a pair that must not be assigned; far below any sum of stages.
const NEVER: i32 = -1_000_000;

/// `configuration` with like cores exchanged so that the fewest stages move from `from`.
pub(super) fn relabelled(cores: &Cores, configuration: &Configuration, from: &Mapping) -> Configuration {
    let domains = cores.domains.len();
    let inner = |one: usize, other: usize| within(cores, &configuration.mapping, from, one, other);
    let mut weights = [[NEVER; CORES_MAX]; CORES_MAX];
    for (one, row) in weights.iter_mut().enumerate().take(domains) {
        for (other, weight) in row.iter_mut().enumerate().take(domains) {
            if cores.domains[one] == cores.domains[other] {
                *weight = inner(one, other).0;
            }
        }
    }
    let (_, to) = assign(&weights, domains);
    let mut steps = configuration.steps.clone();
    let mut labels = [0; CORES_MAX];
    for (one, other) in to.iter().copied().enumerate().take(domains) {
        steps[other] = configuration.steps[one];
        let (_, within) = inner(one, other);
        for (core, label) in within.iter().enumerate().take(cores.domains[one].cores) {
            labels[cores.first(one) + core] = cores.first(other) + label;
        }
    }
    Configuration {
        mapping: Mapping::of(configuration.mapping.cores().map(|core| labels[core])),
        steps,
    }
}

/// How the cores of domain `one` are best named as those of `other`: stages that stay, and the name of each core.
fn within(cores: &Cores, mapping: &Mapping, from: &Mapping, one: usize, other: usize) -> (i32, [usize; CORES_MAX]) {
    let (first, there, count) = (cores.first(one), cores.first(other), cores.domains[one].cores);
    let mut weights = [[0; CORES_MAX]; CORES_MAX];
    for (core, before) in mapping.cores().zip(from.cores()) {
        if !(first..first + count).contains(&core) {
            continue;
        }
        if (there..there + count).contains(&before) {
            weights[core - first][before - there] += 1;
        }
    }
    assign(&weights, count)
}

/// The assignment of the greatest weight: its weight, and the column of each row.
fn assign(weights: &[[i32; CORES_MAX]; CORES_MAX], count: usize) -> (i32, [usize; CORES_MAX]) {
    // For each set of n columns: the greatest weight of the first n rows assigned to them, and the column of the last
    // row.
    let mut best = [(i32::MIN, 0); 1 << CORES_MAX];
    best[0].0 = 0;
    for set in 1usize..1 << count {
        let row = &weights[set.count_ones() as usize - 1];
        let columns = (0..count).filter(|column| set & 1 << column != 0);
        let options = columns.map(|column| (best[set & !(1 << column)].0.saturating_add(row[column]), column));
        // Of equal ones the first column.
        best[set] = options
            .reduce(|best, next| if next.0 > best.0 { next } else { best })
            .unwrap_or_default();
    }
    let mut columns = [0; CORES_MAX];
    let mut set = (1 << count) - 1;
    for row in (0..count).rev() {
        columns[row] = best[set].1;
        set &= !(1 << columns[row]);
    }
    (best[(1 << count) - 1].0, columns)
}
