//! Devices that serve the requests of jobs. Storage media are in the lab; here is what the machine needs of one.

use std::any::Any;
use std::fmt;

use punctual_units::Time;

/// Whether pages are read or written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    Read,
    Write,
}

/// A run of pages to read or write. The device defines the size of a page, and the meaning of pages beyond its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageRequest {
    /// Direction of the request.
    pub access: Access,
    /// Number of the first page.
    pub page: u64,
    /// Number of pages, at least one.
    pub pages: u32,
}

/// A device with its queue.
pub trait Device: Any + fmt::Debug + Send + Sync {
    /// Accepts a request at `now`, which never goes back, and returns when it will be complete. Whatever is random
    /// comes from a seed of the device's own.
    fn submit(&mut self, request: PageRequest, now: Time) -> Time;

    /// Returns a copy in the same state, for a copy of the machine.
    fn boxed(&self) -> Box<dyn Device>;
}

impl Clone for Box<dyn Device> {
    fn clone(&self) -> Self {
        (**self).boxed()
    }
}
