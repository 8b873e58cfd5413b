//! The options of `cloister do` about the network: what they name is opened here, with the caller's rights.

use crate::args::{Do, Net};
use hostcall::HostFd;
use oci::{Error, Result};
use sandbox::devices::{self, Kept, Link, Outcome};
use sandbox::{Outside, Published, UserNetwork};
use std::fs::File;
use std::io::Read;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::UnixStream;

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
    /// Held until the broker, or the Sentry, has its own.
    _fds: Vec<OwnedFd>,
    _links: (Vec<Link>, Option<HostFd>),
}

impl Opened {
    /// Of these options.
    pub fn new(args: &Do) -> Result<Opened> {
        let about = [
            ("--allow", args.allow.is_empty()),
            ("--deny", args.deny.is_empty()),
            ("--publish", args.publish.is_empty()),
            ("--net-log", args.net_log.is_none()),
        ];
        if args.net != Net::User {
            if let Some((word, _)) = about.iter().find(|(_, absent)| !absent) {
                return Err(Error::Refused(format!(
                    "{word} is about --net=user: give that, too"
                )));
            }
            let outside = match args.net {
                Net::Sandbox => return take_over(),
                Net::Host => Outside::Host,
                Net::None | Net::User => Outside::Nowhere,
            };
            return Ok(Opened {
                outside,
                ..Opened::default()
            });
        }
        let rules = args.allow.iter().chain(&args.deny);
        if let Some(r) = rules
            .clone()
            .find(|r| r.protocol == Some(egress::Protocol::Icmp))
        {
            return Err(Error::Refused(format!("{r}: ping is not there yet")));
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
        let log = args.net_log.as_deref().map(open_log).transpose()?;
        let (told, teller) =
            pair().map_err(|e| Error::new(format!("could not make a channel: {e}")))?;
        let teller = OwnedFd::from(teller);
        let outside = Outside::User(UserNetwork {
            policy: egress::Policy::new(args.allow.clone(), args.deny.clone()).on(here.clone()),
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

/// `--net=sandbox`.
fn take_over() -> Result<Opened> {
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
    let sockets = taken.links.iter().map(|l| (l.fd.raw(), l.receive_buffer));
    Ok(Opened {
        outside: Outside::Devices(sandbox::Devices {
            setup: taken.setup,
            sockets: sockets.collect(),
            names: taken.names.as_ref().map(HostFd::raw),
        }),
        devices: Some(GiveBack(taken.kept)),
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
        let wanted: Vec<&str> = text.lines().collect();
        let shown = wanted.join(", ");
        (!wanted.is_empty()).then(|| {
            format!(
                "refused by the network's rules: {shown} (--net-log FILE tells why; --allow allows what no --deny names, and then only what rules allow)"
            )
        })
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

fn open_log(path: &std::path::Path) -> Result<OwnedFd> {
    File::options()
        .create(true)
        .append(true)
        // A pipe that nobody reads must not make the network stand still.
        .custom_flags(libc::O_NONBLOCK)
        .open(path)
        .map(Into::into)
        .map_err(|e| Error::new(format!("could not open the log {}: {e}", path.display())))
}

/// Those of the host (`resolv.conf(5)`; at most three, as the C library).
fn name_servers() -> Vec<IpAddr> {
    let text = std::fs::read_to_string("/etc/resolv.conf").unwrap_or_default();
    let mut all = parse_name_servers(&text);
    // As the C library does without any.
    if all.is_empty() {
        all.push(Ipv4Addr::LOCALHOST.into());
    }
    all
}

fn parse_name_servers(text: &str) -> Vec<IpAddr> {
    let of = |line: &str| {
        let mut words = line.split_ascii_whitespace();
        (words.next() == Some("nameserver")).then(|| words.next()?.parse::<IpAddr>().ok())?
    };
    text.lines().filter_map(of).take(3).collect()
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

    #[test]
    fn servers_of_resolv_conf() {
        let text = "# a\nnameserver 192.0.2.1\nsearch a.org\nnameserver\t::1 # b\nnameserver fe80::1%eth0\nnameserver x\n";
        let found: Vec<String> = parse_name_servers(text)
            .iter()
            .map(ToString::to_string)
            .collect();
        assert_eq!(found, ["192.0.2.1", "::1"]);
    }
}
