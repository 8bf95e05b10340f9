//! Identification and control without MATLAB: excite a system, fit a model, design a law, close the loop.
//!
//! The system here is a formula; `punctual model learn` does the same with a running store.

use punctual::control::{Excitation, Knob, LqrPi, OperatingPoint, Orders, Recording, Weights, design, identify};

/// Tardiness and data response ratio of an imaginary job, against clock and admitted share of updates.
fn system(y: [f64; 2], clock: f64, admitted: f64) -> [f64; 2] {
    [
        0.3 * y[0] + 1.3 - 1.1 * clock + 0.5 * admitted,
        0.2 * y[1] + 0.35 + 0.25 * admitted,
    ]
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // Knobs in relatively prime cycles: every combination of levels occurs.
    let excitation = Excitation::covering(vec![vec![0.7, 0.85, 1.0], vec![0.5, 0.75, 1.0]], 2)?;
    let (mut y, mut record) = ([0.9, 0.6], (Vec::new(), Vec::new()));
    for u in (0..excitation.period()).map(|k| excitation.at(k)) {
        record.0.push(y.to_vec());
        record.1.push(u.clone());
        y = system(y, u[0], u[1]);
    }
    let names = |names: [&str; 2]| names.map(String::from).to_vec();
    let record = Recording {
        outputs: names(["tardiness", "drr"]),
        inputs: names(["clock", "admitted"]),
        y: record.0,
        u: record.1,
    };
    let model = identify(&record, Orders::FIRST, &OperatingPoint::Mean)?;
    println!("A ={:.3}B ={:.3}", model.a()[0], model.b()[0]);
    println!("R^2 = {:.3?}", model.fit().map(|fit| &fit.r2));

    let weights = Weights {
        error: vec![1.0, 0.1],
        accumulated: vec![0.1, 0.01],
        effort: vec![1.0, 1.0],
    };
    let design = design(&model, &weights)?;
    println!("closed loop: {:?}", design.verdict);

    let mut law = LqrPi::new(&design, vec![Knob::new(0.2, 1.0, 0.0)?, Knob::new(0.0, 1.0, 0.0)?])?;
    for k in 0..60 {
        let u = law.step(&y, &[0.85, 0.62])?.to_vec();
        if k % 10 == 0 {
            println!(
                "k {k:2}: tardiness {:.3}, drr {:.3}, clock {:.2}, admitted {:.2}",
                y[0], y[1], u[0], u[1]
            );
        }
        y = system(y, u[0], u[1]);
    }
    println!("end : tardiness {:.3}, drr {:.3}", y[0], y[1]);
    Ok(())
}
