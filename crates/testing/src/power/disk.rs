//! From a record to what is on the medium after a power cut.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use super::record::{Event, FileId};

/// What the page cache writes back by itself: a page, in bytes.
const PAGE: u64 = 4096;
/// What a disk writes as a whole, in bytes.
const SECTOR: u64 = 512;

/// Which part of what was not synced a power cut leaves on the medium.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss {
    /// Nothing of it.
    All,
    /// Each page of 4096 bytes as it was after any of the writes to it, page by page.
    Pages,
    /// All writes up to an instant, in their order over all files, and none after.
    Suffix,
    /// As [`Pages`](Loss::Pages), sector by sector of 512 bytes: a write is torn.
    Sectors,
}

impl Loss {
    /// All four.
    pub const EVERY: [Loss; 4] = [Loss::All, Loss::Pages, Loss::Suffix, Loss::Sectors];
}

/// The files below the recorded folder after a power cut, by path.
pub type Image = BTreeMap<PathBuf, Vec<u8>>;

/// A medium that takes events one after the other.
#[derive(Clone, Debug, Default)]
pub struct Disk {
    files: BTreeMap<FileId, File>,
    /// What each name stands for, as far as directories were synced.
    durable: Names,
    /// What each name stands for now.
    newest: Names,
    /// Changes of names that are not durable yet, in order.
    changes: Vec<Naming>,
    /// Writes that were not synced as a whole, over all files.
    order: u64,
}

#[derive(Clone, Debug, Default)]
struct Names {
    files: BTreeMap<PathBuf, FileId>,
    directories: BTreeSet<PathBuf>,
}

/// A change of names.
#[derive(Clone, Debug)]
enum Naming {
    File(PathBuf, FileId),
    Directory(PathBuf),
    Gone(PathBuf),
    /// From, to, and the file: its old name need not have been durable.
    Moved(PathBuf, PathBuf, FileId),
}

#[derive(Clone, Debug, Default)]
struct File {
    durable: Vec<u8>,
    /// In order, with their place in the order over all files.
    pending: Vec<(u64, Change)>,
}

#[derive(Clone, Debug)]
enum Change {
    Write(u64, Vec<u8>),
    Truncate(u64),
}

impl Change {
    fn apply(&self, content: &mut Vec<u8>) {
        match self {
            Change::Write(offset, bytes) => {
                let end = *offset as usize + bytes.len();
                if content.len() < end {
                    content.resize(end, 0);
                }
                content[*offset as usize..end].copy_from_slice(bytes);
            }
            Change::Truncate(len) => content.resize(*len as usize, 0),
        }
    }

    /// The part of a write that lies in `range`.
    fn within(&self, from: u64, to: u64) -> Option<Change> {
        let Change::Write(offset, bytes) = self else {
            return None;
        };
        let (low, high) = (from.max(*offset), to.min(offset + bytes.len() as u64));
        (low < high).then(|| Change::Write(low, bytes[(low - offset) as usize..(high - offset) as usize].to_vec()))
    }
}

impl Names {
    fn change(&mut self, change: &Naming) {
        match change {
            Naming::File(path, file) => drop(self.files.insert(path.clone(), *file)),
            Naming::Directory(path) => drop(self.directories.insert(path.clone())),
            Naming::Gone(path) => {
                self.files.remove(path);
                self.directories.remove(path);
            }
            Naming::Moved(from, to, file) => {
                self.files.remove(from);
                self.files.insert(to.clone(), *file);
            }
        }
    }

    /// Whether all directories above `path` are there.
    fn reaches(&self, path: &Path) -> bool {
        let mut above = path.ancestors().skip(1).filter(|folder| !folder.as_os_str().is_empty());
        above.all(|folder| self.directories.contains(folder))
    }
}

impl Naming {
    /// The directory whose sync makes it durable.
    fn directory(&self) -> Option<&Path> {
        match self {
            Naming::File(path, _) | Naming::Directory(path) | Naming::Gone(path) | Naming::Moved(_, path, _) => {
                path.parent()
            }
        }
    }
}

impl Disk {
    /// Takes the next event of a record.
    pub fn take(&mut self, event: &Event) {
        match event {
            Event::Created(file, path) => {
                self.files.entry(*file).or_default();
                self.name(Naming::File(path.clone(), *file));
            }
            Event::DirectoryMade(path) => self.name(Naming::Directory(path.clone())),
            Event::Removed(path) => self.name(Naming::Gone(path.clone())),
            Event::Renamed(from, to) => {
                if let Some(file) = self.newest.files.get(from) {
                    self.name(Naming::Moved(from.clone(), to.clone(), *file));
                }
            }
            Event::Written(file, offset, bytes) => self.pend(*file, Change::Write(*offset, bytes.clone())),
            Event::Truncated(file, len) => self.pend(*file, Change::Truncate(*len)),
            Event::Synced(file) => self.files.entry(*file).or_default().sync(),
            Event::RangeSynced(file, offset, len) => {
                self.files.entry(*file).or_default().sync_range(*offset, offset + len);
            }
            Event::DirectorySynced(path) => self.sync_names(path),
            Event::Marked(..) => {}
        }
    }

    fn name(&mut self, change: Naming) {
        self.newest.change(&change);
        self.changes.push(change);
    }

    fn pend(&mut self, file: FileId, change: Change) {
        self.order += 1;
        self.files.entry(file).or_default().pending.push((self.order, change));
    }

    fn sync_names(&mut self, directory: &Path) {
        let changes = std::mem::take(&mut self.changes);
        for change in changes {
            if change.directory() == Some(directory) {
                self.durable.change(&change);
            } else {
                self.changes.push(change);
            }
        }
    }

    /// What a power cut now leaves behind; `choose` gives a number below its argument, which is at least 1.
    pub fn image(&self, loss: Loss, choose: &mut impl FnMut(u64) -> u64) -> Image {
        let mut names = self.durable.clone();
        let kept = match loss {
            Loss::All => 0,
            _ => choose(self.changes.len() as u64 + 1) as usize,
        };
        self.changes[..kept].iter().for_each(|change| names.change(change));
        let until = choose(self.order + 1);
        let reached = names.files.iter().filter(|(path, _)| names.reaches(path));
        reached
            .filter_map(|(path, file)| Some((path.clone(), self.files.get(file)?.after(loss, until, choose))))
            .collect()
    }
}

impl File {
    fn sync(&mut self) {
        for (_, change) in self.pending.drain(..) {
            change.apply(&mut self.durable);
        }
    }

    /// Makes what was written to a range durable; older writes to it are overwritten by that and do not come back.
    fn sync_range(&mut self, from: u64, to: u64) {
        let parts: Vec<Change> = self
            .pending
            .iter()
            .filter_map(|(_, change)| change.within(from, to))
            .collect();
        parts.iter().for_each(|part| part.apply(&mut self.durable));
        let pending = std::mem::take(&mut self.pending);
        for (order, change) in pending {
            let Change::Write(offset, bytes) = &change else {
                self.pending.push((order, change));
                continue;
            };
            let end = offset + bytes.len() as u64;
            let rest = [
                change.within(*offset, from.min(end)),
                change.within(to.max(*offset), end),
            ];
            self.pending
                .extend(rest.into_iter().flatten().map(|part| (order, part)));
        }
    }

    fn after(&self, loss: Loss, until: u64, choose: &mut impl FnMut(u64) -> u64) -> Vec<u8> {
        match loss {
            Loss::All => self.durable.clone(),
            Loss::Suffix => {
                let mut content = self.durable.clone();
                let kept = self.pending.iter().filter(|(order, _)| *order <= until);
                kept.for_each(|(_, change)| change.apply(&mut content));
                content
            }
            Loss::Pages => self.in_blocks(PAGE, choose),
            Loss::Sectors => self.in_blocks(SECTOR, choose),
        }
    }

    /// Each block as it was after any number of the writes to it. A file that was cut keeps the order of its writes.
    fn in_blocks(&self, block: u64, choose: &mut impl FnMut(u64) -> u64) -> Vec<u8> {
        let mut content = self.durable.clone();
        if self
            .pending
            .iter()
            .any(|(_, change)| matches!(change, Change::Truncate(_)))
        {
            let kept = choose(self.pending.len() as u64 + 1) as usize;
            self.pending[..kept]
                .iter()
                .for_each(|(_, change)| change.apply(&mut content));
            return content;
        }
        let mut versions: BTreeMap<u64, Vec<Change>> = BTreeMap::new();
        for (_, change) in &self.pending {
            let Change::Write(offset, bytes) = change else { continue };
            for at in offset / block..(offset + bytes.len() as u64).div_ceil(block) {
                let part = change.within(at * block, (at + 1) * block);
                versions.entry(at).or_default().extend(part);
            }
        }
        for parts in versions.values() {
            let kept = choose(parts.len() as u64 + 1) as usize;
            parts[..kept].iter().for_each(|part| part.apply(&mut content));
        }
        content
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(content: &[(u64, &[u8])]) -> Vec<Event> {
        let path = PathBuf::from("data");
        let created = Event::Created(FileId(0), path);
        let writes = content
            .iter()
            .map(|(offset, bytes)| Event::Written(FileId(0), *offset, bytes.to_vec()));
        [created, Event::DirectorySynced(PathBuf::new())]
            .into_iter()
            .chain(writes)
            .collect()
    }

    fn images(events: &[Event], loss: Loss) -> BTreeSet<Option<Vec<u8>>> {
        let mut disk = Disk::default();
        events.iter().for_each(|event| disk.take(event));
        let mut number = 7_u64;
        let mut choose = |end: u64| {
            number = number
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (number >> 33) % end
        };
        (0..200)
            .map(|_| disk.image(loss, &mut choose).remove(Path::new("data")))
            .collect()
    }

    fn whole(contents: &[&[u8]]) -> BTreeSet<Option<Vec<u8>>> {
        contents.iter().map(|content| Some(content.to_vec())).collect()
    }

    #[test]
    fn what_was_synced_stays_and_the_rest_is_lost_as_the_model_says() {
        let mut events = file(&[(0, b"old")]);
        events.push(Event::Synced(FileId(0)));
        events.push(Event::Written(FileId(0), 0, b"new".to_vec()));
        events.push(Event::Written(FileId(0), 3, b"er".to_vec()));
        assert_eq!(images(&events, Loss::All), whole(&[b"old"]));
        assert_eq!(images(&events, Loss::Suffix), whole(&[b"old", b"new", b"newer"]));
        assert_eq!(images(&events, Loss::Pages), whole(&[b"old", b"new", b"newer"]));
        events.push(Event::Synced(FileId(0)));
        for loss in Loss::EVERY {
            assert_eq!(images(&events, loss), whole(&[b"newer"]), "{loss:?}");
        }
    }

    #[test]
    fn sectors_are_lost_one_by_one_and_pages_are_not_torn() {
        let events = file(&[(0, &[1; 1024])]);
        let (none, full) = (&[][..], &[1; 1024][..]);
        assert_eq!(images(&events, Loss::Pages), whole(&[none, full]));
        let second = [[0; 512], [1; 512]].concat();
        assert_eq!(
            images(&events, Loss::Sectors),
            whole(&[none, &full[..512], &second, full])
        );
    }

    #[test]
    fn a_synced_range_is_durable_alone() {
        let mut events = file(&[(0, b"aaaa"), (1, b"bb")]);
        events.push(Event::RangeSynced(FileId(0), 1, 2));
        assert_eq!(images(&events, Loss::All), whole(&[b"\0bb"]));
        assert_eq!(images(&events, Loss::Suffix), whole(&[b"\0bb", b"abba"]));
    }

    #[test]
    fn a_name_is_durable_when_its_directory_was_synced() {
        let (file, directory) = (FileId(0), PathBuf::from("d"));
        let mut events = vec![
            Event::DirectoryMade(directory.clone()),
            Event::Created(file, "d/new".into()),
            Event::Written(file, 0, b"x".to_vec()),
            Event::Synced(file),
            Event::DirectorySynced(directory.clone()),
            Event::Renamed("d/new".into(), "d/data".into()),
            Event::DirectorySynced(directory),
        ];
        let names = |events: &[Event]| {
            let mut disk = Disk::default();
            events.iter().for_each(|event| disk.take(event));
            disk.image(Loss::All, &mut |_| 0).into_keys().collect::<Vec<_>>()
        };
        assert_eq!(names(&events), Vec::<PathBuf>::new()); // the directory itself was not
        events.push(Event::DirectorySynced(PathBuf::new()));
        assert_eq!(names(&events), [PathBuf::from("d/data")]);
    }
}
