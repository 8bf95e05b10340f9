//! Settings that a run changed: of which things, since when, for which tasks, why, and how late these were with them.

use punctual_runtime::report::{NAMED_MAX, SettingReport};

use crate::summary::{counted, percent};

/// Names of the cells of a setting.
pub const COLUMNS: [&str; 7] = ["setting", "now", "before", "since", "for", "why", "late jobs"];
/// Words before each cell in a sentence.
const BEFORE: [&str; 7] = ["", ": ", ", before ", "; since ", ", for ", ": ", "; "];

/// Cells of a setting, as text; some may be empty.
pub fn cells(setting: &SettingReport) -> [String; 7] {
    let (named, further) = setting.of.split_at(setting.of.len().min(NAMED_MAX));
    let mut what = format!("{} {}", setting.what, named.join(", ")).trim_end().to_owned();
    let more = further.len() + setting.more;
    if more > 0 {
        what += &format!(" and {more} more");
    }
    if let Some(refusal) = &setting.refused {
        let mut cells: [String; 7] = Default::default();
        (cells[0], cells[1]) = (what, format!("refused: {}; {}", refusal.why, refusal.remedy));
        return cells;
    }
    let since = match setting.until_s {
        None if setting.since_s.is_infinite() => String::new(),
        None => format!("{:.1} s", setting.since_s),
        Some(until) => format!("{:.1} s, to {until:.1} s", setting.since_s),
    };
    let late = |late: u64, jobs: u64, when: &str| {
        let share = percent(late as f64 / jobs as f64);
        (jobs > 0).then(|| format!("{late} of {} late ({share}) {when}", counted(jobs, "job")))
    };
    let with = late(setting.late_with, setting.jobs_with, "with it");
    let without = late(setting.late_without, setting.jobs_without, "without");
    // Without any to compare with, the figures of the tasks say as much.
    let late = with.zip(without).map(|(with, without)| format!("{with}, {without}"));
    let (now, before) = (setting.now.clone(), setting.before.clone());
    let (tasks, why) = (setting.tasks.join(", "), setting.why.clone());
    [what, now, before, since, tasks, why, late.unwrap_or_default()]
}

/// A setting as a sentence.
pub fn sentence(setting: &SettingReport) -> String {
    let parts = { BEFORE.iter().zip(cells(setting)) }.filter(|(_, cell)| !cell.is_empty());
    parts.map(|(before, cell)| format!("{before}{cell}")).collect()
}
