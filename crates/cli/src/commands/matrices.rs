//! Models and controllers as text: matrices with named rows and columns.

use std::fmt::Write;

use punctual_control::{ArxModel, DMatrix, Design, R2_ACCEPTED, SETTLED, Stability};
use punctual_workload::Pace;

/// A model's matrices, operating point and fit.
pub fn model(model: &ArxModel) -> String {
    let mut text = String::new();
    for (name, matrices, columns) in [("A", model.a(), model.outputs()), ("B", model.b(), model.inputs())] {
        for (i, matrix) in matrices.iter().enumerate() {
            // A single lag needs no number.
            let name = if matrices.len() == 1 {
                name.to_string()
            } else {
                format!("{name}_{}", i + 1)
            };
            text += &named(&name, matrix, model.outputs(), columns);
        }
    }
    let point = |names: &[String], values: &[f64]| {
        let pairs: Vec<String> = names
            .iter()
            .zip(values)
            .map(|(name, value)| format!("{name} {value:.3}"))
            .collect();
        pairs.join(", ")
    };
    let (around, at) = (point(model.outputs(), model.y0()), point(model.inputs(), model.u0()));
    let _ = writeln!(text, "  around {around} at {at}");
    if let Some(fit) = model.fit() {
        for (output, r2) in model.outputs().iter().zip(&fit.r2) {
            let verdict = if *r2 >= R2_ACCEPTED { "accepted" } else { "too low" };
            let _ = writeln!(text, "  R^2 of {output}: {r2:.3}, {verdict} (at least {R2_ACCEPTED})");
        }
        let _ = writeln!(text, "  from {} samples", fit.samples);
    }
    text
}

/// Gains, poles, residual and verdict of a controller, for a loop of this pace.
pub fn controller(design: &Design, pace: Pace) -> String {
    let mut text = named("K_P", &design.kp, &design.inputs, &design.outputs);
    text += &named("K_I", &design.ki, &design.inputs, &design.outputs);
    let poles: Vec<String> = design.poles.iter().map(|pole| pole.to_string()).collect();
    let _ = writeln!(text, "  poles     {}", poles.join(", "));
    let (residual, verdict) = (design.residual, design.verdict);
    let _ = writeln!(text, "  residual  {residual:.1e} of the Riccati equation, relative");
    let _ = writeln!(text, "  verdict   {verdict}{}", settling(verdict, pace));
    for pinned in &design.pinned {
        let (knobs, verdict) = (pinned.knobs.join(" and "), pinned.verdict);
        let _ = writeln!(text, "            with {knobs} at a limit: {verdict}");
    }
    text
}

/// Time of the slowest mode; empty for a loop that never settles.
fn settling(verdict: Stability, pace: Pace) -> String {
    let Some(samples) = verdict.settling_samples() else {
        return String::new();
    };
    let time = match pace {
        Pace::Period(period) => period.scaled(samples).to_string(),
        Pace::Job => format!("{samples:.1} jobs"),
    };
    format!("; the slowest mode settles in {time} (to {:.0} %)", SETTLED * 100.0)
}

fn named(name: &str, matrix: &DMatrix<f64>, rows: &[String], columns: &[String]) -> String {
    let mut text = format!("  {name:<10}");
    for column in columns {
        let _ = write!(text, "{column:>12}");
    }
    text.push('\n');
    for (row, values) in rows.iter().zip(matrix.row_iter()) {
        let _ = write!(text, "  {row:<10}");
        for value in values.iter() {
            let _ = write!(text, "{value:>12.4}");
        }
        text.push('\n');
    }
    text
}
