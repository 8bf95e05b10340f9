//! A calibration for people: figures, parameters, predictions, contradictions; and the head of a machine file.

use std::fmt::Write;

use punctual_lab::calibrate::{
    ALONE, Calibration, Kind, MemberResult, Parameter, Prediction, Quantity, Sensitivity, Target, Tension,
};

use crate::columns::columns;

/// Everything that the command prints.
pub fn all(result: &Calibration) -> String {
    let setting = &result.setting;
    format!(
        "\nsimulated, on {}: seed {}, {} jobs a figure, {} candidates a machine\n\n{}\n{}\n{}\n{}\n{}",
        setting.base,
        setting.seed,
        setting.jobs,
        setting.evaluations_max,
        figures(result),
        parameters(result),
        predictions(result),
        sensitivities(result),
        tensions(result),
    )
}

type Rows = Vec<Vec<String>>;

/// `first` and one column for each machine.
fn heading(first: &[&str], result: &Calibration) -> Vec<String> {
    let names = result.members.iter().map(|member| member.name.clone());
    first.iter().map(|cell| cell.to_string()).chain(names).collect()
}

/// Each figure: the paper's, and each machine's with its residual.
fn figures(result: &Calibration) -> String {
    let mut rows: Rows = vec![heading(&["figure over the deadline", "paper"], result)];
    for (i, target) in result.targets.figures.iter().enumerate() {
        let mut row = vec![named(target), paper(target)];
        row.extend(result.members.iter().map(|member| {
            let figure = &member.figures[i];
            format!("{:.3} {:>+4.0} %", figure.ours, 100.0 * figure.residual)
        }));
        rows.push(row);
    }
    let mut row = vec!["rms of the residuals".to_string(), String::new()];
    row.extend(
        result
            .members
            .iter()
            .map(|member| format!("{:.1} %", 100.0 * member.rms)),
    );
    rows.push(row);
    columns(&rows)
}

fn named(target: &Target) -> String {
    let quantity = match target.quantity {
        Quantity::Data => "d",
        Quantity::Response => "r",
    };
    let mut name = format!("{quantity} {} MHz, {}", target.clock_mhz, beside(target.interferers));
    if target.qod < 1.0 {
        let _ = write!(name, ", QoD {}", target.qod);
    }
    name
}

fn beside(interferers: u32) -> String {
    match interferers {
        0 => "alone".into(),
        1 => "1 core".into(),
        cores => format!("{cores} cores"),
    }
}

fn paper(target: &Target) -> String {
    match target.kind {
        Kind::Equals => format!("{:.2}", target.value),
        Kind::Above => format!("> {:.2}", target.value),
    }
}

/// Each parameter: `=` where it is pinned, `|` where it came to lie at an end of its range.
fn parameters(result: &Calibration) -> String {
    let mut rows: Rows = vec![heading(&["parameter (= pinned, | at its bound)"], result)];
    for parameter in Parameter::ALL {
        let description = parameter.description();
        let mut row = vec![format!("{}, {}", description.name, description.unit)];
        row.extend(result.members.iter().map(|member| {
            let mark = if member.pinned.contains(&parameter) {
                "="
            } else if member.at_bound.contains(&parameter) {
                "|"
            } else {
                ""
            };
            format!("{mark}{}", digits(member.parameters[description.name]))
        }));
        rows.push(row);
    }
    columns(&rows)
}

/// Three significant digits.
fn digits(value: f64) -> String {
    let decimals = (2 - value.abs().max(1e-3).log10().floor() as i32).max(0) as usize;
    format!("{value:.decimals$}")
}

/// What each machine predicts for the evaluation: the clock's rise, and drr there.
fn predictions(result: &Calibration) -> String {
    let first = format!(
        "predicted: clock to meet the deadline (alone: {} MHz), drr",
        ALONE.as_mhz_f64()
    );
    let mut rows: Rows = vec![heading(&[&first], result)];
    let situations = result.members.first().map_or(&[][..], |member| &member.predictions);
    for (i, Prediction { situation, .. }) in situations.iter().enumerate() {
        let mut row = vec![situation.name.to_string()];
        row.extend(result.members.iter().map(|member| predicted(&member.predictions[i])));
        rows.push(row);
    }
    columns(&rows)
}

fn predicted(prediction: &Prediction) -> String {
    match prediction.rise.zip(prediction.drr) {
        Some((rise, drr)) => format!("{:>+3.0} %  {drr:.2}", 100.0 * rise),
        None => "too slow".into(),
    }
}

/// Which open question moves which prediction, in points.
fn sensitivities(result: &Calibration) -> String {
    let names = result
        .sensitivities
        .iter()
        .map(|s| format!("{} - {}", s.between[1], s.between[0]));
    let mut rows: Rows = vec![
        std::iter::once("what a question decides: clock in points, drr".to_string())
            .chain(names)
            .collect(),
    ];
    let situations = result.members.first().map_or(&[][..], |member| &member.predictions);
    for (i, Prediction { situation, .. }) in situations.iter().enumerate() {
        let mut row = vec![situation.name.to_string()];
        row.extend(result.sensitivities.iter().map(|sensitivity| moved(sensitivity, i)));
        rows.push(row);
    }
    let mut text = columns(&rows);
    for sensitivity in &result.sensitivities {
        let [first, second] = &sensitivity.between;
        let _ = writeln!(text, "{second} against {first}: {}", sensitivity.question.words());
    }
    text
}

fn moved(sensitivity: &Sensitivity, situation: usize) -> String {
    match sensitivity.rise[situation].zip(sensitivity.drr[situation]) {
        Some((rise, drr)) => format!("{:>+3.0}  {drr:+.2}", 100.0 * rise),
        None => "-".into(),
    }
}

/// Where the figures contradict each other, in sentences.
fn tensions(result: &Calibration) -> String {
    let mut text = String::from("contradictions among the figures, whatever the machine\n");
    for tension in &result.tensions {
        let _ = writeln!(text, "- {}", sentence(tension));
    }
    text
}

fn sentence(tension: &Tension) -> String {
    match tension {
        Tension::Computation {
            clock_mhz,
            implied,
            best,
            floor_rms,
        } => {
            let implied: Vec<String> = implied
                .iter()
                .map(|(cores, c)| {
                    format!(
                        "{c:.2} {}",
                        if *cores == 0 {
                            "alone".into()
                        } else {
                            format!("beside {}", beside(*cores))
                        }
                    )
                })
                .collect();
            format!(
                "{clock_mhz} MHz: c = r - d is {}; one c for all of them, at best {best:.3}, leaves {:.1} % rms over all figures",
                implied.join(", "),
                100.0 * floor_rms
            )
        }
        Tension::Growth {
            quantity,
            interferers,
            clocks_mhz: (slow, fast),
            clock_ratio,
            time_ratio,
        } => {
            let quantity = match quantity {
                Quantity::Data => "d",
                Quantity::Response => "r",
            };
            let verdict = if time_ratio > clock_ratio {
                "more than any fixed work: what is met on the way must grow too"
            } else {
                "no more than the clock"
            };
            format!(
                "{quantity} {}: from {fast} to {slow} MHz the clock is {clock_ratio:.2} times slower, the time {time_ratio:.2} times longer: {verdict}",
                beside(*interferers)
            )
        }
        Tension::Updates {
            clock_mhz,
            interferers,
            share,
            gets,
        } => format!(
            "d {clock_mhz} MHz, {}: if d is a line in QoD, updates are {:.0} % of it, and {gets:.2} remains for gets",
            beside(*interferers),
            100.0 * share
        ),
    }
}

/// The head of a machine file: comments that say how it was made and how near it is.
pub fn head(result: &Calibration, member: &MemberResult, command_line: &str) -> String {
    let pinned: Vec<String> = member
        .pinned
        .iter()
        .map(|parameter| {
            let description = parameter.description();
            let value = member.parameters[description.name];
            format!("{} = {} {}", description.name, digits(value), description.unit)
        })
        .collect();
    format!(
        "\
# A machine of the calibrated ensemble; docs/calibration.md says what it is good for. Written by a command: do not edit.
#
# made by    {command_line}
# supposes   {}
# pinned     {}
# residual   {:.1} % rms over {} figures of the paper's microbenchmarks (simulated)
# its job    {} ms of computation and {} ms of data, alone at the highest clock
",
        member.about,
        pinned.join(", "),
        100.0 * member.rms,
        result.targets.figures.len(),
        digits(member.job.compute_ms),
        digits(member.job.data_ms),
    )
}
