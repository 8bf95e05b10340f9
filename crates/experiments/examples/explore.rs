use punctual_experiments::dna::{carry::Set, profiles, variant::Variant, measured::mean};
fn main() {
    let args: Vec<String> = std::env::args().collect();
    let n: usize = args[2].parse().unwrap();
    let utils: Vec<f64> = args[3].split(',').map(|x| x.parse().unwrap()).collect();
    let sets = if args[1] == "measured" {
        let dir = "/work/shared/data/dna-profiles";
        let files: Vec<(String, Vec<u8>)> = ["canneal.csv","fft.csv","freqmine.csv"].iter().map(|f| (f.to_string(), std::fs::read(format!("{dir}/{f}")).unwrap())).collect();
        let files: Vec<(&str,&[u8])> = files.iter().map(|(a,b)|(a.as_str(), b.as_slice())).collect();
        profiles::read(&files).unwrap()
    } else { profiles::shipped().unwrap() };
    let set = sets.iter().find(|s| s.name == args[1]).unwrap();
    for p in &set.profiles { println!("{} {} phases, {:.3} s", p.name, p.phases.len(), p.duration(p.grid.all())); }
    let prepared = profiles::Prepared::new(set).unwrap();
    for u in utils {
        let begun = std::time::Instant::now();
        let results: Vec<_> = (0..n).map(|number| Set { prepared: &prepared, utilisation: u, number, seed: 1 }.carry_out()).collect();
        println!("util {u}: even {:.2}, {:.2} s, failures {:?}", results.iter().map(|r| r.even_utilisation).sum::<f64>()/n as f64, begun.elapsed().as_secs_f64(), results.iter().flat_map(|r| r.failures.clone()).take(2).collect::<Vec<_>>());
        for v in Variant::all() {
            let m: Vec<_> = results.iter().filter_map(|r| r.of(v)).collect();
            if m.is_empty() { continue }
            let avg = |f: &dyn Fn(&punctual_experiments::dna::measured::Measured) -> f64| m.iter().map(|m| f(m)).sum::<f64>() / m.len() as f64;
            println!("  {:28} {:?} sched {:.2} miss {:.4} lat {:.4} worst {:.3} dec {:.0}/s chg {:.0}/s ways {:.0}/s refill {:.3}", v.title(), v.refill, avg(&|m| f64::from(m.is_schedulable())), avg(&|m| m.misses()), avg(&|m| mean(&m.responses)), avg(&|m| *m.responses.last().unwrap() as f64), avg(&|m| m.decisions), avg(&|m| m.changes), avg(&|m| m.ways_moved), avg(&|m| m.refilling));
        }
    }
}
