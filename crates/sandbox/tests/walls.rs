//! The walls, tried: a Sentry and a Gofer are started and confined as always, and then make a host
//! call that is not theirs, each in a sandbox of its own. The host must end the one that tried, and
//! the sandbox with it.
//!
//! Every number of the host's table that is not on the process's allow-list is tried, calls on the
//! list with arguments that are not allowed, and the other ways into the kernel. Run as root and as
//! nobody.
//!
//! Not run by libtest: a starter has one thread. `WALLS=all|some` (by default all as root, some as
//! nobody).

use hostcall::table::Process;
use hostcall::{bpf, path, probe, process, sock};
use sandbox::{
    Access, Attendant, Ending, Error, GoferSide, Kernel, Outside, RootSpec, Running, SentrySide,
    Spec, UserNetwork,
};
use std::convert::Infallible;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::{Duration, Instant};

/// Numbers from which Linux has no calls (6.13 ends at 466).
const END: u64 = 480;
/// Calls of x32 programs.
const X32: u64 = 0x4000_0000;
/// A pseudo-number: the 32-bit gate.
const GATE_32: u64 = 1 << 40;

/// uretprobe(2) and uprobe(2): newer hosts let them past every filter (`__seccomp_filter`), and
/// refuse them outside code that the host itself has written.
const UNFILTERED: [u64; 2] = [335, 336];

type Try = (u64, [u64; 6]);

/// `fcntl.h`; the `libc` crate leaves it out.
const F_SETSIG: u64 = 10;

const fn nr(n: i64) -> u64 {
    n as u64
}

/// What an attacker would try first in a process that it has taken over.
const WANTED: &[i64] = &[
    libc::SYS_open,
    libc::SYS_openat,
    libc::SYS_creat,
    libc::SYS_socket,
    libc::SYS_socketpair,
    libc::SYS_connect,
    libc::SYS_bind,
    libc::SYS_accept4,
    libc::SYS_sendto,
    libc::SYS_execve,
    libc::SYS_execveat,
    libc::SYS_fork,
    libc::SYS_vfork,
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_move_mount,
    libc::SYS_open_tree,
    libc::SYS_fsopen,
    libc::SYS_bpf,
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_userfaultfd,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_pidfd_open,
    libc::SYS_pidfd_getfd,
    libc::SYS_pidfd_send_signal,
    libc::SYS_keyctl,
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_perf_event_open,
    libc::SYS_unshare,
    libc::SYS_setns,
    libc::SYS_seccomp,
    libc::SYS_setuid,
    libc::SYS_setresuid,
    libc::SYS_capset,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_kexec_load,
    libc::SYS_reboot,
    libc::SYS_iopl,
    libc::SYS_ioperm,
    libc::SYS_modify_ldt,
    libc::SYS_personality,
    libc::SYS_open_by_handle_at,
    libc::SYS_name_to_handle_at,
    libc::SYS_memfd_create,
    // memfd_secret
    447,
    libc::SYS_shmat,
    libc::SYS_semget,
    libc::SYS_msgget,
    libc::SYS_mq_open,
    libc::SYS_inotify_init1,
    libc::SYS_fanotify_init,
    libc::SYS_epoll_create1,
    libc::SYS_timer_create,
    libc::SYS_signalfd4,
    libc::SYS_pkey_mprotect,
    libc::SYS_remap_file_pages,
    libc::SYS_prlimit64,
    libc::SYS_setrlimit,
    libc::SYS_sethostname,
    libc::SYS_swapon,
    libc::SYS_syslog,
    libc::SYS_quotactl,
    libc::SYS_vmsplice,
    libc::SYS_splice,
    libc::SYS_tee,
    libc::SYS_sendfile,
    libc::SYS_copy_file_range,
    libc::SYS_rt_sigqueueinfo,
    libc::SYS_tkill,
    libc::SYS_uselib,
    libc::SYS_acct,
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_adjtimex,
    libc::SYS_landlock_create_ruleset,
    libc::SYS_clone3,
];

fn tries(who: Process, all: bool) -> Vec<Try> {
    let list = who.allow_list();
    let on_list = |n: u64| u32::try_from(n).is_ok_and(|n| list.contains(&n));
    let mut v: Vec<Try> = if all {
        (0..END).map(|n| (n, [0; 6])).collect()
    } else {
        WANTED.iter().map(|n| (nr(*n), [0; 6])).collect()
    };
    if !matches!(who, Process::Gofer | Process::Broker | Process::UserBroker) {
        // Not the Sentry's: the Gofer's.
        let files = [
            libc::SYS_openat2,
            libc::SYS_statx,
            libc::SYS_readlinkat,
            libc::SYS_getdents64,
            libc::SYS_fchownat,
        ];
        v.extend(files.map(|n| (nr(n), [0; 6])));
    }
    v.retain(|(n, _)| !on_list(*n) && *n != nr(libc::SYS_clone3) && !UNFILTERED.contains(n));
    // Without a number, far above, of x32, of 32-bit programs (getpid, open, execve, socketcall).
    v.extend(
        [
            u64::from(u32::MAX),
            1 << 31,
            X32 | nr(libc::SYS_getpid),
            X32 | nr(libc::SYS_read),
        ]
        .map(|n| (n, [0; 6])),
    );
    v.extend([20, 5, 11, 102].map(|n| (GATE_32 | n, [0; 6])));
    let (read_exec, rwx) = (5, 7);
    let private = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS) as u64;
    let child = libc::SIGCHLD as u64;
    v.extend([
        (nr(libc::SYS_mmap), [0, 4096, rwx, private, u64::MAX, 0]),
        (
            nr(libc::SYS_mmap),
            [0, 4096, read_exec, private, u64::MAX, 0],
        ),
        (nr(libc::SYS_mprotect), [0x1000, 4096, read_exec, 0, 0, 0]),
        // The upper half of an argument that Linux takes as 32 bits hides nothing.
        (
            nr(libc::SYS_mprotect),
            [0x1000, 4096, 1 << 32 | rwx, 0, 0, 0],
        ),
        (nr(libc::SYS_clone), [child, 0, 0, 0, 0, 0]),
        (
            nr(libc::SYS_clone),
            [child | libc::CLONE_NEWUSER as u64, 0, 0, 0, 0, 0],
        ),
        (
            nr(libc::SYS_clone),
            [
                child | libc::CLONE_VM as u64 | libc::CLONE_VFORK as u64,
                0,
                0,
                0,
                0,
                0,
            ],
        ),
        (nr(libc::SYS_clone), [1 << 32 | child, 0, 0, 0, 0, 0]),
        (nr(libc::SYS_fcntl), [0, libc::F_SETOWN as u64, 1, 0, 0, 0]),
        (nr(libc::SYS_fcntl), [0, F_SETSIG, 9, 0, 0, 0]),
        (
            nr(libc::SYS_fcntl),
            [0, libc::F_SETFL as u64, libc::O_ASYNC as u64, 0, 0, 0],
        ),
        (
            nr(libc::SYS_prctl),
            [libc::PR_SET_DUMPABLE as u64, 1, 0, 0, 0, 0],
        ),
        (
            nr(libc::SYS_prctl),
            [libc::PR_SET_PDEATHSIG as u64, 0, 0, 0, 0, 0],
        ),
        (
            nr(libc::SYS_prctl),
            [libc::PR_SET_PTRACER as u64, u64::MAX, 0, 0, 0, 0],
        ),
        (nr(libc::SYS_prctl), [libc::PR_SET_MM as u64, 0, 0, 0, 0, 0]),
    ]);
    match who {
        Process::Gofer | Process::Broker | Process::Capture => {
            v.push((nr(libc::SYS_tgkill), [2, 2, 9, 0, 0, 0]))
        }
        Process::UserBroker => v.extend([
            (nr(libc::SYS_tgkill), [2, 2, 9, 0, 0, 0]),
            (
                nr(libc::SYS_socketpair),
                [libc::AF_INET as u64, 1, 0, 0, 0, 0],
            ),
        ]),
        Process::Monitor => v.extend([
            (nr(libc::SYS_tgkill), [2, 2, 9, 0, 0, 0]),
            (nr(libc::SYS_kill), [1, 0, 0, 0, 0, 0]),
            (nr(libc::SYS_kill), [u64::MAX, 0, 0, 0, 0, 0]),
            (nr(libc::SYS_pidfd_send_signal), [0, 19, 0, 0, 0, 0]),
            (nr(libc::SYS_ioctl), [2, libc::TIOCSTI, 0, 0, 0, 0]),
        ]),
        Process::SentryWithBroker => {
            let connects = libc::MSG_FASTOPEN as u64;
            v.push((nr(libc::SYS_sendmsg), [3, 0, connects, 0, 0, 0]));
        }
        _ => v.extend([
            (nr(libc::SYS_ioctl), [2, libc::TIOCSTI, 0, 0, 0, 0]),
            (nr(libc::SYS_ioctl), [2, libc::TIOCSCTTY, 0, 0, 0, 0]),
            (nr(libc::SYS_ioctl), [0, libc::FIOASYNC, 0, 0, 0, 0]),
        ]),
    }
    v
}

fn main() {
    let args: Vec<String> = std::env::args().collect();
    if let [_, flag, who, number, rest @ ..] = args.as_slice()
        && flag == "--try"
    {
        let mut a = [0; 6];
        a.iter_mut()
            .zip(rest)
            .for_each(|(a, r)| *a = r.parse().unwrap());
        return as_starter(who, number.parse().unwrap(), a);
    }
    let is_root = path::effective_ids().0 == 0;
    let users: &[Option<u32>] = if is_root {
        &[None, Some(65534)]
    } else {
        &[None]
    };
    let mut tried = 0;
    for user in users {
        let all = match std::env::var("WALLS").as_deref() {
            Ok(w) => w == "all",
            Err(_) => user.is_none(),
        };
        for (name, who) in [
            ("sentry", Process::Sentry),
            ("sentry-net", Process::SentryOnHostNetwork),
            ("sentry-traces", Process::TracingSentry),
            ("sentry-net-traces", Process::TracingSentryOnHostNetwork),
            ("sentry-user", Process::SentryWithBroker),
            ("gofer", Process::Gofer),
            ("broker", Process::Broker),
            ("user-broker", Process::UserBroker),
            ("monitor", Process::Monitor),
            ("capture", Process::Capture),
        ] {
            let started = Instant::now();
            let tries = tries(who, all);
            for (number, a) in &tries {
                let mut c = Command::new(std::env::current_exe().unwrap());
                c.args(["--try", name])
                    .arg(number.to_string())
                    .args(a.map(|a| a.to_string()));
                if let Some(u) = user {
                    c.uid(*u).gid(*u);
                }
                let out = c.output().unwrap();
                let text = String::from_utf8_lossy(&out.stdout);
                let want = format!(
                    "the {} made a host call that is not on its list",
                    if name.starts_with("sentry") {
                        "Sentry"
                    } else {
                        "Gofer"
                    }
                );
                assert!(
                    text.contains(&want),
                    "{name} (user {user:?}), call {number} {a:?}: {text}{}",
                    String::from_utf8_lossy(&out.stderr)
                );
            }
            println!(
                "test {name} (user {user:?}) ... ok, {} calls, {:?}",
                tries.len(),
                started.elapsed()
            );
            tried += tries.len();
        }
    }
    println!(
        "{tried} calls tried, every one ended its process; left out: clone3 (is answered with ENOSYS), \
         uprobe and uretprobe (the host does not filter them)"
    );
}

struct Nobody;

impl Attendant for Nobody {
    fn poll(&mut self, _: &mut Vec<libc::pollfd>) {}
    fn ready(&mut self, _: &Running, _: &[libc::pollfd]) {}
}

fn as_starter(who: &str, number: u64, args: [u64; 6]) {
    let spec = Spec {
        roots: vec![RootSpec {
            path: c"/".into(),
            access: Access::ReadOnly,
            recursive: true,
        }],
        descriptors: vec![],
        network: match who {
            _ if who.starts_with("sentry-net") => Outside::Host,
            "sentry-user" => Outside::User(UserNetwork::default()),
            _ => Outside::Nowhere,
        },
        traces: who.ends_with("-traces"),
    };
    let tries_sentry = who.starts_with("sentry");
    let tries_gofer = who == "gofer";
    // Those that let nobody in.
    let list = match who {
        "broker" => Some(Process::Broker),
        "user-broker" => Some(Process::UserBroker),
        "monitor" => Some(Process::Monitor),
        "capture" => Some(Process::Capture),
        _ => None,
    };
    let attempt = move || -> ! {
        if number & GATE_32 != 0 {
            probe::attempt_32_bit(number as u32)
        }
        probe::attempt(number, args)
    };
    let gofer = move |g: GoferSide| -> Result<Infallible, Error> {
        if let Some(whose) = list {
            // Its list, in the Gofer's place.
            let list = bpf::allow_list(whose);
            process::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0).unwrap();
            bpf::install(&list, bpf::AllThreads::Yes).unwrap();
            attempt()
        }
        (g.confine)().unwrap();
        if tries_gofer {
            attempt()
        }
        // Until the Sentry hangs up.
        let _ = sock::recv(g.channel.raw(), &mut [0u8; 8]);
        process::exit_group(0)
    };
    let sentry = move |s: SentrySide| -> Result<Infallible, Error> {
        (s.seal)().unwrap();
        if tries_sentry {
            attempt()
        }
        loop {
            std::thread::sleep(Duration::from_secs(100));
        }
    };
    let kernel = Kernel::Own {
        main: Box::new(sentry),
        away: None,
    };
    let running = sandbox::start::<Error>(&spec, Box::new(gofer), kernel).unwrap();
    match running.wait(&mut Nobody) {
        Ending::Broken { text, .. } => println!("{text}"),
        Ending::Program { status, .. } => println!("program {status}"),
    }
}
