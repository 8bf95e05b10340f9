//! Figs. 2 and 7 on this machine: the time of a move by the size of the state. Labels: `mechanism`, `kib`.

use crate::mig::single;
use crate::migration::{MigrationPlan, measure};
use crate::samples::{Labels, Run, labels as labelled};

/// Sizes of the state, in KiB, in even steps, so that a linear relation shows as a straight line.
const KIB: [usize; 8] = [64, 128, 192, 256, 288, 384, 448, 512];
/// Mechanisms of migration, the paper's two first.
const MECHANISMS: [&str; 6] = [
    "replica",
    "recreate",
    "affinity",
    "announced",
    "recreate-ahead",
    "control",
];
/// Microseconds: the blackout's median (`us`), the part of it that reads the state (`copy`), and the blackout's 99th
/// percentile (`p99`).
pub const SERIES: [&str; 3] = ["us", "copy", "p99"];
/// Number of moves by each mechanism.
const MOVES: u32 = 40;

fn labels_of(mechanism: &str, kib: usize) -> Labels {
    labelled([("mechanism", mechanism), ("kib", &kib.to_string())])
}

pub fn labels() -> Vec<Labels> {
    let of_size = |kib| MECHANISMS.map(|mechanism| labels_of(mechanism, kib));
    KIB.into_iter().flat_map(of_size).collect()
}

pub fn runs(tell: &dyn Fn(&str)) -> Vec<Result<Run, String>> {
    KIB.into_iter().flat_map(|kib| of_size(kib, tell)).collect()
}

fn of_size(kib: usize, tell: &dyn Fn(&str)) -> Vec<Result<Run, String>> {
    let plan = MigrationPlan {
        states: vec![kib * 1024],
        moves: MOVES,
    };
    let rows = match measure(&plan, &mut |what| tell(what)) {
        Ok(rows) => rows,
        Err(why) => return vec![Err(format!("{kib} KiB: {why}"))],
    };
    let run = |row: crate::migration::Row| {
        let values = [
            ("us", row.blackout_us.p50),
            ("copy", row.copy_us.p50),
            ("p99", row.blackout_us.p99),
        ];
        Ok(single(labels_of(row.mechanism, kib), values))
    };
    rows.into_iter().map(run).collect()
}
