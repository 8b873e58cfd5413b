//! What a tracer sees of the CPU, and may set (`arch/x86/kernel/ptrace.c`, `fpu/regset.c`).

use super::CpuCopy;
use super::stops::TF;
use abi::Result;
use abi::errno::{EFAULT, EINVAL, EIO, ENOSPC};
use platform::xstate::{HEADER, LEGACY, SOFTWARE, XState};
use platform::{Regs, USER_MAX};
use std::mem::offset_of;
use zerocopy::{transmute, transmute_mut, transmute_ref};

/// The kernel's `sizeof(struct user)`, and where its debug registers are.
pub const USER: u64 = 928;
const DEBUG: u64 = 848;
/// Notes of a core file, by which sets of registers are named.
pub const NT_PRSTATUS: u32 = 1;
pub const NT_PRFPREG: u32 = 2;
pub const NT_X86_XSTATE: u32 = 0x202;
/// The general registers, bytes.
pub const GENERAL: usize = size_of::<Regs>();
/// As words.
type Words = [u64; GENERAL / 8];
/// What a tracer may set of the flags (`FLAG_MASK`).
const FLAGS: u64 = 0x5_4dd5;
/// What debug register 6 holds where nothing was hit (`DR6_RESERVED`).
const DR6: u64 = 0xffff_0ff0;
/// The local and global enable bits of debug register 7.
const DR7_ENABLED: u64 = 0xff;

const fn index(offset: usize) -> usize {
    offset / 8
}

/// Sets the general register at a word's index (`putreg`).
fn put(regs: &mut Regs, at: usize, value: u64) -> Result<()> {
    const CS: usize = index(offset_of!(Regs, cs));
    const SS: usize = index(offset_of!(Regs, ss));
    const DS: usize = index(offset_of!(Regs, ds));
    const ES: usize = index(offset_of!(Regs, es));
    const FS: usize = index(offset_of!(Regs, fs));
    const GS: usize = index(offset_of!(Regs, gs));
    const EFLAGS: usize = index(offset_of!(Regs, eflags));
    const FS_BASE: usize = index(offset_of!(Regs, fs_base));
    const GS_BASE: usize = index(offset_of!(Regs, gs_base));
    let words: &mut Words = transmute_mut!(regs);
    words[at] = match at {
        CS | SS | DS | ES | FS | GS => {
            let selector = value & 0xffff;
            let code_or_stack = at == CS || at == SS;
            // Of user space, or none.
            if selector != 0 && selector & 3 != 3 || selector == 0 && code_or_stack {
                return Err(EIO);
            }
            selector
        }
        EFLAGS => words[at] & !FLAGS | value & FLAGS,
        FS_BASE | GS_BASE if value >= USER_MAX => return Err(EIO),
        _ => value,
    };
    Ok(())
}

impl CpuCopy {
    /// The general registers as `struct user_regs_struct`.
    pub(in crate::task) fn general(&self) -> [u8; GENERAL] {
        transmute!(self.regs)
    }

    /// Sets as many as there are in `bytes`, up to the first that may not be set so.
    pub(super) fn set_general(&mut self, bytes: &[u8]) -> Result<()> {
        let (words, _) = bytes.as_chunks::<8>();
        for (at, w) in words.iter().take(GENERAL / 8).enumerate() {
            put(&mut self.regs, at, u64::from_le_bytes(*w))?;
            self.regs_changed = true;
        }
        Ok(())
    }

    /// A word of `struct user` (PTRACE_PEEKUSER).
    pub(super) fn peek_user(&self, at: u64) -> Result<u64> {
        if !at.is_multiple_of(8) || at >= USER {
            return Err(EIO);
        }
        Ok(match at as usize {
            r if r < GENERAL => {
                let words: &Words = transmute_ref!(&self.regs);
                words[r / 8]
            }
            d if d as u64 == DEBUG + 6 * 8 => DR6,
            _ => 0,
        })
    }

    /// Sets one (PTRACE_POKEUSER). There are no hardware breakpoints: `ENOSPC`, as where all are
    /// taken.
    pub(super) fn poke_user(&mut self, at: u64, value: u64) -> Result<()> {
        if !at.is_multiple_of(8) || at >= USER {
            return Err(EIO);
        }
        if (at as usize) < GENERAL {
            put(&mut self.regs, at as usize / 8, value)?;
            self.regs_changed = true;
            return Ok(());
        }
        match at.checked_sub(DEBUG).map(|d| d / 8) {
            Some(0..=3) if value == 0 => Ok(()),
            Some(7) if value & DR7_ENABLED == 0 => Ok(()),
            Some(0..=3 | 7) => Err(ENOSPC),
            Some(6) => Ok(()),
            _ => Err(EIO),
        }
    }

    /// The extended state in the standard format of all that the host has enabled
    /// (`NT_X86_XSTATE`); what the program has not used is as it begins with.
    pub(in crate::task) fn xstate(&self) -> Vec<u8> {
        let x = XState::host();
        let mut out = vec![0; x.size];
        let has = self.features();
        if self.fp.len() >= LEGACY {
            out[..LEGACY].copy_from_slice(&self.fp[..LEGACY]);
        }
        if has & 1 == 0 {
            // The x87's: control word, and nothing else.
            out[..24].fill(0);
            out[32..160].fill(0);
            out[..2].copy_from_slice(&0x37fu16.to_le_bytes());
        }
        if has & 2 == 0 {
            out[160..416].fill(0);
            if has & 4 == 0 {
                out[24..28].copy_from_slice(&0x1f80u32.to_le_bytes());
            }
        }
        if out[28..32] == [0; 4] {
            out[28..32].copy_from_slice(&0xffffu32.to_le_bytes());
        }
        out[416..LEGACY].fill(0);
        out[SOFTWARE..SOFTWARE + 8].copy_from_slice(&x.features.to_le_bytes());
        out[LEGACY..LEGACY + 8].copy_from_slice(&(has & x.features).to_le_bytes());
        for (bit, r) in &x.parts {
            if has & bit != 0 && r.end <= self.fp.len() {
                out[r.clone()].copy_from_slice(&self.fp[r.clone()]);
            }
        }
        out
    }

    /// Which components are in use; with a state of the legacy format alone, its two.
    fn features(&self) -> u64 {
        match self.fp.len() {
            n if n >= LEGACY + HEADER => word(&self.fp, LEGACY),
            n if n >= LEGACY => 3,
            _ => 0,
        }
    }

    /// Replaces it (`xstateregs_set`).
    pub(super) fn set_xstate(&mut self, new: &[u8]) -> Result<()> {
        let x = XState::host();
        if new.len() != x.size {
            return Err(EFAULT);
        }
        let has = word(new, LEGACY);
        // Neither compacted nor with anything that is reserved.
        if has & !x.features != 0 || new[LEGACY + 8..LEGACY + HEADER].iter().any(|b| *b != 0) {
            return Err(EINVAL);
        }
        if has & 6 != 0 {
            self.check_mxcsr(new)?;
        }
        self.grow();
        let (old, n) = (self.fp.clone(), self.fp.len().min(new.len()));
        self.fp[..n].copy_from_slice(&new[..n]);
        self.fp[SOFTWARE..LEGACY].copy_from_slice(&old[SOFTWARE..LEGACY]);
        self.fp[28..32].copy_from_slice(&old[28..32]);
        if has & 6 == 0 {
            self.fp[24..28].copy_from_slice(&old[24..28]);
        }
        self.fp_changed = true;
        Ok(())
    }

    /// The legacy format (`NT_PRFPREG`).
    pub(in crate::task) fn fxsave(&self) -> [u8; LEGACY] {
        let mut out = [0; LEGACY];
        out[..SOFTWARE].copy_from_slice(&self.xstate()[..SOFTWARE]);
        out
    }

    /// Replaces what that has (`xfpregs_set`).
    pub(super) fn set_fxsave(&mut self, new: &[u8]) -> Result<()> {
        if new.len() != LEGACY {
            return Err(EINVAL);
        }
        self.check_mxcsr(new)?;
        self.grow();
        self.fp[..28].copy_from_slice(&new[..28]);
        self.fp[32..SOFTWARE].copy_from_slice(&new[32..SOFTWARE]);
        if self.fp.len() >= LEGACY + HEADER {
            let has = word(&self.fp, LEGACY) | 3;
            self.fp[LEGACY..LEGACY + 8].copy_from_slice(&has.to_le_bytes());
        }
        self.fp_changed = true;
        Ok(())
    }

    /// A state to write to: a task that has not run has none yet.
    fn grow(&mut self) {
        if self.fp.len() >= LEGACY {
            return;
        }
        let mut fp = vec![0; LEGACY + HEADER];
        fp[..2].copy_from_slice(&0x37fu16.to_le_bytes());
        fp[24..28].copy_from_slice(&0x1f80u32.to_le_bytes());
        fp[28..32].copy_from_slice(&0xffffu32.to_le_bytes());
        self.fp = fp;
    }

    /// No reserved bit of MXCSR may be set.
    fn check_mxcsr(&self, new: &[u8]) -> Result<()> {
        let half = |b: &[u8], at: usize| {
            b.get(at..at + 4)
                .map_or(0, |w| u32::from_le_bytes(w.try_into().expect("4 bytes")))
        };
        let mask = match half(&self.fp, 28) {
            0 => 0xffff,
            m => m,
        };
        if half(new, 24) & !mask != 0 {
            Err(EINVAL)
        } else {
            Ok(())
        }
    }
}

fn word(b: &[u8], at: usize) -> u64 {
    b.get(at..at + 8)
        .map_or(0, |w| u64::from_le_bytes(w.try_into().expect("8 bytes")))
}

const _: () = assert!(FLAGS & TF != 0);

#[cfg(test)]
mod tests {
    use super::*;
    use abi::SigSet;

    fn some(fp: Vec<u8>) -> CpuCopy {
        CpuCopy {
            regs: Regs {
                cs: 0x33,
                ss: 0x2b,
                eflags: 0x202,
                ..Regs::default()
            },
            regs_changed: false,
            fp,
            fp_changed: false,
            mask: SigSet::EMPTY,
            saved_mask: None,
            mask_changed: false,
        }
    }

    #[test]
    fn registers_are_set_as_putreg_does() {
        let mut c = some(Vec::new());
        let same = c.general();
        assert!(c.set_general(&same).is_ok() && c.regs_changed);
        let at = |o: usize| o as u64;
        for (reg, value, result) in [
            (offset_of!(Regs, cs), 0, Err(EIO)),
            (offset_of!(Regs, cs), 0x33, Ok(())),
            (offset_of!(Regs, cs), 0x10, Err(EIO)),
            (offset_of!(Regs, ss), 0x1_002b, Ok(())),
            (offset_of!(Regs, fs), 0, Ok(())),
            (offset_of!(Regs, fs_base), USER_MAX, Err(EIO)),
            (offset_of!(Regs, gs_base), 0x1000, Ok(())),
            (offset_of!(Regs, eflags), u64::MAX, Ok(())),
            (4, 0, Err(EIO)),
            (USER as usize, 0, Err(EIO)),
            (GENERAL, 0, Err(EIO)),
            (DEBUG as usize, 0, Ok(())),
            (DEBUG as usize, 0x1000, Err(ENOSPC)),
            (DEBUG as usize + 56, 0, Ok(())),
            (DEBUG as usize + 56, 1, Err(ENOSPC)),
            (DEBUG as usize + 32, 0, Err(EIO)),
        ] {
            assert_eq!(c.poke_user(at(reg), value), result, "{reg} {value:x}");
        }
        assert_eq!(c.regs.eflags, FLAGS | 0x202);
        assert_eq!(c.peek_user(at(offset_of!(Regs, ss))), Ok(0x2b));
        assert_eq!(c.peek_user(DEBUG + 48), Ok(DR6));
        assert_eq!(c.peek_user(USER - 8), Ok(0));
        assert_eq!(c.peek_user(USER), Err(EIO));
    }

    #[test]
    fn the_extended_state_is_the_hosts_whole() {
        let x = XState::host();
        for len in [0, LEGACY, LEGACY + HEADER, x.size] {
            let mut c = some(vec![0; len]);
            let s = c.xstate();
            assert_eq!(s.len(), x.size);
            assert_eq!(word(&s, SOFTWARE), x.features);
            assert!(c.set_xstate(&s).is_ok());
            assert_eq!(c.set_xstate(&s[..s.len() - 8]), Err(EFAULT));
            let mut bad = s.clone();
            bad[LEGACY + 7] = 0x80;
            assert_eq!(c.set_xstate(&bad), Err(EINVAL));
            let mut bad = s;
            bad[LEGACY] |= 2;
            bad[27] = 0x80;
            assert_eq!(c.set_xstate(&bad), Err(EINVAL));
            let mut fx = c.fxsave();
            fx[170] = 7;
            assert!(c.set_fxsave(&fx).is_ok());
            assert_eq!(c.fxsave()[170], 7);
            assert_eq!(c.set_fxsave(&fx[1..]), Err(EINVAL));
        }
    }
}
