//! `punctual-lab bench migration`: cost of moving a stage to another core.

use std::fmt::Write;

use punctual_evaluation::migration::{Micros, MigrationPlan, Row, measure, serve_if_told};

use super::series::tell;
use crate::args::Migration;
use punctual_cli::commands::print;
use punctual_files::failure::Failure;
use punctual_report::output::OutputFile;

/// Carries out `punctual-lab bench migration`.
pub fn migration(arguments: &Migration) -> Result<(), Failure> {
    let failed = |why: punctual_evaluation::migration::MigrationError| Failure::of(why);
    // First of all: the processes of the measured pipelines run this command again.
    serve_if_told().map_err(failed)?;
    let json = OutputFile::report(arguments.json.as_ref())?;
    let plan = MigrationPlan {
        states: arguments.states.iter().map(|bytes| *bytes as usize).collect(),
        moves: arguments.moves,
    };
    let rows = measure(&plan, &mut |what| tell(what)).map_err(failed)?;
    let text = told(&rows);
    match arguments.json.as_deref() == Some(std::path::Path::new("-")) {
        true => eprint!("{text}"),
        false => print(&text)?,
    }
    json.map_or(Ok(()), |file| file.json(&rows))
}

fn told(rows: &[Row]) -> String {
    let mut text = String::from(
        "microseconds; blackout: no process could carry out steps, from the old one's yield until the new one had read \
         the state\n\n",
    );
    let _ = writeln!(
        text,
        "{:>9} {:<15} {:>5} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9}",
        "state", "mechanism", "n", "blackout", "p99", "max", "lead", "freeze", "wake", "copy"
    );
    for row in rows {
        let Micros { p50, p99, max } = row.blackout_us;
        let median = |micros: Micros| micros.p50;
        let _ = writeln!(
            text,
            "{:>9} {:<15} {:>5} {p50:>9.1} {p99:>9.1} {max:>9.1} {:>9.1} {:>9.1} {:>9.1} {:>9.1}",
            row.state_bytes,
            row.mechanism,
            row.n,
            median(row.lead_us),
            median(row.freeze_us),
            median(row.wake_us),
            median(row.copy_us),
        );
    }
    text
}
