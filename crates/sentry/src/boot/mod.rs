//! Starting the kernel: from a [`config::Config`] to the first program.

pub mod config;
