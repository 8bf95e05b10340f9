//! A running medium: one request at a time, first come, first served.

use punctual_sim::{Access, Device, PageRequest};
use punctual_units::{Nanos, Time};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::figures::{Disk, Flash, LineMemory, Medium};
use super::ftl::{FlashOperations, Ftl};

/// A medium that serves requests one by one.
#[derive(Clone, Debug)]
pub struct MediaDevice {
    kind: Kind,
    free_at: Time,
    draws: ChaCha8Rng,
    report: DeviceReport,
}

#[derive(Clone, Debug)]
enum Kind {
    Disk(Disk),
    /// With the number of lines in a page.
    Memory(LineMemory, u64),
    Flash(Flash, Box<Ftl>),
}

/// Requests and busy times of a device since its start.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct DeviceReport {
    /// Number of requests served.
    pub requests: u64,
    /// Time of serving requests, without collections that follow a write.
    pub serving: Nanos,
    /// Time of collecting garbage after a write.
    pub collecting: Nanos,
}

impl MediaDevice {
    /// Starts an idle device. Flash is aged first: every page is written once in order, and as many again at random, so
    /// that garbage is collected as in a device that has been in use.
    ///
    /// # Panics
    /// Where `medium` is not from a checked [`Media`](super::Media).
    pub fn new(medium: &Medium, page_bytes: u32, seed: u64) -> MediaDevice {
        let mut draws = ChaCha8Rng::seed_from_u64(seed);
        let kind = match medium {
            Medium::Disk(disk) => Kind::Disk(*disk),
            Medium::Memory(memory) => Kind::Memory(*memory, u64::from(page_bytes.div_ceil(memory.line_bytes.max(1)))),
            Medium::Flash(flash) => Kind::Flash(*flash, Box::new(aged(flash, &mut draws))),
        };
        MediaDevice {
            kind,
            free_at: Time::ZERO,
            draws,
            report: DeviceReport::default(),
        }
    }

    /// Requests and busy times so far.
    pub fn report(&self) -> DeviceReport {
        self.report
    }

    /// Pages programmed for each page written since aging; `None` except for flash.
    pub fn write_amplification(&self) -> Option<f64> {
        match &self.kind {
            Kind::Flash(_, ftl) => Some(ftl.write_amplification()),
            _ => None,
        }
    }

    /// Service time of the request, and the time for which the device is busy after it.
    fn service(&mut self, PageRequest { access, page, pages }: PageRequest) -> (Nanos, Nanos) {
        let pages = pages.max(1);
        match &mut self.kind {
            Kind::Disk(disk) => (disk.time(access), Nanos::ZERO),
            Kind::Memory(memory, lines) => {
                let [least, most] = memory.line_ns(access);
                let line = self.draws.random_range(least..=most);
                let ns = line * (*lines * u64::from(pages)) as f64;
                (Nanos(ns.round() as u64), Nanos::ZERO)
            }
            Kind::Flash(flash, ftl) => {
                let (mut own, mut after) = (FlashOperations::default(), FlashOperations::default());
                for page in (page..).take(pages as usize) {
                    let page = (page % u64::from(ftl.geometry().logical_pages)) as u32;
                    match access {
                        Access::Read => own += ftl.read(page),
                        Access::Write => {
                            own += ftl.write(page);
                            after += ftl.collect_if_needed();
                        }
                    }
                }
                (flash.time(own), flash.time(after))
            }
        }
    }
}

impl Device for MediaDevice {
    /// Service begins when all earlier requests are done. Pages beyond a flash device's size wrap around.
    fn submit(&mut self, request: PageRequest, now: Time) -> Time {
        let begin = self.free_at.max(now);
        let (service, after) = self.service(request);
        let complete = begin + service;
        self.free_at = complete + after;
        self.report.requests += 1;
        self.report.serving += service;
        self.report.collecting += after;
        complete
    }

    fn boxed(&self) -> Box<dyn Device> {
        Box::new(self.clone())
    }
}

/// Writes every page in order, and as many again at random.
fn aged(flash: &Flash, draws: &mut ChaCha8Rng) -> Ftl {
    let mut ftl = Ftl::new(flash.geometry());
    let pages = ftl.geometry().logical_pages;
    for i in 0..2 * u64::from(pages) {
        let page = if i < u64::from(pages) {
            i as u32
        } else {
            draws.random_range(0..pages)
        };
        ftl.write(page);
        ftl.collect_if_needed();
    }
    ftl.forget_counts();
    ftl
}
