//! What the tests of sockets share, and the tests themselves.

mod devices;
mod inet;
mod linux;
mod netlink;
mod packets;
mod read_slots;
mod unix;

use crate::control::Control;
use crate::protocol::Block;
use crate::sys::*;
use crate::{Caller, NetNamespace, PathNames, Received, Socket, socket, socketpair};
use abi::Result;
use abi::errno::{EADDRINUSE, ENOENT};
use parking_lot::Mutex;
use std::any::Any;
use std::collections::HashMap;
use std::sync::Arc;
use vfs::file::{BufSink, BufSource, O_RDWR};
use vfs::{Credentials, File};
use wait::Events;

type Node = Arc<dyn Any + Send + Sync>;

/// A file system for names.
#[derive(Default)]
pub struct Names(Mutex<HashMap<Vec<u8>, Node>>);

impl PathNames for Names {
    fn bind(&self, path: &[u8], endpoint: Node) -> Result<()> {
        if self.0.lock().contains_key(path) {
            return Err(EADDRINUSE);
        }
        self.0.lock().insert(path.to_vec(), endpoint);
        Ok(())
    }
    fn lookup(&self, path: &[u8]) -> Result<Node> {
        self.0.lock().get(path).cloned().ok_or(ENOENT)
    }
}

/// A namespace with a caller.
pub struct World {
    pub ns: Arc<NetNamespace>,
    pub names: Names,
    pub cred: Arc<Credentials>,
}

impl World {
    pub fn new() -> World {
        World {
            ns: NetNamespace::new(),
            names: Names::default(),
            cred: Arc::new(Credentials::user(1000, 100, vec![])),
        }
    }
    pub fn who(&self) -> Caller<'_> {
        Caller {
            pid: 42,
            number: 42,
            any_pid: false,
            cred: &self.cred,
            paths: &self.names,
            has_signal: &|| false,
        }
    }
    pub fn socket(&self, family: u16, kind: u32) -> Arc<Socket> {
        socket(&self.ns, i32::from(family), kind, 0, &self.who()).unwrap()
    }
    pub fn pair(&self, kind: u32) -> (Arc<Socket>, Arc<Socket>) {
        socketpair(&self.ns, i32::from(AF_UNIX), kind, 0, &self.who()).unwrap()
    }
    pub fn send(&self, s: &Socket, b: &[u8]) -> Result<usize> {
        s.send(
            &self.who(),
            &mut BufSource::new(b),
            None,
            Control::default(),
            0,
        )
    }
    pub fn send_to(&self, s: &Socket, b: &[u8], to: &[u8]) -> Result<usize> {
        s.send(
            &self.who(),
            &mut BufSource::new(b),
            Some(to),
            Control::default(),
            0,
        )
    }
    pub fn send_files(&self, s: &Socket, b: &[u8], files: Vec<Arc<File>>) -> Result<usize> {
        let control = Control {
            files,
            ..Control::default()
        };
        s.send(&self.who(), &mut BufSource::new(b), None, control, 0)
    }
    pub fn connect(&self, s: &Socket, to: &[u8]) -> Result<()> {
        s.connect(&self.who(), to, Block::Yes)
    }
    pub fn file(&self, s: Arc<Socket>) -> Arc<File> {
        File::new(s, O_RDWR, None, self.cred.clone())
    }
    pub fn set(&self, s: &Socket, level: i32, name: i32, v: i32) -> Result<()> {
        s.set_option(&self.cred, level, name, &v.to_le_bytes())
    }
}

pub fn receive(s: &Socket, n: usize, flags: u32) -> Result<(Vec<u8>, Received)> {
    let mut v = vec![0; n];
    let mut sink = BufSink::new(&mut v);
    let r = s.receive(&mut sink, flags)?;
    let n = sink.done();
    v.truncate(n);
    Ok((v, r))
}

pub fn bytes(s: &Socket, n: usize) -> Result<Vec<u8>> {
    receive(s, n, 0).map(|r| r.0)
}

pub fn poll(s: &Arc<Socket>) -> Events {
    let f = File::new(s.clone(), O_RDWR, None, Arc::new(Credentials::root()));
    f.poll(Events::IN | Events::OUT | Events::RDHUP)
}

pub fn int(s: &Socket, level: i32, name: i32) -> i32 {
    crate::options::int_of(&s.get_option(level, name).unwrap()).unwrap()
}
