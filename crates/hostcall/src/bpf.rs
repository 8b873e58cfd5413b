//! Seccomp filters: a small assembler for classic BPF, and their installation.
//!
//! Our own and not `seccompiler`, because the stub's filters look at the instruction pointer and answer
//! with user notification, which that crate cannot express.

use crate::sys;
use crate::table::Process;
use abi::Result;

/// One classic BPF instruction, as `struct sock_filter`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Insn {
    pub code: u16,
    pub jt: u8,
    pub jf: u8,
    pub k: u32,
}

/// `seccomp_data.nr`.
pub const NR: u32 = 0;
/// `seccomp_data.arch`.
pub const ARCH: u32 = 4;
/// The low half of `seccomp_data.instruction_pointer`.
pub const IP_LOW: u32 = 8;
/// The high half.
pub const IP_HIGH: u32 = 12;
/// The low half of argument `i`.
#[must_use]
pub const fn arg_low(i: u32) -> u32 {
    16 + 8 * i
}

pub const ALLOW: u32 = libc::SECCOMP_RET_ALLOW;
pub const TRAP: u32 = libc::SECCOMP_RET_TRAP;
pub const KILL: u32 = libc::SECCOMP_RET_KILL_PROCESS;
/// `ENOSYS`.
pub const NO_CALL: u32 = libc::SECCOMP_RET_ERRNO | libc::ENOSYS as u32;
pub const USER_NOTIF: u32 = libc::SECCOMP_RET_USER_NOTIF;
pub const ARCH_X86_64: u32 = 0xc000_003e;

/// A program under construction.
#[derive(Default, Debug)]
pub struct Program {
    code: Vec<Insn>,
}

const LD: u16 = 0x20;
const JEQ: u16 = 0x15;
const JGE: u16 = 0x35;
const RET: u16 = 0x06;

impl Program {
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }
    /// Loads the word at this offset of `seccomp_data`.
    pub fn load(&mut self, offset: u32) -> &mut Self {
        self.push(LD, 0, 0, offset)
    }
    /// Skips `n` instructions if the word equals `k`.
    pub fn skip_if_eq(&mut self, k: u32, n: u8) -> &mut Self {
        self.push(JEQ, n, 0, k)
    }
    /// Skips `n` instructions unless the word equals `k`.
    pub fn skip_if_ne(&mut self, k: u32, n: u8) -> &mut Self {
        self.push(JEQ, 0, n, k)
    }
    /// Skips `n` instructions if the word is at least `k`.
    pub fn skip_if_ge(&mut self, k: u32, n: u8) -> &mut Self {
        self.push(JGE, n, 0, k)
    }
    /// Skips `n` instructions if the word is below `k`.
    pub fn skip_if_lt(&mut self, k: u32, n: u8) -> &mut Self {
        self.push(JGE, 0, n, k)
    }
    /// Answers `verdict`.
    pub fn ret(&mut self, verdict: u32) -> &mut Self {
        self.push(RET, 0, 0, verdict)
    }
    /// Answers `verdict` if the word equals `k`.
    pub fn ret_if_eq(&mut self, k: u32, verdict: u32) -> &mut Self {
        self.skip_if_ne(k, 1).ret(verdict)
    }
    fn push(&mut self, code: u16, jt: u8, jf: u8, k: u32) -> &mut Self {
        self.code.push(Insn { code, jt, jf, k });
        self
    }
    /// Appends another program's instructions.
    pub fn append(&mut self, other: &Program) -> &mut Self {
        self.code.extend_from_slice(&other.code);
        self
    }
    #[must_use]
    pub fn len(&self) -> usize {
        self.code.len()
    }
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.code.is_empty()
    }
    #[must_use]
    pub fn code(&self) -> &[Insn] {
        &self.code
    }
    /// The instructions as bytes.
    #[must_use]
    pub fn bytes(&self) -> Vec<u8> {
        self.code
            .iter()
            .flat_map(|i| {
                let mut b = [0u8; 8];
                b[..2].copy_from_slice(&i.code.to_le_bytes());
                b[2] = i.jt;
                b[3] = i.jf;
                b[4..].copy_from_slice(&i.k.to_le_bytes());
                b
            })
            .collect()
    }
}

/// A process's allow-list as a filter: a binary search over the numbers; everything else kills.
///
/// Some calls are allowed with certain arguments only: `clone3` cannot be inspected and makes threads (new
/// processes have nowhere to go: execve is not allowed); `prctl` only names threads; executable memory
/// cannot be had by mmap or mprotect.
#[must_use]
pub fn allow_list(process: Process) -> Program {
    let numbers = process.allow_list();
    let mut p = Program::new();
    p.load(ARCH).skip_if_eq(ARCH_X86_64, 1).ret(KILL);
    p.load(NR);
    search(&mut p, &numbers);
    p
}

fn search(p: &mut Program, numbers: &[u32]) {
    match numbers {
        [] => {
            p.ret(KILL);
        }
        [n] => {
            p.skip_if_ne(*n, 4);
            match i64::from(*n) {
                libc::SYS_mmap | libc::SYS_mprotect => {
                    // PROT_EXEC is bit 2 of argument 2: values 0..=3 are allowed.
                    p.load(arg_low(2)).skip_if_ge(4, 1).ret(ALLOW).ret(KILL);
                }
                libc::SYS_prctl => {
                    p.load(arg_low(0))
                        .skip_if_ne(libc::PR_SET_NAME as u32, 1)
                        .ret(ALLOW)
                        .ret(KILL);
                }
                _ => {
                    p.ret(ALLOW).ret(ALLOW).ret(ALLOW).ret(ALLOW);
                }
            }
            p.ret(KILL);
        }
        _ => {
            let mid = numbers.len() / 2;
            let mut left = Program::new();
            search(&mut left, &numbers[..mid]);
            // The left half may be longer than a conditional jump reaches: go over it by `ja`.
            p.push(JGE, 0, 1, numbers[mid]);
            p.push(0x05, 0, 0, left.len() as u32);
            p.code.extend_from_slice(&left.code);
            search(p, &numbers[mid..]);
        }
    }
}

/// Installs a filter on the calling process (all its threads, with `AllThreads::Yes`).
pub fn install(p: &Program, all_threads: AllThreads) -> Result<()> {
    let prog = libc::sock_fprog {
        len: p.len() as u16,
        filter: p.code.as_ptr() as *mut _,
    };
    let flags = match all_threads {
        AllThreads::Yes => libc::SECCOMP_FILTER_FLAG_TSYNC,
        AllThreads::No => 0,
    };
    // SAFETY: the program outlives the call.
    unsafe {
        sys!(
            Seccomp,
            libc::SECCOMP_SET_MODE_FILTER,
            flags,
            &raw const prog
        )
    }?;
    Ok(())
}

/// Which threads a filter binds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AllThreads {
    No,
    Yes,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs a program as the kernel would.
    fn run(p: &Program, data: &[u32; 16]) -> u32 {
        let (mut pc, mut a) = (0usize, 0u32);
        loop {
            let i = p.code[pc];
            pc += 1;
            match i.code {
                LD => a = data[(i.k / 4) as usize],
                JEQ => pc += usize::from(if a == i.k { i.jt } else { i.jf }),
                JGE => pc += usize::from(if a >= i.k { i.jt } else { i.jf }),
                0x05 => pc += i.k as usize,
                RET => return i.k,
                _ => unreachable!(),
            }
        }
    }

    #[test]
    fn the_filter_is_the_table() {
        for process in [Process::Sentry, Process::Gofer] {
            let p = allow_list(process);
            let list = process.allow_list();
            for nr in 0..1024u32 {
                let mut d = [0u32; 16];
                d[0] = nr;
                d[1] = ARCH_X86_64;
                d[4] = libc::PR_SET_NAME as u32;
                let want = if list.contains(&nr) { ALLOW } else { KILL };
                assert_eq!(run(&p, &d), want, "{process:?} {nr}");
                d[1] = 0x4000_0003;
                assert_eq!(run(&p, &d), KILL);
            }
            let mut d = [0u32; 16];
            d[0] = libc::SYS_mmap as u32;
            d[1] = ARCH_X86_64;
            d[8] = 7;
            assert_eq!(run(&p, &d), KILL, "no executable memory");
        }
    }
}
