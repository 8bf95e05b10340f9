//! Two nodes that set the same objects in turn, with packets between them that get lost, doubled and reordered. What
//! creates an object reaches both at once, as the log would have it.

use std::collections::BTreeMap;

use proptest::prelude::*;
use punctual_engines::Memory;
use punctual_federation::ids::Revision;
use punctual_store::batch::WriteSet;
use punctual_store::temporal::Creation;
use punctual_store::{Store, StoreOptions};
use punctual_testing::VirtualOs;
use punctual_units::Clock;

use super::*;

const NODES: u32 = 2;

struct Member {
    sensing: Sensing,
    store: Replica<Memory, VirtualOs>,
    names: u64,
}

#[derive(Clone, Debug)]
enum Packet {
    Readings(Vec<ReadingReport>),
    Taken(Stamp, Vec<(ObjectName, Seq)>),
}

struct World {
    os: VirtualOs,
    members: Vec<Member>,
    revision: u64,
    /// From, to, what.
    under_way: Vec<(usize, usize, Packet)>,
    /// When the newest value of each object was set; values are instants.
    set: BTreeMap<Vec<u8>, Time>,
}

/// One step; numbers choose among what there is.
#[derive(Clone, Debug)]
enum Step {
    Set(usize, u8),
    Beat(usize),
    Arrives(usize),
    Lost(usize),
    Twice(usize),
    Look(usize),
    Restart(usize),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0..NODES as usize, 0..3_u8).prop_map(|(node, key)| Step::Set(node, key)),
        4 => (0..NODES as usize).prop_map(Step::Beat),
        8 => any::<usize>().prop_map(Step::Arrives),
        1 => any::<usize>().prop_map(Step::Lost),
        1 => any::<usize>().prop_map(Step::Twice),
        1 => (0..NODES as usize).prop_map(Step::Look),
        1 => (0..NODES as usize).prop_map(Step::Restart),
    ]
}

fn replica(os: &VirtualOs) -> Replica<Memory, VirtualOs> {
    let options = StoreOptions {
        replicated: true,
        created_max: 8,
        ..StoreOptions::default()
    };
    let store = Store::open(Memory::default(), os.clone(), options).unwrap();
    Replica::new(store, Temporal::default().validity)
}

fn kind(boot: u64) -> Temporal {
    Temporal {
        objects_max: 8,
        boot,
        ..Temporal::default()
    }
}

impl World {
    fn new() -> World {
        let os = VirtualOs::new(1);
        let member = |node| Member {
            sensing: Sensing::new(NodeId(node), kind(1)),
            store: replica(&os),
            names: 0,
        };
        World {
            members: (0..NODES).map(member).collect(),
            os,
            revision: 0,
            under_way: Vec::new(),
            set: BTreeMap::new(),
        }
    }

    fn step(&mut self, step: &Step) {
        self.os.sleep(Nanos::from_millis(3));
        let chosen = |number: usize, len: usize| number.checked_rem(len);
        match *step {
            Step::Set(node, key) => self.set(node, &[b'a' + key]),
            Step::Beat(node) => self.beat(node),
            Step::Arrives(number) => {
                if let Some(at) = chosen(number, self.under_way.len()) {
                    let (from, to, packet) = self.under_way.remove(at);
                    self.arrives(from, to, packet);
                }
            }
            Step::Lost(number) => {
                if let Some(at) = chosen(number, self.under_way.len()) {
                    self.under_way.remove(at);
                }
            }
            Step::Twice(number) => {
                if let Some(at) = chosen(number, self.under_way.len()) {
                    self.under_way.push(self.under_way[at].clone());
                }
            }
            Step::Look(node) => {
                let member = &mut self.members[node];
                member.sensing.look(&member.store);
            }
            Step::Restart(node) => {
                let member = &mut self.members[node];
                let boot = member.sensing.kind().boot + 1;
                member.sensing = Sensing::new(NodeId(node as u32), kind(boot));
                member.names = 0;
            }
        }
    }

    fn set(&mut self, node: usize, key: &[u8]) {
        let now = self.os.now();
        let value = now.0.to_be_bytes();
        loop {
            let member = &mut self.members[node];
            match member.sensing.set(&member.store, key, &value, Nanos::ZERO, now) {
                Set::Done => break,
                Set::Unmade => self.create(node, key),
                other => panic!("{other:?}"),
            }
        }
        self.set.insert(key.to_vec(), now);
    }

    /// By a transaction, which all have applied.
    fn create(&mut self, node: usize, key: &[u8]) {
        let member = &mut self.members[node];
        member.names += 1;
        let made = ObjectName {
            source: node as u32,
            boot: member.sensing.kind().boot,
            sequence: member.names,
        };
        member.sensing.names(key.to_vec(), made);
        let spec = member.sensing.kind().spec(key);
        let set = WriteSet {
            created: vec![Creation { made, spec }],
            ..WriteSet::default()
        };
        self.revision += 1;
        for member in &self.members {
            member
                .store
                .apply_sets(Revision(self.revision), std::slice::from_ref(&set))
                .unwrap();
        }
    }

    fn beat(&mut self, node: usize) {
        let (now, peer) = (self.os.now(), 1 - node);
        let member = &mut self.members[node];
        member.sensing.beats(NodeId(peer as u32));
        while let Some((stamp, taken)) = member.sensing.tells(NodeId(peer as u32), self.os.since_boot()) {
            self.under_way.push((node, peer, Packet::Taken(stamp, taken)));
        }
        if let Some(together) = member.sensing.reports(NodeId(peer as u32), now) {
            let reports = together.iter().map(|reported| reported.report()).collect();
            self.under_way.push((node, peer, Packet::Readings(reports)));
        }
    }

    fn arrives(&mut self, from: usize, to: usize, packet: Packet) {
        let member = &mut self.members[to];
        let from = NodeId(from as u32);
        match packet {
            Packet::Taken(stamp, taken) => member.sensing.heard(&member.store, from, stamp, &taken),
            Packet::Readings(reports) => {
                let (now, since_boot) = (self.os.now(), self.os.since_boot());
                member.sensing.received(&member.store, from, &reports, now, since_boot);
            }
        }
    }

    /// No reading is older than what is told of it, and none is lost from the account.
    fn holds(&mut self) -> Result<(), TestCaseError> {
        let now = self.os.now();
        for (node, member) in self.members.iter_mut().enumerate() {
            for key in self.set.keys() {
                if let Latest::Reading(age, value) = member.sensing.latest(&member.store, key).unwrap() {
                    let at = Time(u64::from_be_bytes(value.try_into().unwrap()));
                    prop_assert!(
                        now.since(at) <= age,
                        "node {node}: {} is {}, told {age}",
                        key[0],
                        now.since(at)
                    );
                }
            }
            let ExchangeCounts { sent, .. } = member.sensing.exchanged(NodeId(1 - node as u32));
            let accounted = sent.installed + sent.superseded + sent.pending + sent.in_flight;
            prop_assert_eq!(sent.offered, accounted);
        }
        Ok(())
    }
}

proptest! {
    #[test]
    fn the_newest_reading_reaches_all_and_no_age_is_told_too_low(steps in prop::collection::vec(step(), 1..120)) {
        let mut world = World::new();
        for step in &steps {
            world.step(step);
            world.holds()?;
        }
        // All that is under way arrives, and what was lost is sent again.
        for _ in 0..4 {
            world.os.sleep(Nanos::from_millis(250));
            for node in 0..NODES as usize {
                world.step(&Step::Look(node));
                world.beat(node);
                while !world.under_way.is_empty() {
                    world.step(&Step::Arrives(0));
                }
            }
        }
        world.holds()?;
        for (key, at) in world.set.clone() {
            // A source that has restarted since knows nothing of what it had set before.
            let boots: Vec<u64> = world.members.iter().map(|member| member.sensing.kind().boot).collect();
            for member in &mut world.members {
                let (_, made) = member.store.created().into_iter().find(|(found, _)| *found == key).unwrap();
                if made.boot < boots[made.source as usize] {
                    continue;
                }
                let found = member.sensing.latest(&member.store, &key).unwrap();
                let value = at.0.to_be_bytes();
                prop_assert!(matches!(found, Latest::Reading(_, found) if *found == value), "{found:?}");
            }
        }
    }
}

/// A way that is not counted in would be seen.
#[test]
fn the_way_is_a_part_of_the_age() {
    let mut world = World::new();
    let steps = [
        Step::Set(0, 0),
        Step::Beat(1),
        Step::Arrives(0),
        Step::Set(0, 0),
        Step::Beat(0),
    ];
    steps.iter().for_each(|step| world.step(step));
    world.os.sleep(Nanos::from_millis(400));
    while !world.under_way.is_empty() {
        world.step(&Step::Arrives(0));
    }
    let member = &mut world.members[1];
    let Latest::Reading(age, _) = member.sensing.latest(&member.store, b"a").unwrap() else {
        panic!("no reading")
    };
    assert!(age >= Nanos::from_millis(400) && age < Nanos::from_millis(420), "{age}");
    assert!(member.sensing.ages.at(1.0).unwrap() >= Nanos::from_millis(400));
}

#[test]
fn what_is_older_too_long_or_of_another_node_is_not_taken() {
    let mut world = World::new();
    world.step(&Step::Set(0, 0));
    let now = world.os.now();
    let member = &mut world.members[0];
    let set =
        |member: &mut Member, key: &[u8], value: &[u8], age| member.sensing.set(&member.store, key, value, age, now);
    assert!(matches!(set(member, b"a", b"x", Nanos::from_millis(5)), Set::Younger));
    assert!(matches!(
        set(member, b"a", &[0; 1025], Nanos::ZERO),
        Set::Refused(StoreError::ValueTooLong { .. })
    ));
    assert!(matches!(set(member, b"z", b"x", Nanos::ZERO), Set::Unmade));
    let foreign = ReadingReport {
        object: ObjectName {
            source: 0,
            boot: 1,
            sequence: 1,
        },
        seq: Seq(9),
        age: Nanos::ZERO,
        stamp: Stamp { boot: 1, at: now },
        value: b"y".to_vec(),
    };
    let since_boot = world.os.since_boot();
    member
        .sensing
        .received(&member.store, NodeId(1), &[foreign], now, since_boot);
    assert_eq!(member.sensing.rejected, RejectedReports { unmade: 0, refused: 1 });
}
