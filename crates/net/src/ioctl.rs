//! Sockets' ioctls (`netdevice(7)`).

mod change;

use crate::interface::Interface;
use crate::options::Common;
use crate::protocol::Protocol;
use crate::sys::AF_INET;
use abi::errno::{EADDRNOTAVAIL, EINVAL, ENODEV, ENOENT, ENOTTY, EOPNOTSUPP, EPERM};
use abi::{Result, Va};
use std::net::{IpAddr, Ipv4Addr};
use vfs::Caps;
use vfs::file::IoctlContext;

const FIONREAD: u32 = 0x541B;
const SIOCOUTQ: u32 = 0x5411;
const SIOCATMARK: u32 = 0x8905;
const SIOCGSTAMP: u32 = 0x8906;
const SIOCGSTAMPNS: u32 = 0x8907;
// The same with 64 bits on all machines.
const SIOCGSTAMP_NEW: u32 = 0x8010_8906;
const SIOCGSTAMPNS_NEW: u32 = 0x8010_8907;
const SIOCADDRT: u32 = 0x890B;
const SIOCDELRT: u32 = 0x890C;
const SIOCGIFNAME: u32 = 0x8910;
const SIOCGIFCONF: u32 = 0x8912;
const SIOCGIFFLAGS: u32 = 0x8913;
const SIOCGIFADDR: u32 = 0x8915;
const SIOCGIFDSTADDR: u32 = 0x8917;
const SIOCGIFBRDADDR: u32 = 0x8919;
const SIOCGIFNETMASK: u32 = 0x891B;
const SIOCGIFMETRIC: u32 = 0x891D;
const SIOCGIFMTU: u32 = 0x8921;
const SIOCGIFHWADDR: u32 = 0x8927;
const SIOCGIFINDEX: u32 = 0x8933;
const SIOCGIFTXQLEN: u32 = 0x8942;
const SIOCETHTOOL: u32 = 0x8946;
const SIOCGIFMAP: u32 = 0x8970;

/// `struct ifreq`: a name and a union.
const IFREQ: usize = 40;
const IFF_LOOPBACK: u32 = 8;

fn inet(a: Ipv4Addr) -> [u8; 16] {
    let mut v = [0; 16];
    v[..2].copy_from_slice(&AF_INET.to_le_bytes());
    v[4..8].copy_from_slice(&a.octets());
    v
}

pub fn ioctl(
    common: &Common,
    protocol: &dyn Protocol,
    cx: &dyn IoctlContext,
    cmd: u32,
    arg: u64,
) -> Result<u64> {
    let out = Va(arg);
    let int = |v: i32| cx.copy_out(out, &v.to_le_bytes()).map(|()| 0);
    match cmd {
        FIONREAD => return int(protocol.unread()?.min(i32::MAX as usize) as i32),
        SIOCOUTQ => return int(protocol.unsent().min(i32::MAX as usize) as i32),
        SIOCATMARK => return int(i32::from(protocol.is_at_mark()?)),
        SIOCGSTAMP | SIOCGSTAMPNS | SIOCGSTAMP_NEW | SIOCGSTAMPNS_NEW => {
            if !crate::addr::is_inet(common.family) && common.family != crate::sys::AF_PACKET {
                return Err(ENOTTY);
            }
            let nanos = common.stamps.last().ok_or(ENOENT)?;
            let unit = match cmd {
                SIOCGSTAMP | SIOCGSTAMP_NEW => 1000,
                _ => 1,
            };
            let told = crate::stamps::in_seconds(nanos, unit);
            return cx.copy_out(out, &told).map(|()| 0);
        }
        SIOCGIFCONF => return conf(common, cx, out),
        0x8900..=0x89FF => {}
        _ => return Err(ENOTTY),
    }
    if matches!(cmd, SIOCADDRT | SIOCDELRT) {
        if !cx.credentials().has_in(&common.ns.user, Caps::NET_ADMIN) {
            return Err(EPERM);
        }
        return change::route(&common.ns, cx, out, cmd == SIOCADDRT).map(|()| 0);
    }
    of_interface(common, cx, cmd, out)
}

/// What an interface is asked: by a `struct ifreq`.
fn of_interface(common: &Common, cx: &dyn IoctlContext, cmd: u32, out: Va) -> Result<u64> {
    let mut req = [0; IFREQ];
    cx.copy_in(out, &mut req)?;
    let all = common.ns.interfaces();
    if cmd == SIOCGIFNAME {
        let index = i32::from_le_bytes([req[16], req[17], req[18], req[19]]);
        let i = all.iter().find(|i| i.index == index).ok_or(ENODEV)?;
        name(&mut req, i);
        return cx.copy_out(out, &req).map(|()| 0);
    }
    let end = req[..16].iter().position(|&b| b == 0).unwrap_or(15);
    let i = all.iter().find(|i| i.name.as_bytes() == &req[..end]);
    let i = i.ok_or(ENODEV)?;
    let is_admin = cx.credentials().has_in(&common.ns.user, Caps::NET_ADMIN);
    let mut put = |v: &[u8]| {
        req[16..].fill(0);
        req[16..16 + v.len()].copy_from_slice(v);
    };
    match cmd {
        SIOCGIFFLAGS => put(&(i.flags as u16).to_le_bytes()),
        SIOCGIFADDR | SIOCGIFDSTADDR | SIOCGIFBRDADDR | SIOCGIFNETMASK => {
            put(&inet(address(common.family, i, cmd)?));
        }
        SIOCGIFMETRIC | SIOCGIFMAP => put(&[0; 4]),
        SIOCGIFMTU => put(&i.mtu.to_le_bytes()),
        SIOCGIFHWADDR => {
            put(&[&i.hardware_kind().to_le_bytes()[..], &i.mac].concat());
        }
        SIOCGIFINDEX => put(&i.index.to_le_bytes()),
        SIOCGIFTXQLEN => put(&1000i32.to_le_bytes()),
        SIOCETHTOOL => return Err(EOPNOTSUPP),
        _ if !is_admin => return Err(EPERM),
        _ if change::changes(cmd) => {
            return change::interface(&common.ns, cx, cmd, i, &req).map(|()| 0);
        }
        _ => return Err(EOPNOTSUPP),
    }
    cx.copy_out(out, &req).map(|()| 0)
}

/// An address of an interface, as a socket of this family is told it.
fn address(family: u16, i: &Interface, cmd: u32) -> Result<Ipv4Addr> {
    if family != AF_INET {
        return Err(if family == crate::sys::AF_INET6 {
            EINVAL
        } else {
            EADDRNOTAVAIL
        });
    }
    if cmd == SIOCGIFBRDADDR && i.flags & IFF_LOOPBACK != 0 {
        return Ok(Ipv4Addr::UNSPECIFIED);
    }
    let first = i.addresses.iter().find_map(|(ip, prefix)| match ip {
        IpAddr::V4(a) => Some((*a, *prefix)),
        IpAddr::V6(_) => None,
    });
    let (a, prefix) = first.ok_or(EADDRNOTAVAIL)?;
    Ok(match cmd {
        SIOCGIFBRDADDR => (a.to_bits() | !mask(prefix)).into(),
        SIOCGIFNETMASK => mask(prefix).into(),
        _ => a,
    })
}

fn mask(prefix: u8) -> u32 {
    u32::MAX.checked_shl(32 - u32::from(prefix)).unwrap_or(0)
}

fn name(req: &mut [u8; IFREQ], i: &Interface) {
    let n = i.name.len().min(15);
    req[..16].fill(0);
    req[..n].copy_from_slice(&i.name.as_bytes()[..n]);
}

/// SIOCGIFCONF: the interfaces that have an IPv4 address.
fn conf(common: &Common, cx: &dyn IoctlContext, at: Va) -> Result<u64> {
    let mut c = [0; 16];
    cx.copy_in(at, &mut c)?;
    let room = i32::from_le_bytes([c[0], c[1], c[2], c[3]]);
    let mut buf = [0; 8];
    buf.copy_from_slice(&c[8..]);
    let buf = u64::from_le_bytes(buf);
    let mut len = 0usize;
    for i in common.ns.interfaces() {
        for (ip, _) in &i.addresses {
            let IpAddr::V4(a) = ip else { continue };
            let mut req = [0; IFREQ];
            name(&mut req, &i);
            req[16..32].copy_from_slice(&inet(*a));
            if buf != 0 {
                if (room as usize) < len + IFREQ || room < 0 {
                    break;
                }
                cx.copy_out(Va(buf).offset(len as u64), &req)?;
            }
            len += IFREQ;
        }
    }
    cx.copy_out(at, &(len as i32).to_le_bytes())?;
    Ok(0)
}
