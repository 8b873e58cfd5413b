//! Where a new mapping goes (`get_unmapped_area`).

use crate::room::Room;
use crate::vmas::Vmas;
use crate::{PAGE, Result};
use abi::Va;
use abi::errno::{EEXIST, EINVAL, ENOMEM, EPERM};
use abi::linux::{MAP_32BIT, MAP_FIXED, MAP_FIXED_NOREPLACE};
use platform::{USER_MAX, USER_MIN};
use std::ops::Range;

/// What MAP_32BIT asks for.
const LOW: Range<u64> = 0x4000_0000..0x8000_0000;

/// Where a call wants a mapping.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Place {
    Anywhere,
    /// Here, if it is free; else anywhere.
    Hint(Va),
    /// Here, if it is free; else in the second GiB (`MAP_32BIT`).
    Low(Va),
    /// Here; what is there goes.
    Fixed(Va),
    /// Here, where nothing may be.
    FixedNoReplace(Va),
}

impl Place {
    /// As mmap(2) is asked.
    pub(crate) fn of_flags(addr: Va, flags: u32) -> Place {
        if flags & MAP_FIXED_NOREPLACE != 0 {
            Place::FixedNoReplace(addr)
        } else if flags & MAP_FIXED != 0 {
            Place::Fixed(addr)
        } else if flags & MAP_32BIT != 0 {
            Place::Low(addr)
        } else {
            Place::Hint(addr)
        }
    }

    /// The address for `len` bytes.
    pub(crate) fn find(self, len: u64, vmas: &Vmas, room: &Room) -> Result<u64> {
        if len > USER_MAX {
            return Err(ENOMEM);
        }
        let hint = match self {
            Place::Fixed(at) => return exact(at, len),
            Place::FixedNoReplace(at) => {
                let at = exact(at, len)?;
                return if vmas.overlaps(at..at + len) {
                    Err(EEXIST)
                } else {
                    Ok(at)
                };
            }
            Place::Hint(hint) | Place::Low(hint) => hint.page_down().0,
            Place::Anywhere => 0,
        };
        if hint != 0 {
            let hint = hint.max(USER_MIN);
            if hint <= USER_MAX - len && vmas.is_free(hint, len) {
                return Ok(hint);
            }
        }
        if let Place::Low(_) = self {
            return vmas.find_lowest(len, LOW).ok_or(ENOMEM);
        }
        let base = room.layout().mmap_base.clamp(USER_MIN, USER_MAX);
        vmas.find_highest(len, USER_MIN..base)
            .or_else(|| vmas.find_lowest(len, (USER_MAX / 3) & !(PAGE - 1)..USER_MAX))
            .ok_or(ENOMEM)
    }
}

/// `at`, if a mapping may begin there.
fn exact(at: Va, len: u64) -> Result<u64> {
    if at.0 > USER_MAX - len {
        return Err(ENOMEM);
    }
    if !at.is_page_aligned() {
        return Err(EINVAL);
    }
    if at.0 < USER_MIN {
        return Err(EPERM);
    }
    Ok(at.0)
}
