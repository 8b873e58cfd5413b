//! Landlock (`landlock(7)`, Linux's `security/landlock/syscalls.c`): rulesets are made, filled, and
//! enforced on the caller. What they mean is [`vfs::landlock`].

use super::SysResult;
use super::args::*;
use crate::task::Context;
use abi::errno::*;
use abi::linux::{O_CLOEXEC, O_RDWR};
use abi::{Result, Va};
use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use vfs::file::{File, FileOps, anon_stat};
use vfs::landlock::{ABI, Domain, FsAccess, Handled, NetAccess, Ruleset, Scope};
use vfs::ucounts::Charge;
use vfs::{Caps, Credentials, Stat};
use zerocopy::IntoBytes;

flags! {
    /// Of landlock_create_ruleset(2): questions, one at a time.
    struct RulesetFlags: u32, kept {
        LANDLOCK_CREATE_RULESET_VERSION = 1,
        LANDLOCK_CREATE_RULESET_ERRATA = 2,
    }
}

named! {
    /// What a rule is about.
    struct RuleType(u32) {
        LANDLOCK_RULE_PATH_BENEATH = 1,
        LANDLOCK_RULE_NET_PORT = 2,
    }
}

/// The errors of Linux's that are not here: sockets that are not TCP's have no ports, threads of a
/// process may signal each other, and a directory that was moved out of a mount is the mount's.
const ERRATA: usize = 0b111;

/// A ruleset as an open file.
struct RulesetFile(Ruleset);

impl FileOps for RulesetFile {
    fn stat(&self) -> Result<Stat> {
        Ok(anon_stat())
    }
    fn as_any(&self) -> &dyn Any {
        self
    }
    fn describe(&self) -> String {
        "anon_inode:[landlock-ruleset]".into()
    }
}

fn charging(cred: &Credentials) -> impl Fn(usize) -> Result<Charge> {
    |bytes| cred.kmem(bytes, ENOMEM)
}

/// The rights that a word names; `EINVAL` for what there is not.
fn rights<T: bitflags::Flags<Bits = u16>>(word: u64) -> Result<T> {
    let bits = u16::try_from(word).map_err(|_| EINVAL)?;
    T::from_bits(bits).ok_or(EINVAL)
}

/// `landlock_create_ruleset(attr, size, flags)`.
fn landlock_create_ruleset(
    cx: &mut Context,
    attr: Option<Va>,
    size: usize,
    flags: RulesetFlags,
) -> SysResult {
    /// What the first version had.
    const LEAST: usize = 8;
    const PAGE: usize = 4096;
    if !flags.is_empty() {
        return match (flags, attr, size) {
            (RulesetFlags::LANDLOCK_CREATE_RULESET_VERSION, None, 0) => Ok(ABI),
            (RulesetFlags::LANDLOCK_CREATE_RULESET_ERRATA, None, 0) => Ok(ERRATA),
            _ => Err(EINVAL),
        };
    }
    let attr = attr.ok_or(EFAULT)?;
    if size < LEAST {
        return Err(EINVAL);
    }
    if size > PAGE {
        return Err(E2BIG);
    }
    let mut words = [0u64; 3];
    super::read_sized(cx, attr, size, words.as_mut_bytes())?;
    let handled = Handled {
        fs: rights::<FsAccess>(words[0])?,
        net: rights::<NetAccess>(words[1])?,
        scoped: rights::<Scope>(words[2])?,
    };
    if handled.is_empty() {
        return Err(ENOMSG);
    }
    let ruleset = Arc::new(RulesetFile(Ruleset::new(handled, &charging(&cx.cred()))?));
    super::descriptors::install(cx, ruleset, O_RDWR, O_CLOEXEC)
}

/// A ruleset's file, opened for what is wanted.
fn ruleset_of(cx: &Context, fd: Fd, wanted: fn(&File) -> bool) -> Result<Arc<File>> {
    let f = fd.file(cx)?;
    f.ops::<RulesetFile>().ok_or(EBADFD)?;
    if wanted(&f) { Ok(f) } else { Err(EPERM) }
}

/// `landlock_add_rule(ruleset, type, attr, flags)`.
fn landlock_add_rule(cx: &mut Context, fd: Fd, of: RuleType, attr: Va, flags: u32) -> SysResult {
    if flags != 0 {
        return Err(EINVAL);
    }
    let f = ruleset_of(cx, fd, File::writable)?;
    let ruleset = &f.ops::<RulesetFile>().ok_or(EBADFD)?.0;
    match of {
        RuleType::LANDLOCK_RULE_PATH_BENEATH => add_path(cx, ruleset, attr),
        RuleType::LANDLOCK_RULE_NET_PORT => add_port(cx, ruleset, attr),
        _ => Err(EINVAL),
    }
    .map(|()| 0)
}

/// What a rule allows, of what its ruleset handles.
fn allowed<T: bitflags::Flags<Bits = u16> + Copy>(word: u64, handled: T) -> Result<T> {
    if word == 0 {
        // A rule without effect.
        return Err(ENOMSG);
    }
    let allowed = rights::<T>(word)?;
    handled.contains(allowed).then_some(allowed).ok_or(EINVAL)
}

/// `struct landlock_path_beneath_attr`, which is packed.
fn add_path(cx: &Context, ruleset: &Ruleset, attr: Va) -> Result<()> {
    let [low, high, fd]: [u32; 3] = cx.mm().read_obj(attr)?;
    let word = u64::from(low) | u64::from(high) << 32;
    let allowed = allowed(word, ruleset.handled().fs)?;
    let f = Fd(fd as i32).any_file(cx)?;
    let place = f.path.as_ref().ok_or(EBADFD)?;
    vfs::ops::allow_beneath(ruleset, place, allowed, &cx.cred())
}

/// `struct landlock_net_port_attr`.
fn add_port(cx: &Context, ruleset: &Ruleset, attr: Va) -> Result<()> {
    let [word, port]: [u64; 2] = cx.mm().read_obj(attr)?;
    let allowed = allowed(word, ruleset.handled().net)?;
    let port = u16::try_from(port).map_err(|_| EINVAL)?;
    ruleset.allow_port(port, allowed, &charging(&cx.cred()))
}

/// `landlock_restrict_self(ruleset, flags)`: the calling thread alone.
fn landlock_restrict_self(cx: &mut Context, fd: Fd, flags: u32) -> SysResult {
    let cred = cx.cred();
    if !cx.no_new_privs.load(Ordering::Relaxed) && !cred.has_own(Caps::SYS_ADMIN) {
        return Err(EPERM);
    }
    if flags != 0 {
        return Err(EINVAL);
    }
    let f = ruleset_of(cx, fd, File::readable)?;
    let ruleset = &f.ops::<RulesetFile>().ok_or(EBADFD)?.0;
    let mut new = (*cred).clone();
    new.landlock = Some(Domain::new(new.landlock.take(), ruleset, &charging(&cred))?);
    cx.task.commit_cred(new);
    Ok(0)
}

calls! {
    landlock_create_ruleset,
    landlock_add_rule,
    landlock_restrict_self,
}
