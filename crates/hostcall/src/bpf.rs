//! Seccomp filters: a small assembler for classic BPF, and their installation.
//!
//! Our own and not `seccompiler`, because the stub's filters look at the instruction pointer and
//! answer with user notification, which that crate cannot express.

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
const AND: u16 = 0x54;

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
/// Some calls are allowed with certain arguments only ([`arguments`]). `clone3`, whose flags lie in
/// memory, is answered with `ENOSYS`: the C library then makes its threads by `clone`, whose flags
/// are looked at.
#[must_use]
pub fn allow_list(process: Process) -> Program {
    allow_list_with(process, &[])
}

/// The same; the processes of `children` (their numbers, as long as they are not reaped) can be
/// killed by a monitor.
#[must_use]
pub fn allow_list_with(process: Process, children: &[i32]) -> Program {
    let numbers = process.allow_list();
    let mut p = Program::new();
    p.load(ARCH).skip_if_eq(ARCH_X86_64, 1).ret(KILL);
    p.load(NR).ret_if_eq(libc::SYS_clone3 as u32, NO_CALL);
    search(&mut p, process, children, &numbers);
    p
}

/// What a thread of the C library is made with (musl adds the obsolete `CLONE_DETACHED`).
pub const THREAD_FLAGS: u32 = (libc::CLONE_VM
    | libc::CLONE_FS
    | libc::CLONE_FILES
    | libc::CLONE_SIGHAND
    | libc::CLONE_THREAD
    | libc::CLONE_SYSVSEM
    | libc::CLONE_SETTLS
    | libc::CLONE_PARENT_SETTID
    | libc::CLONE_CHILD_CLEARTID) as u32;

/// The verdict on an allowed call's arguments.
///
/// No executable memory; threads, but no processes and no namespaces; of ioctl(2) and fcntl(2) what
/// `hostcall` makes; prctl(2) only names threads. A Gofer may be in the host's pid namespace: it
/// signals itself only; a monitor is, and signals itself and those that it started.
fn arguments(process: Process, children: &[i32], nr: u32) -> Program {
    let mut p = Program::new();
    let mut only = |arg: u32, mask: u32, values: &[u32]| {
        p.load(arg_low(arg)).push(AND, 0, 0, mask);
        for v in values {
            p.ret_if_eq(*v, ALLOW);
        }
        p.ret(KILL);
    };
    match i64::from(nr) {
        libc::SYS_mmap | libc::SYS_mprotect => only(2, libc::PROT_EXEC as u32, &[0]),
        libc::SYS_clone => only(0, !(libc::CLONE_DETACHED as u32), &[THREAD_FLAGS]),
        libc::SYS_ioctl if process == Process::Monitor => {
            only(1, !0, &[libc::TIOCGWINSZ as u32]);
        }
        libc::SYS_ioctl => only(1, !0, &crate::process::IOCTLS),
        libc::SYS_fcntl => only(
            1,
            !0,
            &[
                libc::F_DUPFD_CLOEXEC as u32,
                libc::F_GETFD as u32,
                libc::F_GETFL as u32,
                libc::F_GET_SEALS as u32,
            ],
        ),
        libc::SYS_prctl => only(0, !0, &[libc::PR_SET_NAME as u32]),
        libc::SYS_tgkill
            if matches!(
                process,
                Process::Gofer
                    | Process::Broker
                    | Process::UserBroker
                    | Process::Monitor
                    | Process::Capture
            ) =>
        {
            only(0, !0, &[std::process::id()])
        }
        // MSG_FASTOPEN connects, to whom the message is for.
        libc::SYS_sendmsg
            if matches!(
                process,
                Process::SentryWithBroker | Process::TracingSentryWithBroker
            ) =>
        {
            only(2, libc::MSG_FASTOPEN as u32, &[0]);
        }
        // Only what the resolver's streams are.
        libc::SYS_socketpair => only(0, !0, &[libc::AF_UNIX as u32]),
        libc::SYS_kill => {
            let numbers: Vec<u32> = children.iter().map(|pid| *pid as u32).collect();
            only(0, !0, &numbers);
        }
        libc::SYS_pidfd_send_signal if process == Process::Monitor => {
            only(1, !0, &[libc::SIGKILL as u32]);
        }
        _ => {
            p.ret(ALLOW);
        }
    }
    p
}

fn search(p: &mut Program, process: Process, children: &[i32], numbers: &[u32]) {
    match numbers {
        [] => {
            p.ret(KILL);
        }
        [n] => {
            let checks = arguments(process, children, *n);
            p.skip_if_ne(*n, checks.len() as u8)
                .append(&checks)
                .ret(KILL);
        }
        _ => {
            let mid = numbers.len() / 2;
            let mut left = Program::new();
            search(&mut left, process, children, &numbers[..mid]);
            // The left half may be longer than a conditional jump reaches: go over it by `ja`.
            p.push(JGE, 0, 1, numbers[mid]);
            p.push(0x05, 0, 0, left.len() as u32);
            p.code.extend_from_slice(&left.code);
            search(p, process, children, &numbers[mid..]);
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
                AND => a &= i.k,
                RET => return i.k,
                _ => unreachable!(),
            }
        }
    }

    #[test]
    fn the_filter_is_the_table() {
        for process in Process::ALL {
            let p = allow_list_with(process, &[4711]);
            let list = process.allow_list();
            let verdict = |nr: i64, args: [u32; 3]| {
                let mut d = [0u32; 16];
                (d[0], d[1]) = (nr as u32, ARCH_X86_64);
                (d[4], d[6], d[8]) = (args[0], args[1], args[2]);
                let v = run(&p, &d);
                d[1] = 0x4000_0003;
                assert_eq!(run(&p, &d), KILL, "i386");
                v
            };
            // Arguments that are good for each call that is looked at.
            let good = |nr: u32| match i64::from(nr) {
                libc::SYS_clone => [THREAD_FLAGS, 0, 0],
                libc::SYS_ioctl if process == Process::Monitor => [0, libc::TIOCGWINSZ as u32, 0],
                libc::SYS_ioctl => [0, libc::FIONREAD as u32, 0],
                libc::SYS_kill => [4711, 9, 0],
                libc::SYS_pidfd_send_signal => [0, 9, 0],
                libc::SYS_fcntl => [0, libc::F_GETFL as u32, 0],
                libc::SYS_prctl => [libc::PR_SET_NAME as u32, 0, 0],
                libc::SYS_tgkill => [std::process::id(), 0, 0],
                libc::SYS_socketpair => [libc::AF_UNIX as u32, 0, 0],
                _ => [0; 3],
            };
            for nr in 0..1024u32 {
                let want = match (list.contains(&nr), i64::from(nr)) {
                    (true, _) => ALLOW,
                    (false, libc::SYS_clone3) => NO_CALL,
                    _ => KILL,
                };
                assert_eq!(verdict(nr.into(), good(nr)), want, "{process:?} {nr}");
                assert_eq!(verdict((nr | 0x4000_0000).into(), good(nr)), KILL, "x32");
            }
            let by_broker = matches!(
                process,
                Process::SentryWithBroker | Process::TracingSentryWithBroker
            );
            let connects = verdict(libc::SYS_sendmsg, [0, 0, libc::MSG_FASTOPEN as u32]);
            let sends = list.contains(&(libc::SYS_sendmsg as u32));
            assert_eq!(connects == KILL, by_broker || !sends, "{process:?}");
            assert_eq!(
                verdict(libc::SYS_socketpair, [libc::AF_INET as u32, 0, 0]),
                KILL
            );
            let newuser = THREAD_FLAGS | libc::CLONE_NEWUSER as u32;
            let no_thread = THREAD_FLAGS & !(libc::CLONE_THREAD as u32);
            for (nr, args) in [
                (libc::SYS_mmap, [0, 0, 7]),
                (libc::SYS_mprotect, [0, 0, 4]),
                (libc::SYS_clone, [newuser, 0, 0]),
                (libc::SYS_clone, [no_thread, 0, 0]),
                (libc::SYS_clone, [libc::SIGCHLD as u32, 0, 0]),
                (libc::SYS_ioctl, [0, libc::TIOCSTI as u32, 0]),
                (libc::SYS_fcntl, [0, libc::F_SETOWN as u32, 0]),
                (libc::SYS_prctl, [libc::PR_SET_DUMPABLE as u32, 0, 0]),
            ] {
                assert_eq!(verdict(nr, args), KILL, "{process:?} {nr} {args:?}");
            }
            if process == Process::Gofer {
                assert_eq!(verdict(libc::SYS_tgkill, [1, 0, 0]), KILL);
            }
            if process == Process::Monitor {
                for (nr, args) in [
                    (libc::SYS_tgkill, [1, 0, 0]),
                    (libc::SYS_kill, [1, 9, 0]),
                    (libc::SYS_kill, [-1i32 as u32, 9, 0]),
                    (libc::SYS_kill, [0, 9, 0]),
                    (libc::SYS_pidfd_send_signal, [0, 19, 0]),
                    (libc::SYS_ioctl, [0, libc::FIONREAD as u32, 0]),
                ] {
                    assert_eq!(verdict(nr, args), KILL, "{nr} {args:?}");
                }
            }
        }
    }
}
