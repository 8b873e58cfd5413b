//! Bytes of a packet, and what is compared with them.

use super::{Data, Expr, NAME, REGISTERS, Reg, Run, Scope, Step, Verdict, put_value};
use crate::attr::{Bag, Out};
use crate::set::MAP;
use crate::table::Table;
use abi::Result;
use abi::errno::{EINVAL, ENOENT, EOPNOTSUPP, ERANGE};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// Bytes of the packet.
pub struct Payload {
    base: u32,
    offset: u32,
    len: u32,
    to: Reg,
}

impl Payload {
    pub fn read(b: &Bag<'_>) -> Result<Payload> {
        // Packets are not written.
        if b.has(5) {
            return Err(EOPNOTSUPP);
        }
        let (base, offset, len) = (b.need32(2)?, b.need32(3)?, b.need32(4)?);
        if base > 3 {
            return Err(EOPNOTSUPP);
        }
        if len == 0 || len as usize > REGISTERS {
            return Err(EINVAL);
        }
        let to = Reg::read(b, 1, len as usize)?;
        Ok(Payload {
            base,
            offset,
            len,
            to,
        })
    }

    pub fn write(&self, o: &mut Out) {
        self.to.write(o, 1);
        o.be32(2, self.base);
        o.be32(3, self.offset);
        o.be32(4, self.len);
    }

    pub fn run(&self, r: &mut Run<'_, '_>) -> Step {
        let p = r.packet;
        let base = match self.base {
            1 => Some(0),
            2 => p.transport,
            3 => p.inner(),
            // The link's header is not there any longer, or not yet.
            _ => None,
        };
        let bytes = base
            .and_then(|b| b.checked_add(self.offset as usize))
            .and_then(|at| p.bytes.get(at..at.checked_add(self.len as usize)?));
        match bytes {
            Some(b) => {
                r.store(self.to, b);
                Step::Next
            }
            None => Step::Break,
        }
    }
}

/// A register compared with a value.
pub struct Cmp {
    from: Reg,
    op: u32,
    data: Box<[u8]>,
}

impl Cmp {
    pub fn read(b: &Bag<'_>) -> Result<Cmp> {
        let data = Data::value(b, 3, None)?;
        let op = b.need32(2)?;
        if op > 5 {
            return Err(EINVAL);
        }
        let from = Reg::read(b, 1, data.len())?;
        Ok(Cmp { from, op, data })
    }

    pub fn write(&self, o: &mut Out) {
        self.from.write(o, 1);
        o.be32(2, self.op);
        put_value(o, 3, &self.data);
    }

    pub fn run(&self, r: &mut Run<'_, '_>) -> Step {
        let order = r.load(self.from, self.data.len()).cmp(&self.data);
        Step::of(match self.op {
            0 => order.is_eq(),
            1 => order.is_ne(),
            2 => order.is_lt(),
            3 => order.is_le(),
            4 => order.is_gt(),
            _ => order.is_ge(),
        })
    }
}

/// A register within two values.
pub struct Range {
    from: Reg,
    not: bool,
    first: Box<[u8]>,
    last: Box<[u8]>,
}

impl Range {
    pub fn read(b: &Bag<'_>) -> Result<Range> {
        let first = Data::value(b, 3, None)?;
        let last = Data::value(b, 4, Some(first.len()))?;
        let not = match b.need32(2)? {
            0 => false,
            1 => true,
            _ => return Err(EINVAL),
        };
        let from = Reg::read(b, 1, first.len())?;
        Ok(Range {
            from,
            not,
            first,
            last,
        })
    }

    pub fn write(&self, o: &mut Out) {
        self.from.write(o, 1);
        o.be32(2, self.not.into());
        put_value(o, 3, &self.first);
        put_value(o, 4, &self.last);
    }

    pub fn run(&self, r: &mut Run<'_, '_>) -> Step {
        let v = r.load(self.from, self.first.len());
        let within = *self.first <= *v && *v <= *self.last;
        Step::of(within != self.not)
    }
}

enum Op {
    /// Mask and xor.
    Bool(Box<[u8]>, Box<[u8]>),
    Left(u32),
    Right(u32),
}

/// Bits of a register.
pub struct Bitwise {
    from: Reg,
    to: Reg,
    len: usize,
    op: Op,
}

impl Bitwise {
    pub fn read(b: &Bag<'_>) -> Result<Bitwise> {
        let len = b.need32(3)? as usize;
        if len > REGISTERS {
            return Err(ERANGE);
        }
        let (from, to) = (Reg::read(b, 1, len)?, Reg::read(b, 2, len)?);
        let shift = || -> Result<u32> {
            let v = Data::value(b, 7, Some(4))?;
            let n = u32::from_ne_bytes(v[..].try_into().unwrap_or_default());
            if n == 0 || n >= 32 {
                Err(EINVAL)
            } else {
                Ok(n)
            }
        };
        let op = match b.be32(6)?.unwrap_or(0) {
            0 => Op::Bool(Data::value(b, 4, Some(len))?, Data::value(b, 5, Some(len))?),
            1 => Op::Left(shift()?),
            2 => Op::Right(shift()?),
            _ => return Err(EOPNOTSUPP),
        };
        Ok(Bitwise { from, to, len, op })
    }

    pub fn write(&self, o: &mut Out) {
        self.from.write(o, 1);
        self.to.write(o, 2);
        o.be32(3, self.len as u32);
        let (op, shift) = match &self.op {
            Op::Bool(mask, xor) => {
                o.be32(6, 0);
                put_value(o, 4, mask);
                return put_value(o, 5, xor);
            }
            Op::Left(n) => (1, n),
            Op::Right(n) => (2, n),
        };
        o.be32(6, op);
        put_value(o, 7, &shift.to_ne_bytes());
    }

    pub fn run(&self, r: &mut Run<'_, '_>) -> Step {
        let mut all = [0; REGISTERS];
        let v = &mut all[..self.len];
        v.copy_from_slice(r.load(self.from, self.len));
        match &self.op {
            Op::Bool(mask, xor) => {
                for ((b, m), x) in v.iter_mut().zip(mask).zip(xor) {
                    *b = *b & m ^ x;
                }
            }
            Op::Left(n) => shift(v, |words| {
                let mut carry = 0;
                for w in words.iter_mut().rev() {
                    let old = *w;
                    *w = old << n | carry;
                    carry = old >> (32 - n);
                }
            }),
            Op::Right(n) => shift(v, |words| {
                let mut carry = 0;
                for w in words.iter_mut() {
                    let old = *w;
                    *w = old >> n | carry;
                    carry = old << (32 - n);
                }
            }),
        }
        r.store(self.to, v);
        Step::Next
    }
}

/// Works on bytes as on words of the machine's order, as Linux does.
fn shift(v: &mut [u8], f: impl FnOnce(&mut [u32])) {
    let mut words = [0; REGISTERS / 4];
    let n = v.len().div_ceil(4);
    for (w, b) in words.iter_mut().zip(v.chunks(4)) {
        let mut one = [0; 4];
        one[..b.len()].copy_from_slice(b);
        *w = u32::from_ne_bytes(one);
    }
    f(&mut words[..n]);
    for (w, b) in words.iter().zip(v.chunks_mut(4)) {
        let len = b.len();
        b.copy_from_slice(&w.to_ne_bytes()[..len]);
    }
}

/// The order of a number's bytes.
pub struct Byteorder {
    from: Reg,
    to: Reg,
    op: u32,
    len: u32,
    size: u32,
}

impl Byteorder {
    pub fn read(b: &Bag<'_>) -> Result<Byteorder> {
        let (op, len, size) = (b.need32(3)?, b.need32(4)?, b.need32(5)?);
        if op > 1 || !matches!(size, 2 | 4 | 8) || len as usize > REGISTERS {
            return Err(EINVAL);
        }
        Ok(Byteorder {
            from: Reg::read(b, 1, len as usize)?,
            to: Reg::read(b, 2, len as usize)?,
            op,
            len,
            size,
        })
    }

    pub fn write(&self, o: &mut Out) {
        self.from.write(o, 1);
        self.to.write(o, 2);
        o.be32(3, self.op);
        o.be32(4, self.len);
        o.be32(5, self.size);
    }

    pub fn run(&self, r: &mut Run<'_, '_>) -> Step {
        let mut all = [0; REGISTERS];
        let len = self.len as usize;
        let v = &mut all[..len];
        v.copy_from_slice(r.load(self.from, len));
        for n in v.chunks_exact_mut(self.size as usize) {
            n.reverse();
        }
        r.store(self.to, v);
        Step::Next
    }
}

pub(super) fn read_immediate(scope: &Scope<'_>, b: &Bag<'_>) -> Result<Expr> {
    let data = Data::read(scope, &b.nested(2).ok_or(EINVAL)?)?;
    let reg = match &data {
        Data::Value(v) => Some(Reg::read(b, 1, v.len())?),
        Data::Verdict(_) if b.need32(1)? == 0 => None,
        Data::Verdict(_) => return Err(EINVAL),
    };
    Ok(Expr::Immediate(reg, data))
}

pub(super) fn verdict(v: Verdict) -> Step {
    match v {
        Verdict::Continue => Step::Next,
        Verdict::Break => Step::Break,
        v => Step::Verdict(v),
    }
}

/// A set or map, asked for a register.
pub struct Lookup {
    /// Its handle.
    pub set: u64,
    from: Reg,
    /// The length of its keys.
    len: usize,
    to: To,
    not: bool,
}

enum To {
    /// It is enough that there is one.
    Nowhere,
    Register(Reg),
    Verdict,
}

impl Lookup {
    pub fn read(scope: &Scope<'_>, b: &Bag<'_>) -> Result<Lookup> {
        let name = b.need_text(1, NAME)?;
        let t = scope.table;
        let by_id = || {
            let id = b.be32(4).ok().flatten()?;
            t.sets.get(scope.fresh.sets.get(&(t.handle, id))?)
        };
        let set = t.set(name).or_else(by_id).ok_or(ENOENT)?;
        let flags = b.be32(5)?.unwrap_or(0);
        if flags > 1 {
            return Err(EINVAL);
        }
        let s = &set.shape;
        let not = flags & 1 != 0;
        let to = match (b.be32(3)?, set.is(MAP)) {
            (None, _) => To::Nowhere,
            (Some(_), false) => return Err(EINVAL),
            (Some(_), true) if not => return Err(EINVAL),
            (Some(0), true) if s.data_type.is_none() => To::Verdict,
            (Some(_), true) => To::Register(Reg::read(b, 3, s.data_len.max(1))?),
        };
        Ok(Lookup {
            set: s.handle,
            from: Reg::read(b, 2, s.key_len)?,
            len: s.key_len,
            to,
            not,
        })
    }

    pub fn write(&self, o: &mut Out, table: &Table) {
        let name = table.sets.get(&self.set).map_or("", |s| &s.shape.name);
        o.text(1, name);
        self.from.write(o, 2);
        match self.to {
            To::Nowhere => {}
            To::Register(r) => r.write(o, 3),
            To::Verdict => o.be32(3, 0),
        }
        o.be32(5, self.not.into());
    }

    pub fn run(&self, r: &mut Run<'_, '_>) -> Step {
        let Some(set) = r.table.sets.get(&self.set) else {
            return Step::Break;
        };
        let found = set.find(r.load(self.from, self.len), r.packet.now);
        let Some(e) = found else {
            return Step::of(self.not);
        };
        if self.not {
            return Step::Break;
        }
        for x in e.exprs.iter() {
            match x.run(r) {
                Step::Next => {}
                other => return other,
            }
        }
        match (&self.to, &e.data) {
            (To::Register(reg), Some(Data::Value(v))) => r.store(*reg, v),
            (To::Verdict, Some(Data::Verdict(v))) => return verdict(*v),
            (To::Nowhere, _) => {}
            _ => return Step::Break,
        }
        Step::Next
    }
}

/// A number after the other, or one at random.
pub struct Numgen {
    to: Reg,
    modulus: u32,
    random: bool,
    offset: u32,
    next: AtomicU32,
}

impl Numgen {
    pub fn read(b: &Bag<'_>) -> Result<Numgen> {
        let modulus = b.need32(2)?;
        if modulus == 0 {
            return Err(ERANGE);
        }
        let random = match b.need32(3)? {
            0 => false,
            1 => true,
            _ => return Err(EOPNOTSUPP),
        };
        let offset = b.be32(4)?.unwrap_or(0);
        if offset.checked_add(modulus - 1).is_none() {
            return Err(abi::errno::EOVERFLOW);
        }
        Ok(Numgen {
            to: Reg::read(b, 1, 4)?,
            modulus,
            random,
            offset,
            next: AtomicU32::new(0),
        })
    }

    pub fn write(&self, o: &mut Out) {
        self.to.write(o, 1);
        o.be32(2, self.modulus);
        o.be32(3, self.random.into());
        o.be32(4, self.offset);
    }

    pub fn run(&self, r: &mut Run<'_, '_>) -> Step {
        let n = if self.random {
            r.flows.random()
        } else {
            self.next.fetch_add(1, Relaxed)
        };
        r.store(self.to, &(n % self.modulus + self.offset).to_ne_bytes());
        Step::Next
    }
}
