//! Faults of application code.

use crate::pma::{Pma, window};
use crate::resolve::{EAGER, Effort};
use crate::state::State;
use crate::swap::is_private;
use crate::types::{Access, Bad, Fault, FaultInfo};
use crate::vma::Vma;
use crate::{Mm, PAGE};
use abi::Va;
use clas::Backing;
use platform::{Prot, USER_MAX};
use std::ops::Range;

impl Mm {
    /// Serves a fault: makes what is missing and maps it. An error is what the application must
    /// see. A fault that is already served (the mapping had been dropped, another thread was
    /// faster) is no error.
    pub fn handle_fault(&self, info: FaultInfo) -> Result<(), Fault> {
        /// Where there is room, others have taken it.
        const TRIES: u32 = 1000;
        for _ in 0..TRIES {
            let (served, absent) = self.with(|st| {
                st.waits_outside = true;
                let served = st.fault(info);
                st.waits_outside = false;
                (served, st.absent.take())
            });
            match served {
                // Without the lock: others may send out what this address space has.
                Err(Bad::Room) if self.await_room().is_ok() => {}
                Err(Bad::Absent) if absent.is_some_and(|a| self.fill(&a).is_ok()) => {}
                // It is ended, unless its limit is raised meanwhile.
                Err(Bad::Limit) if self.clas.await_more(&self.waiter) => {}
                r => return r.map_err(|bad| bad.fault(info.addr)),
            }
        }
        Err(Bad::Memory.fault(info.addr))
    }
}

/// The host found no page of what serves an address: whether the file has one.
fn is_there(pma: &Pma) -> Result<(), Bad> {
    match pma.backing {
        // The file may have been cut short on the host.
        Backing::Host { fd, offset } => {
            let size = hostcall::file::fstat(fd).map_err(|_| Bad::Bus)?.st_size as u64;
            if offset < size { Ok(()) } else { Err(Bad::Bus) }
        }
        // The host has no page for the memory file.
        Backing::Frames(_) => Err(Bad::Memory),
    }
}

impl State {
    fn fault(&mut self, info: FaultInfo) -> Result<(), Bad> {
        self.faults += 1;
        self.host.hold();
        let va = info.addr.0;
        if va >= USER_MAX {
            return Err(Bad::Unmapped);
        }
        if self.vmas.get(va).is_none() {
            self.grow_stack(va)?;
        }
        let Some((vr, vma)) = self.vmas.get(va).map(|(r, v)| (r, v.clone())) else {
            return Err(Bad::Unmapped);
        };
        let mut nothing_missing = false;
        let access = match info.access {
            Some(a) => a,
            None => self.kind_of_access(va, &vma, &mut nothing_missing)?,
        };
        if !vma.allows(access) {
            return Err(Bad::Forbidden);
        }
        self.predictor.forks.note(va, access == Access::Write);
        let before = self.host.get(va).map(|(_, p)| *p);
        if before.is_none() && vma.is_private_anon() {
            self.predictor.touch.touched_late();
        } else if before.is_none() {
            self.predictor.files.touched(va);
        }
        let library = self.library(&vr, &vma);
        // A library's data is written soon.
        if !library.is_empty() && access != Access::Write && vma.allows(Access::Write) {
            let _ = self.guess_pma(va, &vr, &vma, true);
        }
        let (r, pma) = self.resolve(va, &vr, &vma, access == Access::Write, Effort::Needed)?;
        let page = Va(va).page_down().0;
        if info.bus {
            is_there(&pma.after(page - r.start))?;
        }
        let prot = crate::host::effective(&vma, &pma);
        // Of what is ours alone, more may be made than serves this address now.
        let own = vma.is_private_anon() && pma.writable();
        let near = if own {
            vr.clone()
        } else {
            window(va, EAGER, &r)
        };
        match self.host.hole(va, near) {
            // So that what is used can be told from what is not.
            Ok(hole) if is_private(&pma) && self.swap.matters => {
                self.host_map(window(va, crate::hands::CLUSTER, &hole));
            }
            Ok(hole) if own => {
                let step = self.step(va, &vr, &vma, hole);
                self.host_map(step);
            }
            Ok(hole) => {
                self.host_map(hole);
                self.map_library(&library);
            }
            // Resolving it has changed the mapping already.
            Err((_, now)) if now == prot && before != Some(prot) => {}
            Err((mapped, now)) if now != prot => self.host_protect(mapped),
            Err(_) => self.host_map(page..page + PAGE),
        }
        // Where the host has no room, everything was dropped; a small mapping must do.
        if !self.host.flush() {
            self.host_map(page..page + PAGE);
            if !self.host.flush() {
                self.without_host_file(va, &r, &vma, pma)?;
            }
        }
        if nothing_missing {
            self.host.suspects().add(va);
        }
        Ok(())
    }

    /// A single page could not be mapped. If it is a host file's, the host may not let it be
    /// mapped like this (a mount without execution, a file system without mmap): a private mapping
    /// can do with a copy.
    fn without_host_file(
        &mut self,
        va: u64,
        r: &Range<u64>,
        vma: &Vma,
        pma: Pma,
    ) -> Result<(), Bad> {
        match pma.backing {
            Backing::Host { .. } if vma.is_shared() => return Err(Bad::Bus),
            Backing::Host { .. } => {}
            Backing::Frames(_) => return Err(Bad::Memory),
        }
        self.unshare(va, r, pma, None, Effort::Needed)?;
        let page = Va(va).page_down().0;
        self.host_map(page..page + PAGE);
        if self.host.flush() {
            Ok(())
        } else {
            Err(Bad::Memory)
        }
    }

    /// What an access was that the platform cannot tell, from what the host has mapped there.
    /// Where all that is allowed is mapped, another thread was faster, or it does what is
    /// forbidden: then the same thread faults there again, with nothing taken away in between.
    fn kind_of_access(
        &mut self,
        va: u64,
        vma: &Vma,
        nothing_missing: &mut bool,
    ) -> Result<Access, Bad> {
        let again = self.host.suspects().take(va);
        match self.host.get(va) {
            None => Ok(Access::Read),
            Some((_, p)) if !p.contains(Prot::WRITE) && vma.allows(Access::Write) => {
                Ok(Access::Write)
            }
            Some(_) if again => Err(Bad::Forbidden),
            Some(_) => {
                *nothing_missing = true;
                Ok(Access::Read)
            }
        }
    }
}
