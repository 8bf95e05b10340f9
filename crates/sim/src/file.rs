//! Machine files: read TOML and return a sound [`MachineModel`], or all faults with their lines and keys.
//!
//! The shipped machines are files, too (`machines/` in the project's folder); their text is part of the program.

use punctual_toml::{Section, read_checked};
use punctual_units::Hertz;

use crate::check::ModelError;
use crate::model::{ClockStep, MachineModel};

const EXYNOS5422_A15: &str = include_str!("../machines/exynos5422-a15.toml");
const EXYNOS5422_DUO: &str = include_str!("../machines/exynos5422-duo.toml");

/// Highest clock of a step, in megahertz.
const MHZ_MAX: u64 = 1_000_000;

impl MachineModel {
    /// Four Cortex-A15 cores of the Exynos 5422 (Odroid-XU3), the first paper's board with its A7 cores off:
    /// `machines/exynos5422-a15.toml`, which names the source of each number.
    pub fn exynos5422_a15() -> MachineModel {
        shipped(MachineModel::from_toml(EXYNOS5422_A15, "exynos5422-a15.toml"))
    }

    /// Two cores of that machine: one real-time core and one neighbour.
    pub fn duo() -> MachineModel {
        shipped(MachineModel::from_toml(EXYNOS5422_DUO, "exynos5422-duo.toml"))
    }

    /// Reads a machine from the text of its file, and checks it; `shown` is the file's name.
    ///
    /// # Errors
    /// One line per fault: file, line, key, remedy.
    ///
    /// ```
    /// use punctual_sim::MachineModel;
    /// let text = include_str!("../machines/exynos5422-a15.toml");
    /// assert_eq!(MachineModel::from_toml(text, "x.toml")?, MachineModel::exynos5422_a15());
    ///
    /// let misspelt = text.replace("lines-per-miss", "lines-per-mis");
    /// let errors = MachineModel::from_toml(&misspelt, "x.toml").unwrap_err();
    /// assert!(errors[1].ends_with("cache.lines-per-mis: unknown key; did you mean cache.lines-per-miss?"));
    /// # Ok::<(), Vec<String>>(())
    /// ```
    pub fn from_toml(text: &str, shown: &str) -> Result<MachineModel, Vec<String>> {
        read(text, shown, machine, MachineModel::faults)
    }
}

/// Reads a file of the project from its text, and checks it; `shown` is its name.
///
/// # Errors
/// One line per fault: file, line, key, remedy.
pub fn read<T>(
    text: &str,
    shown: &str,
    read: impl FnOnce(&mut Section<'_, '_>) -> T,
    faults: impl FnOnce(&T) -> Vec<ModelError>,
) -> Result<T, Vec<String>> {
    let pair = |fault: ModelError| (fault.key, fault.what);
    read_checked(text, shown, read, |model| faults(model).into_iter().map(pair))
}

/// Result of reading a file that came with the program; a fault in it is the program's, so a test reads them all.
pub fn shipped<T>(read: Result<T, Vec<String>>) -> T {
    read.unwrap_or_else(|faults| unreachable!("a shipped file is unsound: {}", faults.join("; ")))
}

fn machine(top: &mut Section<'_, '_>) -> MachineModel {
    let mut model = MachineModel::bare(&top.needed("name", Section::text), top.needed("cores", Section::count));
    model.steps = top.tables("steps", |step| ClockStep {
        clock: Hertz::from_mhz(step.needed("mhz", |step, key| step.within(key, 0..=MHZ_MAX))),
        volt: step.needed("volt", Section::number),
    });
    top.table("cache", |cache| {
        model.cache.ways = cache.needed("ways", Section::count);
        model.cache.masks = cache.counts("masks").unwrap_or_default();
    });
    for (key, value) in model.quantities() {
        let is_optional = key == "clock-change-us" || key.ends_with(".uncached");
        *value = top.number_at(key, is_optional.then_some(0.0));
    }
    model
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_shipped_machines_are_sound() {
        for (text, cores) in [(EXYNOS5422_A15, 4), (EXYNOS5422_DUO, 2)] {
            let model = MachineModel::from_toml(text, "x").unwrap();
            assert_eq!((model.steps.len(), model.cores), (19, cores));
        }
        let of_two = MachineModel {
            name: MachineModel::duo().name,
            cores: 2,
            ..MachineModel::exynos5422_a15()
        };
        assert_eq!(MachineModel::duo(), of_two, "the two files differ in nothing else");
    }

    /// The messages for the duo's file with one text replaced by another.
    fn complaint(from: &str, to: &str) -> String {
        assert!(EXYNOS5422_DUO.contains(from), "{from}");
        let text = EXYNOS5422_DUO.replacen(from, to, 1);
        let errors = MachineModel::from_toml(&text, "x").unwrap_err().join("\n");
        let written = text
            .lines()
            .position(|line| line.contains(to))
            .map_or(0, |line| line + 1);
        // The line is checked against where the fault was put, so that the file may change.
        errors.replace(&format!("x:{written}:"), "HERE:")
    }

    #[test]
    fn each_fault_names_line_and_key() {
        for (from, to, expected) in [
            (
                "{ mhz =  400, volt = 0.9 }",
                "{ mhz = 4000, volt = 0.9 }",
                "steps[3].mhz: ",
            ),
            (
                "{ mhz =  400, volt = 0.9 }",
                "{ mhz = 400 }",
                "HERE: steps[2].volt: missing: ",
            ),
            (
                "{ mhz =  400, volt = 0.9 }",
                "{ mhz = 400, volt = -0.9 }",
                "HERE: steps[2].volt: ",
            ),
            (
                "hit-cycles = 21",
                "hit-cycle = 21",
                "HERE: cache.hit-cycle: unknown key; did you mean cache.hit-cycles?",
            ),
            ("cores = 2", "cores = \"two\"", "HERE: cores: expected a whole number"),
            ("cores = 2", "cores = 0", "HERE: cores: must lie between 1 and 64"),
            (
                "locality = 0.5",
                "locality = 0",
                "HERE: cache.locality: must be above 0",
            ),
            (
                "get = { cycles = 500, accesses = 8 }",
                "get = { cycles = 500, access = 8 }",
                "HERE: store.get.access: unknown key; did you mean store.get.accesses?",
            ),
            (
                "[memory]",
                "[memorie]",
                "HERE: memorie: unknown key; did you mean memory?",
            ),
            ("latency-ns = 40", "", "memory.latency-ns: missing: give it a value"),
            ("cores = 2", "cores = ", "HERE: not TOML"),
        ] {
            let found = complaint(from, to);
            assert!(found.contains(expected), "{from} -> {to}: {found}");
        }
    }

    #[test]
    fn all_faults_are_reported_at_once() {
        let text = EXYNOS5422_DUO
            .replace("cores = 2", "cores = 0")
            .replace("ways = 16", "ways = 0");
        let errors = MachineModel::from_toml(&text, "x").unwrap_err();
        assert!(
            errors[0].contains(": cores: must lie") && errors[1].contains(": cache.ways: must lie"),
            "{errors:?}"
        );
        let without = EXYNOS5422_DUO.split("[memory]").next().unwrap();
        let errors = MachineModel::from_toml(without, "x").unwrap_err();
        assert_eq!(
            errors,
            [
                "x: memory: missing: add this table",
                "x: store: missing: add this table"
            ]
        );
    }

    proptest! {
        #[test]
        fn no_text_makes_the_reader_panic(text in ".{0,200}", cut in 0usize..3000) {
            let _ = MachineModel::from_toml(&text, "x");
            let cut = EXYNOS5422_A15.char_indices().map(|(at, _)| at).nth(cut).unwrap_or(0);
            let _ = MachineModel::from_toml(&EXYNOS5422_A15[..cut], "x");
        }
    }
}
