//! Mapped files in memory and on a disk.

use std::sync::atomic::Ordering;

use punctual_testing::shared_folder;

use super::*;

const WORDS: usize = 1500;

fn load(file: &MappedFile, at: usize) -> u64 {
    file.words()[at].load(Ordering::Relaxed)
}

/// Maps a file in `folder`, as often as it is dropped.
fn is_kept(folder: &Path, medium: MappedMedium) {
    let path = folder.join("mapped");
    let file = MappedFile::open(&path, WORDS).unwrap();
    assert_eq!((file.medium(), load(&file, WORDS - 1)), (medium, 0));
    file.words()[WORDS - 1].store(7, Ordering::Relaxed);
    file.write_back(WORDS - 1..WORDS);
    drop(file);
    assert_eq!(load(&MappedFile::open(&path, WORDS).unwrap(), WORDS - 1), 7);
    assert_eq!(std::fs::metadata(&path).unwrap().len(), (WORDS * WORD) as u64);
}

#[test]
fn words_are_there_for_the_next_owner() {
    is_kept(shared_folder().path(), MappedMedium::SharedMemory);
}

/// Where persistent memory is mounted, if anywhere.
const PERSISTENT: &str = "PUNCTUAL_TEST_DAX";

#[test]
fn persistent_memory_is_found() {
    let Ok(folder) = std::env::var(PERSISTENT) else {
        return eprintln!("skipped: {PERSISTENT} names no folder on persistent memory");
    };
    let folder = tempfile::tempdir_in(folder).unwrap();
    is_kept(folder.path(), MappedMedium::PersistentMemory);
}

#[test]
fn a_file_has_one_owner_at_a_time_and_keeps_its_length() {
    let folder = shared_folder();
    let path = folder.path().join("mapped");
    let refused = |words| MappedFile::open(&path, words).unwrap_err();
    let first = MappedFile::open(&path, WORDS).unwrap();
    assert_eq!(refused(WORDS).why, "another program has it mapped");
    // Nor does a child that still has the descriptor keep the lock.
    let kept = first.file.try_clone().unwrap();
    drop(first);
    drop(MappedFile::open(&path, WORDS).unwrap());
    drop(kept);
    for words in [WORDS - 1, WORDS + 1] {
        assert!(refused(words).why.starts_with("it has 12000 bytes, not "));
    }
    assert_eq!(std::fs::metadata(&path).unwrap().len(), 12_000);
}

#[test]
fn what_cannot_be_mapped_is_refused_and_left_as_it_was() {
    let folder = shared_folder();
    let path = |name: &str| folder.path().join(name);
    let refused = |path: &Path, words| MappedFile::open(path, words).unwrap_err();
    // More than any machine has: the kernel maps no such length, or allocates no such file.
    for words in [1 << 34, 1 << 40, 1 << 58] {
        refused(&path("full"), words);
        assert!(!path("full").exists());
    }
    std::fs::write(path("short"), "found").unwrap();
    assert!(
        refused(&path("short"), WORDS)
            .why
            .starts_with("it has 5 bytes, not 12000")
    );
    assert_eq!(std::fs::read(path("short")).unwrap(), b"found");
    // An empty file stays empty, though blocks were taken for it.
    std::fs::write(path("empty"), "").unwrap();
    refused(&path("empty"), 1 << 34);
    assert_eq!(std::fs::metadata(path("empty")).unwrap().len(), 0);
    std::fs::create_dir(path("a folder")).unwrap();
    refused(&path("a folder"), WORDS);
    refused(&path("no folder/mapped"), WORDS);
    refused(Path::new("/dev/null"), WORDS);
}

#[test]
fn a_disk_is_refused() {
    let folder = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
    if is_in_memory(&File::open(folder.path()).unwrap()) {
        return eprintln!("skipped: the source lies in memory");
    }
    let path = folder.path().join("mapped");
    let refusal = MappedFile::open(&path, WORDS).unwrap_err();
    assert!(refusal.why.contains("neither tmpfs nor mounted with dax"), "{refusal}");
    assert!(!path.exists());
}

#[test]
fn holes_are_filled_and_keep_what_is_beside_them() {
    let folder = shared_folder();
    let path = folder.path().join("mapped");
    std::fs::write(&path, 7_u64.to_ne_bytes()).unwrap();
    File::options()
        .write(true)
        .open(&path)
        .unwrap()
        .set_len(1 << 20)
        .unwrap();
    let file = MappedFile::open(&path, (1 << 20) / WORD).unwrap();
    assert_eq!([0, 1].map(|at| load(&file, at)), [7, 0]);
    assert!(std::fs::metadata(&path).unwrap().blocks() >= (1 << 20) / 512);
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

#[test]
fn no_store_faults_after_prefaulting() {
    const PAGES: usize = 512;
    let folder = shared_folder();
    let path = folder.path().join("mapped");
    drop(MappedFile::open(&path, PAGES * 4096 / WORD).unwrap());
    let faults_after = |way: &dyn Fn(&Mapping)| {
        let file = File::options().read(true).write(true).open(&path).unwrap();
        let mapped = MappedFile {
            mapping: Mapping::of(&file, PAGES * 4096, true).unwrap(),
            clwb: None,
            file,
            owner: 0,
        };
        way(&mapped.mapping);
        let before = faults();
        for page in mapped.words().chunks(4096 / WORD) {
            page[0].store(1, Ordering::Relaxed);
        }
        faults() - before
    };
    let (bare, populated) = (
        faults_after(&|_| ()),
        faults_after(&|mapping| mapping.populate().unwrap()),
    );
    eprintln!("{bare} faults in {PAGES} pages, {populated} once populated");
    // The kernel may put several pages in place at one fault; some faults are the test's own.
    assert!(bare > 0 && populated < PAGES as i64 / 8);
}
