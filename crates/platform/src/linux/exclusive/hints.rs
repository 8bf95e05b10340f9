//! Improvements for a core that the kernel's command line could bring.

use punctual_units::CoreId;

use super::super::{KernelTree, cores, refused};
use super::list;
use crate::Refusal;

/// Names the interruptions of `exclusive` cores that boot parameters could still prevent: the timer's tick while one
/// thread runs there, and callbacks of RCU. `None` if they do so already.
///
/// `nohz_full` also moves the callbacks (Documentation/timers/no_hz.rst), `rcu_nocbs` moves them alone.
pub fn quieter(tree: &KernelTree, exclusive: &[CoreId]) -> Option<Refusal> {
    let tickless = tree.read("/sys/devices/system/cpu/nohz_full");
    let line = tree.text("/proc/cmdline");
    let covered = cores::parse_list(tickless.as_deref().unwrap_or_default());
    let open: Vec<CoreId> = exclusive
        .iter()
        .copied()
        .filter(|core| !covered.contains(core))
        .collect();
    if open.is_empty() {
        return None;
    }
    let cores = list(&open);
    let callbacks = match elsewhere(&line, &open) {
        true => "callbacks of RCU run elsewhere",
        false => "callbacks of RCU may run there",
    };
    let remedy = match tickless {
        Ok(_) => format!("put nohz_full={cores} rcu_nocbs={cores} on the kernel's command line"),
        Err(_) => format!(
            "this kernel has no nohz_full (CONFIG_NO_HZ_FULL); on one that has it, put nohz_full={cores} \
             rcu_nocbs={cores} on its command line"
        ),
    };
    let why = format!("the kernel was booted without nohz_full for it; {callbacks}");
    Some(refused(format!("core {cores} without timer tick"), why, remedy))
}

/// Whether the command line moves callbacks of RCU off all of these cores.
fn elsewhere(line: &str, exclusive: &[CoreId]) -> bool {
    let value = line.split_whitespace().find_map(|word| word.strip_prefix("rcu_nocbs="));
    let moved = value.map(|value| (value == "all", cores::parse_list(value)));
    moved.is_some_and(|(all, moved)| all || exclusive.iter().all(|core| moved.contains(core)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::linux::testing;

    fn hint(tickless: Option<&str>, line: &str) -> Option<String> {
        let mut files = vec![("/proc/cmdline", line)];
        files.extend(tickless.map(|list| ("/sys/devices/system/cpu/nohz_full", list)));
        let (_folder, tree) = testing::tree(&files);
        quieter(&tree, &[CoreId(3), CoreId(2)]).map(|refusal| refusal.to_string())
    }

    #[test]
    fn what_to_put_on_the_command_line_is_said_in_one_line_and_only_where_it_helps() {
        let said = hint(Some(" (null)"), "quiet ro").unwrap();
        assert!(said.contains("put nohz_full=2-3 rcu_nocbs=2-3"), "{said}");
        assert!(said.contains("may run there") && !said.contains('\n'), "{said}");
        let said = hint(Some("2"), "rcu_nocbs=2-3").unwrap();
        assert!(said.contains("nohz_full=3") && said.contains("run elsewhere"), "{said}");
        assert!(hint(None, "").unwrap().contains("CONFIG_NO_HZ_FULL"));
        assert_eq!(hint(Some("1-3"), "nohz_full=1-3"), None);
    }
}
