//! Who may do what with a key (`security/keys/permission.c`).

use crate::act::Act;
use crate::key::*;
use abi::Result;
use abi::errno::{EACCES, EKEYEXPIRED, EKEYREVOKED, ENOKEY};
use vfs::userns::INVALID;

/// A key, and whether the task possesses it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Ref {
    pub serial: Serial,
    pub possessed: bool,
}

impl Ref {
    pub fn possessed(serial: Serial) -> Ref {
        Ref {
            serial,
            possessed: true,
        }
    }
    pub fn not_possessed(serial: Serial) -> Ref {
        Ref {
            serial,
            possessed: false,
        }
    }
}

impl Act<'_> {
    /// Whether the task has these permissions (`key_task_permission`): `EACCES`.
    pub(crate) fn permits(&self, r: Ref, rights: u32) -> Result<()> {
        let key = self.state.key(r.serial)?;
        let all = key.permissions;
        let in_group = || {
            key.gid != INVALID
                && all & (SETATTR | LINK | SEARCH | WRITE | READ | VIEW) << GROUP != 0
                && self.cred.in_group(key.gid)
        };
        let mut has = match () {
            () if key.uid == self.cred.fsuid => all >> USER,
            () if in_group() => all >> GROUP,
            () => all,
        };
        if r.possessed {
            has |= all >> POSSESSOR;
        }
        if has & rights == rights {
            Ok(())
        } else {
            Err(EACCES)
        }
    }
    /// Whether a key is of use (`key_validate`).
    pub(crate) fn validate(&self, k: Serial) -> Result<()> {
        let key = self.state.key(k)?;
        match () {
            () if key.invalidated => Err(ENOKEY),
            () if key.revoked => Err(EKEYREVOKED),
            () if key.has_expired(self.now) => Err(EKEYEXPIRED),
            () => Ok(()),
        }
    }
}
