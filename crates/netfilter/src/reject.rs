//! What answers a packet that is refused.

use crate::packet::Version;

/// How its sender is told.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reject {
    /// TCP's reset.
    Reset,
    /// ICMP's "destination unreachable" of the packet's family, with this code.
    Unreachable(u8),
}

/// `NFT_REJECT_ICMPX_*`: unreachable network, port, host; prohibited.
const OF_ALL: [(u8, u8); 4] = [(0, 0), (3, 4), (1, 3), (13, 1)];

impl Reject {
    /// `NFT_REJECT_TCP_RST`.
    pub const BY_RESET: u32 = 1;

    /// By `NFT_REJECT_*` and its code.
    #[must_use]
    pub fn by(kind: u32, code: u8, version: Version) -> Option<Reject> {
        match kind {
            0 => Some(Reject::Unreachable(code)),
            1 => Some(Reject::Reset),
            2 => {
                let (v4, v6) = *OF_ALL.get(usize::from(code))?;
                Some(Reject::Unreachable(match version {
                    Version::V4 => v4,
                    Version::V6 => v6,
                }))
            }
            _ => None,
        }
    }
}
