//! Files opened with `O_APPEND`, with and without other appenders.

use super::*;
use std::io::Write;

const LINE: usize = 24;

fn line(who: usize, n: usize) -> String {
    format!("{who} {n:021}\n")
}

/// Appends `count` lines, and looks at its own position after each.
fn append(f: &Arc<File>, host: &Path, who: usize, count: usize) {
    let back = std::fs::File::open(host).unwrap();
    for n in 0..count {
        let text = line(who, n);
        assert_eq!(f.write(&mut BufSource::new(text.as_bytes())), Ok(LINE));
        let end = f.seek(0, 1).unwrap();
        let mut own = [0; LINE];
        let at = end - LINE as u64;
        std::os::unix::fs::FileExt::read_exact_at(&back, &mut own, at).unwrap();
        assert_eq!(own, text.as_bytes(), "what is before the position");
    }
}

#[test]
fn beside_the_host() {
    const COUNT: usize = 1500;
    let r = Rig::new(Sharing::Shared, |host| {
        std::fs::write(host.join("log"), b"").unwrap();
    });
    let path = r.host.join("log");
    let open = || r.open("/log", O_APPEND | O_RDWR).unwrap();
    // Two opens of the container's (and so one descriptor), one of which two threads use; two of
    // the host's.
    let (a, b) = (open(), open());
    std::thread::scope(|s| {
        let (path, b) = (&path, &b);
        s.spawn(move || append(&a, path, 0, COUNT));
        s.spawn(move || {
            for n in 0..COUNT {
                let text = line(1, n);
                b.write(&mut BufSource::new(text.as_bytes())).unwrap();
            }
        });
        s.spawn(move || {
            for n in 0..COUNT {
                // At an offset it is appended, too, and the position stays.
                let text = line(2, n);
                let (n, _) = b
                    .ops
                    .append(b, &mut BufSource::new(text.as_bytes()))
                    .unwrap();
                assert_eq!(n, LINE);
            }
        });
        for who in 3..5 {
            let mut f = std::fs::OpenOptions::new().append(true).open(path).unwrap();
            s.spawn(move || {
                for n in 0..COUNT {
                    f.write_all(line(who, n).as_bytes()).unwrap();
                }
            });
        }
    });
    let text = std::fs::read_to_string(&path).unwrap();
    let mut next = [0; 5];
    for l in text.lines() {
        let who = usize::from(l.as_bytes()[0] - b'0');
        assert_eq!(
            format!("{l}\n"),
            line(who, next[who]),
            "whole, and in order"
        );
        next[who] += 1;
    }
    assert_eq!(next, [COUNT; 5]);
}

/// The position after each append is the length, whatever else changed that.
#[test]
fn alone() {
    for sharing in [Sharing::Exclusive, Sharing::Shared] {
        let r = Rig::new(sharing, |_| {});
        let a = r.open("/f", O_CREAT | O_APPEND | O_RDWR).unwrap();
        let b = r.open("/f", O_APPEND | O_WRONLY).unwrap();
        let plain = r.open("/f", O_RDWR).unwrap();
        let length = || std::fs::metadata(r.host.join("f")).unwrap().len();
        let put = |f: &Arc<File>| {
            let before = length();
            assert_eq!(f.write(&mut BufSource::new(b"abc")), Ok(3));
            assert_eq!((f.seek(0, 1), length()), (Ok(before + 3), before + 3));
        };
        for _ in 0..3 {
            put(&a);
            put(&b);
            plain.seek(40, 2).unwrap();
            assert_eq!(plain.write(&mut BufSource::new(b"far")), Ok(3));
            put(&a);
            plain.seek(1, 0).unwrap();
            assert_eq!(plain.write(&mut BufSource::new(b"near")), Ok(4));
            put(&b);
            r.cx().ftruncate(&plain, 10).unwrap();
            put(&a);
            r.cx().truncate(b"/f", 90).unwrap();
            put(&a);
            plain.ops.allocate(0, 0, 5000).unwrap();
            put(&b);
            drop(r.open("/f", O_WRONLY | O_TRUNC).unwrap());
            put(&a);
            // Nothing moves where nothing is written.
            a.seek(1, 0).unwrap();
            assert_eq!(a.write(&mut BufSource::new(b"")), Ok(0));
            assert_eq!(a.seek(0, 1), Ok(1));
            // The flag may come and go.
            plain.seek(0, 0).unwrap();
            plain.set_flags(O_APPEND);
            put(&plain);
            plain.set_flags(0);
            plain.seek(0, 0).unwrap();
            assert_eq!(plain.write(&mut BufSource::new(b"X")), Ok(1));
            assert_eq!(plain.seek(0, 1), Ok(1));
        }
    }
}
