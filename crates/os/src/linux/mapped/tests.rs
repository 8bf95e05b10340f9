//! Partitions in memory and on a device.

use punctual_testing::shared_folder;

use super::*;

#[test]
fn what_is_written_is_there_for_the_next_one_on_memory_and_on_a_device() {
    for folder in [shared_folder(), tempfile::tempdir().unwrap()] {
        let path = folder.path().join("partition");
        let mut partition = MappedPartition::create(&path, 10_000).unwrap();
        eprintln!("{:?}, locked: {:?}", partition.medium(), partition.locked());
        partition.write(9_990, b"0123456789").unwrap();
        partition.write(0, b"first").unwrap();
        assert!(partition.write(9_991, b"0123456789").is_err(), "beyond its end");
        assert!(partition.write(usize::MAX, b"x").is_err());
        drop(partition);
        let again = MappedPartition::create(&path, 10_000).unwrap();
        assert_eq!(
            (&again.as_slice()[..5], &again.as_slice()[9_990..]),
            (&b"first"[..], &b"0123456789"[..])
        );
        assert_eq!(std::fs::read(&path).unwrap().len(), 10_000);
    }
}

/// Where persistent memory is mounted, if anywhere.
const PERSISTENT: &str = "PUNCTUAL_TEST_DAX";

#[test]
fn persistent_memory_is_found() {
    let Ok(folder) = std::env::var(PERSISTENT) else {
        return eprintln!("skipped: {PERSISTENT} names no folder on persistent memory");
    };
    let path = Path::new(&folder).join("partition");
    let mut partition = MappedPartition::create(&path, 10_000).unwrap();
    assert_eq!(partition.medium(), Medium::PersistentMemory);
    assert_eq!(partition.medium().survives(), "power loss");
    assert_ne!(partition.flush, Flush::Msync, "by instructions, on a CPU that has them");
    partition.write(9_997, b"end").unwrap();
    drop(partition);
    assert_eq!(
        &MappedPartition::create(&path, 10_000).unwrap().as_slice()[9_997..],
        b"end"
    );
    std::fs::remove_file(path).unwrap();
}

#[test]
fn a_partition_has_one_owner_at_a_time() {
    let folder = shared_folder();
    let path = folder.path().join("partition");
    let first = MappedPartition::create(&path, 4096).unwrap();
    let refusal = MappedPartition::create(&path, 8192).unwrap_err();
    assert!(refusal.why.contains("in use"), "{refusal}");
    assert_eq!(
        (first.as_slice().len(), std::fs::read(&path).unwrap().len()),
        (4096, 4096)
    );
    drop(first);
    MappedPartition::create(&path, 8192).unwrap();
}

#[test]
fn what_cannot_be_made_leaves_the_folder_as_it_was() {
    let folder = shared_folder();
    let path = |name: &str| folder.path().join(name);
    std::fs::write(path("shorter"), "found").unwrap();
    // As if the disk had been full halfway.
    let refused = |name: &str| {
        let draft = path(name);
        let draft = Draft::open(&draft).unwrap();
        draft.file.set_len(1 << 20).unwrap();
        drop(draft);
    };
    refused("new");
    refused("shorter");
    assert!(!path("new").exists());
    assert_eq!(std::fs::read(path("shorter")).unwrap(), b"found");
    std::fs::create_dir(path("a folder")).unwrap();
    assert!(MappedPartition::create(&path("a folder"), 4096).is_err());
    assert!(path("a folder").is_dir());
}

/// Page faults of the calling thread so far.
fn faults() -> i64 {
    // SAFETY: an all-zero rusage is valid, and the call fills it in.
    unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_THREAD, &mut usage);
        usage.ru_minflt + usage.ru_majflt
    }
}

fn write_each_page(mapping: &Mapping) -> i64 {
    let before = faults();
    mapping.touch();
    faults() - before
}

#[test]
fn no_store_faults_after_prefaulting_by_either_way() {
    const PAGES: usize = 512;
    for folder in [shared_folder(), tempfile::tempdir().unwrap()] {
        let path = folder.path().join("partition");
        let mapped = |way: &dyn Fn(&Mapping)| {
            let draft = Draft::open(&path).unwrap();
            draft.reserve((PAGES * page_bytes()) as u64).unwrap();
            let (mapping, medium) = Mapping::of(&draft.file, PAGES * page_bytes()).unwrap();
            way(&mapping);
            (write_each_page(&mapping), medium)
        };
        // What `MAP_POPULATE` does to a shared mapping.
        let read_only = |mapping: &Mapping| {
            // SAFETY: changes only which pages of the mapping are there.
            unsafe { libc::madvise(mapping.address.as_ptr().cast(), mapping.bytes, libc::MADV_POPULATE_READ) };
        };
        let (bare, medium) = mapped(&|_| ());
        let (read, _) = mapped(&read_only);
        let (populated, _) = mapped(&|mapping| mapping.prefault().unwrap());
        let (touched, _) = mapped(&Mapping::touch);
        eprintln!(
            "{medium:?}: {bare} faults in {PAGES} pages, {read} once populated for reading, {populated} for writing, {touched} once touched"
        );
        // The kernel may put several pages in place at one fault; some faults are the test's own.
        let few = PAGES as i64 / 8;
        assert!(bare > 0 && populated < few && touched < few);
    }
}
