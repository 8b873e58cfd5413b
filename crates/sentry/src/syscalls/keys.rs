//! Keys: add_key, request_key, keyctl (`security/keys/keyctl.c`; the work is the `keys` crate's).

use super::SysResult;
use super::args::*;
use crate::task::Context;
use abi::errno::*;
use abi::{Result, Va};
use keys::{Callout, Create, Move, Type};

/// The longest name of a type, and description, with their ends.
const TYPE_MAX: usize = 32;
const DESCRIPTION_MAX: usize = 4096;
const PAGE: usize = abi::PAGE_SIZE as usize;
/// The most that a key may be given.
const PAYLOAD_MAX: usize = (1 << 20) - 1;

named! {
    /// What keyctl(2) does.
    struct KeyctlOp(i32) {
        KEYCTL_GET_KEYRING_ID = 0,
        KEYCTL_JOIN_SESSION_KEYRING = 1,
        KEYCTL_UPDATE = 2,
        KEYCTL_REVOKE = 3,
        KEYCTL_CHOWN = 4,
        KEYCTL_SETPERM = 5,
        KEYCTL_DESCRIBE = 6,
        KEYCTL_CLEAR = 7,
        KEYCTL_LINK = 8,
        KEYCTL_UNLINK = 9,
        KEYCTL_SEARCH = 10,
        KEYCTL_READ = 11,
        KEYCTL_INSTANTIATE = 12,
        KEYCTL_NEGATE = 13,
        KEYCTL_SET_REQKEY_KEYRING = 14,
        KEYCTL_SET_TIMEOUT = 15,
        KEYCTL_ASSUME_AUTHORITY = 16,
        KEYCTL_GET_SECURITY = 17,
        KEYCTL_SESSION_TO_PARENT = 18,
        KEYCTL_REJECT = 19,
        KEYCTL_INSTANTIATE_IOV = 20,
        KEYCTL_INVALIDATE = 21,
        KEYCTL_GET_PERSISTENT = 22,
        KEYCTL_DH_COMPUTE = 23,
        KEYCTL_PKEY_QUERY = 24,
        KEYCTL_PKEY_ENCRYPT = 25,
        KEYCTL_PKEY_DECRYPT = 26,
        KEYCTL_PKEY_SIGN = 27,
        KEYCTL_PKEY_VERIFY = 28,
        KEYCTL_RESTRICT_KEYRING = 29,
        KEYCTL_MOVE = 30,
        KEYCTL_CAPABILITIES = 31,
        KEYCTL_WATCH_KEY = 32,
    }
}

/// What `KEYCTL_CAPABILITIES` tells: persistent keyrings, big keys, invalidation, restrictions and
/// moves; names of keyrings and tags of keys are namespaces'.
const CAPABILITIES: [u8; 2] = [0xf3, 0x03];

/// A string of at most `max` bytes with its end (`strndup_user`).
fn string(cx: &Context, at: Va, max: usize) -> Result<Vec<u8>> {
    let e = |e| if e == ENAMETOOLONG { EINVAL } else { e };
    cx.mm().read_cstr(at, max).map_err(e)
}

/// A type's name (`key_get_type_from_user`).
fn type_name(cx: &Context, at: Va) -> Result<Vec<u8>> {
    let name = string(cx, at, TYPE_MAX)?;
    Type::check_name(&name)?;
    Ok(name)
}

fn description(cx: &Context, at: Va) -> Result<Vec<u8>> {
    string(cx, at, DESCRIPTION_MAX)
}

fn payload(cx: &Context, at: Va, len: usize) -> Result<Vec<u8>> {
    let mut bytes = vec![0; len];
    cx.mm().copy_in(at, &mut bytes)?;
    Ok(bytes)
}

/// `add_key(type, description, payload, plen, keyring)`.
fn add_key(
    cx: &mut Context,
    kind: StrPtr,
    name: Option<StrPtr>,
    bytes: BytesIn,
    ring: i32,
) -> SysResult {
    if bytes.len > PAYLOAD_MAX {
        return Err(EINVAL);
    }
    let kind = type_name(cx, kind.0)?;
    let name = match name {
        Some(n) => description(cx, n.0)?,
        None => Vec::new(),
    };
    if name.first() == Some(&b'.') && kind.starts_with(b"keyring") {
        return Err(EPERM);
    }
    let bytes = payload(cx, bytes.va, bytes.len)?;
    let k = cx.with_keys(|a| a.add(&kind, &name, bytes, ring))?;
    Ok(k as usize)
}

/// `request_key(type, description, callout_info, dest_keyring)`.
fn request_key(
    cx: &mut Context,
    kind: StrPtr,
    name: StrPtr,
    callout: Option<StrPtr>,
    ring: i32,
) -> SysResult {
    let kind = type_name(cx, kind.0)?;
    let name = description(cx, name.0)?;
    let callout = match callout {
        None => Callout::None,
        Some(at) => string(cx, at.0, PAGE).map(|_| Callout::Given)?,
    };
    let k = cx.with_keys(|a| a.request(&kind, &name, callout, ring))?;
    Ok(k as usize)
}

/// `keyctl(operation, arg2, arg3, arg4, arg5)`.
fn keyctl(cx: &mut Context, op: KeyctlOp, a: u64, b: u64, c: u64, d: u64) -> SysResult {
    use KeyctlOp as O;
    let (id, to, seconds) = (a as i32, b as i32, b as u32);
    let create = if b as i32 != 0 {
        Create::Yes
    } else {
        Create::No
    };
    let number = |r: Result<i32>| r.map(|n| n as usize);
    let done = |r: Result<()>| r.map(|()| 0);
    match op {
        O::KEYCTL_GET_KEYRING_ID => number(cx.with_keys(|k| k.keyring_id(id, create))),
        O::KEYCTL_JOIN_SESSION_KEYRING => join(cx, Va(a)),
        O::KEYCTL_UPDATE => update(cx, id, Va(b), c as usize),
        O::KEYCTL_REVOKE => done(cx.with_keys(|k| k.revoke(id))),
        O::KEYCTL_CHOWN => chown(cx, id, b as u32, c as u32),
        O::KEYCTL_SETPERM => done(cx.with_keys(|k| k.set_permissions(id, b as u32))),
        O::KEYCTL_DESCRIBE => describe(cx, id, Va(b), c as usize),
        O::KEYCTL_CLEAR => done(cx.with_keys(|k| k.clear(id))),
        O::KEYCTL_LINK => done(cx.with_keys(|k| k.link(id, to))),
        O::KEYCTL_UNLINK => done(cx.with_keys(|k| k.unlink(id, to))),
        O::KEYCTL_SEARCH => {
            let (kind, name) = (type_name(cx, Va(b))?, description(cx, Va(c))?);
            number(cx.with_keys(|k| k.find(id, &kind, &name, d as i32)))
        }
        O::KEYCTL_READ => read(cx, id, Va(b), c as usize),
        O::KEYCTL_SET_REQKEY_KEYRING => number(cx.with_keys(|k| k.set_destination(id))),
        O::KEYCTL_SET_TIMEOUT => done(cx.with_keys(|k| k.set_timeout(id, seconds))),
        O::KEYCTL_GET_SECURITY => security(cx, id, Va(b), c as usize),
        O::KEYCTL_SESSION_TO_PARENT => done(cx.task.give_session_to_parent()),
        O::KEYCTL_INVALIDATE => done(cx.with_keys(|k| k.invalidate(id))),
        O::KEYCTL_GET_PERSISTENT => {
            let uid = named_id(a as u32, |n| cx.cred().user_ns.uid_from(n))?;
            number(cx.with_keys(|k| k.persistent_of(uid, to)))
        }
        O::KEYCTL_RESTRICT_KEYRING => restrict(cx, id, Va(b), Va(c)),
        O::KEYCTL_MOVE => {
            let how = match d {
                0 => Move::Replace,
                1 => Move::Exclusive,
                _ => return Err(EINVAL),
            };
            done(cx.with_keys(|k| k.move_link(id, to, c as i32, how)))
        }
        O::KEYCTL_CAPABILITIES => capabilities(cx, Va(a), b as usize),
        _ => construct(op, [a, b, c]),
    }
}

/// What a program would do that makes keys on request, which has no right to it where nobody asked
/// it; and what this kernel does not have.
fn construct(op: KeyctlOp, [a, _, c]: [u64; 3]) -> SysResult {
    use KeyctlOp as O;
    match op {
        O::KEYCTL_INSTANTIATE if c as usize > PAYLOAD_MAX => Err(EINVAL),
        O::KEYCTL_REJECT => match i32::try_from(c as u32).ok().and_then(abi::Errno::new) {
            Some(e) if e.raw() < 4095 && !e.is_restart() => Err(EPERM),
            _ => Err(EINVAL),
        },
        O::KEYCTL_INSTANTIATE | O::KEYCTL_INSTANTIATE_IOV | O::KEYCTL_NEGATE => Err(EPERM),
        O::KEYCTL_ASSUME_AUTHORITY => match a as i32 {
            0 => Ok(0),
            ..0 => Err(EINVAL),
            _ => Err(ENOKEY),
        },
        _ => Err(EOPNOTSUPP),
    }
}

fn join(cx: &Context, name: Va) -> SysResult {
    let name = match name.is_null() {
        true => None,
        false => Some(description(cx, name)?),
    };
    match name.as_ref().map(|n| n.first()) {
        Some(Some(b'.')) => return Err(EPERM),
        Some(None) => return Err(EINVAL),
        _ => {}
    }
    let k = cx.with_keys(|k| k.join_session(name.as_deref()))?;
    Ok(k as usize)
}

fn update(cx: &Context, id: i32, at: Va, len: usize) -> SysResult {
    if len > PAGE {
        return Err(EINVAL);
    }
    let bytes = payload(cx, at, len)?;
    cx.with_keys(|k| k.update(id, bytes)).map(|()| 0)
}

/// An id of the initial user namespace; `None` for -1.
fn named_id(n: u32, from: impl FnOnce(u32) -> Result<u32>) -> Result<Option<u32>> {
    match n {
        u32::MAX => Ok(None),
        n => from(n).map(Some).map_err(|_| EINVAL),
    }
}

fn chown(cx: &Context, id: i32, user: u32, group: u32) -> SysResult {
    let ns = &cx.cred().user_ns;
    let uid = named_id(user, |n| ns.uid_from(n))?;
    let gid = named_id(group, |n| ns.gid_from(n))?;
    if uid.is_none() && gid.is_none() {
        return Ok(0);
    }
    cx.with_keys(|k| k.chown(id, uid, gid)).map(|()| 0)
}

/// Copies out what fits as a whole; gives how long it is.
fn give(cx: &Context, bytes: &[u8], at: Va, len: usize) -> SysResult {
    if !at.is_null() && bytes.len() <= len {
        cx.mm().copy_out(at, bytes)?;
    }
    Ok(bytes.len())
}

fn describe(cx: &Context, id: i32, at: Va, len: usize) -> SysResult {
    let mut text = cx.with_keys(|k| k.describe(id))?;
    text.push(0);
    give(cx, &text, at, len)
}

fn read(cx: &Context, id: i32, at: Va, len: usize) -> SysResult {
    let len = if at.is_null() { 0 } else { len };
    let bytes = cx.with_keys(|k| k.read(id, len))?;
    give(cx, &bytes, at, len)
}

/// An empty label, as where no module gives any.
fn security(cx: &Context, id: i32, at: Va, len: usize) -> SysResult {
    cx.with_keys(|k| k.may_view(id))?;
    give(cx, &[0], at, len)
}

fn restrict(cx: &Context, id: i32, kind: Va, restriction: Va) -> SysResult {
    cx.with_keys(|k| k.may_restrict(id))?;
    if kind.is_null() != restriction.is_null() {
        return Err(EINVAL);
    }
    let kind = match kind.is_null() {
        true => None,
        false => {
            let kind = type_name(cx, kind)?;
            string(cx, restriction, PAGE)?;
            Some(kind)
        }
    };
    cx.with_keys(|k| k.restrict(id, kind.as_deref()))
        .map(|()| 0)
}

fn capabilities(cx: &Context, at: Va, len: usize) -> SysResult {
    let n = len.min(CAPABILITIES.len());
    let mm = cx.mm();
    mm.copy_out(at, &CAPABILITIES[..n])?;
    const ZEROS: [u8; 256] = [0; 256];
    let mut done = n;
    while done < len {
        let piece = ZEROS.len().min(len - done);
        mm.copy_out(at.offset(done as u64), &ZEROS[..piece])?;
        done += piece;
    }
    Ok(CAPABILITIES.len())
}

calls! {
    add_key: "types keyring, user, logon and big_key",
    request_key: "no program makes keys on request, as where there is none",
    keyctl: "DH_COMPUTE, PKEY_* and WATCH_KEY are EOPNOTSUPP; no type restricts keyrings; a call \
        looks at 1024 keyrings at most (SEARCH: ENOMEM, LINK: ELOOP)",
}
