//! Energy, by the counters of the CPU packages (Documentation/power/powercap/powercap.rst, intel-rapl).
//!
//! **Terms.** A *zone* is a folder `intel-rapl:N` under `/sys/class/powercap`, with `energy_uj` counting microjoules up
//! to `max_energy_range_uj` and then from zero again. **Method.** Zones named `package-N` are summed; their sub-zones
//! (core, uncore, dram) are parts of them or measured apart on some models only, and `psys` contains them. Each reading
//! adds the advance of each counter since the last one; so read at least once per range, which is minutes even at full
//! load.

use std::path::{Path, PathBuf};

use punctual_custody::tree::{number, numbered, read_trimmed};

use super::{KernelTree, refused};
use crate::Refusal;

const ZONES: &str = "/sys/class/powercap";

/// The energy that all packages used since the meter was opened.
#[derive(Debug)]
pub struct EnergyMeter {
    zones: Vec<Zone>,
}

#[derive(Debug)]
struct Zone {
    counter: PathBuf,
    energy: EnergyTotal,
}

/// A counter that wraps around, accumulated without wraps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct EnergyTotal {
    last_uj: u64,
    range_uj: u64,
    total_uj: u64,
}

impl EnergyTotal {
    /// Adds a reading of the counter; at most one wrap may have happened since the last.
    fn advance(&mut self, now_uj: u64) {
        let advanced = if now_uj >= self.last_uj {
            now_uj - self.last_uj
        } else {
            self.range_uj.saturating_sub(self.last_uj).saturating_add(now_uj)
        };
        self.total_uj = self.total_uj.saturating_add(advanced);
        self.last_uj = now_uj;
    }
}

impl EnergyMeter {
    /// Finds the packages' counters under `tree` and starts at zero.
    ///
    /// # Errors
    /// [`Refusal`] if there are none, or this user may not read them (since Linux 5.10 only root may).
    pub fn open(tree: &KernelTree) -> Result<EnergyMeter, Refusal> {
        let refusal = |why: String, remedy: &str| Err(refused("metering energy (powercap)", why, remedy));
        let folders = packages(&tree.path(ZONES));
        if folders.is_empty() {
            return refusal(
                format!("there is no package zone under {ZONES}"),
                "virtual machines have none; on hardware, load the module intel_rapl_msr",
            );
        }
        let mut zones = Vec::new();
        for folder in folders {
            match Zone::open(&folder) {
                Ok(zone) => zones.push(zone),
                Err(why) => {
                    return refusal(
                        why,
                        "run as root, or make the counters readable: chmod a+r /sys/class/powercap/intel-rapl:*/energy_uj",
                    );
                }
            }
        }
        Ok(EnergyMeter { zones })
    }

    /// Energy in joules since the meter was opened; never decreases.
    ///
    /// # Errors
    /// Names the counter that could not be read, and why; the next reading includes its advance meanwhile.
    pub fn read(&mut self) -> Result<f64, String> {
        for zone in &mut self.zones {
            zone.energy.advance(number(&zone.counter)?);
        }
        Ok(self.zones.iter().map(|zone| zone.energy.total_uj as f64 * 1e-6).sum())
    }
}

impl Zone {
    fn open(folder: &Path) -> Result<Zone, String> {
        let counter = folder.join("energy_uj");
        Ok(Zone {
            energy: EnergyTotal {
                last_uj: number(&counter)?,
                range_uj: number(&folder.join("max_energy_range_uj"))?,
                total_uj: 0,
            },
            counter,
        })
    }
}

/// The folders of the package zones, without those of `intel-rapl-mmio`, which meters the same package a second time.
fn packages(folder: &Path) -> Vec<PathBuf> {
    let mut packages = numbered(folder, "intel-rapl:");
    packages.retain(|zone| read_trimmed(&zone.join("name")).is_ok_and(|name| name.starts_with("package")));
    packages
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::linux::testing;
    use proptest::prelude::*;

    /// Two packages with a core zone inside of the first, the platform around them, and a double through MMIO.
    fn two_packages() -> (tempfile::TempDir, KernelTree) {
        let zones = [
            ("intel-rapl:0", "package-0", "100"),
            ("intel-rapl:1", "package-1", "900"),
            ("intel-rapl:0:0", "core", "60"),
            ("intel-rapl:2", "psys", "2000"),
            ("intel-rapl-mmio:0", "package-0", "100"),
        ];
        let files: Vec<(String, &str)> = zones
            .iter()
            .flat_map(|(zone, name, energy)| {
                [("name", *name), ("energy_uj", energy), ("max_energy_range_uj", "1000")]
                    .map(|(file, content)| (format!("{ZONES}/{zone}/{file}"), content))
            })
            .collect();
        let files: Vec<(&str, &str)> = files.iter().map(|(path, content)| (path.as_str(), *content)).collect();
        testing::tree(&files)
    }

    #[test]
    fn packages_are_summed_and_nothing_is_counted_twice() {
        let (_folder, tree) = two_packages();
        let mut meter = EnergyMeter::open(&tree).unwrap();
        assert_eq!(meter.read(), Ok(0.0));
        let set = |zone: u32, energy: &str| {
            std::fs::write(tree.path(format!("{ZONES}/intel-rapl:{zone}/energy_uj")), energy).unwrap();
        };
        set(0, "150\n");
        set(1, "20\n"); // wrapped at 1000: 100 + 20
        assert_eq!(meter.read(), Ok(170.0 * 1e-6));
        set(0, "nonsense\n");
        assert!(meter.read().unwrap_err().contains("intel-rapl:0"));
        set(0, "160\n");
        let joules = meter.read().unwrap();
        assert!((joules - 180e-6).abs() < 1e-12, "{joules}");
    }

    #[test]
    fn missing_and_unreadable_counters_are_refused_with_a_remedy() {
        let (_folder, none) = testing::tree(&[]);
        assert!(
            EnergyMeter::open(&none)
                .unwrap_err()
                .remedy
                .contains("virtual machines")
        );
        let (_folder, tree) = two_packages();
        let counter = tree.path(format!("{ZONES}/intel-rapl:0/energy_uj"));
        std::fs::remove_file(&counter).unwrap();
        std::fs::create_dir(&counter).unwrap(); // fails to be read even for root
        let refusal = EnergyMeter::open(&tree).unwrap_err();
        assert!(refusal.remedy.contains("chmod a+r"), "{refusal}");
    }

    proptest! {
        /// The model is the counter that does not wrap.
        #[test]
        fn wrapping_around_loses_nothing(range in 1u64..1 << 40, steps in prop::collection::vec(any::<u64>(), 1..100)) {
            let mut truth = 0u64;
            let mut counter = EnergyTotal { last_uj: 0, range_uj: range, total_uj: 0 };
            for step in steps {
                truth += step % range; // less than one range between two readings
                counter.advance(truth % range);
                prop_assert_eq!(counter.total_uj, truth);
            }
        }
    }
}
