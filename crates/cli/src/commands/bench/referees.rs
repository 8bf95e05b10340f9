//! `punctual bench referees`: tools that we did not write, outside and inside of the protection.

use std::fmt::Write;

use punctual_runtime::linux::movie::MovieError;
use punctual_runtime::linux::referees::{Hearing, Referee, hear, present};
use serde::Serialize;

use super::super::print;
use super::columns::columns;
use super::series::{Interrupt, tell};
use crate::args::Referees;
use crate::failure::Failure;
use crate::output::Output;

/// What is written for programs.
#[derive(Debug, Serialize)]
struct Written {
    seconds: u32,
    hogs_per_core: u32,
    runs: Vec<Hearing>,
}

/// Carries out `punctual bench referees`.
pub fn referees(arguments: &Referees) -> Result<(), Failure> {
    let output = Output::prepare_some(arguments.json.as_ref())?;
    let refused = |refusal: punctual_platform::Refusal| Failure::input([refusal.to_string()]);
    for referee in Referee::ALL {
        present(referee).map_err(refused)?;
    }
    let interrupt = Interrupt::listen()?;
    let Referees {
        repetitions,
        seconds,
        hogs,
        ..
    } = *arguments;
    let heard = hear(&Referee::ALL, repetitions, seconds, hogs, &mut |what| {
        tell(what);
        interrupt.answer()
    });
    let runs = heard.map_err(|error: MovieError| Failure::input([error.to_string()]))?;
    print(&told(&runs))?;
    let written = Written {
        seconds,
        hogs_per_core: hogs,
        runs,
    };
    output.map_or(Ok(()), |file| file.json(&written))
}

fn told(runs: &[Hearing]) -> String {
    let mut rows = vec![
        ["", "repetition", "min", "average", "p99", "max"]
            .map(String::from)
            .to_vec(),
    ];
    for referee in Referee::ALL {
        for protected in [false, true] {
            for run in runs
                .iter()
                .filter(|run| run.referee == referee && run.protected == protected)
            {
                let us = |figure: f64| format!("{figure:.0} us");
                let verdict = run.verdict;
                rows.push(vec![
                    format!("{} {}", referee.program(), if protected { "inside" } else { "outside" }),
                    (run.repetition + 1).to_string(),
                    us(verdict.min_us),
                    us(verdict.average_us),
                    verdict.p99_us.map_or("-".into(), us),
                    us(verdict.max_us),
                ]);
            }
        }
    }
    let mut text = columns(&rows);
    if let Some(obtained) = runs.iter().find_map(|run| run.protection.as_ref()) {
        let _ = writeln!(text, "\ninside: {obtained}");
    }
    text.push_str("outside: the same core and the same hogs, nobody moved\n");
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use punctual_runtime::linux::referees::Verdict;

    #[test]
    fn outside_and_inside_stand_under_each_other() {
        let run = |protected, max_us| Hearing {
            referee: Referee::Cyclictest,
            repetition: 0,
            protected,
            verdict: Verdict {
                min_us: 3.0,
                average_us: 10.0,
                p99_us: None,
                max_us,
            },
            protection: protected.then(|| "core 1 kept".into()),
        };
        let text = told(&[run(false, 900.0), run(true, 90.0)]);
        let lines: Vec<&str> = text.lines().collect();
        assert!(
            lines[1].starts_with("cyclictest outside") && lines[1].ends_with("900 us"),
            "{text}"
        );
        assert!(
            lines[2].starts_with("cyclictest inside") && lines[2].ends_with("90 us"),
            "{text}"
        );
        assert!(text.contains("inside: core 1 kept"));
    }
}
