//! Ioctls that change devices, addresses and routes (`netdevice(7)`, `rtentry` of `ip(7)`), for
//! those who may.

use super::IFREQ;
use crate::devices::{Address, How, LinkRequest};
use crate::interface::Interface;
use crate::ns::NetNamespace;
use crate::route::{Route, TABLE_MAIN, network};
use crate::sys::AF_INET;
use abi::errno::{EADDRNOTAVAIL, EAFNOSUPPORT, EINVAL, ENETUNREACH, ENODEV, EOPNOTSUPP};
use abi::{Result, Va};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use vfs::file::IoctlContext;

const SIOCSIFFLAGS: u32 = 0x8914;
const SIOCSIFADDR: u32 = 0x8916;
const SIOCSIFBRDADDR: u32 = 0x891A;
const SIOCSIFNETMASK: u32 = 0x891C;
const SIOCSIFMTU: u32 = 0x8922;
const SIOCSIFNAME: u32 = 0x8923;
const SIOCSIFHWADDR: u32 = 0x8924;
const SIOCSIFTXQLEN: u32 = 0x8943;

/// `struct rtentry`.
const RTENTRY: usize = 120;
const RTF_GATEWAY: u16 = 2;
const RTF_HOST: u16 = 4;

/// The address of a `struct sockaddr_in`.
fn address(b: &[u8]) -> Result<Ipv4Addr> {
    match *b {
        [a, b, _, _, w, x, y, z, ..] if u16::from_le_bytes([a, b]) == AF_INET => {
            Ok(Ipv4Addr::new(w, x, y, z))
        }
        _ => Err(EAFNOSUPPORT),
    }
}

/// The prefix's length; `EINVAL` for a mask that is none.
fn prefix(mask: Ipv4Addr) -> Result<u8> {
    let bits = mask.to_bits();
    if bits.leading_ones() + bits.trailing_zeros() != 32 && bits != 0 {
        return Err(EINVAL);
    }
    Ok(bits.leading_ones() as u8)
}

/// The prefix of an address's class (`inet_abc_len`).
fn class(ip: Ipv4Addr) -> Result<u8> {
    match ip.octets()[0] {
        0..=127 => Ok(8),
        128..=191 => Ok(16),
        192..=223 => Ok(24),
        _ => Err(EINVAL),
    }
}

fn first(i: &Interface) -> Option<(Ipv4Addr, u8)> {
    i.addresses.iter().find_map(|(ip, prefix)| match ip {
        IpAddr::V4(ip) => Some((*ip, *prefix)),
        IpAddr::V6(_) => None,
    })
}

/// Changes an interface.
pub(super) fn interface(
    ns: &Arc<NetNamespace>,
    cx: &dyn IoctlContext,
    cmd: u32,
    i: &Interface,
    req: &[u8; IFREQ],
) -> Result<()> {
    let word = i32::from_le_bytes([req[16], req[17], req[18], req[19]]);
    let mut w = LinkRequest::default();
    match cmd {
        SIOCSIFFLAGS => w.up = Some(word & 1 != 0),
        SIOCSIFMTU => w.mtu = Some(u32::try_from(word).map_err(|_| EINVAL)?),
        SIOCSIFTXQLEN => w.queue = Some(u32::try_from(word).map_err(|_| EINVAL)?),
        SIOCSIFNAME => {
            let end = req[16..32].iter().position(|&b| b == 0).unwrap_or(15);
            let name = String::from_utf8(req[16..16 + end].to_vec());
            w.name = Some(name.map_err(|_| EINVAL)?);
        }
        SIOCSIFHWADDR => {
            if u16::from_le_bytes([req[16], req[17]]) != i.hardware_kind() {
                return Err(EINVAL);
            }
            w.mac = req[18..].first_chunk().copied();
        }
        _ => return set_address(ns, cx, cmd, i, address(&req[16..32])?),
    }
    ns.change_link(i.index, &w)
}

fn set_address(
    ns: &Arc<NetNamespace>,
    cx: &dyn IoctlContext,
    cmd: u32,
    i: &Interface,
    ip: Ipv4Addr,
) -> Result<()> {
    let old = first(i);
    let mut new = match cmd {
        SIOCSIFADDR => Address::new(ip.into(), class(ip)?),
        SIOCSIFNETMASK | SIOCSIFBRDADDR => {
            let (old, length) = old.ok_or(EADDRNOTAVAIL)?;
            let length = if cmd == SIOCSIFNETMASK {
                prefix(ip)?
            } else {
                length
            };
            Address::new(old.into(), length)
        }
        _ => return Err(EOPNOTSUPP),
    };
    new.broadcast = match (cmd, new.ip) {
        (SIOCSIFBRDADDR, _) => Some(ip.into()),
        (_, IpAddr::V4(a)) if new.prefix < 31 && !i.is_loopback() => {
            let last = a.to_bits() | (u32::MAX >> new.prefix);
            Some(Ipv4Addr::from_bits(last).into())
        }
        _ => None,
    };
    if let Some((ip, prefix)) = old {
        ns.delete_address(i.index, ip.into(), Some(prefix))?;
    }
    if ip.is_unspecified() && cmd == SIOCSIFADDR {
        return Ok(());
    }
    let user = cx.credentials().ucounts().clone();
    ns.add_address(i.index, new, How::default(), Some(&user))
}

/// SIOCADDRT and SIOCDELRT.
pub(super) fn route(
    ns: &Arc<NetNamespace>,
    cx: &dyn IoctlContext,
    at: Va,
    adds: bool,
) -> Result<()> {
    let mut b = [0; RTENTRY];
    cx.copy_in(at, &mut b)?;
    let flags = u16::from_le_bytes([b[56], b[57]]);
    let to = address(&b[8..24])?;
    let length = if flags & RTF_HOST != 0 {
        32
    } else {
        prefix(address(&b[40..56]).unwrap_or(Ipv4Addr::UNSPECIFIED))?
    };
    if network(to.into(), length) != IpAddr::V4(to) {
        return Err(EINVAL);
    }
    let via = match flags & RTF_GATEWAY {
        0 => None,
        _ => Some(address(&b[24..40])?).filter(|ip| !ip.is_unspecified()),
    };
    if flags & RTF_GATEWAY != 0 && via.is_none() && adds {
        return Err(EINVAL);
    }
    let name = u64::from_le_bytes([b[88], b[89], b[90], b[91], b[92], b[93], b[94], b[95]]);
    let device = match name {
        0 => 0,
        name => {
            let mut text = [0; 16];
            cx.copy_in(Va(name), &mut text)?;
            let end = text.iter().position(|&b| b == 0).unwrap_or(15);
            ns.device_by_name(&text[..end]).ok_or(ENODEV)?
        }
    };
    // One more than it is.
    let metric = i16::from_le_bytes([b[80], b[81]]);
    let metric = u32::try_from(i32::from(metric) - 1).unwrap_or(0);
    if !adds {
        let fits = |r: &Route| {
            (r.to, r.prefix, r.table) == (IpAddr::V4(to), length, TABLE_MAIN)
                && (device == 0 || r.device == device)
                && (via.is_none() || r.via == via.map(IpAddr::V4))
                && (metric == 0 || r.metric == metric)
        };
        return ns.delete_route(fits);
    }
    if device == 0 && via.is_none() {
        return Err(ENETUNREACH);
    }
    let mut r = Route::by_device(device, (to.into(), length), via.map(IpAddr::V4), None);
    r.protocol = crate::route::PROTOCOL_BOOT;
    r.metric = metric;
    let how = How {
        create: true,
        ..How::default()
    };
    let user = cx.credentials().ucounts().clone();
    ns.add_route(r, how, Some(&user))
}

/// Whether an ioctl changes an interface.
pub(super) fn changes(cmd: u32) -> bool {
    matches!(
        cmd,
        SIOCSIFFLAGS
            | SIOCSIFADDR
            | SIOCSIFBRDADDR
            | SIOCSIFNETMASK
            | SIOCSIFMTU
            | SIOCSIFNAME
            | SIOCSIFHWADDR
            | SIOCSIFTXQLEN
    )
}
