use punctual_runtime::report::*;
use punctual_runtime::*;
use punctual_units::*;
use punctual_workload::*;
use std::ops::ControlFlow;
use std::sync::Arc;
fn main() {
    let args: Vec<String> = std::env::args().collect();
    let get = |k: &str| {
        args.iter()
            .find_map(|a| a.strip_prefix(&format!("{k}=")).map(String::from))
    };
    let f = |k: &str, d: f64| get(k).map_or(d, |v| v.parse().unwrap());
    let platform = if get("platform").as_deref() == Some("sim") {
        PlatformChoice::Sim
    } else {
        PlatformChoice::Linux
    };
    let sensors = Trace::parse_sensors(std::fs::File::open("data/fire/sensors.csv").unwrap()).unwrap();
    let raw = std::process::Command::new("zstd")
        .args(["-dc", "data/fire/readings.csv.zst"])
        .output()
        .unwrap()
        .stdout;
    let trace = Arc::new(Trace::parse_readings(sensors, &raw[..]).unwrap());
    let kind = match get("c").as_deref() {
        Some("qod") => ControllerKind::Qod,
        Some("clock") => ControllerKind::Clock,
        Some("mimo") => ControllerKind::Mimo,
        _ => ControllerKind::Open,
    };
    let ms = |k: &str, d: f64| Nanos::from_secs_f64(f(k, d) * 1e-3);
    let scenario = Scenario {
        name: "fire-rescue".into(),
        seed: f("seed", 1.0) as u64,
        duration: Nanos::from_secs_f64(f("t", 20.0)),
        goal: Goal {
            tardiness: f("goal", 0.85),
            drr: f("drr", 0.62),
            min_fresh: Share::clamped(0.5),
        },
        control: Control {
            kind,
            pace: if get("job").is_some() {
                Pace::Job
            } else {
                Pace::Period(ms("period", 200.0))
            },
            warm_up: Nanos::from_secs(2),
            best_effort_share: Share::clamped(f("bes", 1.0)),
        },
        store: StoreNeeds {
            update_mode: if get("mf").is_some() {
                UpdateMode::MemoryFirst
            } else {
                UpdateMode::Transaction
            },
            durability: Durability::Volatile,
            coldest_first: false,
            group_commit: Nanos::from_millis(50),
            objects: 10000,
            object_bytes: 100,
        },
        sensors: SensorLoad {
            source: SensorSource::Trace { dir: "".into() },
            speedup: 20.0,
            volume: match get("rep") {
                Some(r) => Volume::Replicas(r.parse().unwrap()),
                None => Volume::Utilisation(f("rho", 0.5)),
            },
            value_bytes: 64,
        },
        tasks: vec![
            TaskSpec {
                name: "analysis".into(),
                class: Class::RealTime {
                    deadline: Nanos::from_millis(50),
                },
                arrival: Arrival::Periodic {
                    period: Nanos::from_millis(100),
                },
                demand: Demand {
                    compute: ms("cc", 14.0),
                    data: ms("dd", 14.0),
                    rounds: f("rounds", 16.0) as u32,
                    reads: Table::Sensors,
                    writes: 64,
                },
                per_core: 1,
            },
            TaskSpec {
                name: "browse".into(),
                class: Class::BestEffort,
                arrival: Arrival::AfterCompletion {
                    pause_min: Nanos::from_millis(50),
                    pause_max: Nanos::from_millis(150),
                },
                demand: Demand {
                    compute: ms("bc", 5.0),
                    data: ms("bd", 5.0),
                    rounds: 4,
                    reads: Table::Objects,
                    writes: 0,
                },
                per_core: 1,
            },
        ],
        excitation: Excitation {
            clock: vec![1.0, 0.95, 0.9],
            admitted: vec![0.5, 0.6, 0.7],
            hold: 2,
        },
    };
    let controller =
        get("model").map(|p| ControllerSource::Model(serde_json::from_slice(&std::fs::read(p).unwrap()).unwrap()));
    let request = RunRequest {
        scenario,
        trace,
        platform,
        controller,
        store_path: None,
        record: get("record").is_some(),
    };
    let quiet = get("q").is_some();
    let mut watch = |p: Progress<'_>| {
        match p {
            Progress::Stage(s) => eprintln!("{s}"),
            Progress::Started(h) => eprintln!("{:?}", h.load),
            Progress::Sample(s) => {
                if !quiet && s.k % 5 == 0 {
                    println!(
                        "{:6.2} {:8} t={:?} d={:?} q={:.2} k={:.2} fresh={:.3} clk={:?} jobs={} miss={} dec={:?} act={:?} busy={:.2?} {:?}",
                        s.t_s,
                        s.mode,
                        s.tardiness.map(|x| (x * 1000.).round() / 1000.),
                        s.drr.map(|x| (x * 1000.).round() / 1000.),
                        s.admitted_share,
                        s.admitted_knob,
                        s.fresh_share,
                        s.clock_hz.map(|h| h / 1000000),
                        s.jobs,
                        s.misses,
                        s.decision_us,
                        s.actuation_us,
                        s.busy,
                        s.fallback
                    )
                }
            }
        };
        ControlFlow::Continue(())
    };
    if let Some(out) = get("identify") {
        let (m, r) = identify(&request, &mut watch).unwrap();
        println!("{}", serde_json::to_string(&m.mimo).unwrap());
        println!("{:?}", m.tardiness.fit());
        println!(
            "{:#?}",
            m.design()
                .map(|d| (d.mimo.kp, d.mimo.ki, d.mimo.verdict, d.qod.kp, d.qod.ki))
        );
        std::fs::write(out, serde_json::to_vec_pretty(&m).unwrap()).unwrap();
        println!("{:?}", r.summary);
    } else {
        let r = run(&request, &mut watch).unwrap();
        for p in &r.report.header.protection {
            if p.refused.is_some() {
                println!("{p:?}");
            }
        }
        println!("{:#?}", r.report.summary);
        if let Some(log) = r.log {
            println!(
                "events {} updates {} differences {:?}",
                log.steps.len(),
                log.updates.len(),
                replay(&log).unwrap().len()
            );
        }
    }
}
