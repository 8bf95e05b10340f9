//! The machine model, read from a file: cores, which of them are exclusive, quantum, switch and cache.

use punctual_sim::{CORES_MAX, ModelError, read_file, require, shipped};
use punctual_toml::Section;
use punctual_units::{CoreId, Nanos};

use super::list::check_cores;

const DPS_DUAL_CORE: &str = include_str!("../../../../machines/dps-dual-core.toml");

/// Limit of the quantum and of a context switch, in microseconds: a second.
const SPAN_MAX_US: f64 = 1e6;
/// Limit of `cache_step_pages`: 64 GiB in pages of 4 KiB.
const CACHE_STEP_MAX: u32 = 1 << 24;

/// A machine with exclusive cores for real-time tasks.
#[derive(Clone, Debug, PartialEq)]
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
        shipped(DualMachine::from_toml(DPS_DUAL_CORE, "dps-dual-core.toml"))
    }

    /// Reads a machine from the text of its file, and checks it; `shown` is the file's name.
    ///
    /// # Errors
    /// One line per fault: file, line, key, remedy.
    ///
    /// ```
    /// use punctual_evaluation::dual::DualMachine;
    /// let text = include_str!("../../../../machines/dps-dual-core.toml");
    /// let text = text.replace("exclusive = [1]", "exclusive = [2]");
    /// let errors = DualMachine::from_toml(&text, "x.toml").unwrap_err();
    /// assert!(errors[0].contains("exclusive: there is no core 2: the machine has cores 0 to 1"));
    /// ```
    pub fn from_toml(text: &str, shown: &str) -> Result<DualMachine, Vec<String>> {
        read_file(text, shown, DualMachine::read, DualMachine::faults)
    }

    fn read(top: &mut Section<'_, '_>) -> DualMachine {
        let exclusive: Vec<u32> = top.needed("exclusive", Section::counts);
        DualMachine {
            name: top.needed("name", Section::text),
            cores: top.needed("cores", Section::count),
            exclusive: exclusive.into_iter().map(CoreId).collect(),
            quantum_us: top.needed("quantum-us", Section::number),
            switch_us: top.needed("switch-us", Section::number),
            cache_step_pages: top.needed("cache-step-pages", Section::count),
        }
    }

    /// Checks that the machine can be simulated.
    ///
    /// # Errors
    /// [`ModelError`] names the first key that is out of range.
    pub fn check(&self) -> Result<(), ModelError> {
        self.faults().into_iter().next().map_or(Ok(()), Err)
    }

    /// All keys that are out of range.
    fn faults(&self) -> Vec<ModelError> {
        let mut faults = Vec::new();
        let mut require = |holds, key: &str, what: &str| require(&mut faults, holds, key, what);
        let has_cores = (2..=CORES_MAX).contains(&self.cores);
        let what = format!("must lie between 2 and {CORES_MAX}: one to be exclusive, one for the rest");
        require(has_cores, "cores", &what);
        let error = check_cores(&self.exclusive, self.cores).err().filter(|_| has_cores);
        let what = error.as_ref().map(ToString::to_string).unwrap_or_default();
        require(error.is_none(), "exclusive", &what);
        let is_span = self.quantum_us > 0.0 && self.quantum_us <= SPAN_MAX_US;
        require(is_span, "quantum-us", "must be above 0 and at most a second");
        let is_span = self.switch_us >= 0.0 && self.switch_us <= SPAN_MAX_US;
        require(is_span, "switch-us", "must be at least 0 and at most a second");
        let what = format!("a cache has at least one page, and at most {CACHE_STEP_MAX} in a step");
        let is_step = (1..=CACHE_STEP_MAX).contains(&self.cache_step_pages);
        require(is_step, "cache-step-pages", &what);
        faults
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
            ("cores = 2", "cores = 1", "cores: must lie between 2 and 64"),
            ("exclusive = [1]", "exclusive = [7]", "exclusive: there is no core 7"),
            ("exclusive = [1]", "exclusive = [0, 1]", "exclusive: all 2 cores "),
            ("exclusive = [1]", "exclusive = []", "exclusive: no core is named"),
            ("quantum-us = 1000", "quantum-us = 0", "quantum-us: must be above 0"),
            ("switch-us = 15", "switch-us = -1", "switch-us: must be at least 0"),
            ("cache-step-pages = 1000", "cache-step-pages = 0", "cache-step-pages: "),
        ] {
            assert!(DPS_DUAL_CORE.contains(from), "{from}");
            let text = DPS_DUAL_CORE.replacen(from, to, 1);
            let line = text.lines().position(|line| line.starts_with(to)).unwrap() + 1;
            let errors = DualMachine::from_toml(&text, "x").unwrap_err().join("\n");
            assert!(errors.starts_with(&format!("x:{line}: {expected}")), "{errors}");
        }
        assert_eq!(
            DualMachine::from_toml(DPS_DUAL_CORE, "x"),
            Ok(DualMachine::dps_dual_core())
        );
    }
}
