//! NUMA policies (`mm/mempolicy.c`, `mm/migrate.c`), on a machine of one node: checked, kept and told as Linux does;
//! where pages lie there is nothing to choose.

use crate::syscalls::{Arg, Args, Call, SysResult};
use crate::task::Context;
use crate::task::access::{self, By};
use abi::errno::*;
use abi::{Result, Va};
use mm::policy::{self, Policy};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use vfs::Caps;

/// `MAX_NUMNODES`.
const NODES_MAX: u64 = 1024;
/// Bits of a page: longer masks are refused.
const MASK_MAX: u64 = abi::PAGE_SIZE * 8;

/// Flags of get_mempolicy.
const F_NODE: u64 = 1;
const F_ADDR: u64 = 2;
const F_MEMS_ALLOWED: u64 = 4;

/// Flags of mbind and move_pages.
const MF_STRICT: u64 = 1;
const MF_MOVE: u64 = 2;
const MF_MOVE_ALL: u64 = 4;

/// A mask of nodes, of which the first 16 are remembered.
#[derive(Clone, Copy, Default)]
struct Nodes {
    any: bool,
    /// Any but the one that there is.
    others: bool,
    first: u16,
}

impl Nodes {
    /// Whether the node that there is belongs to it.
    fn has_ours(self) -> bool {
        self.first & 1 != 0
    }
}

/// `get_nodes`: `len` counts one bit too many.
fn nodes(cx: &Context, va: Va, len: u64) -> Result<Nodes> {
    let bits = len.wrapping_sub(1);
    if bits == 0 || va.0 == 0 {
        return Ok(Nodes::default());
    }
    if bits > MASK_MAX {
        return Err(EINVAL);
    }
    let mut n = Nodes::default();
    let mm = cx.mm();
    // From the end on, as Linux looks for what it does not know.
    for i in (0..bits.div_ceil(64)).rev() {
        let mut word: u64 = mm.read_obj(va.offset(i * 8))?;
        if bits - i * 64 < 64 {
            word &= (1 << (bits - i * 64)) - 1;
        }
        if word != 0 && i * 64 >= NODES_MAX {
            return Err(EINVAL);
        }
        n.any |= word != 0;
        n.others |= if i == 0 { word & !1 } else { word } != 0;
        if i == 0 {
            n.first = word as u16;
        }
    }
    Ok(n)
}

/// A mode and its flags (`sanitize_mpol_flags`).
fn mode(word: u32) -> Result<(u8, u8)> {
    const FLAGS: u32 = 7 << 13;
    let (mode, flags) = (word & !FLAGS, (word >> 13 & 7) as u8);
    if mode > u32::from(policy::WEIGHTED_INTERLEAVE) {
        return Err(EINVAL);
    }
    let mode = mode as u8;
    let of_nodes = policy::STATIC_NODES | policy::RELATIVE_NODES;
    let may_balance = matches!(mode, policy::BIND | policy::PREFERRED_MANY);
    if flags & of_nodes == of_nodes || flags & policy::NUMA_BALANCING != 0 && !may_balance {
        return Err(EINVAL);
    }
    Ok((mode, flags))
}

/// What they mean for a mask (`mpol_new`, `mpol_set_nodemask`).
fn policy_for((mode, flags): (u8, u8), nodes: Nodes) -> Result<Policy> {
    let plain = flags & (policy::STATIC_NODES | policy::RELATIVE_NODES) == 0;
    match mode {
        policy::DEFAULT if nodes.any => Err(EINVAL),
        policy::DEFAULT => Ok(Policy::default()),
        policy::LOCAL if nodes.any || !plain => Err(EINVAL),
        policy::LOCAL => Ok(Policy::new(mode, flags, 0)),
        policy::PREFERRED if !nodes.any && plain => Ok(Policy::new(policy::LOCAL, flags, 0)),
        _ if !nodes.any => Err(EINVAL),
        // Relative numbers wrap around what there is.
        _ if nodes.has_ours() || flags & policy::RELATIVE_NODES != 0 => {
            Ok(Policy::new(mode, flags, nodes.first))
        }
        _ => Err(EINVAL),
    }
}

/// `set_mempolicy(mode, nodemask, maxnode)`.
fn set_mempolicy(cx: &mut Context, a: &Args) -> SysResult {
    let mode = mode(a.u32(0))?;
    let p = policy_for(mode, nodes(cx, a.va(1), a.u64(2))?)?;
    cx.numa_policy.store(p.bits(), Ordering::Relaxed);
    Ok(0)
}

/// `mbind(addr, len, mode, nodemask, maxnode, flags)`.
fn mbind(cx: &mut Context, a: &Args) -> SysResult {
    let mode = mode(a.u32(2))?;
    let nodes = nodes(cx, a.va(3), a.u64(4))?;
    let flags = a.u64(5);
    if flags & !(MF_STRICT | MF_MOVE | MF_MOVE_ALL) != 0 {
        return Err(EINVAL);
    }
    if flags & MF_MOVE_ALL != 0 && !cx.cred().has(Caps::SYS_NICE) {
        return Err(EPERM);
    }
    if !a.va(0).is_page_aligned() {
        return Err(EINVAL);
    }
    if a.u64(1).wrapping_add(abi::PAGE_SIZE - 1) < abi::PAGE_SIZE {
        return Ok(0);
    }
    let p = policy_for(mode, nodes)?;
    cx.mm().set_policy(a.va(0), a.u64(1), p).map(|()| 0)
}

/// `get_mempolicy(mode, nodemask, maxnode, addr, flags)`.
fn get_mempolicy(cx: &mut Context, a: &Args) -> SysResult {
    let (len, flags) = (a.u64(2), a.u64(4));
    let mask = a.va_opt(1);
    if mask.is_some() && len < 1 || flags & !(F_NODE | F_ADDR | F_MEMS_ALLOWED) != 0 {
        return Err(EINVAL);
    }
    let mm = cx.mm();
    let (word, nodes) = if flags & F_MEMS_ALLOWED != 0 {
        if flags != F_MEMS_ALLOWED {
            return Err(EINVAL);
        }
        (0, 1)
    } else {
        let own = Policy::from_bits(cx.numa_policy.load(Ordering::Relaxed));
        let p = match flags & F_ADDR {
            0 if a.u64(3) != 0 => return Err(EINVAL),
            0 => own,
            _ => mm.policy_at(a.va(3))?,
        };
        let interleaves = matches!(p.mode(), policy::INTERLEAVE | policy::WEIGHTED_INTERLEAVE);
        let word = match flags & (F_NODE | F_ADDR) {
            // The node of the page, which is brought in; or where the next page would lie.
            3 => {
                mm.read_obj::<u8>(a.va(3))?;
                0
            }
            F_NODE if interleaves => 0,
            F_NODE => return Err(EINVAL),
            _ => u32::from(p.mode()) | u32::from(p.flags()) << 13,
        };
        (word, p.nodes())
    };
    if let Some(va) = a.va_opt(0) {
        mm.write_obj(va, &word)?;
    }
    if let Some(va) = mask {
        put_nodes(cx, va, len, nodes)?;
    }
    Ok(0)
}

/// `copy_nodes_to_user`: as many words as `len` bits need, of which one says something.
fn put_nodes(cx: &Context, va: Va, len: u64, nodes: u64) -> Result<()> {
    // It wraps around, as Linux's does: as if there were no mask.
    let bytes = ((len - 1).wrapping_add(63) & !63) / 8;
    if bytes > abi::PAGE_SIZE {
        return Err(EINVAL);
    }
    let mut out = vec![0; bytes as usize];
    if let Some(first) = out.first_chunk_mut() {
        *first = nodes.to_le_bytes();
    }
    cx.mm().copy_out(va, &out)
}

/// The task that is meant; 0 is the caller.
fn target(cx: &Context, pid: i32) -> Result<Arc<crate::Task>> {
    match pid {
        0 => Ok(cx.task.clone()),
        pid => cx.find_task(pid),
    }
}

/// `migrate_pages(pid, maxnode, old_nodes, new_nodes)`: nothing lies elsewhere.
fn migrate_pages(cx: &mut Context, a: &Args) -> SysResult {
    nodes(cx, a.va(2), a.u64(1))?;
    let new = nodes(cx, a.va(3), a.u64(1))?;
    let t = target(cx, a.i32(0))?;
    access::memory(cx, &t, By::Real)?;
    if new.others && !cx.cred().has(Caps::SYS_NICE) {
        return Err(EPERM);
    }
    if new.has_ours() { Ok(0) } else { Err(EINVAL) }
}

/// `move_pages(pid, count, pages, nodes, status, flags)`.
fn move_pages(cx: &mut Context, a: &Args) -> SysResult {
    let flags = a.u64(5);
    if flags & !(MF_MOVE | MF_MOVE_ALL) != 0 {
        return Err(EINVAL);
    }
    if flags & MF_MOVE_ALL != 0 && !cx.cred().has(Caps::SYS_NICE) {
        return Err(EPERM);
    }
    let t = target(cx, a.i32(0))?;
    let (mm, other) = (cx.mm(), access::memory(cx, &t, By::Real)?);
    for i in 0..a.u64(1) {
        let page: u64 = mm.read_obj(a.va(2).offset(i.wrapping_mul(8)))?;
        if let Some(nodes) = a.va_opt(3) {
            match mm.read_obj::<i32>(nodes.offset(i.wrapping_mul(4)))? {
                0 => {}
                _ => return Err(ENODEV),
            }
        }
        let status = other
            .node_of(Va(page))
            .map_or_else(|e| -e.raw(), |n| n as i32);
        mm.write_obj(a.va(4).offset(i.wrapping_mul(4)), &status)?;
        if i % 1024 == 0 && cx.is_killed() {
            return Err(EINTR);
        }
    }
    Ok(0)
}

/// `set_mempolicy_home_node(addr, len, node, flags)`.
fn set_mempolicy_home_node(cx: &mut Context, a: &Args) -> SysResult {
    if !a.va(0).is_page_aligned() || a.u64(3) != 0 || a.u64(2) != 0 {
        return Err(EINVAL);
    }
    cx.mm().set_home_node(a.va(0), a.u64(1)).map(|()| 0)
}

const NOTE: &str = "one node";

pub const CALLS: &[Call] = &[
    Call::new(
        237,
        "mbind",
        &[Arg::Ptr, Arg::Uint, Arg::Hex, Arg::Ptr, Arg::Uint, Arg::Hex],
        mbind,
    )
    .note(NOTE),
    Call::new(
        238,
        "set_mempolicy",
        &[Arg::Hex, Arg::Ptr, Arg::Uint],
        set_mempolicy,
    )
    .note(NOTE),
    Call::new(
        239,
        "get_mempolicy",
        &[Arg::Ptr, Arg::Ptr, Arg::Uint, Arg::Ptr, Arg::Hex],
        get_mempolicy,
    )
    .note(NOTE),
    Call::new(
        256,
        "migrate_pages",
        &[Arg::Int, Arg::Uint, Arg::Ptr, Arg::Ptr],
        migrate_pages,
    )
    .note(NOTE),
    Call::new(
        279,
        "move_pages",
        &[Arg::Int, Arg::Uint, Arg::Ptr, Arg::Ptr, Arg::Ptr, Arg::Hex],
        move_pages,
    )
    .note(NOTE),
    Call::new(
        450,
        "set_mempolicy_home_node",
        &[Arg::Ptr, Arg::Uint, Arg::Uint, Arg::Hex],
        set_mempolicy_home_node,
    )
    .note(NOTE),
];
