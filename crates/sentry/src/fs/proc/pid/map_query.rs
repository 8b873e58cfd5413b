//! `PROCMAP_QUERY`, a command of `/proc/PID/maps`: one mapping, by an address (`do_procmap_query`).

use super::Subject;
use super::maps::of;
use abi::errno::{E2BIG, EINVAL, ENAMETOOLONG, ENOENT, ENOTTY, ESRCH};
use abi::{Result, Va};
use bitflags::bitflags;
use mm::{Prot, VmaFlags, VmaInfo};
use std::sync::Arc;
use vfs::FileType;
use vfs::file::{BufSink, File, IoctlContext};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// The command, with the size of the struct that Linux had first.
const PROCMAP_QUERY: u32 = 0xc068_6611;

bitflags! {
    /// What a mapping must be like, and how it is found.
    #[derive(Clone, Copy)]
    struct QueryFlags: u64 {
        const READABLE = 1;
        const WRITABLE = 2;
        const EXECUTABLE = 4;
        const SHARED = 8;
        /// The next one will do.
        const COVERING_OR_NEXT = 0x10;
        const FILE_BACKED = 0x20;
    }
}

/// What of [`QueryFlags`] is told of a mapping.
const KINDS: QueryFlags = QueryFlags::READABLE
    .union(QueryFlags::WRITABLE)
    .union(QueryFlags::EXECUTABLE)
    .union(QueryFlags::SHARED);

/// `struct procmap_query`.
#[derive(Clone, Copy, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Query {
    size: u64,
    wanted: u64,
    addr: u64,
    start: u64,
    end: u64,
    kinds: u64,
    page_size: u64,
    offset: u64,
    ino: u64,
    dev: [u32; 2],
    name_size: u32,
    build_id_size: u32,
    name_at: u64,
    build_id_at: u64,
}

/// Up to the address asked for: the least that a caller may give.
const LEAST: u64 = 24;

impl Query {
    /// What the caller gives, by the size that it says (`copy_struct_from_user`).
    fn read(cx: &dyn IoctlContext, at: Va) -> Result<Query> {
        let mut size = [0; 8];
        cx.copy_in(at, &mut size)?;
        let size = u64::from_ne_bytes(size);
        if size > abi::PAGE_SIZE {
            return Err(E2BIG);
        }
        if size < LEAST {
            return Err(EINVAL);
        }
        let mut bytes = vec![0; size as usize];
        cx.copy_in(at, &mut bytes)?;
        if bytes.iter().skip(size_of::<Query>()).any(|b| *b != 0) {
            return Err(E2BIG);
        }
        bytes.resize(size_of::<Query>(), 0);
        let mut q = Query::read_from_bytes(&bytes).map_err(|_| EINVAL)?;
        q.size = size;
        if (q.name_size != 0) != (q.name_at != 0) {
            return Err(EINVAL);
        }
        if (q.build_id_size != 0) != (q.build_id_at != 0) {
            return Err(EINVAL);
        }
        Ok(q)
    }

    /// Tells of `v`.
    fn describe(&mut self, v: &VmaInfo) {
        let (dev, ino) = v.dev_ino();
        (self.start, self.end) = (v.start, v.end);
        self.kinds = kinds(v).bits();
        self.page_size = abi::PAGE_SIZE;
        self.offset = if v.is_file() { v.offset } else { 0 };
        self.ino = ino;
        self.dev = [vfs::major(dev), vfs::minor(dev)];
    }

    /// Lays down what the caller has room for; `ENAMETOOLONG` where that is too small.
    fn put_texts(&mut self, cx: &dyn IoctlContext, v: &VmaInfo) -> Result<()> {
        let id = match self.build_id_size {
            0 => None,
            _ => build_id(v),
        };
        if id
            .as_ref()
            .is_some_and(|i| i.len() > self.build_id_size as usize)
        {
            return Err(ENAMETOOLONG);
        }
        self.build_id_size = id.as_ref().map_or(0, |i| i.len() as u32);
        if self.name_size != 0 {
            let mut name = v.name();
            if !name.is_empty() {
                name.push(0);
            }
            if name.len() > (self.name_size as usize).min(vfs::PATH_MAX) {
                return Err(ENAMETOOLONG);
            }
            self.name_size = name.len() as u32;
            cx.copy_out(Va(self.name_at), &name)?;
        }
        match id {
            Some(id) => cx.copy_out(Va(self.build_id_at), &id),
            None => Ok(()),
        }
    }
}

fn kinds(v: &VmaInfo) -> QueryFlags {
    let mut k = QueryFlags::empty();
    k.set(QueryFlags::READABLE, v.prot.contains(Prot::READ));
    k.set(QueryFlags::WRITABLE, v.prot.contains(Prot::WRITE));
    k.set(QueryFlags::EXECUTABLE, v.prot.contains(Prot::EXEC));
    k.set(QueryFlags::SHARED, v.flags.contains(VmaFlags::SHARED));
    k
}

/// The mapping that is meant (`query_matching_vma`).
fn find(mm: &mm::Mm, addr: u64, wanted: QueryFlags) -> Result<VmaInfo> {
    let next_will_do = wanted.contains(QueryFlags::COVERING_OR_NEXT);
    let mut at = addr;
    loop {
        let v = mm.find_vma(Va(at)).ok_or(ENOENT)?;
        let fits = kinds(&v).contains(wanted & KINDS)
            && (v.is_file() || !wanted.contains(QueryFlags::FILE_BACKED));
        if fits && (next_will_do || v.start <= addr) {
            return Ok(v);
        }
        if !next_will_do {
            return Err(ENOENT);
        }
        at = v.end;
    }
}

/// `ioctl(2)` on `/proc/PID/maps`.
pub(super) fn ioctl(me: &Subject, cx: &dyn IoctlContext, cmd: u32, arg: u64) -> Result<u64> {
    if cmd != PROCMAP_QUERY {
        return Err(ENOTTY);
    }
    let mut q = Query::read(cx, Va(arg))?;
    let wanted = QueryFlags::from_bits(q.wanted).ok_or(EINVAL)?;
    let mm = of(me)?.ok_or(ESRCH)?;
    let v = find(&mm, q.addr, wanted)?;
    q.describe(&v);
    q.put_texts(cx, &v)?;
    let known = (q.size as usize).min(size_of::<Query>());
    cx.copy_out(Va(arg), &q.as_bytes()[..known])?;
    Ok(0)
}

/// The longest build id.
const BUILD_ID: usize = 20;
const PT_NOTE: u32 = 4;
const NT_GNU_BUILD_ID: u32 = 3;
/// The headers and notes that are looked at, in bytes.
const HEADERS: usize = abi::PAGE_SIZE as usize;

/// What linkers put into a program to name it: of an ELF file of 64 bits that is mapped.
fn build_id(v: &VmaInfo) -> Option<Vec<u8>> {
    let file: Arc<File> = v.open_file()?.downcast().ok()?;
    // (Others give what they have once only.)
    let inode = file.path.as_ref()?.inode().ok()?;
    if inode.file_type() != FileType::Regular {
        return None;
    }
    let read = |at: u64| {
        let mut b = vec![0; HEADERS];
        let n = file.ops.read(&file, &mut BufSink::new(&mut b), at).ok()?;
        b.truncate(n);
        Some(b)
    };
    let head = read(0)?;
    // ELFCLASS64, little-endian.
    if !head.starts_with(b"\x7fELF\x02\x01") {
        return None;
    }
    let (table, count) = (word(&head, 32)?, half(&head, 56)?);
    let headers = (0..u64::from(count)).map(|i| table.checked_add(i * 56));
    for at in headers {
        let at = usize::try_from(at?).ok()?;
        if int(&head, at)? != PT_NOTE {
            continue;
        }
        let (offset, len) = (word(&head, at + 8)?, word(&head, at + 32)?);
        let mut notes = read(offset)?;
        notes.truncate(usize::try_from(len).unwrap_or(HEADERS));
        if let Some(id) = build_id_among(&notes) {
            return Some(id);
        }
    }
    None
}

/// The same among notes: sizes of name and contents, a type, and both, at multiples of four.
fn build_id_among(mut notes: &[u8]) -> Option<Vec<u8>> {
    loop {
        let (name, desc, kind) = (int(notes, 0)?, int(notes, 4)?, int(notes, 8)?);
        let name_end = 12usize.checked_add(name as usize)?.next_multiple_of(4);
        let end = name_end.checked_add(desc as usize)?;
        let is_id = kind == NT_GNU_BUILD_ID && notes.get(12..16) == Some(b"GNU\0") && name == 4;
        if is_id && (1..=BUILD_ID).contains(&(desc as usize)) {
            return notes.get(name_end..end).map(<[u8]>::to_vec);
        }
        notes = notes.get(end.next_multiple_of(4)..)?;
    }
}

fn half(b: &[u8], at: usize) -> Option<u16> {
    b.get(at..at.checked_add(2)?)?
        .try_into()
        .ok()
        .map(u16::from_le_bytes)
}
fn int(b: &[u8], at: usize) -> Option<u32> {
    b.get(at..at.checked_add(4)?)?
        .try_into()
        .ok()
        .map(u32::from_le_bytes)
}
fn word(b: &[u8], at: usize) -> Option<u64> {
    b.get(at..at.checked_add(8)?)?
        .try_into()
        .ok()
        .map(u64::from_le_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn note(name: &[u8], kind: u32, desc: &[u8]) -> Vec<u8> {
        let mut n = Vec::new();
        for word in [name.len() as u32, desc.len() as u32, kind] {
            n.extend(word.to_le_bytes());
        }
        for part in [name, desc] {
            n.extend(part);
            n.resize(n.len().next_multiple_of(4), 0);
        }
        n
    }

    #[test]
    fn a_build_id_is_found_among_notes() {
        let id = [7; 20];
        let mut all = note(b"GNU\0", 1, &[0; 16]);
        all.extend(note(b"Other\0", NT_GNU_BUILD_ID, &[1; 5]));
        all.extend(note(b"GNU\0", NT_GNU_BUILD_ID, &id));
        assert_eq!(build_id_among(&all), Some(id.to_vec()));
        for cut in 0..all.len() {
            assert_eq!(build_id_among(&all[..cut]), None);
        }
        let long = note(b"GNU\0", NT_GNU_BUILD_ID, &[1; 21]);
        assert_eq!(build_id_among(&long), None);
        let huge = [[0xff; 4], [0xff; 4], [3, 0, 0, 0]].concat();
        assert_eq!(build_id_among(&huge), None);
    }
}
