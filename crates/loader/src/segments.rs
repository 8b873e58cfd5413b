//! Mapping the segments of an ELF file.

use crate::elf::{Elf, PF_R, PF_W, PF_X, Segment};
use crate::{Randomize, random_pages};
use abi::errno::{EEXIST, EINVAL, ENOMEM};
use abi::linux::{
    MAP_ANONYMOUS, MAP_FIXED, MAP_FIXED_NOREPLACE, MAP_NORESERVE, MAP_PRIVATE, PROT_EXEC,
    PROT_NONE, PROT_READ, PROT_WRITE,
};
use abi::{PAGE_SIZE, Result, Va};
use mm::{Mm, MmapRequest, USER_MAX};

/// Where position-independent programs begin (`ELF_ET_DYN_BASE`): two thirds up.
const DYN_BASE: u64 = (USER_MAX / 3 * 2) & !(PAGE_SIZE - 1);

/// A mapped file.
pub(crate) struct Mapped {
    /// What was added to its addresses.
    pub(crate) bias: u64,
    pub(crate) entry: u64,
    /// The program headers in memory; zero where no segment holds them.
    pub(crate) phdr: u64,
    pub(crate) start_code: u64,
    pub(crate) end_code: u64,
    pub(crate) start_data: u64,
    pub(crate) end_data: u64,
    pub(crate) start_brk: u64,
}

fn page_down(v: u64) -> u64 {
    v & !(PAGE_SIZE - 1)
}

/// Maps the program itself.
pub(crate) fn map_program(
    mm: &Mm,
    elf: &Elf,
    has_interpreter: bool,
    randomize: Randomize,
) -> Result<Mapped> {
    let bias = if !elf.relocatable {
        0
    } else if has_interpreter {
        // Far below mmap's area, so that the heap can grow.
        let base = DYN_BASE + random_pages(randomize, 28);
        let (low, _) = elf.extent().ok_or(EINVAL)?;
        (base & !(elf.align - 1)).wrapping_sub(low & !(elf.align - 1))
    } else {
        free_bias(mm, elf)?
    };
    let mut m = map(mm, elf, bias)?;
    // A loader or static PIE lies in mmap's area: its heap goes elsewhere.
    if elf.relocatable && !has_interpreter {
        m.start_brk = DYN_BASE;
    }
    m.start_brk = m
        .start_brk
        .checked_next_multiple_of(PAGE_SIZE)
        .ok_or(ENOMEM)?
        + random_pages(randomize, 18);
    Ok(m)
}

/// Maps the program's interpreter.
pub(crate) fn map_interpreter(mm: &Mm, elf: &Elf) -> Result<Mapped> {
    let bias = if elf.relocatable {
        free_bias(mm, elf)?
    } else {
        0
    };
    map(mm, elf, bias)
}

/// A bias that puts the file into mmap's area.
fn free_bias(mm: &Mm, elf: &Elf) -> Result<u64> {
    let (low, high) = elf.extent().ok_or(EINVAL)?;
    let slack = elf.align - PAGE_SIZE;
    let len = (high - low).checked_add(slack).ok_or(ENOMEM)?;
    let flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    let va = mm.mmap(MmapRequest {
        addr: Va::NULL,
        len,
        prot: PROT_NONE,
        flags,
        offset: 0,
        file: None,
    })?;
    mm.munmap(va, len)?;
    // Congruent to its own addresses modulo the alignment.
    let skew = low & (elf.align - 1);
    // From `va` up to the next address that is `skew` behind a multiple; both are below the
    // alignment.
    let start = va.0 + (skew.wrapping_sub(va.0) & (elf.align - 1));
    let start = if start - va.0 > slack { va.0 } else { start };
    Ok(start.wrapping_sub(low))
}

fn prot(s: &Segment) -> u32 {
    let bit = |f: u32, p: u32| if s.flags & f != 0 { p } else { 0 };
    bit(PF_R, PROT_READ) | bit(PF_W, PROT_WRITE) | bit(PF_X, PROT_EXEC)
}

fn map(mm: &Mm, elf: &Elf, bias: u64) -> Result<Mapped> {
    let (low, high) = elf.extent().ok_or(EINVAL)?;
    // All of it must be where applications may be, and nothing else may be there.
    let (start, len) = (low.wrapping_add(bias), high - low);
    if start.checked_add(len).is_none_or(|end| end > USER_MAX) {
        return Err(ENOMEM);
    }
    let taken = |e| if e == EEXIST { ENOMEM } else { e };
    mm.mmap(MmapRequest {
        addr: Va(start),
        len,
        prot: PROT_NONE,
        flags: MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE,
        offset: 0,
        file: None,
    })
    .map_err(taken)?;
    mm.munmap(Va(start), len)?;

    let file = elf.image.map_file()?;
    let mut m = Mapped {
        bias,
        entry: elf.entry.wrapping_add(bias),
        phdr: 0,
        start_code: u64::MAX,
        end_code: 0,
        start_data: 0,
        end_data: 0,
        start_brk: 0,
    };
    for s in &elf.segments {
        let va = s.vaddr.wrapping_add(bias);
        let (file_end, mem_end) = (va + s.filesz, va + s.memsz);
        let mut zero_from = page_down(va);
        if s.filesz > 0 {
            let start = page_down(va);
            mm.mmap(MmapRequest {
                addr: Va(start),
                len: file_end - start,
                prot: prot(s),
                flags: MAP_PRIVATE | MAP_FIXED,
                offset: page_down(s.offset),
                file: Some(file.clone()),
            })?;
            zero_from = file_end.next_multiple_of(PAGE_SIZE);
            // The rest of the last page belongs to the bss. Linux leaves it where it cannot be
            // written.
            if s.memsz > s.filesz && s.flags & PF_W != 0 {
                let end = zero_from.min(mem_end.next_multiple_of(PAGE_SIZE));
                mm.zero_out(Va(file_end), end - file_end)?;
            }
        }
        let end = mem_end.next_multiple_of(PAGE_SIZE);
        if end > zero_from {
            mm.mmap(MmapRequest {
                addr: Va(zero_from),
                len: end - zero_from,
                prot: PROT_READ | PROT_WRITE | prot(s) & PROT_EXEC,
                flags: MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED,
                offset: 0,
                file: None,
            })?;
        }
        if s.offset <= elf.phoff && elf.phoff - s.offset < s.filesz {
            m.phdr = va + (elf.phoff - s.offset);
        }
        if s.flags & PF_X != 0 {
            m.start_code = m.start_code.min(va);
            m.end_code = m.end_code.max(file_end);
        }
        m.start_data = m.start_data.max(va);
        m.end_data = m.end_data.max(file_end);
        m.start_brk = m.start_brk.max(mem_end);
    }
    if m.start_code == u64::MAX {
        m.start_code = 0;
    }
    Ok(m)
}
