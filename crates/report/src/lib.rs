//! How are figures shown? Text, tables, charts, pages, the live view of a run, and the files that they are written to.

pub mod causes;
pub mod columns;
pub mod compare;
mod curves;
pub mod feed;
#[cfg(any(test, feature = "fixtures"))]
pub mod fixture;
pub mod output;
pub mod page;
pub mod plain;
pub mod protection;
pub mod settings;
pub mod stages;
pub mod summary;
pub mod tasks;
pub mod terminal;
pub mod timeline;
pub mod verdict;
pub mod view;
pub mod watch;
