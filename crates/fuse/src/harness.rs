//! For tests and fuzzing: a connection without a mount, and a task that asks.

use crate::connection::{Connection, Made};
use crate::mount::Options;
use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use vfs::Credentials;
use vfs::caller::{Acting, Actor, Client};
use vfs::fs::tmpfs::Tmpfs;
use vfs::userns::UserNs;
use wait::{Blocker, Parker};

/// A task that can be interrupted and ended.
#[derive(Default)]
pub struct Me {
    parker: Arc<Parker>,
    pub signal: AtomicBool,
    pub killed: AtomicBool,
}

impl Me {
    /// This thread acts for it, as long as what this gives is kept.
    pub fn acts(self: &Arc<Me>) -> Acting {
        Acting::new(Actor {
            thread: Arc::new(()),
            process: Arc::new(()),
            client: self.clone(),
        })
    }
    pub fn set(&self, what: &AtomicBool) {
        what.store(true, Ordering::SeqCst);
        self.parker.unpark();
    }
}

impl Blocker for Me {
    fn parker(&self) -> &Arc<Parker> {
        &self.parker
    }
    fn interrupted(&self) -> bool {
        self.signal.load(Ordering::SeqCst) || self.killed()
    }
    fn killed(&self) -> bool {
        self.killed.load(Ordering::SeqCst)
    }
}

impl Client for Me {
    fn credentials(&self) -> Arc<Credentials> {
        Arc::new(Credentials::user(7, 8, vec![]))
    }
    fn umask(&self) -> u32 {
        0
    }
    fn waits_at_end(&self) -> bool {
        false
    }
    fn task(&self) -> &dyn Any {
        self
    }
}

pub const DEVICE: u64 = 5;
pub const ROOM: usize = 1 << 20;

pub fn connection() -> Arc<Connection> {
    let clas = clas::Clas::new().unwrap();
    let (cache, _) = Tmpfs::new(1, &clas, vfs::fs::tmpfs::Options::default());
    let options = Options {
        user: 0,
        group: 0,
        root_mode: 0o40_755,
        default_permissions: false,
        allow_other: true,
        max_read: u32::MAX,
        subtype: None,
    };
    let made = Made {
        dev: 9,
        numbers: Box::new(|_| 42),
        cache,
    };
    Connection::new(made, options, &UserNs::default(), (DEVICE, Arc::default()))
}

/// A server that answers with these bytes, cut into answers, to a task that looks at a directory and
/// makes a file in it. Ends when they end.
#[cfg(fuzzing)]
pub fn answers(bytes: &[u8]) {
    use crate::proto::{InHeader, InitOut, OutHeader, parse};
    use vfs::FileType;
    use zerocopy::IntoBytes;

    let c = connection();
    let root = c.root_inode(0o40_755, FileType::Directory);
    let me = Arc::new(Me::default());
    let asks = std::thread::spawn({
        let (me, root) = (me.clone(), root.clone());
        move || looks(&me, &root)
    });
    let mut left = bytes;
    while !asks.is_finished() {
        let Ok(request) = c.next(DEVICE, ROOM) else {
            std::thread::yield_now();
            continue;
        };
        let Ok((h, _)) = parse::<InHeader>(&request) else {
            continue;
        };
        let (body, error) = if h.op == crate::proto::Op::Init as u32 {
            let out = InitOut {
                major: 7,
                minor: 31,
                ..InitOut::default()
            };
            (out.as_bytes().to_vec(), 0)
        } else {
            let Some(([error, len], rest)) = left.split_first_chunk::<2>() else {
                break;
            };
            let n = rest.len().min(usize::from(*len));
            let body = rest[..n].to_vec();
            left = &rest[n..];
            (body, -i32::from(*error / 2))
        };
        let head = OutHeader {
            len: (size_of::<OutHeader>() + body.len()) as u32,
            error,
            unique: h.unique,
        };
        if let Ok(n) = c.expects(DEVICE, &head) {
            let _ = c.answer(DEVICE, &head, body[..n].to_vec());
        }
    }
    c.abort();
    let _ = asks.join();
}

/// A task that looks at a directory, and makes a file in it.
#[cfg(fuzzing)]
fn looks(me: &Arc<Me>, root: &Arc<crate::inode::FuseInode>) {
    use vfs::mode::Want;
    use vfs::{Caller, File, Inode, NewNode};

    let _acts = me.acts();
    let cred = me.credentials();
    let cx = Caller {
        cred: &cred,
        task: &(),
    };
    let new = NewNode {
        mode: 0o644,
        uid: 0,
        gid: 0,
    };
    for name in [b"a", b"b"] {
        if let Ok(i) = root.lookup(&cx, name) {
            let _ = (
                i.stat(),
                i.readlink(&cx),
                i.list_xattr(),
                i.get_xattr(b"user.a"),
            );
            let _ = i.permission(&cx, Want::EXEC);
            let _ = root.search(&cx, name, Some(&i));
        }
    }
    let dir = (root.clone() as Arc<dyn Inode>).open(&cx, 0);
    if let Ok(ops) = dir {
        let f = File::new(ops, 0, None, cred.clone());
        let (mut pos, mut left) = (0, 100);
        let _ = f.ops.read_dir(&f, &mut pos, &mut |_| {
            left -= 1;
            left > 0
        });
    }
    if let Ok((_, Some(ops))) = root.create_open(&cx, b"new", new, 2) {
        let f = File::new(ops, 2, None, cred.clone());
        let mut b = [0; 5000];
        let _ = f.ops.read(&f, &mut vfs::file::BufSink::new(&mut b), 3);
        let _ = f.ops.write(&f, &mut vfs::file::BufSource::new(&b), 3);
        let _ = f.ops.seek_from(3, 0);
        let _ = f.ops.flush(&f, 1);
    }
}
