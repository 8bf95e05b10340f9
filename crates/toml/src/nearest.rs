//! Suggestions for misspelt keys.

use strsim::osa_distance;

/// Largest number of edits (insert, delete, replace, swap of neighbours) between similar keys.
const ALIKE_EDITS: usize = 2;

/// Hint for an unknown `key`: the most similar valid keys, else those of the same table.
pub fn nearest(key: &str, known: &[String]) -> String {
    let (table, leaf) = split(key);
    let alike = |candidate: &'_ String| {
        let (of, name) = split(candidate);
        let (edits, is_elsewhere) = (osa_distance(leaf, name), of != table);
        // A short key is within two edits of many others; in another table, only an equal name is a good guess.
        let is_alike = edits == 0 || (!is_elsewhere && edits <= ALIKE_EDITS && edits < name.chars().count());
        is_alike.then(|| (edits, is_elsewhere, candidate.clone()))
    };
    let mut candidates: Vec<(usize, bool, String)> = known.iter().filter_map(alike).collect();
    candidates.sort();
    candidates.dedup();
    if !candidates.is_empty() {
        let names: Vec<String> = candidates.into_iter().take(3).map(|(.., name)| name).collect();
        return format!("did you mean {}?", names.join(" or "));
    }
    let keys_of = |table: &str| -> Vec<&str> {
        let keys = known.iter().map(|known| split(known));
        keys.filter(|(of, _)| *of == table).map(|(_, name)| name).collect()
    };
    match keys_of(table) {
        siblings if table.is_empty() || siblings.is_empty() => format!("the file knows {}", keys_of("").join(", ")),
        siblings => format!("{table} knows {}", siblings.join(", ")),
    }
}

/// Table, empty for the top, and name of a key.
fn split(key: &str) -> (&str, &str) {
    key.rsplit_once('.').unwrap_or(("", key))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known() -> Vec<String> {
        [
            "name",
            "seed",
            "goal",
            "goal.tardiness",
            "goal.drr",
            "task[0].period",
            "task[0].pause",
            "task[0].name",
        ]
        .map(String::from)
        .to_vec()
    }

    #[test]
    fn the_nearest_keys_are_named() {
        assert_eq!(nearest("goal.tardines", &known()), "did you mean goal.tardiness?");
        assert_eq!(nearest("tardiness", &known()), "did you mean goal.tardiness?");
        assert_eq!(nearest("task[0].perdio", &known()), "did you mean task[0].period?");
        assert_eq!(nearest("goal.speed", &known()), "goal knows tardiness, drr");
        assert_eq!(nearest("volume", &known()), "the file knows name, seed, goal");
        assert_eq!(nearest("gaol.min", &known()), "the file knows name, seed, goal");
    }
}
