//! `punctual-lab bench referees`: independent tools, outside and inside of the protection.

use punctual_evaluation::beside::BesideError;
use punctual_evaluation::referees::{Referee, RefereeRun, hear, present};
use serde::Serialize;

use super::series::{Interrupt, tell};
use crate::args::Referees;
use crate::page;
use crate::referees::told;
use punctual_cli::commands::print;
use punctual_files::failure::Failure;
use punctual_report::output::{OutputFile, apart};

/// The JSON output of the bench.
#[derive(Debug, Serialize)]
struct RefereesDocument {
    seconds: u32,
    hogs_per_core: u32,
    runs: Vec<RefereeRun>,
    /// Missing tools, and how to install them.
    absent: Vec<String>,
}

/// Carries out `punctual-lab bench referees`.
pub fn referees(arguments: &Referees, command: &str) -> Result<(), Failure> {
    let [json, html] = [&arguments.json, &arguments.html];
    apart(&[("--json", json.as_deref()), ("--html", html.as_deref())])?;
    let [json, html] = [OutputFile::report(json.as_ref())?, OutputFile::page(html.as_ref())?];
    let (mut there, mut absent) = (Vec::new(), Vec::new());
    for referee in Referee::ALL {
        match present(referee) {
            Ok(()) => there.push(referee),
            Err(refusal) => absent.push(refusal.to_string()),
        }
    }
    if there.is_empty() {
        return Err(Failure::input(absent));
    }
    let interrupt = Interrupt::listen()?;
    let Referees {
        repetitions,
        duration,
        hogs,
        ..
    } = *arguments;
    // The programs take whole seconds.
    let seconds = duration.as_secs_f64().round() as u32;
    let heard = hear(&there, repetitions, seconds, hogs, &mut |what| {
        tell(what);
        interrupt.answer()
    });
    let runs = heard.map_err(|error: BesideError| Failure::of(error))?;
    print(&told(&runs, &absent))?;
    let written = RefereesDocument {
        seconds,
        hogs_per_core: hogs,
        runs,
        absent,
    };
    json.map_or(Ok(()), |file| file.json(&written))?;
    let RefereesDocument { runs, absent, .. } = &written;
    let setting = format!("each {repetitions} times for {seconds} s outside and inside, {hogs} hogs on each core");
    html.map_or(Ok(()), |file| {
        file.text(&page::referees(runs, absent, &setting, command))
    })
}
