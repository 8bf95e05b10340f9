//! Settings file of a simulated cluster.

use std::path::Path;

use punctual_cluster_sim::ClusterSettings;
use punctual_units::Nanos;
use serde_json::{Value, json};

use punctual_files::document;
use punctual_files::failure::Failure;
use punctual_files::toml::{Section, read_checked};

/// Reads a file; missing keys keep their defaults.
///
/// # Errors
/// [`Failure::Input`] with one line per problem: file, line, key, remedy.
pub fn load(file: &Path) -> Result<ClusterSettings, Failure> {
    document::load(file, "a file of settings", settings)
}

fn settings(text: &str, shown: &str) -> Result<ClusterSettings, Vec<String>> {
    read_checked(text, shown, settings_of, |settings| settings.check().err())
}

fn settings_of(top: &mut Section<'_, '_>) -> ClusterSettings {
    let usual = ClusterSettings::default();
    ClusterSettings {
        nodes: top.count("nodes").unwrap_or(usual.nodes),
        joiners: top.count("joiners").unwrap_or(usual.joiners),
        fronts: top.count("fronts").unwrap_or(usual.fronts),
        clients: top.count("clients").unwrap_or(usual.clients),
        duration: top.time("duration").unwrap_or(usual.duration),
        fault_every: top.time("fault_every").unwrap_or(usual.fault_every),
        loss_per_mille: top.count("loss_per_mille").unwrap_or(usual.loss_per_mille),
        repeat_per_mille: top.count("repeat_per_mille").unwrap_or(usual.repeat_per_mille),
        slow_per_mille: top.count("slow_per_mille").unwrap_or(usual.slow_per_mille),
        unsynced_loss: top.flag("unsynced_loss").unwrap_or(usual.unsynced_loss),
        drift_ppm_max: top.count("drift_ppm_max").unwrap_or(usual.drift_ppm_max),
        log_entries_max: top.count("log_entries_max").unwrap_or(usual.log_entries_max),
        entry_bytes_max: top.count("entry_bytes_max").unwrap_or(usual.entry_bytes_max),
        image_bytes_max: top.count("image_bytes_max").unwrap_or(usual.image_bytes_max),
        restless: top.flag("restless").unwrap_or(usual.restless),
        namesake: top.flag("namesake").unwrap_or(usual.namesake),
        trades: top.flag("trades").unwrap_or(usual.trades),
        log_gone_from: top.time("log_gone_from").or(usual.log_gone_from),
    }
}

/// Seconds, by division of exact nanoseconds, so that 150 ms are 0.15.
fn seconds(span: Nanos) -> f64 {
    span.0 as f64 / 1e9
}

/// The settings as a JSON object.
pub fn document(settings: &ClusterSettings) -> Value {
    json!({
        "nodes": settings.nodes,
        "joiners": settings.joiners,
        "fronts": settings.fronts,
        "clients": settings.clients,
        "duration_s": seconds(settings.duration),
        "fault_every_s": seconds(settings.fault_every),
        "loss_per_mille": settings.loss_per_mille,
        "repeat_per_mille": settings.repeat_per_mille,
        "slow_per_mille": settings.slow_per_mille,
        "unsynced_loss": settings.unsynced_loss,
        "drift_ppm_max": settings.drift_ppm_max,
        "log_entries_max": settings.log_entries_max,
        "entry_bytes_max": settings.entry_bytes_max,
        "image_bytes_max": settings.image_bytes_max,
        "restless": settings.restless,
        "namesake": settings.namesake,
        "trades": settings.trades,
        "log_gone_from_s": settings.log_gone_from.map(seconds),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_says_what_is_not_as_by_default() {
        let read = settings("nodes = 5\nduration = \"4s\"\nunsynced_loss = false\n", "x.toml").unwrap();
        let expected = ClusterSettings {
            nodes: 5,
            duration: Nanos::from_secs(4),
            unsynced_loss: false,
            ..ClusterSettings::default()
        };
        assert_eq!(read, expected);
    }

    #[test]
    fn every_mistake_is_told_with_its_line() {
        let lines = |text| settings(text, "x.toml").unwrap_err();
        let wrong = lines("nodes = 3\nnods = 4\nduration = 4\nclients = -1\n");
        assert_eq!(wrong.len(), 3, "{wrong:?}");
        for (line, place) in wrong.iter().zip(["2: nods", "3: duration", "4: clients"]) {
            assert!(line.starts_with(&format!("x.toml:{place}: ")), "{wrong:?}");
        }
        assert!(
            lines("\nnodes = 0\n")[0].starts_with("x.toml:2: nodes: "),
            "{:?}",
            lines("\nnodes = 0\n")
        );
        assert!(lines("nodes = \n")[0].starts_with("x.toml:1: not TOML"));
    }
}
