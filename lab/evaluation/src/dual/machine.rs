//! The machine model, read from a file: cores, which of them are exclusive, quantum, switch and cache.

use punctual_sim::{CORES_MAX, MachineFileError, ModelError, read_file};
use punctual_units::{CoreId, Nanos};
use serde::{Deserialize, Serialize};

use super::list::check_cores;

const DPS_DUAL_CORE: &str = include_str!("../../../../machines/dps-dual-core.toml");

/// Limit of the quantum and of a context switch, in microseconds: a second.
const SPAN_MAX_US: f64 = 1e6;
/// Limit of `cache_step_pages`: 64 GiB in pages of 4 KiB.
const CACHE_STEP_MAX: u32 = 1 << 24;

/// A machine with exclusive cores for real-time tasks.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct DualMachine {
    pub name: String,
    /// Number of cores, 2 to 64.
    pub cores: u32,
    /// Numbers of the cores that are exclusive to real-time tasks, from 0: at least one, and not all.
    pub exclusive: Vec<CoreId>,
    /// Time for which an interactive job keeps its core while others wait, in microseconds, above 0.
    pub quantum_us: f64,
    /// Time of a context switch, in microseconds.
    pub switch_us: f64,
    /// Unit in which experiments vary the page cache, in pages, above 0.
    pub cache_step_pages: u32,
}

impl DualMachine {
    /// The second paper's machine: `machines/dps-dual-core.toml`.
    pub fn dps_dual_core() -> DualMachine {
        match DualMachine::from_toml(DPS_DUAL_CORE) {
            Ok(machine) => machine,
            // The file is part of the program, and a test reads it.
            Err(error) => unreachable!("a shipped machine file is unsound: {error}"),
        }
    }

    /// Reads a machine from the text of its file, and checks it.
    ///
    /// # Errors
    /// [`MachineFileError`] for the first error; put the file's name and a colon before it.
    ///
    /// ```
    /// use punctual_evaluation::dual::DualMachine;
    /// let text = include_str!("../../../../machines/dps-dual-core.toml");
    /// let text = text.replace("exclusive = [1]", "exclusive = [2]");
    /// let error = DualMachine::from_toml(&text).unwrap_err();
    /// assert_eq!(error.key, "exclusive");
    /// assert!(error.what.starts_with("there is no core 2: the machine has cores 0 to 1"));
    /// ```
    pub fn from_toml(text: &str) -> Result<DualMachine, MachineFileError> {
        read_file(text, "machine", DualMachine::check)
    }

    /// Checks that the machine can be simulated.
    ///
    /// # Errors
    /// [`ModelError`] names the first key that is out of range.
    pub fn check(&self) -> Result<(), ModelError> {
        let refuse = |key: &str, what: String| Err(ModelError { key: key.into(), what });
        if !(2..=CORES_MAX).contains(&self.cores) {
            return refuse(
                "cores",
                format!("must lie between 2 and {CORES_MAX}: one to be exclusive, one for the rest"),
            );
        }
        if let Err(error) = check_cores(&self.exclusive, self.cores) {
            return refuse("exclusive", error.to_string());
        }
        if !(self.quantum_us > 0.0 && self.quantum_us <= SPAN_MAX_US) {
            return refuse("quantum-us", "must be above 0 and at most a second".into());
        }
        if !(self.switch_us >= 0.0 && self.switch_us <= SPAN_MAX_US) {
            return refuse("switch-us", "must be at least 0 and at most a second".into());
        }
        if !(1..=CACHE_STEP_MAX).contains(&self.cache_step_pages) {
            return refuse(
                "cache-step-pages",
                format!("a cache has at least one page, and at most {CACHE_STEP_MAX} in a step"),
            );
        }
        Ok(())
    }

    /// Time for which an interactive job keeps its core while others wait; at least 1 ns.
    pub fn quantum(&self) -> Nanos {
        // A quantum that rounds to zero would cause an endless loop.
        Nanos::from_secs_f64(self.quantum_us * 1e-6).max(Nanos(1))
    }

    /// Time of a context switch.
    pub fn switch(&self) -> Nanos {
        Nanos::from_secs_f64(self.switch_us * 1e-6)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_fault_names_line_and_key() {
        for (from, to, expected) in [
            ("cores = 2", "cores = 1", ":cores: must lie between 2 and 64"),
            ("exclusive = [1]", "exclusive = [7]", ":exclusive: there is no core 7"),
            ("exclusive = [1]", "exclusive = [0, 1]", ":exclusive: all 2 cores "),
            ("exclusive = [1]", "exclusive = []", ":exclusive: no core is named"),
            ("quantum-us = 1000", "quantum-us = 0", ":quantum-us: must be above 0"),
            ("switch-us = 15", "switch-us = -1", ":switch-us: must be at least 0"),
            ("cache-step-pages = 1000", "cache-step-pages = 0", ":cache-step-pages: "),
        ] {
            assert!(DPS_DUAL_CORE.contains(from), "{from}");
            let text = DPS_DUAL_CORE.replacen(from, to, 1);
            let line = text.lines().position(|line| line.starts_with(to)).unwrap() + 1;
            let error = DualMachine::from_toml(&text).unwrap_err().to_string();
            assert!(
                error
                    .replace(": ", ":")
                    .starts_with(&format!("{line}{}", expected.replace(": ", ":"))),
                "{error}"
            );
        }
        assert_eq!(DualMachine::from_toml(DPS_DUAL_CORE), Ok(DualMachine::dps_dual_core()));
    }
}
