//! Suggestions for misspelt keys.

/// Largest number of edits (insert, delete, replace, swap of neighbours) between similar keys.
const ALIKE_EDITS: usize = 2;

/// Hint for an unknown `key`: the most similar valid keys, else those of the same table.
pub fn nearest(key: &str, known: &[String]) -> String {
    let (table, leaf) = split(key);
    let alike = |candidate: &'_ String| {
        let (of, name) = split(candidate);
        let (edits, is_elsewhere) = (edits(leaf, name), of != table);
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

/// Optimal string alignment distance: edits that turn `a` into `b`, with no part edited twice.
fn edits(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut rows = vec![vec![0; b.len() + 1]; a.len() + 1];
    for i in 0..=a.len() {
        for j in 0..=b.len() {
            rows[i][j] = if i == 0 || j == 0 {
                i + j
            } else {
                let replaced = rows[i - 1][j - 1] + usize::from(a[i - 1] != b[j - 1]);
                let mut least = replaced.min(rows[i - 1][j] + 1).min(rows[i][j - 1] + 1);
                if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                    least = least.min(rows[i - 2][j - 2] + 1);
                }
                least
            };
        }
    }
    rows[a.len()][b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

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

    proptest! {
        #[test]
        fn edits_are_a_distance(a in "[ab]{0,6}", b in "[ab]{0,6}") {
            prop_assert_eq!(edits(&a, &b), edits(&b, &a));
            prop_assert_eq!(edits(&a, &b) == 0, a == b);
            prop_assert!(edits(&a, &b) <= a.len().max(b.len()));
        }
    }
}
