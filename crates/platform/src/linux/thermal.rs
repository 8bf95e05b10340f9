//! Temperature, by the kernel's thermal zones (Documentation/driver-api/thermal/sysfs-api.rst).
//!
//! **Terms.** A *zone* is a folder `thermal_zoneN` under `/sys/class/thermal`; its file `temp` says thousandths of a
//! degree Celsius. **Method.** The hottest zone counts: that is where a machine begins to slow itself down. A zone that
//! cannot be read is left out, because drivers of parts that sleep refuse to say anything.

use std::path::{Path, PathBuf};

use super::tree::read_trimmed;
use super::{KernelTree, refused};
use crate::Refusal;

const ZONES: &str = "/sys/class/thermal";

/// What a zone may say, in degrees Celsius: drivers without a value report 0 kelvin, or hundreds of degrees.
const PLAUSIBLE: std::ops::RangeInclusive<f64> = -60.0..=200.0;

/// The temperature of the hottest zone.
#[derive(Debug)]
pub struct Thermometer {
    /// The files of the zones.
    zones: Vec<PathBuf>,
}

impl Thermometer {
    /// Finds the zones under `tree` that can be read.
    ///
    /// # Errors
    /// [`Refusal`] where there is none.
    pub fn open(tree: &KernelTree) -> Result<Thermometer, Refusal> {
        let mut zones: Vec<PathBuf> = std::fs::read_dir(tree.path(ZONES))
            .into_iter()
            .flatten()
            .flatten()
            .filter(|entry| entry.file_name().to_string_lossy().starts_with("thermal_zone"))
            .map(|entry| entry.path().join("temp"))
            .filter(|zone| celsius(zone).is_some())
            .collect();
        zones.sort_unstable();
        if zones.is_empty() {
            return Err(refused(
                "metering temperature (thermal zones)",
                format!("there is no zone under {ZONES} that says a temperature"),
                "virtual machines have none; on hardware, load the driver of the board's or the processor's sensors",
            ));
        }
        Ok(Thermometer { zones })
    }

    /// The temperature of the hottest zone, in degrees Celsius.
    ///
    /// # Errors
    /// Where no zone can be read any more: that, in words.
    pub fn read(&self) -> Result<f64, String> {
        let hottest = self.zones.iter().filter_map(|zone| celsius(zone)).reduce(f64::max);
        hottest.ok_or_else(|| format!("none of the zones under {ZONES} says a temperature any more"))
    }
}

/// What this file says, where that can be.
fn celsius(zone: &Path) -> Option<f64> {
    let thousandths: i32 = read_trimmed(zone).ok()?.parse().ok()?;
    Some(f64::from(thousandths) * 1e-3).filter(|celsius| PLAUSIBLE.contains(celsius))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::linux::testing;

    #[test]
    fn the_hottest_zone_counts_and_one_that_says_nothing_does_not() {
        let (_folder, tree) = testing::tree(&[
            ("/sys/class/thermal/thermal_zone0/temp", "41500"),
            ("/sys/class/thermal/thermal_zone1/temp", "58000"),
            ("/sys/class/thermal/thermal_zone2/temp", "-273150"),
            ("/sys/class/thermal/cooling_device0/cur_state", "3"),
        ]);
        let meter = Thermometer::open(&tree).unwrap();
        assert_eq!(meter.read(), Ok(58.0));
        let set = |zone: u32, temp: &str| {
            std::fs::write(tree.path(format!("{ZONES}/thermal_zone{zone}/temp")), temp).unwrap();
        };
        set(1, "nonsense");
        assert_eq!(meter.read(), Ok(41.5));
        set(0, "");
        assert!(meter.read().unwrap_err().contains("any more"));
    }

    #[test]
    fn a_machine_without_zones_is_told_so() {
        let (_folder, tree) = testing::tree(&[]);
        let refusal = Thermometer::open(&tree).unwrap_err();
        assert!(refusal.remedy.contains("virtual machines"), "{refusal}");
    }
}
