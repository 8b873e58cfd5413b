//! Changes of an epoll's set by a task.

use super::Task;
use super::signalfd::SignalFd;
use abi::Result;
use abi::errno::*;
use abi::linux::O_PATH;
use ipc::Epoll;
use ipc::epoll::{EpollEvent, Room};
use std::sync::Arc;
use vfs::FdTable;
use vfs::file::File;

/// Changes an epoll's set: `event.fd` is the descriptor.
pub fn control(
    task: &Arc<Task>,
    files: &FdTable,
    ep: &File,
    op: u32,
    event: EpollEvent,
    room: Room,
) -> Result<()> {
    let target = files.get(event.fd)?;
    if target.flags() & O_PATH != 0 {
        return Err(EBADF);
    }
    if target.ops.wait_queue().is_none() {
        return Err(EPERM);
    }
    if let Some(s) = target.ops::<SignalFd>() {
        s.watch_for(task);
    }
    ep.ops::<Epoll>()
        .ok_or(EINVAL)?
        .change(op, event.fd, &target, event, room)
}
