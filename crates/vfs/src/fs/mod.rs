//! The file systems that live in the Sentry's memory.

pub mod dev;
