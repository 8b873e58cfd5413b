//! NUMA policies (`mm/mempolicy.c`, `mm/migrate.c`), on a machine of one node: checked, kept and
//! told as Linux does; where pages lie there is nothing to choose.

use super::SysResult;
use super::args::*;
use crate::task::Context;
use crate::task::access::{self, By};
use abi::errno::*;
use abi::{Result, Va};
use mm::policy::{self, Policy};
use std::sync::atomic::Ordering;
use vfs::Caps;

named! {
    /// How pages are placed; with it come flags, in the bits from 13 on.
    struct PolicyMode(u32) {
        MPOL_DEFAULT = 0,
        MPOL_PREFERRED = 1,
        MPOL_BIND = 2,
        MPOL_INTERLEAVE = 3,
        MPOL_LOCAL = 4,
        MPOL_PREFERRED_MANY = 5,
        MPOL_WEIGHTED_INTERLEAVE = 6,
    }
}

flags! {
    /// Of get_mempolicy(2).
    struct AskFlags: u64, refused {
        MPOL_F_NODE = 1,
        MPOL_F_ADDR = 2,
        MPOL_F_MEMS_ALLOWED = 4,
    }
}

flags! {
    /// Of mbind(2), which looks at the mode and the nodes first.
    struct BindFlags: u32, kept {
        MPOL_MF_STRICT = 1,
        MPOL_MF_MOVE = 2,
        MPOL_MF_MOVE_ALL = 4,
    }
}

flags! {
    /// Of move_pages(2).
    struct MoveFlags: u32, refused {
        MPOL_MF_MOVE = 2,
        MPOL_MF_MOVE_ALL = 4,
    }
}

/// `MAX_NUMNODES`.
const NODES_MAX: u64 = 1024;
/// Bits of a page: longer masks are refused.
const MASK_MAX: u64 = abi::PAGE_SIZE * 8;

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
fn mode(word: PolicyMode) -> Result<(u8, u8)> {
    const FLAGS: u32 = 7 << 13;
    let (mode, flags) = (word.0 & !FLAGS, (word.0 >> 13 & 7) as u8);
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
fn set_mempolicy(cx: &mut Context, mode: PolicyMode, mask: Va, max: u64) -> SysResult {
    let mode = self::mode(mode)?;
    let p = policy_for(mode, nodes(cx, mask, max)?)?;
    cx.numa_policy.store(p.bits(), Ordering::Relaxed);
    Ok(0)
}

/// `mbind(addr, len, mode, nodemask, maxnode, flags)`.
fn mbind(
    cx: &mut Context,
    addr: Va,
    len: u64,
    mode: PolicyMode,
    mask: Va,
    max: u64,
    flags: BindFlags,
) -> SysResult {
    let mode = self::mode(mode)?;
    let nodes = nodes(cx, mask, max)?;
    if !BindFlags::all().contains(flags) {
        return Err(EINVAL);
    }
    if flags.contains(BindFlags::MPOL_MF_MOVE_ALL) && !cx.cred().has(Caps::SYS_NICE) {
        return Err(EPERM);
    }
    if !addr.is_page_aligned() {
        return Err(EINVAL);
    }
    if len.wrapping_add(abi::PAGE_SIZE - 1) < abi::PAGE_SIZE {
        return Ok(0);
    }
    let p = policy_for(mode, nodes)?;
    cx.mm().set_policy(addr, len, p).map(|()| 0)
}

/// `get_mempolicy(mode, nodemask, maxnode, addr, flags)`.
fn get_mempolicy(
    cx: &mut Context,
    mode: Option<UserOut<u32>>,
    mask: Option<Va>,
    max: u64,
    addr: Va,
    flags: AskFlags,
) -> SysResult {
    if mask.is_some() && max < 1 {
        return Err(EINVAL);
    }
    let (word, nodes) = match flags {
        AskFlags::MPOL_F_MEMS_ALLOWED => (0, 1),
        _ if flags.contains(AskFlags::MPOL_F_MEMS_ALLOWED) => return Err(EINVAL),
        _ => asked(cx, addr, flags)?,
    };
    if let Some(mode) = mode {
        mode.write(&cx.mm(), &word)?;
    }
    if let Some(va) = mask {
        put_nodes(cx, va, max, nodes)?;
    }
    Ok(0)
}

/// The policy that is asked for, of the task or at an address: its mode or a node, and its nodes.
fn asked(cx: &Context, addr: Va, flags: AskFlags) -> Result<(u32, u64)> {
    let mm = cx.mm();
    let at_address = flags.contains(AskFlags::MPOL_F_ADDR);
    let p = match at_address {
        false if !addr.is_null() => return Err(EINVAL),
        false => Policy::from_bits(cx.numa_policy.load(Ordering::Relaxed)),
        true => mm.policy_at(addr)?,
    };
    let interleaves = matches!(p.mode(), policy::INTERLEAVE | policy::WEIGHTED_INTERLEAVE);
    let word = match (flags.contains(AskFlags::MPOL_F_NODE), at_address) {
        // The node of the page, which is brought in; or where the next page would lie.
        (true, true) => {
            mm.read_obj::<u8>(addr)?;
            0
        }
        (true, false) if interleaves => 0,
        (true, false) => return Err(EINVAL),
        (false, _) => u32::from(p.mode()) | u32::from(p.flags()) << 13,
    };
    Ok((word, p.nodes()))
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

/// `migrate_pages(pid, maxnode, old_nodes, new_nodes)`: nothing lies elsewhere.
fn migrate_pages(cx: &mut Context, tid: Tid, max: u64, old: Va, new: Va) -> SysResult {
    nodes(cx, old, max)?;
    let new = nodes(cx, new, max)?;
    let t = tid.task_or_caller(&cx.task)?;
    access::memory(cx, &t, By::Real)?;
    if new.others && !cx.cred().has(Caps::SYS_NICE) {
        return Err(EPERM);
    }
    if new.has_ours() { Ok(0) } else { Err(EINVAL) }
}

/// `move_pages(pid, count, pages, nodes, status, flags)`.
fn move_pages(
    cx: &mut Context,
    tid: Tid,
    count: u64,
    pages: UserArray<u64>,
    nodes: Option<UserArray<i32>>,
    status: UserArray<i32>,
    flags: MoveFlags,
) -> SysResult {
    if flags.contains(MoveFlags::MPOL_MF_MOVE_ALL) && !cx.cred().has(Caps::SYS_NICE) {
        return Err(EPERM);
    }
    let t = tid.task_or_caller(&cx.task)?;
    let (mm, other) = (cx.mm(), access::memory(cx, &t, By::Real)?);
    for i in 0..count {
        let page = pages.at(i).read(&mm)?;
        if let Some(nodes) = nodes
            && nodes.at(i).read(&mm)? != 0
        {
            return Err(ENODEV);
        }
        let node = other
            .node_of(Va(page))
            .map_or_else(|e| -e.raw(), |n| n as i32);
        status.at(i).write(&mm, &node)?;
        if i % 1024 == 0 && cx.is_killed() {
            return Err(EINTR);
        }
    }
    Ok(0)
}

/// `set_mempolicy_home_node(addr, len, node, flags)`.
fn set_mempolicy_home_node(
    cx: &mut Context,
    addr: Va,
    len: u64,
    node: u64,
    flags: u64,
) -> SysResult {
    if !addr.is_page_aligned() || flags != 0 || node != 0 {
        return Err(EINVAL);
    }
    cx.mm().set_home_node(addr, len).map(|()| 0)
}

const NOTE: &str = "one node";

calls! {
    mbind: NOTE,
    set_mempolicy: NOTE,
    get_mempolicy: NOTE,
    migrate_pages: NOTE,
    move_pages: NOTE,
    set_mempolicy_home_node: NOTE,
}
