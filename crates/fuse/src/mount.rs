//! mount(2) of type `fuse`: its options, and the file system as a whole.

pub use crate::connection::Made;
use crate::connection::{Answer, Call, Connection};
use crate::device::Device;
use crate::proto::{Op, ROOT, StatfsOut, parse};
use abi::Result;
use abi::errno::EINVAL;
use abi::linux::FUSE_SUPER_MAGIC;
use std::sync::Arc;
use vfs::dentry::{Caching, Dentry, FileSystem, StatFs, SuperBlock};
use vfs::params::{Param, Params};
use vfs::userns::UserNs;
use vfs::{Caller, File, FileType};

/// What a mount is asked for (`fuse_fs_parameters`). Ids are the kernel's.
#[derive(Clone, Debug)]
pub struct Options {
    /// Who mounts, and the root's type and rights.
    pub user: u32,
    pub group: u32,
    pub root_mode: u32,
    pub default_permissions: bool,
    pub allow_other: bool,
    /// Bytes.
    pub max_read: u32,
    pub subtype: Option<String>,
}

/// The names of the parameters.
pub const PARAMETERS: &[&str] = &[
    "fd",
    "rootmode",
    "user_id",
    "group_id",
    "default_permissions",
    "allow_other",
    "max_read",
    "subtype",
];

fn number(p: &Param) -> Result<u32> {
    p.text().and_then(|t| t.parse().ok()).ok_or(EINVAL)
}
fn octal(p: &Param) -> Result<u32> {
    let n = p.text().and_then(|t| u32::from_str_radix(t, 8).ok());
    n.ok_or(EINVAL)
}

/// Looks at a parameter by itself: `EINVAL` for a bad value.
pub fn check(cx: &Caller<'_>, p: &Param) -> Result<()> {
    let ns = &cx.cred.user_ns;
    match p.key.as_str() {
        "fd" | "max_read" => number(p).map(|_| ()),
        "rootmode" => FileType::from_mode(octal(p)?).map(|_| ()).ok_or(EINVAL),
        "user_id" => ns.uid_from(number(p)?).map(|_| ()),
        "group_id" => ns.gid_from(number(p)?).map(|_| ()),
        "default_permissions" | "allow_other" if p.text().is_none() => Ok(()),
        "subtype" if p.text().is_some() => Ok(()),
        _ => Err(EINVAL),
    }
}

/// The descriptor that a mount names.
pub fn descriptor(params: &Params) -> Result<i32> {
    let fd = params.0.iter().rev().find(|p| p.key == "fd");
    i32::try_from(number(fd.ok_or(EINVAL)?)?).map_err(|_| EINVAL)
}

impl Options {
    /// Of parameters that [`check`] has seen. All of four must be there.
    fn new(ns: &UserNs, params: &Params) -> Result<Options> {
        let (mut user, mut group, mut root) = (None, None, None);
        let mut o = Options {
            user: 0,
            group: 0,
            root_mode: 0,
            default_permissions: false,
            allow_other: false,
            max_read: u32::MAX,
            subtype: None,
        };
        for p in &params.0 {
            match p.key.as_str() {
                "user_id" => user = Some(ns.uid_from(number(p)?)?),
                "group_id" => group = Some(ns.gid_from(number(p)?)?),
                "rootmode" => root = Some(octal(p)?),
                "max_read" => o.max_read = number(p)?,
                "default_permissions" => o.default_permissions = true,
                "allow_other" => o.allow_other = true,
                "subtype" => o.subtype = p.text().map(str::to_owned),
                _ => {}
            }
        }
        let (Some(user), Some(group), Some(root_mode)) = (user, group, root) else {
            return Err(EINVAL);
        };
        (o.user, o.group, o.root_mode) = (user, group, root_mode);
        Ok(o)
    }
}

/// Makes a file system whose server has `/dev/fuse` open as `server`. Nobody is waited for. The same
/// device once more: the same file system (`fuse_get_tree`).
pub fn mount(cx: &Caller<'_>, params: &Params, server: &File, made: Made) -> Result<Arc<Dentry>> {
    let ns = &cx.cred.user_ns;
    let options = Options::new(ns, params)?;
    let device = server.ops::<Device>().ok_or(EINVAL)?;
    if server.cred.user_ns != *ns {
        return Err(EINVAL);
    }
    let mode = options.root_mode;
    let kind = FileType::from_mode(mode).ok_or(EINVAL)?;
    if let Some(there) = device.root() {
        return there;
    }
    let dev = made.dev;
    let c = device.attach(EINVAL, |queue| Connection::new(made, options, ns, queue))?;
    let root = c.root_inode(mode, kind);
    let fs = Arc::new(Fuse(c.clone()));
    let root = Dentry::new_root(&SuperBlock::new(dev, fs), root);
    let _ = c.root.set(Arc::downgrade(&root));
    Ok(root)
}

/// The file system.
struct Fuse(Arc<Connection>);

impl FileSystem for Fuse {
    fn name(&self) -> &'static str {
        "fuse"
    }
    fn subtype(&self) -> Option<&str> {
        self.0.options.subtype.as_deref()
    }
    fn magic(&self) -> Result<u64> {
        Ok(u64::from(FUSE_SUPER_MAGIC))
    }
    /// Nothing is told to whom it is not (`fuse_statfs`).
    fn stat_fs(&self) -> Result<StatFs> {
        let magic = u64::from(FUSE_SUPER_MAGIC);
        if let Ok(c) = vfs::caller::client()
            && !self.0.admits(&c.credentials())
        {
            return Ok(StatFs {
                magic,
                ..StatFs::default()
            });
        }
        let call = Call {
            op: Op::Statfs,
            node: ROOT,
            parts: &[],
            answer: Answer::Exactly(size_of::<StatfsOut>()),
        };
        let (s, _) = parse::<StatfsOut>(&self.0.call(None, &call)?)?;
        Ok(StatFs {
            magic,
            bsize: u64::from(s.bsize),
            frsize: u64::from(s.frsize),
            blocks: s.blocks,
            bfree: s.bfree,
            bavail: s.bavail,
            files: s.files,
            ffree: s.ffree,
            fsid: 0,
            namelen: u64::from(s.namelen),
            flags: 0,
        })
    }
    fn caching(&self) -> Caching {
        Caching::Asked
    }
    fn options(&self) -> String {
        let o = &self.0.options;
        let ns = &self.0.user_ns;
        let mut s = format!(
            ",user_id={},group_id={}",
            ns.uid_shown(o.user),
            ns.gid_shown(o.group)
        );
        for (on, name) in [
            (o.default_permissions, ",default_permissions"),
            (o.allow_other, ",allow_other"),
        ] {
            s += if on { name } else { "" };
        }
        if o.max_read != u32::MAX {
            s += &format!(",max_read={}", o.max_read);
        }
        s
    }
    /// Who waits for the server gets an error, and the server the end of its requests.
    fn shut_down(&self) {
        self.0.abort();
    }
    fn abort(&self) {
        self.0.abort();
    }
}
