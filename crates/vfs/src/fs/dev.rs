//! The memory devices: null, zero, full, random, urandom (`mem(4)`, `random(4)`).

use crate::file::{File, FileOps, IoctlContext, Sink, Source};
use crate::vfs::{Device, DeviceOpen, DeviceRegistry};
use crate::{Stat, makedev};
use abi::errno::{EINVAL, ENOSPC, ENOTTY, EPERM};
use abi::{Result, Va};
use std::any::Any;
use std::sync::Arc;

/// What each of them does, by its minor number of major 1.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Null = 3,
    Zero = 5,
    Full = 7,
    Random = 8,
    Urandom = 9,
}

const ALL: [Kind; 5] = [
    Kind::Null,
    Kind::Zero,
    Kind::Full,
    Kind::Random,
    Kind::Urandom,
];

/// The names, modes and numbers of the character devices that every `/dev` has.
pub const STANDARD: [(&str, u32, u32); 6] = [
    ("null", 1, 3),
    ("zero", 1, 5),
    ("full", 1, 7),
    ("random", 1, 8),
    ("urandom", 1, 9),
    ("tty", 5, 0),
];

/// The symbolic links that every `/dev` has.
pub const LINKS: [(&str, &str); 5] = [
    ("fd", "/proc/self/fd"),
    ("stdin", "/proc/self/fd/0"),
    ("stdout", "/proc/self/fd/1"),
    ("stderr", "/proc/self/fd/2"),
    ("ptmx", "pts/ptmx"),
];

/// Registers the memory devices (mem(4), null(4), random(4)): of major number 1.
pub fn register_memory_devices(r: &DeviceRegistry) {
    for k in ALL {
        r.register(1, Some(k as u32), Arc::new(MemDevice(k)));
    }
}

struct MemDevice(Kind);

impl Device for MemDevice {
    fn open(&self, _: &DeviceOpen<'_>) -> Result<Arc<dyn FileOps>> {
        Ok(Arc::new(MemFile(self.0)))
    }
}

/// An open memory device.
pub struct MemFile(Kind);

impl MemFile {
    /// Whether it is `/dev/zero`, a mapping of which is anonymous memory.
    #[must_use]
    pub fn is_zero(&self) -> bool {
        self.0 == Kind::Zero
    }
}

/// Bits that the pool has (`kernel.random.entropy_avail`).
const ENTROPY: i32 = 256;

/// Bytes that one call reads or writes at most (`MAX_RW_COUNT`).
const MAX_RW: usize = 0x7fff_f000;

impl FileOps for MemFile {
    fn read(&self, _: &File, dst: &mut dyn Sink, _: u64) -> Result<usize> {
        match self.0 {
            Kind::Null => Ok(0),
            Kind::Zero | Kind::Full => {
                let n = dst.remaining().min(MAX_RW);
                dst.put_zeros(n)
            }
            Kind::Random | Kind::Urandom => {
                let mut buf = [0u8; 4096];
                let mut done = 0;
                while dst.remaining() > 0 && done < MAX_RW {
                    let n = dst.remaining().min(buf.len());
                    hostcall::time::random(&mut buf[..n]);
                    match dst.put(&buf[..n]) {
                        Ok(k) if k < n => return Ok(done + k),
                        Ok(k) => done += k,
                        Err(_) if done > 0 => break,
                        Err(e) => return Err(e),
                    }
                }
                Ok(done)
            }
        }
    }
    fn ignores_seek(&self) -> bool {
        true
    }
    fn write(&self, _: &File, src: &mut dyn Source, _: u64) -> Result<usize> {
        if self.0 == Kind::Full {
            return Err(ENOSPC);
        }
        // Taken, and forgotten. Linux does not look at what is written to null and zero.
        let n = src.remaining().min(MAX_RW);
        Ok(n)
    }
    /// Of random and urandom (`random_ioctl`). The host's pool is always full, and what is added to
    /// it here is forgotten, as what is written is.
    fn ioctl(&self, _: &File, cx: &dyn IoctlContext, cmd: u32, arg: u64) -> Result<u64> {
        const RNDGETENTCNT: u32 = 0x8004_5200;
        const RNDADDTOENTCNT: u32 = 0x4004_5201;
        const RNDADDENTROPY: u32 = 0x4008_5203;
        const RNDZAPENTCNT: u32 = 0x5204;
        const RNDCLEARPOOL: u32 = 0x5206;
        const RNDRESEEDCRNG: u32 = 0x5207;
        if !matches!(self.0, Kind::Random | Kind::Urandom) {
            return Err(ENOTTY);
        }
        let may = || match cx.credentials().has(crate::Caps::SYS_ADMIN) {
            true => Ok(()),
            false => Err(EPERM),
        };
        let number = |at: u64| {
            let mut n = [0; 4];
            cx.copy_in(Va(at), &mut n)?;
            match i32::from_le_bytes(n) {
                n if n < 0 => Err(EINVAL),
                n => Ok(n),
            }
        };
        match cmd {
            RNDGETENTCNT => cx.copy_out(Va(arg), &ENTROPY.to_le_bytes())?,
            RNDADDTOENTCNT => {
                may()?;
                number(arg)?;
            }
            RNDADDENTROPY => {
                may()?;
                number(arg)?;
                number(arg.wrapping_add(4))?;
            }
            RNDZAPENTCNT | RNDCLEARPOOL | RNDRESEEDCRNG => may()?,
            _ => return Err(EINVAL),
        }
        Ok(0)
    }
    fn seekable(&self) -> bool {
        true
    }
    fn can_splice(&self) -> bool {
        self.0 != Kind::Null
    }
    fn takes_splices(&self) -> bool {
        self.0 != Kind::Full
    }
    fn seek_from(&self, _: u32, _: i64) -> Result<u64> {
        Ok(0)
    }
    fn append_offset(&self) -> Result<u64> {
        Ok(0)
    }
    fn stat(&self) -> Result<Stat> {
        let mode = abi::linux::S_IFCHR | 0o666;
        Ok(Stat {
            mode,
            nlink: 1,
            rdev: makedev(1, self.0 as u32),
            blksize: 4096,
            ..Stat::default()
        })
    }
    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// Fills a directory (a fresh tmpfs, as the caller's `/dev`) with what every `/dev` has:
/// [`STANDARD`], [`LINKS`], and the directories `pts`, `shm` and `mqueue` to mount on. What is
/// there already stays.
pub fn populate(cx: &crate::PathCx<'_>, dev: &str) -> Result<()> {
    use crate::At;
    use abi::errno::EEXIST;
    let there = |r: Result<()>| if r == Err(EEXIST) { Ok(()) } else { r };
    for (name, major, minor) in STANDARD {
        let path = format!("{dev}/{name}");
        let mode = abi::linux::S_IFCHR | 0o666;
        let made = cx.mknod(&At::Cwd, path.as_bytes(), mode, makedev(major, minor));
        there(made.map(|_| ()))?;
        cx.chmod(&At::Cwd, path.as_bytes(), 0o666, 0)?;
    }
    for (name, target) in LINKS {
        let path = format!("{dev}/{name}");
        there(cx.symlink(target.as_bytes(), &At::Cwd, path.as_bytes()))?;
    }
    for name in ["pts", "shm", "mqueue"] {
        let path = format!("{dev}/{name}");
        there(cx.mkdir(&At::Cwd, path.as_bytes(), 0o755).map(|_| ()))?;
    }
    Ok(())
}
