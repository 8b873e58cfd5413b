//! bpf(2) (Linux's `kernel/bpf/syscall.c`): programs that say which devices a control group may
//! use. They are [`crate::cgroup::devices`]'; what may run, [`bpf::extended`] says.
//!
//! Programs about packets can be loaded, as runtimes do to find out what there is (`haveProgAttach`
//! of cilium/ebpf), and never attached.
//!
//! The attributes are one block of memory whose words mean what the command says. It may be longer
//! or shorter than the one here: what is missing is 0, and what is more must be.

use super::SysResult;
use super::args::*;
use crate::cgroup::Cgroup;
use crate::cgroup::devices::{ATTACHED, AttachFlags};
use crate::cgroup::files::CgroupDir;
use crate::programs::{Loaded, Program};
use crate::task::Context;
use abi::errno::*;
use abi::linux::{CLOCK_BOOTTIME, O_CLOEXEC, O_RDWR};
use abi::{PAGE_SIZE, Result, Va};
use bpf::extended::{self, Insn, Purpose};
use hostcall::time::clock_nanos;
use sha2::{Digest, Sha256};
use std::any::Any;
use std::fmt::Write;
use std::sync::Arc;
use vfs::cred::Caps;
use vfs::file::{FileOps, anon_stat};
use vfs::userns::OVERFLOW;
use vfs::{Credentials, Stat};
use zerocopy::{Immutable, IntoBytes};

named! {
    /// `BPF_*`, of those that there are.
    struct BpfCommand(i32) {
        BPF_PROG_LOAD = 5,
        BPF_PROG_ATTACH = 8,
        BPF_PROG_DETACH = 9,
        BPF_PROG_GET_NEXT_ID = 11,
        BPF_PROG_GET_FD_BY_ID = 13,
        BPF_OBJ_GET_INFO_BY_FD = 15,
        BPF_PROG_QUERY = 16,
    }
}

/// Types of programs, and where they are attached (`BPF_PROG_TYPE_*`, `BPF_CGROUP_*`).
const CGROUP_SKB: u32 = 8;
const CGROUP_DEVICE: u32 = 15;
const INET_INGRESS: u32 = 0;
const INET_EGRESS: u32 = 1;
const DEVICE: u32 = 6;
/// `BPF_F_QUERY_EFFECTIVE`.
const QUERY_EFFECTIVE: u32 = 1;
/// `BPF_F_STRICT_ALIGNMENT`, `ANY_ALIGNMENT`, `TEST_RND_HI32`, `TEST_STATE_FREQ`,
/// `TEST_REG_INVARIANTS`: they change how a program is looked at, not what it does.
const LOAD_FLAGS: u32 = 1 | 2 | 4 | 8 | 128;

/// `union bpf_attr`.
struct Attr {
    at: Va,
    /// As long as the caller's.
    size: usize,
    bytes: [u8; Attr::SIZE],
}

impl Attr {
    /// As of Linux 6.12.
    const SIZE: usize = 152;

    fn read(cx: &Context, at: Va, size: u32) -> Result<Attr> {
        let size = size as usize;
        if size as u64 > PAGE_SIZE {
            return Err(E2BIG);
        }
        let mut bytes = [0; Attr::SIZE];
        super::read_sized(cx, at, size, &mut bytes)?;
        Ok(Attr { at, size, bytes })
    }
    fn part<const N: usize>(&self, at: usize) -> [u8; N] {
        let part = self.bytes.get(at..at + N);
        part.and_then(|p| p.try_into().ok()).unwrap_or([0; N])
    }
    fn word(&self, at: usize) -> u32 {
        u32::from_ne_bytes(self.part(at))
    }
    fn pointer(&self, at: usize) -> Va {
        Va(u64::from_ne_bytes(self.part(at)))
    }
    fn fd(&self, at: usize) -> Fd {
        Fd(self.word(at) as i32)
    }
    /// A command whose last word ends here: `EINVAL` if there are more (`CHECK_ATTR`).
    fn ends(&self, at: usize) -> Result<()> {
        let mut rest = self.bytes.iter().skip(at);
        if rest.all(|b| *b == 0) {
            Ok(())
        } else {
            Err(EINVAL)
        }
    }
    fn write(&self, cx: &Context, at: usize, word: u32) -> Result<()> {
        cx.mm()
            .copy_out(self.at.offset(at as u64), &word.to_ne_bytes())
    }
}

/// `bpf_capable` and the like: SYS_ADMIN stands for all of them.
fn capable(cred: &Credentials, cap: Caps) -> Result<()> {
    if cred.has(cap) || cred.has(Caps::SYS_ADMIN) {
        Ok(())
    } else {
        Err(EPERM)
    }
}

/// A program as an open file.
struct ProgramFile(Arc<Program>);

impl FileOps for ProgramFile {
    fn stat(&self) -> Result<Stat> {
        Ok(anon_stat())
    }
    fn as_any(&self) -> &dyn Any {
        self
    }
    fn describe(&self) -> String {
        "anon_inode:bpf-prog".into()
    }
    fn fdinfo(&self) -> String {
        let tag = tag(&self.0);
        let kind = type_of(self.0.loaded.purpose);
        let mut text = format!("prog_type:\t{kind}\nprog_jited:\t0\nprog_tag:\t");
        for b in tag {
            let _ = write!(text, "{b:02x}");
        }
        let _ = write!(
            text,
            "\nmemlock:\t{}\nprog_id:\t{}\nrun_time_ns:\t0\nrun_cnt:\t0\nrecursion_misses:\t0\n\
             verified_insns:\t{}\n",
            PAGE_SIZE,
            self.0.id,
            self.0.loaded.program.insns().len()
        );
        text
    }
}

fn type_of(p: Purpose) -> u32 {
    match p {
        Purpose::Device => CGROUP_DEVICE,
        Purpose::Packet => CGROUP_SKB,
    }
}

/// What is attached where an attachment's type says; `EINVAL` for others.
fn attached_there(to: u32) -> Result<Purpose> {
    match to {
        DEVICE => Ok(Purpose::Device),
        INET_INGRESS | INET_EGRESS => Ok(Purpose::Packet),
        _ => Err(EINVAL),
    }
}

/// What a program is known by, whatever its number (`bpf_prog_calc_tag`, as since Linux 6.18).
fn tag(p: &Program) -> [u8; 8] {
    let sum = Sha256::digest(p.loaded.program.insns().as_bytes());
    sum[..8].try_into().unwrap_or_default()
}

fn install(cx: &Context, p: Arc<Program>) -> SysResult {
    super::descriptors::install(cx, Arc::new(ProgramFile(p)), O_RDWR, O_CLOEXEC)
}

/// `EBADF`; `EINVAL` for another file, or a program for something else.
fn program(cx: &Context, fd: Fd, purpose: Purpose) -> Result<Arc<Program>> {
    let f = fd.file(cx)?;
    let p = &f.ops::<ProgramFile>().ok_or(EINVAL)?.0;
    (p.loaded.purpose == purpose)
        .then(|| p.clone())
        .ok_or(EINVAL)
}

/// The group that a directory's descriptor is; `EBADF` for others.
fn group(cx: &Context, fd: Fd) -> Result<Arc<Cgroup>> {
    CgroupDir::of(&*fd.any_file(cx)?).ok_or(EBADF)
}

/// `bpf(cmd, attr, size)`.
fn bpf(cx: &mut Context, cmd: BpfCommand, attr: Va, size: u32) -> SysResult {
    let attr = Attr::read(cx, attr, size)?;
    match cmd {
        BpfCommand::BPF_PROG_LOAD => load(cx, &attr),
        BpfCommand::BPF_PROG_ATTACH => attach(cx, &attr),
        BpfCommand::BPF_PROG_DETACH => detach(cx, &attr),
        BpfCommand::BPF_PROG_GET_NEXT_ID => next_id(cx, &attr),
        BpfCommand::BPF_PROG_GET_FD_BY_ID => by_id(cx, &attr),
        BpfCommand::BPF_OBJ_GET_INFO_BY_FD => info(cx, &attr),
        BpfCommand::BPF_PROG_QUERY => query(cx, &attr),
        _ => Err(EINVAL),
    }
}

/// Where the words of `BPF_PROG_LOAD` are.
mod at {
    pub const TYPE: usize = 0;
    pub const COUNT: usize = 4;
    pub const INSNS: usize = 8;
    pub const LICENSE: usize = 16;
    pub const LOG_LEVEL: usize = 24;
    pub const LOG_SIZE: usize = 28;
    pub const LOG: usize = 32;
    pub const FLAGS: usize = 44;
    pub const NAME: usize = 48;
    pub const IFINDEX: usize = 64;
    pub const ATTACHES: usize = 68;
    /// Counts of types' words, and what is attached to: of what there is none.
    pub const ABSENT: [usize; 6] = [IFINDEX, 88, 104, 108, 112, 116];
    pub const TRUE_LOG_SIZE: usize = 140;
    /// Behind the last one.
    pub const END: usize = 148;
}

/// `BPF_PROG_LOAD`.
fn load(cx: &mut Context, a: &Attr) -> SysResult {
    a.ends(at::END)?;
    if a.word(at::FLAGS) & !LOAD_FLAGS != 0 {
        return Err(EINVAL);
    }
    let cred = cx.cred();
    capable(&cred, Caps::BPF)?;
    let count = a.word(at::COUNT) as usize;
    if count == 0 || count > extended::MAX {
        return Err(E2BIG);
    }
    let purpose = match (a.word(at::TYPE), a.word(at::ATTACHES)) {
        (CGROUP_DEVICE, _) => Some(Purpose::Device),
        (CGROUP_SKB, INET_INGRESS | INET_EGRESS) => Some(Purpose::Packet),
        _ => None,
    };
    if purpose == Some(Purpose::Device) {
        capable(&cred, Caps::NET_ADMIN)?;
    }
    if at::ABSENT.iter().any(|w| a.word(*w) != 0) {
        return Err(EINVAL);
    }
    let memory = cred.kmem(count * size_of::<Insn>() + size_of::<Program>(), ENOMEM)?;
    let mut insns = vec![[0u8; size_of::<Insn>()]; count];
    cx.mm()
        .copy_in(a.pointer(at::INSNS), insns.as_mut_bytes())?;
    let gpl_compatible = is_gpl_compatible(cx, a.pointer(at::LICENSE))?;
    let purpose = purpose.ok_or(EINVAL)?;
    let name = name(a.part(at::NAME))?;
    let log = Log::new(a)?;
    let insns = insns.into_iter().map(|i| zerocopy::transmute!(i)).collect();
    let checked = extended::Program::new(purpose, insns);
    log.tell(cx, a, count, checked.as_ref().err())?;
    let loaded = Loaded {
        purpose,
        program: checked?,
        name,
        uid: cred.uid,
        time: clock_nanos(CLOCK_BOOTTIME as i32) - cx.kernel.boot,
        gpl_compatible,
        memory,
    };
    install(cx, cx.task.group.container.programs.add(loaded)?)
}

/// `license_is_gpl_compatible`.
fn is_gpl_compatible(cx: &Context, license: Va) -> Result<bool> {
    const LONGEST: usize = 127;
    let names = [
        "GPL",
        "GPL v2",
        "GPL and additional rights",
        "Dual BSD/GPL",
        "Dual MIT/GPL",
        "Dual MPL/GPL",
    ];
    match cx.mm().read_cstr(license, LONGEST) {
        Ok(l) => Ok(names.iter().any(|n| n.as_bytes() == l)),
        Err(ENAMETOOLONG) => Ok(false),
        Err(e) => Err(e),
    }
}

/// `bpf_obj_name_cpy`.
fn name(n: [u8; 16]) -> Result<[u8; 16]> {
    let len = n.iter().position(|b| *b == 0).ok_or(EINVAL)?;
    let plain = |b: &u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.');
    if !n[..len].iter().all(plain) {
        return Err(EINVAL);
    }
    let mut kept = [0; 16];
    kept[..len].copy_from_slice(&n[..len]);
    Ok(kept)
}

/// Where the caller wants to read what is thought of its program.
struct Log {
    at: Va,
    room: usize,
}

impl Log {
    /// `bpf_verifier_log_attr_valid`.
    fn new(a: &Attr) -> Result<Log> {
        const LEVELS: u32 = 15;
        let (level, room) = (a.word(at::LOG_LEVEL), a.word(at::LOG_SIZE));
        let at = a.pointer(at::LOG);
        let is_given = at.0 != 0;
        if is_given != (room != 0)
            || is_given && level == 0
            || level & !LEVELS != 0
            || room > u32::MAX >> 2
        {
            return Err(EINVAL);
        }
        let room = room as usize;
        Ok(Log { at, room })
    }
    /// `ENOSPC` where it is not all told.
    fn tell(&self, cx: &Context, a: &Attr, count: usize, e: Option<&abi::Errno>) -> Result<()> {
        if a.word(at::LOG_LEVEL) == 0 {
            return Ok(());
        }
        let refused = match e {
            None => "",
            Some(&EACCES) => "a register is used that is not set, or memory that is not there\n",
            Some(_) => "malformed, looping, calling, or of another answer than 0 and 1\n",
        };
        let text = format!(
            "{refused}processed {count} insns (limit {})\n\0",
            extended::MAX
        );
        if a.size >= at::TRUE_LOG_SIZE + 4 {
            a.write(cx, at::TRUE_LOG_SIZE, text.len() as u32)?;
        }
        if self.room == 0 {
            return Ok(());
        }
        let shown = text.len().min(self.room);
        cx.mm().copy_out(self.at, &text.as_bytes()[..shown])?;
        if shown < text.len() {
            Err(ENOSPC)
        } else {
            Ok(())
        }
    }
}

/// `BPF_PROG_ATTACH`.
fn attach(cx: &mut Context, a: &Attr) -> SysResult {
    a.ends(32)?;
    let flags = AttachFlags::from_bits(a.word(12)).ok_or(EINVAL)?;
    let (relative, revision) = (a.word(20), a.pointer(24));
    let purpose = attached_there(a.word(8))?;
    if relative != 0 || revision.0 != 0 {
        return Err(EINVAL);
    }
    let p = program(cx, a.fd(4), purpose);
    // Packets are not shown to programs: without one, as systemd asks, it is as where that is
    // not known.
    if purpose == Purpose::Packet {
        p.map_err(|_| EINVAL)?;
        group(cx, a.fd(0))?;
        return Err(EINVAL);
    }
    let (p, c) = (p?, group(cx, a.fd(0))?);
    let replaced = if flags.contains(AttachFlags::MULTI | AttachFlags::REPLACE) {
        Some(program(cx, a.fd(16), purpose)?)
    } else {
        None
    };
    let memory = cx.cred().kmem(ATTACHED, ENOMEM)?;
    let groups = &cx.kernel.cgroups;
    groups.attach(&c, &p, flags, replaced.as_ref(), memory)?;
    Ok(0)
}

/// `BPF_PROG_DETACH`.
fn detach(cx: &mut Context, a: &Attr) -> SysResult {
    a.ends(32)?;
    let purpose = attached_there(a.word(8))?;
    if a.word(12) != 0 || a.word(20) != 0 || a.pointer(24).0 != 0 {
        return Err(EINVAL);
    }
    let c = group(cx, a.fd(0))?;
    let p = program(cx, a.fd(4), purpose).ok();
    if purpose == Purpose::Packet {
        return Err(ENOENT);
    }
    cx.kernel.cgroups.detach(&c, p.as_ref())?;
    Ok(0)
}

/// `BPF_PROG_QUERY`.
fn query(cx: &mut Context, a: &Attr) -> SysResult {
    const FLAGS: usize = 12;
    const COUNT: usize = 24;
    capable(&cx.cred(), Caps::NET_ADMIN)?;
    a.ends(64)?;
    let asked = a.word(8);
    if asked & !QUERY_EFFECTIVE != 0 {
        return Err(EINVAL);
    }
    let purpose = attached_there(a.word(4))?;
    let effective = asked == QUERY_EFFECTIVE;
    let (at, room, each) = (a.pointer(16), a.word(COUNT) as usize, a.pointer(32));
    if effective && each.0 != 0 {
        return Err(EINVAL);
    }
    let c = group(cx, a.fd(0))?;
    let groups = &cx.kernel.cgroups;
    let (flags, ids) = if purpose == Purpose::Packet {
        (AttachFlags::empty(), Vec::new())
    } else if effective {
        (AttachFlags::empty(), groups.effective(&c)?)
    } else {
        groups.attached(&c)?
    };
    a.write(cx, FLAGS, flags.bits())?;
    a.write(cx, COUNT, ids.len() as u32)?;
    if room == 0 || at.0 == 0 || ids.is_empty() {
        return Ok(0);
    }
    let shown = &ids[..room.min(ids.len())];
    let mm = cx.mm();
    mm.copy_out(at, shown.as_bytes())?;
    if each.0 != 0 {
        mm.copy_out(each, vec![flags.bits(); shown.len()].as_bytes())?;
    }
    if shown.len() < ids.len() {
        Err(ENOSPC)
    } else {
        Ok(0)
    }
}

/// `BPF_PROG_GET_NEXT_ID`.
fn next_id(cx: &mut Context, a: &Attr) -> SysResult {
    const NEXT: usize = 4;
    a.ends(8)?;
    let start = a.word(0);
    if start >= i32::MAX as u32 {
        return Err(EINVAL);
    }
    capable(&cx.cred(), Caps::SYS_ADMIN)?;
    let id = cx.task.group.container.programs.next(start)?;
    a.write(cx, NEXT, id)?;
    Ok(0)
}

/// `BPF_PROG_GET_FD_BY_ID`.
fn by_id(cx: &mut Context, a: &Attr) -> SysResult {
    a.ends(4)?;
    capable(&cx.cred(), Caps::SYS_ADMIN)?;
    let p = cx.task.group.container.programs.get(a.word(0))?;
    install(cx, p)
}

/// `struct bpf_prog_info`: what is not named here is of compilers, maps and types, and 0.
#[derive(IntoBytes, Immutable)]
#[repr(C)]
struct ProgInfo {
    kind: u32,
    id: u32,
    tag: [u8; 8],
    jited_prog_len: u32,
    xlated_prog_len: u32,
    jited_prog_insns: u64,
    xlated_prog_insns: u64,
    load_time: u64,
    created_by_uid: u32,
    nr_map_ids: u32,
    map_ids: u64,
    name: [u8; 16],
    ifindex: u32,
    gpl_compatible: u32,
    others: [u8; 128],
    verified_insns: u32,
    attach_btf: [u32; 3],
}

/// `BPF_OBJ_GET_INFO_BY_FD`.
fn info(cx: &mut Context, a: &Attr) -> SysResult {
    const LEN: usize = 4;
    a.ends(16)?;
    let f = a.fd(0).file(cx).map_err(|_| EBADFD)?;
    let p = &f.ops::<ProgramFile>().ok_or(EINVAL)?.0;
    let (at, len) = (a.pointer(8), a.word(LEN) as usize);
    if len as u64 > PAGE_SIZE {
        return Err(E2BIG);
    }
    // What the caller has there: where it wants the instructions, and how many bytes of them.
    let mut given = [0u8; size_of::<ProgInfo>()];
    super::read_sized(cx, at, len, &mut given)?;
    let len = len.min(given.len());
    let word = |at: usize| u32::from_ne_bytes([0, 1, 2, 3].map(|i| given[at + i]));
    let insns = Va(u64::from(word(32)) | u64::from(word(36)) << 32);
    let bytes = p.loaded.program.insns().as_bytes();
    let cred = cx.cred();
    let shows = capable(&cred, Caps::BPF).is_ok();
    if shows && word(20) != 0 {
        let n = bytes.len().min(word(20) as usize);
        cx.mm().copy_out(insns, &bytes[..n])?;
    }
    let told = ProgInfo {
        kind: type_of(p.loaded.purpose),
        id: p.id,
        tag: tag(p),
        jited_prog_len: 0,
        xlated_prog_len: if shows { bytes.len() as u32 } else { 0 },
        jited_prog_insns: 0,
        xlated_prog_insns: insns.0,
        load_time: p.loaded.time as u64,
        created_by_uid: cred.user_ns.uid_number(p.loaded.uid).unwrap_or(OVERFLOW),
        nr_map_ids: 0,
        map_ids: 0,
        name: p.loaded.name,
        ifindex: 0,
        gpl_compatible: u32::from(p.loaded.gpl_compatible),
        others: [0; 128],
        verified_insns: p.loaded.program.insns().len() as u32,
        attach_btf: [0; 3],
    };
    cx.mm().copy_out(at, &told.as_bytes()[..len])?;
    a.write(cx, LEN, len as u32)?;
    Ok(0)
}

calls! {
    bpf: "programs of control groups that say which devices may be used (those about packets are never attached): no calls, maps and loops, at most 4096 instructions",
}
