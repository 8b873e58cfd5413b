//! Peer groups: to which other mounts the mounts and unmounts below a mount go on
//! (Documentation/filesystems/sharedsubtree.rst; Linux's fs/pnode.c).
//!
//! A *shared* mount is a member of a group; what is mounted below one member appears below all. A
//! *slave* has a group as its master: it is told, and tells nobody, unless it is shared, too, in a
//! group of its own.
//!
//! Invariants, which hold whenever the table's lock is free:
//! - a mount's [`Sharing`] and the lists of its group and of its master say the same;
//! - a group that has no members is not in the table: when the last one leaves, its slaves become
//!   slaves of the leaver's master (`transfer_propagation`);
//! - members of one group have the same master;
//! - a mount is in the table from its making until it leaves its tree, so a list is no longer than
//!   there are mounts, which are counted.
//!
//! The table's lock is a leaf.

use crate::ida::Ida;
use crate::mount::{Mount, Sharing};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

/// How a copy of a mount shares (`CL_SLAVE`, `CL_MAKE_SHARED`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Copied {
    /// As the mount itself: in its group, under its master.
    Alike,
    /// As its slave.
    Slave,
    /// As its slave, in a group of its own.
    SharedSlave,
}

/// What mount(2) may make of a mount.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Propagation {
    Private,
    Shared,
    Slave,
    /// Private, and not to be bound elsewhere.
    Unbindable,
}

/// Mounts by their numbers.
type Mounts = BTreeMap<u64, Weak<Mount>>;

#[derive(Default)]
struct Group {
    members: Mounts,
    slaves: Mounts,
}

/// All groups.
#[derive(Default)]
pub(crate) struct Peers(Mutex<Table>);

fn living(list: &Mounts) -> Vec<Arc<Mount>> {
    list.values().filter_map(Weak::upgrade).collect()
}

struct Table {
    /// By number.
    groups: BTreeMap<u32, Group>,
    /// 0 is no group's.
    numbers: Ida,
}

impl Default for Table {
    fn default() -> Table {
        Table {
            groups: BTreeMap::new(),
            numbers: Ida::starting_at(1),
        }
    }
}

impl Table {
    fn enlist(&mut self, m: &Arc<Mount>, s: Sharing) {
        let weak = Arc::downgrade(m);
        if s.group != 0 {
            let group = self.groups.entry(s.group).or_default();
            group.members.insert(m.id, weak.clone());
        }
        if s.master != 0 {
            let master = self.groups.entry(s.master).or_default();
            master.slaves.insert(m.id, weak);
        }
        m.set_sharing(s);
    }

    /// Takes a mount out of its lists. Gives what it had; the slaves of a group that ends get the
    /// leaver's master.
    fn delist(&mut self, m: &Arc<Mount>) -> Sharing {
        let had = m.sharing();
        if let Some(g) = self.groups.get_mut(&had.master) {
            g.slaves.remove(&m.id);
        }
        if let Some(g) = self.groups.get_mut(&had.group) {
            g.members.remove(&m.id);
            if g.members.is_empty() {
                self.end(had);
            }
        }
        m.set_sharing(Sharing::default());
        had
    }

    /// The group that a mount has left has no member any more.
    fn end(&mut self, left: Sharing) {
        let Some(ended) = self.groups.remove(&left.group) else {
            return;
        };
        for s in living(&ended.slaves) {
            let now = s.sharing();
            s.set_sharing(Sharing {
                master: left.master,
                ..now
            });
            if let Some(up) = self.groups.get_mut(&left.master) {
                up.slaves.insert(s.id, Arc::downgrade(&s));
            }
        }
        self.numbers.free(left.group);
    }
}

impl Peers {
    /// Makes a mount shared, in a group of its own if it is in none.
    pub fn share(&self, m: &Arc<Mount>) {
        let mut t = self.0.lock();
        let now = m.sharing();
        if now.group == 0 {
            let group = t.numbers.alloc();
            let members = &mut t.groups.entry(group).or_default().members;
            members.insert(m.id, Arc::downgrade(m));
            m.set_sharing(Sharing { group, ..now });
        }
    }
    /// The copy `new` of the mount `old`.
    pub fn copied(&self, old: &Mount, new: &Arc<Mount>, how: Copied) {
        let mut t = self.0.lock();
        let of = old.sharing();
        let master = match how {
            Copied::Alike => of.master,
            _ if of.group != 0 => of.group,
            _ => of.master,
        };
        let group = match how {
            Copied::Alike => of.group,
            Copied::Slave => 0,
            Copied::SharedSlave => t.numbers.alloc(),
        };
        t.enlist(new, Sharing { group, master });
    }
    /// Into the group of `like`, under its master (`MOVE_MOUNT_SET_GROUP`).
    pub fn set_group(&self, m: &Arc<Mount>, like: &Mount) {
        let mut t = self.0.lock();
        t.delist(m);
        t.enlist(m, like.sharing());
    }
    /// A mount that shares with nobody any more.
    pub fn leave(&self, m: &Arc<Mount>) {
        if m.sharing() != Sharing::default() {
            self.0.lock().delist(m);
        }
    }
    /// What was shared becomes a slave of the others in its group, or else of its master.
    pub fn make_slave(&self, m: &Arc<Mount>) {
        let mut t = self.0.lock();
        let had = m.sharing();
        if had.group == 0 {
            return;
        }
        t.delist(m);
        let master = if t.groups.contains_key(&had.group) {
            had.group
        } else {
            had.master
        };
        t.enlist(m, Sharing { group: 0, master });
    }
    /// The members of a group.
    pub fn members(&self, group: u32) -> Vec<Arc<Mount>> {
        self.0
            .lock()
            .groups
            .get(&group)
            .map(|g| living(&g.members))
            .unwrap_or_default()
    }
    /// The slaves of a group.
    pub fn slaves(&self, group: u32) -> Vec<Arc<Mount>> {
        self.0
            .lock()
            .groups
            .get(&group)
            .map(|g| living(&g.slaves))
            .unwrap_or_default()
    }
}
