//! Changing ids (`kernel/sys.c`), and what capabilities follow (`cap_emulate_setxuid`).

use super::Task;
use abi::Result;
use abi::errno::{EINVAL, EPERM};
use vfs::{Caps, Credentials};

/// `u32::MAX` in a set*id argument: leave it.
pub const KEEP: u32 = u32::MAX;

const KEEP_CAPS: u32 = 1 << 4;
const NO_SETUID_FIXUP: u32 = 1 << 2;

/// Capabilities after the uids changed.
fn fix_capabilities(old: &Credentials, new: &mut Credentials) {
    if new.securebits & NO_SETUID_FIXUP != 0 {
        return;
    }
    // Root is whom the user namespace calls so.
    let root = old.user_ns.root_uid();
    let had_root = [old.uid, old.euid, old.suid].contains(&root);
    let has_root = [new.uid, new.euid, new.suid].contains(&root);
    if had_root && !has_root {
        if new.securebits & KEEP_CAPS == 0 {
            new.permitted = Caps::empty();
            new.effective = Caps::empty();
        }
        new.ambient = Caps::empty();
    }
    if old.euid == root && new.euid != root {
        new.effective = Caps::empty();
    }
    if old.euid != root && new.euid == root {
        new.effective = new.permitted;
    }
}

fn commit(t: &Task, old: &Credentials, mut new: Credentials) {
    fix_capabilities(old, &mut new);
    t.commit_cred(new);
}

pub fn setuid(t: &Task, uid: u32) -> Result<()> {
    if uid == KEEP {
        return Err(EINVAL);
    }
    let old = t.cred();
    let mut new = (*old).clone();
    if old.has_own(Caps::SETUID) {
        new.uid = uid;
        new.suid = uid;
    } else if uid != old.uid && uid != old.suid {
        return Err(EPERM);
    }
    new.euid = uid;
    new.fsuid = uid;
    commit(t, &old, new);
    Ok(())
}

pub fn setgid(t: &Task, gid: u32) -> Result<()> {
    if gid == KEEP {
        return Err(EINVAL);
    }
    let old = t.cred();
    let mut new = (*old).clone();
    if old.has_own(Caps::SETGID) {
        new.gid = gid;
        new.sgid = gid;
    } else if gid != old.gid && gid != old.sgid {
        return Err(EPERM);
    }
    new.egid = gid;
    new.fsgid = gid;
    commit(t, &old, new);
    Ok(())
}

pub fn setreuid(t: &Task, r: u32, e: u32) -> Result<()> {
    let old = t.cred();
    let mut new = (*old).clone();
    let cap = old.has_own(Caps::SETUID);
    if r != KEEP {
        if !cap && r != old.uid && r != old.euid {
            return Err(EPERM);
        }
        new.uid = r;
    }
    if e != KEEP {
        if !cap && e != old.uid && e != old.euid && e != old.suid {
            return Err(EPERM);
        }
        new.euid = e;
    }
    if r != KEEP || (e != KEEP && e != old.uid) {
        new.suid = new.euid;
    }
    new.fsuid = new.euid;
    commit(t, &old, new);
    Ok(())
}

pub fn setregid(t: &Task, r: u32, e: u32) -> Result<()> {
    let old = t.cred();
    let mut new = (*old).clone();
    let cap = old.has_own(Caps::SETGID);
    if r != KEEP {
        if !cap && r != old.gid && r != old.egid {
            return Err(EPERM);
        }
        new.gid = r;
    }
    if e != KEEP {
        if !cap && e != old.gid && e != old.egid && e != old.sgid {
            return Err(EPERM);
        }
        new.egid = e;
    }
    if r != KEEP || (e != KEEP && e != old.gid) {
        new.sgid = new.egid;
    }
    new.fsgid = new.egid;
    commit(t, &old, new);
    Ok(())
}

pub fn setresuid(t: &Task, r: u32, e: u32, s: u32) -> Result<()> {
    let old = t.cred();
    let mut new = (*old).clone();
    let ok =
        |id| id == KEEP || old.has_own(Caps::SETUID) || [old.uid, old.euid, old.suid].contains(&id);
    if !(ok(r) && ok(e) && ok(s)) {
        return Err(EPERM);
    }
    if r != KEEP {
        new.uid = r;
    }
    if e != KEEP {
        new.euid = e;
    }
    if s != KEEP {
        new.suid = s;
    }
    new.fsuid = new.euid;
    commit(t, &old, new);
    Ok(())
}

pub fn setresgid(t: &Task, r: u32, e: u32, s: u32) -> Result<()> {
    let old = t.cred();
    let mut new = (*old).clone();
    let ok =
        |id| id == KEEP || old.has_own(Caps::SETGID) || [old.gid, old.egid, old.sgid].contains(&id);
    if !(ok(r) && ok(e) && ok(s)) {
        return Err(EPERM);
    }
    if r != KEEP {
        new.gid = r;
    }
    if e != KEEP {
        new.egid = e;
    }
    if s != KEEP {
        new.sgid = s;
    }
    new.fsgid = new.egid;
    commit(t, &old, new);
    Ok(())
}

/// `setfsuid(2)`: gives the old one, whether it changed or not.
pub fn setfsuid(t: &Task, uid: u32) -> u32 {
    let old = t.cred();
    if old.has_own(Caps::SETUID) || [old.uid, old.euid, old.suid, old.fsuid].contains(&uid) {
        let mut new = (*old).clone();
        new.fsuid = uid;
        // Capabilities that bypass file permissions follow (`cap_emulate_setxuid`'s fsuid rule).
        let fs_caps = Caps::CHOWN
            | Caps::DAC_OVERRIDE
            | Caps::DAC_READ_SEARCH
            | Caps::FOWNER
            | Caps::FSETID
            | Caps::LINUX_IMMUTABLE
            | Caps::MKNOD;
        let root = old.user_ns.root_uid();
        let fixed = new.securebits & NO_SETUID_FIXUP == 0;
        if fixed && old.fsuid == root && uid != root {
            new.effective.remove(fs_caps);
        } else if fixed && old.fsuid != root && uid == root {
            new.effective |= new.permitted & fs_caps;
        }
        t.commit_cred(new);
    }
    old.fsuid
}

pub fn setfsgid(t: &Task, gid: u32) -> u32 {
    let old = t.cred();
    if old.has_own(Caps::SETGID) || [old.gid, old.egid, old.sgid, old.fsgid].contains(&gid) {
        let mut new = (*old).clone();
        new.fsgid = gid;
        t.commit_cred(new);
    }
    old.fsgid
}
