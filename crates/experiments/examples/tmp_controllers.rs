use punctual_experiments::{claims::Claims, *};
fn main() {
    let seeds: u32 = std::env::args().nth(1).and_then(|s| s.parse().ok()).unwrap_or(3);
    let experiment = find("controllers").unwrap();
    let [claims, reasons] = experiment.shipped();
    let settings = Settings {
        machines: qedb::ensemble(),
        seed: 1,
        seeds,
        claims: Claims::parse(claims).unwrap(),
        reasons: toml::from_str(reasons).unwrap(),
        workers: None,
    };
    let begun = std::time::Instant::now();
    let outcome = (experiment.run)(&settings, &|_| ()).unwrap();
    println!("took {:?}", begun.elapsed());
    for (labels, series) in &outcome.means {
        if labels["case"] == "front" {
            continue;
        }
        let row: Vec<String> = series
            .iter()
            .map(|(n, s)| format!("{n} {:.3} [{:.3} {:.3}]", s.median, s.low, s.high))
            .collect();
        println!(
            "{} {} {}: {}",
            labels["disturbance"],
            labels["case"],
            labels["law"],
            row.join("  ")
        );
    }
    for c in &outcome.claims {
        println!(
            "{} {:?} <= {:?} holds {} {:?}",
            c.id, c.ours, c.paper, c.holds, c.missing
        );
    }
    for f in outcome.failures.iter().take(10) {
        println!("{f}");
    }
    for f in &outcome.figures {
        if let Chart::Curves { curves, .. } = &f.chart {
            for c in curves {
                println!("{} {:?}", c.name, c.points);
            }
        }
    }
}
