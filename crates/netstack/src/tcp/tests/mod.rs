//! Tests of whole connections.

mod ends;
mod handshake;
mod hostile;
mod marks;
mod model;
mod opening;
mod receiving;
mod script;
mod sending;
mod sim;
mod throughput;
