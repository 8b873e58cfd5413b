//! What a futex word is called.

use crate::types::Access;
use crate::vma::identity;
use crate::{Mm, Result};
use abi::Va;
use abi::errno::{EFAULT, EINVAL};

/// The name of a futex word: equal for all who mean the same word.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum FutexKey {
    /// `FUTEX_PRIVATE_FLAG`: an address of one address space.
    Private { mm: u64, va: Va },
    /// Private memory by a shared call: as above, but apart from it, as on Linux.
    Own { mm: u64, va: Va },
    /// A place in a mapped file, whoever maps it.
    File { file: usize, offset: u64 },
}

/// `TASK_SIZE_MAX`.
const LINUX_USER_MAX: u64 = (1 << 47) - 0x1000;

impl Mm {
    /// The key of the word at `va` for a private call. `EINVAL` if it is not aligned.
    pub fn futex_key_private(&self, va: Va) -> Result<FutexKey> {
        if !va.0.is_multiple_of(4) {
            return Err(EINVAL);
        }
        // No page need be there, and so none of ours: what counts is where Linux's part ends
        // (`access_ok`).
        if va.0 >= LINUX_USER_MAX {
            return Err(EFAULT);
        }
        Ok(FutexKey::Private { mm: self.id, va })
    }

    /// The key of the word at `va` for a shared call. `EINVAL` if it is not aligned, `EFAULT` if
    /// it cannot be accessed.
    pub fn futex_key_shared(&self, va: Va, access: Access) -> Result<FutexKey> {
        // As get_user_pages: the page must be there.
        self.with_atomic_u32(va, access, |_| ())?;
        let st = self.state.lock();
        let (r, vma) = st.vmas.get(va.0).ok_or(EFAULT)?;
        match &vma.file {
            Some(f) if vma.is_shared() => Ok(FutexKey::File {
                file: identity(&f.file.mappable),
                offset: f.offset + (va.0 - r.start),
            }),
            _ => Ok(FutexKey::Own { mm: self.id, va }),
        }
    }
}
