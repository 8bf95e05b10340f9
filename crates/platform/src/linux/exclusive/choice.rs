//! Cores that may become exclusive, and the order in which they are taken.

use punctual_units::CoreId;

use super::super::{KernelTree, cores, refused};
use super::list;
use crate::{CoreChoice, Refusal};

/// The cores that may become exclusive on this machine, in the order in which they are taken: isolated ones first, then
/// by descending number.
///
/// # Errors
/// [`Refusal`] if a wanted core does not exist, none is isolated, or none would be left to others.
pub fn candidates(tree: &KernelTree, choice: &CoreChoice) -> Result<Vec<CoreId>, Refusal> {
    chosen(choice, &cores::usable(tree), &cores::isolated(tree))
}

fn chosen(choice: &CoreChoice, usable: &[CoreId], isolated: &[CoreId]) -> Result<Vec<CoreId>, Refusal> {
    let refusal = |why: String, remedy: &str| Err(refused("choosing exclusive cores", why, remedy));
    let asked = match choice {
        CoreChoice::Any => usable,
        CoreChoice::These(cores) => cores,
        CoreChoice::Isolated => isolated,
    };
    if asked.is_empty() {
        let remedy = "boot with isolcpus=<cores>, or name cores";
        return refusal("the kernel was booted to keep no core free".into(), remedy);
    }
    if let Some(missing) = asked.iter().find(|core| !usable.contains(core)) {
        let why = format!("there is no core {missing}; this process may use {}", list(usable));
        return refusal(why, "name some of these");
    }
    if *choice != CoreChoice::Any && usable.iter().all(|core| asked.contains(core)) {
        let why = format!("{} are all cores that this process may use", list(asked));
        return refusal(why, "leave at least one to other work");
    }
    let mut cores = asked.to_vec();
    cores.sort_unstable_by_key(|core| std::cmp::Reverse((isolated.contains(core), *core)));
    cores.dedup();
    Ok(cores)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(choice: &CoreChoice, usable: &str, isolated: &str) -> Result<String, Refusal> {
        let chosen = chosen(choice, &cores::parse_list(usable), &cores::parse_list(isolated))?;
        Ok(chosen.iter().map(CoreId::to_string).collect::<Vec<_>>().join(" "))
    }

    fn these(cores: &[u32]) -> CoreChoice {
        CoreChoice::These(cores.iter().copied().map(CoreId).collect())
    }

    #[test]
    fn isolated_cores_come_first_then_the_last_ones() {
        assert_eq!(of(&CoreChoice::Any, "0-3", "").unwrap(), "3 2 1 0");
        assert_eq!(of(&CoreChoice::Any, "0-5", "1-2").unwrap(), "2 1 5 4 3 0");
        assert_eq!(of(&CoreChoice::Isolated, "0-5", "1-2").unwrap(), "2 1");
        assert_eq!(of(&these(&[1, 3, 1]), "0-3", "1").unwrap(), "1 3");
    }

    #[test]
    fn what_the_machine_does_not_have_is_refused_in_words() {
        let why = |choice: &CoreChoice| of(choice, "0-3", "").unwrap_err().to_string();
        assert!(why(&these(&[2, 7])).contains("no core 7"));
        assert!(why(&these(&[0, 1, 2, 3])).contains("all cores"));
        assert!(why(&CoreChoice::Isolated).contains("isolcpus"));
    }
}
