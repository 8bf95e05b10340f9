//! The machine of the fourth paper, from a file: power over the clock as a curve; the clock steps are not known.

use punctual_allocation::mapping::{ClockStep, Cores, Domain, MoveCost};
use punctual_units::Hertz;
use rand::RngExt;
use serde::{Deserialize, Serialize};

use super::cores::Thermal;
use punctual_sim::{MachineFileError, ModelError, read_file};

const MPSOC: &str = include_str!("../../../machines/mpsoc.toml");

/// Bound on the steps of a clock grid.
const GRID_STEPS_MAX: u32 = 32;

/// A machine whose cores have clocks of their own.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Mpsoc {
    /// Name for messages and reports.
    pub name: String,
    /// Number of cores, 1 to 8.
    pub cores: usize,
    /// Lowest clock, in megahertz.
    pub least_mhz: u64,
    /// Clock from which on the voltage rises with the clock, in megahertz.
    pub scaled_from_mhz: u64,
    /// Highest clock, in megahertz.
    pub top_mhz: u64,
    /// Power of a core that works at the highest clock, in watts.
    pub top_watts: f64,
    /// Least and largest number of clock steps; the true number is not known.
    pub grid_steps: [u32; 2],
    /// Cost of moving a task of which every core has a replica.
    pub replication: MoveCost,
    /// Additional cost of ending a task and starting it anew.
    pub recreation: Recreation,
    /// Work of each run of the daemons.
    pub daemon: DaemonModel,
    /// Work of tasks at the end of each frame.
    pub checkpoint: Checkpoint,
    /// Thermal model of the cores.
    pub thermal: Thermal,
}

/// Additional cost of moving a task by recreation, beyond that with a replica.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Recreation {
    /// Cycles for each move.
    pub offset_cycles: f64,
    /// Cycles for each byte of state.
    pub cycles_per_byte: f64,
}

/// Work of each run of the paper's slave and master daemons.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct DaemonModel {
    /// Cycles of the slave daemon of each core.
    pub slave_cycles: f64,
    /// Additional cycles for each task.
    pub slave_cycles_per_task: f64,
    /// Cycles of the master daemon.
    pub master_cycles: f64,
    /// Additional cycles for each task.
    pub master_cycles_per_task: f64,
}

/// Work of a checkpoint at the end of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Checkpoint {
    /// Cycles if no move was ordered.
    pub cycles: f64,
}

impl Mpsoc {
    /// The fourth paper's machine: `machines/mpsoc.toml`.
    pub fn paper() -> Mpsoc {
        match Mpsoc::from_toml(MPSOC) {
            Ok(machine) => machine,
            // A file that came with the program; a test reads it.
            Err(error) => unreachable!("a shipped machine file is unsound: {error}"),
        }
    }

    /// Reads a machine from the text of its file, and checks it.
    ///
    /// # Errors
    /// [`MachineFileError`] for the first fault; put the file's name and a colon before the message.
    pub fn from_toml(text: &str) -> Result<Mpsoc, MachineFileError> {
        read_file(text, "machine", Mpsoc::check)
    }

    /// Checks that the machine can be simulated.
    ///
    /// # Errors
    /// [`ModelError`] names the first key that is out of range.
    pub fn check(&self) -> Result<(), ModelError> {
        let most = punctual_allocation::mapping::CORES_MAX;
        require(
            (1..=most).contains(&self.cores),
            "cores",
            &format!("must lie between 1 and {most}"),
        )?;
        let ordered =
            0 < self.least_mhz && self.least_mhz < self.scaled_from_mhz && self.scaled_from_mhz < self.top_mhz;
        require(
            ordered && self.top_mhz <= 100_000,
            "top-mhz",
            "must be above scaled-from-mhz, which must be above least-mhz, and at most 100000",
        )?;
        let [fewest, many] = self.grid_steps;
        require(
            2 <= fewest && fewest <= many && many <= GRID_STEPS_MAX,
            "grid-steps",
            &format!("the fewest and the most steps, from 2 to {GRID_STEPS_MAX}"),
        )?;
        let apart = self.top_mhz - self.least_mhz > u64::from(many);
        require(
            apart,
            "grid-steps",
            "there are not as many whole megahertz in the range",
        )?;
        for (key, value) in self.positive() {
            require(value > 0.0 && value <= 1e12, key, "must be above 0 and at most 1e12")?;
        }
        for (key, value) in self.amounts() {
            require((0.0..=1e12).contains(&value), key, "must lie between 0 and 1e12")?;
        }
        require(
            (-273.0..=1000.0).contains(&self.thermal.ambient_celsius),
            "thermal.ambient-celsius",
            "must lie between -273 and 1000",
        )
    }

    fn positive(&self) -> [(&'static str, f64); 3] {
        [
            ("top-watts", self.top_watts),
            ("thermal.kelvin-per-watt", self.thermal.kelvin_per_watt),
            ("thermal.tau-seconds", self.thermal.tau_seconds),
        ]
    }

    fn amounts(&self) -> [(&'static str, f64); 9] {
        [
            ("replication.constant-cycles", self.replication.constant_cycles),
            ("replication.cycles-per-byte", self.replication.cycles_per_byte),
            ("recreation.offset-cycles", self.recreation.offset_cycles),
            ("recreation.cycles-per-byte", self.recreation.cycles_per_byte),
            ("daemon.slave-cycles", self.daemon.slave_cycles),
            ("daemon.slave-cycles-per-task", self.daemon.slave_cycles_per_task),
            ("daemon.master-cycles", self.daemon.master_cycles),
            ("daemon.master-cycles-per-task", self.daemon.master_cycles_per_task),
            ("checkpoint.cycles", self.checkpoint.cycles),
        ]
    }

    /// Power of a core that works at this clock, in watts: cubic from `scaled_from_mhz` on, linear below.
    pub fn watts(&self, mhz: u64) -> f64 {
        let cubic = |mhz: u64| self.top_watts * (mhz as f64 / self.top_mhz as f64).powi(3);
        match mhz < self.scaled_from_mhz {
            true => cubic(self.scaled_from_mhz) * mhz as f64 / self.scaled_from_mhz as f64,
            false => cubic(mhz),
        }
    }

    /// The cores with these clocks. A core that is on draws the same power idle as working; the low-power state draws
    /// none.
    pub fn with_clocks(&self, mhz: &[u64]) -> Cores {
        let step = |mhz: &u64| ClockStep {
            clock: Hertz::from_mhz(*mhz),
            busy_watts: self.watts(*mhz),
            idle_watts: self.watts(*mhz),
        };
        let domain = Domain {
            cores: 1,
            steps: mhz.iter().map(step).collect(),
        };
        Cores {
            domains: vec![domain; self.cores],
            low_power_watts: 0.0,
        }
    }

    /// Clocks from the lowest to the highest in even steps, in megahertz.
    pub fn even_grid(&self, steps: u32) -> Vec<u64> {
        let span = (self.top_mhz - self.least_mhz) as f64;
        let last = f64::from(steps.max(2) - 1);
        let at = |step: u32| self.least_mhz + (span * f64::from(step) / last).round() as u64;
        (0..steps.max(2)).map(at).collect()
    }

    /// The lowest and the highest clock, and random ones between them; the number of clocks is drawn from `grid_steps`.
    pub fn random_grid(&self, random: &mut impl rand::Rng) -> Vec<u64> {
        let [fewest, most] = self.grid_steps;
        let count = random.random_range(fewest..=most) as usize;
        let mut clocks = vec![self.least_mhz, self.top_mhz];
        while clocks.len() < count {
            let next = random.random_range(self.least_mhz + 1..self.top_mhz);
            if !clocks.contains(&next) {
                clocks.push(next);
            }
        }
        clocks.sort_unstable();
        clocks
    }

    /// Cost of moving a task that is recreated.
    pub fn recreated(&self) -> MoveCost {
        MoveCost {
            constant_cycles: self.replication.constant_cycles + self.recreation.offset_cycles,
            cycles_per_byte: self.replication.cycles_per_byte + self.recreation.cycles_per_byte,
            ..self.replication
        }
    }
}

fn require(sound: bool, key: &str, what: &str) -> Result<(), ModelError> {
    match sound {
        true => Ok(()),
        false => Err(ModelError {
            key: key.into(),
            what: what.into(),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rand::SeedableRng;
    use rand_chacha::ChaCha8Rng;

    #[test]
    fn the_papers_two_powers_lie_on_the_curve() {
        let machine = Mpsoc::from_toml(MPSOC).unwrap();
        assert_eq!(machine, Mpsoc::paper());
        assert_eq!(machine.watts(496), 1.0);
        assert!((machine.watts(100) - 0.084).abs() < 0.0005, "{}", machine.watts(100));
        assert!((machine.watts(319) / machine.watts(320) - 319.0 / 320.0).abs() < 1e-12);
    }

    #[test]
    fn each_fault_names_line_and_key() {
        for (from, to, expected) in [
            ("cores = 3", "cores = 9", "cores: must lie between 1 and 8"),
            (
                "top-mhz = 496",
                "top-mhz = 300",
                "top-mhz: must be above scaled-from-mhz",
            ),
            ("grid-steps = [3, 9]", "grid-steps = [9, 3]", "grid-steps: the fewest"),
            (
                "tau-seconds = 2",
                "tau-seconds = 0",
                "thermal.tau-seconds: must be above 0",
            ),
            (
                "bytes-min = 65536",
                "bytes = 1",
                "replication.bytes: unknown field `bytes`",
            ),
            (
                "slave-cycles = 500",
                "slave-cycles = -1",
                "daemon.slave-cycles: must lie",
            ),
        ] {
            assert!(MPSOC.contains(from), "{from}");
            let text = MPSOC.replacen(from, to, 1);
            let line = text.lines().position(|line| line.starts_with(to)).unwrap() + 1;
            let error = Mpsoc::from_toml(&text).unwrap_err().to_string();
            assert!(error.starts_with(&format!("{line}: {expected}")), "{error}");
        }
    }

    proptest! {
        #[test]
        fn grids_are_ascending_and_have_both_ends(seed in any::<u64>(), steps in 3u32..=9) {
            let machine = Mpsoc::paper();
            let random = machine.random_grid(&mut ChaCha8Rng::seed_from_u64(seed));
            for grid in [random, machine.even_grid(steps)] {
                prop_assert!(grid.windows(2).all(|pair| pair[0] < pair[1]), "seed {seed}: {grid:?}");
                prop_assert_eq!((grid[0], grid[grid.len() - 1]), (100, 496), "seed {}", seed);
                prop_assert!((3..=9).contains(&grid.len()), "seed {seed}: {grid:?}");
            }
        }
    }
}
