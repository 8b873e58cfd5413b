//! Frames to datagrams and back.
