//! Sockets' ioctls (`netdevice(7)`), for an interface list that holds only `lo`.

use crate::options::{Common, LO_INDEX};
use crate::socket::Protocol;
use crate::sys::AF_INET;
use abi::errno::{EADDRNOTAVAIL, EINVAL, ENODEV, ENOENT, ENOTTY, EOPNOTSUPP, EPERM};
use abi::{Result, Va};
use vfs::Caps;
use vfs::file::IoctlContext;

const FIONREAD: u32 = 0x541B;
const SIOCOUTQ: u32 = 0x5411;
const SIOCATMARK: u32 = 0x8905;
const SIOCGSTAMP: u32 = 0x8906;
const SIOCGSTAMPNS: u32 = 0x8907;
const SIOCADDRT: u32 = 0x890B;
const SIOCDELRT: u32 = 0x890C;
const SIOCGIFNAME: u32 = 0x8910;
const SIOCGIFCONF: u32 = 0x8912;
const SIOCGIFFLAGS: u32 = 0x8913;
const SIOCSIFFLAGS: u32 = 0x8914;
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
const IFF_UP_LOOPBACK_RUNNING: u16 = 0x49;
const IFF_LOOPBACK: u16 = 0x8;

fn inet(a: [u8; 4]) -> [u8; 16] {
    let mut v = [0; 16];
    v[..2].copy_from_slice(&AF_INET.to_le_bytes());
    v[4..8].copy_from_slice(&a);
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
        SIOCATMARK if common.kind == crate::sys::SOCK_STREAM => return int(0),
        SIOCGSTAMP | SIOCGSTAMPNS => return Err(ENOENT),
        SIOCGIFCONF => return conf(common, cx, out),
        0x8900..=0x89FF => {}
        _ => return Err(ENOTTY),
    }
    if matches!(cmd, SIOCADDRT | SIOCDELRT) {
        let admin = cx.credentials().has_in(&common.ns.user, Caps::NET_ADMIN);
        return Err(if admin { EOPNOTSUPP } else { EPERM });
    }
    let mut req = [0; IFREQ];
    cx.copy_in(out, &mut req)?;
    if cmd == SIOCGIFNAME {
        if i32::from_le_bytes([req[16], req[17], req[18], req[19]]) != LO_INDEX {
            return Err(ENODEV);
        }
        req[..16].fill(0);
        req[..2].copy_from_slice(b"lo");
        return cx.copy_out(out, &req).map(|()| 0);
    }
    let end = req[..16].iter().position(|&b| b == 0).unwrap_or(15);
    if &req[..end] != b"lo" {
        return Err(ENODEV);
    }
    let mut put = |v: &[u8]| {
        req[16..].fill(0);
        req[16..16 + v.len()].copy_from_slice(v);
    };
    match cmd {
        SIOCGIFFLAGS => {
            let flags = if common.ns.is_up() {
                IFF_UP_LOOPBACK_RUNNING
            } else {
                IFF_LOOPBACK
            };
            put(&flags.to_le_bytes());
        }
        SIOCSIFFLAGS => {
            let up = req[16] & 1 != 0;
            return match (
                cx.credentials().has_in(&common.ns.user, Caps::NET_ADMIN),
                up,
            ) {
                (false, _) => Err(EPERM),
                (true, up) => {
                    common.ns.set_up(up);
                    Ok(0)
                }
            };
        }
        SIOCGIFADDR | SIOCGIFDSTADDR | SIOCGIFBRDADDR | SIOCGIFNETMASK
            if common.family != AF_INET =>
        {
            return Err(if common.family == crate::sys::AF_INET6 {
                EINVAL
            } else {
                EADDRNOTAVAIL
            });
        }
        SIOCGIFADDR | SIOCGIFDSTADDR | SIOCGIFBRDADDR | SIOCGIFNETMASK
            if !common.ns.has_addresses() =>
        {
            return Err(EADDRNOTAVAIL);
        }
        SIOCGIFADDR | SIOCGIFDSTADDR => put(&inet([127, 0, 0, 1])),
        SIOCGIFBRDADDR => put(&inet([0; 4])),
        SIOCGIFNETMASK => put(&inet([255, 0, 0, 0])),
        SIOCGIFMETRIC | SIOCGIFMAP => put(&[0; 4]),
        SIOCGIFMTU => put(&65536i32.to_le_bytes()),
        SIOCGIFHWADDR => put(&772u16.to_le_bytes()),
        SIOCGIFINDEX => put(&LO_INDEX.to_le_bytes()),
        SIOCGIFTXQLEN => put(&1000i32.to_le_bytes()),
        SIOCETHTOOL => return Err(EOPNOTSUPP),
        _ if !cx.credentials().has_in(&common.ns.user, Caps::NET_ADMIN) => return Err(EPERM),
        _ => return Err(EOPNOTSUPP),
    }
    cx.copy_out(out, &req).map(|()| 0)
}

/// SIOCGIFCONF: the interfaces that have an IPv4 address.
fn conf(common: &Common, cx: &dyn IoctlContext, at: Va) -> Result<u64> {
    let mut c = [0; 16];
    cx.copy_in(at, &mut c)?;
    let room = i32::from_le_bytes([c[0], c[1], c[2], c[3]]);
    let mut buf = [0; 8];
    buf.copy_from_slice(&c[8..]);
    let buf = u64::from_le_bytes(buf);
    let mut len = 0i32;
    if !common.ns.has_addresses() {
        len = 0;
    } else if buf == 0 {
        len = IFREQ as i32;
    } else if room >= IFREQ as i32 {
        let mut req = [0; IFREQ];
        req[..2].copy_from_slice(b"lo");
        req[16..32].copy_from_slice(&inet([127, 0, 0, 1]));
        cx.copy_out(Va(buf), &req)?;
        len = IFREQ as i32;
    }
    cx.copy_out(at, &len.to_le_bytes())?;
    Ok(0)
}
