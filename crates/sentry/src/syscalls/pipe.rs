//! pipe(2) and pipe2(2).

use super::SysResult;
use super::args::*;
use super::descriptors::install_pair;
use crate::task::Context;
use abi::errno::ENOPKG;
use abi::linux::{O_DIRECT, O_EXCL, O_NONBLOCK, O_RDONLY, O_WRONLY};
use ipc::new_pipe;
use vfs::file::File;

flags! {
    /// Of pipe2(2). O_NOTIFICATION_PIPE is O_EXCL.
    struct PipeFlags: u32, refused {
        O_NOTIFICATION_PIPE = O_EXCL,
        O_NONBLOCK,
        O_DIRECT,
        O_CLOEXEC,
    }
}

fn do_pipe(cx: &Context, out: UserOut<[i32; 2]>, flags: PipeFlags) -> SysResult {
    if flags.contains(PipeFlags::O_NOTIFICATION_PIPE) {
        return Err(ENOPKG);
    }
    let flags = flags.bits();
    let (r, w) = new_pipe(&cx.cred())?;
    let r = File::new(r, O_RDONLY | (flags & O_NONBLOCK), None, cx.cred());
    let w = File::new(
        w,
        O_WRONLY | (flags & (O_NONBLOCK | O_DIRECT)),
        None,
        cx.cred(),
    );
    install_pair(cx, out, [r, w], flags)
}
/// `pipe(fds)`.
fn pipe(cx: &mut Context, fds: UserOut<[i32; 2]>) -> SysResult {
    do_pipe(cx, fds, PipeFlags::empty())
}
/// `pipe2(fds, flags)`.
fn pipe2(cx: &mut Context, fds: UserOut<[i32; 2]>, flags: PipeFlags) -> SysResult {
    do_pipe(cx, fds, flags)
}

calls! {
    pipe,
    pipe2,
}
