//! Tests of whole connections.

mod ends;
mod handshake;
mod model;
mod receiving;
mod script;
mod sending;
mod sim;
mod throughput;
