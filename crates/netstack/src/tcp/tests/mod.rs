//! Tests of whole connections.

mod model;
mod sim;
