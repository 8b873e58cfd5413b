//! The file systems that live in the Sentry's memory.

pub mod dev;
pub mod dynamic;
mod listing;
pub mod overlayfs;
pub mod root_layer;
pub mod tmpfs;

pub use listing::Listing;
