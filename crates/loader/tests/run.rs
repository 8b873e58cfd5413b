//! A program of the host runs on our memory manager: loaded by us, its faults served by us, with
//! just enough system calls for a dynamically linked `echo`. Everything that the four rooms below
//! the Sentry promise each other is in here. Needs a machine where the platforms work.

use abi::errno::*;
use abi::{Errno, Result, Va};
use clas::{Access, Backing, Clas, Mappable, MappingObserver, MappingRegistry};
use hostcall::HostFd;
use loader::{Elf, Hardware, Image, LoadRequest, Program, Randomize, identify, load};
use mm::{Limits, MapFile, Mm, MmapRequest};
use platform::{AppThread, Event, Platform};
use std::collections::BTreeMap;
use std::os::fd::{AsRawFd, IntoRawFd};
use std::sync::{Arc, Weak};

/// The system calls that a simple program makes.
mod nr {
    macro_rules! numbers {
        ($($name:ident)*) => { $(pub const $name: u64 = abi::nr::$name as u64;)* };
    }
    numbers! {
        READ
        WRITE
        CLOSE
        FSTAT
        MMAP
        MPROTECT
        MUNMAP
        BRK
        PREAD64
        WRITEV
        ACCESS
        MADVISE
        GETPID
        ARCH_PRCTL
        GETTID
        SET_TID_ADDRESS
        OPENAT
        NEWFSTATAT
        SET_ROBUST_LIST
        GETRANDOM
        EXIT
        EXIT_GROUP
    }
}
use nr::*;

struct HostFile {
    fd: HostFd,
    registry: MappingRegistry,
}

impl HostFile {
    fn open(path: &str) -> Result<Arc<HostFile>> {
        let f = std::fs::File::open(path).map_err(|_| ENOENT)?;
        assert!(f.as_raw_fd() >= 0);
        Ok(Arc::new(HostFile {
            fd: HostFd::from_raw(f.into_raw_fd()),
            registry: MappingRegistry::new(),
        }))
    }
}

impl Mappable for HostFile {
    fn backing(&self, offset: u64, len: u64, _access: Access) -> Result<(Backing, u64)> {
        let size = hostcall::file::fstat(self.fd.raw())?.st_size as u64;
        let end = size.next_multiple_of(abi::PAGE_SIZE);
        if offset >= end {
            return Err(EFAULT);
        }
        let fd = self.fd.raw();
        Ok((Backing::Host { fd, offset }, len.min(end - offset)))
    }
    fn add_mapping(&self, o: Weak<dyn MappingObserver>, va: Va, offset: u64, len: u64) {
        self.registry.add(o, va, offset, len);
    }
    fn remove_mapping(&self, o: &Weak<dyn MappingObserver>, va: Va, offset: u64, len: u64) {
        self.registry.remove(o, va, offset, len);
    }
}

fn map_file(f: &Arc<HostFile>) -> MapFile {
    MapFile {
        mappable: f.clone(),
        name: None,
        keep: None,
        readable: true,
        writable: false,
        noexec: false,
    }
}

struct FileImage(Arc<HostFile>);

impl Image for FileImage {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<usize> {
        hostcall::file::pread(self.0.fd.raw(), buf, offset)
    }
    fn map_file(&self) -> Result<MapFile> {
        Ok(map_file(&self.0))
    }
}

struct Machine {
    mm: Arc<Mm>,
    files: BTreeMap<u64, (Arc<HostFile>, u64)>,
    out: Vec<u8>,
    fs_base: Option<u64>,
}

impl Machine {
    fn call(&mut self, nr: u64, a: [u64; 6]) -> Result<u64> {
        use abi::linux::MAP_ANONYMOUS;
        let mm = self.mm.clone();
        match nr {
            BRK => Ok(mm.brk(Va(a[0])).0),
            MMAP => {
                let anonymous = a[3] as u32 & MAP_ANONYMOUS != 0;
                let file = match anonymous {
                    true => None,
                    false => Some(map_file(&self.files.get(&a[4]).ok_or(EBADF)?.0)),
                };
                let (prot, flags) = (a[2] as u32, a[3] as u32);
                let (addr, len, offset) = (Va(a[0]), a[1], a[5]);
                let req = MmapRequest {
                    addr,
                    len,
                    prot,
                    flags,
                    offset,
                    file,
                };
                mm.mmap(req).map(|v| v.0)
            }
            MUNMAP => mm.munmap(Va(a[0]), a[1]).map(|()| 0),
            MPROTECT => mm.mprotect(Va(a[0]), a[1], a[2] as u32).map(|()| 0),
            MADVISE => mm.madvise(Va(a[0]), a[1], a[2] as u32).map(|()| 0),
            WRITE if a[0] == 1 || a[0] == 2 => {
                let mut buf = vec![0; a[2].min(1 << 16) as usize];
                mm.copy_in(Va(a[1]), &mut buf)?;
                self.out.extend_from_slice(&buf);
                Ok(buf.len() as u64)
            }
            WRITEV => {
                let before = self.out.len();
                for i in 0..a[2].min(16) {
                    let iov: [u64; 2] = mm.read_obj(Va(a[1] + i * 16))?;
                    let mut buf = vec![0; iov[1].min(1 << 16) as usize];
                    mm.copy_in(Va(iov[0]), &mut buf)?;
                    self.out.extend_from_slice(&buf);
                }
                Ok((self.out.len() - before) as u64)
            }
            OPENAT => {
                let path = String::from_utf8(mm.read_cstr(Va(a[1]), 4096)?).map_err(|_| ENOENT)?;
                let fd = self.files.keys().last().map_or(3, |n| n + 1);
                self.files.insert(fd, (HostFile::open(&path)?, 0));
                Ok(fd)
            }
            CLOSE if a[0] < 3 => Ok(0),
            CLOSE => self.files.remove(&a[0]).map(|_| 0).ok_or(EBADF),
            READ | PREAD64 => {
                let (file, pos) = self.files.get_mut(&a[0]).ok_or(EBADF)?;
                let at = if nr == PREAD64 { a[3] } else { *pos };
                let fd = file.fd.raw();
                let n = mm.with_slices(Va(a[1]), a[2] as usize, mm::Access::Write, &mut |iov| {
                    hostcall::file::preadv(fd, iov, at)
                })?;
                *pos += n as u64;
                Ok(n as u64)
            }
            FSTAT | NEWFSTATAT => {
                let at = if nr == FSTAT { a[1] } else { a[2] };
                let Some((file, _)) = self.files.get(&a[0]) else {
                    return Err(if a[0] < 3 { EBADF } else { ENOENT });
                };
                let host = hostcall::file::fstat(file.fd.raw())?;
                let size = host.st_size as u64;
                let mut st = [0u8; 144];
                st[0..8].copy_from_slice(&host.st_dev.to_le_bytes());
                st[8..16].copy_from_slice(&host.st_ino.to_le_bytes());
                st[24..28].copy_from_slice(&0o100_755u32.to_le_bytes());
                st[48..56].copy_from_slice(&size.to_le_bytes());
                mm.copy_out(Va(at), &st).map(|()| 0)
            }
            ARCH_PRCTL if a[0] == 0x1002 => {
                self.fs_base = Some(a[1]);
                Ok(0)
            }
            GETRANDOM => {
                let mut b = vec![0; a[1].min(256) as usize];
                hostcall::time::random(&mut b);
                mm.copy_out(Va(a[0]), &b)?;
                Ok(b.len() as u64)
            }
            SET_TID_ADDRESS | GETPID | GETTID => Ok(1),
            SET_ROBUST_LIST => Ok(0),
            ACCESS => Err(ENOENT),
            _ => Err(ENOSYS),
        }
    }
}

/// Runs a program to its end; what it wrote, and its status.
fn run(platform: &dyn Platform, argv: &[&str], drop_every: u32) -> (Vec<u8>, u64) {
    let image = |path: &str| Arc::new(FileImage(HostFile::open(path).unwrap()));
    let Program::Elf(elf) = identify(image(argv[0])).unwrap() else {
        panic!("not ELF");
    };
    let ld = elf
        .interpreter()
        .map(|p| Elf::parse_interpreter(image(std::str::from_utf8(p).unwrap())).unwrap());
    let space = platform.new_address_space().unwrap();
    let mm = Mm::new(Clas::new().unwrap(), space.clone());
    mm.set_random_drop(99, drop_every);
    let argv: Vec<Vec<u8>> = argv.iter().map(|a| a.as_bytes().to_vec()).collect();
    let loaded = load(
        &mm,
        LoadRequest {
            program: &elf,
            interpreter: ld.as_ref(),
            filename: &argv[0],
            argv: &argv,
            envp: &[],
            uid: 0,
            euid: 0,
            gid: 0,
            egid: 0,
            secure: false,
            hardware: Hardware::host(),
            randomize: Randomize::Yes,
            limits: Limits::default(),
            map_vdso: None,
        },
    )
    .unwrap();
    let mut thread = space.new_thread().unwrap();
    let mut regs = thread.regs();
    regs.rip = loaded.entry.0;
    regs.rsp = loaded.sp.0;
    thread.set_regs(&regs);
    let mut m = Machine {
        mm,
        files: BTreeMap::new(),
        out: Vec::new(),
        fs_base: None,
    };
    let status = drive(&mut m, &mut *thread);
    drop(thread);
    (m.out, status)
}

fn drive(m: &mut Machine, thread: &mut dyn AppThread) -> u64 {
    for _ in 0..200_000 {
        match thread.run() {
            Event::Syscall { nr, args, .. } if nr == EXIT_GROUP || nr == EXIT => return args[0],
            Event::Syscall { nr, args, .. } => {
                let r = m
                    .call(nr, args)
                    .unwrap_or_else(|e: Errno| -i64::from(e.raw()) as u64);
                thread.set_return(r);
                if let Some(base) = m.fs_base.take() {
                    assert_eq!(thread.fetch_regs(), Event::Interrupted);
                    let mut regs = thread.regs();
                    regs.fs_base = base;
                    thread.set_regs(&regs);
                }
            }
            Event::Fault {
                signal,
                addr,
                error,
                ..
            } => {
                let info = mm::FaultInfo::from_event(signal, addr, error);
                if let Err(f) = m.mm.handle_fault(info) {
                    panic!("{f:?}, {error:#x} at {:#x}", thread.regs().rip);
                }
            }
            Event::Interrupted => {}
            other => panic!("{other:?}"),
        }
    }
    panic!("it does not end");
}

fn main() {
    type Make = fn() -> Result<Box<dyn Platform>>;
    let platforms: [Make; 2] = [
        || Ok(Box::new(platform::ptrace::Ptrace::new()?)),
        || {
            Ok(Box::new(platform::notify::Notify::new(
                platform::Lanes::None,
            )?))
        },
    ];
    for make in platforms {
        let platform = match make() {
            Ok(p) => p,
            Err(e) => {
                println!("skipped: {e}");
                continue;
            }
        };
        // Without, and with host mappings that go away all the time.
        for drop_every in [0, 7, 3] {
            let start = std::time::Instant::now();
            let (out, status) = run(&*platform, &["/bin/echo", "hello", "world"], drop_every);
            let name = platform.name();
            println!(
                "{name}, drop every {drop_every}: {status} in {:?}",
                start.elapsed()
            );
            assert_eq!((out.as_slice(), status), (&b"hello world\n"[..], 0));
        }
    }
}
