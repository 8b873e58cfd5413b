//! The file systems that live in the Sentry's memory.

pub mod dev;
pub mod dynamic;
pub mod overlay;
pub mod tmpfs;
pub mod union;

pub use tmpfs::emit_dots;
