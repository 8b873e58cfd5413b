//! The command line.

use crate::described_late::DescribedLate;
use clap::{ArgAction, Args, Parser, Subcommand, ValueEnum};
use config::PlatformKind;
use sandbox::Access;
use std::ffi::{CString, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Runs programs that you do not trust behind a Linux kernel of their own, in user space.
#[derive(Parser, Debug)]
#[command(
    name = "cloister",
    version = crate::oci::VERSION,
    arg_required_else_help = true,
    args_override_self = true
)]
#[command(after_help = "\
Examples:
  cloister do -- python3 -c 'import os; print(os.uname())'
  cloister do -- bash                          a shell; what it writes is gone afterwards
  cloister do --writable . -- make             may change the current directory, and nothing else
  cloister do --strace=%file -- cat /etc/passwd
  cloister spec && cloister run hello          an OCI bundle in this directory
  dockerd --add-runtime cloister=/usr/local/bin/cloister

`cloister do --help` tells more.")]
pub struct Cloister {
    #[command(flatten)]
    pub runtime: crate::oci::RuntimeArgs,
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Subcommand, Debug)]
#[allow(clippy::large_enum_variant, reason = "there is one of it")]
pub enum Command {
    /// Runs a program of this machine in a sandbox
    ///
    /// The program sees this machine's files as you do, in a sandbox of its own: its writes go to
    /// memory and are gone afterwards, unless you name places with --writable or --volume; it has
    /// no network but what --net gives; it sees no process but its own. /tmp is empty, but for the
    /// current directory. It gets your environment, user, groups, limits, working directory, and
    /// the signals that you ignore or block.
    Do(DescribedLate<Do>),
    #[command(flatten)]
    Oci(crate::oci::Command),
    /// Shows what Cloister is made of
    #[command(subcommand)]
    Debug(DescribedLate<Debug>),
}

#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  cloister do -- sh -c 'echo gone > /etc/motd; cat /etc/motd'
  cloister do --writable out --volume ~/data:/data:ro -- ./convert /data out
  cloister do --env LANG=C --user 1000:1000 --cwd /tmp -- env
  cloister do --net=user --allow 'pypi.org,*.pythonhosted.org' -- pip download requests
  cloister do --net=user --publish 8080:80 -- nginx -g 'daemon off;'
  cloister do --strace --log trace.txt -- ls

Exit status: the program's own. If a signal ends it, cloister ends by the same signal.
  125  the sandbox could not start      70  the sandbox itself failed
  127  there is no such program        126  it cannot be executed
   71  the sandbox was killed")]
pub struct Do {
    /// How the program's code is run
    #[arg(long, value_enum, default_value_t)]
    pub platform: Platform,
    /// The faster ways that its system calls may take (notify only; none with --strace)
    #[arg(long, value_enum, default_value_t)]
    pub lanes: Lanes,
    /// The network that it sees
    #[arg(long, value_enum, default_value_t)]
    pub net: Net,
    /// With --net=user and --net=sandbox: what may be reached, and nothing else; several,
    /// separated by commas
    ///
    /// A domain (pypi.org), the names below one (*.example.org), or a network (10.0.0.0/8), with a
    /// port or ports if you like (:443, :8000-8080), and a protocol in front (udp:, tcp:, icmp:); *
    /// is all public addresses. Without any --allow all may be reached, private networks, too, but
    /// what --deny says, this host, the link, and services for machines' metadata:
    /// '*,169.254.169.254' allows one of these as well.
    #[arg(long, value_name = "RULE", value_delimiter = ',')]
    pub allow: Vec<egress::Rule>,
    /// With --net=user and --net=sandbox: what may not be reached; goes before --allow
    #[arg(long, value_name = "RULE", value_delimiter = ',')]
    pub deny: Vec<egress::Rule>,
    /// With --net=user and --net=sandbox: a file with more rules, as JSON
    ///
    /// {"allow": ["pypi.org:443"], "deny": ["*:25"]}, and for --net=sandbox the name servers whose
    /// answers are believed: "resolvers": ["192.0.2.53"], if they are not this machine's.
    #[arg(long, value_name = "FILE")]
    pub policy: Option<PathBuf>,
    /// With --net=user: a port of this machine that leads to one of the sandbox, as in 8080:80
    ///
    /// Reached from this machine only, unless an address is in front (0.0.0.0:8080:80).
    #[arg(long, value_name = "[ADDR:]PORT:PORT", value_parser = crate::network::publish)]
    pub publish: Vec<crate::network::Publish>,
    /// With --net=user and --net=sandbox: where refusals go, a line of JSON each
    #[arg(long, value_name = "FILE")]
    pub net_log: Option<PathBuf>,
    /// With --net=sandbox: writes the packets of its devices to this file, as pcapng
    ///
    /// (wireshark, tcpdump -r read it.) Packets for which there is no time, or that are beyond 1
    /// GiB, are left out, and counted at the file's end. With --net=user there are no packets: the
    /// sandbox has the host's sockets.
    #[arg(long, value_name = "FILE")]
    pub pcap: Option<PathBuf>,
    /// Sets an environment variable; may be given several times
    #[arg(long, short = 'e', value_name = "NAME=VALUE", value_parser = variable)]
    pub env: Vec<(String, String)>,
    /// Where the program starts: an absolute path [default: the current directory]
    #[arg(long, value_name = "DIR")]
    pub cwd: Option<PathBuf>,
    /// Lets the program change this file or directory; may be given several times
    #[arg(long, short = 'w', value_name = "PATH")]
    pub writable: Vec<PathBuf>,
    /// Shows a file or directory at another place; read-only unless it ends in :rw
    #[arg(long, value_name = "SRC:DST[:ro|rw]", value_parser = volume)]
    pub volume: Vec<Volume>,
    /// The program's user, by number [default: you]
    #[arg(long, short = 'u', value_name = "UID[:GID]", value_parser = user)]
    pub user: Option<(u32, u32)>,
    /// The machine's name that the program sees
    #[arg(long, value_name = "NAME", default_value = "cloister", value_parser = host_name)]
    pub hostname: String,
    /// The most memory that it may have, files in memory included, as in 512M [default: no limit]
    ///
    /// Where that is reached, its largest process is ended, as by a kernel that is out of memory.
    #[arg(long, short = 'm', value_name = "SIZE", value_parser = memory)]
    pub memory: Option<i64>,
    /// How much of its memory may be swapped out besides, as in 1G [default: nothing]
    ///
    /// What was not used lately is kept compressed, in memory that --memory does not count: often a
    /// third of this size. Programs end for lack of memory only where both are full. Needs a limit
    /// (--memory, --process-memory), or --replacement=working-set.
    #[arg(long, value_name = "SIZE", value_parser = memory)]
    pub swap: Option<i64>,
    /// Keeps swap in a file in this directory, instead of in memory
    ///
    /// The file has no name, and is encrypted by a key that ends with the sandbox. As large as
    /// --swap says, at most.
    #[arg(long, value_name = "DIR", requires = "swap")]
    pub swap_dir: Option<PathBuf>,
    /// How it is chosen what is swapped out: reservation, lru, clock, priority or working-set
    ///
    /// clock: what was not used since its hand came by; reservation: the same, and last what
    /// processes have above what is reserved for them; lru: what was not used for longest;
    /// priority: all of those with the highest oom_score_adj first; working-set: as lru, and,
    /// unasked, what was not used for 20 seconds. [default: reservation]
    #[arg(long, value_name = "POLICY", requires = "swap")]
    pub replacement: Option<config::Replacement>,
    /// The most memory that each of its processes may have, as in 64M [default: no limit]
    ///
    /// Who needs more has what it did not use lately swapped out (--swap), or is ended.
    #[arg(long, value_name = "SIZE", value_parser = memory)]
    pub process_memory: Option<i64>,
    /// What is confidential: all, or files at these places and below, separated by commas
    ///
    /// Confidential memory is overwritten as soon as it is given up, however its process ends, and
    /// is never swapped out or dumped. A process that opens one of these files is confidential from
    /// then on, with all of its memory, and so are its children.
    #[arg(long, value_name = "all|PATH,...")]
    pub confidential: Option<config::Confidential>,
    /// Writes down system calls, all or some: names and classes like %file, separated by commas
    #[arg(long, value_name = "FILTER", num_args = 0..=1, require_equals = true, default_missing_value = "",
          value_parser = strace_filter)]
    pub strace: Option<String>,
    /// Where traces and messages go [default: standard error]
    #[arg(long, value_name = "FILE")]
    pub log: Option<PathBuf>,
    /// Says more; up to three times
    #[arg(short, long, action = ArgAction::Count)]
    pub verbose: u8,
    /// For testing: drops a random mapping at every Nth memory operation; swap refuses every Nth page
    #[arg(long, value_name = "N", default_value_t = 0, hide = true)]
    pub debug_drop: u32,
    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "PROGRAM")]
    pub command: Vec<OsString>,
}

#[derive(Clone, Copy, Default, ValueEnum, Debug)]
pub enum Platform {
    /// Seccomp user notification: fast, needs nothing of the machine
    #[default]
    Notify,
    /// Ptrace: slow, the most plain
    Ptrace,
}

#[derive(Clone, Copy, Default, ValueEnum, Debug)]
pub enum Lanes {
    /// All calls trap: for programs that look at their own code
    None,
    /// Call sites that ask often what needs no kernel (getpid) are patched, and answered where they
    /// are
    Local,
    /// Others, too, and answered by a thread that spins, while a CPU is idle
    #[default]
    All,
    /// For tests: always, even where no CPU is idle
    #[value(hide = true)]
    Mailbox,
}

impl From<Lanes> for platform::Lanes {
    fn from(l: Lanes) -> platform::Lanes {
        match l {
            Lanes::None => platform::Lanes::None,
            Lanes::Local => platform::Lanes::Local,
            Lanes::All => platform::Lanes::All,
            Lanes::Mailbox => platform::Lanes::Mailbox,
        }
    }
}

impl From<Platform> for PlatformKind {
    fn from(p: Platform) -> PlatformKind {
        match p {
            Platform::Notify => PlatformKind::Notify,
            Platform::Ptrace => PlatformKind::Ptrace,
        }
    }
}

#[derive(Clone, Copy, Default, PartialEq, Eq, ValueEnum, Debug)]
pub enum Net {
    /// A loopback of its own
    #[default]
    None,
    /// What --allow and --deny say may be reached, by a process that connects for it
    User,
    /// The devices of this network namespace, taken over while it runs; not where it is the host's
    /// own
    Sandbox,
    /// The host's sockets, passed through: a weaker wall
    Host,
}

#[derive(Subcommand, Debug)]
pub enum Debug {
    /// Lists the host calls that each of Cloister's processes may make, and why
    HostCalls {
        /// As JSON
        #[arg(long)]
        json: bool,
    },
    /// Lists Linux's system calls, and how much of each programs can use
    Syscalls(Form),
}

#[derive(Args, Debug)]
pub struct Form {
    /// Only these calls
    #[arg(value_name = "CALL")]
    pub names: Vec<String>,
    /// As JSON
    #[arg(long)]
    pub json: bool,
    /// As docs/compatibility.md
    #[arg(long, conflicts_with_all = ["json", "names"])]
    pub markdown: bool,
}

/// `--volume`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Volume {
    pub source: PathBuf,
    pub target: String,
    pub access: Access,
}

fn variable(s: &str) -> Result<(String, String), String> {
    match s.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.into(), value.into())),
        _ => Err("write NAME=VALUE".into()),
    }
}

/// The words of `--strace`, one by one.
pub fn strace_words(filter: &str) -> Vec<String> {
    let words = filter.split(',').filter(|w| !w.is_empty());
    words.map(str::to_owned).collect()
}

/// Checks them.
pub fn strace_filter(s: &str) -> Result<String, String> {
    match s
        .split(',')
        .find(|w| !w.is_empty() && !sentry::strace::is_known(w))
    {
        None => Ok(s.into()),
        Some(class) if class.starts_with('%') => Err(format!(
            "there is no class {class}: write %{}",
            sentry::strace::CLASSES.join(", %")
        )),
        Some(name) => Err(format!(
            "there is no system call {name}: `cloister debug syscalls` lists them"
        )),
    }
}

fn volume(s: &str) -> Result<Volume, String> {
    let (rest, access) = match s.rsplit_once(':') {
        Some((rest, "ro")) => (rest, Access::ReadOnly),
        Some((rest, "rw")) => (rest, Access::Writable),
        _ => (s, Access::ReadOnly),
    };
    match rest.rsplit_once(':') {
        Some((source, target)) if !source.is_empty() && target.starts_with('/') => Ok(Volume {
            source: source.into(),
            target: target.into(),
            access,
        }),
        _ => Err("write SRC:DST or SRC:DST:rw, with DST an absolute path".into()),
    }
}

fn user(s: &str) -> Result<(u32, u32), String> {
    // u32::MAX means "no user" to Linux.
    let id = |s: &str| s.parse().ok().filter(|n| *n != u32::MAX);
    let (uid, gid) = s.split_once(':').unwrap_or((s, s));
    id(uid)
        .zip(id(gid))
        .ok_or_else(|| "write numbers, as in 1000 or 1000:1000".into())
}

/// A limit of memory: some bytes at least.
fn memory(s: &str) -> Result<i64, String> {
    let n = oci::memory::size(s)?;
    if !u64::try_from(n).is_ok_and(|n| n >= config::LEAST_MEMORY) {
        return Err("write a megabyte or more, as in 512M".to_owned());
    }
    Ok(n)
}

fn host_name(s: &str) -> Result<String, String> {
    // __NEW_UTS_LEN
    if s.len() <= 64 && !s.contains('\0') {
        Ok(s.into())
    } else {
        Err("at most 64 bytes".into())
    }
}

/// A path as the host's calls want it: absolute, without links.
pub fn real_path(path: &Path) -> oci::Result<CString> {
    let p = path
        .canonicalize()
        .map_err(|e| oci::Error::new(format!("cannot find {}: {e}", path.display())))?;
    CString::new(p.as_os_str().as_bytes())
        .map_err(|e| oci::Error::new(format!("{}: {e}", p.display())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn command_lines() {
        Cloister::command().debug_assert();
        let parse = |s: &str| Cloister::try_parse_from(s.split(' '));
        let Ok(Command::Do(DescribedLate(d))) =
            parse("cloister do --strace -v -v -- ls --strace=x").map(|c| c.command)
        else {
            panic!()
        };
        assert_eq!(d.command, ["ls", "--strace=x"]);
        assert_eq!((d.strace.as_deref(), d.verbose), (Some(""), 2));
        let Ok(Command::Do(DescribedLate(d))) =
            parse("cloister do --strace=%file,read ls -l").map(|c| c.command)
        else {
            panic!()
        };
        assert_eq!(d.command, ["ls", "-l"]);
        assert_eq!(d.strace.as_deref(), Some("%file,read"));
        let Ok(Command::Do(DescribedLate(d))) = parse("cloister do -- --odd -p").map(|c| c.command)
        else {
            panic!()
        };
        assert_eq!(d.command, ["--odd", "-p"]);
        for bad in [
            "cloister do",
            "cloister do --env X -- ls",
            "cloister do --user root -- ls",
            "cloister do --volume /x -- ls",
            "cloister do --platform=kvm -- ls",
            "cloister do --strace=nosuch -- ls",
            "cloister do --strace=read,%nosuch -- ls",
            "cloister do --writeable . -- ls",
            "cloister do --memory 1 ls",
            "cloister do --memroy 1g ls",
            "cloister do --confidential=some ls",
            "cloister do --confidential=/run/secrets,key ls",
            "cloister do -p 80 ls",
        ] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn volumes() {
        let v = |source: &str, target: &str, access| Volume {
            source: source.into(),
            target: target.into(),
            access,
        };
        assert_eq!(volume("a:/b"), Ok(v("a", "/b", Access::ReadOnly)));
        assert_eq!(volume("a:/b:rw"), Ok(v("a", "/b", Access::Writable)));
        assert_eq!(volume("a:c:/b:ro"), Ok(v("a:c", "/b", Access::ReadOnly)));
        for bad in ["", ":", "a:b", ":/b", "a", "rw", "a:rw"] {
            assert!(volume(bad).is_err(), "{bad}");
        }
        assert_eq!(user("7"), Ok((7, 7)));
        assert_eq!(user("7:8"), Ok((7, 8)));
        assert!(user("4294967295").is_err());
    }
}
