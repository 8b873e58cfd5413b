//! Gives anonymous memory a name (`PR_SET_VMA_ANON_NAME`): see [`crate::names`].

use crate::map::some_range;
use crate::names::{MAX_LEN, is_valid};
use crate::state::State;
use crate::vma::VmaFlags;
use crate::{Mm, Result};
use abi::Va;
use abi::errno::{EBADF, EINVAL, ENOMEM};
use std::collections::HashSet;
use std::ops::Range;

impl Mm {
    /// Gives anonymous memory a name, or none. `EBADF` at a file's; `ENOMEM` where something is not
    /// mapped, after all else.
    pub fn set_name(&self, va: Va, len: u64, name: Option<&[u8]>) -> Result<()> {
        if name.is_some_and(|n| n.len() >= MAX_LEN || !n.iter().all(|b| is_valid(*b))) {
            return Err(EINVAL);
        }
        let Some(r) = some_range(va, len)? else {
            return Ok(());
        };
        self.with(|st| st.set_name(r, name))
    }
}

impl State {
    fn set_name(&mut self, r: Range<u64>, name: Option<&[u8]>) -> Result<()> {
        let number = match name {
            None => 0,
            Some(n) => self.name_number(n).ok_or(ENOMEM)?,
        };
        self.reserve_vmas(self.vmas.cuts(&r))?;
        let mut at = r.start;
        let mut whole = true;
        while let Some((e, v)) = self.vmas.first_from(at).filter(|(e, _)| e.start < r.end) {
            let part = e.start.max(at)..e.end.min(r.end);
            whole &= part.start == at;
            if v.file.is_some() && !v.flags.contains(VmaFlags::ANON_SHARED) {
                return Err(EBADF);
            }
            at = part.end;
            self.vmas.change(part, |_, f| *f = f.with_name(number));
            if at >= r.end {
                break;
            }
        }
        if whole && at >= r.end {
            Ok(())
        } else {
            Err(ENOMEM)
        }
    }

    fn name_number(&mut self, name: &[u8]) -> Option<usize> {
        if let Some(n) = self.names.add(name) {
            return Some(n);
        }
        // Those that no VMA has make room.
        let used: HashSet<usize> = self
            .vmas
            .iter()
            .map(|(_, v)| v.flags.name_number())
            .collect();
        self.names.keep(&used);
        self.names.add(name)
    }
}
