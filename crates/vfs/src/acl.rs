//! POSIX access control lists (`acl(5)`, `fs/posix_acl.c`): rights of further users and groups.
//!
//! A list that says more than the mode has a mask, and then the mode's group bits are the mask, its
//! other bits the list's. Both are taken from the mode, so that chmod(2) need not change the list.
//! Lists come from the host with its files; they cannot be set here.

use crate::cred::Credentials;
use crate::mode::{FileType, Perm, Want, capable_over, generic_permission};
use abi::Result;
use abi::errno::EACCES;
use std::sync::Arc;

/// What a list says beyond the mode. Rights are a mode's three bits.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Acl {
    users: Vec<(u32, u32)>,
    groups: Vec<(u32, u32)>,
    /// Of the file's group.
    group: u32,
}

const VERSION: u32 = 2;
const USER: u16 = 0x02;
const GROUP_OBJ: u16 = 0x04;
const GROUP: u16 = 0x08;
const MASK: u16 = 0x10;
/// Entries of a list; Linux's file systems have room for some hundred.
const MAX_ENTRIES: usize = 8192;

impl Acl {
    /// From the attribute's bytes, with ids as the sandbox has them. `None` for a list that says
    /// what the mode says, or that is none.
    #[must_use]
    pub fn decode(raw: &[u8], uid: impl Fn(u32) -> u32, gid: impl Fn(u32) -> u32) -> Option<Acl> {
        let (version, entries) = raw.split_first_chunk::<4>()?;
        if u32::from_le_bytes(*version) != VERSION || entries.len() > MAX_ENTRIES * 8 {
            return None;
        }
        let mut acl = Acl::default();
        let mut masked = false;
        for e in entries.chunks_exact(8) {
            let tag = u16::from_le_bytes([e[0], e[1]]);
            let bits = u32::from(u16::from_le_bytes([e[2], e[3]]) & 7);
            let id = u32::from_le_bytes([e[4], e[5], e[6], e[7]]);
            match tag {
                USER => acl.users.push((uid(id), bits)),
                GROUP => acl.groups.push((gid(id), bits)),
                GROUP_OBJ => acl.group = bits,
                MASK => masked = true,
                _ => {}
            }
        }
        masked.then_some(acl)
    }

    /// The mode for a copy of the file that has no list: its group gets no more than it had.
    #[must_use]
    pub fn without(&self, mode: u32) -> u32 {
        mode & !0o070 | (mode & 0o070 & self.group << 3)
    }

    /// Whether somebody who is not the file's owner has these rights (`posix_acl_permission`).
    fn allows(&self, p: Perm, cred: &Credentials, want: u32) -> bool {
        let mask = p.mode >> 3 & 7;
        if let Some((_, bits)) = self.users.iter().find(|(u, _)| *u == cred.fsuid) {
            return bits & mask & want == want;
        }
        let of_file = cred.in_group(p.gid).then_some(self.group);
        let named = self.groups.iter().filter(|(g, _)| cred.in_group(*g));
        let mut mine = of_file
            .into_iter()
            .chain(named.map(|(_, bits)| *bits))
            .peekable();
        if mine.peek().is_none() {
            return p.mode & want == want;
        }
        // The first that would do, under the mask.
        mine.find(|bits| bits & want == want)
            .is_some_and(|bits| bits & mask & want == want)
    }
}

/// As [`generic_permission`], for a file that may have a list (`acl_permission_check`). It is asked
/// for only where it counts: not for the owner, nor for a caller that has the right by a
/// capability.
pub fn acl_permission(
    p: Perm,
    kind: FileType,
    cred: &Credentials,
    want: Want,
    acl: impl FnOnce() -> Option<Arc<Acl>>,
) -> Result<()> {
    if cred.fsuid == p.uid || p.mode & 0o070 == 0 || capable_over(p, kind, cred, want) {
        return generic_permission(p, kind, cred, want);
    }
    match acl() {
        Some(a) if a.allows(p, cred, want.bits()) => Ok(()),
        Some(_) => Err(EACCES),
        None => generic_permission(p, kind, cred, want),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NONE: u32 = u32::MAX;

    fn list(entries: &[(u16, u16, u32)]) -> Option<Acl> {
        let mut raw = 2u32.to_le_bytes().to_vec();
        for (tag, bits, id) in entries {
            raw.extend(tag.to_le_bytes());
            raw.extend(bits.to_le_bytes());
            raw.extend(id.to_le_bytes());
        }
        Acl::decode(&raw, |u| u, |g| g)
    }

    #[test]
    fn users_then_groups_then_others() {
        let acl = list(&[
            (1, 6, NONE),
            (USER, 7, 10),
            (USER, 0, 11),
            (GROUP_OBJ, 4, NONE),
            (GROUP, 6, 30),
            (MASK, 6, NONE),
            (0x20, 4, NONE),
        ])
        .unwrap();
        let p = Perm {
            mode: 0o664,
            uid: 1,
            gid: 20,
        };
        let may = |uid, gid, groups: &[u32], want| {
            let c = Credentials::user(uid, gid, groups.to_vec());
            acl_permission(p, FileType::Regular, &c, want, || {
                Some(Arc::new(acl.clone()))
            })
            .is_ok()
        };
        let (r, w, x) = (Want::READ, Want::WRITE, Want::EXEC);
        assert!(may(10, 10, &[], r | w) && !may(10, 10, &[], x));
        assert!(!may(11, 20, &[30], r), "a user's own entry counts alone");
        assert!(may(12, 20, &[], r) && !may(12, 20, &[], w));
        assert!(may(12, 20, &[30], r | w), "any group's entry may do");
        assert!(may(12, 12, &[], r) && !may(12, 12, &[], w));
        assert!(may(1, 1, &[], r | w) && may(0, 0, &[], r | w));
        assert_eq!(acl.without(0o664), 0o644);
    }

    #[test]
    fn what_is_no_list_says_nothing() {
        assert_eq!(
            list(&[(1, 6, NONE), (GROUP_OBJ, 4, NONE), (0x20, 4, NONE)]),
            None
        );
        assert_eq!(Acl::decode(b"", |u| u, |g| g), None);
        assert_eq!(Acl::decode(&[1, 0, 0, 0], |u| u, |g| g), None);
        assert!(
            Acl::decode(
                &[2, 0, 0, 0, 0x10, 0, 0xff, 0xff, 0, 0, 0, 0, 9],
                |u| u,
                |g| g
            )
            .is_some()
        );
    }
}
