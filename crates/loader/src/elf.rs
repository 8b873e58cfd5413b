//! ELF headers, checked.

use crate::{Image, read_full};
use abi::errno::{EINVAL, EIO, ELIBBAD, ENOEXEC};
use abi::{PAGE_SIZE, Result};
use mm::USER_MAX;
use std::sync::Arc;

const ET_EXEC: u16 = 2;
const ET_DYN: u16 = 3;
const EM_X86_64: u16 = 62;
const EHDR: usize = 64;
pub(crate) const PHDR: usize = 56;
const PT_LOAD: u32 = 1;
const PT_INTERP: u32 = 3;
const PT_GNU_STACK: u32 = 0x6474_e551;
pub(crate) const PF_X: u32 = 1;
pub(crate) const PF_W: u32 = 2;
pub(crate) const PF_R: u32 = 4;
const PATH_MAX: u64 = 4096;

/// A `PT_LOAD` header whose numbers do not overflow and fit below [`USER_MAX`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Segment {
    pub(crate) flags: u32,
    pub(crate) offset: u64,
    pub(crate) vaddr: u64,
    pub(crate) filesz: u64,
    pub(crate) memsz: u64,
}

/// An ELF file whose headers were read and checked.
pub struct Elf {
    pub(crate) image: Arc<dyn Image>,
    /// `ET_DYN`: it can be anywhere.
    pub(crate) relocatable: bool,
    pub(crate) entry: u64,
    pub(crate) phoff: u64,
    phnum: u16,
    pub(crate) segments: Vec<Segment>,
    /// The largest alignment that a segment asks for, at least a page.
    pub(crate) align: u64,
    interpreter: Option<Vec<u8>>,
    pub(crate) exec_stack: bool,
}

/// A number at `at`: the caller knows that it is inside.
fn u16_at(b: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([b[at], b[at + 1]])
}
fn u32_at(b: &[u8], at: usize) -> u32 {
    u32::from(u16_at(b, at)) | u32::from(u16_at(b, at + 2)) << 16
}
fn u64_at(b: &[u8], at: usize) -> u64 {
    u64::from(u32_at(b, at)) | u64::from(u32_at(b, at + 4)) << 32
}

impl Elf {
    /// Reads the headers of a program. `ENOEXEC` for what is no x86-64 ELF program.
    pub fn parse(image: Arc<dyn Image>) -> Result<Elf> {
        let mut head = [0; EHDR];
        let n = read_full(&*image, 0, &mut head)?;
        let kind = u16_at(&head, 16);
        if n < EHDR
            || !head.starts_with(b"\x7fELF")
            || (head[4], head[5]) != (2, 1)
            || !matches!(kind, ET_EXEC | ET_DYN)
            || u16_at(&head, 18) != EM_X86_64
            || usize::from(u16_at(&head, 54)) != PHDR
        {
            return Err(ENOEXEC);
        }
        let phoff = u64_at(&head, 32);
        let phnum = u16_at(&head, 56);
        let size = usize::from(phnum) * PHDR;
        if size == 0
            || size > 65536
            || phoff
                .checked_add(size as u64)
                .is_none_or(|e| e > i64::MAX as u64)
        {
            return Err(ENOEXEC);
        }
        let mut table = vec![0; size];
        if read_full(&*image, phoff, &mut table)? < size {
            return Err(EIO);
        }
        let mut elf = Elf {
            image,
            relocatable: kind == ET_DYN,
            entry: u64_at(&head, 24),
            phoff,
            phnum,
            segments: Vec::new(),
            align: PAGE_SIZE,
            interpreter: None,
            exec_stack: false,
        };
        for h in table.chunks_exact(PHDR) {
            match u32_at(h, 0) {
                PT_LOAD => elf.add_segment(h)?,
                PT_INTERP if elf.interpreter.is_none() => elf.read_interpreter(h)?,
                PT_GNU_STACK => elf.exec_stack = u32_at(h, 4) & PF_X != 0,
                _ => {}
            }
        }
        Ok(elf)
    }

    /// As [`Elf::parse`], for the file that a program names as its interpreter: what is wrong with
    /// it is `ELIBBAD`.
    pub fn parse_interpreter(image: Arc<dyn Image>) -> Result<Elf> {
        Elf::parse(image).map_err(|e| {
            if e == ENOEXEC || e == EINVAL {
                ELIBBAD
            } else {
                e
            }
        })
    }

    fn add_segment(&mut self, h: &[u8]) -> Result<()> {
        let s = Segment {
            flags: u32_at(h, 4),
            offset: u64_at(h, 8),
            vaddr: u64_at(h, 16),
            filesz: u64_at(h, 32),
            memsz: u64_at(h, 40),
        };
        let align = u64_at(h, 48);
        let end = s.vaddr.checked_add(s.memsz);
        let in_file = s
            .offset
            .checked_add(s.filesz)
            .is_some_and(|e| e < i64::MAX as u64 - PAGE_SIZE);
        if s.filesz > s.memsz
            || end.is_none_or(|e| e > USER_MAX)
            || !in_file
            || s.filesz > 0 && s.offset % PAGE_SIZE != s.vaddr % PAGE_SIZE
        {
            return Err(EINVAL);
        }
        // Linux takes powers of two alone into account.
        if align.is_power_of_two() && align < USER_MAX {
            self.align = self.align.max(align);
        }
        if s.memsz > 0 {
            self.segments.push(s);
        }
        Ok(())
    }

    fn read_interpreter(&mut self, h: &[u8]) -> Result<()> {
        let (offset, len) = (u64_at(h, 8), u64_at(h, 32));
        if !(2..=PATH_MAX).contains(&len)
            || offset.checked_add(len).is_none_or(|e| e > i64::MAX as u64)
        {
            return Err(ENOEXEC);
        }
        let mut path = vec![0; len as usize];
        if read_full(&*self.image, offset, &mut path)? < path.len() {
            return Err(EIO);
        }
        if path.last() != Some(&0) {
            return Err(ENOEXEC);
        }
        path.truncate(path.iter().position(|b| *b == 0).unwrap_or(0));
        self.interpreter = Some(path);
        Ok(())
    }

    /// The path in `PT_INTERP`.
    #[must_use]
    pub fn interpreter(&self) -> Option<&[u8]> {
        self.interpreter.as_deref()
    }

    pub(crate) fn phnum(&self) -> u16 {
        self.phnum
    }

    /// The pages from the lowest to the end of the highest segment; `None` without segments.
    pub(crate) fn extent(&self) -> Option<(u64, u64)> {
        let low = self.segments.iter().map(|s| s.vaddr).min()?;
        let high = self.segments.iter().map(|s| s.vaddr + s.memsz).max()?;
        Some((low & !(PAGE_SIZE - 1), high.next_multiple_of(PAGE_SIZE)))
    }
}
