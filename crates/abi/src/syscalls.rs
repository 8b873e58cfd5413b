//! Linux's system calls on x86-64, by number: all that Linux 6.12 names, also those that it no
//! longer has.

/// A system call of Linux.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Name {
    pub nr: u32,
    pub name: &'static str,
}

/// Numbers that have a name but no function in Linux 6.12 itself: they give `ENOSYS` there, too.
pub const GONE: &[u32] = &[
    nr::SYSCTL,          // until 5.5
    nr::CREATE_MODULE,   // until 2.6
    nr::GET_KERNEL_SYMS, // until 2.6
    nr::QUERY_MODULE,    // until 2.6
    nr::NFSSERVCTL,      // until 3.1
    nr::GETPMSG,         // never
    nr::PUTPMSG,         // never
    nr::AFS_SYSCALL,     // never
    nr::TUXCALL,         // never
    nr::SECURITY,        // never
    nr::SET_THREAD_AREA, // 32-bit only
    nr::GET_THREAD_AREA, // 32-bit only
    nr::LOOKUP_DCOOKIE,  // until 6.7
    nr::EPOLL_CTL_OLD,   // never
    nr::EPOLL_WAIT_OLD,  // never
    nr::VSERVER,         // never
];

/// The bit of the numbers of the x32 interface.
pub const X32: u32 = 0x4000_0000;

/// What Linux calls a number.
#[must_use]
pub fn name(nr: u64) -> Option<&'static str> {
    let at = NAMES.binary_search_by_key(&nr, |n| n.nr.into()).ok()?;
    Some(NAMES[at].name)
}

/// The number of a name. At compile time only: it compares with every name.
///
/// # Panics
/// Linux has no such call.
#[must_use]
pub const fn number(name: &str) -> u32 {
    let mut i = 0;
    while i < NAMES.len() {
        if equal(NAMES[i].name.as_bytes(), name.as_bytes()) {
            return NAMES[i].nr;
        }
        i += 1;
    }
    panic!("Linux has no such system call")
}

const fn equal(a: &[u8], b: &[u8]) -> bool {
    if a.len() != b.len() {
        return false;
    }
    let mut i = 0;
    while i < a.len() {
        if a[i] != b[i] {
            return false;
        }
        i += 1;
    }
    true
}

/// The one place where the numbers stand: each with its name and the name of its constant.
macro_rules! numbers {
    ($($nr:literal $name:literal $constant:ident)*) => {
        /// Every name, by number.
        pub const NAMES: &[Name] = &[$(Name { nr: $nr, name: $name }),*];

        /// The numbers by name.
        pub mod nr {
            $(
                #[doc = concat!("`", $name, "`.")]
                pub const $constant: u32 = $nr;
            )*
        }
    };
}

numbers! {
      0 "read"                    READ
      1 "write"                   WRITE
      2 "open"                    OPEN
      3 "close"                   CLOSE
      4 "stat"                    STAT
      5 "fstat"                   FSTAT
      6 "lstat"                   LSTAT
      7 "poll"                    POLL
      8 "lseek"                   LSEEK
      9 "mmap"                    MMAP
     10 "mprotect"                MPROTECT
     11 "munmap"                  MUNMAP
     12 "brk"                     BRK
     13 "rt_sigaction"            RT_SIGACTION
     14 "rt_sigprocmask"          RT_SIGPROCMASK
     15 "rt_sigreturn"            RT_SIGRETURN
     16 "ioctl"                   IOCTL
     17 "pread64"                 PREAD64
     18 "pwrite64"                PWRITE64
     19 "readv"                   READV
     20 "writev"                  WRITEV
     21 "access"                  ACCESS
     22 "pipe"                    PIPE
     23 "select"                  SELECT
     24 "sched_yield"             SCHED_YIELD
     25 "mremap"                  MREMAP
     26 "msync"                   MSYNC
     27 "mincore"                 MINCORE
     28 "madvise"                 MADVISE
     29 "shmget"                  SHMGET
     30 "shmat"                   SHMAT
     31 "shmctl"                  SHMCTL
     32 "dup"                     DUP
     33 "dup2"                    DUP2
     34 "pause"                   PAUSE
     35 "nanosleep"               NANOSLEEP
     36 "getitimer"               GETITIMER
     37 "alarm"                   ALARM
     38 "setitimer"               SETITIMER
     39 "getpid"                  GETPID
     40 "sendfile"                SENDFILE
     41 "socket"                  SOCKET
     42 "connect"                 CONNECT
     43 "accept"                  ACCEPT
     44 "sendto"                  SENDTO
     45 "recvfrom"                RECVFROM
     46 "sendmsg"                 SENDMSG
     47 "recvmsg"                 RECVMSG
     48 "shutdown"                SHUTDOWN
     49 "bind"                    BIND
     50 "listen"                  LISTEN
     51 "getsockname"             GETSOCKNAME
     52 "getpeername"             GETPEERNAME
     53 "socketpair"              SOCKETPAIR
     54 "setsockopt"              SETSOCKOPT
     55 "getsockopt"              GETSOCKOPT
     56 "clone"                   CLONE
     57 "fork"                    FORK
     58 "vfork"                   VFORK
     59 "execve"                  EXECVE
     60 "exit"                    EXIT
     61 "wait4"                   WAIT4
     62 "kill"                    KILL
     63 "uname"                   UNAME
     64 "semget"                  SEMGET
     65 "semop"                   SEMOP
     66 "semctl"                  SEMCTL
     67 "shmdt"                   SHMDT
     68 "msgget"                  MSGGET
     69 "msgsnd"                  MSGSND
     70 "msgrcv"                  MSGRCV
     71 "msgctl"                  MSGCTL
     72 "fcntl"                   FCNTL
     73 "flock"                   FLOCK
     74 "fsync"                   FSYNC
     75 "fdatasync"               FDATASYNC
     76 "truncate"                TRUNCATE
     77 "ftruncate"               FTRUNCATE
     78 "getdents"                GETDENTS
     79 "getcwd"                  GETCWD
     80 "chdir"                   CHDIR
     81 "fchdir"                  FCHDIR
     82 "rename"                  RENAME
     83 "mkdir"                   MKDIR
     84 "rmdir"                   RMDIR
     85 "creat"                   CREAT
     86 "link"                    LINK
     87 "unlink"                  UNLINK
     88 "symlink"                 SYMLINK
     89 "readlink"                READLINK
     90 "chmod"                   CHMOD
     91 "fchmod"                  FCHMOD
     92 "chown"                   CHOWN
     93 "fchown"                  FCHOWN
     94 "lchown"                  LCHOWN
     95 "umask"                   UMASK
     96 "gettimeofday"            GETTIMEOFDAY
     97 "getrlimit"               GETRLIMIT
     98 "getrusage"               GETRUSAGE
     99 "sysinfo"                 SYSINFO
    100 "times"                   TIMES
    101 "ptrace"                  PTRACE
    102 "getuid"                  GETUID
    103 "syslog"                  SYSLOG
    104 "getgid"                  GETGID
    105 "setuid"                  SETUID
    106 "setgid"                  SETGID
    107 "geteuid"                 GETEUID
    108 "getegid"                 GETEGID
    109 "setpgid"                 SETPGID
    110 "getppid"                 GETPPID
    111 "getpgrp"                 GETPGRP
    112 "setsid"                  SETSID
    113 "setreuid"                SETREUID
    114 "setregid"                SETREGID
    115 "getgroups"               GETGROUPS
    116 "setgroups"               SETGROUPS
    117 "setresuid"               SETRESUID
    118 "getresuid"               GETRESUID
    119 "setresgid"               SETRESGID
    120 "getresgid"               GETRESGID
    121 "getpgid"                 GETPGID
    122 "setfsuid"                SETFSUID
    123 "setfsgid"                SETFSGID
    124 "getsid"                  GETSID
    125 "capget"                  CAPGET
    126 "capset"                  CAPSET
    127 "rt_sigpending"           RT_SIGPENDING
    128 "rt_sigtimedwait"         RT_SIGTIMEDWAIT
    129 "rt_sigqueueinfo"         RT_SIGQUEUEINFO
    130 "rt_sigsuspend"           RT_SIGSUSPEND
    131 "sigaltstack"             SIGALTSTACK
    132 "utime"                   UTIME
    133 "mknod"                   MKNOD
    134 "uselib"                  USELIB
    135 "personality"             PERSONALITY
    136 "ustat"                   USTAT
    137 "statfs"                  STATFS
    138 "fstatfs"                 FSTATFS
    139 "sysfs"                   SYSFS
    140 "getpriority"             GETPRIORITY
    141 "setpriority"             SETPRIORITY
    142 "sched_setparam"          SCHED_SETPARAM
    143 "sched_getparam"          SCHED_GETPARAM
    144 "sched_setscheduler"      SCHED_SETSCHEDULER
    145 "sched_getscheduler"      SCHED_GETSCHEDULER
    146 "sched_get_priority_max"  SCHED_GET_PRIORITY_MAX
    147 "sched_get_priority_min"  SCHED_GET_PRIORITY_MIN
    148 "sched_rr_get_interval"   SCHED_RR_GET_INTERVAL
    149 "mlock"                   MLOCK
    150 "munlock"                 MUNLOCK
    151 "mlockall"                MLOCKALL
    152 "munlockall"              MUNLOCKALL
    153 "vhangup"                 VHANGUP
    154 "modify_ldt"              MODIFY_LDT
    155 "pivot_root"              PIVOT_ROOT
    156 "_sysctl"                 SYSCTL
    157 "prctl"                   PRCTL
    158 "arch_prctl"              ARCH_PRCTL
    159 "adjtimex"                ADJTIMEX
    160 "setrlimit"               SETRLIMIT
    161 "chroot"                  CHROOT
    162 "sync"                    SYNC
    163 "acct"                    ACCT
    164 "settimeofday"            SETTIMEOFDAY
    165 "mount"                   MOUNT
    166 "umount2"                 UMOUNT2
    167 "swapon"                  SWAPON
    168 "swapoff"                 SWAPOFF
    169 "reboot"                  REBOOT
    170 "sethostname"             SETHOSTNAME
    171 "setdomainname"           SETDOMAINNAME
    172 "iopl"                    IOPL
    173 "ioperm"                  IOPERM
    174 "create_module"           CREATE_MODULE
    175 "init_module"             INIT_MODULE
    176 "delete_module"           DELETE_MODULE
    177 "get_kernel_syms"         GET_KERNEL_SYMS
    178 "query_module"            QUERY_MODULE
    179 "quotactl"                QUOTACTL
    180 "nfsservctl"              NFSSERVCTL
    181 "getpmsg"                 GETPMSG
    182 "putpmsg"                 PUTPMSG
    183 "afs_syscall"             AFS_SYSCALL
    184 "tuxcall"                 TUXCALL
    185 "security"                SECURITY
    186 "gettid"                  GETTID
    187 "readahead"               READAHEAD
    188 "setxattr"                SETXATTR
    189 "lsetxattr"               LSETXATTR
    190 "fsetxattr"               FSETXATTR
    191 "getxattr"                GETXATTR
    192 "lgetxattr"               LGETXATTR
    193 "fgetxattr"               FGETXATTR
    194 "listxattr"               LISTXATTR
    195 "llistxattr"              LLISTXATTR
    196 "flistxattr"              FLISTXATTR
    197 "removexattr"             REMOVEXATTR
    198 "lremovexattr"            LREMOVEXATTR
    199 "fremovexattr"            FREMOVEXATTR
    200 "tkill"                   TKILL
    201 "time"                    TIME
    202 "futex"                   FUTEX
    203 "sched_setaffinity"       SCHED_SETAFFINITY
    204 "sched_getaffinity"       SCHED_GETAFFINITY
    205 "set_thread_area"         SET_THREAD_AREA
    206 "io_setup"                IO_SETUP
    207 "io_destroy"              IO_DESTROY
    208 "io_getevents"            IO_GETEVENTS
    209 "io_submit"               IO_SUBMIT
    210 "io_cancel"               IO_CANCEL
    211 "get_thread_area"         GET_THREAD_AREA
    212 "lookup_dcookie"          LOOKUP_DCOOKIE
    213 "epoll_create"            EPOLL_CREATE
    214 "epoll_ctl_old"           EPOLL_CTL_OLD
    215 "epoll_wait_old"          EPOLL_WAIT_OLD
    216 "remap_file_pages"        REMAP_FILE_PAGES
    217 "getdents64"              GETDENTS64
    218 "set_tid_address"         SET_TID_ADDRESS
    219 "restart_syscall"         RESTART_SYSCALL
    220 "semtimedop"              SEMTIMEDOP
    221 "fadvise64"               FADVISE64
    222 "timer_create"            TIMER_CREATE
    223 "timer_settime"           TIMER_SETTIME
    224 "timer_gettime"           TIMER_GETTIME
    225 "timer_getoverrun"        TIMER_GETOVERRUN
    226 "timer_delete"            TIMER_DELETE
    227 "clock_settime"           CLOCK_SETTIME
    228 "clock_gettime"           CLOCK_GETTIME
    229 "clock_getres"            CLOCK_GETRES
    230 "clock_nanosleep"         CLOCK_NANOSLEEP
    231 "exit_group"              EXIT_GROUP
    232 "epoll_wait"              EPOLL_WAIT
    233 "epoll_ctl"               EPOLL_CTL
    234 "tgkill"                  TGKILL
    235 "utimes"                  UTIMES
    236 "vserver"                 VSERVER
    237 "mbind"                   MBIND
    238 "set_mempolicy"           SET_MEMPOLICY
    239 "get_mempolicy"           GET_MEMPOLICY
    240 "mq_open"                 MQ_OPEN
    241 "mq_unlink"               MQ_UNLINK
    242 "mq_timedsend"            MQ_TIMEDSEND
    243 "mq_timedreceive"         MQ_TIMEDRECEIVE
    244 "mq_notify"               MQ_NOTIFY
    245 "mq_getsetattr"           MQ_GETSETATTR
    246 "kexec_load"              KEXEC_LOAD
    247 "waitid"                  WAITID
    248 "add_key"                 ADD_KEY
    249 "request_key"             REQUEST_KEY
    250 "keyctl"                  KEYCTL
    251 "ioprio_set"              IOPRIO_SET
    252 "ioprio_get"              IOPRIO_GET
    253 "inotify_init"            INOTIFY_INIT
    254 "inotify_add_watch"       INOTIFY_ADD_WATCH
    255 "inotify_rm_watch"        INOTIFY_RM_WATCH
    256 "migrate_pages"           MIGRATE_PAGES
    257 "openat"                  OPENAT
    258 "mkdirat"                 MKDIRAT
    259 "mknodat"                 MKNODAT
    260 "fchownat"                FCHOWNAT
    261 "futimesat"               FUTIMESAT
    262 "newfstatat"              NEWFSTATAT
    263 "unlinkat"                UNLINKAT
    264 "renameat"                RENAMEAT
    265 "linkat"                  LINKAT
    266 "symlinkat"               SYMLINKAT
    267 "readlinkat"              READLINKAT
    268 "fchmodat"                FCHMODAT
    269 "faccessat"               FACCESSAT
    270 "pselect6"                PSELECT6
    271 "ppoll"                   PPOLL
    272 "unshare"                 UNSHARE
    273 "set_robust_list"         SET_ROBUST_LIST
    274 "get_robust_list"         GET_ROBUST_LIST
    275 "splice"                  SPLICE
    276 "tee"                     TEE
    277 "sync_file_range"         SYNC_FILE_RANGE
    278 "vmsplice"                VMSPLICE
    279 "move_pages"              MOVE_PAGES
    280 "utimensat"               UTIMENSAT
    281 "epoll_pwait"             EPOLL_PWAIT
    282 "signalfd"                SIGNALFD
    283 "timerfd_create"          TIMERFD_CREATE
    284 "eventfd"                 EVENTFD
    285 "fallocate"               FALLOCATE
    286 "timerfd_settime"         TIMERFD_SETTIME
    287 "timerfd_gettime"         TIMERFD_GETTIME
    288 "accept4"                 ACCEPT4
    289 "signalfd4"               SIGNALFD4
    290 "eventfd2"                EVENTFD2
    291 "epoll_create1"           EPOLL_CREATE1
    292 "dup3"                    DUP3
    293 "pipe2"                   PIPE2
    294 "inotify_init1"           INOTIFY_INIT1
    295 "preadv"                  PREADV
    296 "pwritev"                 PWRITEV
    297 "rt_tgsigqueueinfo"       RT_TGSIGQUEUEINFO
    298 "perf_event_open"         PERF_EVENT_OPEN
    299 "recvmmsg"                RECVMMSG
    300 "fanotify_init"           FANOTIFY_INIT
    301 "fanotify_mark"           FANOTIFY_MARK
    302 "prlimit64"               PRLIMIT64
    303 "name_to_handle_at"       NAME_TO_HANDLE_AT
    304 "open_by_handle_at"       OPEN_BY_HANDLE_AT
    305 "clock_adjtime"           CLOCK_ADJTIME
    306 "syncfs"                  SYNCFS
    307 "sendmmsg"                SENDMMSG
    308 "setns"                   SETNS
    309 "getcpu"                  GETCPU
    310 "process_vm_readv"        PROCESS_VM_READV
    311 "process_vm_writev"       PROCESS_VM_WRITEV
    312 "kcmp"                    KCMP
    313 "finit_module"            FINIT_MODULE
    314 "sched_setattr"           SCHED_SETATTR
    315 "sched_getattr"           SCHED_GETATTR
    316 "renameat2"               RENAMEAT2
    317 "seccomp"                 SECCOMP
    318 "getrandom"               GETRANDOM
    319 "memfd_create"            MEMFD_CREATE
    320 "kexec_file_load"         KEXEC_FILE_LOAD
    321 "bpf"                     BPF
    322 "execveat"                EXECVEAT
    323 "userfaultfd"             USERFAULTFD
    324 "membarrier"              MEMBARRIER
    325 "mlock2"                  MLOCK2
    326 "copy_file_range"         COPY_FILE_RANGE
    327 "preadv2"                 PREADV2
    328 "pwritev2"                PWRITEV2
    329 "pkey_mprotect"           PKEY_MPROTECT
    330 "pkey_alloc"              PKEY_ALLOC
    331 "pkey_free"               PKEY_FREE
    332 "statx"                   STATX
    333 "io_pgetevents"           IO_PGETEVENTS
    334 "rseq"                    RSEQ
    335 "uretprobe"               URETPROBE
    424 "pidfd_send_signal"       PIDFD_SEND_SIGNAL
    425 "io_uring_setup"          IO_URING_SETUP
    426 "io_uring_enter"          IO_URING_ENTER
    427 "io_uring_register"       IO_URING_REGISTER
    428 "open_tree"               OPEN_TREE
    429 "move_mount"              MOVE_MOUNT
    430 "fsopen"                  FSOPEN
    431 "fsconfig"                FSCONFIG
    432 "fsmount"                 FSMOUNT
    433 "fspick"                  FSPICK
    434 "pidfd_open"              PIDFD_OPEN
    435 "clone3"                  CLONE3
    436 "close_range"             CLOSE_RANGE
    437 "openat2"                 OPENAT2
    438 "pidfd_getfd"             PIDFD_GETFD
    439 "faccessat2"              FACCESSAT2
    440 "process_madvise"         PROCESS_MADVISE
    441 "epoll_pwait2"            EPOLL_PWAIT2
    442 "mount_setattr"           MOUNT_SETATTR
    443 "quotactl_fd"             QUOTACTL_FD
    444 "landlock_create_ruleset" LANDLOCK_CREATE_RULESET
    445 "landlock_add_rule"       LANDLOCK_ADD_RULE
    446 "landlock_restrict_self"  LANDLOCK_RESTRICT_SELF
    447 "memfd_secret"            MEMFD_SECRET
    448 "process_mrelease"        PROCESS_MRELEASE
    449 "futex_waitv"             FUTEX_WAITV
    450 "set_mempolicy_home_node" SET_MEMPOLICY_HOME_NODE
    451 "cachestat"               CACHESTAT
    452 "fchmodat2"               FCHMODAT2
    453 "map_shadow_stack"        MAP_SHADOW_STACK
    454 "futex_wake"              FUTEX_WAKE
    455 "futex_wait"              FUTEX_WAIT
    456 "futex_requeue"           FUTEX_REQUEUE
    457 "statmount"               STATMOUNT
    458 "listmount"               LISTMOUNT
    459 "lsm_get_self_attr"       LSM_GET_SELF_ATTR
    460 "lsm_set_self_attr"       LSM_SET_SELF_ATTR
    461 "lsm_list_modules"        LSM_LIST_MODULES
    462 "mseal"                   MSEAL
    467 "open_tree_attr"          OPEN_TREE_ATTR
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_rise() {
        assert!(NAMES.is_sorted_by(|a, b| a.nr < b.nr));
    }

    #[test]
    fn a_name_leads_to_its_number() {
        assert_eq!(number("openat"), nr::OPENAT);
        assert!(NAMES.iter().all(|n| name(n.nr.into()) == Some(n.name)));
    }
}
