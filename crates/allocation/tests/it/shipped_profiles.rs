//! Profiles of real programs: those of `data/profiles`, and the measured ones where `PUNCTUAL_MEASURED_PROFILES` names
//! their folder.

use std::path::{Path, PathBuf};

use punctual_allocation::profile::{Fit, PHASES_MAX, ProfileOptions, ProfileRecording, Smoothing, load};
use punctual_allocation::{Grid, Share};

fn shipped() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../data/profiles")
}

fn read(path: &Path) -> (String, Vec<u8>) {
    let bytes = std::fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    (path.display().to_string(), bytes)
}

fn compiled(path: &Path, options: &ProfileOptions) -> Fit {
    let (file, bytes) = read(path);
    load(&file, &bytes, options).unwrap()
}

fn check(compiled: &Fit) {
    let accuracy = &compiled.accuracy;
    assert!(compiled.profile.phases.len() <= PHASES_MAX);
    assert!(accuracy.duration_worst < 1e-6, "phases keep the time of their parts");
    assert!(accuracy.rate_mean <= accuracy.rate_mean_worst_share);
    assert!(accuracy.rate_mean_worst_share <= accuracy.rate_worst);
    if let Some(kinds) = &compiled.kinds {
        let Grid { ways, partitions } = compiled.profile.grid;
        let of = |ways, partitions| kinds.phases(Share { ways, partitions });
        println!(
            "{} kinds; {} phases with everything, {} with 5 and 5, {} with 1 and 1",
            kinds.choice.best().kinds,
            of(ways, partitions),
            of(5, 5),
            of(1, 1)
        );
    }
    println!(
        "{}: {} of {} phases; rate {:.2} % wrong on average, {:.2} % with the worst share, {:.0} % at worst; lag {:.2} %",
        compiled.profile.name,
        compiled.profile.phases.len(),
        compiled.phases_found,
        100.0 * accuracy.rate_mean,
        100.0 * accuracy.rate_mean_worst_share,
        100.0 * accuracy.rate_worst,
        100.0 * accuracy.lag_worst
    );
}

#[test]
fn shipped_profiles_become_phases() {
    for name in ["fft", "ocean", "fluidanimate"] {
        for caches in ["full", "scaled"] {
            let path = shipped().join(format!("{name}.{caches}.csv"));
            let merged = ProfileOptions {
                clustering: None,
                ..ProfileOptions::default()
            };
            println!("without clustering:");
            check(&self::compiled(&path, &merged));
            let compiled = compiled(&path, &ProfileOptions::default());
            check(&compiled);
            assert!(compiled.phases_found > compiled.profile.phases.len());
            let kinds = compiled.kinds.as_ref().unwrap().choice.best().kinds;
            assert!((2..=30).contains(&kinds));
            assert_eq!(compiled.profile.grid, Grid::PAPER);
            assert_eq!(compiled.profile.name, format!("{name}.{caches}"));
        }
    }
}

/// The times of the measured runs with everything, as their README tells them.
#[test]
fn measured_profiles_take_their_reference_times() {
    let Some(folder) = std::env::var_os("PUNCTUAL_MEASURED_PROFILES").map(PathBuf::from) else {
        println!("not run: set PUNCTUAL_MEASURED_PROFILES to the folder of canneal.csv, fft.csv and freqmine.csv");
        return;
    };
    for (name, seconds) in [("canneal", 1.428), ("fft", 0.537), ("freqmine", 0.694)] {
        let path = folder.join(format!("{name}.csv"));
        let (file, bytes) = read(&path);
        let ProfileRecording::Measured(measured) = ProfileRecording::read(&file, &bytes, Some(Grid::PAPER)).unwrap()
        else {
            panic!("{file} is measured")
        };
        let all = Share {
            ways: 20,
            partitions: 20,
        };
        assert!(
            (measured.seconds(all) - seconds).abs() < 5e-4,
            "{}",
            measured.seconds(all)
        );
        let compiled = compiled(&path, &ProfileOptions::default());
        check(&compiled);
        assert!((compiled.profile.duration(all) / measured.seconds(all) - 1.0).abs() < 1e-6);
        let raw = measured.seconds(all);
        for smoothing in [Smoothing::Best, Smoothing::Nearest] {
            let options = ProfileOptions {
                smoothing,
                ..ProfileOptions::default()
            };
            let smooth = load(&file, &bytes, &options).unwrap();
            println!(
                "{name}: {smoothing:?}: {:.4} s of {raw:.4} s with everything; duration {:.2} % wrong on average, {:.2} % at worst; rate {:.2} % wrong; up to {:.2} % faster than recorded",
                smooth.profile.duration(all),
                100.0 * smooth.accuracy.duration_mean,
                100.0 * smooth.accuracy.duration_worst,
                100.0 * smooth.accuracy.rate_mean,
                100.0 * smooth.accuracy.faster_than_recorded
            );
        }
    }
}
