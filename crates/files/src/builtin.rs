//! Files of the project's folder that the program contains, so that an installed one runs the shipped scenarios
//! anywhere.
//!
//! A file of the user always wins: the program uses these only for a file that is missing on disk.

use std::path::Path;

macro_rules! built_in {
    ($($path:literal),* $(,)?) => {
        &[$(($path, include_bytes!(concat!("../", $path)))),*]
    };
}

/// Path in the project's folder, and content.
const FILES: &[(&str, &[u8])] = built_in![
    "scenarios/fire-rescue.toml",
    "scenarios/robot.toml",
    "scenarios/shared-cache.toml",
    "scenarios/movie.toml",
    "scenarios/vehicle.toml",
    "scenarios/fire-rescue.linux.model.json",
    "scenarios/fire-rescue.sim.model.json",
    "scenarios/shared-cache.sim.model.json",
    "data/profiles/fluidanimate.scaled.csv",
    "data/profiles/ocean.scaled.csv",
    "data/fire/sensors.csv",
    "data/fire/readings.csv.zst",
    // An example, which `crate` of `punctual new` is made of.
    "robot.rs",
];

/// Content of a built-in file, by its path in the project's folder.
pub fn file(path: &str) -> Option<&'static [u8]> {
    FILES.iter().find(|(at, _)| *at == path).map(|(_, content)| *content)
}

/// Paths of the built-in scenarios.
pub fn scenarios() -> impl Iterator<Item = &'static str> {
    let paths = FILES.iter().map(|(path, _)| *path);
    paths.filter(|path| path.starts_with("scenarios/") && path.ends_with(".toml"))
}

/// The built-in scenario that `asked` names: `robot`, `robot.toml` or `scenarios/robot.toml`.
pub fn scenario(asked: &Path) -> Option<&'static str> {
    let asked = asked.to_str()?;
    scenarios().find(|path| {
        let file = path.trim_start_matches("scenarios/");
        [path, file, file.trim_end_matches(".toml")].contains(&asked)
    })
}

/// Text of a built-in file.
pub fn text(path: &str) -> Option<&'static str> {
    std::str::from_utf8(file(path)?).ok()
}

/// The built-in file that a scenario names as `asked`, relative to its own folder (`x.json`, `../data/x.csv`).
pub fn beside_scenarios(asked: &Path) -> Option<(String, &'static [u8])> {
    let asked = asked.to_str()?.trim_start_matches("./");
    let path = match asked.strip_prefix("../") {
        Some(above) => above.to_string(),
        None => format!("scenarios/{asked}"),
    };
    let content = file(&path)?;
    Some((format!("built-in {path}"), content))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scenario_is_found_by_name_file_or_path() {
        for asked in ["robot", "robot.toml", "scenarios/robot.toml"] {
            assert_eq!(scenario(Path::new(asked)), Some("scenarios/robot.toml"), "{asked}");
        }
        for asked in ["", "robot.json", "data/fire/sensors.csv", "fire-rescue.sim.model.json"] {
            assert_eq!(scenario(Path::new(asked)), None, "{asked}");
        }
    }

    #[test]
    fn what_lies_beside_a_scenario_is_found_as_the_scenario_names_it() {
        let shown = |asked: &str| beside_scenarios(Path::new(asked)).map(|(shown, _)| shown);
        let model = "fire-rescue.sim.model.json";
        assert_eq!(shown(model), Some(format!("built-in scenarios/{model}")));
        let profile = "../data/profiles/ocean.scaled.csv";
        assert_eq!(shown(profile), Some("built-in data/profiles/ocean.scaled.csv".into()));
        assert_eq!(shown("../../etc/passwd"), None);
    }

    #[test]
    fn every_scenario_is_text() {
        assert_eq!(scenarios().filter(|path| text(path).is_some()).count(), 5);
    }
}
