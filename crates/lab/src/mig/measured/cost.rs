//! Figs. 2 and 7 on this machine: what a move takes, by the size of the state. Labels: `mechanism`, `kib`.

use crate::mig::single;
use crate::migration::{MigrationPlan, measure};
use crate::samples::{Labels, Run, labels as labelled};

/// Sizes of the state, in KiB: even steps, so that a straight line shows.
const KIB: [usize; 8] = [64, 128, 192, 256, 288, 384, 448, 512];
/// What is moved by, the paper's two first.
const MECHANISMS: [&str; 6] = [
    "replica",
    "recreate",
    "affinity",
    "announced",
    "recreate-ahead",
    "control",
];
/// Microseconds of the blackout: its median (`us`), of it reading the state (`copy`), and the 99th percentile.
pub const SERIES: [&str; 3] = ["us", "copy", "p99"];
/// Moves by each mechanism.
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
