//! What an application gives its sockets: addresses, options, netlink requests, control messages.
#![no_main]

use abi::errno::EBADF;
use libfuzzer_sys::arbitrary::{self, Arbitrary};
use net::control::Control;
use net::{Block, Caller, Link, NetNamespace, PathNames, Socket};
use std::any::Any;
use std::sync::Arc;
use vfs::Credentials;
use vfs::file::{BufSink, BufSource};

#[derive(Arbitrary, Debug)]
enum Step {
    Socket(u8, u8, u8),
    Pair(u8),
    Bind(u8, Vec<u8>),
    Connect(u8, Vec<u8>),
    Listen(u8, i32),
    Accept(u8),
    Send(u8, Vec<u8>, Option<Vec<u8>>, u32),
    Receive(u8, u16, u32),
    Set(u8, u8, u8, Vec<u8>),
    Get(u8, u8, u8),
    Shutdown(u8, u8),
    Names(u8),
    Close(u8),
    Control(Vec<u8>, u16),
}

/// No names.
struct Names;

impl PathNames for Names {
    fn bind(&self, _: &[u8], _: Arc<dyn Any + Send + Sync>) -> abi::Result<()> {
        Ok(())
    }
    fn lookup(&self, _: &[u8]) -> abi::Result<Arc<dyn Any + Send + Sync>> {
        Err(abi::errno::ENOENT)
    }
}

libfuzzer_sys::fuzz_target!(|steps: Vec<Step>| {
    let ns = NetNamespace::new();
    let _ = ns.set_loopback(Link::Up);
    let cred = Arc::new(Credentials::root());
    let who = Caller {
        pid: 42,
        number: 42,
        any_pid: false,
        cred: &cred,
        paths: &Names,
        has_signal: &|| false,
    };
    let mut all: Vec<Arc<Socket>> = Vec::new();
    for s in steps {
        step(&ns, &who, &mut all, s);
    }
});

fn step(ns: &Arc<NetNamespace>, who: &Caller<'_>, all: &mut Vec<Arc<Socket>>, s: Step) {
    let of = |n: u8| (!all.is_empty()).then(|| all[usize::from(n) % all.len()].clone());
    match s {
        Step::Socket(family, kind, protocol) => {
            let made = net::socket(
                ns,
                i32::from(family % 20),
                u32::from(kind % 8),
                i32::from(protocol),
                who,
            );
            all.extend(made);
        }
        Step::Pair(kind) => {
            if let Ok((a, b)) = net::socketpair(ns, 1, u32::from(kind % 8), 0, who) {
                all.extend([a, b]);
            }
        }
        Step::Close(n) if !all.is_empty() => drop(all.swap_remove(usize::from(n) % all.len())),
        Step::Bind(n, addr) => drop(of(n).map(|s| s.bind(who, &addr))),
        Step::Connect(n, addr) => drop(of(n).map(|s| s.connect(who, &addr, Block::No))),
        Step::Listen(n, backlog) => drop(of(n).map(|s| s.listen(who, backlog))),
        Step::Accept(n) => all.extend(of(n).and_then(|s| s.accept().ok())),
        Step::Send(n, bytes, to, flags) => {
            if let Some(s) = of(n) {
                let mut from = BufSource::new(&bytes);
                let _ = s.send(who, &mut from, to.as_deref(), Control::default(), flags);
            }
        }
        Step::Receive(n, len, flags) => {
            if let Some(s) = of(n) {
                let mut room = vec![0; usize::from(len)];
                let _ = s.receive(&mut BufSink::new(&mut room), flags);
            }
        }
        Step::Set(n, level, name, value) => {
            let level = [1, 0, 6, 17, 41, 270][usize::from(level) % 6];
            let _ = of(n).map(|s| s.set_option(who.cred, level, i32::from(name), &value));
        }
        Step::Get(n, level, name) => {
            let level = [1, 0, 6, 17, 41, 270][usize::from(level) % 6];
            drop(of(n).map(|s| s.get_option(level, i32::from(name))));
        }
        Step::Shutdown(n, how) => drop(of(n).map(|s| s.shutdown(u32::from(how)))),
        Step::Names(n) => drop(of(n).map(|s| (s.local_name(), s.peer_name()))),
        Step::Control(bytes, room) => {
            if let Ok(c) = Control::parse(&bytes, &mut |_| Err(EBADF)) {
                let (out, _) = c.encode(usize::from(room), &mut |_| Err(EBADF));
                assert!(out.len() <= usize::from(room));
            }
        }
        Step::Close(_) => {}
    }
}
