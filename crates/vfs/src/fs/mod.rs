//! The file systems that live in the Sentry's memory.

pub mod dev;
pub mod dynamic;
mod listing;
pub mod overlay;
pub mod tmpfs;
pub mod union;

pub use listing::Listing;
