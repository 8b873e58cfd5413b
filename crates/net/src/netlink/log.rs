//! Packets that rules tell of, as netlink speaks of them (`NFNL_SUBSYS_ULOG`): a socket binds a
//! group, and is sent a message for each packet that a rule has logged there.

use super::message::{Builder, Request};
use super::{Netlink, sockaddr};
use crate::control::Ucred;
use crate::msgqueue::{Msg, MsgQueue};
use abi::Result;
use abi::errno::{EINVAL, ENOMEM, EOPNOTSUPP, EPERM};
use netfilter::attr::Bag;
use netfilter::log::Sink;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use vfs::ucounts::{Charge, Kind};

pub(super) const SUBSYSTEM: u8 = 4;
pub(super) const CONFIG: u8 = 1;
const PACKET: u16 = 0;

/// `NFULNL_CFG_CMD_*`.
const BIND: u8 = 1;
const UNBIND: u8 = 2;
const BIND_FAMILY: u8 = 3;
const UNBIND_FAMILY: u8 = 4;
/// `NFULNL_CFG_F_*`: with what is known of a packet's connection.
const WITH_CONNECTIONS: u16 = 4;
/// What a group takes of memory.
const GROUP: u64 = 512;

/// A socket's groups, as long as it is open.
pub(super) struct Listening {
    rx: Arc<MsgQueue>,
    _memory: Option<Charge>,
}

impl Sink for Listening {
    fn take(&self, group: u16, family: u8, attrs: &[u8]) {
        let nobody = Request {
            kind: 0,
            flags: 0,
            seq: 0,
            whole: &[],
        };
        let kind = u16::from(SUBSYSTEM) << 8 | PACKET;
        let data = Builder::new(kind, 0, &nobody, 0)
            .bytes(&[family, 0])
            .bytes(&group.to_be_bytes())
            .bytes(attrs)
            .finish();
        self.rx.push(Msg {
            data,
            cred: Ucred::default(),
            files: None,
            from: sockaddr(0, 0),
            shown: false,
        });
    }
}

impl Netlink {
    /// Binds a group, lets it go, or says what is to be told (`nfulnl_recv_config`).
    pub(super) fn log_config(&self, req: &Request<'_>, attrs: &[u8]) -> Result<()> {
        let b = Bag::new(attrs);
        let group = req.body().get(2..4).ok_or(EINVAL)?;
        let group = u16::from_be_bytes([group[0], group[1]]);
        let (logs, own) = (&self.common.ns.rules.logs, self.common.ino);
        let command = b.byte(1)?;
        if let Some(BIND_FAMILY | UNBIND_FAMILY) = command {
            // (All families' packets are told of to who has the group that a rule names.)
            return match req.family() {
                0..13 => Ok(()),
                _ => Err(EINVAL),
            };
        }
        if logs.is_anothers(group, own) {
            return Err(EPERM);
        }
        let flags = b.be16(6)?;
        if flags.is_some_and(|f| f & WITH_CONNECTIONS != 0) {
            return Err(EOPNOTSUPP);
        }
        match command {
            Some(BIND) => self.bind_group(group)?,
            Some(UNBIND) => return self.unbind_group(group),
            Some(_) => return Err(EOPNOTSUPP),
            None => {}
        }
        let found = logs.of(group, own)?;
        if let Some(mode) = b.get(2) {
            let [a, b, c, d, mode, ..] = *mode else {
                return Err(EINVAL);
            };
            found.set_mode(mode, u32::from_be_bytes([a, b, c, d]));
        }
        if let Some(f) = flags {
            found.set_flags(f);
        }
        // (How long messages may wait for others, and how many: none does.)
        for kind in [3, 4, 5] {
            b.be32(kind)?;
        }
        Ok(())
    }

    fn bind_group(&self, group: u16) -> Result<()> {
        const MOST_GROUPS: usize = 256;
        let mut all = self.listening.lock();
        if all.len() >= MOST_GROUPS {
            return Err(ENOMEM);
        }
        let memory = match self.common.user.get() {
            Some(u) => Some(u.charge(Kind::Kmem, GROUP, u64::MAX).ok_or(ENOMEM)?),
            None => None,
        };
        let new = Arc::new(Listening {
            rx: self.rx.clone(),
            _memory: memory,
        });
        let weak: Weak<Listening> = Arc::downgrade(&new);
        let (logs, own) = (&self.common.ns.rules.logs, self.common.ino);
        logs.bind(group, own, weak)?;
        all.push((group, new));
        Ok(())
    }

    fn unbind_group(&self, group: u16) -> Result<()> {
        let (logs, own) = (&self.common.ns.rules.logs, self.common.ino);
        // (In one step with what another thread binds: `listening` and the logs say the same.)
        let mut all = self.listening.lock();
        logs.unbind(group, own)?;
        all.retain(|(n, _)| *n != group);
        Ok(())
    }

    /// The socket is closed: its groups are nobody's.
    pub(super) fn close_groups(&self) {
        if self.member.groups.load(Ordering::Relaxed) != 0 {
            self.set_groups(0);
        }
        if !self.listening.lock().is_empty() {
            self.common.ns.rules.logs.forget(self.common.ino);
            self.listening.lock().clear();
        }
    }
}
