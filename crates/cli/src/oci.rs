//! The OCI runtime's commands, with runc's words: what drives runc drives these.

mod documents;
mod map;
mod memory;
mod network;
mod show;
pub mod values;

use documents::{Whose, example, features};
use oci::memory::size;
use show::{events, list, list_ids, pretty, print, ps, seconds};
use values::{signal, user};

use crate::args::{Lanes, Platform};
use crate::described_late::DescribedLate;
use crate::stdio::RawMode;
use clap::{Args, Subcommand, ValueEnum};
use hostcall::{RawFd, term};
use oci::spec::{self, Process};
use oci::start::KernelOptions;
use oci::{After, Create, Error, Exec, Force, Format, Log, Overlay, Runtime, Scope};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// What `--version` prints behind the name: those that drive runc read it line by line. The last
/// word is [`spec::VERSION`].
pub const VERSION: &str = concat!("version ", env!("CARGO_PKG_VERSION"), "\nspec: 1.2.0");

/// What a failed command exits with.
const FAILED: u8 = 1;

/// The network that a container sees.
#[derive(Clone, Copy, Default, PartialEq, Eq, ValueEnum, Debug)]
pub enum Net {
    /// A loopback of its own
    None,
    /// The devices of its network namespace, which the sandbox takes over when it starts
    #[default]
    Sandbox,
    /// The host's sockets, passed through: a weaker wall
    Host,
}

impl From<Net> for oci::Net {
    fn from(n: Net) -> oci::Net {
        match n {
            Net::None => oci::Net::None,
            Net::Sandbox => oci::Net::Sandbox,
            Net::Host => oci::Net::Host,
        }
    }
}

/// Options of all container commands; they come before the command's name.
#[derive(Args, Debug)]
#[command(next_help_heading = "Options for containers (before the command)")]
pub struct RuntimeArgs {
    /// Where the state of containers is kept [default: /run/cloister, or below XDG_RUNTIME_DIR]
    #[arg(long, value_name = "DIR")]
    root: Option<PathBuf>,
    /// Writes messages to this file, too
    #[arg(long, value_name = "FILE")]
    log: Option<PathBuf>,
    /// The form of the messages in the file
    #[arg(long, value_enum, default_value_t)]
    log_format: LogFormat,
    /// Writes more messages
    #[arg(long)]
    debug: bool,
    /// cgroupsPath is a systemd slice, prefix and name
    #[arg(long)]
    systemd_cgroup: bool,
    /// Taken for runc's sake: whether user namespaces are needed is found out
    #[arg(long, value_name = "auto|true|false", hide = true)]
    rootless: Option<String>,
    /// How the containers' code is run
    #[arg(long, value_enum, default_value_t)]
    platform: Platform,
    /// The faster ways that system calls may take (notify only; none with --strace)
    #[arg(long, value_enum, default_value_t)]
    lanes: Lanes,
    /// Where writes to a container's root go: none is the root directory itself, which container
    /// managers keep; root:memory, root:self (a file beside it) and root:dir=/PATH (one there) are
    /// gone with the container
    #[arg(long, value_name = "WHERE", default_value = "none", value_parser = overlay)]
    overlay: Overlay,
    /// What annotations of a bundle may choose: overlay, overlay-dir (directories of the host,
    /// too), pod (the sandbox that is joined), network (that less leaves), pcap (a file of the
    /// host for its packets), with commas between them; or none
    #[arg(long, value_name = "WORDS", default_value = "overlay,pod,network", value_parser = annotated)]
    annotations: oci::Annotated,
    /// The network of containers: none is a loopback of their own; sandbox takes over the devices
    /// of the network namespace that they are in; host passes its sockets through, a weaker wall
    #[arg(long, alias = "network", value_enum, default_value_t)]
    net: Net,
    /// With --net=sandbox: what containers may reach, and nothing else (see cloister do --help for
    /// rules); annotations dev.cloister.network.allow and dev.cloister.network.deny say it of one
    /// container
    #[arg(long, value_name = "RULE", value_delimiter = ',')]
    allow: Vec<egress::Rule>,
    /// With --net=sandbox: what they may not reach; goes before --allow
    #[arg(long, value_name = "RULE", value_delimiter = ',')]
    deny: Vec<egress::Rule>,
    /// With --net=sandbox: a file with more rules, as JSON: {"allow": ["pypi.org:443"], "deny":
    /// ["*:25"], "resolvers": ["192.0.2.53"]}
    #[arg(long, value_name = "FILE")]
    policy: Option<PathBuf>,
    /// With --net=sandbox: where refusals go, a line of JSON each
    #[arg(long, value_name = "FILE")]
    net_log: Option<PathBuf>,
    /// With --net=sandbox: writes the packets of a container's devices to this file, as pcapng; %i
    /// is the container's name. The annotation dev.cloister.network.pcap says it of one, with
    /// --annotations=pcap
    #[arg(long, value_name = "FILE")]
    pcap: Option<PathBuf>,
    /// Swap of each container's own that has a limit of memory: what was not used lately is kept
    /// compressed, in memory that the limit does not count. The annotation
    /// dev.cloister.memory.swap says less of one
    #[arg(long, value_name = "SIZE", value_parser = oci::memory::amount)]
    swap: Option<u64>,
    /// Keeps swap in a file without a name in this directory, encrypted by a key that ends with the
    /// sandbox, instead of in memory
    #[arg(long, value_name = "DIR", requires = "swap")]
    swap_dir: Option<PathBuf>,
    /// How it is chosen what is swapped out: reservation, lru, clock, priority or working-set (see
    /// cloister do --help). The annotation dev.cloister.memory.replacement says it of one container
    #[arg(long, value_name = "POLICY")]
    replacement: Option<config::Replacement>,
    /// The most memory that each process of a container may have. The annotation
    /// dev.cloister.memory.process says less of one
    #[arg(long, value_name = "SIZE", value_parser = oci::memory::amount)]
    process_memory: Option<u64>,
    /// Writes system calls to the log: all, or names and classes like %file
    #[arg(long, value_name = "FILTER", num_args = 0..=1, require_equals = true, default_missing_value = "",
          value_parser = crate::args::strace_filter)]
    strace: Option<String>,
    /// For testing: drops a random mapping at every Nth memory operation; swap refuses every Nth page
    #[arg(long, value_name = "N", default_value_t = 0, hide = true)]
    debug_drop: u32,
}

fn overlay(s: &str) -> Result<Overlay, String> {
    s.parse()
}

fn annotated(s: &str) -> Result<oci::Annotated, String> {
    s.parse()
}

#[derive(Clone, Copy, Default, ValueEnum, Debug)]
enum LogFormat {
    #[default]
    Text,
    Json,
}

#[derive(Subcommand, Debug)]
pub enum Command {
    /// Creates a container from a bundle; its program waits for `start`
    Create(DescribedLate<CreateArgs>),
    /// Runs the program of a created container
    Start { id: String },
    /// Creates a container, runs its program, and deletes it afterwards
    Run(DescribedLate<RunArgs>),
    /// Runs one more program in a container
    Exec(DescribedLate<Box<ExecArgs>>),
    /// Tells a container's state as JSON
    State { id: String },
    /// Sends a signal to a container's first program
    Kill {
        /// To every program
        #[arg(long, short)]
        all: bool,
        id: String,
        /// A name or a number
        #[arg(default_value = "SIGTERM", value_parser = signal)]
        signal: i32,
    },
    /// Deletes a stopped container
    Delete {
        /// Kills it first; no complaint if there is none
        #[arg(long, short)]
        force: bool,
        id: String,
    },
    /// Lists containers
    List {
        /// table or json
        #[arg(long, short, value_name = "FORMAT", default_value = "table")]
        format: String,
        /// Only their IDs
        #[arg(long, short)]
        quiet: bool,
    },
    /// Lists what runs in a container
    Ps {
        /// table, json (the host's processes, as runc has it) or json-inside
        #[arg(long, short, value_name = "FORMAT", default_value = "table")]
        format: String,
        id: String,
        /// Taken for runc's sake
        #[arg(hide = true, trailing_var_arg = true, allow_hyphen_values = true)]
        options: Vec<String>,
    },
    /// Holds all programs of a container
    Pause { id: String },
    /// Lets them go on
    Resume { id: String },
    /// Tells what a container uses, as JSON
    Events {
        /// Once, and then leave
        #[arg(long)]
        stats: bool,
        /// How often
        #[arg(long, value_name = "SECONDS", default_value = "5s")]
        interval: String,
        id: String,
    },
    /// Shows and changes what a container's processes have of its memory
    #[command(subcommand)]
    Memory(DescribedLate<memory::MemoryCommand>),
    /// Shows what a container's network is and does
    #[command(subcommand)]
    Network(DescribedLate<network::NetworkCommand>),
    /// Sets limits of a running container
    Update(DescribedLate<Box<UpdateArgs>>),
    /// Waits for a container's end, and exits as its program did
    Wait { id: String },
    /// Writes what a container changed in its root, as a layer of an image
    ///
    /// The archive has whiteouts for what was removed, so that it can be laid over the image
    /// that the container began with. Pause the container first if it must not change meanwhile.
    Tar {
        /// Where to, instead of standard output
        #[arg(long, short, value_name = "FILE")]
        file: Option<PathBuf>,
        id: String,
    },
    /// Writes a config.json to begin with
    Spec {
        /// Where
        #[arg(long, short, value_name = "DIR", default_value = ".")]
        bundle: PathBuf,
        /// For an ordinary user
        #[arg(long)]
        rootless: bool,
    },
    /// Tells what this runtime honours, as the specification's features document
    Features,
}

#[derive(Args, Debug)]
pub struct CreateArgs {
    /// The bundle: a directory with config.json
    #[arg(long, short, value_name = "DIR", default_value = ".")]
    bundle: PathBuf,
    /// Writes the pid of the container's process on the host
    #[arg(long, value_name = "FILE")]
    pid_file: Option<PathBuf>,
    /// A unix socket that gets the master of the program's terminal
    #[arg(long, value_name = "SOCKET")]
    console_socket: Option<PathBuf>,
    /// Passes descriptors 3 and up, this many
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=25))]
    preserve_fds: u32,
    #[arg(long, hide = true)]
    no_pivot: bool,
    #[arg(long, hide = true)]
    no_new_keyring: bool,
    #[arg(long, hide = true)]
    no_subreaper: bool,
    id: String,
}

#[derive(Args, Debug)]
pub struct RunArgs {
    #[command(flatten)]
    create: CreateArgs,
    /// Leaves once the program runs, and keeps the container
    #[arg(long, short)]
    detach: bool,
    /// Keeps the container when the program has ended
    #[arg(long)]
    keep: bool,
}

impl CreateArgs {
    fn plain(self) -> Create {
        Create {
            id: self.id,
            bundle: self.bundle,
            pid_file: self.pid_file,
            console_socket: self.console_socket,
            preserve_fds: self.preserve_fds,
            ..Create::default()
        }
    }
}

#[derive(Args, Debug)]
pub struct ExecArgs {
    /// A file with the program as the specification's process has it
    #[arg(long, short, value_name = "FILE")]
    process: Option<PathBuf>,
    /// Gives it a terminal
    #[arg(long, short)]
    tty: bool,
    /// Its user
    #[arg(long, short, value_name = "UID[:GID]", value_parser = user)]
    user: Option<(u32, Option<u32>)>,
    /// More groups
    #[arg(long, short = 'g', value_name = "GID")]
    additional_gids: Vec<u32>,
    /// Adds a capability
    #[arg(long, short, value_name = "CAP")]
    cap: Vec<String>,
    /// Where it starts
    #[arg(long, value_name = "DIR")]
    cwd: Option<String>,
    /// Sets an environment variable
    #[arg(long, short, value_name = "NAME=VALUE")]
    env: Vec<String>,
    /// Leaves once it runs
    #[arg(long, short)]
    detach: bool,
    /// Writes the pid of its process on the host
    #[arg(long, value_name = "FILE")]
    pid_file: Option<PathBuf>,
    /// A unix socket that gets the master of its terminal
    #[arg(long, value_name = "SOCKET")]
    console_socket: Option<PathBuf>,
    /// It and what it runs gain no privileges
    #[arg(long)]
    no_new_privs: bool,
    /// Passes descriptors 3 and up, this many
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=25))]
    preserve_fds: u32,
    #[arg(long, hide = true, value_name = "LABEL")]
    apparmor: Option<String>,
    #[arg(long, hide = true, value_name = "LABEL")]
    process_label: Option<String>,
    #[arg(long, hide = true)]
    ignore_paused: bool,
    id: String,
    /// The program and its arguments
    #[arg(
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "PROGRAM"
    )]
    command: Vec<String>,
}

#[derive(Args, Debug)]
pub struct UpdateArgs {
    /// A file with the specification's resources; - for standard input
    #[arg(long, short, value_name = "FILE")]
    resources: Option<PathBuf>,
    /// Bytes, or as in 50M; -1 for no limit
    #[arg(long, value_name = "BYTES", allow_hyphen_values = true, value_parser = size)]
    memory: Option<i64>,
    /// Bytes
    #[arg(long, value_name = "BYTES", allow_hyphen_values = true, value_parser = size)]
    memory_reservation: Option<i64>,
    /// Memory and swap together, bytes
    #[arg(long, value_name = "BYTES", allow_hyphen_values = true, value_parser = size)]
    memory_swap: Option<i64>,
    /// Microseconds
    #[arg(long, value_name = "US")]
    cpu_period: Option<u64>,
    /// Microseconds in each period
    #[arg(long, value_name = "US", allow_hyphen_values = true)]
    cpu_quota: Option<i64>,
    /// A weight beside other containers
    #[arg(long, value_name = "N", visible_alias = "cpu-shares")]
    cpu_share: Option<u64>,
    /// CPUs, as in 0-2,4
    #[arg(long, value_name = "LIST")]
    cpuset_cpus: Option<String>,
    /// Memory nodes
    #[arg(long, value_name = "LIST")]
    cpuset_mems: Option<String>,
    /// A weight of input and output
    #[arg(long, value_name = "N")]
    blkio_weight: Option<u16>,
    /// Tasks
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pids_limit: Option<i64>,
    id: String,
}

fn update(rt: &Runtime, a: UpdateArgs) -> oci::Result<()> {
    let mut r: spec::Resources = match &a.resources {
        None => spec::Resources::default(),
        Some(p) => {
            let stdin = PathBuf::from("/dev/stdin");
            let p = if p.as_os_str() == "-" { &stdin } else { p };
            let (r, unknown) = spec::read(p)?;
            for w in unknown {
                rt.log.warning(&format!("{w} is not known to this version"));
            }
            r
        }
    };
    let m = r.memory.get_or_insert_default();
    m.limit = a.memory.or(m.limit);
    m.reservation = a.memory_reservation.or(m.reservation);
    m.swap = a.memory_swap.or(m.swap);
    let c = r.cpu.get_or_insert_default();
    c.period = a.cpu_period.or(c.period);
    c.quota = a.cpu_quota.or(c.quota);
    c.shares = a.cpu_share.or(c.shares);
    c.cpus = a.cpuset_cpus.or(c.cpus.take());
    c.mems = a.cpuset_mems.or(c.mems.take());
    if a.blkio_weight.is_some() {
        r.block_io.get_or_insert_default().weight = a.blkio_weight;
    }
    if a.pids_limit.is_some() {
        r.pids.get_or_insert_default().limit = a.pids_limit;
    }
    for w in oci::update(rt, &a.id, &r)? {
        rt.log.warning(&w);
    }
    Ok(())
}

/// Runs a command.
pub fn run(args: RuntimeArgs, command: Command) -> ExitCode {
    let absolute = |p: PathBuf| std::path::absolute(&p).unwrap_or(p);
    let rules = crate::network::rules(&args.allow, &args.deny, args.policy.as_deref());
    let rt = Runtime {
        memory: oci::memory::MemoryOptions {
            swap: args.swap,
            swap_dir: args.swap_dir.map(absolute),
            replacement: args.replacement,
            process: args.process_memory,
        },
        leaving: oci::Leaving {
            rules: rules.as_ref().cloned().unwrap_or_default(),
            log: args.net_log.map(absolute),
            pcap: args.pcap.map(absolute),
        },
        root: args.root.unwrap_or_else(oci::default_root),
        log: Log {
            path: args.log,
            format: match args.log_format {
                LogFormat::Text => Format::Text,
                LogFormat::Json => Format::Json,
            },
            debug: args.debug,
            open: None,
        },
        systemd_cgroup: args.systemd_cgroup,
        kernel: KernelOptions {
            platform: args.platform.into(),
            lanes: args.lanes.into(),
            strace: args.strace.as_deref().map(crate::args::strace_words),
            verbosity: u8::from(args.debug),
            debug_drop: args.debug_drop,
        },
        overlay: args.overlay,
        annotated: args.annotations,
        net: args.net.into(),
    };
    match rules.and_then(|_| execute(&rt, command)) {
        Ok(code) => ExitCode::from(code),
        Err(e) => {
            rt.log.error(&e.to_string());
            ExitCode::from(e.interrupted_status().unwrap_or(FAILED))
        }
    }
}

/// What is to be passed on is there from the beginning: what this process opens may have the same
/// numbers. Whatever else the caller left open is closed: the monitor would hold it as long as the
/// container lives.
fn take_preserved(count: u32) -> oci::Result<()> {
    check_preserved(count)?;
    close_rest(count)
}

fn check_preserved(count: u32) -> oci::Result<()> {
    for fd in 3..3 + count as RawFd {
        hostcall::file::fstat(fd).map_err(|e| {
            Error::new(format!(
                "unable to stat preserved-fd {} (of {count}): descriptor {fd}: {e}",
                fd - 2
            ))
        })?;
    }
    Ok(())
}

fn close_rest(count: u32) -> oci::Result<()> {
    hostcall::process::close_from(3 + count as RawFd)
        .map_err(|e| Error::new(format!("could not close what was inherited: {e}")))
}

fn execute(rt: &Runtime, command: Command) -> oci::Result<u8> {
    match command {
        Command::Create(DescribedLate(c)) => {
            take_preserved(c.preserve_fds)?;
            let created = oci::create(rt, &c.plain())?;
            created.warnings.iter().for_each(|w| rt.log.warning(w));
        }
        Command::Start { id } => oci::start(rt, &id)?,
        Command::Run(DescribedLate(r)) => {
            take_preserved(r.create.preserve_fds)?;
            return run_container(rt, r.create.plain(), r.detach, r.keep);
        }
        Command::Exec(DescribedLate(e)) => {
            // As runc: not a status that a program has.
            let ended = check_preserved(e.preserve_fds).and_then(|()| exec(rt, *e));
            return ended.or_else(|e| {
                rt.log.error(&e.to_string());
                Ok(e.interrupted_status().unwrap_or(255))
            });
        }
        Command::State { id } => print(&pretty(&oci::state(rt, &id)?)),
        Command::Kill { all, id, signal } => {
            let scope = if all { Scope::All } else { Scope::First };
            oci::kill(rt, &id, signal, scope)?;
        }
        Command::Delete { force, id } => oci::delete(rt, &id, force.into())?,
        Command::List { quiet: true, .. } => list_ids(rt),
        Command::List { format, .. } => list(rt, &format)?,
        Command::Ps {
            format,
            id,
            options: _,
        } => ps(rt, &format, &id)?,
        Command::Pause { id } => oci::pause(rt, &id)?,
        Command::Resume { id } => oci::resume(rt, &id)?,
        Command::Events {
            stats,
            interval,
            id,
        } => {
            let every = seconds(&interval)?;
            events(rt, &id, (!stats).then_some(every))?;
        }
        Command::Memory(c) => memory::run(rt, &c.0)?,
        Command::Network(c) => network::run(rt, &c.0)?,
        Command::Update(a) => update(rt, *a.0)?,
        Command::Wait { id } => return oci::wait(rt, &id),
        Command::Spec { bundle, rootless } => {
            let path = bundle.join("config.json");
            if path.exists() {
                return Err(Error::new(format!("{} is there already", path.display())));
            }
            let whose = if rootless { Whose::User } else { Whose::Root };
            let text = pretty(&example(whose));
            std::fs::write(&path, text + "\n")
                .map_err(|e| Error::new(format!("could not write {}: {e}", path.display())))?;
        }
        Command::Tar { file, id } => tar(rt, &id, file.as_deref())?,
        Command::Features => print(&pretty(&features())),
    }
    Ok(0)
}

/// The caller's terminal, if the program is to have it: in raw mode as long as that runs. (Until
/// then the keys that interrupt are for this process.)
struct OwnTerminal {
    wanted: bool,
    raw: Option<RawMode>,
}

impl OwnTerminal {
    fn new(wanted: bool) -> oci::Result<OwnTerminal> {
        if wanted && term::settings(0).is_err() {
            return Err(Error::new(
                "the program wants a terminal, and standard input is none: give one with --console-socket",
            ));
        }
        Ok(OwnTerminal { wanted, raw: None })
    }

    /// The program is about to run.
    fn begins(&mut self) -> oci::Result<()> {
        if self.wanted {
            let raw = RawMode::enter();
            self.raw =
                Some(raw.map_err(|e| Error::new(format!("could not set the terminal: {e}")))?);
        }
        Ok(())
    }
}

fn tar(rt: &Runtime, id: &str, file: Option<&Path>) -> oci::Result<()> {
    let left_out = if let Some(path) = file {
        let cannot =
            |e: std::io::Error| Error::new(format!("could not write {}: {e}", path.display()));
        let mut f = std::fs::File::create_new(path).map_err(cannot)?;
        oci::tar(rt, id, &mut f).inspect_err(|_| {
            let _ = std::fs::remove_file(path);
        })?
    } else if term::settings(1).is_ok() {
        return Err(Error::new(
            "an archive is nothing for a terminal: use --file, or a pipe",
        ));
    } else {
        oci::tar(rt, id, &mut std::io::stdout())?
    };
    if left_out > 0 {
        rt.log.warning(&format!(
            "{left_out} changes are not in the archive: it has no words for names that begin with .wh., for what is \
             below them, and for paths of 4096 bytes and more"
        ));
    }
    Ok(())
}

fn run_container(rt: &Runtime, c: Create, detach: bool, keep: bool) -> oci::Result<u8> {
    if detach {
        let created = oci::create(rt, &c)?;
        created.warnings.iter().for_each(|w| rt.log.warning(w));
        if let Err(e) = oci::start(rt, &c.id) {
            let _ = oci::delete(rt, &c.id, Force::Yes);
            return Err(e);
        }
        return Ok(0);
    }
    let config = c.bundle.join("config.json");
    let (spec, _): (spec::Spec, _) = spec::read(&config)?;
    let wants = spec.process.is_some_and(|p| p.terminal) && c.console_socket.is_none();
    let mut terminal = OwnTerminal::new(wants)?;
    let size = || wants.then(|| term::window(0).ok()).flatten();
    let after = if keep { After::Keep } else { After::Delete };
    oci::run(rt, &c, after, || terminal.begins(), &size)
}

fn exec(rt: &Runtime, e: ExecArgs) -> oci::Result<u8> {
    let mut process: Process = match &e.process {
        Some(file) => {
            let (p, unknown) = spec::read(file)?;
            for w in unknown {
                rt.log
                    .warning(&format!("process.{w} is not known to this version"));
            }
            p
        }
        None => {
            let base = oci::base(rt, &e.id)?;
            if e.command.is_empty() {
                return Err(Error::new("name a program to run"));
            }
            Process {
                args: e.command,
                terminal: e.tty,
                console_size: None,
                ..base
            }
        }
    };
    // Its file may have been one of them.
    close_rest(e.preserve_fds)?;
    process.terminal |= e.tty;
    process.env.extend(e.env);
    process.no_new_privileges |= e.no_new_privs;
    process.user.additional_gids.extend(e.additional_gids);
    if let Some(cwd) = e.cwd {
        process.cwd = cwd;
    }
    if let Some((uid, gid)) = e.user {
        process.user.uid = uid;
        process.user.gid = gid.unwrap_or(process.user.gid);
    }
    if !e.cap.is_empty() {
        let caps = process.capabilities.get_or_insert_default();
        for c in e.cap {
            for set in [&mut caps.bounding, &mut caps.effective, &mut caps.permitted] {
                set.push(c.clone());
            }
        }
    }
    let wants = process.terminal && e.console_socket.is_none() && !e.detach;
    let mut terminal = OwnTerminal::new(wants)?;
    oci::exec(
        rt,
        &Exec {
            id: e.id,
            process,
            detach: e.detach,
            pid_file: e.pid_file,
            console_socket: e.console_socket,
            preserve_fds: e.preserve_fds,
            ..Exec::default()
        },
        || terminal.begins(),
    )
}
