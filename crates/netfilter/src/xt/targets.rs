//! Targets.

use super::{Bytes, needs_protocol};
use crate::expr::{Run, Scope, Step, Verdict, translate};
use crate::log::Logged;
use crate::nat::{Manip, NatRange};
use crate::packet::{Hook, TCP, Version};
use crate::reject::Reject;
use crate::table::ChainType;
use crate::validate::{Places, place};
use abi::Result;
use abi::errno::{EINVAL, EOPNOTSUPP};

/// What addresses and ports a connection gets (`nf_nat_range`).
#[derive(Clone, Copy, Default)]
pub struct Range {
    wanted: NatRange,
}

const MAP_IPS: u32 = 1;
const PORTS: u32 = 2;
/// About how they are chosen.
const CHOICE: u32 = 4 | 8 | 16;

impl Range {
    /// One with its length before it (IPv4's old ones), or one of either family.
    fn read(b: Bytes<'_>, old: bool, version: Version) -> Result<Range> {
        let (at, size) = if old { (4, 4) } else { (0, 16) };
        if old && b.u32(0)? != 1 {
            return Err(EINVAL);
        }
        let flags = b.u32(at)?;
        if flags & !(MAP_IPS | PORTS | CHOICE) != 0 {
            return Err(EOPNOTSUPP);
        }
        let ips = match flags & MAP_IPS {
            0 => None,
            _ => Some((b.ip(at + 4, version)?, b.ip(at + 4 + size, version)?)),
        };
        let behind = at + 4 + 2 * size;
        let ports = match flags & PORTS {
            0 => None,
            _ => Some((b.be16(behind)?, b.be16(behind + 2)?)),
        };
        Ok(Range {
            wanted: NatRange { ips, ports },
        })
    }
}

/// See the module.
pub enum Target {
    Nat(Manip, Range),
    Masquerade(Range),
    Redirect(Range),
    /// None: its sender is not told.
    Reject(Option<Reject>),
    /// To nobody who could hear it: there is no log of the kernel's.
    Log,
    /// To those who listen to a group.
    GroupLog(Box<GroupLog>),
    Mark {
        mark: u32,
        mask: u32,
    },
    ConnMark {
        mode: u8,
        mark: u32,
        of_flow: u32,
        of_packet: u32,
    },
    NoTrack,
    /// What a SYN asks for is no more than this; as much as the path takes, where it is
    /// [`CLAMP`].
    TcpMss(u16),
}

/// `XT_TCPMSS_CLAMP_PMTU`.
const CLAMP: u16 = 0xffff;

/// Whether it is known at all of these hooks which way a packet goes.
fn clamps(hooks: u8) -> bool {
    const ALL: u8 =
        1 << Hook::Forward as u8 | 1 << Hook::Output as u8 | 1 << Hook::Postrouting as u8;
    hooks & !ALL == 0
}

/// Whether TCPMSS may be in a rule of iptables, which says that it is about SYNs
/// (`tcpmss_tg4_check`).
///
/// # Errors
///
/// `EINVAL` if not.
pub(crate) fn check_mss(info: &[u8], hooks: u8, has_syn: bool) -> Result<()> {
    let is_clamp = Bytes(info).u16(0)? == CLAMP;
    if has_syn && (!is_clamp || clamps(hooks)) {
        Ok(())
    } else {
        Err(EINVAL)
    }
}

impl Target {
    pub(super) fn read(
        scope: &Scope<'_>,
        name: &str,
        revision: u32,
        b: Bytes<'_>,
    ) -> Result<Target> {
        let version = scope.family.version();
        let old = version == Version::V4 && revision == 0;
        let range = || Range::read(b, old, version);
        Ok(match name {
            "SNAT" => Target::Nat(Manip::Source, range()?),
            "DNAT" => Target::Nat(Manip::Destination, range()?),
            "MASQUERADE" => Target::Masquerade(range()?),
            "REDIRECT" => Target::Redirect(range()?),
            "REJECT" => {
                let how = reject(b.u32(0)?, version)?;
                if how == Some(Reject::Reset) {
                    needs_protocol(scope, &[TCP])?;
                }
                Target::Reject(how)
            }
            "LOG" => Target::Log,
            "NFLOG" => Target::GroupLog(Box::new(GroupLog::read(b)?)),
            "MARK" => Target::Mark {
                mark: b.u32(0)?,
                mask: b.u32(4)?,
            },
            "CONNMARK" => {
                let mode = b.byte(12)?;
                if mode > 2 {
                    return Err(EINVAL);
                }
                Target::ConnMark {
                    mode,
                    mark: b.u32(0)?,
                    of_flow: b.u32(4)?,
                    of_packet: b.u32(8)?,
                }
            }
            "NOTRACK" => Target::NoTrack,
            "TCPMSS" => {
                needs_protocol(scope, &[TCP])?;
                let mss = b.u16(0)?;
                if mss == CLAMP && scope.base.is_some_and(|b| !clamps(1 << b.hook as u8)) {
                    return Err(EINVAL);
                }
                Target::TcpMss(mss)
            }
            // Zones and helpers are not there.
            "CT" if b.u16(0)? == 1 && b.u16(2)? == 0 => Target::NoTrack,
            "CT" => return Err(EOPNOTSUPP),
            _ => return Err(EINVAL),
        })
    }

    pub(super) fn tracks(&self) -> bool {
        matches!(
            self,
            Target::Nat(..) | Target::Masquerade(_) | Target::Redirect(_) | Target::ConnMark { .. }
        )
    }

    pub(crate) fn places(&self) -> Places {
        match self {
            Target::Nat(Manip::Source, _) => {
                place(ChainType::Nat, Hook::Postrouting) | place(ChainType::Nat, Hook::Input)
            }
            Target::Masquerade(_) => place(ChainType::Nat, Hook::Postrouting),
            Target::Nat(..) | Target::Redirect(_) => {
                place(ChainType::Nat, Hook::Prerouting) | place(ChainType::Nat, Hook::Output)
            }
            Target::Reject(_) => {
                place(ChainType::Filter, Hook::Input)
                    | place(ChainType::Filter, Hook::Forward)
                    | place(ChainType::Filter, Hook::Output)
            }
            _ => Places::MAX,
        }
    }

    pub(super) fn act(&self, r: &mut Run<'_, '_>) -> Step {
        match self {
            Target::Nat(manip, range) => translate(r, *manip, &range.wanted),
            Target::Masquerade(range) => {
                let wanted = NatRange::masquerade(r.packet, range.wanted.ports);
                translate(r, Manip::Source, &wanted)
            }
            Target::Redirect(range) => {
                let wanted = NatRange::redirect(r.packet, range.wanted.ports);
                translate(r, Manip::Destination, &wanted)
            }
            Target::Reject(how) => {
                r.reject = *how;
                Step::Verdict(Verdict::Drop)
            }
            Target::Log => Step::Next,
            Target::GroupLog(l) => {
                r.log(&Logged {
                    group: l.group,
                    prefix: &l.prefix,
                    snap: l.snap,
                });
                Step::Next
            }
            Target::Mark { mark, mask } => {
                r.meta.mark = r.meta.mark & !mask ^ mark;
                Step::Next
            }
            Target::ConnMark {
                mode,
                mark,
                of_flow,
                of_packet,
            } => {
                if let Some(f) = r.meta.track.flow() {
                    match mode {
                        0 => f.set_mark(f.mark() & !of_flow ^ mark),
                        1 => f.set_mark(f.mark() & !of_flow ^ (r.meta.mark & of_packet)),
                        _ => r.meta.mark = r.meta.mark & !of_packet ^ (f.mark() & of_flow),
                    }
                }
                Step::Next
            }
            Target::NoTrack => {
                r.meta.track.leave_alone();
                Step::Next
            }
            Target::TcpMss(mss) => ask_for_less(r, *mss),
        }
    }
}

/// TCPMSS (`tcpmss_mangle_packet`). (What asks for nothing is left so: Linux would say what others
/// take for granted.)
fn ask_for_less(r: &mut Run<'_, '_>, mss: u16) -> Step {
    let p = r.packet;
    if p.protocol != TCP || p.is_rest() {
        return Step::Next;
    }
    let mss = match mss {
        CLAMP => {
            let headers = match p.version {
                Version::V4 => 40,
                Version::V6 => 60,
            };
            let way = |ip| Some(p.host.mtu_towards(ip)).filter(|n| *n > 0);
            let both = [way(p.to), way(p.from)];
            let Some(mtu) = both.into_iter().flatten().min() else {
                return Step::Next;
            };
            match mtu.checked_sub(headers).filter(|n| *n > 0) {
                Some(n) => u16::try_from(n).unwrap_or(u16::MAX),
                None => return Step::Verdict(Verdict::Drop),
            }
        }
        n => n,
    };
    let before = r.meta.mss.unwrap_or(u16::MAX);
    r.meta.mss = Some(mss.min(before));
    Step::Next
}

/// `struct xt_nflog_info`.
pub struct GroupLog {
    group: u16,
    prefix: Box<[u8]>,
    snap: Option<u32>,
}

impl GroupLog {
    /// (`nflog_tg_check`)
    fn read(b: Bytes<'_>) -> Result<GroupLog> {
        const COPIES_LENGTH: u16 = 1;
        let flags = b.u16(8)?;
        if flags & !COPIES_LENGTH != 0 {
            return Err(EINVAL);
        }
        let prefix: [u8; 64] = b.array(12)?;
        if prefix[63] != 0 {
            return Err(EINVAL);
        }
        let end = prefix.iter().position(|c| *c == 0).unwrap_or(63);
        Ok(GroupLog {
            group: b.u16(4)?,
            prefix: prefix[..end].into(),
            snap: (flags & COPIES_LENGTH != 0).then_some(b.u32(0)?),
        })
    }
}

/// `enum ipt_reject_with`, `enum ip6t_reject_with`; by none of these nobody is told.
fn reject(n: u32, version: Version) -> Result<Option<Reject>> {
    const V4: [u8; 9] = [0, 1, 2, 3, 255, 9, 10, 255, 13];
    const V6: [u8; 9] = [0, 1, 2, 3, 4, 255, 255, 5, 6];
    let (codes, reset) = match version {
        Version::V4 => (V4, 7),
        Version::V6 => (V6, 6),
    };
    if n == reset {
        return Ok(Some(Reject::Reset));
    }
    match codes.get(n as usize) {
        Some(255) => Err(EINVAL),
        code => Ok(code.map(|c| Reject::Unreachable(*c))),
    }
}
