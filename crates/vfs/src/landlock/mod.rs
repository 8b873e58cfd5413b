//! Landlock: what a process forbids itself and its children (`landlock(7)`, Linux's
//! `security/landlock`, `Documentation/userspace-api/landlock.rst`).
//!
//! A [`Ruleset`] is what a program fills; a [`Domain`] is what it enforces: one layer of rules and
//! the domain before it. Credentials have a domain or none, and children have their parent's.
//!
//! The rights, and what of them is not granted yet on the way up, are [`access`]. What a domain
//! says of operations on files and names is decided where those are: `ops::landlock`.
//!
//! Invariants:
//! - A domain never changes: a ruleset that grows after it was enforced is copied first.
//! - A right is granted if every layer that handles it has a rule that grants it, on the file or on
//!   a directory above it. In a domain with rights of files every layer denies `REFER`, named or
//!   not.
//! - A rule keeps its file's dentry, so that the file stays the same inode, and its address means
//!   no other one.
//! - Rules are charged to who adds them, layers to who enforces them.

mod access;

pub(crate) use access::Missing;
pub use access::{Denied, FsAccess, Handled, NetAccess, Scope};

use crate::ucounts::Charge;
use abi::Result;
use abi::errno::{E2BIG, ENOMEM};
use parking_lot::Mutex;
use std::any::Any;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The version that `landlock_create_ruleset(2)` tells.
pub const ABI: usize = 6;
/// Layers of a domain (`LANDLOCK_MAX_NUM_LAYERS`).
pub const MAX_LAYERS: usize = 16;

/// What a ruleset takes of the kernel's memory, a layer, a rule, and a rule's copy, bytes.
const RULESET: usize = 256;
const LAYER: usize = 256;
const RULE: usize = 256;
const COPY: usize = 64;

/// Charges so many bytes of the kernel's memory to who asks (`Credentials::kmem`).
pub type Charging<'a> = &'a dyn Fn(usize) -> Result<Charge>;

/// By what a rule finds a file: the address of its inode.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct FileKey(usize);

impl FileKey {
    pub fn of<T: ?Sized>(inode: &Arc<T>) -> FileKey {
        FileKey(Arc::as_ptr(inode).cast::<()>().addr())
    }
}

/// The file of a rule.
pub(crate) struct Subject {
    pub key: FileKey,
    /// Keeps its inode.
    pub _dentry: Arc<dyn Any + Send + Sync>,
    /// For its file's descriptor of the host, where another is charged for that.
    pub _held: Option<Charge>,
}

#[derive(Clone)]
struct FileRule {
    allowed: FsAccess,
    _subject: Arc<(Subject, Charge)>,
}

#[derive(Clone)]
struct PortRule {
    allowed: NetAccess,
    _charge: Arc<Charge>,
}

/// The rules of one ruleset, or of one layer.
struct Rules {
    files: BTreeMap<FileKey, FileRule>,
    ports: BTreeMap<u16, PortRule>,
    _charge: Charge,
}

impl Rules {
    fn copy(&self, charge: Charging<'_>) -> Result<Rules> {
        let n = self.files.len() + self.ports.len();
        Ok(Rules {
            files: self.files.clone(),
            ports: self.ports.clone(),
            _charge: charge(RULESET + n * COPY)?,
        })
    }
    fn of_file(&self, key: FileKey) -> FsAccess {
        let rule = self.files.get(&key);
        rule.map_or(FsAccess::empty(), |r| r.allowed)
    }
}

/// What `landlock_create_ruleset(2)` makes.
pub struct Ruleset {
    handled: Handled,
    /// Shared with the layers that were made of it and have not been outgrown.
    rules: Mutex<Arc<Rules>>,
}

impl Ruleset {
    pub fn new(handled: Handled, charge: Charging<'_>) -> Result<Ruleset> {
        Ok(Ruleset {
            handled,
            rules: Mutex::new(Arc::new(Rules {
                files: BTreeMap::new(),
                ports: BTreeMap::new(),
                _charge: charge(RULESET)?,
            })),
        })
    }
    #[must_use]
    pub fn handled(&self) -> Handled {
        self.handled
    }
    /// Changes the rules; what a layer has already stays as it is.
    fn change(
        &self,
        charge: Charging<'_>,
        change: impl FnOnce(&mut Rules) -> Result<()>,
    ) -> Result<()> {
        let mut rules = self.rules.lock();
        if Arc::get_mut(&mut rules).is_none() {
            *rules = Arc::new(rules.copy(charge)?);
        }
        Arc::get_mut(&mut rules).map_or(Err(ENOMEM), change)
    }
    /// Grants rights on a file, and below it.
    pub(crate) fn allow_file(
        &self,
        file: Subject,
        allowed: FsAccess,
        charge: Charging<'_>,
    ) -> Result<()> {
        self.change(charge, |rules| {
            if let Some(rule) = rules.files.get_mut(&file.key) {
                rule.allowed |= allowed;
                return Ok(());
            }
            let key = file.key;
            let rule = FileRule {
                allowed,
                _subject: Arc::new((file, charge(RULE)?)),
            };
            rules.files.insert(key, rule);
            Ok(())
        })
    }
    /// `LANDLOCK_RULE_NET_PORT`.
    pub fn allow_port(&self, port: u16, allowed: NetAccess, charge: Charging<'_>) -> Result<()> {
        self.change(charge, |rules| {
            if let Some(old) = rules.ports.get_mut(&port) {
                old.allowed |= allowed;
                return Ok(());
            }
            let rule = PortRule {
                allowed,
                _charge: Arc::new(charge(RULE)?),
            };
            rules.ports.insert(port, rule);
            Ok(())
        })
    }
}

/// A layer, and those before it.
struct Layer {
    before: Option<Domain>,
    /// From 1.
    depth: usize,
    handled: Handled,
    /// What any layer handles.
    any: Handled,
    rules: Arc<Rules>,
    _charge: Charge,
}

/// What a process is confined to. Two are equal if they are the same one.
#[derive(Clone)]
pub struct Domain(Arc<Layer>);

impl PartialEq for Domain {
    fn eq(&self, o: &Domain) -> bool {
        Arc::ptr_eq(&self.0, &o.0)
    }
}
impl Eq for Domain {}

impl std::fmt::Debug for Domain {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Domain({} layers)", self.0.depth)
    }
}

impl Domain {
    /// A domain with one more layer: `E2BIG` where there are as many as there may be.
    pub fn new(before: Option<Domain>, with: &Ruleset, charge: Charging<'_>) -> Result<Domain> {
        let depth = before.as_ref().map_or(0, |d| d.0.depth) + 1;
        if depth > MAX_LAYERS {
            return Err(E2BIG);
        }
        let handled = with.handled;
        let any = before.as_ref().map_or(handled, |d| d.0.any.or(handled));
        Ok(Domain(Arc::new(Layer {
            before,
            depth,
            handled,
            any,
            rules: with.rules.lock().clone(),
            _charge: charge(LAYER)?,
        })))
    }
    /// The layers, newest first.
    fn layers(&self) -> impl Iterator<Item = &Domain> {
        std::iter::successors(Some(self), |d| d.0.before.as_ref())
    }
    fn depth(&self) -> usize {
        self.0.depth
    }
    fn handled(&self) -> Handled {
        self.0.handled
    }
    /// Itself as it was when it had this many layers.
    fn at_depth(&self, depth: usize) -> Option<&Domain> {
        self.layers().find(|d| d.0.depth == depth)
    }
    /// Whether any layer handles rights of files.
    pub(crate) fn confines_files(&self) -> bool {
        !self.0.any.fs.is_empty()
    }
    /// Whether any layer handles rights of the network.
    #[must_use]
    pub fn confines_ports(&self) -> bool {
        !self.0.any.net.is_empty()
    }
    /// Whether a right over a TCP port is granted by every layer that handles it.
    #[must_use]
    pub fn allows_port(&self, port: u16, access: NetAccess) -> bool {
        self.layers().all(|l| {
            let rule = l.0.rules.ports.get(&port);
            !l.0.handled.net.intersects(access) || rule.is_some_and(|r| r.allowed.contains(access))
        })
    }
    /// Whether this domain keeps a process from reaching one with `other`, which is outside of the
    /// domain that has this scope (`domain_is_scoped`).
    #[must_use]
    pub fn keeps_from(&self, other: Option<&Domain>, scope: Scope) -> bool {
        if !self.0.any.scoped.contains(scope) {
            return false;
        }
        // The scopes of the oldest layers that `other` has, too, hold it in; the newest decides.
        let scoped = |l: &&Domain| l.0.handled.scoped.contains(scope);
        let Some(narrowest) = self.layers().find(scoped) else {
            return false;
        };
        let inside = other.and_then(|o| o.at_depth(narrowest.0.depth));
        inside != Some(narrowest)
    }
    /// Whether a process of this domain may look into one with `other`: that has the same domain,
    /// or one made of it (`domain_scope_le`).
    #[must_use]
    pub fn may_trace(&self, other: Option<&Domain>) -> bool {
        other.and_then(|o| o.at_depth(self.0.depth)) == Some(self)
    }
}

/// Whether who has `from` may look into who has `to`.
#[must_use]
pub fn may_trace(from: Option<&Domain>, to: Option<&Domain>) -> bool {
    from.is_none_or(|d| d.may_trace(to))
}

/// Whether who has `from` is kept from signalling, or naming, who has `to`.
#[must_use]
pub fn is_kept_from(from: Option<&Domain>, to: Option<&Domain>, scope: Scope) -> bool {
    from.is_some_and(|d| d.keeps_from(to, scope))
}

#[cfg(test)]
mod tests;
