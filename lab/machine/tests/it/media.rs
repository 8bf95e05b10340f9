//! Storage media: the translation layer against a map, and what a device may never do.

use std::collections::HashMap;

use proptest::prelude::*;
use punctual_machine::media::{Ftl, Geometry, Media, MediaDevice, Medium};
use punctual_sim::{Access, Device, PageRequest};
use punctual_units::{Nanos, Time};

/// A small device, sound by construction: what the user has is what full blocks cannot all hold.
fn geometry() -> impl Strategy<Value = Geometry> {
    (6u32..20, 1u32..9, 1u32..4).prop_flat_map(|(blocks, pages_per_block, collect_below)| {
        let room = (blocks - collect_below.max(2) - 1) * pages_per_block;
        (1..room.max(2)).prop_map(move |logical_pages| Geometry {
            blocks,
            pages_per_block,
            logical_pages,
            collect_below,
        })
    })
}

fn is_consistent(ftl: &Ftl, written: &HashMap<u32, u32>) -> Result<(), String> {
    let mut places = HashMap::new();
    for page in 0..ftl.geometry().logical_pages {
        match (ftl.place(page), written.contains_key(&page)) {
            (None, false) => {}
            (Some(place), true) => {
                if ftl.held_at(place) != Some(page) {
                    return Err(format!(
                        "page {page} is mapped to {place}, which holds {:?}",
                        ftl.held_at(place)
                    ));
                }
                if let Some(other) = places.insert(place, page) {
                    return Err(format!("pages {page} and {other} share a place"));
                }
            }
            (found, expected) => return Err(format!("page {page}: {found:?}, written: {expected}")),
        }
    }
    Ok(())
}

proptest! {
    #[test]
    fn no_page_is_lost_and_a_block_is_always_free(
        geometry in geometry().prop_filter("sound", Geometry::is_sound),
        pages in prop::collection::vec(0u32..200, 0..600),
        background in any::<bool>(),
    ) {
        let mut ftl = Ftl::new(geometry);
        let mut written = HashMap::new();
        for (i, page) in (0u32..).zip(pages) {
            let page = page % geometry.logical_pages;
            let before = ftl.write_amplification();
            let work = ftl.write(page);
            prop_assert!(work.programs >= 1 && before >= 1.0);
            written.insert(page, i);
            prop_assert!(ftl.free_blocks() >= 1);
            // Without collections in between, writes wait for those that they need.
            if background {
                let work = ftl.collect_if_needed();
                prop_assert!(work.erases <= 1 && work.reads == work.programs);
                prop_assert!(work.programs < u64::from(geometry.pages_per_block), "a collection gains at least a page");
            }
            prop_assert!(ftl.free_blocks() >= 1);
            if let Err(fault) = is_consistent(&ftl, &written) {
                prop_assert!(false, "{fault}");
            }
        }
        prop_assert!(ftl.write_amplification() >= 1.0);
    }

    #[test]
    fn requests_end_in_order_and_none_is_interrupted(
        requests in prop::collection::vec((any::<bool>(), 0u64..400, 1u32..5, 0u64..3_000_000), 1..60),
        seed in any::<u64>(),
    ) {
        let media = small_media();
        for medium in [Medium::Disk(media.hdd), Medium::Memory(media.pcm), Medium::Flash(media.flash)] {
            let mut device = MediaDevice::new(&medium, media.page_bytes, seed);
            let (mut now, mut last) = (Time::ZERO, Time::ZERO);
            for (read, page, pages, pause) in &requests {
                let access = if *read { Access::Read } else { Access::Write };
                now = now + Nanos(*pause);
                let done = device.submit(PageRequest { access, page: *page, pages: *pages }, now);
                prop_assert!(done > now && done > last, "one after the other");
                last = done;
            }
            let report = device.report();
            prop_assert_eq!(report.requests, requests.len() as u64);
            // Everything that it did lies between the first request and the end of the last, or is the collection after
            // it.
            prop_assert!(report.serving <= last.since(Time::ZERO));
            if let Some(amplification) = device.write_amplification() {
                prop_assert!(amplification >= 1.0);
            }
        }
    }
}

fn small_media() -> Media {
    let mut media = Media::dps_table_1();
    (media.flash.blocks, media.flash.pages_per_block) = (64, 8);
    media.check().unwrap();
    media
}

#[test]
fn the_checker_sees_a_lost_page() {
    let geometry = Geometry {
        blocks: 8,
        pages_per_block: 4,
        logical_pages: 8,
        collect_below: 2,
    };
    let mut ftl = Ftl::new(geometry);
    ftl.write(3);
    assert!(is_consistent(&ftl, &HashMap::from([(3, 0)])).is_ok());
    // The planted fault: one page that was never written, one that the model does not know.
    assert!(is_consistent(&ftl, &HashMap::from([(4, 0)])).is_err());
}

#[test]
fn too_little_over_provisioning_is_unsound() {
    let geometry = Geometry {
        blocks: 8,
        pages_per_block: 4,
        logical_pages: 20,
        collect_below: 2,
    };
    assert!(!geometry.is_sound(), "five full blocks could all be valid");
    assert!(
        Geometry {
            logical_pages: 19,
            ..geometry
        }
        .is_sound()
    );
}

#[test]
fn table_1_comes_out_of_the_devices() {
    let media = Media::dps_table_1();
    let time = |medium: Medium, access| {
        let mut device = MediaDevice::new(&medium, media.page_bytes, 1);
        let page = PageRequest {
            access,
            page: 7,
            pages: 1,
        };
        device.submit(page, Time::ZERO).since(Time::ZERO)
    };
    assert_eq!(time(Medium::Disk(media.hdd), Access::Read), Nanos::from_millis(10));
    assert_eq!(time(Medium::Flash(media.flash), Access::Read), Nanos::from_micros(60));
    assert_eq!(time(Medium::Flash(media.flash), Access::Write), Nanos::from_micros(800));
    // 64 lines.
    let lines = |ns: u64| Nanos(64 * ns);
    let read = time(Medium::Memory(media.pcm), Access::Read);
    assert!((lines(50)..=lines(100)).contains(&read), "{read}");
    let write = time(Medium::Memory(media.pcm), Access::Write);
    assert!((lines(400)..=lines(500)).contains(&write), "{write}");
}

#[test]
fn garbage_collection_delays_the_request_after_it() {
    let media = Media::dps_table_1();
    let mut device = MediaDevice::new(&Medium::Flash(media.flash), media.page_bytes, 1);
    let mut now = Time::ZERO;
    let mut worst = Nanos::ZERO;
    for page in 0..2000u64 {
        let request = |access| PageRequest {
            access,
            page: page * 7919,
            pages: 1,
        };
        now = device.submit(request(Access::Write), now);
        let read = device.submit(request(Access::Read), now);
        worst = worst.max(read.since(now));
        now = read;
    }
    let erase = Nanos::from_micros(1500);
    assert!(
        worst > erase + Nanos::from_micros(60),
        "a read waited for a whole collection: {worst}"
    );
    assert!(device.report().collecting > erase);
    assert!(device.write_amplification().unwrap() > 1.0);
}
