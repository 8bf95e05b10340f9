//! scratch
use punctual_profiler::*;
use std::ffi::OsString;
use std::time::{Duration, Instant};
fn main() {
    let mut args: Vec<OsString> = std::env::args_os().skip(1).collect();
    let out = args.remove(0);
    let number = |name: &str, or: u64| std::env::var(name).ok().map_or(or, |v| v.parse().unwrap());
    let mut geometry = Geometry::FULL;
    geometry.l1.bytes = number("L1", 32 << 10);
    let l2 = number("L2", 256 << 10);
    geometry.l2 = (l2 > 0).then_some(Cache { bytes: l2, ways: 8 });
    geometry.ways = number("WAYS", 20) as u8;
    geometry.way_bytes = number("WAY", 2 << 20);
    let search = std::env::var_os("PATH").unwrap();
    let program = Program::find(&args[0], &args[1..], &search).unwrap();
    let begun = Instant::now();
    let mut run = Run::start(&program, &geometry, &search).unwrap();
    let ending = loop {
        if let Some(ending) = run.wait(Duration::from_secs(1)).unwrap() {
            break ending;
        }
    };
    let s = begun.elapsed().as_secs_f64();
    let w = run.windows();
    let n: u64 = w.iter().map(|w| w.instructions).sum();
    let r: u64 = w.iter().map(|w| w.requests).sum();
    let mut m = vec![0; geometry.ways as usize];
    w.iter()
        .for_each(|w| m.iter_mut().zip(w.misses()).for_each(|(a, b)| *a += b));
    eprintln!(
        "{ending:?} {:?}\n{n} instr {s:.2} s {:.1} M/s requests {r} misses {m:?}",
        run.progress(),
        n as f64 / s / 1e6
    );
    let mut f = std::fs::File::create(out).unwrap();
    write(w, geometry.ways.into(), &mut f).unwrap();
}
