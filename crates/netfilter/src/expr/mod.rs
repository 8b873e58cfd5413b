//! Expressions: what rules are made of. Each is read from attributes, told by attributes, and run.
//!
//! ```text
//! values    payload, cmp, range, bitwise, byteorder, immediate, lookup, numgen
//! about     meta, fib, ct: what is known of a packet beside its bytes
//! acts      counter, quota, limit, log, reject, snat, dnat, masq, redir, notrack, xt's matches and targets
//! ```

mod about;
mod acts;
mod values;

pub use about::{Ct, Fib, Meta};
pub use acts::{Bucket, Limit, Log, Nat, NatKind, Quota, Xt, translate};
pub use values::{Bitwise, Byteorder, Cmp, Lookup, Numgen, Payload, Range};

use crate::attr::{Attrs, Bag, Out};
use crate::conntrack::Flows;
use crate::legacy::Header;
use crate::log::{Logged, Logs};
use crate::packet::{Hook, Packet};
use crate::reject::Reject;
use crate::table::{Base, ChainType, Counter, Family, Table};
use crate::xt::Role;
use abi::Result;
use abi::errno::{E2BIG, EINVAL, ENOENT, EOPNOTSUPP, ERANGE};
use std::cell::Cell;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// `NFT_RULE_MAXEXPRS`.
const MOST: usize = 128;
/// The longest name (`NFT_NAME_MAXLEN`).
pub const NAME: usize = 256;

/// What is decided of a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    Accept,
    Drop,
    Continue,
    Break,
    Return,
    /// To a chain, by its handle.
    Jump(u64),
    Goto(u64),
}

impl Verdict {
    #[must_use]
    pub fn chain(&self) -> Option<u64> {
        match self {
            Verdict::Jump(c) | Verdict::Goto(c) => Some(*c),
            _ => None,
        }
    }

    fn code(self) -> i32 {
        match self {
            Verdict::Drop => 0,
            Verdict::Accept => 1,
            Verdict::Continue => -1,
            Verdict::Break => -2,
            Verdict::Jump(_) => -3,
            Verdict::Goto(_) => -4,
            Verdict::Return => -5,
        }
    }

    pub fn read(scope: &Scope<'_>, b: &Bag<'_>) -> Result<Verdict> {
        let code = b.need32(1)? as i32;
        Ok(match code {
            0 => Verdict::Drop,
            1 => Verdict::Accept,
            -1 => Verdict::Continue,
            -2 => Verdict::Break,
            -5 => Verdict::Return,
            -3 | -4 => {
                let chain = match (b.text(2, NAME)?, b.be32(3)?) {
                    (Some(name), _) => scope.table.chain(name),
                    (None, Some(id)) => {
                        let id = (scope.table.handle, id);
                        let handle = scope.fresh.chains.get(&id).ok_or(ENOENT)?;
                        scope.table.chains.get(handle)
                    }
                    (None, None) => return Err(EINVAL),
                };
                let chain = chain.ok_or(ENOENT)?;
                if chain.base.is_some() {
                    return Err(EOPNOTSUPP);
                }
                match code {
                    -3 => Verdict::Jump(chain.handle),
                    _ => Verdict::Goto(chain.handle),
                }
            }
            _ => return Err(EINVAL),
        })
    }

    pub fn write(self, o: &mut Out, table: &Table) {
        o.be32(1, self.code() as u32);
        if let Some(c) = self.chain() {
            o.text(2, table.chain_name(c));
        }
    }
}

/// A value or a verdict (`NFTA_DATA_*`).
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Data {
    Value(Box<[u8]>),
    Verdict(Verdict),
}

impl Data {
    pub fn read(scope: &Scope<'_>, b: &Bag<'_>) -> Result<Data> {
        if let Some(v) = b.get(1) {
            if v.is_empty() || v.len() > REGISTERS {
                return Err(EINVAL);
            }
            return Ok(Data::Value(v.into()));
        }
        let v = b.nested(2).ok_or(EINVAL)?;
        Ok(Data::Verdict(Verdict::read(scope, &v)?))
    }

    /// A value, of this length where one is said.
    pub fn value(b: &Bag<'_>, kind: u16, len: Option<usize>) -> Result<Box<[u8]>> {
        let v = b.nested(kind).ok_or(EINVAL)?.need(1)?;
        if v.is_empty() || v.len() > REGISTERS || len.is_some_and(|n| n != v.len()) {
            return Err(EINVAL);
        }
        Ok(v.into())
    }

    pub fn write(&self, o: &mut Out, table: &Table) {
        match self {
            Data::Value(v) => o.put(1, v),
            Data::Verdict(v) => o.nest(2, |o| v.write(o, table)),
        }
    }
}

pub fn put_value(o: &mut Out, kind: u16, v: &[u8]) {
    o.nest(kind, |o| o.put(1, v));
}

/// The bytes of all registers.
pub const REGISTERS: usize = 64;

/// A place in the registers; checked when it is read, for so many bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Reg(u8);

impl Reg {
    /// None is the verdict's.
    pub fn read(b: &Bag<'_>, kind: u16, len: usize) -> Result<Reg> {
        let at = match b.need32(kind)? {
            n @ 1..=4 => (n - 1) * 16,
            n @ 8..=23 => (n - 8) * 4,
            0 => return Err(EINVAL),
            _ => return Err(ERANGE),
        };
        if len == 0 {
            return Err(EINVAL);
        }
        if at as usize + len > REGISTERS {
            return Err(ERANGE);
        }
        Ok(Reg(at as u8))
    }

    /// The same, where there may be none.
    pub fn maybe(b: &Bag<'_>, kind: u16, len: usize) -> Result<Option<Reg>> {
        b.has(kind).then(|| Reg::read(b, kind, len)).transpose()
    }

    pub fn write(self, o: &mut Out, kind: u16) {
        let at = u32::from(self.0);
        let n = if at % 16 == 0 {
            1 + at / 16
        } else {
            8 + at / 4
        };
        o.be32(kind, n);
    }

    pub fn write_maybe(reg: Option<Reg>, o: &mut Out, kind: u16) {
        if let Some(r) = reg {
            r.write(o, kind);
        }
    }
}

/// What an expression may refer to while it is read.
pub struct Scope<'a> {
    pub table: &'a Table,
    pub family: Family,
    /// Of the chain of its rule.
    pub base: Option<&'a Base>,
    pub fresh: &'a Fresh,
    /// The protocol that xt's matches are told of (`NFTA_RULE_COMPAT`).
    pub compat: Option<(u32, u32)>,
    pub now: u64,
}

/// What a transaction has made: by the handle of its table, and the number that it gives itself.
#[derive(Default)]
pub struct Fresh {
    /// Where the attribute lies that an error is about; 0: nobody has said.
    pub blamed: Cell<usize>,
    pub sets: HashMap<(u64, u32), u64>,
    pub chains: HashMap<(u64, u32), u64>,
    pub rules: HashMap<(u64, u32), u64>,
}

impl Fresh {
    /// An error is about the attribute that lies there.
    pub fn blame<T>(&self, address: usize, r: Result<T>) -> Result<T> {
        if r.is_err() {
            self.blamed.set(address);
        }
        r
    }
}

/// What is known of a packet, as registers have it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Value {
    bytes: [u8; 16],
    len: u8,
}

impl Value {
    /// What is longer than an address is cut.
    #[must_use]
    pub fn new(b: &[u8]) -> Value {
        let mut bytes = [0; 16];
        let len = b.len().min(16);
        bytes[..len].copy_from_slice(&b[..len]);
        let len = len as u8;
        Value { bytes, len }
    }

    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }
}

impl From<u32> for Value {
    fn from(n: u32) -> Value {
        Value::new(&n.to_ne_bytes())
    }
}

impl From<std::net::IpAddr> for Value {
    fn from(ip: std::net::IpAddr) -> Value {
        match ip {
            std::net::IpAddr::V4(a) => Value::new(&a.octets()),
            std::net::IpAddr::V6(a) => Value::new(&a.octets()),
        }
    }
}

/// A packet's way through rules.
pub struct Run<'a, 'p> {
    pub regs: [u8; REGISTERS],
    pub packet: &'a Packet<'p>,
    pub meta: &'a mut crate::packet::Meta,
    pub table: &'a Table,
    pub hook: Hook,
    pub flows: &'a Flows,
    pub logs: &'a Logs,
    /// What answers a packet that is dropped.
    pub reject: Option<Reject>,
}

impl Run<'_, '_> {
    pub fn load(&self, r: Reg, len: usize) -> &[u8] {
        let at = usize::from(r.0);
        self.regs.get(at..at + len).unwrap_or(&[])
    }

    /// Stores bytes; the rest of their last word is zero.
    pub fn store(&mut self, r: Reg, v: &[u8]) {
        let at = usize::from(r.0);
        let end = (at + v.len()).next_multiple_of(4).min(REGISTERS);
        if let Some(place) = self.regs.get_mut(at..end) {
            place.fill(0);
            place[..v.len()].copy_from_slice(v);
        }
    }

    /// Stores what is known, in a register or none; the rule does not match where one is missing.
    pub fn put(&mut self, to: Option<Reg>, value: Option<Value>) -> Step {
        match (to, value) {
            (Some(to), Some(v)) => {
                self.store(to, v.bytes());
                Step::Next
            }
            _ => Step::Break,
        }
    }

    /// Tells those who listen of the packet.
    pub fn log(&self, l: &Logged<'_>) {
        self.logs.tell(l, self.hook, self.packet, self.meta);
    }

    pub fn word(&self, r: Reg) -> u32 {
        let b = self.load(r, 4).first_chunk().copied();
        u32::from_ne_bytes(b.unwrap_or_default())
    }
}

/// What an expression says of its rule.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    Next,
    /// The rule does not match.
    Break,
    Verdict(Verdict),
}

impl Step {
    fn of(matches: bool) -> Step {
        if matches { Step::Next } else { Step::Break }
    }
}

/// See the module.
pub enum Expr {
    Payload(Payload),
    Cmp(Cmp),
    Range(Range),
    Bitwise(Bitwise),
    Byteorder(Byteorder),
    /// To a register; a verdict has none.
    Immediate(Option<Reg>, Data),
    Lookup(Lookup),
    Numgen(Numgen),
    Meta(Meta),
    Fib(Fib),
    Ct(Ct),
    Counter(Arc<Counter>),
    Quota(Quota),
    Limit(Limit),
    Log(Log),
    Reject(u32, u8),
    Nat(Nat),
    Notrack,
    Match(Xt),
    Target(Xt),
    /// Of an old table's rule.
    Header(Box<Header>),
}

/// Reads the expressions of a rule.
pub fn read_all(scope: &Scope<'_>, list: &[u8]) -> Result<Vec<Expr>> {
    let mut all = Vec::new();
    for (_, one) in Attrs(list) {
        if all.len() >= MOST {
            return Err(E2BIG);
        }
        let read = Expr::read(scope, one);
        all.push(scope.fresh.blame(one.as_ptr().addr(), read)?);
    }
    Ok(all)
}

impl Expr {
    /// What it costs beside others.
    pub(crate) fn steps(&self) -> u64 {
        match self {
            // It looks at addresses and routes.
            Expr::Fib(_) => 16,
            Expr::Match(_) | Expr::Target(_) => 4,
            _ => 1,
        }
    }

    /// Reads `NFTA_EXPR_*`.
    pub fn read(scope: &Scope<'_>, one: &[u8]) -> Result<Expr> {
        let b = Bag::new(one);
        let name = b.need_text(1, NAME)?;
        let d = b.nested(2).unwrap_or(Bag::new(&[]));
        let d = &d;
        Ok(match name {
            "payload" => Expr::Payload(Payload::read(d)?),
            "cmp" => Expr::Cmp(Cmp::read(d)?),
            "range" => Expr::Range(Range::read(d)?),
            "bitwise" => Expr::Bitwise(Bitwise::read(d)?),
            "byteorder" => Expr::Byteorder(Byteorder::read(d)?),
            "immediate" => values::read_immediate(scope, d)?,
            "lookup" => Expr::Lookup(Lookup::read(scope, d)?),
            "numgen" => Expr::Numgen(Numgen::read(d)?),
            "meta" => Expr::Meta(Meta::read(d)?),
            "fib" => Expr::Fib(Fib::read(d)?),
            "ct" => Expr::Ct(Ct::read(d)?),
            "counter" => {
                let n = |kind| Ok(d.be64(kind)?.unwrap_or(0));
                Expr::Counter(Arc::new(Counter::new(n(2)?, n(1)?)))
            }
            "quota" => Expr::Quota(Quota::read(d)?),
            "limit" => Expr::Limit(Limit::read(d)?),
            "log" => Expr::Log(Log::read(d)?),
            "reject" => acts::read_reject(scope, d)?,
            "nat" => Expr::Nat(Nat::read(scope, NatKind::Nat, d)?),
            "masq" => Expr::Nat(Nat::read(scope, NatKind::Masquerade, d)?),
            "redir" => Expr::Nat(Nat::read(scope, NatKind::Redirect, d)?),
            "notrack" => Expr::Notrack,
            "match" => Expr::Match(Xt::read(scope, d, Role::Match)?),
            "target" => Expr::Target(Xt::read(scope, d, Role::Target)?),
            _ => return Err(ENOENT),
        })
    }

    pub fn name(&self) -> &'static str {
        match self {
            Expr::Payload(_) => "payload",
            Expr::Cmp(_) => "cmp",
            Expr::Range(_) => "range",
            Expr::Bitwise(_) => "bitwise",
            Expr::Byteorder(_) => "byteorder",
            Expr::Immediate(..) => "immediate",
            Expr::Lookup(_) => "lookup",
            Expr::Numgen(_) => "numgen",
            Expr::Meta(_) => "meta",
            Expr::Fib(_) => "fib",
            Expr::Ct(_) => "ct",
            Expr::Counter(_) => "counter",
            Expr::Quota(_) => "quota",
            Expr::Limit(_) => "limit",
            Expr::Log(_) => "log",
            Expr::Reject(..) => "reject",
            Expr::Nat(n) => n.name(),
            Expr::Notrack => "notrack",
            Expr::Match(_) => "match",
            Expr::Target(_) => "target",
            Expr::Header(_) => "header",
        }
    }

    /// Tells of it: `NFTA_EXPR_*`.
    pub fn write(&self, o: &mut Out, table: &Table) {
        o.text(1, self.name());
        o.nest(2, |o| self.write_data(o, table));
    }

    fn write_data(&self, o: &mut Out, table: &Table) {
        match self {
            Expr::Payload(e) => e.write(o),
            Expr::Cmp(e) => e.write(o),
            Expr::Range(e) => e.write(o),
            Expr::Bitwise(e) => e.write(o),
            Expr::Byteorder(e) => e.write(o),
            Expr::Immediate(reg, data) => {
                match reg {
                    Some(r) => r.write(o, 1),
                    None => o.be32(1, 0),
                }
                o.nest(2, |o| data.write(o, table));
            }
            Expr::Lookup(e) => e.write(o, table),
            Expr::Numgen(e) => e.write(o),
            Expr::Meta(e) => e.write(o),
            Expr::Fib(e) => e.write(o),
            Expr::Ct(e) => e.write(o),
            Expr::Counter(c) => {
                let (packets, bytes) = c.get();
                o.be64(1, bytes);
                o.be64(2, packets);
            }
            Expr::Quota(e) => e.write(o),
            Expr::Limit(e) => e.write(o),
            Expr::Log(e) => e.write(o),
            Expr::Reject(kind, code) => {
                o.be32(1, *kind);
                if *kind != Reject::BY_RESET {
                    o.put(2, &[*code]);
                }
            }
            Expr::Nat(e) => e.write(o),
            // (An old table's rules are not told of by attributes.)
            Expr::Notrack | Expr::Header(_) => {}
            Expr::Match(e) | Expr::Target(e) => e.write(o),
        }
    }

    /// Runs it.
    pub fn run(&self, r: &mut Run<'_, '_>) -> Step {
        match self {
            Expr::Payload(e) => e.run(r),
            Expr::Cmp(e) => e.run(r),
            Expr::Range(e) => e.run(r),
            Expr::Bitwise(e) => e.run(r),
            Expr::Byteorder(e) => e.run(r),
            Expr::Immediate(_, Data::Verdict(v)) => values::verdict(*v),
            Expr::Immediate(reg, Data::Value(v)) => {
                if let Some(reg) = reg {
                    r.store(*reg, v);
                }
                Step::Next
            }
            Expr::Lookup(e) => e.run(r),
            Expr::Numgen(e) => e.run(r),
            Expr::Meta(e) => e.run(r),
            Expr::Fib(e) => e.run(r),
            Expr::Ct(e) => e.run(r),
            Expr::Counter(c) => {
                c.count(r.packet.len);
                Step::Next
            }
            Expr::Quota(e) => e.run(r),
            Expr::Limit(e) => e.run(r),
            Expr::Log(l) => {
                l.run(r);
                Step::Next
            }
            Expr::Reject(kind, code) => {
                r.reject = Reject::by(*kind, *code, r.packet.version);
                Step::Verdict(Verdict::Drop)
            }
            Expr::Nat(e) => e.run(r),
            Expr::Notrack => {
                r.meta.track.leave_alone();
                Step::Next
            }
            Expr::Match(e) => Step::of(e.matches(r)),
            Expr::Target(e) => e.act(r),
            Expr::Header(h) => Step::of(h.matches(r.packet)),
        }
    }

    /// Whether connections must be tracked for it.
    pub fn tracks(&self) -> bool {
        match self {
            Expr::Ct(_) | Expr::Nat(_) => true,
            Expr::Match(x) | Expr::Target(x) => x.tracks(),
            _ => false,
        }
    }

    /// Where it may be.
    pub(crate) fn places(&self) -> crate::validate::Places {
        use crate::validate::{Places, place};
        let of = |kind: ChainType, hooks: &[Hook]| -> Places {
            hooks.iter().fold(0, |all, h| all | place(kind, *h))
        };
        const REJECTS: [Hook; 4] = [Hook::Prerouting, Hook::Input, Hook::Forward, Hook::Output];
        match self {
            Expr::Reject(..) => {
                let kinds = [ChainType::Filter, ChainType::Route, ChainType::Nat];
                kinds.iter().fold(0, |all, k| all | of(*k, &REJECTS))
            }
            Expr::Nat(n) => of(ChainType::Nat, n.hooks()),
            Expr::Match(x) | Expr::Target(x) => x.places(),
            _ => Places::MAX,
        }
    }

    /// About how much memory it takes.
    pub fn bytes(&self) -> usize {
        let more = match self {
            Expr::Match(x) | Expr::Target(x) => x.bytes(),
            Expr::Log(l) => l.prefix.len(),
            Expr::Header(_) => size_of::<Header>(),
            Expr::Counter(_) => size_of::<Counter>(),
            _ => REGISTERS,
        };
        size_of::<Expr>() + more
    }

    /// Sets its counters to zero.
    pub fn reset(&self) {
        match self {
            Expr::Counter(c) => {
                c.packets.store(0, Relaxed);
                c.bytes.store(0, Relaxed);
            }
            Expr::Quota(q) => q.reset(),
            _ => {}
        }
    }
}
