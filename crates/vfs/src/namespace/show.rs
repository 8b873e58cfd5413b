//! How a namespace's mounts are told: `/proc/PID/mountinfo`, `/proc/PID/mounts`.

use super::MountNamespace;
use crate::dentry::{Dentry, FileSystem};
use crate::mount::{Mount, MountFlags, Path};
use std::collections::HashMap;
use std::sync::Arc;

/// For groups that are masters, what [`MountNamespace::dominating`] found from them on. Good for
/// one answer.
pub(super) type Dominating = HashMap<u32, u32>;

impl MountNamespace {
    /// `/proc/PID/mountinfo`, as seen from `root`.
    #[must_use]
    pub fn mountinfo(&self, root: &Path) -> Vec<u8> {
        let mut known = Dominating::new();
        self.table(root, |out, m, at, opts| {
            let parent = m.parent().map_or(m.id, |p| p.0.id);
            let (ma, mi) = (crate::major(m.sb().dev), crate::minor(m.sb().dev));
            out.extend_from_slice(format!("{} {parent} {ma}:{mi} ", m.id).as_bytes());
            out.extend(escape(&subpath(&m.root)));
            out.push(b' ');
            out.extend(escape(at));
            let (fs, src) = (shown_type(&*m.sb().fs), &m.source);
            let ro = if m.sb().is_read_only() { "ro" } else { "rw" };
            let shared = self.shared_as(m, root, &mut known);
            let line = format!(
                " {opts}{shared} - {fs} {} {ro}{}\n",
                plain(src),
                m.sb().fs.options()
            );
            out.extend_from_slice(line.as_bytes());
        })
    }

    /// `/proc/PID/mounts`, as seen from `root`.
    #[must_use]
    pub fn proc_mounts(&self, root: &Path) -> Vec<u8> {
        self.table(root, |out, m, at, opts| {
            out.extend_from_slice(plain(&m.source).as_bytes());
            out.push(b' ');
            out.extend(escape(at));
            let fs = &*m.sb().fs;
            let line = format!(" {} {opts}{} 0 0\n", shown_type(fs), fs.options());
            out.extend_from_slice(line.as_bytes());
        })
    }

    fn table(
        &self,
        root: &Path,
        mut line: impl FnMut(&mut Vec<u8>, &Arc<Mount>, &[u8], &str),
    ) -> Vec<u8> {
        let mut out = Vec::new();
        let mut mounts = self.mounts();
        // In the order in which they were made (`mnt_add_to_ns`), wherever they hang.
        mounts.sort_by_key(|m| m.id);
        for m in mounts {
            let name = Path::root_of(&m).describe(root);
            if !name.reachable {
                continue;
            }
            let mut flags = m.flags();
            flags.set(MountFlags::RDONLY, m.is_read_only());
            line(&mut out, &m, &name.name, &flags.describe());
        }
        out
    }
    /// The fields of mountinfo that tell with whom a mount shares (`show_mountinfo`).
    fn shared_as(&self, m: &Arc<Mount>, root: &Path, known: &mut Dominating) -> String {
        let (s, mut out) = (m.sharing(), String::new());
        if s.group != 0 {
            out += &format!(" shared:{}", s.group);
        }
        if s.master != 0 {
            out += &format!(" master:{}", s.master);
            let from = self.dominating(m, root, known);
            if from != 0 && from != s.master {
                out += &format!(" propagate_from:{from}");
            }
        }
        if m.flags().contains(MountFlags::UNBINDABLE) {
            out += " unbindable";
        }
        out
    }
    /// The nearest group above a slave that has a member in reach of `root`; 0 for none
    /// (`get_dominating_id`). Many slaves may have one master, and that many members: each group is
    /// looked through once for all that `known` is passed to.
    pub(super) fn dominating(&self, m: &Mount, root: &Path, known: &mut Dominating) -> u32 {
        let (peers, mut group) = (&self.registry.peers, m.sharing().master);
        let mut passed = Vec::new();
        let found = loop {
            if group == 0 {
                break 0;
            }
            if let Some(found) = known.get(&group) {
                break *found;
            }
            passed.push(group);
            let members = peers.members(group);
            let seen = |m: &Arc<Mount>| self.owns(m) && Path::root_of(m).is_under(root);
            if members.iter().any(seen) {
                break group;
            }
            group = members.first().map_or(0, |m| m.sharing().master);
        };
        known.extend(passed.into_iter().map(|group| (group, found)));
        found
    }
}

/// A file system's type, with what of its kind it is (`show_type`).
fn shown_type(fs: &dyn FileSystem) -> String {
    match fs.subtype() {
        Some(sub) => format!("{}.{}", fs.name(), crate::params::escape(sub, " \t\n\\#")),
        None => fs.name().to_owned(),
    }
}

/// The path of `d` inside its file system.
pub(crate) fn subpath(d: &Arc<Dentry>) -> Vec<u8> {
    let fs = &d.sb().fs;
    let above = fs.shown_root().trim_end_matches('/').as_bytes();
    match (above, below_root(d)) {
        (b"", below) => below,
        (above, below) if below == b"/" => above.to_vec(),
        (above, below) => [above, &below].concat(),
    }
}

fn below_root(d: &Arc<Dentry>) -> Vec<u8> {
    let mut parts = Vec::new();
    let mut d = d.clone();
    while let Some(p) = d.parent() {
        parts.push(d.name());
        d = p;
    }
    if parts.is_empty() {
        return b"/".to_vec();
    }
    parts
        .iter()
        .rev()
        .flat_map(|p| std::iter::once(b'/').chain(p.iter().copied()))
        .collect()
}

/// Space, tab, newline and backslash as octal, as `/proc/mounts` does.
fn escape(s: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(s.len());
    for &b in s {
        if matches!(b, b' ' | b'\t' | b'\n' | b'\\') {
            out.extend_from_slice(format!("\\{b:03o}").as_bytes());
        } else {
            out.push(b);
        }
    }
    out
}

fn plain(source: &str) -> String {
    if source.is_empty() {
        return String::from("none");
    }
    crate::params::escape(source, " \t\n\\#")
}
