//! The signal frame that the host builds on a thread's alternate stack, seen from the Sentry.
//!
//! Layouts: `struct ucontext` and `struct sigcontext_64`
//! (`arch/x86/include/uapi/asm/sigcontext.h`). The frame lies in memory that the application can
//! write: every value is read once, every offset checked; what is in it concerns that application
//! alone.

use crate::Regs;
use abi::Result;
use abi::errno::EINVAL;
use hostcall::MemSlice;

/// Offset of `uc_mcontext.gregs` in `ucontext`.
const GREGS: usize = 40;
/// Indexes of the general registers.
mod greg {
    pub const ERR: usize = 19;
    pub const FPSTATE: usize = 23;
}
/// Size of the kernel's `ucontext`.
pub const UC_LEN: usize = 304;
/// Offset of `uc_sigmask`.
const SIGMASK: usize = 296;
/// Legacy FXSAVE area and XSAVE header.
const LEGACY: usize = 512;
const HEADER: usize = 64;
/// Offset of `struct _fpx_sw_bytes` in the legacy area.
const SW_BYTES: usize = 464;
const MAGIC1: u32 = 0x4650_5853;
const MAGIC2: u32 = 0x4650_5845;

/// A frame in a thread area.
#[derive(Clone, Copy)]
pub struct Frame<'a> {
    /// The thread area.
    area: MemSlice<'a>,
    /// Its address in the stub.
    base: u64,
    /// Where the `ucontext` starts in it.
    uc: usize,
}

pub(crate) fn u64_at(m: MemSlice<'_>, at: usize) -> u64 {
    let mut b = [0u8; 8];
    m.sub(at, 8).copy_to(&mut b);
    u64::from_le_bytes(b)
}

pub(crate) fn put_u64(m: MemSlice<'_>, at: usize, v: u64) {
    m.sub(at, 8).copy_from(&v.to_le_bytes());
}

fn u32_at(m: MemSlice<'_>, at: usize) -> u32 {
    let mut b = [0u8; 4];
    m.sub(at, 4).copy_to(&mut b);
    u32::from_le_bytes(b)
}

impl<'a> Frame<'a> {
    /// The frame whose `ucontext` is at stub address `uc`; `None` where that is not inside the
    /// area.
    pub fn new(area: MemSlice<'a>, base: u64, uc: u64) -> Option<Frame<'a>> {
        let at = usize::try_from(uc.checked_sub(base)?).ok()?;
        let fits = at % 8 == 0
            && at >= stub::area::FIRST_UC as usize
            && at.checked_add(UC_LEN)? <= area.len();
        fits.then_some(Frame { area, base, uc: at })
    }

    /// Lays out a frame for a thread that has not run: initial registers, no signals blocked.
    pub fn fresh(area: MemSlice<'a>, base: u64) -> Frame<'a> {
        let at = stub::area::FIRST_UC as usize;
        area.sub(at, UC_LEN).zero();
        // UC_FP_XSTATE | UC_SIGCONTEXT_SS | UC_STRICT_RESTORE_SS
        put_u64(area, at, 7);
        Frame { area, base, uc: at }
    }

    /// Its address in the stub.
    pub fn address(&self) -> u64 {
        self.base + self.uc as u64
    }

    fn greg(&self, i: usize) -> u64 {
        u64_at(self.area, self.uc + GREGS + 8 * i)
    }
    fn set_greg(&self, i: usize, v: u64) {
        put_u64(self.area, self.uc + GREGS + 8 * i, v);
    }

    /// The page-fault error code.
    pub fn error_code(&self) -> u64 {
        self.greg(greg::ERR)
    }

    /// The general registers; the bases are not in the frame.
    pub fn regs(&self) -> Regs {
        let g = |i| self.greg(i);
        let segs = g(18);
        Regs {
            r8: g(0),
            r9: g(1),
            r10: g(2),
            r11: g(3),
            r12: g(4),
            r13: g(5),
            r14: g(6),
            r15: g(7),
            rdi: g(8),
            rsi: g(9),
            rbp: g(10),
            rbx: g(11),
            rdx: g(12),
            rax: g(13),
            rcx: g(14),
            rsp: g(15),
            rip: g(16),
            eflags: g(17),
            cs: segs & 0xffff,
            gs: (segs >> 16) & 0xffff,
            fs: (segs >> 32) & 0xffff,
            ss: segs >> 48,
            ..Regs::default()
        }
    }

    /// Replaces them; the host's rt_sigreturn makes flags and segments safe.
    pub fn set_regs(&self, r: &Regs) {
        let v = [
            r.r8, r.r9, r.r10, r.r11, r.r12, r.r13, r.r14, r.r15, r.rdi, r.rsi, r.rbp, r.rbx,
            r.rdx, r.rax, r.rcx, r.rsp, r.rip, r.eflags,
        ];
        for (i, v) in v.into_iter().enumerate() {
            self.set_greg(i, v);
        }
        // User code and stack segments, whatever was asked for: there is no other in 64-bit mode.
        self.set_greg(18, 0x33 | (0x2b << 48));
        put_u64(self.area, self.uc + SIGMASK, 0);
    }

    /// The FP state in the frame: where it lies and its length, if that is inside the area.
    fn fp(&self) -> Option<MemSlice<'a>> {
        let at = usize::try_from(self.greg(greg::FPSTATE).checked_sub(self.base)?).ok()?;
        let room = self.area.len().checked_sub(at)?;
        if at % 64 != 0 || room < LEGACY {
            return None;
        }
        let sw = at + SW_BYTES;
        let len = if u32_at(self.area, sw) == MAGIC1 {
            // xstate_size
            (u32_at(self.area, sw + 16) as usize)
                .max(LEGACY + HEADER)
                .min(room)
        } else {
            LEGACY
        };
        (len <= room).then(|| self.area.sub(at, len))
    }

    /// Appends the FP state in the format of signal frames.
    pub fn fp_state(&self, out: &mut Vec<u8>) {
        if let Some(m) = self.fp() {
            let at = out.len();
            out.resize(at + m.len(), 0);
            m.copy_to(&mut out[at..]);
        }
    }

    /// Replaces the FP state. `None`: the initial one.
    pub fn set_fp_state(&self, state: Option<&[u8]>) -> Result<()> {
        let Some(state) = state else {
            self.set_greg(greg::FPSTATE, 0);
            return Ok(());
        };
        if state.len() < LEGACY {
            return Err(EINVAL);
        }
        let room = match self.fp() {
            Some(m) => m,
            None => {
                // A fresh frame: the state comes from another thread, whole.
                let at = stub::area::FIRST_FP as usize;
                if at + state.len() + 4 > self.area.len() {
                    return Err(EINVAL);
                }
                let m = self.area.sub(at, state.len());
                m.copy_from(state);
                self.area
                    .sub(at + state.len(), 4)
                    .copy_from(&MAGIC2.to_le_bytes());
                self.set_greg(greg::FPSTATE, self.base + at as u64);
                return Ok(());
            }
        };
        let mut new = vec![0u8; room.len()];
        room.copy_to(&mut new);
        merge_fp(&mut new, state);
        room.copy_from(&new);
        Ok(())
    }
}

/// Puts the application's state into the host's frame format: the software bytes stay the host's,
/// the header holds only what the host knows, reserved bits are zero, so that the host's restore
/// cannot fail.
pub fn merge_fp(host: &mut [u8], app: &[u8]) {
    let n = host.len().min(app.len());
    let mask = u32::from_le_bytes(host[28..32].try_into().expect("4 bytes"));
    let mask = if mask == 0 { 0xffbf } else { mask };
    host[..SW_BYTES].copy_from_slice(&app[..SW_BYTES]);
    let mxcsr = u32::from_le_bytes(app[24..28].try_into().expect("4 bytes")) & mask;
    host[24..28].copy_from_slice(&mxcsr.to_le_bytes());
    host[28..32].copy_from_slice(&mask.to_le_bytes());
    if host.len() < LEGACY + HEADER {
        return;
    }
    let known = u64::from_le_bytes(
        host[SW_BYTES + 8..SW_BYTES + 16]
            .try_into()
            .expect("8 bytes"),
    );
    let app_has_header =
        app.len() >= LEGACY + HEADER && app[SW_BYTES..SW_BYTES + 4] == MAGIC1.to_le_bytes();
    // Without an extended part only x87 and SSE are given; the rest goes to its initial state.
    let has = if app_has_header {
        u64::from_le_bytes(app[LEGACY..LEGACY + 8].try_into().expect("8 bytes")) & known
    } else {
        3
    };
    host[LEGACY..LEGACY + HEADER].fill(0);
    host[LEGACY..LEGACY + 8].copy_from_slice(&has.to_le_bytes());
    if app_has_header && n > LEGACY + HEADER {
        host[LEGACY + HEADER..n].copy_from_slice(&app[LEGACY + HEADER..n]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_forged_frame_is_read_within_its_area() {
        let mut bytes = vec![0u8; stub::AREA_LEN as usize];
        hostcall::mem::with_slice_mut(&mut bytes, |area| {
            let base = stub::AREAS;
            // The FP state at the very end, where it has no room for a header, and with any size.
            for (room, size) in [
                (512, 0),
                (512, 576),
                (512, u32::MAX),
                (576, 0),
                (1024, 4096),
            ] {
                let f = Frame::new(area, base, base + 0x1000).unwrap();
                let at = area.len() - room;
                f.set_greg(greg::FPSTATE, base + at as u64);
                area.sub(at + SW_BYTES, 4).copy_from(&MAGIC1.to_le_bytes());
                area.sub(at + SW_BYTES + 16, 4)
                    .copy_from(&size.to_le_bytes());
                let mut out = Vec::new();
                f.fp_state(&mut out);
                assert!(out.len() <= room);
                f.set_fp_state(Some(&[0xff; 4096])).unwrap();
            }
            for uc in [0, base, base + 0x7fff, base + 0x7ff8, u64::MAX] {
                assert!(Frame::new(area, base, uc).is_none());
            }
        });
    }
}
