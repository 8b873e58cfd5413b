//! The broker: makes and binds the sockets of `--net=host`, and nothing else.
//!
//! It stays in the network namespace that the starter is in, and holds no capability but that to
//! bind low ports. It is asked by the Sentry, which may be compromised: only TCP, UDP and ICMP echo
//! sockets are made, and only such sockets are bound.

pub(crate) mod user;

use crate::privilege::{self as own, Standing};
use crate::spawn::REPORT;
use crate::{Error, step};
use abi::Result;
use abi::errno::{EINVAL, EPROTONOSUPPORT};
use hostcall::table::Process;
use hostcall::{HostFd, inet, process, sock};
use net::host::broker::{BIND, REQUEST_MAX, SOCKET};
use net::interface::Interface;
use std::convert::Infallible;

pub fn run(standing: Standing, fds: Vec<HostFd>) -> std::result::Result<Infallible, Error> {
    let [report, channel] = <[HostFd; 2]>::try_from(fds).map_err(|_| Error::NoDescriptors)?;
    // It stays open as long as the process.
    let _ = report.into_raw();
    own::leave_host(standing, own::CAP_NET_BIND_SERVICE)?;
    step("confine itself", own::lock_down(Process::Broker, REPORT))?;
    serve(&channel)
}

fn serve(channel: &HostFd) -> ! {
    let mut m = [0u8; REQUEST_MAX];
    loop {
        let (n, given) = match sock::recv(channel.raw(), &mut m) {
            Ok((0, _)) | Err(_) => process::exit_group(0),
            Ok(r) => r,
        };
        let (error, made) = match answer(&m[..n], given) {
            Ok(made) => (0, made),
            Err(e) => (e.raw(), None),
        };
        let fds: Vec<_> = made.iter().map(HostFd::raw).collect();
        if sock::send(channel.raw(), &error.to_le_bytes(), &fds).is_err() {
            process::exit_group(0);
        }
    }
}

fn answer(request: &[u8], given: Vec<HostFd>) -> Result<Option<HostFd>> {
    let word = |n: usize| {
        let b = request.get(4 * n..4 * n + 4).ok_or(EINVAL)?;
        b.try_into().map(i32::from_le_bytes).map_err(|_| EINVAL)
    };
    match word(0)? as u32 {
        SOCKET => {
            let (family, kind, protocol) = (word(1)?, word(2)?, word(3)?);
            check(family, kind, protocol)?;
            inet::socket(family, kind, protocol).map(Some)
        }
        BIND => {
            let [fd] = &given[..] else { return Err(EINVAL) };
            let ask = |name| {
                let v = inet::option(fd.raw(), libc::SOL_SOCKET, name, 4)?;
                v.try_into().map(i32::from_ne_bytes).map_err(|_| EINVAL)
            };
            check(
                ask(libc::SO_DOMAIN)?,
                ask(libc::SO_TYPE)?,
                ask(libc::SO_PROTOCOL)?,
            )?;
            inet::bind(fd.raw(), &request[4..]).map(|()| None)
        }
        _ => Err(EINVAL),
    }
}

/// The interfaces of the caller's network namespace, for a sandbox that gets its network.
pub fn interfaces() -> Vec<Interface> {
    let mut all: Vec<Interface> = Vec::new();
    for a in inet::interfaces().unwrap_or_default() {
        let address = (a.address, a.prefix);
        match all.iter_mut().find(|i| i.index == a.index as i32) {
            Some(i) => i.addresses.push(address),
            None => all.push(Interface {
                mtu: mtu(&a.name),
                mac: [0; 6],
                index: a.index as i32,
                name: a.name,
                flags: a.flags,
                addresses: vec![address],
            }),
        }
    }
    all
}

fn mtu(name: &str) -> u32 {
    const ETHERNET: u32 = 1500;
    let text = std::fs::read_to_string(format!("/sys/class/net/{name}/mtu"));
    text.ok()
        .and_then(|t| t.trim().parse().ok())
        .unwrap_or(ETHERNET)
}

fn check(family: i32, kind: i32, protocol: i32) -> Result<()> {
    if !matches!(family, libc::AF_INET | libc::AF_INET6) {
        return Err(EINVAL);
    }
    match (kind, protocol) {
        (libc::SOCK_STREAM, 0 | libc::IPPROTO_TCP)
        | (libc::SOCK_DGRAM, 0 | libc::IPPROTO_UDP | libc::IPPROTO_ICMP | libc::IPPROTO_ICMPV6) => {
            Ok(())
        }
        _ => Err(EPROTONOSUPPORT),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(words: &[i32]) -> Vec<u8> {
        words.iter().flat_map(|w| w.to_le_bytes()).collect()
    }

    #[test]
    fn only_what_it_is_for() {
        let (tcp, udp) = (libc::SOCK_STREAM, libc::SOCK_DGRAM);
        for (family, kind, protocol) in [
            (libc::AF_UNIX, tcp, 0),
            (libc::AF_NETLINK, udp, 0),
            (libc::AF_PACKET, udp, 0),
            (libc::AF_INET, libc::SOCK_RAW, 1),
            (libc::AF_INET, tcp, 132),
            (libc::AF_INET, tcp | libc::SOCK_CLOEXEC, 0),
        ] {
            let r = answer(
                &request(&[SOCKET as i32, family, kind, protocol]),
                Vec::new(),
            );
            assert!(r.is_err(), "{family} {kind} {protocol}");
        }
        for bad in [
            &[][..],
            &[7],
            &[SOCKET as i32],
            &[SOCKET as i32, 2, 1],
            &[BIND as i32, 0, 0, 0],
        ] {
            assert!(answer(&request(bad), Vec::new()).is_err());
        }
        let made = answer(
            &request(&[SOCKET as i32, libc::AF_INET, tcp, 0]),
            Vec::new(),
        )
        .unwrap();
        let mut bind = request(&[BIND as i32]);
        bind.extend([2, 0, 0, 0, 127, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(answer(&bind, vec![made.unwrap()]).map(|_| ()), Ok(()));
        // A socket that it would not make is not bound either.
        let (pair, _other) = sock::seqpacket_pair().unwrap();
        assert_eq!(answer(&bind, vec![pair]).map(|_| ()), Err(EINVAL));
    }
}
