//! Ids, one type per kind of thing, so that a sensor is never taken for an object.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Declares a type around a number, which is shown and stored as the number.
///
/// ```
/// punctual_units::id!(
///     /// A wheel of a robot.
///     WheelId(u8)
/// );
/// assert_eq!(WheelId(3).to_string(), "3");
/// ```
#[macro_export]
macro_rules! id {
    ($(#[$doc:meta])* $name:ident($inner:ty)) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[derive(::serde::Serialize, ::serde::Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub $inner);

        impl ::std::fmt::Display for $name {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                write!(f, "{}", self.0)
            }
        }
    };
}

macro_rules! index {
    ($($name:ident)*) => {$(
        impl $name {
            /// The id as an index into a table.
            pub const fn index(self) -> usize {
                self.0 as usize
            }
        }
    )*};
}

index!(CoreId TaskId SensorId ObjectId Seq);

id!(
    /// A CPU core, numbered as the machine numbers it (on Linux, the `N` of `cpuN`).
    CoreId(u32)
);
id!(
    /// A task, numbered densely from 0 in a run.
    TaskId(u32)
);
id!(
    /// A sensor, numbered densely from 0 in a run. Sensor *i* feeds temporal object *i*.
    SensorId(u32)
);
id!(
    /// A temporal object of a store, numbered densely from 0 in the order of registration.
    ObjectId(u32)
);
id!(
    /// The sequence number of an update within its sensor's stream: 1 is the first, 0 means "none yet".
    Seq(u64)
);
id!(
    /// Number of an entry of a federation's log: the first is 1, each next one is greater by one. 0 is the number of an
    /// empty log, and of a store to which no entry has been applied.
    Revision(u64)
);

impl Revision {
    /// Revision before the first entry.
    pub const ZERO: Revision = Revision(0);

    /// The revision of the entry after this one.
    #[must_use]
    pub const fn next(self) -> Revision {
        Revision(self.0.saturating_add(1))
    }
}

/// Unique name of an object that is created while a federation runs: its source, the source's boot, and the number
/// within that boot. A source counts its boots and stores the count, so that no name occurs twice, whatever the source
/// forgot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ObjectName {
    /// Number of the node that created the object.
    pub source: u32,
    /// Number of the source's start, from 1.
    pub boot: u64,
    /// Number of the object within that boot, from 1.
    pub sequence: u64,
}

impl fmt::Display for ObjectName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.source, self.boot, self.sequence)
    }
}
