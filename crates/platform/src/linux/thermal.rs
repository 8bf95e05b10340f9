//! Temperature, by the kernel's thermal zones (Documentation/driver-api/thermal/sysfs-api.rst).
//!
//! **Terms.** A *zone* is a folder `thermal_zoneN` under `/sys/class/thermal`; its file `temp` says thousandths of a
//! degree Celsius. **Method.** The hottest zone counts: it makes a machine slow itself down. A zone that cannot be read
//! is left out, because drivers of sleeping parts refuse a reading.

use std::path::{Path, PathBuf};

use punctual_custody::tree::{entries, number, numbered, read_trimmed};

use super::{KernelTree, refused};
use crate::Refusal;
use punctual_units::CoreId;

const ZONES: &str = "/sys/class/thermal";

/// Plausible values in degrees Celsius: drivers without a value report 0 kelvin, or hundreds of degrees.
const PLAUSIBLE: std::ops::RangeInclusive<f64> = -60.0..=200.0;

/// A meter for the temperature of the hottest zone.
#[derive(Debug)]
pub struct Thermometer {
    /// The `temp` files of the readable zones.
    zones: Vec<PathBuf>,
}

impl Thermometer {
    /// Finds the readable zones under `tree`.
    ///
    /// # Errors
    /// [`Refusal`] if there is none.
    pub fn open(tree: &KernelTree) -> Result<Thermometer, Refusal> {
        let zones = numbered(&tree.path(ZONES), "thermal_zone").into_iter();
        let zones = zones
            .map(|zone| zone.join("temp"))
            .filter(|zone| celsius(zone).is_some());
        let zones: Vec<PathBuf> = zones.collect();
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
    /// An error in words, if no zone can be read any more.
    pub fn read(&self) -> Result<f64, String> {
        let hottest = self.zones.iter().filter_map(|zone| celsius(zone)).reduce(f64::max);
        hottest.ok_or_else(|| format!("none of the zones under {ZONES} says a temperature any more"))
    }
}

const SENSORS: &str = "/sys/class/hwmon";

/// A meter for each core: sensors with the label `Core N` (Documentation/hwmon/coretemp.rst), where N is the number of
/// the physical core (Documentation/admin-guide/cputopology.rst). Machines with several sockets use a number twice;
/// the sensor of the first counts.
#[derive(Debug)]
pub struct CoreThermometers {
    /// The sensor's file for each core.
    files: Vec<PathBuf>,
}

impl CoreThermometers {
    /// Finds the sensors of `cores` under `tree`; `None` if a core has no sensor.
    pub fn open(tree: &KernelTree, cores: impl IntoIterator<Item = CoreId>) -> Option<CoreThermometers> {
        let sensors = labelled(tree);
        let of = |core: CoreId| {
            let id = tree.path(format!("/sys/devices/system/cpu/cpu{core}/topology/core_id"));
            let label = format!("Core {}", read_trimmed(&id).ok()?);
            let found = sensors.iter().find(|(said, _)| *said == label);
            found.map(|(_, file)| file.clone())
        };
        let files: Option<Vec<PathBuf>> = cores.into_iter().map(of).collect();
        files.map(|files| CoreThermometers { files })
    }

    /// The temperature of each core in degrees Celsius; `None` for a sensor that gives no value now.
    pub fn read(&self) -> impl Iterator<Item = Option<f64>> + '_ {
        self.files.iter().map(|file| celsius(file))
    }
}

/// Labels of sensors, and the files with their values.
fn labelled(tree: &KernelTree) -> Vec<(String, PathBuf)> {
    let files = entries(&tree.path(SENSORS)).flat_map(|chip| entries(&chip.path()));
    let mut labelled: Vec<(String, PathBuf)> = files
        .filter_map(|file| {
            let name = file.file_name().to_string_lossy().into_owned();
            let sensor = name.strip_prefix("temp")?.strip_suffix("_label")?.to_owned();
            let label = read_trimmed(&file.path()).ok()?;
            Some((label, file.path().with_file_name(format!("temp{sensor}_input"))))
        })
        .collect();
    labelled.sort_unstable();
    labelled
}

/// The value of this file in degrees Celsius, if it is plausible.
fn celsius(zone: &Path) -> Option<f64> {
    let thousandths: i32 = number(zone).ok()?;
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
    fn each_core_has_the_sensor_of_its_label() {
        let (_folder, tree) = testing::tree(&[
            ("/sys/class/hwmon/hwmon1/temp1_label", "Package id 0"),
            ("/sys/class/hwmon/hwmon1/temp1_input", "70000"),
            ("/sys/class/hwmon/hwmon1/temp2_label", "Core 0"),
            ("/sys/class/hwmon/hwmon1/temp2_input", "51000"),
            ("/sys/class/hwmon/hwmon1/temp3_label", "Core 4"),
            ("/sys/class/hwmon/hwmon1/temp3_input", "62000"),
            ("/sys/devices/system/cpu/cpu0/topology/core_id", "0"),
            ("/sys/devices/system/cpu/cpu1/topology/core_id", "4"),
            ("/sys/devices/system/cpu/cpu2/topology/core_id", "7"),
        ]);
        let meters = CoreThermometers::open(&tree, [CoreId(1), CoreId(0)]).unwrap();
        assert_eq!(meters.read().collect::<Vec<_>>(), [Some(62.0), Some(51.0)]);
        assert!(CoreThermometers::open(&tree, [CoreId(0), CoreId(2)]).is_none());
    }

    #[test]
    fn a_machine_without_zones_is_told_so() {
        let (_folder, tree) = testing::tree(&[]);
        let refusal = Thermometer::open(&tree).unwrap_err();
        assert!(refusal.remedy.contains("virtual machines"), "{refusal}");
    }
}
