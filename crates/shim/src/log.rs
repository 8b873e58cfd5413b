//! Messages for containerd's log: lines on standard error, which is the bundle's `log` FIFO.

use std::io::Write;

pub fn warning(text: &str) {
    write("warning", text);
}

pub fn error(text: &str) {
    write("error", text);
}

fn write(level: &str, text: &str) {
    // A full pipe that nobody reads, or none: then there is nobody to tell.
    let _ = writeln!(
        std::io::stderr(),
        "time=\"{}\" level={level} msg={:?} runtime=io.containerd.cloister.v1",
        oci::log::now(),
        text,
    );
}
