//! Terminals and job control: what the line discipline asks of the task list.

use crate::Kernel;

/// The terminals of a sandbox.
#[derive(Default)]
pub struct Terminals {}

impl Kernel {
    /// A session's leader has ended: its terminal lets go (`disassociate_ctty`).
    pub fn end_session(&self, _sid: i32) {}
}
