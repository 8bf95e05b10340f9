use proptest::prelude::*;

use super::*;

fn plan(ways: &[Way]) -> LoopPlan {
    let ms = Nanos::from_millis;
    LoopPlan {
        period: ms(10),
        compute: ms(1),
        reserved: ms(5),
        lasts: ms(100),
        hogs_per_core: 1,
        busy_disk: false,
        repetitions: 1,
        ways: ways.to_vec(),
    }
}

proptest! {
    /// Every release is counted once, whatever became of its job.
    #[test]
    fn jobs_are_those_in_time_late_and_dropped(
        jobs in prop::collection::vec((0u64..3000, 1u64..3000, any::<bool>()), 0..60),
    ) {
        let period = Nanos::from_micros(1000);
        let seen: Vec<Cycle> = jobs.iter().zip(0u64..).map(|((wake, compute, _), number)| {
            let released = Time::ZERO + period * number;
            let woken = released + Nanos::from_micros(*wake);
            let finished = (woken < released + period).then(|| woken + Nanos::from_micros(*compute));
            Cycle { released, woken, finished }
        }).collect();
        let number = |job: &Cycle| (job.released.0 / period.0) as usize;
        let run = Run::of(&seen, period, Effort::default(), |job, _| jobs[number(job)].2);
        let JobCounts { jobs: all, in_time, late, dropped, unexplained } = run.tally;
        prop_assert_eq!(all, seen.len() as u64);
        prop_assert_eq!(all, in_time + late + dropped);
        prop_assert!(unexplained <= late + dropped);
        let is_late = |(wake, compute, _): &&(u64, u64, bool)| *wake < 1000 && wake + compute > 1000;
        prop_assert_eq!(late, jobs.iter().filter(is_late).count() as u64);
        prop_assert_eq!(dropped, jobs.iter().filter(|job| job.0 >= 1000).count() as u64);
        let excused = |job: &&(u64, u64, bool)| (job.0 >= 1000 || is_late(job)) && job.2;
        prop_assert_eq!(late + dropped - unexplained, jobs.iter().filter(excused).count() as u64);
        prop_assert_eq!((run.wake.len() as u64, run.done.len() as u64), (all, in_time + late));
        prop_assert!((0.0..=1.0).contains(&run.tally.missed()));
    }
}

#[test]
fn each_figure_out_of_range_is_named_with_its_option() {
    assert_eq!(plan(&Way::ALL).check(), Ok(()));
    let ms = Nanos::from_millis;
    type Change = fn(&mut LoopPlan);
    let changes: [(Change, &str); 6] = [
        (|plan| plan.period = Nanos::from_micros(99), "--period"),
        (|plan| plan.period = Nanos::from_secs(2), "--period"),
        (|plan| plan.compute = Nanos::ZERO, "--compute"),
        (|plan| plan.compute = Nanos::from_micros(9001), "--compute"),
        (|plan| plan.reserved = Nanos::from_micros(999), "--reserve"),
        (|plan| plan.lasts = Nanos::from_millis(9), "--duration"),
    ];
    for (change, option) in changes {
        let mut plan = plan(&Way::ALL);
        change(&mut plan);
        let refusal = plan.check().unwrap_err();
        assert!(refusal.remedy.contains(option), "{refusal}");
    }
    let mut long = plan(&Way::ALL);
    (long.lasts, long.repetitions) = (ms(600_000), 1000);
    assert!(long.check().unwrap_err().remedy.contains("--repetitions"));
}
