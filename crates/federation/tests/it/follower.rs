//! The log is applied in its order, whatever arrives in whatever order.

use std::sync::Arc;

use proptest::prelude::*;
use punctual_federation::entry::{Body, Entry};
use punctual_federation::follower::{BUFFER_MAX, Follower};
use punctual_federation::ids::{BatchId, Boot, Epoch, Member, NodeId, Revision};
use punctual_federation::liveness::{HEARTBEAT, Liveness, SUSPECT_AFTER};
use punctual_federation::message::{Heartbeat, Report, Standing};
use punctual_units::Time;

fn entry(number: u64) -> Arc<Entry> {
    let id = BatchId {
        number,
        ..BatchId::default()
    };
    Arc::new(Entry {
        id,
        body: Body::Reign(Default::default()),
    })
}

proptest! {
    #[test]
    fn each_entry_is_applied_once_and_in_order(offers in prop::collection::vec((1..30_u64, any::<bool>()), 0..200)) {
        let mut follower = Follower::new(Revision::ZERO);
        let mut applied = Vec::new();
        let mut applying = None;
        for (number, finish) in offers {
            follower.offer((Revision(number), entry(number)));
            if finish && let Some(revision) = applying.take() {
                let done = follower.done(revision);
                applied.push(done.expect("it was being applied").id.number);
            }
            if let Some((revision, _)) = follower.next_to_apply() {
                prop_assert!(applying.is_none(), "two at once");
                applying = Some(revision);
            }
        }
        let expected: Vec<u64> = (1..=applied.len() as u64).collect();
        prop_assert_eq!(&applied, &expected);
        prop_assert_eq!(follower.applied(), Revision(applied.len() as u64));
    }
}

#[test]
fn what_is_far_ahead_is_not_kept_but_known_to_be_lacking() {
    let mut follower = Follower::new(Revision(5));
    follower.offer((Revision(6 + BUFFER_MAX), entry(1)));
    assert_eq!(follower.next_to_apply(), None);
    assert!(follower.lacks());
    follower.installed(Revision(6 + BUFFER_MAX));
    assert!(!follower.lacks());
}

fn heartbeat(node: u32, applied: u64) -> Heartbeat {
    Heartbeat {
        from: Member {
            node: NodeId(node),
            boot: Boot(1),
        },
        epoch: Epoch(1),
        master: false,
        applied: Revision(applied),
        durable: Revision(applied),
        said: Report {
            standing: Standing::Serving,
            ..Report::default()
        },
    }
}

#[test]
fn the_most_applied_node_goes_first_and_the_silent_and_the_leaving_do_not_count() {
    let mut liveness = Liveness::new(NodeId(2), &[0, 1, 2, 3].map(NodeId));
    let start = Time(1_000_000_000);
    liveness.heard(heartbeat(0, 9), start);
    liveness.heard(heartbeat(1, 7), start);
    let later = start + HEARTBEAT;
    liveness.heard(heartbeat(3, 8), later);
    assert_eq!(liveness.rank(Revision(7), later), 3); // 0 and 3 have more, 1 as much and a lower number
    assert_eq!(liveness.rank(Revision(9), later), 1);
    assert_eq!(liveness.rank(Revision(10), later), 0);
    assert_eq!(liveness.rank(Revision(7), start + SUSPECT_AFTER), 1); // only 3 is still heard
    let leaving = Heartbeat {
        said: Report {
            standing: Standing::Leaving,
            ..Report::default()
        },
        ..heartbeat(3, 8)
    };
    liveness.heard(leaving, later);
    assert_eq!(liveness.rank(Revision(7), start + SUSPECT_AFTER), 0);
    liveness.reset(NodeId(3));
    assert_eq!(liveness.live(later).count(), 2);
}
