use crate::line::{Asks, Line};
use crate::termios::*;
use crate::*;
use abi::errno::*;
use abi::signal::*;
use abi::{Result, Va};
use parking_lot::Mutex;
use std::collections::HashMap;
use vfs::file::{BufSink, BufSource, IoctlContext, O_NOCTTY, O_RDWR};
use vfs::{Credentials, File, FileOps};
use wait::{Blocker, Events, Parker};

/// What appears on the screen when `typed` comes in.
fn echo(l: &mut Line, typed: &[u8]) -> String {
    l.receive(typed);
    let v = l.output.pop_vec(usize::MAX);
    String::from_utf8_lossy(&v).into_owned()
}
fn line(change: impl FnOnce(&mut Termios)) -> Line {
    let mut l = Line::new();
    let mut t = l.termios;
    change(&mut t);
    l.set_termios(t);
    l
}

#[test]
fn canonical_editing() {
    // Typed, what a read gives, what the screen shows.
    let table: &[(&[u8], &[u8], &str)] = &[
        (b"abc\n", b"abc\n", "abc\r\n"),
        (b"abc\r", b"abc\n", "abc\r\n"),
        (b"abd\x7fc\n", b"abc\n", "abd\x08 \x08c\r\n"),
        (b"\x7fa\n", b"a\n", "a\r\n"),
        (
            b"one two\x17x\n",
            b"one x\n",
            "one two\x08 \x08\x08 \x08\x08 \x08x\r\n",
        ),
        (b"a\x01\x7f\n", b"a\n", "a^A\x08 \x08\x08 \x08\r\n"),
        (b"ab\x15c\n", b"c\n", "ab\x08 \x08\x08 \x08c\r\n"),
        (b"a\x16\x03b\n", b"a\x03b\n", "a^\x08^Cb\r\n"),
        (b"ab\x12c\n", b"abc\n", "ab^R\r\nabc\r\n"),
        (b"ab\x04", b"ab", "ab"),
        (b"\x04", b"", ""),
        (
            b"a\tb\x7f\x7fc\n",
            b"ac\n",
            "a\tb\x08 \x08\x08\x08\x08\x08\x08\x08\x08c\r\n",
        ),
    ];
    for (typed, read, screen) in table {
        let mut l = Line::new();
        assert_eq!(echo(&mut l, typed), *screen, "{typed:?}");
        assert!(l.readable(Asks::Read), "{typed:?}");
        assert_eq!(l.take(100), *read, "{typed:?}");
    }
}

#[test]
fn echo_modes() {
    let mut l = line(|t| t.lflag &= !ECHO);
    assert_eq!(echo(&mut l, b"a\x7fb\n"), "");
    assert_eq!(l.take(9), b"b\n");
    let mut l = line(|t| t.lflag = (t.lflag & !ECHO) | ECHONL);
    assert_eq!(echo(&mut l, b"secret\n"), "\r\n");
    let mut l = line(|t| t.lflag &= !ECHOE);
    assert_eq!(echo(&mut l, b"ab\x7f"), "ab^?");
    let mut l = line(|t| t.lflag &= !ECHOKE);
    assert_eq!(echo(&mut l, b"ab\x15"), "ab^U\r\n");
    let mut l = line(|t| t.lflag &= !(ECHOKE | ECHOK));
    assert_eq!(echo(&mut l, b"ab\x15c\n"), "ab^Uc\r\n");
    let mut l = line(|t| t.lflag &= !ECHOCTL);
    assert_eq!(echo(&mut l, b"a\x01\x7f"), "a\x01");
    let mut l = line(|t| t.lflag |= ECHOPRT);
    assert_eq!(echo(&mut l, b"abc\x7f\x7fd"), "abc\\cb/d");
    let mut l = line(|t| t.iflag |= IUTF8);
    assert_eq!(echo(&mut l, "aé\x7f\n".as_bytes()), "aé\x08 \x08\r\n");
    assert_eq!(l.take(9), b"a\n");
}

#[test]
fn input_flags() {
    let mut l = line(|t| t.iflag |= IGNCR);
    l.receive(b"a\r\n");
    assert_eq!(l.take(9), b"a\n");
    let mut l = line(|t| t.iflag = INLCR | ISTRIP);
    l.receive(b"\xe1\n\x04");
    assert_eq!(l.take(9), b"a\r");
    let mut l = line(|t| t.cc[VEOL] = b';');
    l.receive(b"a;b\nc");
    assert_eq!((l.take(9), l.take(9)), (b"a;".to_vec(), b"b\n".to_vec()));
    assert!(!l.readable(Asks::Read));
    // Lines are read one at a time, and in pieces; an end of file after a full buffer is not left
    // behind.
    let mut l = Line::new();
    l.receive(b"one\ntwo\nabc\x04d\n");
    assert_eq!(l.available(), 13);
    assert_eq!(
        (l.take(2), l.take(9), l.take(9)),
        (b"on".to_vec(), b"e\n".to_vec(), b"two\n".to_vec())
    );
    assert_eq!((l.take(3), l.take(9)), (b"abc".to_vec(), b"d\n".to_vec()));
}

#[test]
fn a_line_that_is_too_long_still_ends() {
    let mut l = line(|t| t.lflag &= !ECHO);
    let mut n = 0;
    while n < 5000 {
        assert!(l.room() > 0);
        l.receive(b"x");
        n += 1;
    }
    l.receive(b"\n");
    assert_eq!(l.room(), 0);
    let got = l.take(9000);
    assert_eq!((got.len(), got[4094]), (4095, b'\n'));
}

#[test]
fn output() {
    let show = |change: fn(&mut Termios), bytes: &[u8]| {
        let mut l = line(change);
        l.write(bytes);
        String::from_utf8(l.output.pop_vec(usize::MAX)).unwrap()
    };
    assert_eq!(show(|_| {}, b"a\nb"), "a\r\nb");
    assert_eq!(show(|t| t.oflag = 0, b"a\nb\t"), "a\nb\t");
    assert_eq!(
        show(|t| t.oflag = OPOST | XTABS, b"ab\tc\t"),
        "ab      c       "
    );
    assert_eq!(show(|t| t.oflag = OPOST | OCRNL, b"a\rb"), "a\nb");
    assert_eq!(show(|t| t.oflag = OPOST | ONOCR, b"\ra\r\r"), "a\r");
    assert_eq!(show(|t| t.oflag = OPOST | OLCUC, b"aBc"), "ABC");
}

#[test]
fn flow_control_and_changes_of_mode() {
    let mut l = Line::new();
    l.receive(b"\x13ab");
    assert!(l.stopped && !l.writable() && l.output.is_empty());
    l.receive(b"\x11");
    assert!(l.writable());
    assert_eq!(l.output.pop_vec(9), b"ab");
    let mut l = line(|t| t.iflag |= IXANY);
    l.receive(b"\x13");
    l.receive(b"x");
    assert!(!l.stopped);
    // Pending bytes become readable in raw mode, and one line back in canonical mode.
    let mut l = Line::new();
    l.receive(b"abc");
    assert!(!l.readable(Asks::Read));
    let canonical = l.termios;
    l.set_termios(Termios {
        lflag: canonical.lflag & !ICANON,
        ..canonical
    });
    assert_eq!(l.take(1), b"a");
    l.set_termios(canonical);
    assert!(l.readable(Asks::Read));
    assert_eq!(l.take(9), b"bc");
    let mut l = line(|t| {
        t.lflag &= !ICANON;
        t.cc[VMIN] = 3;
    });
    l.receive(b"ab");
    assert!(l.readable(Asks::Read) && !l.readable(Asks::Poll));
    l.receive(b"c");
    assert!(l.readable(Asks::Poll));
}

#[test]
fn signals_flush() {
    let mut l = Line::new();
    l.write(b"output");
    assert_eq!(echo(&mut l, b"abc\x03"), "^C");
    assert_eq!(l.signals, [SIGINT]);
    assert!(l.input.is_empty());
    let mut l = line(|t| t.lflag |= NOFLSH);
    l.receive(b"a\x1a\x1c\n");
    assert_eq!(l.signals, [SIGTSTP, SIGQUIT]);
    assert_eq!(l.take(9), b"a\n");
    let mut l = line(|t| t.lflag &= !ISIG);
    l.receive(b"\x03\n");
    assert_eq!(l.take(9), b"\x03\n");
}

// The terminal as files

#[derive(Clone, Copy)]
struct Task(Process);

#[derive(Default)]
struct Jobs {
    sent: Mutex<Vec<(i32, Signal)>>,
    hung: Mutex<Vec<(i32, i32)>>,
    controlling: Mutex<HashMap<i32, Arc<Pty>>>,
    ignored: Mutex<Vec<Signal>>,
}

fn of(task: &dyn Any) -> Process {
    task.downcast_ref::<Task>().unwrap().0
}

impl JobControl for Jobs {
    fn process(&self, task: &dyn Any) -> Process {
        of(task)
    }
    fn ignores(&self, _: &dyn Any, s: Signal) -> bool {
        self.ignored.lock().contains(&s)
    }
    fn signal_group(&self, group: i32, signal: Signal) {
        self.sent.lock().push((group, signal));
    }
    fn session_of(&self, group: i32) -> Option<i32> {
        (group < 100).then_some(group / 10 * 10)
    }
    fn controlling(&self, task: &dyn Any) -> Option<Arc<Pty>> {
        self.controlling.lock().get(&of(task).session).cloned()
    }
    fn set_controlling(&self, task: &dyn Any, tty: Option<Arc<Pty>>) {
        let mut c = self.controlling.lock();
        match tty {
            Some(t) => c.insert(of(task).session, t),
            None => c.remove(&of(task).session),
        };
    }
    fn clear_session(&self, session: i32) {
        self.controlling.lock().remove(&session);
    }
    fn hang_up(&self, session: i32, foreground: i32) {
        self.controlling.lock().remove(&session);
        self.hung.lock().push((session, foreground));
    }
}

struct Cx {
    task: Task,
    memory: Mutex<Vec<u8>>,
}

impl IoctlContext for Cx {
    fn copy_in(&self, va: Va, dst: &mut [u8]) -> Result<()> {
        dst.copy_from_slice(&self.memory.lock()[va.0 as usize..va.0 as usize + dst.len()]);
        Ok(())
    }
    fn copy_out(&self, va: Va, src: &[u8]) -> Result<()> {
        self.memory.lock()[va.0 as usize..va.0 as usize + src.len()].copy_from_slice(src);
        Ok(())
    }
    fn credentials(&self) -> Arc<Credentials> {
        Arc::new(Credentials::user(1, 1, vec![]))
    }
    fn task(&self) -> &dyn Any {
        &self.task
    }
}

fn cx(group: i32) -> Cx {
    let session = group / 10 * 10;
    let p = Process {
        session,
        group,
        leader: group == session,
        orphaned: false,
        admin: false,
    };
    Cx {
        task: Task(p),
        memory: Mutex::new(vec![0; 64]),
    }
}
fn open(ops: Arc<dyn FileOps>) -> Arc<File> {
    File::new(ops, O_RDWR, None, Arc::new(Credentials::root()))
}
fn read(f: &File) -> Result<Vec<u8>> {
    let mut v = vec![0; 100];
    let n = f.read(&mut BufSink::new(&mut v))?;
    v.truncate(n);
    Ok(v)
}
fn write(f: &File, b: &[u8]) -> Result<usize> {
    f.write(&mut BufSource::new(b))
}
fn ioctl(f: &File, cx: &Cx, cmd: u32, v: i32) -> Result<i32> {
    cx.memory.lock()[..4].copy_from_slice(&v.to_le_bytes());
    f.ops.ioctl(f, cx, cmd, 0)?;
    let m = cx.memory.lock();
    Ok(i32::from_le_bytes([m[0], m[1], m[2], m[3]]))
}

const TIOCSCTTY: u32 = 0x540E;
const TIOCGPGRP: u32 = 0x540F;
const TIOCSPGRP: u32 = 0x5410;
const TIOCSWINSZ: u32 = 0x5414;
const TIOCPKT: u32 = 0x5420;
const TIOCNOTTY: u32 = 0x5422;
const TIOCGPTN: u32 = 0x8004_5430;
const TIOCSPTLCK: u32 = 0x4004_5431;

/// A pair's buffers are the memory of who opened it, as long as one side is open.
#[test]
fn pairs_are_charged() {
    use vfs::ucounts::Kind;
    let cred = vfs::Credentials::user(77_170, 77_170, vec![]);
    let u = cred.ucounts();
    let pts = Devpts::new(Arc::new(Jobs::default()));
    let pairs = [(); 3].map(|()| pts.open_master_as(&cred).unwrap());
    assert!(u.count(Kind::Kmem) >= 3 * 65_536);
    let rest = cred.user_ns.limits().get(Kind::Kmem) as u64;
    let full = u.force(Kind::Kmem, rest);
    assert_eq!(pts.open_master_as(&cred).err(), Some(ENOMEM));
    assert_eq!(pts.list(), [0, 1, 2]);
    drop((full, pairs));
    assert_eq!(u.count(Kind::Kmem), 0);
}

#[test]
fn a_session_on_a_pty() {
    let jobs = Arc::new(Jobs::default());
    let pts = Devpts::new(jobs.clone());
    let master = pts.open_master().unwrap();
    let second = pts.open_master().unwrap();
    assert_eq!(pts.list(), [0, 1]);
    drop(second);
    assert_eq!(pts.list(), [0]);
    let m = open(master.clone());
    let shell = cx(10);
    assert_eq!(pts.open_slave(0, O_RDWR, &shell.task).err(), Some(EIO));
    assert_eq!(pts.open_slave(7, O_RDWR, &shell.task).err(), Some(ENXIO));
    ioctl(&m, &shell, TIOCSPTLCK, 0).unwrap();
    assert_eq!(ioctl(&m, &shell, TIOCGPTN, 9), Ok(0));
    assert_eq!(read(&m), Err(EAGAIN));
    assert!(!m.poll(Events::IN).contains(Events::HUP));
    let s = open(pts.open_slave(0, O_RDWR | O_NOCTTY, &shell.task).unwrap());
    assert_eq!(ioctl(&s, &shell, TIOCGPGRP, 0), Err(ENOTTY));
    assert_eq!(ioctl(&s, &cx(11), TIOCSCTTY, 0), Err(EPERM));
    ioctl(&s, &shell, TIOCSCTTY, 0).unwrap();
    assert_eq!(ioctl(&s, &cx(20), TIOCSCTTY, 0), Err(EPERM));
    assert_eq!(ioctl(&s, &shell, TIOCGPGRP, 0), Ok(10));
    // Typing reaches the reader; ^C the foreground.
    assert_eq!(write(&m, b"hi\n\x03"), Ok(4));
    assert_eq!(jobs.sent.lock().pop(), Some((10, SIGINT)));
    assert_eq!(read(&s), Err(EAGAIN));
    write(&m, b"hi\n").unwrap();
    assert_eq!(read(&s).unwrap(), b"hi\n");
    assert_eq!(write(&s, b"out\n"), Ok(4));
    assert_eq!(read(&m).unwrap(), b"^Chi\r\nout\r\n");
    // Job control.
    assert_eq!(ioctl(&s, &shell, TIOCSPGRP, 111), Err(ESRCH));
    assert_eq!(ioctl(&s, &shell, TIOCSPGRP, 20), Err(EPERM));
    ioctl(&s, &shell, TIOCSPGRP, 11).unwrap();
    let slave = s.ops::<Slave>().unwrap();
    assert_eq!(slave.check_read(&cx(11).task), Ok(()));
    assert_eq!(slave.check_read(&cx(20).task), Ok(()));
    assert_eq!(slave.check_read(&shell.task), Err(ERESTARTSYS));
    assert_eq!(jobs.sent.lock().pop(), Some((10, SIGTTIN)));
    assert_eq!(slave.check_write(&shell.task), Ok(()));
    jobs.ignored.lock().push(SIGTTIN);
    assert_eq!(slave.check_read(&shell.task), Err(EIO));
    assert_eq!(ioctl(&s, &shell, TIOCSPGRP, 10), Err(ERESTARTSYS));
    assert_eq!(jobs.sent.lock().pop(), Some((10, SIGTTOU)));
    jobs.ignored.lock().push(SIGTTOU);
    ioctl(&s, &shell, TIOCSPGRP, 10).unwrap();
    // The window.
    ioctl(&s, &shell, TIOCSWINSZ, 0x50_0018).unwrap();
    assert_eq!(jobs.sent.lock().pop(), Some((10, SIGWINCH)));
    master.set_window_size(24, 80, 0, 0);
    assert!(jobs.sent.lock().is_empty());
    // Hang-up.
    drop((m, master));
    assert_eq!(jobs.hung.lock()[..], [(10, 10)]);
    assert_eq!(read(&s).unwrap(), b"");
    assert_eq!(write(&s, b"x"), Err(EIO));
    assert!(s.poll(Events::IN).contains(Events::HUP | Events::ERR));
    assert_eq!(ioctl(&s, &shell, TIOCSWINSZ, 0), Err(EIO));
    assert_eq!(pts.open_slave(0, O_RDWR, &shell.task).err(), Some(ENXIO));
}

#[test]
fn packet_mode_and_the_last_slave() {
    let jobs = Arc::new(Jobs::default());
    let pts = Devpts::new(jobs.clone());
    let m = open(pts.open_master().unwrap());
    let me = cx(30);
    m.ops::<Master>().unwrap().unlock();
    ioctl(&m, &me, TIOCPKT, 1).unwrap();
    let s = open(pts.open_slave(0, O_RDWR, &me.task).unwrap());
    assert_eq!(jobs.controlling(&me.task).unwrap().index, 0);
    write(&s, b"x").unwrap();
    write(&m, b"\x13").unwrap();
    assert!(m.poll(Events::PRI).contains(Events::PRI));
    assert_eq!(read(&m).unwrap(), [4]);
    assert_eq!(read(&m).unwrap(), b"\0x");
    assert_eq!(write(&s, b"y"), Err(EAGAIN));
    write(&m, b"\x11").unwrap();
    assert_eq!(read(&m).unwrap(), [8]);
    ioctl(&s, &me, TIOCNOTTY, 0).unwrap();
    assert_eq!(jobs.sent.lock()[..], [(30, SIGHUP), (30, SIGCONT)]);
    drop(s);
    assert!(m.poll(Events::IN).contains(Events::HUP));
    assert_eq!(read(&m), Err(EIO));
    let _s = pts.open_slave(0, O_RDWR, &me.task).unwrap();
    assert_eq!(read(&m), Err(EAGAIN));
}

struct Me(Arc<Parker>);
impl Blocker for Me {
    fn parker(&self) -> &Arc<Parker> {
        &self.0
    }
    fn interrupted(&self) -> bool {
        false
    }
}

#[test]
fn raw_reads_with_min_and_time() {
    let pts = Devpts::new(Arc::new(Jobs::default()));
    let m = pts.open_master().unwrap();
    m.unlock();
    let s = pts.open_slave(0, O_RDWR, &cx(10).task).unwrap();
    let set = |min, time| {
        s.pty().change(|st| {
            let mut t = st.line.termios;
            t.lflag &= !(ICANON | ECHO);
            t.cc[VMIN] = min;
            t.cc[VTIME] = time;
            st.line.set_termios(t);
        });
    };
    let me = Me(Arc::new(Parker::new()));
    let get = |n: usize| {
        let mut v = vec![0; n];
        let n = s.read_blocking(&me, &mut BufSink::new(&mut v)).unwrap();
        v.truncate(n);
        v
    };
    set(0, 0);
    assert_eq!(get(9), b"");
    set(0, 1);
    assert_eq!(get(9), b"");
    m.write_bytes(b"abc");
    assert_eq!(get(2), b"ab");
    set(2, 1);
    assert_eq!(get(9), b"c");
    set(3, 0);
    let t = std::thread::spawn(move || {
        for b in [b"1", b"2", b"3"] {
            std::thread::sleep(std::time::Duration::from_millis(2));
            m.write_bytes(b);
        }
        m
    });
    assert_eq!(get(9), b"123");
    drop(t.join().unwrap());
    assert_eq!(get(9), b"");
}

#[test]
fn much_output_waits_for_the_master() {
    let pts = Devpts::new(Arc::new(Jobs::default()));
    let m = pts.open_master().unwrap();
    m.unlock();
    let s = open(pts.open_slave(0, O_RDWR, &cx(10).task).unwrap());
    let mut sent = 0;
    while let Ok(n) = write(&s, &[b'a'; 5000]) {
        sent += n;
    }
    assert!(sent > 16384 && !s.poll(Events::OUT).contains(Events::OUT));
    let (mut got, mut buf) = (0, [0; 1000]);
    while let Ok(n) = m.read_bytes(&mut buf) {
        got += n;
    }
    assert_eq!(got, sent);
    assert!(s.poll(Events::OUT).contains(Events::OUT));
}

proptest::proptest! {
    #[test]
    fn any_input_in_any_mode(
        flags in (0u32..0x10000, 0u32..0x10000, 0u32..0x10000),
        other in (0u32..0x10000, 0u32..0x40000),
        bytes in proptest::collection::vec(proptest::num::u8::ANY, 0..300),
        n in 0usize..50,
    ) {
        let mut l = line(|t| (t.iflag, t.oflag, t.lflag) = flags);
        l.receive(&bytes);
        l.take(n);
        let mut t = l.termios;
        (t.iflag, t.lflag) = other;
        l.set_termios(t);
        l.receive(&bytes);
        l.write(&bytes);
        l.take(n);
        assert!(l.committed <= l.input.len());
    }
}
