//! Who has which local address and port, and which connections there are from them (Linux: bhash
//! and ehash).
//!
//! # What holds
//!
//! - A port that bind(2) or listen(2) took ([`Hold::Port`]) is shared only by
//!   [`PortTable::conflict`]'s rules, and no connection is given it. One that only connections
//!   were given ([`Hold::Connection`]) serves any number of them, each to another destination.
//! - `taken` has the ports with a binding, `fixed` those with one of [`Hold::Port`]: a free port is
//!   found by at most some thousand words of bits, however many there are.
//! - The two ends of a connection that began here are an [`Ends`] once at most, until its end. Both
//!   sides hold it where both are inside, and it is over with the last of them.
//! - Of several that share a port (SO_REUSEPORT) one gets all that comes from an address and port,
//!   by a keyed hash of both ends, unless a program chooses ([`crate::filters`]).
//! - Where the search for a port begins is a keyed hash of how many there were, which nobody
//!   outside foresees (RFC 6056).
//!
//! # Lock order
//!
//! `Inner`, then a binding's own and `Destinations` (leaves).

mod free;

pub use free::PortRange;

use crate::addr::{Endpoint, any_ip};
use crate::filters::{Chooser, Filter};
use crate::options::{Common, SO_REUSEADDR, SO_REUSEPORT};
use crate::sys::{AF_INET, AF_INET6};
use abi::Result;
use abi::errno::{EADDRINUSE, EADDRNOTAVAIL};
use free::{Bits, For, Used};
use parking_lot::Mutex;
use siphasher::sip::SipHasher13;
use std::collections::HashMap;
use std::hash::{Hash, Hasher};
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

/// What a bound IPv6 address takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Families {
    /// The IPv4 address beside it, too.
    Both,
    /// `IPV6_V6ONLY`.
    V6Only,
}

/// Who took a port.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Hold {
    /// bind(2), listen(2), or what was accepted there.
    Port,
    /// A connection that had none.
    Connection,
}

/// A socket's hold on a local address and port.
pub struct Binding<T: ?Sized> {
    id: u64,
    pub ip: IpAddr,
    pub port: u16,
    /// Of an IPv6 wildcard: does not take IPv4.
    families: Families,
    hold: Hold,
    pub common: Arc<Common>,
    pub uid: u32,
    /// The other end of a connection. Leaf lock.
    pub remote: Mutex<Option<Endpoint>>,
    /// Of a connection that began here. Leaf lock.
    ends: Mutex<Option<Arc<Ends>>>,
    /// Who takes what comes: a listener, or a UDP receive queue. Protected by the table's lock.
    target: Mutex<Option<Arc<T>>>,
}

impl<T: ?Sized> Binding<T> {
    pub fn target(&self) -> Option<Arc<T>> {
        self.target.lock().clone()
    }
    pub fn is_v6_only(&self) -> bool {
        self.families == Families::V6Only
    }
    /// Whether only connections have its port, and may share it.
    pub fn is_shared(&self) -> bool {
        self.hold == Hold::Connection
    }
    /// Those of the connection that began here.
    pub fn ends(&self) -> Option<Arc<Ends>> {
        self.ends.lock().clone()
    }
    /// It has nothing to do with that connection any longer.
    pub fn release(&self) {
        let ends = self.ends.lock().take();
        drop(ends);
    }
    fn families(&self) -> u8 {
        match self.ip {
            IpAddr::V4(_) => 1,
            IpAddr::V6(a) if a.is_unspecified() && self.families == Families::Both => 3,
            IpAddr::V6(_) => 2,
        }
    }
    fn overlaps(&self, o: &Binding<T>) -> bool {
        let (a, b) = (self.common.device(), o.common.device());
        self.families() & o.families() != 0
            && (self.ip.is_unspecified() || o.ip.is_unspecified() || self.ip == o.ip)
            && (a == 0 || b == 0 || a == b)
    }
    /// Whether both are of one group of those that share their port (`sock_reuseport`).
    fn shares_with(&self, o: &Binding<T>) -> bool {
        let (a, b) = (&self.common, &o.common);
        let same = (self.ip, self.uid, a.device()) == (o.ip, o.uid, b.device());
        same && self.families() == o.families() && a.flag(SO_REUSEPORT) && b.flag(SO_REUSEPORT)
    }
    /// How well it fits a destination: `None` not at all.
    fn score(&self, dest: IpAddr) -> Option<u32> {
        if self.ip == dest {
            return Some(4);
        }
        let family = if dest.is_ipv4() { 1 } else { 2 };
        if !self.ip.is_unspecified() || self.families() & family == 0 {
            return None;
        }
        // A wildcard of the destination's own family goes before a dual one.
        Some(if self.ip.is_ipv4() == dest.is_ipv4() {
            2
        } else {
            1
        })
    }
}

/// The bindings of one port.
struct Port<T: ?Sized> {
    all: HashMap<u64, Arc<Binding<T>>>,
    /// How many of them are [`Hold::Port`].
    fixed: usize,
    /// Those with a target, by their address: connections to a busy listener do not slow down the
    /// search for it, nor do those at other addresses. At most [`GROUP_MOST`] are at one.
    targets: HashMap<IpAddr, Vec<Arc<Binding<T>>>>,
}

/// How many sockets may share one address and port (`SO_REUSEPORT`): each is looked at for what
/// comes there, by a thread that serves all users.
const GROUP_MOST: usize = 512;

impl<T: ?Sized> Default for Port<T> {
    fn default() -> Port<T> {
        Port {
            all: HashMap::new(),
            fixed: 0,
            targets: HashMap::new(),
        }
    }
}

impl<T: ?Sized> Port<T> {
    /// From now on it takes what comes; `EADDRINUSE` where too many do.
    fn add_target(&mut self, b: &Arc<Binding<T>>) -> Result<()> {
        let group = self.targets.entry(b.ip).or_default();
        if group.len() >= GROUP_MOST {
            return Err(EADDRINUSE);
        }
        if b.common.flag(SO_REUSEPORT) {
            let other = group.iter().find(|o| o.shares_with(b));
            b.common.chooser.join(other.map(|o| &o.common.chooser));
        }
        group.push(b.clone());
        Ok(())
    }

    fn remove_target(&mut self, b: &Binding<T>) {
        if let Some(group) = self.targets.get_mut(&b.ip) {
            // As on Linux the last one takes its place, by which programs choose.
            if let Some(i) = group.iter().position(|x| x.id == b.id) {
                group.swap_remove(i);
            }
            if group.is_empty() {
                self.targets.remove(&b.ip);
            }
        }
    }

    /// Those that may take what is sent to an address: at it, and at the wildcards.
    fn targets_at(&self, ip: IpAddr) -> impl Iterator<Item = &Arc<Binding<T>>> {
        let any = [any_ip(AF_INET), any_ip(AF_INET6)];
        let wild = any.into_iter().filter(move |a| *a != ip);
        let places = std::iter::once(ip).chain(wild);
        places.filter_map(|a| self.targets.get(&a)).flatten()
    }
}

/// The destinations of connections that began here: the ports from which each is reached, by the
/// source address. Leaf lock.
#[derive(Default)]
struct Destinations(Mutex<HashMap<(IpAddr, Endpoint), Used>>);

/// The two ends of a connection: no other has them until it is over, or until this goes.
pub struct Ends {
    from: Endpoint,
    to: Endpoint,
    all: Arc<Destinations>,
    over: AtomicBool,
}

impl Ends {
    /// `None` where there is such a connection.
    fn new(all: &Arc<Destinations>, from: Endpoint, to: Endpoint) -> Option<Arc<Ends>> {
        let mut map = all.0.lock();
        let is_new = map.entry((from.ip, to)).or_default().insert(from.port);
        drop(map);
        is_new.then(|| {
            Arc::new(Ends {
                from,
                to,
                all: all.clone(),
                over: AtomicBool::new(false),
            })
        })
    }

    /// The connection is over.
    pub fn release(&self) {
        if self.over.swap(true, Ordering::Relaxed) {
            return;
        }
        let key = (self.from.ip, self.to);
        let mut map = self.all.0.lock();
        if map.get_mut(&key).is_some_and(|u| u.remove(self.from.port)) {
            map.remove(&key);
        }
    }
}

impl Drop for Ends {
    fn drop(&mut self) {
        self.release();
    }
}

/// What comes, as it is asked who of those that share a port gets it.
#[derive(Clone, Copy)]
pub struct Coming<'a> {
    pub from: Endpoint,
    /// What a program says of the packet, behind its transport's header.
    pub ask: &'a dyn Fn(&Filter) -> u32,
}

/// All bindings of one protocol.
pub struct PortTable<T: ?Sized> {
    inner: Mutex<Inner<T>>,
    destinations: Arc<Destinations>,
    next_id: AtomicU64,
    key: [u8; 16],
    next: AtomicU32,
}

/// See the module.
struct Inner<T: ?Sized> {
    ports: HashMap<u16, Port<T>>,
    taken: Bits,
    fixed: Bits,
}

impl<T: ?Sized> Inner<T> {
    fn add(&mut self, b: &Arc<Binding<T>>) {
        let port = self.ports.entry(b.port).or_default();
        port.all.insert(b.id, b.clone());
        self.taken.insert(b.port);
        if b.hold == Hold::Port {
            port.fixed += 1;
            self.fixed.insert(b.port);
        }
    }

    fn remove(&mut self, b: &Binding<T>) {
        let Some(port) = self.ports.get_mut(&b.port) else {
            return;
        };
        if port.all.remove(&b.id).is_some() && b.hold == Hold::Port {
            port.fixed -= 1;
            if port.fixed == 0 {
                self.fixed.remove(b.port);
            }
        }
        port.remove_target(b);
        if port.all.is_empty() {
            self.taken.remove(b.port);
            self.ports.remove(&b.port);
        }
    }
}

/// Whether two bindings may share a port.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Rule {
    /// SO_REUSEADDR shares unless one of them listens.
    Tcp,
    /// SO_REUSEADDR shares.
    Udp,
}

/// What a socket asks for.
#[derive(Clone, Copy)]
pub struct BindRequest<'a> {
    /// Port 0 is any of `ports` that is free.
    pub at: Endpoint,
    pub ports: PortRange,
    pub families: Families,
    pub common: &'a Arc<Common>,
    pub uid: u32,
}

impl<T: ?Sized> PortTable<T> {
    pub fn new() -> PortTable<T> {
        let mut key = [0; 16];
        hostcall::time::random(&mut key);
        PortTable {
            inner: Mutex::new(Inner {
                ports: HashMap::new(),
                taken: Bits::default(),
                fixed: Bits::default(),
            }),
            destinations: Arc::default(),
            next_id: AtomicU64::new(0),
            key,
            next: AtomicU32::new(0),
        }
    }

    fn conflict(port: &Port<T>, new: &Binding<T>, rule: Rule, listening: bool) -> bool {
        port.all.values().any(|b| {
            if std::ptr::eq(&**b, new) || !b.overlaps(new) {
                return false;
            }
            let both = |o| b.common.flag(o) && new.common.flag(o);
            let b_listens = b.target.lock().is_some();
            let share_addr = match rule {
                Rule::Tcp => both(SO_REUSEADDR) && !b_listens,
                Rule::Udp => both(SO_REUSEADDR),
            };
            let share_port = both(SO_REUSEPORT) && b.uid == new.uid;
            if listening {
                // Only another listener is in the way now.
                return b_listens && !share_port;
            }
            !share_addr && !share_port
        })
    }

    fn make(&self, asked: &BindRequest<'_>, port: u16, hold: Hold) -> Binding<T> {
        Binding {
            id: self.next_id.fetch_add(1, Ordering::Relaxed),
            ip: asked.at.ip,
            port,
            families: asked.families,
            hold,
            common: asked.common.clone(),
            uid: asked.uid,
            remote: Mutex::new(None),
            ends: Mutex::new(None),
            target: Mutex::new(None),
        }
    }

    /// Where the next search begins.
    fn start(&self, ports: PortRange) -> u16 {
        let turn = self.next.fetch_add(1, Ordering::Relaxed);
        ports.at(SipHasher13::new_with_key(&self.key).hash(&turn.to_ne_bytes()) as u32)
    }

    /// A port for bind(2): one that nobody has, else one that others have at other addresses.
    fn find_open(&self, inner: &Inner<T>, asked: &BindRequest<'_>, rule: Rule) -> Option<u16> {
        let (ports, start) = (asked.ports, self.start(asked.ports));
        let preferred = ports.preferred(For::Binding);
        let taken = |w: usize| inner.taken.word(w);
        for mask in [preferred, !preferred] {
            if let Some(p) = ports.first_free(start, mask, taken) {
                return Some(p);
            }
        }
        let mut new = self.make(asked, 0, Hold::Port);
        let all = (start..=ports.high()).chain(ports.low()..start);
        all.into_iter().find(|p| {
            new.port = *p;
            let Some(port) = inner.ports.get(p) else {
                return true;
            };
            match rule {
                Rule::Tcp => !port.all.values().any(|b| b.overlaps(&new)),
                Rule::Udp => !Self::conflict(port, &new, rule, false),
            }
        })
    }

    /// Takes an address; port 0 takes a free one. `EADDRINUSE`.
    pub fn bind(
        &self,
        asked: &BindRequest<'_>,
        rule: Rule,
        target: Option<Arc<T>>,
    ) -> Result<Arc<Binding<T>>> {
        let mut inner = self.inner.lock();
        let number = match asked.at.port {
            0 => self.find_open(&inner, asked, rule).ok_or(EADDRINUSE)?,
            n => n,
        };
        let b = self.make(asked, number, Hold::Port);
        if asked.at.port != 0
            && let Some(port) = inner.ports.get(&number)
            && Self::conflict(port, &b, rule, false)
        {
            return Err(EADDRINUSE);
        }
        let b = Arc::new(b);
        if target.is_some() {
            inner.ports.entry(number).or_default().add_target(&b)?;
        }
        *b.target.lock() = target;
        inner.add(&b);
        Ok(b)
    }

    /// A port for a connection from `asked.at`'s address to `to`: one from which there is no other
    /// to it, and that only connections have. `EADDRNOTAVAIL`.
    pub fn bind_towards(&self, asked: &BindRequest<'_>, to: Endpoint) -> Result<Arc<Binding<T>>> {
        let mut inner = self.inner.lock();
        let (ports, start) = (asked.ports, self.start(asked.ports));
        let preferred = ports.preferred(For::Connection);
        let number = {
            let map = self.destinations.0.lock();
            let used = map.get(&(asked.at.ip, to));
            let taken = |w: usize| inner.fixed.word(w) | used.map_or(0, |u| u.word(w));
            let mut masks = [preferred, !preferred].into_iter();
            masks.find_map(|mask| ports.first_free(start, mask, taken))
        };
        let b = Arc::new(self.make(asked, number.ok_or(EADDRNOTAVAIL)?, Hold::Connection));
        self.connects(&b, asked.at.ip, to)?;
        inner.add(&b);
        Ok(b)
    }

    /// Who has a port connects from it to `to`: `EADDRNOTAVAIL` where there is such a connection.
    pub fn connects(&self, b: &Binding<T>, ip: IpAddr, to: Endpoint) -> Result<()> {
        b.release();
        let from = Endpoint { ip, port: b.port };
        let ends = Ends::new(&self.destinations, from, to).ok_or(EADDRNOTAVAIL)?;
        *b.ends.lock() = Some(ends);
        Ok(())
    }

    /// The same port as `b`, for a connection that came to it.
    pub fn share(&self, b: &Binding<T>, ip: IpAddr, common: &Arc<Common>) -> Arc<Binding<T>> {
        let at = Endpoint { ip, port: b.port };
        let asked = BindRequest {
            at,
            ports: PortRange::default(),
            families: Families::Both,
            common,
            uid: b.uid,
        };
        let new = Arc::new(self.make(&asked, b.port, Hold::Port));
        self.inner.lock().add(&new);
        new
    }

    /// From now on `target` takes what comes; `EADDRINUSE` if another does already.
    pub fn set_target(&self, b: &Arc<Binding<T>>, target: Arc<T>) -> Result<()> {
        let mut inner = self.inner.lock();
        let port = inner.ports.entry(b.port).or_default();
        if Self::conflict(port, b, Rule::Tcp, true) {
            return Err(EADDRINUSE);
        }
        port.add_target(b)?;
        *b.target.lock() = Some(target);
        Ok(())
    }

    /// Stops taking what comes, and keeps the port.
    pub fn clear_target(&self, b: &Arc<Binding<T>>) -> Option<Arc<T>> {
        let mut inner = self.inner.lock();
        if let Some(p) = inner.ports.get_mut(&b.port) {
            p.remove_target(b);
        }
        b.target.lock().take()
    }

    pub fn unbind(&self, b: &Arc<Binding<T>>) {
        let target = {
            let mut inner = self.inner.lock();
            inner.remove(b);
            b.target.lock().take()
        };
        b.release();
        drop(target);
    }

    /// Who takes what is sent to `dest`. `better` adds to the score of a candidate (`None` rejects
    /// it). Among equals that share the port it is who `coming` is for; of others, the newest.
    pub fn lookup(
        &self,
        dest: Endpoint,
        coming: Option<Coming<'_>>,
        better: impl Fn(&T) -> Option<u32>,
    ) -> Option<Arc<T>> {
        let inner = self.inner.lock();
        let mut best = Vec::new();
        let mut top = 0;
        for b in inner.ports.get(&dest.port)?.targets_at(dest.ip) {
            let Some(t) = b.target.lock().clone() else {
                continue;
            };
            let Some(score) = b.score(dest.ip).and_then(|s| Some(s + better(&t)?)) else {
                continue;
            };
            if score > top {
                top = score;
                best.clear();
            }
            if score == top {
                best.push((b, t));
            }
        }
        if best.len() == 1 {
            return best.pop().map(|(_, t)| t);
        }
        let newest = best.last()?.0.clone();
        let group = newest.common.chooser.get();
        let group = group.filter(|_| newest.common.flag(SO_REUSEPORT));
        if group.is_some() {
            // Others fit as well, of another device or another user.
            best.retain(|(b, _)| newest.shares_with(b));
        }
        let mut best: Vec<_> = best.into_iter().map(|(_, t)| t).collect();
        // A program may take a while.
        drop(inner);
        match group.and_then(|g| self.choose(dest, coming, &g, best.len())) {
            Some(i) => Some(best.swap_remove(i)),
            None => best.pop(),
        }
    }

    /// Which of those that share a port gets what comes (`reuseport_select_sock`).
    fn choose(
        &self,
        dest: Endpoint,
        coming: Option<Coming<'_>>,
        group: &Chooser,
        n: usize,
    ) -> Option<usize> {
        let coming = coming.filter(|_| n > 1)?;
        let chosen = group.program().map(|p| (coming.ask)(&p) as usize);
        if let Some(i) = chosen.filter(|i| *i < n) {
            return Some(i);
        }
        let mut h = SipHasher13::new_with_key(&self.key);
        (coming.from.ip, coming.from.port, dest.ip, dest.port).hash(&mut h);
        let part = (h.finish() >> 32) * n as u64;
        Some((part >> 32) as usize)
    }

    /// All who take what is sent to `dest`, if `take` says so.
    pub fn matching(&self, dest: Endpoint, take: impl Fn(&T) -> bool) -> Vec<Arc<T>> {
        let inner = self.inner.lock();
        let port = inner.ports.get(&dest.port);
        let all = port.into_iter().flat_map(|p| p.targets_at(dest.ip));
        all.filter(|b| b.score(dest.ip).is_some())
            .filter_map(|b| b.target.lock().clone())
            .filter(|t| take(t))
            .collect()
    }

    /// All bindings, for `/proc/net`.
    pub fn all(&self) -> Vec<Arc<Binding<T>>> {
        let inner = self.inner.lock();
        let all = inner.ports.values().flat_map(|p| p.all.values());
        all.cloned().collect()
    }
}

#[cfg(test)]
mod tests;
