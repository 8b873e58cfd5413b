//! Changes of a stub process's mappings, made by its service thread.

use super::factory::Unit;
use super::lanes::{DROPPED, NO_UNIT};
use super::listener::recv;
use super::{LOST_MILLIS, Process, Service, readable_within, write_words};
use crate::{MapOp, Prot, Sharing};
use abi::errno::{EINVAL, ENOMEM, ESRCH};
use abi::{Errno, Result, nr};
use hostcall::{MemSlice, process as host};
use smallvec::SmallVec;
use std::sync::atomic::Ordering;
use stub::lane::{TABLE, TABLE_LEN};

/// A call for the service thread.
pub(super) type Call = [u64; 7];

pub(super) fn encode(op: &MapOp) -> Result<Call> {
    let check = |va: u64, len: u64| {
        let end = va.checked_add(len).ok_or(EINVAL)?;
        if len == 0
            || !va.is_multiple_of(4096)
            || !len.is_multiple_of(4096)
            || end > crate::USER_MAX
        {
            return Err(EINVAL);
        }
        Ok(())
    };
    Ok(match *op {
        MapOp::Map {
            va,
            len,
            prot,
            fd,
            offset,
            sharing,
        } => {
            check(va, len)?;
            let kind = match sharing {
                Sharing::Shared => libc::MAP_SHARED,
                Sharing::Private => libc::MAP_PRIVATE,
            };
            let prot = match sharing {
                Sharing::Shared => prot,
                Sharing::Private => prot.without(Prot::WRITE),
            };
            let flags = (kind | libc::MAP_FIXED | libc::MAP_NORESERVE) as u64;
            [
                nr::MMAP.into(),
                va,
                len,
                u64::from(prot.0),
                flags,
                fd as u64,
                offset,
            ]
        }
        MapOp::Unmap { va, len } => {
            check(va, len)?;
            [nr::MUNMAP.into(), va, len, 0, 0, 0, 0]
        }
        MapOp::Protect { va, len, prot } => {
            check(va, len)?;
            [nr::MPROTECT.into(), va, len, u64::from(prot.0), 0, 0, 0]
        }
        MapOp::Advise { va, len, advice } => {
            check(va, len)?;
            [nr::MADVISE.into(), va, len, advice as u64, 0, 0, 0]
        }
    })
}

impl Process {
    /// Has the service thread make `calls`; stops at the first that fails.
    pub(super) fn batch(&self, calls: &[Call]) -> Result<()> {
        self.batch_to(calls).map_err(|(_, e)| e)
    }

    /// As [`Process::batch`]; tells which failed.
    pub(super) fn batch_to(&self, calls: &[Call]) -> core::result::Result<(), (usize, Errno)> {
        let mut s = self.service.lock();
        let Service::Up { listener, id } = &mut *s else {
            return Err((0, ESRCH));
        };
        let mut before = 0;
        let cmd = self.factory.unit(self.command);
        for part in calls.chunks(stub::BATCH_MAX) {
            for (i, c) in part.iter().enumerate() {
                write_words(cmd, stub::CMD_BATCH + 56 * i as u64, c);
            }
            MemSlice::fence();
            let r = host::notif_send(listener.raw(), *id, part.len() as i64)
                .and_then(|()| recv(listener));
            match r {
                Ok(n) => {
                    *id = n.id;
                    let result = n.data.args[1] as i64;
                    if result != 0 {
                        let e = Errno::new(-result as i32).unwrap_or(ENOMEM);
                        return Err((before + n.data.args[2] as usize, e));
                    }
                    before += part.len();
                }
                // It ends only with its process; which from now on nobody could change the mappings
                // of.
                Err(_) => {
                    *s = Service::Down;
                    // If the host is ending it, that is over in a moment, and `kill` finds it
                    // ended.
                    readable_within(&[self.pidfd.raw()], LOST_MILLIS);
                    self.kill();
                    return Err((0, ESRCH));
                }
            }
        }
        Ok(())
    }

    /// Applies changes of the host mappings.
    pub fn apply(&self, ops: &[MapOp]) -> Result<()> {
        let table = self.site_unit.load(Ordering::Acquire);
        for part in ops.chunks(64) {
            let mut calls: SmallVec<[Call; 64]> = SmallVec::new();
            let due = self.table_due.load(Ordering::Acquire);
            if due {
                calls.extend(self.map_sites(Unit(table)));
            }
            for op in part {
                // Where all goes, what lies between the application's mappings stays: threads may
                // be at a jump that reads the table.
                if table != NO_UNIT
                    && table != DROPPED
                    && let MapOp::Unmap { va, len } = *op
                    && va < TABLE + TABLE_LEN
                    && TABLE < va.saturating_add(len)
                {
                    let (behind, end) = (TABLE + TABLE_LEN, va + len);
                    for (va, end) in [(va, TABLE), (behind, end)] {
                        if va < end {
                            let len = end - va;
                            calls.push(encode(&MapOp::Unmap { va, len })?);
                        }
                    }
                    continue;
                }
                calls.push(encode(op)?);
            }
            let mut from = 0;
            while let Err((at, e)) = self.batch_to(&calls[from..]) {
                // Advice that is not taken changes nothing.
                let advice = calls
                    .get(from + at)
                    .is_some_and(|c| c[0] == u64::from(nr::MADVISE));
                if e == ESRCH || !advice {
                    return Err(e);
                }
                from += at + 1;
            }
            if due {
                self.table_due.store(false, Ordering::Release);
            }
        }
        Ok(())
    }

    /// Unmaps all that was mapped for applications.
    pub fn unmap_all(&self) -> Result<()> {
        self.apply(&[MapOp::Unmap {
            va: crate::USER_MIN,
            len: crate::USER_MAX - crate::USER_MIN,
        }])
    }
}
