//! Both platforms run the same small programs with the same events.

use hostcall::mem::{Mapping, memfd};
use hostcall::process as host;
use platform::{AppThread, Event, MapOp, Platform, Prot, Sharing};

const GETPID: u64 = abi::nr::GETPID as u64;
const READ: u64 = abi::nr::READ as u64;

const CODE: u64 = 0x40_0000;
const DATA: u64 = 0x50_0000;

struct Setup {
    platform: Box<dyn Platform>,
    file: hostcall::HostFd,
    map: Mapping,
}

fn setup(platform: Box<dyn Platform>) -> Setup {
    setup_named(platform, c"test")
}

/// `name`: what the host shows where the memory is mapped.
fn setup_named(platform: Box<dyn Platform>, name: &std::ffi::CStr) -> Setup {
    let file = memfd(name).unwrap();
    hostcall::file::ftruncate(file.raw(), 0x10000).unwrap();
    let map = Mapping::shared(file.raw(), 0, 0x10000).unwrap();
    Setup {
        platform,
        file,
        map,
    }
}

fn start(
    s: &Setup,
    code: &[u8],
) -> (
    std::sync::Arc<dyn platform::AddressSpace>,
    Box<dyn AppThread>,
) {
    s.map.slice().copy_from(code);
    let space = s.platform.new_address_space().unwrap();
    let map = |va, prot, offset| MapOp::Map {
        va,
        len: 0x1000,
        prot,
        fd: s.file.raw(),
        offset,
        sharing: Sharing::Shared,
    };
    space
        .apply(&[
            map(CODE, Prot::READ.union(Prot::EXEC), 0),
            map(DATA, Prot::RW, 0x1000),
        ])
        .unwrap();
    let mut t = space.new_thread().unwrap();
    let mut r = t.regs();
    r.rip = CODE;
    r.rsp = DATA + 0x800;
    r.fs_base = 0x1234_5000;
    r.rbx = 77;
    t.set_regs(&r);
    (space, t)
}

fn both(f: impl Fn(Setup)) {
    f(setup(Box::new(
        platform::notify::Notify::new(platform::Lanes::None).unwrap(),
    )));
    f(setup(Box::new(platform::ptrace::Ptrace::new().unwrap())));
}

#[test]
fn a_system_call_and_its_answer() {
    // mov eax, 39; mov edi, 5; syscall; mov rdi, rax; mov eax, 60; syscall (exit traps)
    let code = [
        0xb8, 39, 0, 0, 0, 0xbf, 5, 0, 0, 0, 0x0f, 0x05, 0x48, 0x89, 0xc7, 0xb8, 60, 0, 0, 0, 0x0f,
        0x05,
    ];
    both(|s| {
        let (_space, mut t) = start(&s, &code);
        let Event::Syscall { nr, args, ip } = t.run() else {
            panic!()
        };
        assert_eq!((nr, args[0], ip), (39, 5, CODE + 12));
        t.set_return(4711);
        let Event::Syscall { nr, args, .. } = t.run() else {
            panic!()
        };
        assert_eq!((nr, args[0]), (60, 4711));
        assert!(t.has_regs());
        let r = t.regs();
        assert_eq!((r.rbx, r.fs_base, r.rsp), (77, 0x1234_5000, DATA + 0x800));
    });
}

#[test]
fn registers_after_a_plain_call() {
    // loop: mov eax, 39; syscall; inc rbx; jmp loop
    let code = [0xb8, 39, 0, 0, 0, 0x0f, 0x05, 0x48, 0xff, 0xc3, 0xeb, 0xf4];
    both(|s| {
        let (_space, mut t) = start(&s, &code);
        for i in 0..100 {
            assert!(matches!(t.run(), Event::Syscall { nr: GETPID, .. }));
            t.set_return(i);
            if i % 3 == 0 {
                assert_eq!(t.fetch_regs(), Event::Interrupted);
                let mut r = t.regs();
                assert_eq!((r.rax, r.orig_rax, r.rip, r.rbx), (i, 39, CODE + 7, 77 + i));
                r.r15 = i;
                t.set_regs(&r);
            }
        }
    });
}

#[test]
fn faults_are_forwarded_and_repaired() {
    // mov rax, [0x600000]; mov eax, 39; syscall
    let code = [
        0x48, 0x8b, 0x04, 0x25, 0, 0, 0x60, 0, 0xb8, 39, 0, 0, 0, 0x0f, 0x05,
    ];
    both(|s| {
        let (space, mut t) = start(&s, &code);
        let Event::Fault {
            signal, code, addr, ..
        } = t.run()
        else {
            panic!()
        };
        assert_eq!((signal, code, addr), (libc::SIGSEGV, 1, 0x60_0000));
        space
            .apply(&[MapOp::Map {
                va: 0x60_0000,
                len: 0x1000,
                prot: Prot::READ,
                fd: s.file.raw(),
                offset: 0x2000,
                sharing: Sharing::Shared,
            }])
            .unwrap();
        assert!(matches!(t.run(), Event::Syscall { nr: GETPID, .. }));
    });
}

#[test]
fn an_endless_loop_is_interrupted() {
    let code = [0xeb, 0xfe];
    both(|s| {
        let (_space, mut t) = start(&s, &code);
        let i = t.interrupter();
        let other = std::thread::spawn(move || {
            std::thread::sleep(std::time::Duration::from_millis(20));
            i.interrupt();
        });
        assert_eq!(t.run(), Event::Interrupted);
        assert_eq!(t.regs().rip, CODE);
        other.join().unwrap();
    });
}

#[test]
fn a_killed_process_is_gone() {
    let code = [0xeb, 0xfe];
    both(|s| {
        let (space, mut t) = start(&s, &code);
        let other = std::thread::spawn(move || {
            std::thread::sleep(std::time::Duration::from_millis(20));
            space.kill();
        });
        assert_eq!(t.run(), Event::Gone);
        other.join().unwrap();
    });
}

#[test]
fn many_threads_start_and_end() {
    let code = [0xb8, 39, 0, 0, 0, 0x0f, 0x05, 0xeb, 0xf7];
    both(|s| {
        let (space, _first) = start(&s, &code);
        for _ in 0..20 {
            let mut threads: Vec<_> = (0..3).map(|_| space.new_thread().unwrap()).collect();
            for t in &mut threads {
                let mut r = t.regs();
                r.rip = CODE;
                t.set_regs(&r);
                assert!(matches!(t.run(), Event::Syscall { nr: GETPID, .. }));
            }
        }
    });
}

#[test]
fn nothing_of_the_sentry_is_left_beside_the_stub() {
    let places = [
        stub::TEXT + stub::TEXT_LEN,
        stub::COMMAND - 0x1000,
        stub::COMMAND + 0x80_0000,
        stub::HOST_VDSO - 0x1000,
        stub::HOST_VDSO + 0x80_0000,
        stub::AREAS + 4 * stub::AREA_LEN,
        stub::HIGH - 0x1000,
    ];
    for va in places {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE;
        // SAFETY: a new mapping, never used.
        let r = unsafe { hostcall::sys!(Mmap, va, 0x1000, 3, flags, -1i32, 0) };
        // Something else is there (the stack, another test's): as good.
        assert!(matches!(r, Ok(_) | Err(abi::errno::EEXIST)));
    }
    both(|s| {
        for va in places {
            // mov rax, [va]
            let code = [&[0x48, 0xa1][..], &va.to_le_bytes()].concat();
            let (_space, mut t) = start(&s, &code);
            let Event::Fault {
                signal, code, addr, ..
            } = t.run()
            else {
                panic!("{va:#x} can be read")
            };
            // SEGV_MAPERR
            assert_eq!((signal, code, addr), (libc::SIGSEGV, 1, va));
        }
    });
}

#[test]
fn an_early_interrupt_is_kept() {
    let code = [0xb8, 39, 0, 0, 0, 0x0f, 0x05, 0xeb, 0xf7];
    both(|s| {
        let (space, mut first) = start(&s, &code);
        assert!(matches!(first.run(), Event::Syscall { nr: GETPID, .. }));
        // Kicks that come before its first run are taken in it, or not at all.
        let mut t = space.new_thread().unwrap();
        t.interrupter().interrupt();
        let mut r = t.regs();
        r.rip = CODE;
        t.set_regs(&r);
        let e = t.run();
        assert!(matches!(e, Event::Interrupted), "{e:?}");
        assert!(matches!(t.run(), Event::Syscall { nr: GETPID, .. }));
    });
}

#[test]
fn a_new_process_finds_nothing_of_an_old_one() {
    // mov qword [rdi], 77 (rdi: the end of the thread's own area); mov eax, 39; syscall
    let leave = [0x48, 0xc7, 0x07, 77, 0, 0, 0, 0xb8, 39, 0, 0, 0, 0x0f, 0x05];
    // mov rdi, [rdi]; mov eax, 39; syscall
    let look = [0x48, 0x8b, 0x3f, 0xb8, 39, 0, 0, 0, 0x0f, 0x05];
    both(|s| {
        let place = stub::AREAS + 2 * stub::AREA_LEN - 0x1800;
        let run = |code: &[u8]| {
            let (_space, mut t) = start(&s, code);
            let mut r = t.regs();
            r.rdi = place;
            t.set_regs(&r);
            match t.run() {
                Event::Syscall {
                    nr: GETPID, args, ..
                } => args[0],
                e => panic!("{e:?}"),
            }
        };
        for _ in 0..3 {
            assert_eq!(run(&leave), place);
            assert_eq!(run(&look), 0);
        }
    });
}

/// The CPUs that processes of the platform's may not use, of those that this one may.
fn kept_from() -> usize {
    let allowed = |status: std::path::PathBuf| {
        let text = std::fs::read_to_string(status).unwrap_or_default();
        let field = |name: &str| {
            let value = text.lines().find_map(|l| l.strip_prefix(name));
            value.unwrap_or_default().trim().replace(',', "")
        };
        let mask = u128::from_str_radix(&field("Cpus_allowed:"), 16).unwrap_or(0);
        (mask.count_ones() as usize, field("PPid:"))
    };
    let me = allowed("/proc/thread-self/status".into()).0;
    let proc = std::fs::read_dir("/proc").unwrap();
    let of = proc.filter_map(|e| Some((e.as_ref().ok()?.path(), e.as_ref().ok()?.file_name())));
    let pids: Vec<_> = of.map(|(p, n)| (allowed(p.join("status")).1, n)).collect();
    let me_as_parent = std::process::id().to_string();
    let stubs = pids.iter().filter(|(parent, _)| *parent == me_as_parent);
    let tasks = stubs.filter_map(|(_, p)| {
        let p = p.to_string_lossy();
        std::fs::read_dir(format!("/proc/{p}/task")).ok()
    });
    let masks = tasks
        .flatten()
        .flatten()
        .map(|t| allowed(t.path().join("status")).0);
    masks.filter(|n| *n > 0).map(|n| me - n).sum()
}

/// What lies in a mailbox says that its thread waits. One that does not is stopped before it is
/// held. While it is spun for it keeps off the spinner's CPU, and no longer.
#[test]
fn who_asks_by_the_mailbox_and_goes_on_is_held() {
    let s = setup(Box::new(
        platform::notify::Notify::new(platform::Lanes::Mailbox).unwrap(),
    ));
    // 0: mov eax, 39; syscall; rdgsbase rcx; lock or dword [rcx + LANE_STATE], ASKED; mov ebx,
    // 0x8000000 1: inc qword [DATA]; dec ebx; jnz 1b; jmp 0b
    let state = stub::area::LANE_STATE as u8;
    let code = [
        &[0xb8, 39, 0, 0, 0, 0x0f, 0x05, 0xf3, 0x48, 0x0f, 0xae, 0xc9][..],
        &[0xf0, 0x83, 0x49, state, stub::lane::ASKED as u8],
        &[0xbb, 0, 0, 0, 8, 0x48, 0xff, 0x04, 0x25, 0, 0, 0x50, 0],
        &[0xff, 0xcb, 0x75, 0xf4, 0xeb, 0xdc],
    ]
    .concat();
    let (_space, mut t) = start(&s, &code);
    let count = || {
        let mut b = [0; 8];
        s.map.slice().sub(0x1000, 8).copy_to(&mut b);
        u64::from_le_bytes(b)
    };
    let pause = || std::thread::sleep(std::time::Duration::from_millis(20));
    // Whether somebody looks when it asks is a matter of how fast the host's other CPU wakes up.
    let mut asked = false;
    for _ in 0..60 {
        match t.run() {
            Event::Syscall { nr: GETPID, .. } => t.set_return(0),
            Event::Syscall { nr: READ, .. } => {
                asked = true;
                break;
            }
            e => panic!("{e:?}"),
        }
    }
    if !asked {
        eprintln!("left out: on this machine the other CPU never woke up in time");
        return;
    }
    assert!(!t.has_regs());
    assert_eq!(kept_from(), usize::from(host::cpu_count() > 1));
    let before = count();
    pause();
    assert!(count() > before, "it does not compute");
    assert_eq!(t.hold(), Event::Interrupted);
    assert_eq!(kept_from(), 0);
    assert!(t.has_regs() && (CODE..CODE + 0x40).contains(&t.regs().rip));
    let before = count();
    pause();
    assert_eq!(count(), before);
}

/// Who stands at a slot when its site ends is put back to the call; afterwards that is a place like
/// others.
#[test]
fn who_stands_at_a_slot_is_put_back() {
    let s = setup(Box::new(
        platform::notify::Notify::new(platform::Lanes::Local).unwrap(),
    ));
    // jmp to itself: who stands there for ever.
    let (space, mut t) = start(&s, &[0xeb, 0xfe]);
    let call = CODE + 0x40;
    let site = platform::lanes::sites::Site::by_slot(call, CODE);
    if space.lanes().and_then(|l| l.add_site(site)).is_none() {
        // A CPU without BMI2.
        return;
    }
    // Also where it was made live while the thread was there.
    for (live, comes) in [(true, false), (false, false), (true, true), (false, false)] {
        let i = t.interrupter();
        let ends = space.clone();
        let other = std::thread::spawn(move || {
            std::thread::sleep(std::time::Duration::from_millis(20));
            if live {
                if let Some(l) = ends.lanes() {
                    if comes {
                        l.add_site(site).unwrap();
                    }
                    l.retire_sites(CODE..CODE + 0x1000);
                }
            } else {
                i.interrupt();
            }
        });
        assert_eq!(t.run(), Event::Interrupted);
        let mut r = t.regs();
        assert_eq!(r.rip, if live { call } else { CODE });
        r.rip = CODE;
        t.set_regs(&r);
        other.join().unwrap();
    }
}

/// Trampolines are gone when their process serves another program.
#[test]
fn a_new_process_finds_no_trampolines_of_an_old_one() {
    let s = setup(Box::new(
        platform::notify::Notify::new(platform::Lanes::Local).unwrap(),
    ));
    // mov eax, 39; syscall
    let call = [0xb8, 39, 0, 0, 0, 0x0f, 0x05];
    // mov rdi, [rdi]; mov eax, 39; syscall
    let look = [0x48, 0x8b, 0x3f, 0xb8, 39, 0, 0, 0, 0x0f, 0x05];
    for place in [stub::lane::TABLE, stub::TRAMPOLINES, stub::lane::TABLE] {
        {
            let (space, mut t) = start(&s, &call);
            let site = platform::lanes::sites::Site::by_slot(CODE + 0x40, CODE);
            if space.lanes().and_then(|l| l.add_site(site)).is_none() {
                // A CPU without BMI2.
                return;
            }
            assert!(matches!(t.run(), Event::Syscall { nr: GETPID, .. }));
        }
        assert!(s.platform.wait_unmapped(std::time::Duration::from_secs(10)));
        let (space, mut t) = start(&s, &look);
        assert!(space.lanes().is_none_or(|l| l.sites().is_empty()));
        let mut r = t.regs();
        r.rdi = place;
        t.set_regs(&r);
        match t.run() {
            Event::Fault { signal, addr, .. } => {
                assert_eq!((signal, addr), (libc::SIGSEGV, place));
            }
            e => panic!("{e:?}"),
        }
    }
}

/// A thread whose task has ended serves another of the same program, which sees nothing of it.
#[test]
fn threads_serve_again() {
    let notify = platform::notify::Notify::new(platform::Lanes::All).unwrap();
    let s = setup_named(Box::new(notify), c"serve-again");
    // 0: mov eax, 39; mov rcx, [DATA]; jrcxz 1f; loop: dec rcx; jnz loop; movd xmm0, eax; 1:
    // syscall; jmp 0b
    let code = [
        &[0xb8, 39, 0, 0, 0, 0x48, 0x8b, 0x0c, 0x25, 0, 0, 0x50, 0][..],
        &[
            0xe3, 9, 0x48, 0xff, 0xc9, 0x75, 0xfb, 0x66, 0x0f, 0x6e, 0xc0,
        ],
        &[0x0f, 0x05, 0xeb, 0xe4],
    ]
    .concat();
    s.map.slice().copy_from(&code);
    let (space, mut first) = start(&s, &code);
    assert!(matches!(first.run(), Event::Syscall { nr: GETPID, .. }));
    let work = |n: u64| s.map.slice().sub(0x1000, 8).copy_from(&n.to_le_bytes());
    let thread = || {
        let mut t = space.new_thread().unwrap();
        let mut r = t.regs();
        assert_eq!((r.rip, r.rbx, r.rsp), (0, 0, 0));
        r.rip = CODE;
        t.set_regs(&r);
        t
    };
    let low_xmm0 = |t: &dyn AppThread| {
        let mut fp = Vec::new();
        t.fp_state(&mut fp);
        u32::from_le_bytes(fp[160..164].try_into().unwrap())
    };
    let process = || {
        let mut all = std::fs::read_dir("/proc").unwrap().flatten();
        let has = |p: &std::path::Path| {
            let maps = std::fs::read_to_string(p.join("maps")).unwrap_or_default();
            maps.contains("r-xs 00000000") && maps.contains("memfd:serve-again")
        };
        all.find(|e| has(&e.path())).expect("it lives").path()
    };
    let host_threads = || std::fs::read_dir(process().join("task")).unwrap().count();
    // Bytes of what all processes share that this one has mapped.
    let mapped = || {
        let maps = std::fs::read_to_string(process().join("maps")).unwrap();
        let control = maps
            .lines()
            .filter(|l| l.contains("memfd:cloister-control"));
        let len = |l: &str| {
            let (start, end) = l.split_whitespace().next()?.split_once('-')?;
            let hex = |s| u64::from_str_radix(s, 16).ok();
            Some(hex(end)? - hex(start)?)
        };
        control.filter_map(len).sum::<u64>()
    };
    work(300_000_000);
    let mut t = thread();
    assert!(matches!(t.run(), Event::Syscall { nr: GETPID, .. }));
    let clock = t.cpu_clock().application;
    let burnt = clock();
    assert!(burnt > 10_000_000, "{burnt}");
    assert_eq!(t.fetch_regs(), Event::Interrupted);
    assert_eq!(low_xmm0(&*t), 39);
    drop(t);
    let before = host_threads();
    work(0);
    for i in 0..20 {
        let mut t = thread();
        let own = t.cpu_clock().application;
        assert!(matches!(t.run(), Event::Syscall { nr: GETPID, .. }));
        assert!(own() < burnt / 2, "{} of {burnt}", own());
        if i % 2 == 0 {
            assert_eq!(t.fetch_regs(), Event::Interrupted);
            assert_eq!(low_xmm0(&*t), 0);
        }
    }
    assert_eq!(host_threads(), before);
    // More at once than may be idle: the others end.
    let few: Vec<_> = (0..12).map(|_| thread()).collect();
    drop(few);
    assert!(host_threads() <= before + 3);
    // Nor does it keep what they had of what all have.
    let kept = mapped();
    let many: Vec<_> = (0..40).map(|_| thread()).collect();
    assert!(mapped() > kept);
    drop(many);
    assert!(mapped() <= kept, "{} of {kept}", mapped());
    let again: Vec<_> = (0..20).map(|_| thread()).collect();
    drop(again);
    assert!(mapped() <= kept, "{} of {kept}", mapped());
    drop(first);
}
