//! The initial stack.
//!
//! From the top down: eight zero bytes; the file's name; the environment's strings; the arguments'
//! strings; a random gap; the platform's name; 16 random bytes; then, at an address that is a
//! multiple of 16, argc, argv, envp and the auxiliary vector, upwards.

use crate::{Hardware, LoadRequest, Randomize, random_pages};
use abi::errno::{E2BIG, ENOMEM};
use abi::linux::{
    MAP_ANONYMOUS, MAP_FIXED, MAP_GROWSDOWN, MAP_PRIVATE, MAP_STACK, PROT_EXEC, PROT_READ,
    PROT_WRITE,
};
use abi::raw::auxvec::*;
use abi::{PAGE_SIZE, Result, Va};
use mm::{Mm, MmapRequest};

/// The longest string, with its NUL.
pub const MAX_ARG_STRLEN: usize = 32 * PAGE_SIZE as usize;
/// What is mapped at first besides the arguments (`stack_expand`).
const EXPAND: u64 = 128 << 10;
/// More than the vectors' alignment, random bytes, platform and auxiliary vector take.
const SLACK: u64 = 16 << 10;
/// `USER_HZ`.
const CLOCK_TICKS: u64 = 100;

/// How many bytes the strings and pointers of argv and envp may take with this `RLIMIT_STACK`.
#[must_use]
pub fn argument_limit(stack: u64) -> u64 {
    (stack / 4).clamp(128 << 10, 6 << 20)
}

/// The strings of a new image, laid out.
pub(crate) struct Arguments {
    /// argv, envp and the file's name, each with its NUL.
    strings: Vec<u8>,
    /// Where in `strings` each of argv and envp begins.
    argv: Vec<u64>,
    envp: Vec<u64>,
    env_start: u64,
    name: u64,
}

/// The mapped stack.
pub(crate) struct Stack {
    top: u64,
}

/// What the auxiliary vector tells.
pub(crate) struct Facts {
    pub(crate) vdso: u64,
    pub(crate) phdr: u64,
    pub(crate) phnum: u16,
    pub(crate) base: u64,
    pub(crate) entry: u64,
    pub(crate) hardware: Hardware,
    /// uid, euid, gid, egid.
    pub(crate) ids: [u32; 4],
    pub(crate) secure: bool,
}

impl Arguments {
    /// Lays the strings out. `E2BIG` where they are too long or too many.
    pub(crate) fn collect(req: &LoadRequest<'_>) -> Result<Arguments> {
        let limit = argument_limit(req.limits.stack);
        let count = req.argv.len().max(1) + req.envp.len();
        let pointers = count as u64 * 8;
        let room = limit
            .checked_sub(pointers)
            .filter(|r| *r > 0)
            .ok_or(E2BIG)? as usize;
        let mut strings: Vec<u8> = Vec::new();
        let mut add = |s: &[u8]| {
            if s.len() >= MAX_ARG_STRLEN || strings.len() + s.len() + 1 > room {
                return Err(E2BIG);
            }
            let at = strings.len() as u64;
            strings.extend_from_slice(s);
            strings.push(0);
            Ok(at)
        };
        let mut argv = req
            .argv
            .iter()
            .map(|s| add(s))
            .collect::<Result<Vec<u64>>>()?;
        if argv.is_empty() {
            // Since Linux 5.18, no program sees an empty argv.
            argv.push(add(b"")?);
        }
        let mut envp = Vec::with_capacity(req.envp.len());
        let mut env_start = None;
        for s in req.envp {
            let at = add(s)?;
            env_start.get_or_insert(at);
            envp.push(at);
        }
        let name = add(req.filename)?;
        Ok(Arguments {
            strings,
            argv,
            envp,
            env_start: env_start.unwrap_or(name),
            name,
        })
    }

    /// Maps the stack that they will lie on.
    pub(crate) fn map(&self, mm: &Mm, top: u64, req: &LoadRequest<'_>) -> Result<Stack> {
        let pointers = (self.argv.len() + self.envp.len()) as u64 * 8;
        // The random gap takes up to 8 KiB.
        let need = (self.strings.len() as u64 + pointers + SLACK).next_multiple_of(PAGE_SIZE);
        let len = (need + EXPAND)
            .min(req.limits.stack & !(PAGE_SIZE - 1))
            .max(need);
        let exec = if req.program.exec_stack { PROT_EXEC } else { 0 };
        mm.mmap(MmapRequest {
            addr: Va(top - len),
            len,
            prot: PROT_READ | PROT_WRITE | exec,
            flags: MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_GROWSDOWN | MAP_STACK,
            offset: 0,
            file: None,
        })?;
        Ok(Stack { top })
    }

    /// Writes it all; gives the stack pointer.
    pub(crate) fn write(
        &self,
        mm: &Mm,
        stack: &Stack,
        facts: &Facts,
        randomize: Randomize,
    ) -> Result<u64> {
        let strings = stack.top - 8 - self.strings.len() as u64;
        put(mm, strings, &self.strings)?;
        let at = |offset: u64| strings + offset;

        // arch_align_stack.
        let gap = (random_pages(randomize, 10) / PAGE_SIZE * 8) & !15;
        let mut p = (strings - gap) & !15;
        let platform = b"x86_64\0";
        p -= platform.len() as u64;
        let platform_at = p;
        put(mm, platform_at, platform)?;
        p -= 16;
        let random_at = p;
        let mut random = [0; 16];
        hostcall::time::random(&mut random);
        put(mm, random_at, &random)?;

        let auxv = facts.auxv(random_at, at(self.name), platform_at);
        let words = 1 + self.argv.len() + 1 + self.envp.len() + 1 + auxv.len() * 2;
        let sp = (p - words as u64 * 8) & !15;
        let mut out: Vec<u8> = Vec::with_capacity(words * 8);
        let mut word = |w: u64| out.extend_from_slice(&w.to_le_bytes());
        word(self.argv.len() as u64);
        self.argv.iter().for_each(|o| word(at(*o)));
        word(0);
        self.envp.iter().for_each(|o| word(at(*o)));
        word(0);
        for (kind, value) in &auxv {
            word(*kind);
            word(*value);
        }
        put(mm, sp, &out)?;
        mm.update_layout(|l| {
            l.start_stack = sp;
            l.arg_start = strings;
            l.arg_end = at(self.env_start);
            l.env_start = at(self.env_start);
            l.env_end = at(self.name);
            l.auxv = auxv;
        });
        Ok(sp)
    }
}

impl Facts {
    /// In Linux's order.
    fn auxv(&self, random: u64, name: u64, platform: u64) -> Vec<(u64, u64)> {
        let mut v: Vec<(u32, u64)> = Vec::with_capacity(24);
        if self.vdso != 0 {
            v.push((AT_SYSINFO_EHDR, self.vdso));
        }
        let [uid, euid, gid, egid] = self.ids.map(u64::from);
        v.extend([
            (AT_MINSIGSTKSZ, self.hardware.minsigstksz),
            (AT_HWCAP, self.hardware.hwcap),
            (AT_PAGESZ, PAGE_SIZE),
            (AT_CLKTCK, CLOCK_TICKS),
            (AT_PHDR, self.phdr),
            (AT_PHENT, crate::elf::PHDR as u64),
            (AT_PHNUM, self.phnum.into()),
            (AT_BASE, self.base),
            (AT_FLAGS, 0),
            (AT_ENTRY, self.entry),
            (AT_UID, uid),
            (AT_EUID, euid),
            (AT_GID, gid),
            (AT_EGID, egid),
            (AT_SECURE, self.secure.into()),
            (AT_RANDOM, random),
            (AT_HWCAP2, self.hardware.hwcap2),
            (AT_EXECFN, name),
            (AT_PLATFORM, platform),
        ]);
        if let Some((size, align)) = self.hardware.rseq {
            v.push((AT_RSEQ_FEATURE_SIZE, size));
            v.push((AT_RSEQ_ALIGN, align));
        }
        v.push((AT_NULL, 0));
        v.into_iter().map(|(k, x)| (k.into(), x)).collect()
    }
}

fn put(mm: &Mm, at: u64, bytes: &[u8]) -> Result<()> {
    // The stack is mapped and writable, so only memory can be missing.
    mm.copy_out(Va(at), bytes).map_err(|_| ENOMEM)
}
