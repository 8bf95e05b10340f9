//! The clock knob of real hardware: Linux cpufreq (Documentation/admin-guide/pm/cpufreq.rst).
//!
//! **Terms.** A *policy* is a group of cores that share a clock, a clock domain, with files under
//! `/sys/devices/system/cpu/cpufreq/policyN`; a *governor* chooses the frequency within the policy's limits.
//! **Method.** One knob turns all policies together, so its steps are the frequencies that all of them have. A machine
//! with several policies has a knob for each as well, with all of its steps. If the `userspace` governor exists, it is
//! selected and the frequency written to it; otherwise (intel_pstate and amd-pstate in active mode have no such
//! governor) both limits are set to the same frequency. Every file is written through the journal.
//!
//! **Reading back** returns the frequency that was set, or, before anything is set, the upper limit. The momentary
//! frequency (`scaling_cur_freq`) is no setting: it varies with load, turbo and temperature.

use std::path::{Path, PathBuf};

use punctual_custody::journal::Journal;
use punctual_custody::tree::{has_word, numbered, read_trimmed, writable};
use punctual_units::{CoreId, Hertz, Nanos};

use super::{KernelTree, refused};
use crate::{ClockOffer, Provenance, Refusal};

const POLICIES: &str = "/sys/devices/system/cpu/cpufreq";
/// Distance of the steps assumed for a policy that lists none: intel_pstate can set multiples of it exactly.
const LADDER_STEP: Hertz = Hertz::from_mhz(100);

/// The frequencies to which a policy can be set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Frequencies {
    /// A list of frequencies, ascending.
    Table(Vec<Hertz>),
    /// Any frequency between two bounds.
    Range {
        /// Lowest frequency of the range.
        bottom: Hertz,
        /// The highest frequency, turbo included.
        top: Hertz,
    },
}

impl Frequencies {
    /// Parses a policy's `scaling_available_frequencies`, if it has that file, and its `cpuinfo_min_freq` and
    /// `cpuinfo_max_freq`, all in kHz. `None` if they hold no usable frequency.
    pub fn parse(available: Option<&str>, bottom: &str, top: &str) -> Option<Frequencies> {
        let mut table: Vec<Hertz> = available
            .unwrap_or("")
            .split_whitespace()
            .filter_map(parse_khz)
            .collect();
        table.sort_unstable();
        table.dedup();
        if !table.is_empty() {
            return Some(Frequencies::Table(table));
        }
        let (bottom, top) = (parse_khz(bottom)?, parse_khz(top)?);
        (bottom <= top).then_some(Frequencies::Range { bottom, top })
    }

    fn contain(&self, frequency: Hertz) -> bool {
        match self {
            Frequencies::Table(table) => table.binary_search(&frequency).is_ok(),
            Frequencies::Range { bottom, top } => (*bottom..=*top).contains(&frequency),
        }
    }
}

/// A frequency as the kernel writes it, in kHz; `None` for zero and for other text.
fn parse_khz(text: &str) -> Option<Hertz> {
    let khz: u64 = text.trim().parse().ok()?;
    (1..=KHZ_MAX).contains(&khz).then(|| Hertz::from_khz(khz))
}

/// Upper bound on a plausible frequency, in kHz: 100 GHz.
const KHZ_MAX: u64 = 100_000_000;

/// The steps that all policies have: those in every table and within every range; if no policy has a table, the
/// multiples of 100 MHz in the ranges' common part, and its ends. Ascending; empty if there are none.
pub fn common_steps(policies: &[Frequencies]) -> Vec<Hertz> {
    let table = policies.iter().find_map(|policy| match policy {
        Frequencies::Table(table) => Some(table.clone()),
        Frequencies::Range { .. } => None,
    });
    let mut steps = table.unwrap_or_else(|| ladder(policies));
    steps.retain(|step| policies.iter().all(|policy| policy.contain(*step)));
    steps
}

/// The steps in the common part of `policies`, all of which are ranges.
fn ladder(policies: &[Frequencies]) -> Vec<Hertz> {
    let ends = policies.iter().filter_map(|policy| match policy {
        Frequencies::Range { bottom, top } => Some((*bottom, *top)),
        Frequencies::Table(_) => None,
    });
    let Some((bottom, top)) = ends.reduce(|one, other| (one.0.max(other.0), one.1.min(other.1))) else {
        return Vec::new();
    };
    if bottom > top {
        return Vec::new();
    }
    let multiples = (bottom.0 / LADDER_STEP.0 + 1..=top.0 / LADDER_STEP.0).map(|step| Hertz(step * LADDER_STEP.0));
    let mut steps: Vec<Hertz> = std::iter::once(bottom).chain(multiples).chain([top]).collect();
    steps.dedup();
    steps
}

/// Present clock of a core, as the driver reports it; `None` if the core has no policy.
pub fn current(tree: &KernelTree, core: CoreId) -> Option<Hertz> {
    of_core(tree, core, "scaling_cur_freq")
}

/// The highest clock of a core; `None` if the core has no policy.
pub fn highest(tree: &KernelTree, core: CoreId) -> Option<Hertz> {
    of_core(tree, core, "cpuinfo_max_freq")
}

fn of_core(tree: &KernelTree, core: CoreId, file: &str) -> Option<Hertz> {
    let path = tree.path(format!("/sys/devices/system/cpu/cpu{core}/cpufreq/{file}"));
    parse_khz(&read_trimmed(&path).ok()?)
}

/// Cores and steps of each policy under `tree`, by number; empty if there is no policy, or one has no usable steps.
/// Reads only: [`CpuFreq::open`] checks whether they can be set.
pub fn policies(tree: &KernelTree) -> Vec<(Vec<CoreId>, ClockOffer)> {
    let policy = |folder: PathBuf| {
        let offer = offer_of(&[frequencies_of(&folder)?], change_of(&folder));
        Some((cores_of(&folder), offer))
    };
    let found: Option<Vec<_>> = numbered(&tree.path(POLICIES), "policy")
        .into_iter()
        .map(policy)
        .collect();
    found.unwrap_or_default()
}

/// The steps that all of `frequencies` have, each in force `change` after it was set.
fn offer_of(frequencies: &[Frequencies], change: Nanos) -> ClockOffer {
    ClockOffer {
        change,
        ..ClockOffer::new(common_steps(frequencies), Provenance::Real)
    }
}

/// Time until a change of a policy's frequency is in force, as its driver says; 0 where it does not.
fn change_of(policy: &Path) -> Nanos {
    let text = read_trimmed(&policy.join("cpuinfo_transition_latency")).unwrap_or_default();
    let known = |nanos: &u64| *nanos < CHANGE_UNKNOWN;
    Nanos(text.parse().ok().filter(known).unwrap_or_default())
}

/// `CPUFREQ_ETERNAL`, which drivers give that do not know how long a change takes.
const CHANGE_UNKNOWN: u64 = u32::MAX as u64;

/// Method of setting a frequency.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Method {
    /// Governor `userspace`, then `scaling_setspeed`.
    Userspace,
    /// `scaling_min_freq` and `scaling_max_freq` both at the frequency.
    Limits,
}

/// A clock domain: one policy.
#[derive(Debug)]
struct Domain {
    policy: PathBuf,
    cores: Vec<CoreId>,
    offer: ClockOffer,
    method: Method,
    journal: Journal,
    /// The frequency that we have set; `None` while the policy is in its original state.
    set: Option<Hertz>,
    found_under_userspace: bool,
}

/// The clock knobs of a machine: one for all policies together, and one for each policy.
#[derive(Debug)]
pub struct CpuFreq {
    domains: Vec<Domain>,
    /// Steps that all policies have.
    offer: ClockOffer,
}

impl CpuFreq {
    /// Finds the policies under `tree`. Writes nothing.
    ///
    /// # Errors
    /// [`Refusal`] if there is no policy, no step common to all, or no right to write their files.
    pub fn open(tree: &KernelTree, journal: &Journal) -> Result<CpuFreq, Refusal> {
        let policies = numbered(&tree.path(POLICIES), "policy");
        if policies.is_empty() {
            return Err(no_knob(
                format!("there is no policy under {POLICIES}"),
                "virtual machines have none; on hardware, load the CPU's cpufreq driver or enable it in the firmware",
            ));
        }
        let frequencies: Option<Vec<Frequencies>> = policies.iter().map(|policy| frequencies_of(policy)).collect();
        let frequencies = frequencies.unwrap_or_default();
        let changes = policies.iter().map(|policy| change_of(policy));
        let common = offer_of(&frequencies, changes.max().unwrap_or_default());
        if common.steps.is_empty() {
            return Err(no_knob(
                format!("the {} policies have no frequency in common", policies.len()),
                "one knob turns all cores: take the cores of the other cluster offline, or choose the emulated clock",
            ));
        }
        let domain = |(policy, frequencies): (PathBuf, Frequencies)| {
            let offer = offer_of(&[frequencies], change_of(&policy));
            Domain::open(policy, offer, journal)
        };
        let domains: Result<_, _> = policies.into_iter().zip(frequencies).map(domain).collect();
        Ok(CpuFreq {
            domains: domains?,
            offer: common,
        })
    }

    /// The steps that all policies have.
    pub fn offer(&self) -> &ClockOffer {
        &self.offer
    }

    /// The cores and the steps of each domain, by its number from 0.
    pub fn domains(&self) -> impl Iterator<Item = (&[CoreId], &ClockOffer)> {
        { self.domains.iter() }.map(|domain| (domain.cores.as_slice(), &domain.offer))
    }

    /// Sets all policies to the step nearest to `wanted`, and returns that step.
    ///
    /// # Errors
    /// [`Refusal`] if a policy cannot be set; the others are set back to their former frequency then.
    pub fn set(&mut self, wanted: Hertz) -> Result<Hertz, Refusal> {
        let step = self.offer.nearest(wanted);
        let former: Vec<Option<Hertz>> = self.domains.iter().map(|domain| domain.set).collect();
        let mut domains = self.domains.iter_mut();
        if let Err(refusal) = domains.try_for_each(|domain| domain.force(step)) {
            for (domain, former) in self.domains.iter_mut().zip(former) {
                domain.back_to(former);
            }
            return Err(refusal);
        }
        Ok(step)
    }

    /// Sets policy `number`, counted from 0, to its step nearest to `wanted`, and returns that step.
    ///
    /// # Errors
    /// [`Refusal`] if there is no such policy, or it cannot be set.
    pub fn set_domain(&mut self, number: usize, wanted: Hertz) -> Result<Hertz, Refusal> {
        let Some(domain) = self.domains.get_mut(number) else {
            return Err(no_knob(
                format!("there is no policy of number {number}"),
                "name a domain that the machine offers",
            ));
        };
        let (step, former) = (domain.offer.nearest(wanted), domain.set);
        domain.force(step).inspect_err(|_| domain.back_to(former))?;
        Ok(step)
    }

    /// The frequency in force, rounded to the nearest step; the lowest one if policies disagree.
    ///
    /// # Errors
    /// The file that could not be read, and why.
    pub fn read(&self) -> Result<Hertz, String> {
        let mut lowest = Hertz(u64::MAX);
        for domain in &self.domains {
            lowest = lowest.min(domain.read()?);
        }
        Ok(self.offer.nearest(lowest))
    }

    /// The frequency in force of each policy, rounded to its nearest step.
    ///
    /// # Errors
    /// The file that could not be read, and why.
    pub fn read_domains(&self) -> Result<Vec<Hertz>, String> {
        let read = |domain: &Domain| Ok(domain.offer.nearest(domain.read()?));
        self.domains.iter().map(read).collect()
    }

    /// Restores the original state of all policies; returns the failures.
    pub fn restore(&mut self) -> Vec<Refusal> {
        self.domains.iter_mut().flat_map(Domain::restore).collect()
    }
}

impl Domain {
    fn open(policy: PathBuf, offer: ClockOffer, journal: &Journal) -> Result<Domain, Refusal> {
        let text = |file: &str| read_trimmed(&policy.join(file)).unwrap_or_default();
        let method = match has_word(&policy.join("scaling_available_governors"), "userspace") {
            true => Method::Userspace,
            false => Method::Limits,
        };
        for file in method.files() {
            let path = policy.join(file);
            writable(&path).map_err(|why| {
                no_knob(
                    format!("{}: {why}", path.display()),
                    "run as root, or give this user the right to write the scaling_* files",
                )
            })?;
        }
        Ok(Domain {
            cores: cores_of(&policy),
            found_under_userspace: text("scaling_governor") == "userspace",
            policy,
            offer,
            method,
            journal: journal.clone(),
            set: None,
        })
    }

    fn force(&mut self, step: Hertz) -> Result<(), Refusal> {
        match self.method {
            Method::Userspace => self.set_speed(step)?,
            Method::Limits => self.set_limits(step, step)?,
        }
        self.set = Some(step);
        Ok(())
    }

    /// Returns to the state before a refused change. That may be refused as well; the meter then shows the actual
    /// clock.
    fn back_to(&mut self, former: Option<Hertz>) {
        match former {
            Some(former) => drop(self.force(former)),
            None => drop(self.restore()),
        }
    }

    fn restore(&mut self) -> Vec<Refusal> {
        self.set = None;
        self.journal.restore_below(&self.policy)
    }

    fn read(&self) -> Result<Hertz, String> {
        let userspace = match self.set {
            Some(_) => self.method == Method::Userspace,
            None => self.found_under_userspace,
        };
        let file = if userspace {
            "scaling_setspeed"
        } else {
            "scaling_max_freq"
        };
        let path = self.policy.join(file);
        let text = read_trimmed(&path).map_err(|why| format!("{}: {why}", path.display()))?;
        parse_khz(&text).ok_or_else(|| format!("{}: '{text}' is no frequency", path.display()))
    }

    fn set_speed(&self, step: Hertz) -> Result<(), Refusal> {
        if self.set.is_none() {
            self.journal.write(&self.policy.join("scaling_governor"), "userspace")?;
            // The governor stays within the limits: widen them to all steps.
            self.set_limits(self.offer.bottom(), self.offer.top())?;
        }
        self.journal.write(&self.policy.join("scaling_setspeed"), &khz(step))
    }

    /// Sets both limits, in an order in which the lower one never exceeds the upper one, which kernels refuse.
    fn set_limits(&self, bottom: Hertz, top: Hertz) -> Result<(), Refusal> {
        let (lower, upper) = (
            self.policy.join("scaling_min_freq"),
            self.policy.join("scaling_max_freq"),
        );
        let upper_now = read_trimmed(&upper).ok().and_then(|text| parse_khz(&text));
        if upper_now.is_some_and(|upper_now| bottom > upper_now) {
            self.journal.write(&upper, &khz(top))?;
            self.journal.write(&lower, &khz(bottom))
        } else {
            self.journal.write(&lower, &khz(bottom))?;
            self.journal.write(&upper, &khz(top))
        }
    }
}

impl Method {
    /// The files that the method writes.
    fn files(self) -> &'static [&'static str] {
        match self {
            Method::Userspace => &[
                "scaling_governor",
                "scaling_min_freq",
                "scaling_max_freq",
                "scaling_setspeed",
            ],
            Method::Limits => &["scaling_min_freq", "scaling_max_freq"],
        }
    }
}

fn khz(frequency: Hertz) -> String {
    (frequency.0 / 1_000).to_string()
}

/// The online cores of a policy.
fn cores_of(policy: &Path) -> Vec<CoreId> {
    let cores = read_trimmed(&policy.join("affected_cpus")).unwrap_or_default();
    let cores = cores.split_whitespace();
    cores.filter_map(|core| Some(CoreId(core.parse().ok()?))).collect()
}

fn frequencies_of(policy: &Path) -> Option<Frequencies> {
    let text = |file| read_trimmed(&policy.join(file)).ok();
    Frequencies::parse(
        text("scaling_available_frequencies").as_deref(),
        &text("cpuinfo_min_freq").unwrap_or_default(),
        &text("cpuinfo_max_freq").unwrap_or_default(),
    )
}

fn no_knob(why: impl std::fmt::Display, remedy: &str) -> Refusal {
    refused("setting the CPU clock (cpufreq)", why, remedy)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::linux::testing;
    use proptest::prelude::*;

    /// A policy as the given driver shows it, all frequencies in kHz.
    struct EmulatedPolicy {
        available: Option<&'static str>,
        limits: (&'static str, &'static str),
        governors: &'static str,
        governor: &'static str,
        setspeed: &'static str,
    }

    const ACPI: EmulatedPolicy = EmulatedPolicy {
        available: Some("2400000 2300000 1800000 1200000 800000 "),
        limits: ("800000", "2400000"),
        governors: "conservative ondemand userspace powersave performance schedutil ",
        governor: "schedutil",
        setspeed: "<unsupported>",
    };
    const INTEL_PSTATE: EmulatedPolicy = EmulatedPolicy {
        available: None,
        limits: ("800000", "4750000"),
        governors: "performance powersave",
        governor: "powersave",
        setspeed: "<unsupported>",
    };
    const EXYNOS_A15: EmulatedPolicy = EmulatedPolicy {
        available: Some("200000 300000 400000 800000 1400000 2000000"),
        limits: ("200000", "2000000"),
        governors: "userspace ondemand performance",
        governor: "userspace",
        setspeed: "1400000",
    };
    const EXYNOS_A7: EmulatedPolicy = EmulatedPolicy {
        available: Some("200000 300000 400000 800000 1400000"),
        limits: ("200000", "1400000"),
        ..EXYNOS_A15
    };

    /// Lays out policies numbered 0, 4, 8...
    fn machine(policies: &[&EmulatedPolicy]) -> (tempfile::TempDir, KernelTree) {
        let mut files = Vec::new();
        for (i, policy) in policies.iter().enumerate() {
            let mut add = |file: &str, content: &str| {
                files.push((format!("{POLICIES}/policy{}/{file}", 4 * i), content.to_string()));
            };
            if let Some(available) = policy.available {
                add("scaling_available_frequencies", available);
            }
            for kind in ["cpuinfo", "scaling"] {
                add(&format!("{kind}_min_freq"), policy.limits.0);
                add(&format!("{kind}_max_freq"), policy.limits.1);
            }
            add("scaling_available_governors", policy.governors);
            add("scaling_governor", policy.governor);
            add("scaling_setspeed", policy.setspeed);
        }
        let files: Vec<(&str, &str)> = files
            .iter()
            .map(|(path, content)| (path.as_str(), content.as_str()))
            .collect();
        testing::tree(&files)
    }

    fn file(tree: &KernelTree, policy: u32, file: &str) -> String {
        tree.read(format!("{POLICIES}/policy{policy}/{file}")).unwrap()
    }

    fn mhz(steps: &[Hertz]) -> Vec<u64> {
        steps.iter().map(|step| step.0 / 1_000_000).collect()
    }

    #[test]
    fn acpi_cpufreq_is_driven_by_the_userspace_governor_and_put_back() {
        let (_folder, tree) = machine(&[&ACPI, &ACPI]);
        let journal = testing::journal();
        let mut knob = CpuFreq::open(&tree, &journal).unwrap();
        assert_eq!(mhz(&knob.offer().steps), [800, 1200, 1800, 2300, 2400]);
        assert_eq!(knob.read(), Ok(Hertz::from_mhz(2400)));
        assert_eq!(knob.set(Hertz::from_mhz(1100)), Ok(Hertz::from_mhz(1200)));
        for policy in [0, 4] {
            assert_eq!(file(&tree, policy, "scaling_governor"), "userspace");
            assert_eq!(file(&tree, policy, "scaling_setspeed"), "1200000");
        }
        assert_eq!(knob.read(), Ok(Hertz::from_mhz(1200)));
        assert_eq!(knob.restore(), []);
        for policy in [0, 4] {
            assert_eq!(file(&tree, policy, "scaling_governor"), "schedutil");
            assert_eq!(file(&tree, policy, "scaling_setspeed"), "<unsupported>");
            assert_eq!(file(&tree, policy, "scaling_max_freq"), "2400000");
        }
        assert_eq!(knob.read(), Ok(Hertz::from_mhz(2400)));
    }

    #[test]
    fn intel_pstate_is_driven_by_its_limits_and_put_back() {
        let (_folder, tree) = machine(&[&INTEL_PSTATE]);
        let journal = testing::journal();
        let mut knob = CpuFreq::open(&tree, &journal).unwrap();
        let steps = mhz(&knob.offer().steps);
        assert_eq!((steps[0], steps[1], steps[39], steps[40]), (800, 900, 4700, 4750));
        for wanted in [1500, 3000, 800, 4750] {
            let wanted = Hertz::from_mhz(wanted);
            assert_eq!(knob.set(wanted), Ok(wanted));
            assert_eq!(knob.read(), Ok(wanted));
            assert_eq!(file(&tree, 0, "scaling_min_freq"), khz(wanted));
            assert_eq!(file(&tree, 0, "scaling_max_freq"), khz(wanted));
            assert_eq!(file(&tree, 0, "scaling_governor"), "powersave");
        }
        assert_eq!(journal.restore(), []);
        assert_eq!(file(&tree, 0, "scaling_min_freq"), "800000");
        assert_eq!(file(&tree, 0, "scaling_max_freq"), "4750000");
    }

    #[test]
    fn clusters_share_the_steps_that_both_have() {
        let (_folder, tree) = machine(&[&EXYNOS_A7, &EXYNOS_A15]);
        let journal = testing::journal();
        let mut knob = CpuFreq::open(&tree, &journal).unwrap();
        assert_eq!(mhz(&knob.offer().steps), [200, 300, 400, 800, 1400]);
        assert_eq!(knob.read(), Ok(Hertz::from_mhz(1400)), "left as found: 1.4 GHz");
        assert_eq!(knob.set(Hertz::from_mhz(2000)), Ok(Hertz::from_mhz(1400)));
        assert_eq!(knob.set(Hertz::from_mhz(200)), Ok(Hertz::from_mhz(200)));
        drop((knob, journal));
        assert_eq!(file(&tree, 4, "scaling_setspeed"), "1400000");
    }

    #[test]
    fn a_domain_is_set_alone_with_all_of_its_steps() {
        let (_folder, tree) = machine(&[&EXYNOS_A7, &EXYNOS_A15]);
        let journal = testing::journal();
        let mut knob = CpuFreq::open(&tree, &journal).unwrap();
        let tops: Vec<u64> = knob.domains().map(|(_, offer)| offer.top().0 / 1_000_000).collect();
        assert_eq!(tops, [1400, 2000]);
        assert_eq!(knob.set_domain(1, Hertz::from_mhz(2100)), Ok(Hertz::from_mhz(2000)));
        assert_eq!(knob.read_domains(), Ok([1400, 2000].map(Hertz::from_mhz).to_vec()));
        assert_eq!(knob.set_domain(0, Hertz::from_mhz(200)), Ok(Hertz::from_mhz(200)));
        assert_eq!(knob.read(), Ok(Hertz::from_mhz(200)), "the lowest of both");
        assert_eq!(knob.set(Hertz::from_mhz(800)), Ok(Hertz::from_mhz(800)));
        assert_eq!(knob.read_domains(), Ok([800, 800].map(Hertz::from_mhz).to_vec()));
        assert!(knob.set_domain(2, Hertz::from_mhz(800)).is_err());
        assert_eq!(knob.restore(), []);
        assert_eq!(file(&tree, 4, "scaling_setspeed"), "1400000");
    }

    #[test]
    fn a_policy_that_does_not_follow_leaves_the_others_as_they_were() {
        let (_folder, tree) = machine(&[&ACPI, &ACPI]);
        let journal = testing::journal();
        let mut knob = CpuFreq::open(&tree, &journal).unwrap();
        let second = tree.path(format!("{POLICIES}/policy4"));
        std::fs::rename(second.join("scaling_setspeed"), second.join("hidden")).unwrap();
        assert!(knob.set(Hertz::from_mhz(800)).is_err());
        for policy in [0, 4] {
            assert_eq!(file(&tree, policy, "scaling_governor"), "schedutil");
        }
        std::fs::rename(second.join("hidden"), second.join("scaling_setspeed")).unwrap();
        knob.set(Hertz::from_mhz(1200)).unwrap();
        std::fs::rename(second.join("scaling_setspeed"), second.join("hidden")).unwrap();
        assert!(knob.set(Hertz::from_mhz(800)).is_err());
        assert_eq!(file(&tree, 0, "scaling_setspeed"), "1200000");
    }

    #[test]
    fn machines_without_a_common_knob_are_refused_with_a_remedy() {
        let journal = testing::journal();
        let (_folder, none) = testing::tree(&[]);
        assert!(
            CpuFreq::open(&none, &journal)
                .unwrap_err()
                .remedy
                .contains("virtual machines")
        );
        let (_folder, disjoint) = machine(&[
            &EXYNOS_A7,
            &EmulatedPolicy {
                available: Some("1900000"),
                ..EXYNOS_A15
            },
        ]);
        assert!(
            CpuFreq::open(&disjoint, &journal)
                .unwrap_err()
                .why
                .contains("in common")
        );
    }

    #[test]
    fn files_that_cannot_be_written_are_refused_before_anything_is_changed() {
        let (_folder, tree) = machine(&[&ACPI]);
        let path = tree.path(format!("{POLICIES}/policy0/scaling_setspeed"));
        std::fs::remove_file(&path).unwrap(); // mode bits would not stop root
        let refusal = CpuFreq::open(&tree, &testing::journal()).unwrap_err();
        assert!(refusal.why.contains("scaling_setspeed"), "{refusal}");
        assert_eq!(file(&tree, 0, "scaling_governor"), "schedutil");
    }

    fn frequencies() -> impl Strategy<Value = Frequencies> {
        prop_oneof![
            prop::collection::btree_set(2u64..40, 1..12).prop_map(|steps| Frequencies::Table(
                steps.into_iter().map(|step| Hertz::from_mhz(step * 50)).collect()
            )),
            (2u64..40, 0u64..40).prop_map(|(bottom, more)| Frequencies::Range {
                bottom: Hertz::from_mhz(bottom * 50),
                top: Hertz::from_mhz((bottom + more) * 50)
            }),
        ]
    }

    proptest! {
        #[test]
        fn common_steps_are_ascending_and_every_policy_has_them(
            policies in prop::collection::vec(frequencies(), 1..5),
        ) {
            let steps = common_steps(&policies);
            prop_assert!(steps.is_sorted_by(|a, b| a < b));
            for step in &steps {
                for policy in &policies {
                    prop_assert!(policy.contain(*step));
                }
            }
            // And none is missed: what all tables list and all ranges contain is a step.
            for mhz in (100..2000).step_by(50).map(Hertz::from_mhz) {
                let in_a_table =
                    policies.iter().any(|policy| matches!(policy, Frequencies::Table(_)) && policy.contain(mhz));
                if in_a_table && policies.iter().all(|policy| policy.contain(mhz)) {
                    prop_assert!(steps.contains(&mhz));
                }
            }
        }

        #[test]
        fn no_text_is_too_strange(available in "\\PC*", bottom in "\\PC*", top in "[0-9]*") {
            if let Some(Frequencies::Table(table)) = Frequencies::parse(Some(&available), &bottom, &top) {
                prop_assert!(table.is_sorted_by(|a, b| a < b));
            }
        }
    }
}
