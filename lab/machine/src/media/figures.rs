//! The figures of media, read from files (`media/`; `dps-table-1.toml` explains the keys).

use punctual_sim::{Access, ModelError, read_file, require, shipped};
use punctual_toml::Section;
use punctual_units::Nanos;

use super::ftl::{FlashOperations, Geometry};

const DPS_TABLE_1: &str = include_str!("../../../../media/dps-table-1.toml");

/// Bounds on the blocks and on the pages per block of a flash device...
const BLOCKS_MAX: u32 = 1 << 16;
const PAGES_PER_BLOCK_MAX: u32 = 1 << 12;
/// ...and on all pages, 4 GiB of 4 KiB: maps of 8 MB in each copy of the device, and some millions of writes to age it.
const FLASH_PAGES_MAX: u64 = 1 << 20;
/// Bounds on a page in bytes: from a sector, so that a film frame is some hundred pages, to the smallest huge pages.
const PAGE_BYTES: std::ops::RangeInclusive<u32> = 512..=1 << 20;

/// A disk, a flash device and a byte-addressable memory: the figures of one media file.
#[derive(Clone, Debug, PartialEq)]
pub struct Media {
    /// Name for messages and reports.
    pub name: String,
    /// Unit of reads and writes, in bytes: 512 to 1 MiB.
    pub page_bytes: u32,
    /// A hard disk with fixed times.
    pub hdd: Disk,
    /// Phase-change memory or similar.
    pub pcm: LineMemory,
    /// NAND flash behind a translation layer.
    pub flash: Flash,
}

/// A medium with its figures.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Medium {
    /// A fixed time per request.
    Disk(Disk),
    /// A random time per line.
    Memory(LineMemory),
    /// A time per page, and garbage collection.
    Flash(Flash),
}

/// A disk, on which every request of a kind takes the same time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Disk {
    /// Time of a read, in microseconds, above 0.
    pub read_us: f64,
    /// Time of a write, in microseconds, above 0.
    pub write_us: f64,
}

/// Byte-addressable memory: a page is fetched line by line.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LineMemory {
    /// Size of a line in bytes, above 0 and at most a page.
    pub line_bytes: u32,
    /// Time to read a line, in nanoseconds: least and most.
    pub read_ns: [f64; 2],
    /// Time to write a line, in nanoseconds: least and most.
    pub write_ns: [f64; 2],
}

/// NAND flash behind a page-mapped translation layer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Flash {
    /// Time to read a page, in microseconds, above 0.
    pub read_us: f64,
    /// Time to program a page, in microseconds, above 0.
    pub program_us: f64,
    /// Time to erase a block, in microseconds, above 0.
    pub erase_us: f64,
    /// Number of erase blocks.
    pub blocks: u32,
    /// Number of pages per block. The device has at most 2^20 pages.
    pub pages_per_block: u32,
    /// Flash beyond the logical pages, as a share of these, above 0.
    pub over_provisioning: f64,
    /// Share of free blocks below which garbage is collected, in (0, 1).
    pub collect_below: f64,
}

impl Media {
    /// Table 1 of the second paper: `media/dps-table-1.toml`.
    pub fn dps_table_1() -> Media {
        shipped(Media::from_toml(DPS_TABLE_1, "dps-table-1.toml"))
    }

    /// Reads media from the text of their file, and checks them; `shown` is the file's name.
    ///
    /// # Errors
    /// One line per fault: file, line, key, remedy.
    pub fn from_toml(text: &str, shown: &str) -> Result<Media, Vec<String>> {
        read_file(text, shown, media, Media::faults)
    }

    /// Checks that the figures can be simulated.
    ///
    /// # Errors
    /// [`ModelError`] names the first key that is out of range.
    pub fn check(&self) -> Result<(), ModelError> {
        self.faults().into_iter().next().map_or(Ok(()), Err)
    }

    /// All keys that are out of range.
    fn faults(&self) -> Vec<ModelError> {
        let mut faults = Vec::new();
        let mut require = |holds, key: &str, what: &str| require(&mut faults, holds, key, what);
        for (key, time) in [
            ("hdd.read-us", self.hdd.read_us),
            ("hdd.write-us", self.hdd.write_us),
            ("flash.read-us", self.flash.read_us),
            ("flash.program-us", self.flash.program_us),
            ("flash.erase-us", self.flash.erase_us),
        ] {
            let what = "a time above 0 and at most ten seconds is needed";
            require(time > 0.0 && time <= 1e7, key, what);
        }
        for (key, [least, most]) in [("pcm.read-ns", self.pcm.read_ns), ("pcm.write-ns", self.pcm.write_ns)] {
            let what = "needs the least and the most, above 0, the least first";
            require(least > 0.0 && least <= most && most <= 1e9, key, what);
        }
        let flash = &self.flash;
        for (key, count, range) in [
            ("page-bytes", self.page_bytes, PAGE_BYTES),
            ("flash.blocks", flash.blocks, 1..=BLOCKS_MAX),
            ("flash.pages-per-block", flash.pages_per_block, 1..=PAGES_PER_BLOCK_MAX),
        ] {
            let what = format!("must lie between {} and {}", range.start(), range.end());
            require(range.contains(&count), key, &what);
        }
        let line = self.pcm.line_bytes;
        let is_part = line > 0 && line <= self.page_bytes.max(*PAGE_BYTES.start());
        require(is_part, "pcm.line-bytes", "must be above 0, and at most `page-bytes`");
        let pages = u64::from(flash.blocks) * u64::from(flash.pages_per_block);
        let what = format!(
            "{} blocks of {} are {pages} pages, more than {FLASH_PAGES_MAX}: write less, or fewer blocks",
            flash.blocks, flash.pages_per_block
        );
        require(pages <= FLASH_PAGES_MAX, "flash.pages-per-block", &what);
        let is_share = flash.collect_below > 0.0 && flash.collect_below < 1.0;
        require(
            is_share,
            "flash.collect-below",
            "a share of the blocks: above 0 and below 1",
        );
        let is_positive = flash.over_provisioning > 0.0 && flash.over_provisioning <= 100.0;
        require(
            is_positive,
            "flash.over-provisioning",
            "must be above 0 and at most 100",
        );
        let what = "there is no room for garbage beside the free blocks: write more, or lower flash.collect-below";
        let is_sound = !is_share || !is_positive || flash.geometry().is_sound();
        require(is_sound, "flash.over-provisioning", what);
        faults
    }
}

fn media(top: &mut Section<'_, '_>) -> Media {
    Media {
        name: top.needed("name", Section::text),
        page_bytes: top.needed("page-bytes", Section::count),
        hdd: top.needed_table("hdd", |hdd| Disk {
            read_us: hdd.needed("read-us", Section::number),
            write_us: hdd.needed("write-us", Section::number),
        }),
        pcm: top.needed_table("pcm", |pcm| LineMemory {
            line_bytes: pcm.needed("line-bytes", Section::count),
            read_ns: pcm.pair("read-ns", Section::numbers),
            write_ns: pcm.pair("write-ns", Section::numbers),
        }),
        flash: top.needed_table("flash", |flash| Flash {
            read_us: flash.needed("read-us", Section::number),
            program_us: flash.needed("program-us", Section::number),
            erase_us: flash.needed("erase-us", Section::number),
            blocks: flash.needed("blocks", Section::count),
            pages_per_block: flash.needed("pages-per-block", Section::count),
            over_provisioning: flash.needed("over-provisioning", Section::number),
            collect_below: flash.needed("collect-below", Section::number),
        }),
    }
}

impl Disk {
    pub(super) fn time(&self, access: Access) -> Nanos {
        micros(match access {
            Access::Read => self.read_us,
            Access::Write => self.write_us,
        })
    }
}

impl LineMemory {
    pub(super) fn line_ns(&self, access: Access) -> [f64; 2] {
        match access {
            Access::Read => self.read_ns,
            Access::Write => self.write_ns,
        }
    }
}

impl Flash {
    /// Computes the geometry from the figures.
    pub fn geometry(&self) -> Geometry {
        let pages = f64::from(self.blocks) * f64::from(self.pages_per_block);
        Geometry {
            blocks: self.blocks,
            pages_per_block: self.pages_per_block,
            logical_pages: (pages / (1.0 + self.over_provisioning)) as u32,
            collect_below: (f64::from(self.blocks) * self.collect_below).ceil() as u32,
        }
    }

    pub(super) fn time(&self, work: FlashOperations) -> Nanos {
        micros(
            work.reads as f64 * self.read_us
                + work.programs as f64 * self.program_us
                + work.erases as f64 * self.erase_us,
        )
    }
}

fn micros(us: f64) -> Nanos {
    Nanos((us * 1e3).round() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shipped_media_are_sound() {
        assert_eq!(Media::from_toml(DPS_TABLE_1, "x"), Ok(Media::dps_table_1()));
        Media::from_toml(include_str!("../../../../media/mqsim-mlc.toml"), "x").unwrap();
    }

    #[test]
    fn each_fault_names_line_and_key() {
        let line = |needle: &str| DPS_TABLE_1.lines().position(|line| line.starts_with(needle)).unwrap() + 1;
        for (from, to, key, what) in [
            ("erase-us = 1500", "", "flash.erase-us", "missing"),
            ("erase-us = 1500", "erase-us = 0", "flash.erase-us", "a time above 0"),
            ("line-bytes = 64", "line-bytes = 0", "pcm.line-bytes", "must be above 0"),
            (
                "read-ns = [50, 100]",
                "read-ns = [100, 50]",
                "pcm.read-ns",
                "the least first",
            ),
            (
                "over-provisioning = 0.25",
                "over-provisioning = 0.01",
                "flash.over-provisioning",
                "no room for garbage",
            ),
            (
                "collect-below = 0.05",
                "collect-below = 1",
                "flash.collect-below",
                "above 0 and below 1",
            ),
            (
                "page-bytes = 4096",
                "page-bytes = 1",
                "page-bytes",
                "between 512 and 1048576",
            ),
            (
                "line-bytes = 64",
                "line-bytes = 8192",
                "pcm.line-bytes",
                "at most `page-bytes`",
            ),
            (
                "pages-per-block = 128",
                "pages-per-block = 4096",
                "flash.pages-per-block",
                "2097152 pages",
            ),
        ] {
            assert!(DPS_TABLE_1.contains(from), "{from}");
            let errors = Media::from_toml(&DPS_TABLE_1.replacen(from, to, 1), "x").unwrap_err();
            let [error] = &errors[..] else { panic!("{errors:?}") };
            assert!(error.contains(&format!(": {key}: ")) && error.contains(what), "{error}");
            if !to.is_empty() {
                assert!(error.starts_with(&format!("x:{}: ", line(from))), "{error}");
            }
        }
        let without = DPS_TABLE_1.split("[flash]").next().unwrap();
        assert_eq!(
            Media::from_toml(without, "x").unwrap_err(),
            ["x: flash: missing: add this table"]
        );
    }
}
