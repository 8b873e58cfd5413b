//! `splice(2)`, `tee(2)` and `vmsplice(2)`, by copying.
//!
//! `vmsplice(2)` is a write to, or a read from, the pipe. Between a pipe and another file, the
//! caller moves a piece at a time with [`take`] / [`give_back`] and [`room`] / [`append`]; no lock
//! is held while the other file works.

use crate::pipe::{Pipe, PipeEnd};
use abi::Result;
use abi::errno::{EAGAIN, EBADF, EINVAL, EPIPE};
use parking_lot::MutexGuard;
use std::sync::Arc;

/// The largest piece that moves at once, where it may be parted.
pub const PIECE: usize = 65536;

/// Takes up to `max` bytes out of a pipe; empty at the end, `EAGAIN` where there is nothing yet.
pub fn take(from: &PipeEnd, max: usize) -> Result<Vec<u8>> {
    if !from.can_read() {
        return Err(EBADF);
    }
    if max == 0 {
        return Ok(Vec::new());
    }
    from.pipe.consume(|s| {
        let v = s.take(max);
        if v.is_empty() && s.writers > 0 {
            Err(EAGAIN)
        } else {
            Ok(v)
        }
    })
}

/// Puts back what [`take`] gave and the other file did not want.
pub fn give_back(from: &PipeEnd, rest: &[u8]) {
    if !rest.is_empty() {
        from.pipe.state.lock().untake(rest);
        from.pipe.notify_data();
    }
}

/// How many bytes [`append`] may bring, up to `max`: `EAGAIN` if none, `EPIPE` without a reader.
pub fn room(to: &PipeEnd, max: usize) -> Result<usize> {
    if !to.can_write() {
        return Err(EBADF);
    }
    let s = to.pipe.state.lock();
    if s.readers == 0 {
        return Err(EPIPE);
    }
    match s.free() {
        0 => Err(EAGAIN),
        n => Ok(n.min(max)),
    }
}

/// Appends what was read for this pipe, after [`room`] told how much: always takes all.
pub fn append(to: &PipeEnd, bytes: &[u8]) {
    if !bytes.is_empty() {
        to.pipe.state.lock().append(bytes);
        to.pipe.notify_data();
    }
}

/// Locks two different pipes, in the order of their addresses.
fn lock_both<'a>(
    a: &'a Arc<Pipe>,
    b: &'a Arc<Pipe>,
) -> (
    MutexGuard<'a, crate::pipe::State>,
    MutexGuard<'a, crate::pipe::State>,
) {
    if Arc::as_ptr(a) < Arc::as_ptr(b) {
        let x = a.state.lock();
        let y = b.state.lock();
        (x, y)
    } else {
        let y = b.state.lock();
        let x = a.state.lock();
        (x, y)
    }
}

/// How much two pipes can exchange now.
fn exchange(from: &crate::pipe::State, to: &crate::pipe::State, max: usize) -> Result<usize> {
    if to.readers == 0 {
        return Err(EPIPE);
    }
    if from.len() == 0 {
        return if from.writers == 0 {
            Ok(0)
        } else {
            Err(EAGAIN)
        };
    }
    match to.free().min(from.len()).min(max) {
        0 => Err(EAGAIN),
        n => Ok(n),
    }
}

fn check(from: &PipeEnd, to: &PipeEnd) -> Result<()> {
    if !from.can_read() || !to.can_write() {
        return Err(EBADF);
    }
    if Arc::ptr_eq(&from.pipe, &to.pipe) {
        return Err(EINVAL);
    }
    Ok(())
}

/// `splice(2)` between two pipes. On `EAGAIN` wait on both: IN of `from`, OUT of `to`.
pub fn pipe_to_pipe(from: &PipeEnd, to: &PipeEnd, max: usize) -> Result<usize> {
    check(from, to)?;
    if max == 0 {
        return Ok(0);
    }
    let n = from.pipe.consume_with(&to.pipe, |f, t| {
        let n = exchange(f, t, max)?;
        let v = f.take(n);
        t.append(&v);
        Ok(v.len())
    })?;
    if n > 0 {
        to.pipe.notify_data();
    }
    Ok(n)
}

/// `tee(2)`: copies without taking out.
pub fn tee(from: &PipeEnd, to: &PipeEnd, max: usize) -> Result<usize> {
    check(from, to)?;
    if max == 0 {
        return Ok(0);
    }
    let n = {
        let (f, mut t) = lock_both(&from.pipe, &to.pipe);
        let n = exchange(&f, &t, max)?;
        t.append_copy(&f, n);
        n
    };
    if n > 0 {
        to.pipe.notify_data();
    }
    Ok(n)
}

impl Pipe {
    fn consume_with<R>(
        self: &Arc<Pipe>,
        to: &Arc<Pipe>,
        f: impl FnOnce(&mut crate::pipe::State, &mut crate::pipe::State) -> R,
    ) -> R {
        let (mut a, mut b) = lock_both(self, to);
        let was = a.free() >= crate::pipe::PIPE_BUF;
        let r = f(&mut a, &mut b);
        let is = a.free() >= crate::pipe::PIPE_BUF;
        drop((a, b));
        self.notify_room(was, is);
        r
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::new_pipe;
    use crate::testing::*;
    use vfs::file::{O_RDONLY, O_WRONLY};

    #[test]
    fn between_pipes() {
        let (ra, wa) = new_pipe(&vfs::Credentials::root()).unwrap();
        let (rb, wb) = new_pipe(&vfs::Credentials::root()).unwrap();
        let (fra, fwa, frb) = (
            file(ra.clone(), O_RDONLY),
            file(wa.clone(), O_WRONLY),
            file(rb, O_RDONLY),
        );
        assert_eq!(pipe_to_pipe(&ra, &wb, 10), Err(EAGAIN));
        assert_eq!(pipe_to_pipe(&ra, &wa, 10), Err(EINVAL));
        write(&fwa, b"hello").unwrap();
        assert_eq!(tee(&ra, &wb, 3), Ok(3));
        assert_eq!(pipe_to_pipe(&ra, &wb, 100), Ok(5));
        assert_eq!(read(&frb, 100).unwrap(), b"helhello");
        assert_eq!(read(&fra, 1), Err(EAGAIN));
        write(&fwa, b"xyz").unwrap();
        let v = take(&ra, 100).unwrap();
        write(&fwa, b"!").unwrap();
        give_back(&ra, &v[1..]);
        assert_eq!(read(&fra, 100).unwrap(), b"yz!");
        drop((fwa, wa));
        assert_eq!(pipe_to_pipe(&ra, &wb, 100), Ok(0));
    }
}
