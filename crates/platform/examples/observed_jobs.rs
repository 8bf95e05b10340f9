//! The jobs of a program that reports none, as the kernel reports them: release (0: unknown), begin and end, in
//! nanoseconds of `CLOCK_MONOTONIC`, to be held against the program's own log.
//!
//!     cargo run --release -p punctual-platform --example observed_jobs -- PROGRAM CALL SECONDS
//!
//! `CALL` is a call of `observe` in docs/guide/attach.md, or `find`. Ends after as many seconds, or with the program.

#[cfg(target_os = "linux")]
fn main() {
    use std::time::{Duration, Instant};

    use punctual_jobs::JobSource;
    use punctual_platform::linux::KernelTree;
    use punctual_platform::linux::observed::{ObservedThread, Tracepoints, threads};
    use punctual_platform::linux::thread::is_running;
    use punctual_platform::{Observation, ThreadSelector, WaitCall};

    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [program, call, seconds] = arguments.as_slice() else {
        return eprintln!("give PROGRAM CALL SECONDS");
    };
    let observation = Observation {
        call: WaitCall::NAMED
            .iter()
            .find(|(name, _)| name == call)
            .map(|(_, call)| *call),
        threads: ThreadSelector {
            program: Some(program.clone()),
            ..ThreadSelector::default()
        },
    };
    let points = Tracepoints::find(&KernelTree::default()).expect("rights");
    let until = Instant::now() + Duration::from_secs(seconds.parse().expect("seconds"));
    let mut found: Vec<ObservedThread> = Vec::new();
    let mut goes_on = true;
    while goes_on {
        // Once more after the end.
        let runs = |(process, thread)| is_running(process, Some(thread));
        goes_on = Instant::now() < until && (found.is_empty() || found.iter().any(|it| runs(it.thread())));
        if found.is_empty() {
            let open = |thread| ObservedThread::of(&points, &observation, thread).expect("rights");
            found = threads(&[&observation.threads])
                .into_iter()
                .map(|(_, thread)| open(thread))
                .collect();
        }
        std::thread::sleep(Duration::from_millis(5));
        for job in found.iter_mut().flat_map(JobSource::jobs) {
            println!("{} {} {}", job.released.unwrap_or_default().0, job.begun.0, job.ended.0);
        }
    }
    let lost: u64 = found.iter().map(JobSource::dropped).sum();
    eprintln!("{} threads, {lost} records lost", found.len());
}

#[cfg(not(target_os = "linux"))]
fn main() {}
