//! The table of host calls. One line a call: its number's name in `libc`, the processes that may
//! make it once the allow-lists are on (`S` the Sentry, `N` the Sentry too where it has the host's
//! network, `T` the Sentry too on the ptrace platform, `G` the Gofer, `B` the broker of the host's
//! sockets, `M` a container's monitor; of a network by policy `P` the Sentry too and `R` the
//! broker; `C` who writes packets down; `-` only before), and what for.

/// The numbers, with those that the `libc` crate does not have yet.
mod numbers {
    pub use libc::*;
    /// Linux 6.13.
    #[allow(non_upper_case_globals)]
    pub const SYS_getxattrat: i64 = 464;
}

macro_rules! host_calls {
    ($($name:ident = $sys:ident, $who:literal, $why:literal;)*) => {
        /// A host call that Cloister makes.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        #[repr(u32)]
        pub enum HostCall { $($name = numbers::$sys as u32),* }

        impl HostCall {
            /// Every entry, in the table's order.
            pub const ALL: &'static [HostCall] = &[$(HostCall::$name),*];

            /// The system call's name as Linux writes it.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self { $(HostCall::$name => &stringify!($sys)[4..]),* }
            }
            /// What it is for.
            #[must_use]
            pub fn why(self) -> &'static str {
                match self { $(HostCall::$name => $why),* }
            }
            /// Whether `process` may make it once its allow-list is on.
            #[must_use]
            pub fn allowed(self, process: Process) -> bool {
                let who: &str = match self { $(HostCall::$name => $who),* };
                match process {
                    Process::Sentry => who.contains('S'),
                    Process::SentryOnHostNetwork => who.contains(['S', 'N']),
                    Process::SentryWithBroker => who.contains(['S', 'P']),
                    Process::TracingSentryWithBroker => who.contains(['S', 'P', 'T']),
                    Process::TracingSentry => who.contains(['S', 'T']),
                    Process::TracingSentryOnHostNetwork => who.contains(['S', 'N', 'T']),
                    Process::Gofer => who.contains('G'),
                    Process::Broker => who.contains('B'),
                    Process::UserBroker => who.contains('R'),
                    Process::Monitor => who.contains('M'),
                    Process::Capture => who.contains('C'),
                }
            }
        }
    };
}

/// A process of ours that runs under an allow-list.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Process {
    Sentry,
    /// With `--net=host`.
    SentryOnHostNetwork,
    /// On the ptrace platform.
    TracingSentry,
    TracingSentryOnHostNetwork,
    /// With `--net=user`.
    SentryWithBroker,
    TracingSentryWithBroker,
    Gofer,
    /// Makes the sockets of `--net=host`.
    Broker,
    /// Connects the sockets of `--net=user`, by policy.
    UserBroker,
    /// Watches over a container's processes.
    Monitor,
    /// Writes down what passes on devices.
    Capture,
}

/// Where a Sentry's sockets lead.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sockets {
    Inside,
    /// To the host's network, too.
    Host,
    /// To what a broker connects, too.
    Broker,
}

/// How a Sentry learns of its stub processes' calls.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stubs {
    Notify,
    Traced,
}

impl Process {
    pub const ALL: [Process; 11] = [
        Process::Sentry,
        Process::SentryOnHostNetwork,
        Process::TracingSentry,
        Process::TracingSentryOnHostNetwork,
        Process::SentryWithBroker,
        Process::TracingSentryWithBroker,
        Process::Gofer,
        Process::Broker,
        Process::UserBroker,
        Process::Monitor,
        Process::Capture,
    ];

    /// The Sentry's list.
    #[must_use]
    pub const fn sentry(sockets: Sockets, stubs: Stubs) -> Process {
        match (sockets, stubs) {
            (Sockets::Inside, Stubs::Notify) => Process::Sentry,
            (Sockets::Host, Stubs::Notify) => Process::SentryOnHostNetwork,
            (Sockets::Broker, Stubs::Notify) => Process::SentryWithBroker,
            (Sockets::Broker, Stubs::Traced) => Process::TracingSentryWithBroker,
            (Sockets::Inside, Stubs::Traced) => Process::TracingSentry,
            (Sockets::Host, Stubs::Traced) => Process::TracingSentryOnHostNetwork,
        }
    }

    /// The numbers that this process may call, sorted.
    #[must_use]
    pub fn allow_list(self) -> Vec<u32> {
        let mut v: Vec<u32> = HostCall::ALL
            .iter()
            .filter(|c| c.allowed(self))
            .map(|c| *c as u32)
            .collect();
        v.sort_unstable();
        v.dedup();
        v
    }
}

host_calls! {
    // Files and descriptors
    Read = SYS_read, "SGM", "standard streams, the channel's wake-ups";
    Write = SYS_write, "SGBMRC", "standard streams, logs";
    Pread64 = SYS_pread64, "S", "files by a donated descriptor";
    Pwrite64 = SYS_pwrite64, "SM", "files by a donated descriptor; overwriting a memory file that was confidential";
    Readv = SYS_readv, "S", "standard streams into application memory; frames of devices that were taken over";
    Writev = SYS_writev, "S", "standard streams from application memory; frames of such devices";
    Preadv = SYS_preadv, "S", "files into application memory";
    Pwritev2 = SYS_pwritev2, "S", "files from application memory";
    Close = SYS_close, "SGBMRC", "descriptors";
    Fstat = SYS_fstat, "SGM", "size and type of a donated descriptor";
    Ftruncate = SYS_ftruncate, "SG", "the memory file; files opened for writing";
    Fallocate = SYS_fallocate, "SG", "giving memory back; fallocate(2) of files";
    Fsync = SYS_fsync, "SG", "fsync(2) of files";
    Fdatasync = SYS_fdatasync, "SG", "fdatasync(2) of files";
    Dup = SYS_dup, "-", "handing descriptors over";
    Dup3 = SYS_dup3, "-", "handing descriptors over";
    Fcntl = SYS_fcntl, "SGM", "descriptor flags";
    Poll = SYS_poll, "SGMC", "waiting for standard streams, channels and frames of devices";
    Ioctl = SYS_ioctl, "SM", "seccomp notification; bytes that can be read; how a stub process ended";
    MemfdCreate = SYS_memfd_create, "-", "the memory file";
    Eventfd2 = SYS_eventfd2, "-", "wake-ups";

    // Sockets between our own processes
    Recvmsg = SYS_recvmsg, "SGBMRC", "descriptors from the Gofer, control messages";
    Sendmsg = SYS_sendmsg, "SGBMR", "descriptors to the Sentry, control messages";
    Socketpair = SYS_socketpair, "R", "channels";
    Pipe2 = SYS_pipe2, "-", "channels";

    // Sockets of the host's network
    Socket = SYS_socket, "BR", "sockets of the host's network";
    Bind = SYS_bind, "B", "sockets of the host's network";
    Connect = SYS_connect, "NR", "sockets of the host's network";
    Listen = SYS_listen, "N", "sockets of the host's network";
    Accept4 = SYS_accept4, "NMR", "sockets of the host's network; the monitor's clients";
    Getsockname = SYS_getsockname, "NR", "sockets of the host's network";
    Getpeername = SYS_getpeername, "NR", "sockets of the host's network";
    Setsockopt = SYS_setsockopt, "NR", "sockets of the host's network; packet sockets, before";
    Getsockopt = SYS_getsockopt, "NBPC", "sockets of the host's network; frames that were lost";
    Shutdown = SYS_shutdown, "NMP", "sockets of the host's network";
    EpollCreate1 = SYS_epoll_create1, "-", "sockets of the host's network";
    EpollCtl = SYS_epoll_ctl, "NPR", "sockets of the host's network";
    EpollWait = SYS_epoll_wait, "NPR", "sockets of the host's network";

    // Memory
    Mmap = SYS_mmap, "SGBMRC", "std; the memory file";
    Munmap = SYS_munmap, "SGBMRC", "std";
    Mprotect = SYS_mprotect, "SGBMRC", "std: thread stacks";
    Mremap = SYS_mremap, "SGMRC", "std: realloc";
    Madvise = SYS_madvise, "SGBMRC", "std: thread stacks, free; huge pages of the memory file; drop its view";
    Brk = SYS_brk, "SGBMRC", "std";
    Mincore = SYS_mincore, "S", "residency";

    // Threads, time
    Futex = SYS_futex, "SGBMRC", "std; waking the stub";
    Clone = SYS_clone, "SG", "std: threads only";
    Exit = SYS_exit, "SG", "std: a thread's end";
    ExitGroup = SYS_exit_group, "SGBMRC", "the end";
    SetRobustList = SYS_set_robust_list, "SG", "std: thread start";
    Rseq = SYS_rseq, "SG", "std: thread start";
    Sigaltstack = SYS_sigaltstack, "SGBMRC", "std: thread start";
    RtSigprocmask = SYS_rt_sigprocmask, "SGBMRC", "std: thread start";
    RtSigaction = SYS_rt_sigaction, "SGBMRC", "std: abort";
    RtSigreturn = SYS_rt_sigreturn, "SGBMRC", "std: handlers";
    Gettid = SYS_gettid, "SGBMRC", "CPU time of threads; std: abort";
    Getpid = SYS_getpid, "SGBMRC", "std: abort";
    Tgkill = SYS_tgkill, "SGBMRC", "interrupting application threads; abort";
    Kill = SYS_kill, "M", "ending the Sentry, the Gofer and the broker: their numbers only";
    PidfdSendSignal = SYS_pidfd_send_signal, "SM", "ending stub processes; a pod's sandbox that does not obey";
    Wait4 = SYS_wait4, "TM", "ptrace stops; the monitor's children";
    Ptrace = SYS_ptrace, "T", "the ptrace platform";
    Getrandom = SYS_getrandom, "SGR", "getrandom(2); hash seeds";
    ClockGettime = SYS_clock_gettime, "SGMRC", "clocks that the vDSO does not answer";
    ClockNanosleep = SYS_clock_nanosleep, "SG", "std: sleep";
    Nanosleep = SYS_nanosleep, "SG", "std: sleep";
    SchedYield = SYS_sched_yield, "SG", "std: locks";
    Membarrier = SYS_membarrier, "S", "membarrier(2)";
    SchedGetaffinity = SYS_sched_getaffinity, "SG", "the number of CPUs";
    SchedSetaffinity = SYS_sched_setaffinity, "SG", "application threads beside who spins for them; the Gofer's beside who asks";
    RestartSyscall = SYS_restart_syscall, "SGBMRC", "the host restarting a sleep";
    Prctl = SYS_prctl, "SG", "std: thread names";

    // Before the allow-lists
    Clone3 = SYS_clone3, "-", "starting processes in a cgroup";
    Execve = SYS_execve, "-", "starting processes";
    Seccomp = SYS_seccomp, "-", "the allow-lists";
    Setresuid = SYS_setresuid, "-", "dropping privileges";
    Setresgid = SYS_setresgid, "-", "dropping privileges";
    Capget = SYS_capget, "-", "what the starter may do";
    Getgroups = SYS_getgroups, "-", "the caller's groups";
    Uname = SYS_uname, "-", "whether the host's change times are fine";
    Getpgid = SYS_getpgid, "-", "whether the starter is in the foreground";
    Signalfd4 = SYS_signalfd4, "-", "signals to be passed on";
    OpenTree = SYS_open_tree, "-", "the Gofer's own view of the host";
    MountSetattr = SYS_mount_setattr, "-", "the Gofer's own view of the host";
    LandlockCreateRuleset = SYS_landlock_create_ruleset, "-", "the Gofer's limits, not as root";
    LandlockAddRule = SYS_landlock_add_rule, "-", "the Gofer's limits, not as root";
    LandlockRestrictSelf = SYS_landlock_restrict_self, "-", "the Gofer's limits, not as root";
    Chroot = SYS_chroot, "-", "the empty root";
    Setgroups = SYS_setgroups, "-", "dropping privileges";
    Capset = SYS_capset, "-", "dropping privileges";
    Unshare = SYS_unshare, "-", "namespaces";
    Setns = SYS_setns, "-", "namespaces";
    Mount = SYS_mount, "-", "the empty root";
    Umount2 = SYS_umount2, "-", "the empty root";
    PivotRoot = SYS_pivot_root, "-", "the empty root";
    Chdir = SYS_chdir, "-", "the empty root";
    Fchdir = SYS_fchdir, "-", "the empty root";
    Setsid = SYS_setsid, "-", "the terminal";
    Prlimit64 = SYS_prlimit64, "-", "descriptor limits";
    CloseRange = SYS_close_range, "-", "closing what was inherited";
    ArchPrctl = SYS_arch_prctl, "-", "whether FSGSBASE may be used";

    // The Gofer's path calls
    Openat2 = SYS_openat2, "G", "opening beneath a root";
    Openat = SYS_openat, "-", "before the allow-list";
    Statx = SYS_statx, "G", "attributes";
    Readlinkat = SYS_readlinkat, "G", "symbolic links";
    Lseek = SYS_lseek, "SGM", "going on in a directory; the shared position of inherited files; waiting for the host's changes of a file; what of the memory file was written";
    Umask = SYS_umask, "-", "the Gofer sets modes itself";
    Geteuid = SYS_geteuid, "-", "whether ownership can be changed";
    Getegid = SYS_getegid, "-", "whether ownership can be changed";
    Getdents64 = SYS_getdents64, "G", "directories";
    Mkdirat = SYS_mkdirat, "G", "writable mounts";
    Mknodat = SYS_mknodat, "G", "writable mounts";
    Unlinkat = SYS_unlinkat, "G", "writable mounts";
    Renameat2 = SYS_renameat2, "G", "writable mounts";
    Linkat = SYS_linkat, "G", "writable mounts";
    Symlinkat = SYS_symlinkat, "G", "writable mounts";
    Fchmod = SYS_fchmod, "G", "writable mounts";
    Fchmodat = SYS_fchmodat, "G", "writable mounts";
    Fchownat = SYS_fchownat, "G", "writable mounts";
    Utimensat = SYS_utimensat, "G", "writable mounts";
    Fstatfs = SYS_fstatfs, "GM", "statfs(2); what a descriptor is of";
    Fgetxattr = SYS_fgetxattr, "G", "extended attributes";
    Getxattrat = SYS_getxattrat, "G", "POSIX ACLs of files that are not opened";
    Fsetxattr = SYS_fsetxattr, "G", "extended attributes";
    Flistxattr = SYS_flistxattr, "G", "extended attributes";
    Fremovexattr = SYS_fremovexattr, "G", "extended attributes";
}
