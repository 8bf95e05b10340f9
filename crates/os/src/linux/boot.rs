//! Identity of this boot, and origin of its clocks.

use std::fs;

/// The id that the kernel draws at random at each boot (`random(4)`); `None` where the kernel does not provide it.
pub fn boot_id() -> Option<String> {
    let found = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    let id = found.trim();
    (!id.is_empty()).then(|| id.to_owned())
}

/// A name for the origin of this process's instants: two processes with the same name agree on the meaning of an
/// instant. It consists of the boot id and the offsets of the time namespace (`time_namespaces(7)`). `None` where the
/// kernel does not provide them, and for a process that is about to put its children into another time namespace,
/// because the kernel then shows the children's offsets.
pub fn clock_origin() -> Option<String> {
    let boot = boot_id()?;
    let own = fs::read_link("/proc/self/ns/time");
    let of_children = fs::read_link("/proc/self/ns/time_for_children");
    match (own, of_children) {
        (Ok(own), Ok(of_children)) if own == of_children => {
            let offsets = fs::read_to_string("/proc/self/timens_offsets").ok()?;
            let words: Vec<&str> = offsets.split_whitespace().collect();
            Some(format!("{boot} {}", words.join(" ")))
        }
        (Ok(_), _) => None,
        (Err(_), _) => Some(boot), // a kernel without time namespaces
    }
}
