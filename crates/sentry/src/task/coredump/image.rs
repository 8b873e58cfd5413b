//! What is in a core file (`fs/binfmt_elf.c`): an ELF header, program headers, notes, memory.

use super::{Out, ThreadState};
use crate::task::Context;
use crate::task::cpu::Cpu;
use crate::task::trace::registers::{GENERAL, NT_PRFPREG, NT_PRSTATUS, NT_X86_XSTATE};
use abi::{PAGE_SIZE as PAGE, Result, SigInfo, Va};
use mm::{Mm, Prot, VmaFlags, VmaInfo};
use zerocopy::IntoBytes;

const EHDR: usize = 64;
const PHDR: usize = 56;
/// More program headers than the ELF header can count would need a section header (`PN_XNUM`):
/// mappings beyond that are left out.
const VMAS_MOST: usize = 0xfffd;
/// Read and written at once.
const PIECE: u64 = 64 << 10;

const NT_PRPSINFO: u32 = 3;
const NT_AUXV: u32 = 6;
const NT_SIGINFO: u32 = 0x5349_4749;
const NT_FILE: u32 = 0x4649_4c45;

/// Bits of `/proc/PID/coredump_filter` (`MMF_DUMP_*`).
const ANON_PRIVATE: u32 = 1;
const ANON_SHARED: u32 = 2;
const MAPPED_PRIVATE: u32 = 4;
const MAPPED_SHARED: u32 = 8;
const ELF_HEADERS: u32 = 16;

/// Bits of `/proc/PID/pagemap`.
const PRESENT_OR_SWAPPED: u64 = 3 << 62;

/// Numbers as they lie in memory.
#[derive(Default)]
struct Bytes(Vec<u8>);

impl Bytes {
    fn u16(&mut self, n: u16) -> &mut Bytes {
        self.raw(&n.to_le_bytes())
    }
    fn u32(&mut self, n: u32) -> &mut Bytes {
        self.raw(&n.to_le_bytes())
    }
    fn u64(&mut self, n: u64) -> &mut Bytes {
        self.raw(&n.to_le_bytes())
    }
    fn raw(&mut self, b: &[u8]) -> &mut Bytes {
        self.0.extend_from_slice(b);
        self
    }
    /// Zeros, up to a multiple.
    fn align(&mut self, to: usize) -> &mut Bytes {
        self.0.resize(self.0.len().next_multiple_of(to), 0);
        self
    }
    /// `struct timeval`.
    fn time(&mut self, nanos: u64) -> &mut Bytes {
        self.u64(nanos / 1_000_000_000)
            .u64(nanos % 1_000_000_000 / 1000)
    }
    fn note(&mut self, name: &str, kind: u32, desc: &[u8]) {
        self.u32(name.len() as u32 + 1).u32(desc.len() as u32);
        self.u32(kind).raw(name.as_bytes()).raw(&[0]).align(4);
        self.raw(desc).align(4);
    }
}

/// A piece of memory as the file has it.
struct Segment {
    vma: VmaInfo,
    /// How much of it is in the file.
    size: u64,
}

/// Writes all of it.
pub(super) fn write(
    cx: &Context,
    info: &SigInfo,
    threads: &[ThreadState],
    out: &mut Out<'_>,
) -> Result<()> {
    let mm = cx.task.mm();
    let filter = mm.privacy().dump_filter();
    let mut segments = Vec::new();
    for vma in mm.vmas().into_iter().take(VMAS_MOST) {
        out.check()?;
        let size = dumped(&mm, &vma, filter);
        segments.push(Segment { vma, size });
    }
    let notes = notes(cx, info, threads, &mm, &segments);
    let begin = EHDR + PHDR * (segments.len() + 1);
    let data = ((begin + notes.len()) as u64).next_multiple_of(PAGE);
    let mut head = Bytes::default();
    header(&mut head, segments.len() as u16 + 1);
    let of_notes = (begin as u64, notes.len() as u64);
    program_headers(&mut head, &segments, of_notes, data);
    out.put(&head.0)?;
    out.put(&notes)?;
    out.skip(data - out.end)?;
    for s in &segments {
        memory(&mm, s, out)?;
    }
    // A hole at the end would not be there.
    let has_hole = out.end > out.file.ops.stat()?.size;
    if has_hole {
        out.end -= 1;
        out.put(&[0])?;
    }
    Ok(())
}

/// `fill_elf_header`.
fn header(b: &mut Bytes, count: u16) {
    b.raw(b"\x7fELF\x02\x01\x01").align(16);
    // ET_CORE of x86-64, version 1; no entry; program headers behind this; no section headers.
    b.u16(4).u16(62).u32(1).u64(0).u64(EHDR as u64).u64(0);
    b.u32(0).u16(EHDR as u16).u16(PHDR as u16).u16(count);
    b.u16(0).u16(0).u16(0);
}

/// Where the notes are and how long; memory begins at `at`.
fn program_headers(b: &mut Bytes, segments: &[Segment], notes: (u64, u64), mut at: u64) {
    const PT_LOAD: u32 = 1;
    const PT_NOTE: u32 = 4;
    b.u32(PT_NOTE).u32(0).u64(notes.0).u64(0).u64(0);
    b.u64(notes.1).u64(0).u64(4);
    for s in segments {
        let of = |p: Prot, bit: u32| if s.vma.prot.contains(p) { bit } else { 0 };
        let flags = of(Prot::READ, 4) | of(Prot::WRITE, 2) | of(Prot::EXEC, 1);
        b.u32(PT_LOAD).u32(flags).u64(at).u64(s.vma.start).u64(0);
        b.u64(s.size).u64(s.vma.end - s.vma.start).u64(PAGE);
        at += s.size;
    }
}

/// How much of a mapping is in the file (`vma_dump_size`).
fn dumped(mm: &Mm, vma: &VmaInfo, filter: u32) -> u64 {
    let all = vma.end - vma.start;
    let has = |bit: u32| filter & bit != 0;
    if !vma.is_file() && matches!(&vma.name()[..], b"[vdso]" | b"[vvar]") {
        return all;
    }
    if vma.flags.intersects(VmaFlags::NOT_DUMPED) {
        return 0;
    }
    if vma.flags.contains(VmaFlags::SHARED) {
        // One without a name is nobody else's.
        let is_unnamed = vma.flags.contains(VmaFlags::ANON_SHARED)
            || !vma.is_file()
            || vma.name().ends_with(b" (deleted)");
        let bit = if is_unnamed {
            ANON_SHARED
        } else {
            MAPPED_SHARED
        };
        return if has(bit) { all } else { 0 };
    }
    if has(ANON_PRIVATE) {
        let u = mm.vma_usage(vma.start, vma.end);
        if u.anonymous > 0 || u.swapped > 0 {
            return all;
        }
    }
    if !vma.is_file() {
        return 0;
    }
    if has(MAPPED_PRIVATE) {
        return all;
    }
    let begins = vma.offset == 0 && vma.prot.contains(Prot::READ);
    let mut magic = [0; 4];
    let is_elf = begins
        && has(ELF_HEADERS)
        && mm.read_forced(Va(vma.start), &mut magic) == 4
        && magic == *b"\x7fELF";
    if is_elf { PAGE } else { 0 }
}

/// What is there of a segment; what is not is a hole (`dump_user_range`). Of a file that is mapped
/// privately all is there; of shared memory, what the process has touched.
fn memory(mm: &Mm, s: &Segment, out: &mut Out<'_>) -> Result<()> {
    let (mut at, end) = (s.vma.start, s.vma.start + s.size);
    let reads_file = s.vma.is_file() && !s.vma.flags.contains(VmaFlags::SHARED);
    let mut piece = vec![0; PIECE as usize];
    while at < end {
        if !reads_file {
            let next = mm.next_there(at, end);
            out.skip(next - at)?;
            at = next;
        }
        let pages = ((end - at).min(PIECE) / PAGE) as usize;
        let mut there = vec![PRESENT_OR_SWAPPED; pages];
        if !reads_file {
            mm.page_map(at, &mut there);
        }
        for there in there.chunk_by(|a, b| is_there(*a) == is_there(*b)) {
            let len = there.len() as u64 * PAGE;
            if !is_there(there[0]) {
                out.skip(len)?;
            } else if copy(mm, at, &mut piece[..len as usize], out)? == 0 && reads_file {
                // (The file ends before.)
                return out.skip(end - at - len);
            }
            at += len;
        }
    }
    Ok(())
}

fn is_there(bits: u64) -> bool {
    bits & PRESENT_OR_SWAPPED != 0
}

/// What can be read, page by page where that is not all; how many bytes that were. (Who shares the
/// memory may have made it confidential meanwhile.)
fn copy(mm: &Mm, at: u64, piece: &mut [u8], out: &mut Out<'_>) -> Result<usize> {
    if mm.read_dumped(Va(at), piece) == piece.len() {
        out.put(piece)?;
        return Ok(piece.len());
    }
    let mut copied = 0;
    for (n, page) in piece.chunks_mut(PAGE as usize).enumerate() {
        if mm.read_dumped(Va(at + n as u64 * PAGE), page) == page.len() {
            out.put(page)?;
            copied += page.len();
        } else {
            out.skip(PAGE)?;
        }
    }
    Ok(copied)
}

/// `fill_note_info`, `write_note_info`.
fn notes(
    cx: &Context,
    info: &SigInfo,
    threads: &[ThreadState],
    mm: &Mm,
    segments: &[Segment],
) -> Vec<u8> {
    let mut b = Bytes::default();
    let who = Who::of(cx);
    for (n, t) in threads.iter().enumerate() {
        b.note("CORE", NT_PRSTATUS, &status(&who, t, info.signo));
        if n == 0 {
            b.note("CORE", NT_PRPSINFO, &process(cx, &who, mm));
            b.note("CORE", NT_SIGINFO, info.as_bytes());
            b.note("CORE", NT_AUXV, &mm.layout().auxv_bytes());
            if let Some(files) = files(segments) {
                b.note("CORE", NT_FILE, &files);
            }
        }
        if let Some(r) = &t.registers {
            b.note("CORE", NT_PRFPREG, &r.fxsave());
            b.note("LINUX", NT_X86_XSTATE, &r.xstate());
        }
    }
    b.0
}

/// Numbers of a process, as its namespace has them.
struct Who {
    pid: i32,
    ppid: i32,
    pgid: i32,
    sid: i32,
    own: Cpu,
    children: Cpu,
}

impl Who {
    fn of(cx: &Context) -> Who {
        let (g, ns) = (&cx.group, &cx.group.pid.ns);
        let own = cx.kernel.cpu_time(g);
        let l = cx.kernel.tasks.lock();
        let number = |id| l.number(id, ns);
        Who {
            pid: g.pid.seen_in(ns),
            ppid: number(l.parent(g.tgid)),
            pgid: number(l.pgid(g.tgid)),
            sid: number(l.sid(g.tgid)),
            own,
            children: g.cpu_children.get(),
        }
    }
}

/// `struct elf_prstatus`.
fn status(who: &Who, t: &ThreadState, signal: i32) -> Vec<u8> {
    let mut b = Bytes::default();
    b.u32(signal as u32).u32(0).u32(0);
    b.u16(signal as u16).align(8).u64(t.pending).u64(t.mask);
    for id in [t.pid, who.ppid, who.pgid, who.sid] {
        b.u32(id as u32);
    }
    // The main thread stands for all.
    let cpu = if t.pid == who.pid { who.own } else { t.cpu };
    for n in [cpu.user, cpu.system, who.children.user, who.children.system] {
        b.time(n);
    }
    match &t.registers {
        Some(r) => b.raw(&r.general()),
        None => b.raw(&[0; GENERAL]),
    };
    b.u32(t.registers.is_some().into()).align(8);
    b.0
}

/// `struct elf_prpsinfo`.
fn process(cx: &Context, who: &Who, mm: &Mm) -> Vec<u8> {
    let mut b = Bytes::default();
    // It is about the main thread, which waits where another one writes (`fill_psinfo`).
    let main = cx.kernel.tasks.lock().task(cx.group.tgid);
    let of = main.as_ref().unwrap_or(&cx.task);
    let (state, letter) = match (&main, cx.task.is_leader()) {
        (_, true) => (0, b'R'),
        (Some(_), false) => (2, b'D'),
        (None, false) => (8, b'.'),
    };
    let cred = of.cred();
    let nice = of.nice.load(std::sync::atomic::Ordering::Relaxed);
    b.raw(&[state, letter, 0, nice as u8]).align(8).u64(0);
    b.u32(cred.user_ns.uid_shown(cred.uid));
    b.u32(cred.user_ns.gid_shown(cred.gid));
    for id in [who.pid, who.ppid, who.pgid, who.sid] {
        b.u32(id as u32);
    }
    let mut name = of.comm();
    name.resize(16, 0);
    let mut words = mm.arguments(79);
    words.resize(80, 0);
    b.raw(&name).raw(&words);
    b.0
}

/// `fill_files_note`: what is mapped where; nothing where that would be too much
/// (`core_file_note_size_limit`).
fn files(segments: &[Segment]) -> Option<Vec<u8>> {
    const MOST: usize = 4 << 20;
    let (mut b, mut names) = (Bytes::default(), Vec::new());
    let mapped = segments.iter().map(|s| &s.vma).filter(|v| v.is_file());
    b.u64(mapped.clone().count() as u64).u64(PAGE);
    for v in mapped {
        b.u64(v.start).u64(v.end).u64(v.offset / PAGE);
        names.extend(v.name());
        names.push(0);
        if b.0.len() + names.len() > MOST {
            return None;
        }
    }
    b.raw(&names);
    Some(b.0)
}
