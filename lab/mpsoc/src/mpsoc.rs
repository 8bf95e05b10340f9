//! The machine of the fourth paper, from a file: power over the clock as a curve; the clock steps are not known.

use punctual_allocation::mapping::{ClockStep, Cores, Domain, MoveCost};
use punctual_units::Hertz;
use rand::RngExt;

use super::cores::Thermal;
use punctual_sim::{ModelError, read_file, require, shipped};
use punctual_toml::Section;

const MPSOC: &str = include_str!("../../../machines/mpsoc.toml");

/// Bound on the steps of a clock grid.
const GRID_STEPS_MAX: u32 = 32;

/// A machine whose cores have clocks of their own.
#[derive(Clone, Debug, Default, PartialEq)]
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
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Recreation {
    /// Cycles for each move.
    pub offset_cycles: f64,
    /// Cycles for each byte of state.
    pub cycles_per_byte: f64,
}

/// Work of each run of the paper's slave and master daemons.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
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
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Checkpoint {
    /// Cycles if no move was ordered.
    pub cycles: f64,
}

impl Mpsoc {
    /// The fourth paper's machine: `machines/mpsoc.toml`.
    pub fn paper() -> Mpsoc {
        shipped(Mpsoc::from_toml(MPSOC, "mpsoc.toml"))
    }

    /// Reads a machine from the text of its file, and checks it; `shown` is the file's name.
    ///
    /// # Errors
    /// One line per fault: file, line, key, remedy.
    pub fn from_toml(text: &str, shown: &str) -> Result<Mpsoc, Vec<String>> {
        read_file(text, shown, Mpsoc::read, Mpsoc::faults)
    }

    fn read(top: &mut Section<'_, '_>) -> Mpsoc {
        let mut machine = Mpsoc {
            name: top.needed("name", Section::text),
            cores: top.needed("cores", Section::count),
            least_mhz: top.needed("least-mhz", Section::count),
            scaled_from_mhz: top.needed("scaled-from-mhz", Section::count),
            top_mhz: top.needed("top-mhz", Section::count),
            grid_steps: top.pair("grid-steps", Section::counts),
            ..Mpsoc::default()
        };
        machine.replication.bytes_min = top.table("replication", |it| it.needed("bytes-min", Section::count));
        machine.thermal.ambient_celsius = top.number_at("thermal.ambient-celsius", None);
        for (key, value) in machine.quantities() {
            *value = top.number_at(key, None);
        }
        machine
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
        let most = punctual_allocation::mapping::CORES_MAX;
        let what = format!("must lie between 1 and {most}");
        require((1..=most).contains(&self.cores), "cores", &what);
        let ordered =
            0 < self.least_mhz && self.least_mhz < self.scaled_from_mhz && self.scaled_from_mhz < self.top_mhz;
        let what = "must be above scaled-from-mhz, which must be above least-mhz, and at most 100000";
        require(ordered && self.top_mhz <= 100_000, "top-mhz", what);
        let [fewest, many] = self.grid_steps;
        let is_range = 2 <= fewest && fewest <= many && many <= GRID_STEPS_MAX;
        let what = format!("the fewest and the most steps, from 2 to {GRID_STEPS_MAX}");
        require(is_range, "grid-steps", &what);
        let apart = !ordered || !is_range || self.top_mhz - self.least_mhz > u64::from(many);
        require(
            apart,
            "grid-steps",
            "there are not as many whole megahertz in the range",
        );
        for (key, value) in self.clone().quantities() {
            let is_above_0 = key == "top-watts" || key.starts_with("thermal.");
            let (is_enough, what) = match is_above_0 {
                true => (*value > 0.0, "must be above 0 and at most 1e12"),
                false => (*value >= 0.0, "must lie between 0 and 1e12"),
            };
            require(is_enough && *value <= 1e12, key, what);
        }
        let is_ambient = (-273.0..=1000.0).contains(&self.thermal.ambient_celsius);
        require(is_ambient, "thermal.ambient-celsius", "must lie between -273 and 1000");
        faults
    }

    /// Every coefficient with its key in the file, except for the temperature around the machine.
    fn quantities(&mut self) -> [(&'static str, &mut f64); 12] {
        let (copied, anew, daemon) = (&mut self.replication, &mut self.recreation, &mut self.daemon);
        [
            ("top-watts", &mut self.top_watts),
            ("thermal.kelvin-per-watt", &mut self.thermal.kelvin_per_watt),
            ("thermal.tau-seconds", &mut self.thermal.tau_seconds),
            ("replication.constant-cycles", &mut copied.constant_cycles),
            ("replication.cycles-per-byte", &mut copied.cycles_per_byte),
            ("recreation.offset-cycles", &mut anew.offset_cycles),
            ("recreation.cycles-per-byte", &mut anew.cycles_per_byte),
            ("daemon.slave-cycles", &mut daemon.slave_cycles),
            ("daemon.slave-cycles-per-task", &mut daemon.slave_cycles_per_task),
            ("daemon.master-cycles", &mut daemon.master_cycles),
            ("daemon.master-cycles-per-task", &mut daemon.master_cycles_per_task),
            ("checkpoint.cycles", &mut self.checkpoint.cycles),
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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rand::SeedableRng;
    use rand_chacha::ChaCha8Rng;

    #[test]
    fn the_papers_two_powers_lie_on_the_curve() {
        let machine = Mpsoc::from_toml(MPSOC, "x").unwrap();
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
            ("bytes-min = 65536", "bytes = 1", "replication.bytes: unknown key"),
            (
                "slave-cycles = 500",
                "slave-cycles = -1",
                "daemon.slave-cycles: must lie",
            ),
        ] {
            assert!(MPSOC.contains(from), "{from}");
            let text = MPSOC.replacen(from, to, 1);
            let line = text.lines().position(|line| line.starts_with(to)).unwrap() + 1;
            let errors = Mpsoc::from_toml(&text, "x").unwrap_err();
            let expected = format!("x:{line}: {expected}");
            assert!(errors.iter().any(|error| error.starts_with(&expected)), "{errors:?}");
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
