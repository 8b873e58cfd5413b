//! Code that lives inside the application address space.
#![no_std]
