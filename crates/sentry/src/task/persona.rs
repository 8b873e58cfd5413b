//! What `personality(2)` changes for a thread and its children.

use super::Task;
use crate::ns::uts;
use std::sync::atomic::Ordering;

bitflags::bitflags! {
    /// The flags of a personality (`linux/personality.h`). Its low byte is an execution domain.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub struct Persona: u32 {
        const UNAME26 = 0x0020000;
        const ADDR_NO_RANDOMIZE = 0x0040000;
        const MMAP_PAGE_ZERO = 0x0100000;
        const ADDR_COMPAT_LAYOUT = 0x0200000;
        const READ_IMPLIES_EXEC = 0x0400000;
        const STICKY_TIMEOUTS = 0x4000000;
        const _ = !0;
    }
}

/// The execution domain of 32-bit programs, which `uname(2)` tells another machine.
const PER_LINUX32: u32 = 8;

/// Whether a new program has more rights than its caller.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rights {
    Kept,
    Raised,
}

impl Persona {
    /// What a program with more rights than its caller does not get (`PER_CLEAR_ON_SETID`).
    const CLEARED: Persona = Persona::ADDR_NO_RANDOMIZE
        .union(Persona::MMAP_PAGE_ZERO)
        .union(Persona::ADDR_COMPAT_LAYOUT)
        .union(Persona::READ_IMPLIES_EXEC);

    /// Of a new program.
    #[must_use]
    pub fn after_exec(self, rights: Rights) -> Persona {
        match rights {
            Rights::Raised => self.difference(Persona::CLEARED),
            // Its own file would say so, which a 64-bit one cannot.
            Rights::Kept => self.difference(Persona::READ_IMPLIES_EXEC),
        }
    }
}

impl Task {
    #[must_use]
    pub fn persona(&self) -> Persona {
        Persona::from_bits_retain(self.persona.load(Ordering::Relaxed))
    }

    /// `struct new_utsname`, as this thread is told it (`override_release`,
    /// `override_architecture`).
    #[must_use]
    pub fn utsname(&self) -> platform::lanes::Names {
        let mut names = self.ns().uts.get().utsname();
        let p = self.persona();
        if p.contains(Persona::UNAME26) {
            uts::put(&mut names, uts::Name::Release, uts::release26().as_bytes());
        }
        if p.bits() & 0xff == PER_LINUX32 {
            uts::put(&mut names, uts::Name::Machine, b"i686");
        }
        names
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rights_clear_what_would_help_an_attacker() {
        let p = Persona::from_bits_retain(0x45e0008);
        assert_eq!(p.after_exec(Rights::Kept).bits(), 0x41e0008);
        assert_eq!(p.after_exec(Rights::Raised).bits(), 0x40a0008);
    }
}
