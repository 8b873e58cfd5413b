//! Clocks that are a program's own: in a time namespace the host's vDSO would tell the wrong time.
//!
//! Its image is the same in all stub processes. A process that is to have other clocks gets a copy
//! of it, at the same place, in which `clock_gettime` makes the system call, which comes to the
//! Sentry like any other. All else stays: the clock of the day and random numbers are answered
//! there as before. Such a process serves no other program afterwards.
//!
//! Where the image is not understood, there is no copy, and no clock can be shifted.

use super::zygote::VdsoPiece;
use super::{Factory, Process};
use abi::Result;
use abi::errno::EOPNOTSUPP;
use abi::nr;
use hostcall::HostFd;
use hostcall::mem::memfd;
use std::sync::atomic::Ordering;

/// The names of the function.
const NAMES: [&[u8]; 2] = [b"__vdso_clock_gettime", b"clock_gettime"];
/// `mov $228, %eax; syscall; ret`: the C calling convention has the arguments where the call wants
/// them, and lets it have `rcx` and `r11`.
const CALL: [u8; 8] = [0xb8, nr::CLOCK_GETTIME as u8, 0, 0, 0, 0x0f, 0x05, 0xc3];
/// The image's size at most.
const MAX: u64 = 1 << 20;

/// The copy, and where it goes.
pub struct SlowImage {
    file: HostFd,
    va: u64,
    len: u64,
}

/// A copy of the host's image; `None` where there is none, or it is not understood.
pub fn slow_image(pieces: &[VdsoPiece], moved: Option<u64>) -> Option<SlowImage> {
    let code = pieces.iter().find(|p| p.is_code && p.len <= MAX)?;
    let mut image = vec![0u8; code.len as usize];
    // SAFETY: the host's vDSO is mapped there for reading as long as the process lives, and nobody
    // writes to it.
    unsafe {
        let from = std::ptr::with_exposed_provenance::<u8>(code.start as usize);
        std::ptr::copy_nonoverlapping(from, image.as_mut_ptr(), image.len());
    }
    patch(&mut image)?;
    let file = memfd(c"cloister-clocks").ok()?;
    hostcall::file::pwrite(file.raw(), &image, 0).ok()?;
    Some(SlowImage {
        file,
        va: moved?,
        len: code.len,
    })
}

fn field(image: &[u8], at: usize, len: usize) -> Option<u64> {
    let b = image.get(at..at.checked_add(len)?)?;
    Some(b.iter().rev().fold(0, |n, b| n << 8 | u64::from(*b)))
}

/// One section of an ELF file: its type, offset, size, and the section that it refers to.
fn section(image: &[u8], n: usize) -> Option<(u64, usize, usize, usize)> {
    const ENTRY: usize = 64;
    let table = field(image, 0x28, 8)? as usize;
    let at = table.checked_add(n.checked_mul(ENTRY)?)?;
    let word = |offset, len| field(image, at.checked_add(offset)?, len);
    let size = word(0x20, 8)? as usize;
    Some((
        word(4, 4)?,
        word(0x18, 8)? as usize,
        size,
        word(0x28, 4)? as usize,
    ))
}

/// Has the function make the system call.
fn patch(image: &mut [u8]) -> Option<()> {
    const DYNSYM: u64 = 11;
    const SYMBOL: usize = 24;
    if image.get(..5)? != b"\x7fELF\x02" {
        return None;
    }
    let sections = field(image, 0x3c, 2)? as usize;
    let (_, symbols, size, link) = (0..sections)
        .filter_map(|n| section(image, n))
        .find(|s| s.0 == DYNSYM)?;
    let (_, strings, ..) = section(image, link)?;
    let mut places = Vec::new();
    for n in 0..size / SYMBOL {
        let at = symbols.checked_add(n * SYMBOL)?;
        let name = strings.checked_add(field(image, at, 4)? as usize)?;
        let name = image.get(name..)?.split(|b| *b == 0).next()?;
        if NAMES.contains(&name) {
            places.push((field(image, at + 8, 8)? as usize, field(image, at + 16, 8)?));
        }
    }
    if places.is_empty() {
        return None;
    }
    for (at, len) in places {
        if len < CALL.len() as u64 {
            return None;
        }
        image
            .get_mut(at..at.checked_add(CALL.len())?)?
            .copy_from_slice(&CALL);
    }
    Some(())
}

impl Factory {
    /// See [`crate::Platform::has_own_clocks`].
    pub fn has_own_clocks(&self) -> bool {
        self.host_vdso.is_none() || self.slow_image.is_some()
    }
}

impl Process {
    /// See [`crate::AddressSpace::own_clocks`].
    pub fn own_clocks(&self) -> Result<()> {
        let f = &self.factory;
        if f.host_vdso.is_none() || self.slow_clocks.load(Ordering::Acquire) {
            return Ok(());
        }
        let image = f.slow_image.as_ref().ok_or(EOPNOTSUPP)?;
        // First: whatever comes of it, nobody else gets this process.
        self.is_marked.store(true, Ordering::Release);
        let prot = (libc::PROT_READ | libc::PROT_EXEC) as u64;
        let flags = (libc::MAP_PRIVATE | libc::MAP_FIXED) as u64;
        let fd = image.file.raw() as u64;
        self.batch(&[[nr::MMAP.into(), image.va, image.len, prot, flags, fd, 0]])?;
        self.slow_clocks.store(true, Ordering::Release);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hosts_image_is_understood() {
        let pieces = crate::process::zygote::host_vdso();
        if pieces.iter().any(|p| p.is_code) {
            assert!(slow_image(&pieces, Some(0x1000)).is_some());
        }
    }

    #[test]
    fn what_is_no_image_is_refused() {
        assert_eq!(patch(&mut []), None);
        assert_eq!(patch(&mut [0; 4096]), None);
        let mut cut = vec![0; 64];
        cut[..5].copy_from_slice(b"\x7fELF\x02");
        cut[0x28] = 60;
        cut[0x3c] = 9;
        assert_eq!(patch(&mut cut), None);
    }
}
