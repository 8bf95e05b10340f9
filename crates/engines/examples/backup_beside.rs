//! What do an owner's writes lose while another process backs the store up?
//!
//! ```text
//! cargo run --release -p punctual-engines --example backup_beside [-- LEVEL [MEGABYTES [ROUNDS [FOLDER [PERCENT]]]]]
//! ```
//!
//! It fills a store with MEGABYTES of records (100), then puts records of 100 bytes in transactions of their own, in
//! turns: beside a process that makes a backup, beside one that does nothing (the control), and alone. The order
//! changes from round to round. The backup takes PERCENT of the time (0.5, as the command does). LEVEL is a durability
//! (no-meta-sync). It prints the median and the 99th percentile of each, and their ratio to those alone.

use std::io::{BufRead, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use punctual_engines::Lmdb;
use punctual_engines::lmdb::transfer::backup;
use punctual_engines::lmdb::{LmdbOptions, Verify};
use punctual_os::linux::thread::set_scheduling;
use punctual_os::{LinuxOs, Scheduling, Tid};
use punctual_store::engine::Durability;
use punctual_store::{Deadline, Store, StoreOptions};
use punctual_units::Share;

type Answer<T> = Result<T, Box<dyn std::error::Error>>;

/// The load beside which a span of writes was measured.
const BESIDE: [&str; 3] = ["backup", "nothing", "alone"];

fn main() -> Answer<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let argument = |at: usize| arguments.get(at).map(String::as_str);
    if argument(0) == Some("--other") {
        let share = Share::clamped(argument(2).ok_or("a share")?.parse()?);
        return other(Path::new(argument(1).ok_or("a folder")?), share);
    }
    let durability = match argument(0) {
        None | Some("no-meta-sync") => Durability::NoMetaSync,
        Some("durable") => Durability::Durable,
        Some("volatile") => Durability::Volatile,
        Some(_) => return Err("durable, no-meta-sync or volatile".into()),
    };
    let megabytes: u64 = argument(1).map_or(Ok(100), str::parse)?;
    let rounds: usize = argument(2).map_or(Ok(10), str::parse)?;
    let folder = match argument(3) {
        Some(folder) => tempfile::tempdir_in(folder)?,
        None => tempfile::tempdir()?,
    };
    let percent: f64 = argument(4).map_or(Ok(0.5), str::parse)?;
    let options = LmdbOptions {
        durability,
        quota: 4 << 30,
        verify: Verify::Structure,
        ..LmdbOptions::default()
    };
    let store = Store::open(
        options.open(folder.path().join("store"))?,
        LinuxOs,
        StoreOptions::default(),
    )?;
    fill(&store, megabytes)?;
    let mut process = Other::start(folder.path(), percent / 100.0)?;
    let mut spans: [Vec<u64>; 3] = Default::default();
    let mut span = Duration::from_millis(500);
    let mut number = 0_u64;
    for round in 0..rounds {
        for turn in 0..BESIDE.len() {
            let what = (turn + round) % BESIDE.len();
            let over = match BESIDE[what] {
                "backup" => Some(process.ask("backup")?),
                "nothing" => Some(process.ask(&format!("nothing {}", span.as_millis()))?),
                _ => None,
            };
            let begun = Instant::now();
            let is_over = || match &over {
                Some(over) => over.load(Ordering::Acquire),
                None => begun.elapsed() >= span,
            };
            while !is_over() {
                number = number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let asked = Instant::now();
                let mut transaction = store.write_transaction(Deadline::NONE)?;
                transaction.put((number >> 40).to_be_bytes(), [7; 100])?;
                transaction.commit()?;
                spans[what].push(asked.elapsed().as_nanos() as u64);
            }
            if BESIDE[what] == "backup" {
                span = begun.elapsed();
            }
        }
    }
    println!(
        "{durability:?}, {megabytes} MB, {rounds} rounds, a backup took {span:?} at the end; readers ended: {}",
        store.readers_ended().count
    );
    let quantile = |spans: &mut Vec<u64>, of: f64| {
        spans.sort_unstable();
        spans.get((spans.len() as f64 * of) as usize).copied().unwrap_or(0) as f64 / 1e3
    };
    let [mut backup, mut nothing, mut alone] = spans;
    let base = [quantile(&mut alone, 0.5), quantile(&mut alone, 0.99)];
    for (what, spans) in BESIDE.into_iter().zip([&mut backup, &mut nothing, &mut alone]) {
        let found = [quantile(spans, 0.5), quantile(spans, 0.99)];
        println!(
            "beside {what:<8} {:>8} puts, p50 {:>8.1} us ({:.2}), p99 {:>8.1} us ({:.2})",
            spans.len(),
            found[0],
            found[0] / base[0],
            found[1],
            found[1] / base[1]
        );
    }
    Ok(())
}

fn fill(store: &Store<Lmdb, LinuxOs>, megabytes: u64) -> Answer<()> {
    for batch in 0..megabytes {
        let mut transaction = store.write_transaction(Deadline::NONE)?;
        for number in 0..1_000_u64 {
            transaction.put((batch << 32 | number).to_be_bytes(), [1; 1_000])?;
        }
        transaction.commit()?;
    }
    Ok(())
}

/// Runs the other process: carries out the commands that it reads, line by line.
fn other(folder: &Path, share: Share) -> Answer<()> {
    // The share that the command uses.
    let _ = set_scheduling(Tid::current(), Scheduling::Batch { nice: 10 });
    for line in std::io::stdin().lock().lines() {
        match line?.split_once(' ') {
            Some((_, millis)) => std::thread::sleep(Duration::from_millis(millis.parse()?)),
            None => {
                let copy: PathBuf = folder.join("copy");
                match backup(&folder.join("store"), &copy, share, &mut |_| ()) {
                    Ok(_) => std::fs::remove_dir_all(copy)?,
                    Err(ended) => eprintln!("no copy: {ended}"),
                }
            }
        }
        println!("done");
    }
    Ok(())
}

struct Other {
    child: Child,
    orders: ChildStdin,
    over: Arc<AtomicBool>,
}

impl Other {
    fn start(folder: &Path, share: f64) -> Answer<Other> {
        let mut command = Command::new(std::env::current_exe()?);
        command
            .arg("--other")
            .arg(folder)
            .arg(share.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut child = command.spawn()?;
        let orders = child.stdin.take().ok_or("no pipe")?;
        let answers = BufReader::new(child.stdout.take().ok_or("no pipe")?);
        let over = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&over);
        std::thread::spawn(move || {
            answers.lines().for_each(|_| told.store(true, Ordering::Release));
            told.store(true, Ordering::Release); // it has ended: no writer waits for it
        });
        Ok(Other { child, orders, over })
    }

    /// Sends a command; the returned flag is set when it is done.
    fn ask(&mut self, what: &str) -> Answer<Arc<AtomicBool>> {
        self.over.store(false, Ordering::Release);
        writeln!(self.orders, "{what}")?;
        Ok(Arc::clone(&self.over))
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
