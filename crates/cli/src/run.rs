//! `cloister do`.

use crate::args::{self, Do, real_path};
use crate::complain;
use crate::signals;
use crate::stdio::{Errors, RawMode, Streams};
use config::{
    Config, ContainerSpec, MountKind, MountSpec, Net, PlatformKind, ProcessSpec, RootFs, Stdio,
    TraceConfig,
};
use hostcall::{HostFd, path, start as host, term};
use sandbox::{Access, EXIT_NOT_FOUND, EXIT_NOT_STARTED, Ending, RootSpec, SentrySide, Spec};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::ffi::OsStringExt;
use std::process::ExitCode;
use std::time::Duration;

/// How long the first program's last output is waited for.
const DRAIN: Duration = Duration::from_secs(1);

pub fn run(args: Do) -> ExitCode {
    match try_run(args) {
        Ok(code) => code,
        Err(text) => {
            complain(&text);
            ExitCode::from(EXIT_NOT_STARTED)
        }
    }
}

/// What a person may have meant who named a program that is not there.
fn hint(args: &Do) -> Option<String> {
    let program = args.command.first()?.to_str()?;
    if args.verbose > 0 && program.contains(":/") {
        return Some(format!(
            "-v says more; to show a directory, write --volume {program}"
        ));
    }
    (program.starts_with("/tmp/") && std::path::Path::new(program).exists()).then(|| {
        format!(
            "the sandbox has a /tmp of its own; to show yours, write --volume {program}:{program}"
        )
    })
}

fn try_run(args: Do) -> Result<ExitCode, String> {
    let hint = hint(&args);
    let init = init_process(&args)?;
    let (spec_roots, binds) = binds(&args, &init.cwd)?;
    let streams = Streams::of_caller();
    let mut descriptors = match streams {
        Streams::Inherited => vec![0, 1, 2],
        Streams::Terminal {
            errors: Errors::ToTerminal,
        } => vec![0],
        Streams::Terminal {
            errors: Errors::Elsewhere,
        } => vec![0, 2],
    };
    let log = args.log.as_deref().map(open_log).transpose()?;
    descriptors.extend(log.as_ref().map(AsRawFd::as_raw_fd));
    let window = term::window(0).unwrap_or((24, 80));
    let signals = signals::open().map_err(|e| format!("could not watch signals: {e}"))?;
    // From here on the terminal is put back on every way out.
    let terminal = match streams {
        Streams::Terminal { .. } => {
            Some(RawMode::enter().map_err(|e| format!("could not set the terminal: {e}"))?)
        }
        Streams::Inherited => None,
    };
    let spec = Spec {
        roots: spec_roots,
        descriptors,
        host_network: matches!(args.net, args::Net::Host),
        traces: matches!(args.platform, args::Platform::Ptrace),
    };
    let interfaces = if spec.host_network {
        sandbox::interfaces()
    } else {
        Vec::new()
    };
    let logs = log.is_some();
    let running = sandbox::start(None, &spec, ::oci::run_gofer, move |side| {
        let config = config(args, init, binds, interfaces, streams, window, logs, side);
        sentry::boot::run(config)
    })
    .map_err(|e| e.to_string())?;
    drop(log);
    let ending = running.wait(&mut signals::PassOn {
        signals: &signals,
        terminal: terminal.as_ref(),
    });
    drop(terminal);
    Ok(match ending {
        Ending::Program { status, note } => {
            if let Some(text) = note {
                complain(&text);
            }
            if libc::WIFSIGNALED(status) {
                let signal = libc::WTERMSIG(status);
                signals::die_by(signal);
                ExitCode::from((128 + signal) as u8)
            } else {
                ExitCode::from(libc::WEXITSTATUS(status) as u8)
            }
        }
        Ending::Broken { text, exit } => {
            match hint {
                Some(h) if exit == EXIT_NOT_FOUND => complain(&format!("{text} ({h})")),
                _ => complain(&text),
            }
            ExitCode::from(exit)
        }
    })
}

/// What the program gets: the caller's, but for what the command line says.
fn init_process(args: &Do) -> Result<ProcessSpec, String> {
    let mut envp: Vec<Vec<u8>> = std::env::vars_os()
        .map(|(k, v)| [k.as_bytes(), b"=", v.as_bytes()].concat())
        .collect();
    for (name, value) in &args.env {
        let start = format!("{name}=").into_bytes();
        envp.retain(|e| !e.starts_with(&start));
        envp.push([start.as_slice(), value.as_bytes()].concat());
    }
    let cwd = match &args.cwd {
        Some(d) if d.is_absolute() => d.clone(),
        Some(d) => {
            return Err(format!(
                "--cwd {} is not an absolute path: write where the program shall start",
                d.display()
            ));
        }
        None => std::env::current_dir()
            .map_err(|e| format!("cannot find the current directory ({e}): name one with --cwd"))?,
    };
    let (uid, gid, groups) = match args.user {
        Some((u, g)) => (u, g, Vec::new()),
        None => {
            let (u, g) = path::effective_ids();
            let groups = host::groups().map_err(|e| format!("cannot read your groups: {e}"))?;
            (u, g, groups)
        }
    };
    let umask = path::umask(0o22);
    path::umask(umask);
    // RLIM_NLIMITS
    let rlimits = (0..16)
        .filter_map(|r| host::rlimit(r).ok().map(|(soft, hard)| (r, soft, hard)))
        .collect();
    let blocked =
        host::blocked_signals().map_err(|e| format!("cannot read your blocked signals: {e}"))?;
    Ok(ProcessSpec {
        ignored: host::inherited_ignored_signals().bits(),
        blocked: blocked.bits(),
        argv: args.command.iter().map(|a| a.clone().into_vec()).collect(),
        envp,
        cwd: cwd.into_os_string().into_vec(),
        uid,
        gid,
        groups,
        rlimits,
        umask,
        ..ProcessSpec::default()
    })
}

/// What the program's root has beside the host's files.
fn own_mounts() -> Vec<MountSpec> {
    const QUIET: u32 = (libc::MS_NOSUID | libc::MS_NODEV) as u32;
    const NOEXEC: u32 = libc::MS_NOEXEC as u32;
    let fs = |target: &str, kind: &str, data: &str, flags: u32| MountSpec {
        target: target.into(),
        kind: MountKind::Fs(kind.into()),
        source: kind.into(),
        flags,
        data: data.into(),
        // A host without the directory simply has no such mount.
        optional: true,
    };
    vec![
        fs("/proc", "proc", "", QUIET | NOEXEC),
        fs("/sys", "sysfs", "", QUIET | NOEXEC | libc::MS_RDONLY as u32),
        MountSpec {
            kind: MountKind::Devices,
            ..fs("/dev", "devtmpfs", "mode=755", libc::MS_NOSUID as u32)
        },
        fs(
            "/dev/pts",
            "devpts",
            "gid=5,mode=620,ptmxmode=666",
            libc::MS_NOSUID as u32 | NOEXEC,
        ),
        fs("/dev/shm", "tmpfs", "mode=1777", QUIET),
        fs("/dev/mqueue", "mqueue", "mode=1777", QUIET),
        fs("/tmp", "tmpfs", "mode=1777", QUIET),
    ]
}

/// The Gofer's roots, of which the first is the host's root directory, and where the others appear.
fn binds(args: &Do, cwd: &[u8]) -> Result<(Vec<RootSpec>, Vec<MountSpec>), String> {
    let mut roots = vec![RootSpec {
        path: c"/".into(),
        access: Access::ReadOnly,
        recursive: true,
    }];
    let mut binds = own_mounts();
    // The sandbox has a /tmp of its own: who works there still sees where they are.
    let here = std::path::Path::new(std::ffi::OsStr::from_bytes(cwd));
    if here.starts_with("/tmp") && here.is_dir() {
        let path = real_path(here)?;
        if let Ok(target) = path.to_str().map(str::to_owned) {
            binds.push(MountSpec {
                target,
                kind: MountKind::Layered { root: 1 },
                source: "overlay".into(),
                flags: (libc::MS_NOSUID | libc::MS_NODEV) as u32,
                data: String::new(),
                optional: false,
            });
            roots.push(RootSpec {
                path,
                access: Access::ReadOnly,
                recursive: true,
            });
        }
    }
    let mut add = |source: &std::path::Path, target: Option<&str>, writable: bool| {
        let path = real_path(source)?;
        let target = match target {
            Some(t) => t.to_owned(),
            None => path
                .to_str()
                .map_err(|_| format!("{} is not UTF-8", source.display()))?
                .to_owned(),
        };
        if let Some(fs) = sandbox::kernel_fs(&path).filter(|_| writable) {
            return Err(format!(
                "{} is the host's {fs}, which a sandbox can only read: name it with --volume, without :rw",
                source.display()
            ));
        }
        let access = if writable {
            Access::Writable
        } else {
            Access::ReadOnly
        };
        binds.push(MountSpec {
            target,
            kind: MountKind::Host {
                root: roots.len() as u32,
                exclusive: false,
            },
            source: "host".into(),
            flags: if writable { 0 } else { libc::MS_RDONLY as u32 },
            data: String::new(),
            optional: false,
        });
        roots.push(RootSpec {
            path,
            access,
            recursive: true,
        });
        Ok::<(), String>(())
    };
    for w in &args.writable {
        add(w, None, true)?;
    }
    for v in &args.volume {
        add(&v.source, Some(&v.target), v.writable)?;
    }
    Ok((roots, binds))
}

fn open_log(path: &std::path::Path) -> Result<std::fs::File, String> {
    std::fs::OpenOptions::new()
        .create(true)
        .append(true)
        .open(path)
        .map_err(|e| format!("could not open the log {}: {e}", path.display()))
}

/// What the Sentry gets, in its own process.
fn config(
    args: Do,
    init: ProcessSpec,
    mounts: Vec<MountSpec>,
    interfaces: Vec<sandbox::Interface>,
    streams: Streams,
    (rows, cols): (u16, u16),
    logs: bool,
    side: SentrySide,
) -> Config {
    let mut given = side.descriptors.into_iter();
    let stdio = match streams {
        Streams::Inherited => Stdio::Inherited([given.next(), given.next(), given.next()]),
        Streams::Terminal { errors } => Stdio::Terminal {
            host: given.next().expect("it was asked for"),
            rows,
            cols,
            stderr: match errors {
                Errors::ToTerminal => None,
                Errors::Elsewhere => given.next(),
            },
        },
    };
    let log_fd = logs.then(|| given.next().map(HostFd::into_raw)).flatten();
    Config {
        platform: match args.platform {
            args::Platform::Notify => PlatformKind::Notify,
            args::Platform::Ptrace => PlatformKind::Ptrace,
        },
        lanes: args.lanes.into(),
        gofer: side.gofer,
        container: ContainerSpec {
            hostname: args.hostname,
            root: RootFs::default(),
            mounts,
            ..ContainerSpec::default()
        },
        layer: None,
        net: match side.broker {
            Some(broker) => Net::Host { broker, interfaces },
            None => Net::None,
        },
        stdio,
        control: side.control,
        preserved: Vec::new(),
        init,
        held: false,
        trace: TraceConfig {
            strace: args.strace.is_some(),
            filter: args
                .strace
                .iter()
                .flat_map(|f| f.split(','))
                .filter(|f| !f.is_empty())
                .map(str::to_owned)
                .collect(),
            log_fd,
            verbosity: args.verbose,
        },
        random_drop: args.debug_drop,
        drain: DRAIN,
        seal: side.seal,
    }
}
