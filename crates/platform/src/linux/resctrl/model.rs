//! A model of the kernel's resctrl, after its code (`rdtgroup.c`, `ctrlmondata.c`), for tests without one: what it
//! makes of each access, which words it leaves in `last_cmd_status`, and what it keeps.

use std::collections::BTreeMap;

use punctual_units::CoreId;

use super::super::cores::parse_list;
use super::super::refused;
use super::layout::ids;
use super::{ResctrlAccess, ResctrlLayout, STATUS};
use crate::Refusal;

/// Bytes of the kernel's buffer of words.
const STATUS_BYTES: usize = 512;

/// State of the kernel: groups, words and mount.
#[derive(Debug)]
pub(super) struct KernelModel {
    pub(super) layout: ResctrlLayout,
    cores: Vec<CoreId>,
    /// Groups by name; the default one is "".
    pub(super) groups: BTreeMap<String, ModelGroup>,
    status: String,
    /// Accesses that would write, in order.
    pub(super) log: Vec<String>,
    /// Whether it is mounted.
    pub(super) mounted: bool,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct ModelGroup {
    pub(super) cores: Vec<CoreId>,
    /// Values by resource and domain.
    pub(super) values: BTreeMap<(String, u32), u64>,
}

impl KernelModel {
    pub(super) fn new(layout: ResctrlLayout, cores: u32) -> KernelModel {
        let cores: Vec<CoreId> = (0..cores).map(CoreId).collect();
        let mut values = BTreeMap::new();
        if let Some(ways) = &layout.ways {
            for (line, id) in ways
                .lines
                .iter()
                .flat_map(|line| ways.domains.values().map(move |id| (line, id)))
            {
                values.insert(((*line).to_owned(), *id), ways.all);
            }
        }
        if let Ok(bandwidth) = &layout.bandwidth {
            for id in bandwidth.domains.values() {
                values.insert((bandwidth.line.to_owned(), *id), u64::from(bandwidth.most));
            }
        }
        let whole = ModelGroup {
            cores: cores.clone(),
            values,
        };
        KernelModel {
            layout,
            cores,
            groups: [(String::new(), whole)].into(),
            status: String::new(),
            log: Vec::new(),
            mounted: true,
        }
    }

    pub(super) fn access(&mut self, access: ResctrlAccess<'_>) -> Result<String, Refusal> {
        let errno = |number: i32| std::io::Error::from_raw_os_error(number).to_string();
        let done = if self.mounted {
            self.carry_out(access)
        } else {
            Err(libc::ENOENT)
        };
        done.map_err(|number| refused(format!("{access:?}"), errno(number), "ask for what is offered"))
    }

    fn carry_out(&mut self, access: ResctrlAccess<'_>) -> Result<String, i32> {
        match access {
            ResctrlAccess::List => {
                let names: Vec<&str> = self.groups.keys().skip(1).map(String::as_str).collect();
                Ok(names.join("\n"))
            }
            ResctrlAccess::Make(name) => {
                self.log.push(format!("make {name}"));
                if self.groups.len() >= self.layout.classes as usize {
                    self.say("Out of CLOSIDs");
                    return Err(libc::ENOSPC);
                }
                let values = self.groups[""].values.clone();
                let cores = Vec::new();
                self.groups.insert(name.into(), ModelGroup { cores, values });
                Ok(String::new())
            }
            ResctrlAccess::Remove(name) => {
                self.log.push(format!("remove {name}"));
                let gone = self.groups.remove(name).ok_or(libc::ENOENT)?;
                self.groups.get_mut("").unwrap().cores.extend(gone.cores);
                Ok(String::new())
            }
            ResctrlAccess::Read(path) if path == STATUS => {
                let words = if self.status.is_empty() { "ok" } else { &self.status };
                Ok(words.trim_end().to_owned())
            }
            ResctrlAccess::Read(path) => {
                let (group, file) = self.named(path)?;
                Ok(self.shown(&group, file))
            }
            ResctrlAccess::Write(path, text) => {
                self.log
                    .push(format!("write {path} {}", text.trim_end().replace('\n', " ")));
                let (group, file) = self.named(path)?;
                match file {
                    "schemata" => self.set_values(&group, text),
                    _ => self.set_cores(&group, text),
                }
            }
        }
    }

    fn named<'p>(&self, path: &'p str) -> Result<(String, &'p str), i32> {
        let (group, file) = path.rsplit_once('/').unwrap_or(("", path));
        self.groups
            .contains_key(group)
            .then(|| (group.to_owned(), file))
            .ok_or(libc::ENOENT)
    }

    fn shown(&self, group: &str, file: &str) -> String {
        let group = &self.groups[group];
        if file == "cpus_list" {
            let cores: Vec<String> = group.cores.iter().map(CoreId::to_string).collect();
            return cores.join(",");
        }
        let mut lines: BTreeMap<&str, Vec<String>> = BTreeMap::new();
        for ((line, id), value) in &group.values {
            let value = match line.as_str() {
                "MB" => format!("{value:3}"),
                _ => format!("{value:03x}"),
            };
            lines.entry(line).or_default().push(format!("{id}={value}"));
        }
        let lines = lines
            .into_iter()
            .map(|(line, domains)| format!("{line}:{}", domains.join(";")));
        lines.collect::<Vec<_>>().join("\n")
    }

    fn say(&mut self, words: &str) {
        if self.status.len() + words.len() < STATUS_BYTES {
            self.status += words;
            self.status.push('\n');
        }
    }

    fn fail(&mut self, words: &str) -> i32 {
        self.say(words);
        libc::EINVAL
    }

    /// Everything is parsed before anything applies.
    fn set_values(&mut self, group: &str, text: &str) -> Result<String, i32> {
        let Some(text) = text.strip_suffix('\n') else {
            return Err(libc::EINVAL); // the words of before stay
        };
        self.status.clear();
        let mut values = self.groups[group].values.clone();
        for line in text.lines() {
            let Some((name, _)) = line.split_once(':') else {
                return Err(self.fail("Missing ':'"));
            };
            for (id, value) in ids(line, name) {
                let key = (name.to_owned(), id);
                if !self.groups[""].values.keys().any(|(other, _)| other == name) {
                    return Err(self.fail(&format!("Unknown or unsupported resource name '{name}'")));
                }
                if !values.contains_key(&key) {
                    return Err(libc::EINVAL); // without words
                }
                values.insert(key, self.parsed(name, &value)?);
            }
        }
        self.groups.get_mut(group).unwrap().values = values;
        Ok(String::new())
    }

    fn parsed(&mut self, name: &str, value: &str) -> Result<u64, i32> {
        if let (Ok(bandwidth), "MB") = (self.layout.bandwidth.clone(), name) {
            let Ok(number) = value.parse::<u32>() else {
                return Err(self.fail(&format!("Invalid MB value {value}")));
            };
            if !(bandwidth.least..=bandwidth.most).contains(&number) {
                let range = format!("[{},{}]", bandwidth.least, bandwidth.most);
                return Err(self.fail(&format!("MB value {number} out of range {range}")));
            }
            return Ok(u64::from(number.next_multiple_of(bandwidth.step)));
        }
        let ways = self.layout.ways.clone().unwrap();
        let Ok(mask) = u64::from_str_radix(value, 16) else {
            return Err(self.fail(&format!("Non-hex character in the mask {value}")));
        };
        if mask == 0 || mask > ways.all {
            return Err(self.fail("Mask out of range"));
        }
        let run = mask >> mask.trailing_zeros();
        if !ways.has_holes && run & (run + 1) != 0 {
            return Err(self.fail(&format!("The mask {mask:x} has non-consecutive 1-bits")));
        }
        if mask.count_ones() < ways.least {
            return Err(self.fail(&format!("Need at least {} bits in the mask", ways.least)));
        }
        Ok(mask)
    }

    /// Does not clear the words of before.
    fn set_cores(&mut self, group: &str, text: &str) -> Result<String, i32> {
        let wanted = parse_list(text);
        if wanted.iter().any(|core| !self.cores.contains(core)) {
            return Err(self.fail("Can only assign online CPUs"));
        }
        let dropped: Vec<CoreId> = self.groups[group]
            .cores
            .iter()
            .copied()
            .filter(|core| !wanted.contains(core))
            .collect();
        if group.is_empty() && !dropped.is_empty() {
            return Err(self.fail("Can't drop CPUs from default group"));
        }
        for other in self.groups.values_mut() {
            other.cores.retain(|core| !wanted.contains(core));
        }
        self.groups.get_mut("").unwrap().cores.extend(dropped);
        self.groups.get_mut(group).unwrap().cores = wanted;
        Ok(String::new())
    }
}
