//! What an open directory shows.

use super::tmpfs::emit_dots;
use crate::DirEntry;
use crate::file::File;
use crate::ucounts::Charge;
use abi::Result;
use abi::errno::ENOMEM;
use parking_lot::Mutex;
use std::sync::Arc;

/// The names of an open directory as they were when it was last read from its start. Cookies are
/// positions in that list, whose memory is the opener's.
pub struct Listing<E>(Mutex<Option<(Arc<[E]>, Charge)>>);

/// What a name takes beside its entry.
const NAME: usize = 32;

impl<E> Default for Listing<E> {
    fn default() -> Listing<E> {
        Listing(Mutex::new(None))
    }
}

impl<E> Listing<E> {
    /// `getdents(2)` from `pos` on, for the directory with number `ino` that `file` has open: `.`
    /// and `..`, then what `list` gives, each as `show` says: number, type, name.
    pub fn read(
        &self,
        file: &File,
        ino: u64,
        pos: &mut u64,
        emit: &mut dyn FnMut(DirEntry<'_>) -> bool,
        list: impl FnOnce() -> Result<Arc<[E]>>,
        show: impl for<'a> Fn(&'a E) -> (u64, u8, &'a [u8]),
    ) -> Result<()> {
        let start = *pos;
        if !emit_dots(file, ino, pos, emit) {
            return Ok(());
        }
        let old = if start == 0 {
            None
        } else {
            self.0.lock().as_ref().map(|l| l.0.clone())
        };
        let all = match old {
            Some(l) => l,
            None => {
                let l = list()?;
                let bytes = l.len() * (size_of::<E>() + NAME);
                let charge = file.cred.kmem(bytes, ENOMEM)?;
                *self.0.lock() = Some((l.clone(), charge));
                l
            }
        };
        let from = usize::try_from(*pos - 2).unwrap_or(usize::MAX);
        for (i, e) in all.iter().enumerate().skip(from) {
            let next = i as u64 + 3;
            let (ino, kind, name) = show(e);
            if !emit(DirEntry {
                ino,
                next,
                kind,
                name,
            }) {
                return Ok(());
            }
            *pos = next;
        }
        Ok(())
    }
}
