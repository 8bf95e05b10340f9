//! Measures how long the player's reads take beside the interactive jobs, before the film.
//!
//! An idle device shows neither queues nor garbage collections, which only follow writes. So single pages are read one
//! after the other, about as often as the player reads, by a `SCHED_FIFO` task that blocks, while the interactive jobs
//! run: with another seed than during the film, which no scheduler knows in advance. The longest of these times is an
//! estimate of the longest possible time, not a bound.

use crate::dual::{DualError, DualMachine, Management, Sharing, simulate};
use punctual_machine::media::MediaDevice;
use punctual_sim::{Access, PageRequest, Step, Task};
use punctual_units::{Nanos, Time};

use super::replicate::{PLAYERS, played};
use super::setting::LIMIT;

/// Number of measured reads: about as many as a film of 150 frames takes.
const READS: u64 = 15_000;
/// Number of reads in a period: about as many as a frame of the largest film takes.
const READS_A_PERIOD: u64 = 100;

/// Measures service times of single pages of the player's device, with queueing, while `others` run; `period` is that
/// of a frame.
pub fn rehearse(
    machine: &DualMachine,
    period: Nanos,
    others: Vec<Task>,
    devices: Vec<MediaDevice>,
) -> Result<Vec<Nanos>, DualError> {
    let read = |page| {
        let (access, pages) = (Access::Read, 1);
        let request = PageRequest { access, page, pages };
        vec![Step::Io {
            device: PLAYERS,
            request,
        }]
    };
    let period = Nanos(period.0 / READS_A_PERIOD);
    let reader = played("rehearsal", Time::ZERO + period, period, (0..READS).map(read).collect());
    let tasks: Vec<Task> = std::iter::once(reader).chain(others).collect();
    let fifo = Management::Shared(Sharing::Fifo);
    let report = simulate(machine, &fifo, &tasks, devices, Time::ZERO + LIMIT)?;
    Ok(report.jobs.iter().map(|job| job.split.data).collect())
}

#[cfg(test)]
mod tests {
    use punctual_cores::Completion;
    use punctual_machine::media::{Media, Medium};

    use super::super::interactive;
    use super::*;
    use crate::completion::completion;

    #[test]
    fn it_meets_the_collections_that_an_idle_device_never_shows() {
        let (machine, media) = (DualMachine::dps_dual_core(), Media::dps_table_1());
        let period = Nanos::from_millis(42);
        let flash = MediaDevice::new(&Medium::Flash(media.flash), media.page_bytes, 1);
        let pages = media.flash.geometry().logical_pages;
        let services = |others| {
            let services = rehearse(&machine, period, others, vec![flash.clone()]).unwrap();
            assert_eq!(services.len() as u64, READS);
            services
        };
        let read = Nanos::from_micros(60);
        assert!(services(Vec::new()).into_iter().all(|service| service == read));
        let busy = services(interactive::tasks(4, PLAYERS, pages, 1));
        let erase = Nanos::from_micros(1_500);
        assert!(busy.iter().any(|service| *service > erase));
        // Even the quick ones take longer than two switches.
        assert_eq!(completion(&busy, machine.switch() * 2), Ok(Completion::Block));
    }
}
