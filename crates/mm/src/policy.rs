//! NUMA policies of memory (`numa(7)`): kept and told. The machine that is shown has one node, so
//! that none changes where a page lies.

use crate::map::user_range;
use crate::vma::VmaFlags;
use crate::{Mm, PAGE, Result};
use abi::Va;
use abi::errno::{EFAULT, EINVAL, ENOENT, EOPNOTSUPP};
use std::ops::Range;

/// A policy as it was asked for; the default is none.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Policy(u32);

/// Modes (`MPOL_*`).
pub const DEFAULT: u8 = 0;
pub const PREFERRED: u8 = 1;
pub const BIND: u8 = 2;
pub const INTERLEAVE: u8 = 3;
pub const LOCAL: u8 = 4;
pub const PREFERRED_MANY: u8 = 5;
pub const WEIGHTED_INTERLEAVE: u8 = 6;
const MODES: u32 = 7;

/// Flags of a mode, as [`Policy::flags`] has them: `MPOL_F_*` from bit 13 on.
pub const NUMA_BALANCING: u8 = 1;
pub const RELATIVE_NODES: u8 = 2;
pub const STATIC_NODES: u8 = 4;

impl Policy {
    /// `nodes`: the first 16 bits of the mask that was asked for.
    #[must_use]
    pub fn new(mode: u8, flags: u8, nodes: u16) -> Policy {
        Policy(u32::from(mode) & MODES | (u32::from(flags) & 7) << 3 | u32::from(nodes) << 6)
    }
    #[must_use]
    pub fn mode(self) -> u8 {
        (self.0 & MODES) as u8
    }
    #[must_use]
    pub fn flags(self) -> u8 {
        (self.0 >> 3 & 7) as u8
    }
    /// What `get_mempolicy(2)` tells of its nodes: the mask as it was asked for if the policy is
    /// of that, the node that there is, or none.
    #[must_use]
    pub fn nodes(self) -> u64 {
        let asked = u64::from(self.0 >> 6);
        match self.mode() {
            DEFAULT | LOCAL => 0,
            // `mpol_store_user_nodemask`.
            _ if self.flags() != 0 => asked,
            _ => 1,
        }
    }
    #[must_use]
    pub fn bits(self) -> u32 {
        self.0
    }
    #[must_use]
    pub fn from_bits(bits: u32) -> Policy {
        Policy(bits)
    }
    /// As `/proc/PID/numa_maps` writes it (`mpol_to_str`).
    #[must_use]
    pub fn describe(self) -> String {
        let name = match self.mode() {
            PREFERRED => "prefer",
            BIND => "bind",
            INTERLEAVE => "interleave",
            LOCAL => "local",
            PREFERRED_MANY => "prefer (many)",
            WEIGHTED_INTERLEAVE => "weighted interleave",
            _ => "default",
        };
        let mut s = String::from(name);
        let flags = self.flags();
        if flags != 0 {
            s.push('=');
            s += if flags & STATIC_NODES != 0 {
                "static"
            } else if flags & RELATIVE_NODES != 0 {
                "relative"
            } else {
                ""
            };
            if flags & NUMA_BALANCING != 0 {
                s += if flags == NUMA_BALANCING {
                    "balancing"
                } else {
                    "|balancing"
                };
            }
        }
        if !matches!(self.mode(), DEFAULT | LOCAL) {
            s += ":0";
        }
        s
    }
}

/// Where a VMA's flags hold its policy.
const SHIFT: u32 = VmaFlags::POLICY.bits().trailing_zeros();

impl VmaFlags {
    fn with_policy(self, p: Policy) -> VmaFlags {
        (self - VmaFlags::POLICY) | VmaFlags::from_bits_retain(u64::from(p.0) << SHIFT)
    }
    /// The policy of its own.
    #[must_use]
    pub fn policy(self) -> Policy {
        Policy(((self & VmaFlags::POLICY).bits() >> SHIFT) as u32)
    }
}

impl Mm {
    /// The pages that a call names; `None` if there are none.
    fn policy_range(va: Va, len: u64) -> Result<Option<Range<u64>>> {
        // It wraps around, as Linux's does.
        let len = len.wrapping_add(PAGE - 1) & !(PAGE - 1);
        let end = va.0.checked_add(len).ok_or(EINVAL)?;
        Ok((len != 0).then_some(va.0..end))
    }

    /// `mbind(2)`: `EFAULT` where something is not mapped; the default may be set around holes.
    pub fn set_policy(&self, va: Va, len: u64, p: Policy) -> Result<()> {
        let Some(r) = Self::policy_range(va, len)? else {
            return Ok(());
        };
        let r = user_range(va, r.end - r.start).ok_or(EFAULT)?;
        self.with(|st| {
            let parts = if p == Policy::default() {
                st.some_parts(&r)
            } else {
                st.mapped_parts(&r)
            };
            let parts = parts.ok_or(EFAULT)?;
            for (part, flags) in parts {
                if flags.policy() != p {
                    st.reserve_vmas(st.vmas.cuts(&part))?;
                    st.vmas
                        .change(part, |_, flags| *flags = flags.with_policy(p));
                }
            }
            Ok(())
        })
    }

    /// The policy of the memory at an address; `EFAULT` where none is mapped.
    pub fn policy_at(&self, va: Va) -> Result<Policy> {
        self.with(|st| {
            let (_, v) = st.vmas.get(va.0).ok_or(EFAULT)?;
            Ok(v.flags.policy())
        })
    }

    /// `set_mempolicy_home_node(2)`: there is one node, which it is.
    pub fn set_home_node(&self, va: Va, len: u64) -> Result<()> {
        let Some(r) = Self::policy_range(va, len)? else {
            return Ok(());
        };
        self.with(|st| {
            let mut found = Err(ENOENT);
            for (_, v) in st.vmas.range(r) {
                match v.flags.policy().mode() {
                    DEFAULT => {}
                    BIND | PREFERRED_MANY => found = Ok(()),
                    _ => return Err(EOPNOTSUPP),
                }
            }
            found
        })
    }

    /// Where a page is (`move_pages(2)`): a node, `ENOENT` where it is not in memory, `EFAULT`
    /// where nothing is mapped.
    pub fn node_of(&self, va: Va) -> Result<u32> {
        let at = va.0 & !(PAGE - 1);
        self.with(|st| {
            st.vmas.get(at).ok_or(EFAULT)?;
            let there = st.residency(at..at + PAGE)[0] != 0;
            if there { Ok(0) } else { Err(ENOENT) }
        })
    }
}
