use super::*;
use abi::errno::{E2BIG, EFAULT, ELIBBAD, ENOEXEC, ENOSYS};
use abi::raw::auxvec::*;
use clas::{Access, Backing, Clas, Mappable, MappingObserver};
use hostcall::HostFd;
use platform::{AddressSpace, AppThread, MapOp};
use proptest::prelude::*;
use std::sync::Weak;

struct NoSpace;
impl AddressSpace for NoSpace {
    fn apply(&self, _ops: &[MapOp]) -> Result<()> {
        Ok(())
    }
    fn new_thread(&self) -> Result<Box<dyn AppThread>> {
        Err(ENOSYS)
    }
    fn kill(&self) {}
    fn retire(&self, _bytes: u64, then: Box<dyn FnOnce() + Send>) {
        then();
    }
}

/// A host file as a test's image.
struct HostImage {
    fd: HostFd,
    size: u64,
}

impl HostImage {
    fn new(bytes: &[u8]) -> Arc<HostImage> {
        let fd = hostcall::mem::memfd(c"image").unwrap();
        let mut done = 0;
        while done < bytes.len() {
            done += hostcall::file::write(fd.raw(), &bytes[done..]).unwrap();
        }
        Arc::new(HostImage {
            fd,
            size: bytes.len() as u64,
        })
    }
}

struct Whole(Arc<HostImage>);
impl Image for Whole {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<usize> {
        hostcall::file::pread(self.0.fd.raw(), buf, offset)
    }
    fn map_file(&self) -> Result<MapFile> {
        Ok(MapFile {
            mappable: self.0.clone(),
            name: None,
            keep: None,
            readable: true,
            writable: false,
            noexec: false,
        })
    }
}

impl Mappable for HostImage {
    fn backing(&self, offset: u64, len: u64, _access: Access) -> Result<(Backing, u64)> {
        let end = self.size.next_multiple_of(4096);
        if offset >= end {
            return Err(EFAULT);
        }
        Ok((
            Backing::Host {
                fd: self.fd.raw(),
                offset,
            },
            len.min(end - offset),
        ))
    }
    fn add_mapping(&self, _o: Weak<dyn MappingObserver>, _va: Va, _offset: u64, _len: u64) {}
    fn remove_mapping(&self, _o: &Weak<dyn MappingObserver>, _va: Va, _offset: u64, _len: u64) {}
}

fn image(bytes: &[u8]) -> Arc<dyn Image> {
    Arc::new(Whole(HostImage::new(bytes)))
}

struct Ph(u32, u32, u64, u64, u64, u64, u64);

/// An ELF file with these headers: type, flags, offset, vaddr, filesz, memsz, align.
fn build(kind: u16, entry: u64, headers: &[Ph], len: usize) -> Vec<u8> {
    let mut b = vec![0u8; len];
    b[..8].copy_from_slice(b"\x7fELF\x02\x01\x01\0");
    let mut put = |at: usize, v: &[u8]| b[at..at + v.len()].copy_from_slice(v);
    put(16, &kind.to_le_bytes());
    put(18, &62u16.to_le_bytes());
    put(24, &entry.to_le_bytes());
    put(32, &64u64.to_le_bytes());
    put(54, &56u16.to_le_bytes());
    put(56, &(headers.len() as u16).to_le_bytes());
    for (i, h) in headers.iter().enumerate() {
        let at = 64 + i * 56;
        put(at, &h.0.to_le_bytes());
        put(at + 4, &h.1.to_le_bytes());
        for (j, v) in [h.2, h.3, h.3, h.4, h.5, h.6].iter().enumerate() {
            put(at + 8 + j * 8, &v.to_le_bytes());
        }
    }
    b
}

fn new_mm() -> Arc<Mm> {
    Mm::new(Clas::new().unwrap(), Arc::new(NoSpace))
}

fn request<'a>(
    program: &'a Elf,
    interpreter: Option<&'a Elf>,
    argv: &'a [Vec<u8>],
    envp: &'a [Vec<u8>],
) -> LoadRequest<'a> {
    LoadRequest {
        program,
        interpreter,
        filename: b"/bin/prog",
        argv,
        envp,
        uid: 1,
        euid: 2,
        gid: 3,
        egid: 4,
        secure: false,
        hardware: Hardware {
            rseq: Some((28, 32)),
            ..Hardware::host()
        },
        randomize: Randomize::Yes,
        limits: Limits::default(),
        map_vdso: None,
    }
}

fn word(mm: &Mm, at: u64) -> u64 {
    mm.read_obj::<u64>(Va(at)).unwrap()
}

#[test]
fn static_program_and_its_stack() {
    let mut file = build(
        2,
        0x40_1000,
        &[
            Ph(1, 5, 0, 0x40_0000, 0x1800, 0x1800, 0x1000),
            Ph(1, 6, 0x1800, 0x40_2800, 0x100, 0x3000, 0x1000),
        ],
        0x2000,
    );
    file[0x1800] = 0xaa;
    file[0x1900..].fill(0xbb);
    let elf = Elf::parse(image(&file)).unwrap();
    let mm = new_mm();
    let argv = [b"prog".to_vec(), b"-x".to_vec()];
    let envp = [b"A=1".to_vec()];
    let l = load(&mm, request(&elf, None, &argv, &envp)).unwrap();
    assert_eq!(
        (l.entry, l.program_entry, l.base),
        (Va(0x40_1000), Va(0x40_1000), Va(0))
    );
    assert!(l.start_brk.0 >= 0x40_6000);
    // The bss is zero from the first byte on.
    assert_eq!(mm.read_obj::<u8>(Va(0x40_2800)), Ok(0xaa));
    let mut bss = vec![1; 0x3000 - 0x100];
    mm.copy_in(Va(0x40_2900), &mut bss).unwrap();
    assert!(bss.iter().all(|b| *b == 0));
    assert!(mm.copy_out(Va(0x40_0000), b"x").is_err());

    assert_eq!(l.sp.0 % 16, 0);
    let sp = l.sp.0;
    assert_eq!(word(&mm, sp), 2);
    let string = |at: u64| mm.read_cstr(Va(at), 4096).unwrap();
    assert_eq!(string(word(&mm, sp + 8)), b"prog");
    assert_eq!(string(word(&mm, sp + 16)), b"-x");
    assert_eq!(word(&mm, sp + 24), 0);
    assert_eq!(string(word(&mm, sp + 32)), b"A=1");
    assert_eq!(word(&mm, sp + 40), 0);
    let layout = mm.layout();
    let mut at = sp + 48;
    for (k, v) in &layout.auxv {
        assert_eq!((word(&mm, at), word(&mm, at + 8)), (*k, *v));
        at += 16;
    }
    let aux = |k: u32| layout.auxv.iter().find(|a| a.0 == u64::from(k)).unwrap().1;
    assert_eq!(string(aux(AT_EXECFN)), b"/bin/prog");
    assert_eq!(string(aux(AT_PLATFORM)), b"x86_64");
    assert_eq!(aux(AT_PHDR), 0x40_0040);
    assert_eq!((aux(AT_PHENT), aux(AT_PHNUM), aux(AT_EGID)), (56, 2, 4));
    let mut args = vec![0; (layout.env_end - layout.arg_start) as usize];
    mm.copy_in(Va(layout.arg_start), &mut args).unwrap();
    assert_eq!(args, b"prog\0-x\0A=1\0");
    assert_eq!(layout.env_start - layout.arg_start, 8);
    let stack = mm.find_vma(l.sp).unwrap();
    assert_eq!(
        (stack.name(), stack.perms()),
        (b"[stack]".to_vec(), *b"rw-p")
    );
    // It grows to its limit.
    mm.copy_out(Va(stack.end - (8 << 20) + 4096), b"x").unwrap();
}

#[test]
fn pie_with_interpreter() {
    let mut file = build(
        3,
        0x1000,
        &[
            Ph(3, 4, 0x800, 0x800, 11, 11, 1),
            Ph(1, 5, 0, 0, 0x1800, 0x1800, 0x20_0000),
            Ph(0x6474_e551, 7, 0, 0, 0, 0, 16),
        ],
        0x2000,
    );
    file[0x800..0x80b].copy_from_slice(b"/lib/ld.so\0");
    let elf = Elf::parse(image(&file)).unwrap();
    assert_eq!(elf.interpreter(), Some(&b"/lib/ld.so"[..]));
    let ld = build(3, 0x500, &[Ph(1, 5, 0, 0, 0x1800, 0x1800, 0x1000)], 0x2000);
    let ld = Elf::parse_interpreter(image(&ld)).unwrap();
    let mm = new_mm();
    let l = load(&mm, request(&elf, Some(&ld), &[], &[])).unwrap();
    assert_eq!(l.entry.0, l.base.0 + 0x500);
    assert_eq!((l.program_entry.0 - 0x1000) % 0x20_0000, 0);
    assert_eq!(word(&mm, l.sp.0), 1);
    assert_eq!(mm.find_vma(l.sp).unwrap().perms(), *b"rwxp");
    // Not the same place twice.
    let l2 = load(&new_mm(), request(&elf, Some(&ld), &[], &[])).unwrap();
    assert_ne!(l.program_entry, l2.program_entry);
    assert_ne!(l.base, l2.base);
    let fixed = || {
        let mut r = request(&elf, Some(&ld), &[], &[]);
        r.randomize = Randomize::No;
        load(&new_mm(), r).unwrap()
    };
    assert_eq!(fixed(), fixed());
}

#[test]
fn wrong_files() {
    let parse = |b: &[u8]| Elf::parse(image(b)).err();
    assert_eq!(parse(b"hello"), Some(ENOEXEC));
    assert_eq!(
        parse(&build(1, 0, &[Ph(1, 5, 0, 0, 1, 1, 1)], 4096)),
        Some(ENOEXEC)
    );
    assert_eq!(parse(&build(2, 0, &[], 4096)), Some(ENOEXEC));
    assert_eq!(
        parse(&build(2, 0, &[Ph(1, 5, 0, 0x1000, 5, 4, 1)], 4096)),
        Some(EINVAL)
    );
    assert_eq!(
        parse(&build(2, 0, &[Ph(1, 5, 1, 0x1000, 5, 8, 1)], 4096)),
        Some(EINVAL)
    );
    assert_eq!(
        parse(&build(2, 0, &[Ph(3, 5, 0, 0, 1 << 40, 1, 1)], 4096)),
        Some(ENOEXEC)
    );
    let no_arch = Elf::parse_interpreter(image(b"#!/bin/sh\n"));
    assert_eq!(no_arch.err(), Some(ELIBBAD));
    let nothing = Elf::parse(image(&build(3, 0, &[Ph(6, 5, 0, 0, 1, 1, 1)], 4096))).unwrap();
    assert_eq!(
        load(&new_mm(), request(&nothing, None, &[], &[])).err(),
        Some(EINVAL)
    );
    let ok = Elf::parse(image(&build(
        2,
        0x40_0000,
        &[Ph(1, 5, 0, 0x40_0000, 1, 1, 1)],
        4096,
    )))
    .unwrap();
    let long = [vec![b'x'; MAX_ARG_STRLEN]];
    assert_eq!(
        load(&new_mm(), request(&ok, None, &long, &[])).err(),
        Some(E2BIG)
    );
    let many: Vec<Vec<u8>> = (0..400).map(|_| vec![b'x'; 6000]).collect();
    assert_eq!(
        load(&new_mm(), request(&ok, None, &many, &[])).err(),
        Some(E2BIG)
    );
    assert!(load(&new_mm(), request(&ok, None, &many[..300], &[])).is_ok());
}

#[test]
fn scripts() {
    let parse = |s: &[u8]| {
        let mut head = [0; HEAD];
        let n = s.len().min(HEAD);
        head[..n].copy_from_slice(&s[..n]);
        parse_shebang(&head).ok().map(|s| {
            let arg = s.argument.map(|a| String::from_utf8(a).unwrap());
            (String::from_utf8(s.interpreter).unwrap(), arg)
        })
    };
    let some = |a: &str, b: Option<&str>| Some((a.to_string(), b.map(str::to_string)));
    assert_eq!(parse(b"#!/bin/sh\necho"), some("/bin/sh", None));
    assert_eq!(
        parse(b"#! \t/usr/bin/env  python3 -u \t\n"),
        some("/usr/bin/env", Some("python3 -u"))
    );
    assert_eq!(parse(b"#!/bin/sh"), some("/bin/sh", None));
    assert_eq!(parse(b"#!\n"), None);
    assert_eq!(parse(b"#!  \t \n"), None);
    assert_eq!(parse(&[b"#!/".as_slice(), &[b'x'; 300]].concat()), None);
    let cut = parse(&[b"#!/bin/sh ".as_slice(), &[b'y'; 300]].concat()).unwrap();
    assert_eq!(
        (cut.0.as_str(), cut.1.unwrap().len()),
        ("/bin/sh", HEAD - 1 - 10)
    );
}

/// The host's own programs, where there are any.
#[test]
fn real_programs_parse_and_load() {
    let mut seen = 0;
    for path in ["/bin/sh", "/bin/ls", "/usr/bin/env", "/bin/bash"] {
        let Ok(bytes) = std::fs::read(path) else {
            continue;
        };
        let Ok(Program::Elf(elf)) = identify(image(&bytes)) else {
            continue;
        };
        let ld = elf.interpreter().map(|p| {
            let path = String::from_utf8(p.to_vec()).unwrap();
            Elf::parse_interpreter(image(&std::fs::read(path).unwrap())).unwrap()
        });
        load(&new_mm(), request(&elf, ld.as_ref(), &[], &[])).unwrap();
        seen += 1;
    }
    println!("{seen} programs");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]
    /// Whatever a file holds, loading it neither panics nor leaves the rails.
    #[test]
    fn hostile_headers(
        kind in 2u16..4,
        entry: u64,
        phs in prop::collection::vec(
            (prop_oneof![4 => Just(1u32), 1 => Just(3u32), 1 => any::<u32>()], any::<u32>(),
             numbers(), numbers(), numbers(), numbers(), numbers()), 1..6),
    ) {
        let headers: Vec<Ph> = phs.into_iter().map(|p| Ph(p.0, p.1, p.2, p.3, p.4, p.5, p.6)).collect();
        if let Ok(elf) = Elf::parse(image(&build(kind, entry, &headers, 0x3000))) {
            let _ = load(&new_mm(), request(&elf, None, &[], &[]));
        }
    }
}

fn numbers() -> impl Strategy<Value = u64> {
    prop_oneof![
        any::<u64>(),
        0u64..0x4000,
        (0u64..0x40).prop_map(|n| n * 0x1000),
        (0u32..64, 0u64..3).prop_map(|(s, d)| (1u64 << s).wrapping_sub(d)),
    ]
}
