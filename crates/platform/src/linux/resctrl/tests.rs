//! The knob on the model of the kernel; and, in the virtual machine of `.ci/vm --rdt`, on the kernel itself.

use std::collections::BTreeMap;

use proptest::prelude::*;
use punctual_units::CoreId;

use super::model::KernelModel;
use super::*;
use crate::linux::{KernelTree, testing};
use crate::{KnobId, Plan, Refusal, Value};

mod live;

const CORES: u32 = 4;

/// Ways of one domain for all cores.
fn cache(all: u64, has_holes: bool, lines: &[&'static str]) -> CacheWays {
    CacheWays {
        lines: lines.to_vec(),
        all,
        usable: all,
        least: 1,
        shared: 0,
        has_holes,
        domains: (0..CORES).map(|core| (CoreId(core), 0)).collect(),
    }
}

fn bandwidth() -> Bandwidth {
    Bandwidth {
        line: "MB",
        least: 10,
        step: 10,
        most: 100,
        domains: (0..CORES).map(|core| (CoreId(core), 0)).collect(),
    }
}

/// 12 adjacent ways and a bandwidth in per cent, for as many classes.
fn layout(classes: u32) -> ResctrlLayout {
    ResctrlLayout {
        classes,
        ways: Some(cache(0xfff, false, &["L3"])),
        bandwidth: Ok(bandwidth()),
    }
}

fn plan(ways: &[(u32, u64)]) -> Plan {
    let knobs = ways
        .iter()
        .map(|(core, mask)| (KnobId::Ways(CoreId(*core)), Value::Ways(*mask)));
    knobs.collect()
}

type Results = Vec<(KnobId, Result<Value, Refusal>)>;

fn apply(knob: &mut Partitions, kernel: &mut KernelModel, plan: &Plan) -> Results {
    knob.apply(plan, &mut |access| kernel.access(access))
}

/// The ways that a core has in the kernel.
fn ways_of(kernel: &KernelModel, core: u32) -> u64 {
    let has_it = |group: &&model::ModelGroup| group.cores.contains(&CoreId(core));
    let group = kernel.groups.values().find(has_it).unwrap();
    group.values[&("L3".to_owned(), 0)]
}

#[test]
fn a_core_gets_its_ways_and_bandwidth_and_the_default_group_keeps_its_own() {
    let mut kernel = KernelModel::new(layout(8), CORES);
    let mut knob = Partitions::of(layout(8));
    let mut both = plan(&[(0, 0x00f), (1, 0xff0)]);
    both.set(KnobId::Bandwidth(CoreId(1)), Value::Parts(5));
    let default = kernel.groups[""].values.clone();
    for (knob, result) in apply(&mut knob, &mut kernel, &both) {
        assert_eq!(result.ok(), both.get(knob), "{knob}");
    }
    assert_eq!(
        (ways_of(&kernel, 0), ways_of(&kernel, 1), ways_of(&kernel, 2)),
        (0x00f, 0xff0, 0xfff)
    );
    assert_eq!(kernel.groups[""].values, default);
    let expected = [
        r"make punctual-PROCESS-0",
        r"make punctual-PROCESS-1",
        r"write punctual-PROCESS-0/schemata L3:0=f MB:0=100",
        r"write punctual-PROCESS-1/schemata L3:0=ff0 MB:0=50",
        r"write punctual-PROCESS-0/cpus_list 0",
        r"write punctual-PROCESS-1/cpus_list 1",
    ];
    assert_eq!(
        kernel
            .log
            .join("\n")
            .replace(&std::process::id().to_string(), "PROCESS"),
        expected.join("\n")
    );
    kernel.log.clear();
    apply(&mut knob, &mut kernel, &both);
    assert!(kernel.log.is_empty(), "a write that changes nothing: {:?}", kernel.log);
    apply(&mut knob, &mut kernel, &plan(&[(0, 0x0ff)]));
    assert_eq!(kernel.log.len(), 1, "{:?}", kernel.log);
}

#[test]
fn code_and_data_get_the_same_ways_and_l2_is_turned_where_there_is_no_l3() {
    let apart = ResctrlLayout {
        ways: Some(cache(0xffff, true, &["L3CODE", "L3DATA"])),
        ..layout(8)
    };
    let refusal = refused_bandwidth();
    let l2 = ResctrlLayout {
        ways: Some(CacheWays {
            domains: (0..CORES).map(|core| (CoreId(core), core / 2)).collect(),
            ..cache(0xff, false, &["L2"])
        }),
        bandwidth: Err(refusal.clone()),
        classes: 4,
    };
    for (layout, core, mask, wanted) in [
        (apart, 0, 0xf00f, "L3CODE:0=f00f L3DATA:0=f00f MB:0=100"),
        (l2.clone(), 3, 0x3c, "L2:1=3c"),
    ] {
        let mut kernel = KernelModel::new(layout.clone(), CORES);
        let mut knob = Partitions::of(layout);
        let results = apply(&mut knob, &mut kernel, &plan(&[(core, mask)]));
        assert_eq!(results[0].1, Ok(Value::Ways(mask)));
        assert!(kernel.log[1].ends_with(wanted), "{:?}", kernel.log);
    }
    let mut knob = Partitions::of(l2.clone());
    let part = Plan::of(KnobId::Bandwidth(CoreId(0)), Value::Parts(1));
    assert_eq!(
        apply(&mut knob, &mut KernelModel::new(l2, CORES), &part)[0].1,
        Err(refusal)
    );
}

fn refused_bandwidth() -> Refusal {
    crate::linux::refused("dividing memory bandwidth (resctrl)", "mba_MBps", "mount it again")
}

#[test]
fn cores_share_classes_where_these_are_few_and_too_many_change_nothing() {
    let mut kernel = KernelModel::new(layout(3), CORES);
    let mut knob = Partitions::of(layout(3));
    let equal = plan(&[(0, 0xf), (1, 0xff0), (2, 0xf), (3, 0xff0)]);
    assert!(
        apply(&mut knob, &mut kernel, &equal)
            .iter()
            .all(|(_, result)| result.is_ok())
    );
    assert_eq!(kernel.groups.len(), 3);
    let before = kernel.groups.clone();
    for result in apply(&mut knob, &mut kernel, &plan(&[(3, 0xf00)]))
        .into_iter()
        .map(|(_, result)| result)
    {
        let refusal = result.unwrap_err();
        assert!(
            refusal.why.starts_with("Out of CLOSIDs (No space left on device"),
            "{refusal}"
        );
    }
    assert_eq!(kernel.groups, before);
}

/// The kernel's words pile up until a write to `schemata`: a refusal has its own alone.
#[test]
fn a_refusal_has_the_words_of_its_own_access() {
    let mut kernel = KernelModel::new(layout(2), CORES);
    for wrong in ["x", "77"] {
        kernel.access(ResctrlAccess::Write("cpus_list", wrong)).unwrap_err();
    }
    kernel.access(ResctrlAccess::Make("COS1")).unwrap();
    let mut knob = Partitions::of(layout(2));
    let refusal = apply(&mut knob, &mut kernel, &plan(&[(0, 1)]))
        .pop()
        .unwrap()
        .1
        .unwrap_err();
    assert_eq!(
        refusal.why.to_string(),
        "Out of CLOSIDs (No space left on device (os error 28))"
    );
    assert_eq!(
        refusal.remedy.to_string(),
        "ask for fewer different settings, or free a class: punctual doctor lists the owners of COS1"
    );
    kernel.access(ResctrlAccess::Remove("COS1")).unwrap();
    let refusal = apply(&mut knob, &mut kernel, &plan(&[(0, 0b101)]))
        .pop()
        .unwrap()
        .1
        .unwrap_err();
    assert!(
        refusal.why.starts_with("The mask 5 has non-consecutive 1-bits ("),
        "{refusal}"
    );
    // Whatever was refused, the next setting is taken.
    assert!(apply(&mut knob, &mut kernel, &plan(&[(0, 1)]))[0].1.is_ok());
}

#[test]
fn a_core_in_a_group_of_another_program_stays_there() {
    let mut kernel = KernelModel::new(layout(8), CORES);
    kernel.access(ResctrlAccess::Make("COS1")).unwrap();
    kernel.access(ResctrlAccess::Write("COS1/cpus_list", "2-3\n")).unwrap();
    let mut knob = Partitions::of(layout(8));
    let results = apply(&mut knob, &mut kernel, &plan(&[(1, 1), (2, 2)]));
    assert_eq!(results[0].1, Ok(Value::Ways(1)));
    let refusal = results[1].1.clone().unwrap_err();
    assert_eq!(
        refusal.to_string(),
        "a class for core 2 (resctrl): the core is in the group COS1 of another program; end that program, or if it has ended: rmdir /sys/fs/resctrl/COS1"
    );
    assert_eq!(kernel.groups["COS1"].cores, [CoreId(2), CoreId(3)]);
    assert_eq!(
        knob.check(&mut |access| kernel.access(access)),
        None,
        "a refusal is no change by others"
    );
}

#[test]
fn a_change_by_another_program_is_noticed_and_ends_all_settings() {
    type Deed = fn(&mut KernelModel, &str);
    let deeds: [(&str, Deed); 5] = [
        ("another program, or", |kernel, name| {
            let file = format!("{name}/schemata");
            kernel.access(ResctrlAccess::Write(&file, "L3:0=3\n")).unwrap();
        }),
        ("another program, or", |kernel, name| {
            let file = format!("{name}/cpus_list");
            kernel.access(ResctrlAccess::Write(&file, "0-1\n")).unwrap();
        }),
        ("went offline", |kernel, name| {
            let file = format!("{name}/cpus_list");
            kernel.access(ResctrlAccess::Write(&file, "\n")).unwrap();
        }),
        ("is gone", |kernel, name| {
            kernel.access(ResctrlAccess::Remove(name)).unwrap();
        }),
        ("is gone", |kernel, _| kernel.mounted = false),
    ];
    for (words, deed) in deeds {
        let mut kernel = KernelModel::new(layout(8), CORES);
        let mut knob = Partitions::of(layout(8));
        apply(&mut knob, &mut kernel, &plan(&[(0, 0xf)]));
        assert_eq!(knob.check(&mut |access| kernel.access(access)), None);
        let name = kernel.groups.keys().nth(1).unwrap().clone();
        deed(&mut kernel, &name);
        let noticed = knob.check(&mut |access| kernel.access(access)).unwrap();
        assert!(noticed.why.contains(words), "{noticed}");
        assert_eq!(knob.check(&mut |access| kernel.access(access)), None, "once");
        assert_eq!(apply(&mut knob, &mut kernel, &plan(&[(1, 0xf)]))[0].1, Err(noticed));
    }
}

fn plans() -> impl Strategy<Value = Vec<Vec<(u32, u64)>>> {
    // Few masks, so that cores share classes; among them ones that the kernel refuses.
    let mask = prop_oneof![Just(0xfu64), Just(0xff0), Just(0b101), 0u64..0x1400];
    let setting = (0..CORES, mask);
    prop::collection::vec(prop::collection::vec(setting, 1..5), 1..8)
}

proptest! {
    /// Whatever is planned: a core has what was obtained for it last, a refused one what it had; groups of others and
    /// the default group keep their values; no more groups than classes.
    #[test]
    fn the_kernel_has_what_was_obtained(plans in plans(), classes in 2u32..7, others in 0u32..2) {
        let mut kernel = KernelModel::new(layout(classes), CORES);
        for number in 0..others {
            kernel.access(ResctrlAccess::Make(&format!("COS{number}"))).unwrap();
        }
        let mut knob = Partitions::of(layout(classes));
        let foreign = |kernel: &KernelModel| -> BTreeMap<_, _> {
            let ours = |name: &str| name.starts_with(PREFIX);
            let groups = kernel.groups.clone().into_iter().filter(|(name, _)| !ours(name));
            groups.map(|(name, group)| (name, group.values)).collect()
        };
        let before = foreign(&kernel);
        let mut expected: Vec<u64> = vec![0xfff; CORES as usize];
        for settings in plans {
            let plan = plan(&settings);
            for (setting, result) in apply(&mut knob, &mut kernel, &plan) {
                let KnobId::Ways(core) = setting else { unreachable!() };
                if let Ok(Value::Ways(ways)) = result {
                    prop_assert_eq!(plan.get(setting), Some(Value::Ways(ways)));
                    expected[core.0 as usize] = ways;
                }
            }
            let now: Vec<u64> = (0..CORES).map(|core| ways_of(&kernel, core)).collect();
            prop_assert_eq!(&now, &expected);
            prop_assert!(kernel.groups.len() <= classes as usize);
            prop_assert_eq!(foreign(&kernel), before.clone());
            prop_assert_eq!(knob.check(&mut |access| kernel.access(access)), None);
        }
    }
}

/// Kernel files of a processor with `info` and one cache for all four cores.
fn mounted(files: &[(&'static str, &'static str)]) -> (tempfile::TempDir, KernelTree) {
    let root = "/sys/fs/resctrl";
    let all: Vec<(String, &str)> = files
        .iter()
        .map(|(path, text)| {
            (
                if path.starts_with('/') {
                    (*path).to_owned()
                } else {
                    format!("{root}/{path}")
                },
                *text,
            )
        })
        .chain([("/sys/devices/system/cpu/online".to_owned(), "0-3")])
        .collect();
    let all: Vec<(&str, &str)> = all.iter().map(|(path, text)| (path.as_str(), *text)).collect();
    testing::tree(&all)
}

#[test]
fn the_layout_is_read_from_the_kernels_files() {
    let (_folder, tree) = mounted(&[
        ("schemata", "    MB:0=100\n    L3:0=fff\n"),
        ("info/L3/num_closids", "16"),
        ("info/L3/cbm_mask", "fff"),
        ("info/L3/min_cbm_bits", "1"),
        ("info/L3/shareable_bits", "c00"),
        ("info/L3/bit_usage", "0=HHSSSSEESSSS"),
        ("info/MB/num_closids", "8"),
        ("info/MB/min_bandwidth", "10"),
        ("info/MB/bandwidth_gran", "10"),
    ]);
    let found = ResctrlLayout::read(&tree).unwrap();
    let ways = found.ways.as_ref().unwrap();
    assert_eq!((ways.usable, ways.count(), ways.mask(Some(0b11))), (0xfc0, 6, 0x0c0));
    assert_eq!(ways.domains.len(), 4);
    assert_eq!(
        found.to_string(),
        "6 ways of L3 (of 12, others have the rest for themselves), c00 shared with devices, 10 partitions of the bandwidth, 7 classes beside the default one"
    );
    let feedback = "30 23 0:27 / /sys/fs/resctrl rw - resctrl resctrl rw,mba_MBps";
    std::fs::create_dir_all(tree.path("/proc/self")).unwrap();
    std::fs::write(tree.path("/proc/self/mountinfo"), feedback).unwrap();
    let refusal = ResctrlLayout::read(&tree).unwrap().bandwidth.unwrap_err();
    assert!(refusal.why.contains("mba_MBps"), "{refusal}");
}

#[test]
fn two_caches_have_their_cores_and_amd_its_units() {
    let (_folder, tree) = mounted(&[
        ("schemata", "L3:0=ffff;8=ffff\n  MB:0=2048;8=1024\n"),
        ("info/L3/num_closids", "16"),
        ("info/L3/cbm_mask", "ffff"),
        ("info/L3/min_cbm_bits", "1"),
        ("info/L3/sparse_masks", "1"),
        ("info/MB/num_closids", "16"),
        ("info/MB/min_bandwidth", "0"),
        ("info/MB/bandwidth_gran", "1"),
        ("/proc/cpuinfo", "vendor_id : AuthenticAMD"),
        ("/sys/devices/system/cpu/cpu0/cache/index3/level", "3"),
        ("/sys/devices/system/cpu/cpu0/cache/index3/id", "0"),
        ("/sys/devices/system/cpu/cpu1/cache/index3/level", "3"),
        ("/sys/devices/system/cpu/cpu1/cache/index3/id", "8"),
    ]);
    let found = ResctrlLayout::read(&tree).unwrap();
    let (ways, bandwidth) = (found.ways.unwrap(), found.bandwidth.unwrap());
    assert_eq!(ways.domains, [(CoreId(0), 0), (CoreId(1), 8)].into());
    assert!(ways.has_holes);
    assert_eq!((bandwidth.most, bandwidth.parts()), (2048, 16));
    assert_eq!(
        (
            bandwidth.units(Some(1)),
            bandwidth.units(Some(16)),
            bandwidth.of_units(128)
        ),
        (128, 2048, 1)
    );
}

#[test]
fn partitions_and_units_are_inverse() {
    for (least, step, most) in [(10, 10, 100), (5, 5, 100), (0, 1, 2048), (1, 1, 100), (20, 10, 100)] {
        let bandwidth = Bandwidth {
            least,
            step,
            most,
            ..bandwidth()
        };
        for parts in 1..=bandwidth.parts() {
            let units = bandwidth.units(Some(parts));
            assert!(units % step == 0 && (least..=most).contains(&units), "{parts}: {units}");
            assert!(bandwidth.of_units(units) >= parts);
            assert!(units == least || bandwidth.of_units(units) == parts, "{parts}: {units}");
        }
    }
}

#[test]
fn groups_have_their_tasks_and_likely_owners() {
    let (_folder, tree) = mounted(&[
        ("schemata", "L3:0=f"),
        ("info/num_closids", ""),
        ("mon_groups/.keep", ""),
        ("COS1/tasks", ""),
        ("COS1/cpus_list", "0-1"),
        ("batch/tasks", "71\n72\n73\n"),
        ("punctual-99999999-0/tasks", ""),
        ("/proc/71/comm", "ffmpeg"),
        ("/proc/72/comm", "ffmpeg"),
        ("/proc/73/comm", "sh"),
    ]);
    let shown: Vec<String> = groups(&tree).iter().map(ToString::to_string).collect();
    let expected = [
        r"COS1 (made by pqos, 0 tasks, cores 0-1)",
        r"batch (mostly ffmpeg, 3 tasks)",
        r"punctual-99999999-0 (punctual, process 99999999, ended, 0 tasks)",
    ];
    assert_eq!(shown.join("\n"), expected.join("\n"));
}

#[test]
fn a_rehearsal_shows_the_writes_and_makes_none() {
    let (folder, tree) = mounted(&[("schemata", "L3:0=fff")]);
    let (mut knob, mut rehearsal) = (Partitions::of(layout(8)), Rehearsal::default());
    let results = knob.apply(&plan(&[(0, 0xf), (1, 0xff0)]), &mut |access| {
        rehearsal.note(&tree, access)
    });
    assert!(results.iter().all(|(_, result)| result.is_ok()), "{results:?}");
    let expected = [
        r"mkdir /sys/fs/resctrl/punctual-PROCESS-0",
        r"mkdir /sys/fs/resctrl/punctual-PROCESS-1",
        r"printf 'L3:0=f\nMB:0=100\n' > /sys/fs/resctrl/punctual-PROCESS-0/schemata",
        r"printf 'L3:0=ff0\nMB:0=100\n' > /sys/fs/resctrl/punctual-PROCESS-1/schemata",
        r"printf '0\n' > /sys/fs/resctrl/punctual-PROCESS-0/cpus_list",
        r"printf '1\n' > /sys/fs/resctrl/punctual-PROCESS-1/cpus_list",
    ];
    assert_eq!(
        rehearsal
            .commands
            .join("\n")
            .replace(&std::process::id().to_string(), "PROCESS"),
        expected.join("\n")
    );
    assert_eq!(
        std::fs::read_dir(folder.path().join("sys/fs/resctrl")).unwrap().count(),
        1
    );
}
