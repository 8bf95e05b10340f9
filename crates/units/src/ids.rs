//! Ids, one type per kind of thing, so that a sensor is never taken for an object.

use std::fmt;

use serde::{Deserialize, Serialize};

macro_rules! id {
    ($(#[$doc:meta])* $name:ident($inner:ty)) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub $inner);

        impl $name {
            /// The id as an index into a table.
            pub const fn index(self) -> usize {
                self.0 as usize
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}", self.0)
            }
        }
    };
}

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
