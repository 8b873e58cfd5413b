//! What statmount(2) and listmount(2) tell of a namespace's mounts (Linux's fs/namespace.c).

use super::{MountNamespace, Registry, subpath};
use crate::cred::{Caps, Credentials};
use crate::mount::{Mount, MountFlags, Path};
use crate::{major, minor};
use abi::Result;
use abi::errno::{ENOENT, EPERM};
use abi::linux::{MS_PRIVATE, MS_RDONLY, MS_SHARED, MS_SLAVE, MS_UNBINDABLE};
use std::sync::Arc;

/// All that there is to tell of a mount.
#[derive(Clone, Debug, Default)]
pub struct MountStat {
    pub dev: (u32, u32),
    pub magic: u64,
    /// `MS_*` of the file system.
    pub fs_flags: u32,
    pub fs_type: &'static str,
    pub id: u64,
    pub parent: u64,
    /// As mountinfo has them.
    pub old_id: u32,
    pub old_parent: u32,
    /// `MOUNT_ATTR_*`.
    pub attrs: u64,
    /// `MS_SHARED` and its kin.
    pub propagation: u64,
    pub group: u32,
    pub master: u32,
    pub propagate_from: u32,
    /// Its root, in its file system.
    pub root: Vec<u8>,
    /// Where it is, from the root that was asked for; empty where that does not reach it.
    pub point: Vec<u8>,
    pub namespace: u64,
    pub source: String,
    /// The file system's own, without the first comma.
    pub options: String,
}

impl MountNamespace {
    /// The namespace with this number, if the caller may look into it: its own, or one whose
    /// administrator it is; `ENOENT`.
    pub fn by_number(
        registry: &Registry,
        id: u64,
        own: &Self,
        cred: &Credentials,
    ) -> Result<Arc<Self>> {
        let found = registry
            .namespaces
            .lock()
            .get(&id)
            .and_then(std::sync::Weak::upgrade);
        let ns = found.ok_or(ENOENT)?;
        if ns.id == own.id || cred.has_in(ns.user(), Caps::SYS_ADMIN) {
            Ok(ns)
        } else {
            Err(ENOENT)
        }
    }

    /// The mount with this unique id, here; `ENOENT`. `EPERM` for who may not see it: it is out of
    /// the reach of `root`, and the caller is not the administrator.
    fn find(&self, id: u64, root: &Path, cred: &Credentials) -> Result<Arc<Mount>> {
        let m = self
            .mounts()
            .into_iter()
            .find(|m| m.unique_id() == id)
            .ok_or(ENOENT)?;
        if !Path::root_of(&m).is_under(root) && !cred.has_in(self.user(), Caps::SYS_ADMIN) {
            return Err(EPERM);
        }
        Ok(m)
    }

    /// statmount(2): of the mount with this unique id, seen from `root`.
    pub fn tell(&self, id: u64, root: &Path, cred: &Credentials) -> Result<MountStat> {
        let m = self.find(id, root, cred)?;
        let (sb, s, f) = (m.sb(), m.sharing(), m.flags());
        let parent = m.parent().map_or_else(|| m.clone(), |p| p.0);
        let mut propagation = 0;
        for (has, ms) in [
            (s.group != 0, MS_SHARED),
            (s.master != 0, MS_SLAVE),
            (f.contains(MountFlags::UNBINDABLE), MS_UNBINDABLE),
        ] {
            propagation |= if has { ms } else { 0 };
        }
        if propagation == 0 {
            propagation = MS_PRIVATE;
        }
        let at = Path::root_of(&m).describe(root);
        Ok(MountStat {
            dev: (major(sb.dev), minor(sb.dev)),
            magic: sb.fs.magic()?,
            fs_flags: if sb.is_read_only() { MS_RDONLY } else { 0 },
            fs_type: sb.fs.name(),
            id: m.unique_id(),
            parent: parent.unique_id(),
            old_id: m.id as u32,
            old_parent: parent.id as u32,
            attrs: f.attrs(),
            propagation: u64::from(propagation),
            group: s.group,
            master: s.master,
            propagate_from: self.dominating(&m, root, &mut Default::default()),
            root: subpath(&m.root),
            point: if at.reachable { at.name } else { Vec::new() },
            namespace: self.id,
            source: match &*m.source {
                "" => String::from("none"),
                source => source.to_owned(),
            },
            options: sb.fs.options().trim_start_matches(',').to_owned(),
        })
    }

    /// listmount(2): the unique ids of what is mounted below the mount `below` (all that `root`
    /// reaches for `None`), in their order.
    pub fn list(&self, below: Option<u64>, root: &Path, cred: &Credentials) -> Result<Vec<u64>> {
        let top = match below {
            None => root.clone(),
            Some(id) => Path::root_of(&self.find(id, root, cred)?),
        };
        let seen = |m: &Arc<Mount>| Path::root_of(m).is_under(&top);
        let mounts = self.mounts();
        let ids = mounts.iter().filter(|m| seen(m)).map(|m| m.unique_id());
        let mut ids: Vec<u64> = ids.filter(|id| Some(*id) != below).collect();
        ids.sort_unstable();
        Ok(ids)
    }
}
