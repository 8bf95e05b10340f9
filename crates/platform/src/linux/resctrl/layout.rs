//! Resources that a mounted resctrl divides, with their units and domains.
//!
//! A CPU may have several kinds of ways; one is turned: those of the L3 cache, else of the L2 cache. With code and data
//! apart (mount option `cdp`) both get the same ways. Bandwidth is a percentage, or a multiple of 1/8 GB/s on AMD's
//! processors. Mounted with `mba_MBps` it is a target of the kernel's own feedback instead, which moves it by one step
//! a second, so it is refused.

use std::collections::BTreeMap;
use std::fmt;

use punctual_custody::mounts::Mount;
use punctual_custody::tree::{entries, read_trimmed};
use punctual_units::CoreId;

use super::super::cores::{cpuinfo_field, usable};
use super::super::{KernelTree, refused};
use super::{MOUNT, SCHEMATA};
use crate::Refusal;

/// Most partitions of the bandwidth: finer ones than the fifth paper's bring nothing.
const PARTS_MAX: u32 = 20;
/// Partitions where that many do not divide the units: AMD's bandwidths are powers of two.
const PARTS_BINARY: u32 = 16;

/// Resources of a mounted resctrl.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResctrlLayout {
    /// Upper bound on groups, the default one included.
    pub classes: u32,
    /// Ways of the last cache that has some to divide.
    pub ways: Option<CacheWays>,
    /// Memory bandwidth, or the reason why it is not turned.
    pub bandwidth: Result<Bandwidth, Refusal>,
}

/// Ways of one level of caches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CacheWays {
    /// Names of the resource in `schemata`: two where code and data are apart.
    pub lines: Vec<&'static str>,
    /// All ways, a bit each.
    pub all: u64,
    /// The longest run of ways that no other group has for itself (mode `exclusive`). The knob's lowest way is its
    /// lowest one.
    pub usable: u64,
    /// Fewest ways of a class.
    pub least: u32,
    /// Ways that hardware outside of the CPU may fill as well, such as devices or graphics.
    pub shared: u64,
    /// Whether a class may have ways that are not adjacent.
    pub has_holes: bool,
    /// Domain of each core.
    pub domains: BTreeMap<CoreId, u32>,
}

/// Memory bandwidth of each domain, in units of the kernel's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bandwidth {
    /// Name of the resource in `schemata`.
    pub line: &'static str,
    /// Least value, in units.
    pub least: u32,
    /// Step, in units: the kernel rounds up to a multiple of it.
    pub step: u32,
    /// Largest value, which stands for no limit.
    pub most: u32,
    /// Domain of each core.
    pub domains: BTreeMap<CoreId, u32>,
}

impl CacheWays {
    /// Number of ways that the knob divides.
    pub fn count(&self) -> u8 {
        self.usable.count_ones() as u8
    }

    /// The kernel's mask for the knob's ways, or for all of them.
    pub(super) fn mask(&self, ways: Option<u64>) -> u64 {
        ways.map_or(self.usable, |ways| ways << self.usable.trailing_zeros())
    }

    /// The inverse of `mask`.
    pub(super) fn ways(&self, mask: u64) -> u64 {
        mask >> self.usable.trailing_zeros()
    }
}

impl Bandwidth {
    /// Number of partitions that the knob divides.
    pub fn parts(&self) -> u8 {
        let parts = match self.most / self.step.max(1) {
            few @ 1..=PARTS_MAX => few,
            _ if self.most.is_multiple_of(PARTS_MAX) => PARTS_MAX,
            _ => PARTS_BINARY,
        };
        parts as u8
    }

    /// The kernel's value for this number of partitions, or for all of them.
    pub(super) fn units(&self, parts: Option<u8>) -> u32 {
        let whole = u32::from(self.parts());
        let units = parts.map_or(self.most, |parts| u32::from(parts) * self.most / whole);
        units.max(self.least).next_multiple_of(self.step.max(1)).min(self.most)
    }

    /// The inverse of `units`, rounded up.
    pub(super) fn of_units(&self, units: u32) -> u8 {
        let parts = (units * u32::from(self.parts())).div_ceil(self.most.max(1));
        parts.min(u32::from(self.parts())) as u8
    }
}

impl ResctrlLayout {
    /// Reads the layout of the mounted resctrl.
    ///
    /// # Errors
    /// [`Refusal`] if it divides no cache: bandwidth alone is not turned.
    pub fn read(tree: &KernelTree) -> Result<ResctrlLayout, Refusal> {
        let schemata = tree.text(format!("{MOUNT}/{SCHEMATA}"));
        let info = |resource: &str, file: &str| tree.read(format!("{MOUNT}/info/{resource}/{file}")).ok();
        let number = |resource: &str, file: &str| info(resource, file)?.trim().parse::<u32>().ok();
        let classes = entries(&tree.path(format!("{MOUNT}/info")))
            .filter_map(|resource| read_trimmed(&resource.path().join("num_closids")).ok()?.parse().ok())
            .min()
            .unwrap_or(1);
        let mut ways = None;
        for (level, lines) in [
            (3, vec!["L3"]),
            (3, vec!["L3CODE", "L3DATA"]),
            (2, vec!["L2"]),
            (2, vec!["L2CODE", "L2DATA"]),
        ] {
            let mask = |file| u64::from_str_radix(&info(lines[0], file)?, 16).ok();
            let Some(all) = mask("cbm_mask").filter(|_| ways.is_none()) else {
                continue;
            };
            ways = Some(CacheWays {
                all,
                usable: longest_run(all & !exclusive(&info(lines[0], "bit_usage").unwrap_or_default())),
                least: number(lines[0], "min_cbm_bits").unwrap_or(1),
                shared: mask("shareable_bits").unwrap_or(0),
                has_holes: number(lines[0], "sparse_masks") == Some(1),
                domains: domains(tree, level, &ids(&schemata, lines[0])),
                lines,
            });
        }
        let bandwidth = bandwidth(tree, &schemata, number);
        if ways.is_none() {
            return Err(refuse("it divides no cache (the CPU lacks cat_l3 and cat_l2)"));
        }
        Ok(ResctrlLayout {
            classes,
            ways,
            bandwidth,
        })
    }
}

fn refuse(why: &str) -> Refusal {
    let remedy = "see which resources the kernel found: dmesg | grep resctrl";
    refused("dividing caches and memory bandwidth (resctrl)", why, remedy)
}

fn bandwidth(
    tree: &KernelTree,
    schemata: &str,
    number: impl Fn(&str, &str) -> Option<u32>,
) -> Result<Bandwidth, Refusal> {
    let (Some(least), Some(step)) = (number("MB", "min_bandwidth"), number("MB", "bandwidth_gran")) else {
        return Err(refuse("it divides no memory bandwidth (the CPU lacks the flag mba)"));
    };
    let mounts = tree.text("/proc/self/mountinfo");
    let mut mounts = mounts.lines().filter_map(Mount::parse);
    if mounts.any(|mount| mount.kind == "resctrl" && mount.options.split(',').any(|option| option == "mba_MBps")) {
        return Err(refused(
            "dividing memory bandwidth (resctrl)",
            "it is mounted with mba_MBps: the kernel's own feedback moves bandwidths by a step a second, slower than \
             phases change",
            format!("as root, once no group is in use: umount {MOUNT}; mount -t resctrl resctrl {MOUNT}"),
        ));
    }
    let vendor = tree.text("/proc/cpuinfo");
    let is_amd = matches!(
        cpuinfo_field(&vendor, "vendor_id"),
        Some("AuthenticAMD" | "HygonGenuine")
    );
    let ids = ids(schemata, "MB");
    // Nothing else says how many units a processor of AMD has; the default group has all of them unless a person has
    // bounded it.
    let most = match is_amd {
        true => ids
            .iter()
            .map(|(_, value)| value.parse().unwrap_or(0))
            .max()
            .unwrap_or(0),
        false => 100,
    };
    Ok(Bandwidth {
        line: "MB",
        least,
        step,
        most,
        domains: domains(tree, 3, &ids),
    })
}

/// Domains of a resource in `schemata`, with their values.
pub(super) fn ids(schemata: &str, resource: &str) -> Vec<(u32, String)> {
    let lines = schemata.lines().filter_map(|line| line.split_once(':'));
    let its = lines.filter(|(name, _)| name.trim() == resource);
    its.flat_map(|(_, list)| list.split(';'))
        .filter_map(|domain| {
            let (id, value) = domain.split_once('=')?;
            Some((id.trim().parse().ok()?, value.trim().to_owned()))
        })
        .collect()
}

/// The domain of each usable core: the id of its cache of that level, or the only one that there is.
fn domains(tree: &KernelTree, level: u32, ids: &[(u32, String)]) -> BTreeMap<CoreId, u32> {
    let of = |core: &CoreId| {
        let caches = format!("/sys/devices/system/cpu/cpu{core}/cache");
        let shares = |index: u32| {
            let file = |name: &str| tree.read(format!("{caches}/index{index}/{name}")).ok();
            let is_it = file("level")?.parse() == Ok(level) && file("type").as_deref() != Some("Instruction");
            file("id")?.parse::<u32>().ok().filter(|_| is_it)
        };
        // A core has an index for each of at most four levels, and one more where code and data are apart.
        let found = (0..8).find_map(shares);
        let only = ids.first().filter(|_| ids.len() == 1).map(|(id, _)| *id);
        found.filter(|id| ids.iter().any(|(other, _)| other == id)).or(only)
    };
    let cores = usable(tree).into_iter();
    cores.filter_map(|core| Some((core, of(&core)?))).collect()
}

/// Ways of any domain that a group has for itself, by a `bit_usage` such as `0=XXSSEE00;1=...`, highest way first.
fn exclusive(bit_usage: &str) -> u64 {
    let add = |mask, letter| mask << 1 | u64::from(letter == 'E');
    let of = |letters: &str| letters.chars().fold(0, add);
    let domains = bit_usage.split(';').filter_map(|domain| domain.split_once('='));
    domains.fold(0, |mask, (_, letters)| mask | of(letters.trim()))
}

/// The longest run of adjacent bits of `mask`, the lowest of equally long ones.
fn longest_run(mask: u64) -> u64 {
    let runs = (0..u64::BITS).map(|low| {
        let length = (mask >> low).trailing_ones();
        (length, low)
    });
    let (length, low) = runs
        .max_by_key(|(length, low)| (*length, u64::BITS - low))
        .unwrap_or((0, 0));
    u64::MAX.checked_shr(u64::BITS - length).unwrap_or(0) << low
}

/// For people: `12 ways of L3, 10 partitions of the bandwidth, 7 classes`.
impl fmt::Display for ResctrlLayout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.ways {
            Some(ways) => {
                write!(f, "{} ways of {}", ways.count(), ways.lines.join(" and "))?;
                let of = ways.all.count_ones();
                if u32::from(ways.count()) < of {
                    write!(f, " (of {of}, others have the rest for themselves)")?;
                }
                if ways.shared != 0 {
                    write!(f, ", {:x} shared with devices", ways.shared)?;
                }
            }
            None => f.write_str("no ways")?,
        }
        match &self.bandwidth {
            Ok(bandwidth) => write!(f, ", {} partitions of the bandwidth", bandwidth.parts())?,
            Err(refusal) => write!(f, ", no bandwidth ({})", refusal.why)?,
        }
        write!(f, ", {} classes beside the default one", self.classes.saturating_sub(1))
    }
}
