//! The options of `cloister do` about the network: what they name is opened here, with the
//! caller's rights.

use crate::args::{Do, Net};
use egress::{Rule, Rules};
use hostcall::HostFd;
use oci::{Error, Result};
use sandbox::capture;
use sandbox::devices::{self, Kept, Link, Outcome};
use sandbox::{Outside, Published, UserNetwork};
use std::fs::File;
use std::io::Read;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;

/// `--publish`: a port of the host that leads to one inside.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Publish {
    pub at: SocketAddr,
    pub port: u16,
}

/// Reads `[ADDR:]PORT:PORT`.
pub fn publish(s: &str) -> std::result::Result<Publish, String> {
    const SHAPE: &str = "write --publish PORT:PORT, as in 8080:80, or ADDR:PORT:PORT";
    let port = |p: &str| {
        p.parse()
            .ok()
            .filter(|p| *p != 0)
            .ok_or_else(|| format!("\"{p}\" is no port"))
    };
    let (rest, inside) = s.rsplit_once(':').ok_or(SHAPE)?;
    if let Some((_, protocol)) = inside.split_once('/') {
        return Err(format!("only TCP ports are published, not {protocol}"));
    }
    let (ip, outside) = match rest.rsplit_once(':') {
        Some((ip, p)) => {
            let ip = ip.trim_start_matches('[').trim_end_matches(']');
            (ip.parse::<IpAddr>().map_err(|_| SHAPE)?, p)
        }
        None => (Ipv4Addr::LOCALHOST.into(), rest),
    };
    Ok(Publish {
        at: SocketAddr::new(ip, port(outside)?),
        port: port(inside)?,
    })
}

/// What is open while the sandbox starts and runs.
#[derive(Default)]
pub struct Opened {
    /// What the plan says of it.
    pub outside: Outside,
    /// What was refused first, a line each.
    told: Option<UnixStream>,
    /// What is given back in the end.
    pub devices: Option<GiveBack>,
    /// Writes packets down.
    pub pcap: Option<Pcap>,
    /// Held until the broker, or the Sentry, has its own.
    _fds: Vec<OwnedFd>,
    _links: (Vec<Link>, Option<HostFd>),
}

impl Opened {
    /// Of these options.
    pub fn new(args: &Do) -> Result<Opened> {
        let rules = rules(&args.allow, &args.deny, args.policy.as_deref())?;
        check_words(args)?;
        match args.net {
            Net::Sandbox => return take_over(rules, args),
            Net::Host => {
                return Ok(Opened {
                    outside: Outside::Host,
                    ..Opened::default()
                });
            }
            Net::None => return Ok(Opened::default()),
            Net::User => {}
        }
        if !rules.resolvers.is_empty() {
            return Err(Error::Refused(
                "resolvers are about --net=sandbox: --net=user asks this machine's".into(),
            ));
        }
        let here: Vec<IpAddr> = sandbox::interfaces()
            .into_iter()
            .flat_map(|i| i.addresses)
            .map(|(ip, _)| ip)
            .collect();
        let mut fds = Vec::new();
        let mut published = Vec::new();
        for p in &args.publish {
            let fd = listen(p)?;
            published.push(Published {
                listener: fd.as_raw_fd(),
                port: p.port,
            });
            fds.push(fd);
        }
        let log = args.net_log.as_deref().map(oci::open_log).transpose()?;
        let (told, teller) =
            pair().map_err(|e| Error::new(format!("could not make a channel: {e}")))?;
        let teller = OwnedFd::from(teller);
        let outside = Outside::User(UserNetwork {
            policy: rules.policy().on(here.clone()),
            name_servers: name_servers(),
            ipv6: here.iter().any(is_global_v6),
            published,
            log: log.as_ref().map(AsRawFd::as_raw_fd),
            told: Some(teller.as_raw_fd()),
        });
        fds.extend(log);
        fds.push(teller);
        Ok(Opened {
            outside,
            told: Some(told),
            _fds: fds,
            ..Opened::default()
        })
    }

    /// The processes have theirs: what is here is closed. What is left tells of refusals.
    #[must_use]
    pub fn started(self) -> Refusals {
        Refusals(self.told)
    }
}

/// What the devices of this network namespace had, which they get back when this is dropped.
pub struct GiveBack(Kept);

impl Drop for GiveBack {
    fn drop(&mut self) {
        if let Err(e) = self.0.put_back() {
            crate::complain(&e.to_string());
        }
    }
}

/// Refuses options that another network is needed for.
fn check_words(args: &Do) -> Result<()> {
    let ruled = [
        ("--allow", args.allow.is_empty()),
        ("--deny", args.deny.is_empty()),
        ("--policy", args.policy.is_none()),
        ("--net-log", args.net_log.is_none()),
    ];
    let given = |all: &[(&'static str, bool)]| all.iter().find(|(_, absent)| !absent).map(|w| w.0);
    if let Some(word) = given(&ruled)
        && !matches!(args.net, Net::User | Net::Sandbox)
    {
        return Err(Error::Refused(format!(
            "{word} is about --net=user: give that, too (or --net=sandbox)"
        )));
    }
    if args.pcap.is_some() && args.net != Net::Sandbox {
        return Err(Error::Refused(
            "--pcap writes down the packets of devices, and only --net=sandbox has some (with --net=user the host's sockets are used: look at the host's devices)"
                .into(),
        ));
    }
    if let Some(word) = given(&[("--publish", args.publish.is_empty())])
        && args.net != Net::User
    {
        return Err(Error::Refused(format!(
            "{word} is about --net=user: give that, too"
        )));
    }
    Ok(())
}

/// All rules that are given: as options, and in a file.
pub fn rules(allow: &[Rule], deny: &[Rule], file: Option<&Path>) -> Result<Rules> {
    let mut rules = Rules {
        allow: allow.to_vec(),
        deny: deny.to_vec(),
        ..Rules::default()
    };
    if let Some(path) = file {
        let refused = |why: String| Error::Refused(format!("--policy {}: {why}", path.display()));
        let mut text = String::new();
        let most = egress::rules::FILE_MOST as u64;
        File::open(path)
            .and_then(|f| f.take(most + 1).read_to_string(&mut text))
            .map_err(|e| refused(e.to_string()))?;
        if text.len() as u64 > most {
            return Err(refused(format!("it is longer than {most} bytes")));
        }
        rules.add(Rules::of_file(&text).map_err(|e| refused(e.to_string()))?);
    }
    rules.check().map_err(|e| Error::Refused(e.to_string()))?;
    Ok(rules)
}

/// `--pcap`: the process ends when this does.
pub struct Pcap {
    end: HostFd,
    writing: capture::Writing,
}

impl Pcap {
    fn start(setup: &devices::Setup, file: &OwnedFd) -> Result<Pcap> {
        let of = |d: &netstack::setup::Device| (d.index, d.name.clone());
        let all: Vec<(u32, String)> = setup.devices.iter().map(of).collect();
        let taps = capture::open(all.iter().map(|(index, name)| (*index, &name[..])))?;
        let (end, theirs) = hostcall::sock::seqpacket_pair()
            .map_err(|e| Error::new(format!("could not make a channel: {e}")))?;
        let writing = capture::start(&taps, file, capture::Until::Closed(theirs.raw()))?;
        Ok(Pcap { end, writing })
    }

    /// All has passed.
    pub fn finish(self) {
        drop(self.end);
        self.writing.finish();
    }
}

/// `--net=sandbox`.
fn take_over(mut rules: Rules, args: &Do) -> Result<Opened> {
    if !rules.is_empty() {
        oci::complete(&mut rules)?;
    }
    let log = args.net_log.as_deref().map(oci::open_log).transpose()?;
    let pcap = args.pcap.as_deref().map(capture::open_file).transpose()?;
    let taken = match devices::take_over::<sandbox::Error>(|_| Ok(())) {
        Ok(Outcome::Taken(t)) => *t,
        Ok(Outcome::Nothing) => {
            return Err(Error::Refused(
                "--net=sandbox takes over the devices of a network namespace, and this one has none: use --net=user"
                    .into(),
            ));
        }
        Ok(Outcome::NotAllowed) => {
            return Err(Error::Refused(
                "--net=sandbox takes over the devices of a network namespace, which needs CAP_NET_ADMIN and                  CAP_NET_RAW there: use --net=user"
                    .into(),
            ));
        }
        Err(e @ sandbox::Error::HostsNetwork) => {
            return Err(Error::Refused(format!(
                "{e}: use --net=user, or another namespace (ip netns exec)"
            )));
        }
        Err(e) => return Err(e.into()),
    };
    for w in &taken.warnings {
        crate::complain(w);
    }
    let devices = GiveBack(taken.kept);
    let pcap = pcap
        .map(|file| Pcap::start(&taken.setup, &file))
        .transpose()?;
    let sockets = taken.links.iter().map(|l| (l.fd.raw(), l.receive_buffer));
    Ok(Opened {
        outside: Outside::Devices(sandbox::Devices {
            setup: taken.setup,
            sockets: sockets.collect(),
            names: taken.names.as_ref().map(HostFd::raw),
            rules,
            log: log.as_ref().map(AsRawFd::as_raw_fd),
        }),
        _fds: log.into_iter().collect(),
        devices: Some(devices),
        pcap,
        _links: (taken.links, taken.names),
        ..Opened::default()
    })
}

/// See [`Opened::started`].
pub struct Refusals(Option<UnixStream>);

impl Refusals {
    /// A sentence of what was refused, once the sandbox has ended.
    #[must_use]
    pub fn sentence(self) -> Option<String> {
        // (They are few, and short: it is one read.)
        let mut bytes = [0; 4096];
        let n = self.0?.read(&mut bytes).ok()?;
        let text = String::from_utf8_lossy(&bytes[..n]);
        let (hints, wanted): (Vec<&str>, Vec<&str>) =
            text.lines().partition(|l| l.starts_with(sandbox::HINT));
        let shown = wanted.join(", ");
        let refused = (!wanted.is_empty()).then(|| {
            format!(
                "refused by the network's rules: {shown} (--net-log FILE tells why; --allow allows what no --deny names, and then only what rules allow)"
            )
        });
        let hints = hints.iter().map(|h| h[1..].to_owned());
        let all: Vec<String> = hints.chain(refused).collect();
        (!all.is_empty()).then(|| all.join("; "))
    }
}

/// Neither waits: the broker for room, this process for words.
fn pair() -> std::io::Result<(UnixStream, UnixStream)> {
    let (a, b) = UnixStream::pair()?;
    a.set_nonblocking(true)?;
    b.set_nonblocking(true)?;
    Ok((a, b))
}

fn listen(p: &Publish) -> Result<OwnedFd> {
    let at = p.at;
    let l =
        TcpListener::bind(at).map_err(|e| Error::Refused(format!("cannot publish {at}: {e}")))?;
    l.set_nonblocking(true)
        .map_err(|e| Error::new(format!("cannot publish {at}: {e}")))?;
    Ok(l.into())
}

/// Those of the host (`resolv.conf(5)`; at most three, as the C library).
fn name_servers() -> Vec<IpAddr> {
    let text = std::fs::read_to_string("/etc/resolv.conf").unwrap_or_default();
    let mut all = egress::rules::resolvers(&text);
    // As the C library does without any.
    if all.is_empty() {
        all.push(Ipv4Addr::LOCALHOST.into());
    }
    all
}

/// Whether it is an address of the internet by IPv6.
fn is_global_v6(ip: &IpAddr) -> bool {
    matches!(ip, IpAddr::V6(a) if a.segments()[0] & 0xe000 == 0x2000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn published_ports() {
        let of = |s: &str| publish(s).map(|p| (p.at.to_string(), p.port));
        assert_eq!(of("8080:80"), Ok(("127.0.0.1:8080".into(), 80)));
        assert_eq!(of("0.0.0.0:8080:80"), Ok(("0.0.0.0:8080".into(), 80)));
        assert_eq!(of("[::1]:8080:80"), Ok(("[::1]:8080".into(), 80)));
        for s in [
            "80",
            "a:80",
            "80:80:80:80",
            "0:80",
            "80:0",
            "80:80/udp",
            "host:80:80",
        ] {
            assert!(of(s).is_err(), "{s}");
        }
    }
}
