//! execve's part that builds an image: ELF files and the initial stack (`fs/exec.c`,
//! `fs/binfmt_elf.c`).
//!
//! How the system call uses it:
//!
//! 1. [`identify`] the file. A [`Program::Script`] names an interpreter: put it (and its argument
//!    and the script's path) before the arguments, open it, and identify again, at most
//!    [`MAX_SCRIPTS`] times (then `ELOOP`).
//! 2. A [`Program::Elf`] may name an ELF interpreter ([`Elf::interpreter`]): open it and read it
//!    with [`Elf::parse_interpreter`].
//! 3. [`load`] both into a fresh `Mm`. The old one is let go only after that, so that a failure is
//!    an error of execve rather than a dead process.
//!
//! Files are hostile: every number of a header is checked before it is used, and read once.
#![forbid(unsafe_code)]

mod elf;
mod script;
mod segments;
mod stack;

use abi::errno::EINVAL;
use abi::{Result, Va};
use mm::{Limits, MapFile, Mm, USER_MAX};
use std::sync::Arc;

pub use elf::Elf;
pub use script::{Script, parse_shebang};
pub use stack::{MAX_ARG_STRLEN, argument_limit};

/// How many scripts may interpret each other.
pub const MAX_SCRIPTS: usize = 5;
/// The bytes of a file that decide what it is (`BINPRM_BUF_SIZE`).
pub const HEAD: usize = 256;

/// A file to execute.
pub trait Image: Send + Sync {
    /// Reads at `offset`; short only at the end.
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<usize>;
    /// The file as something to map, readable.
    fn map_file(&self) -> Result<MapFile>;
}

/// What a file is.
pub enum Program {
    Script(Script),
    Elf(Elf),
}

/// Tells what `image` is. `ENOEXEC` for what cannot be executed.
pub fn identify(image: Arc<dyn Image>) -> Result<Program> {
    let mut head = [0; HEAD];
    read_full(&*image, 0, &mut head)?;
    if head.starts_with(b"#!") {
        return parse_shebang(&head).map(Program::Script);
    }
    Elf::parse(image).map(Program::Elf)
}

/// Reads as much as there is.
fn read_full(image: &dyn Image, offset: u64, buf: &mut [u8]) -> Result<usize> {
    let mut done = 0;
    while done < buf.len() {
        let n = image.read_at(offset + done as u64, &mut buf[done..])?;
        if n == 0 {
            break;
        }
        done += n;
    }
    Ok(done)
}

/// Whether addresses are chosen at random (`personality(ADDR_NO_RANDOMIZE)`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Randomize {
    No,
    Yes,
}

/// What the hardware and the Sentry offer, for the auxiliary vector.
#[derive(Clone, Copy, Debug)]
pub struct Hardware {
    pub hwcap: u64,
    pub hwcap2: u64,
    /// The least size of a signal stack.
    pub minsigstksz: u64,
    /// `AT_RSEQ_FEATURE_SIZE` and `AT_RSEQ_ALIGN`; `None` where rseq(2) is not implemented.
    pub rseq: Option<(u64, u64)>,
}

impl Hardware {
    /// The host's, without rseq.
    #[must_use]
    pub fn host() -> Hardware {
        use abi::raw::auxvec::{AT_HWCAP, AT_HWCAP2, AT_MINSIGSTKSZ};
        let get = |kind: u32| hostcall::auxv::get(kind.into());
        Hardware {
            hwcap: get(AT_HWCAP),
            hwcap2: get(AT_HWCAP2),
            minsigstksz: get(AT_MINSIGSTKSZ).max(2048),
            rseq: None,
        }
    }
}

/// Maps the vDSO and gives its address.
pub type MapVdso<'a> = &'a mut dyn FnMut(&Mm) -> Result<Va>;

/// What [`load`] needs.
pub struct LoadRequest<'a> {
    pub program: &'a Elf,
    /// Present exactly if the program names one.
    pub interpreter: Option<&'a Elf>,
    /// The path that execve got: `AT_EXECFN`.
    pub filename: &'a [u8],
    pub argv: &'a [Vec<u8>],
    pub envp: &'a [Vec<u8>],
    pub uid: u32,
    pub euid: u32,
    pub gid: u32,
    pub egid: u32,
    /// `AT_SECURE`: the file raises privileges.
    pub secure: bool,
    pub hardware: Hardware,
    pub randomize: Randomize,
    /// Also set for the `Mm`.
    pub limits: Limits,
    pub map_vdso: Option<MapVdso<'a>>,
}

/// A loaded image. The rest is in [`Mm::layout`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Loaded {
    /// Where to begin: in the interpreter, if there is one.
    pub entry: Va,
    pub sp: Va,
    /// The program's own entry (`AT_ENTRY`).
    pub program_entry: Va,
    /// Where the interpreter was loaded (`AT_BASE`), or zero.
    pub base: Va,
    pub start_brk: Va,
}

/// Random pages, below `1 << bits`, in bytes.
fn random_pages(randomize: Randomize, bits: u32) -> u64 {
    if randomize == Randomize::No {
        return 0;
    }
    let mut b = [0; 8];
    hostcall::time::random(&mut b);
    (u64::from_le_bytes(b) & ((1 << bits) - 1)) * abi::PAGE_SIZE
}

/// Loads a program into `mm`, which must be empty.
pub fn load(mm: &Mm, req: LoadRequest<'_>) -> Result<Loaded> {
    if req.program.interpreter().is_some() != req.interpreter.is_some() {
        return Err(EINVAL);
    }
    mm.set_limits(req.limits);
    let stack_top = USER_MAX - random_pages(req.randomize, 22);
    // As mmap_base: room for the stack as its limit allows, at least 128 MiB, at most 5/6 of all.
    let gap = req.limits.stack.clamp(128 << 20, USER_MAX / 6 * 5);
    let margin = (mm::STACK_GUARD_PAGES * abi::PAGE_SIZE) + (16 << 30);
    let base = USER_MAX
        .saturating_sub(gap.saturating_add(margin))
        .saturating_sub(random_pages(req.randomize, 28));
    mm.update_layout(|l| l.mmap_base = base.max(USER_MAX / 6) & !(abi::PAGE_SIZE - 1));

    let arguments = stack::Arguments::collect(&req)?;
    let stack = arguments.map(mm, stack_top, &req)?;
    let program = segments::map_program(mm, req.program, req.interpreter.is_some(), req.randomize)?;
    let interpreter = match req.interpreter {
        Some(elf) => Some(segments::map_interpreter(mm, elf)?),
        None => None,
    };
    let vdso = match req.map_vdso {
        Some(map) => map(mm)?,
        None => Va::NULL,
    };
    let entry = interpreter.as_ref().map_or(program.entry, |i| i.entry);
    if entry == 0 || entry >= USER_MAX || program.entry >= USER_MAX {
        return Err(EINVAL);
    }
    mm.update_layout(|l| {
        l.start_code = program.start_code;
        l.end_code = program.end_code;
        l.start_data = program.start_data;
        l.end_data = program.end_data;
        l.start_brk = program.start_brk;
        l.brk = program.start_brk;
        l.vdso = vdso.0;
    });
    let base = interpreter.as_ref().map_or(0, |i| i.bias);
    let facts = stack::Facts {
        vdso: vdso.0,
        phdr: program.phdr,
        phnum: req.program.phnum(),
        base,
        entry: program.entry,
        hardware: req.hardware,
        ids: [req.uid, req.euid, req.gid, req.egid],
        secure: req.secure,
    };
    let sp = arguments.write(mm, &stack, &facts, req.randomize)?;
    Ok(Loaded {
        entry: Va(entry),
        sp: Va(sp),
        program_entry: Va(program.entry),
        base: Va(base),
        start_brk: Va(program.start_brk),
    })
}

#[cfg(test)]
mod tests;
