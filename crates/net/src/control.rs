//! Ancillary data (`cmsg(3)`, `unix(7)`).

use crate::sys::{SCM_CREDENTIALS, SCM_MAX_FD, SCM_RIGHTS, SOL_SOCKET};
use abi::Result;
use abi::errno::{EBADF, EINVAL};
use std::sync::Arc;
use vfs::File;

/// `struct ucred`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Ucred {
    pub pid: i32,
    pub uid: u32,
    pub gid: u32,
}

impl Ucred {
    /// Who an unconnected peer is.
    pub const NOBODY: Ucred = Ucred {
        pid: 0,
        uid: u32::MAX,
        gid: u32::MAX,
    };

    /// What [`Ucred::encode`] made.
    #[must_use]
    pub fn decode(b: &[u8]) -> Option<Ucred> {
        let word = |at: usize| b.get(at..at + 4).map(le32);
        Some(Ucred {
            pid: word(0)?,
            uid: word(4)? as u32,
            gid: word(8)? as u32,
        })
    }
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut v = self.pid.to_le_bytes().to_vec();
        v.extend_from_slice(&self.uid.to_le_bytes());
        v.extend_from_slice(&self.gid.to_le_bytes());
        v
    }
}

/// Ancillary data on its way in or out.
#[derive(Default, Debug)]
pub struct Control {
    /// SCM_RIGHTS.
    pub files: Vec<Arc<File>>,
    /// SCM_CREDENTIALS.
    pub cred: Option<Ucred>,
    /// SCM_PIDFD: of which process; the system-call layer makes the descriptor.
    pub pidfd: Option<i32>,
    /// All others: level, type, data.
    pub other: Vec<(i32, i32, Vec<u8>)>,
}

impl Control {
    /// The same once more, for another attempt to send it.
    #[must_use]
    pub fn again(&self) -> Control {
        Control {
            files: self.files.clone(),
            cred: self.cred,
            pidfd: self.pidfd,
            other: self.other.clone(),
        }
    }
}

const HEADER: usize = 16;

fn le32(b: &[u8]) -> i32 {
    i32::from_le_bytes([b[0], b[1], b[2], b[3]])
}

impl Control {
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.files.is_empty() && self.cred.is_none() && self.other.is_empty()
    }

    /// Reads `msg_control` as it was copied from the application. `file` turns a descriptor into
    /// its file (`EBADF` if not open, or open with O_PATH).
    pub fn parse(
        mut bytes: &[u8],
        file: &mut dyn FnMut(i32) -> Result<Arc<File>>,
    ) -> Result<Control> {
        let mut c = Control::default();
        while bytes.len() >= HEADER {
            let mut len = [0; 8];
            len.copy_from_slice(&bytes[..8]);
            let len = usize::try_from(u64::from_le_bytes(len)).map_err(|_| EINVAL)?;
            if len < HEADER || len > bytes.len() {
                return Err(EINVAL);
            }
            let (level, kind) = (le32(&bytes[8..]), le32(&bytes[12..]));
            let data = &bytes[HEADER..len];
            match (level, kind) {
                (SOL_SOCKET, SCM_RIGHTS) => {
                    if c.files.len() + data.len() / 4 > SCM_MAX_FD {
                        return Err(EINVAL);
                    }
                    for fd in data.chunks_exact(4) {
                        let fd = le32(fd);
                        c.files.push(if fd < 0 { Err(EBADF) } else { file(fd) }?);
                    }
                }
                (SOL_SOCKET, SCM_CREDENTIALS) => {
                    if data.len() != 12 {
                        return Err(EINVAL);
                    }
                    c.cred = Some(Ucred {
                        pid: le32(data),
                        uid: le32(&data[4..]) as u32,
                        gid: le32(&data[8..]) as u32,
                    });
                }
                _ => c.other.push((level, kind, data.to_vec())),
            }
            bytes = bytes.get(len.next_multiple_of(8)..).unwrap_or(&[]);
        }
        Ok(c)
    }

    /// Writes it for the application: at most `room` bytes. `install` gives each file a descriptor;
    /// files that find no room (or no descriptor) are dropped. Gives the bytes, and whether
    /// MSG_CTRUNC is due.
    pub fn encode(
        self,
        room: usize,
        install: &mut dyn FnMut(Arc<File>) -> Result<i32>,
    ) -> (Vec<u8>, bool) {
        let mut out = Vec::new();
        let mut cut = false;
        for (level, kind, data) in &self.other {
            cut |= put(&mut out, room, *level, *kind, data);
        }
        if let Some(c) = self.cred {
            cut |= put(&mut out, room, SOL_SOCKET, SCM_CREDENTIALS, &c.encode());
        }
        if !self.files.is_empty() {
            let fit = (room - out.len()).saturating_sub(HEADER) / 4;
            let mut data = Vec::new();
            let all = self.files.len();
            for f in self.files.into_iter().take(fit) {
                match install(f) {
                    Ok(fd) => data.extend_from_slice(&fd.to_le_bytes()),
                    Err(_) => break,
                }
            }
            cut |= data.len() < all * 4;
            if !data.is_empty() {
                put(&mut out, room, SOL_SOCKET, SCM_RIGHTS, &data);
            }
        }
        (out, cut)
    }
}

/// Appends one message, cut to the room left; whether it was cut.
pub fn put(out: &mut Vec<u8>, room: usize, level: i32, kind: i32, data: &[u8]) -> bool {
    let left = room - out.len();
    if left < HEADER {
        return true;
    }
    let len = (HEADER + data.len()).min(left);
    let start = out.len();
    out.extend_from_slice(&(len as u64).to_le_bytes());
    out.extend_from_slice(&level.to_le_bytes());
    out.extend_from_slice(&kind.to_le_bytes());
    out.extend_from_slice(&data[..len - HEADER]);
    let padded = (start + len.next_multiple_of(8)).min(room);
    out.resize(padded, 0);
    len < HEADER + data.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_trip_and_truncation() {
        let c = Control {
            cred: Some(Ucred {
                pid: 1,
                uid: 2,
                gid: 3,
            }),
            other: vec![(0, 8, vec![1; 12])],
            ..Control::default()
        };
        let (bytes, cut) = c.encode(100, &mut |_| Ok(0));
        assert!(!cut);
        assert_eq!(bytes.len(), 64);
        let back = Control::parse(&bytes, &mut |_| Err(EBADF)).unwrap();
        assert_eq!(
            back.cred,
            Some(Ucred {
                pid: 1,
                uid: 2,
                gid: 3
            })
        );
        assert_eq!(back.other[0].2, [1; 12]);
        let (bytes, cut) = back.encode(40, &mut |_| Ok(0));
        assert!(cut);
        assert_eq!(bytes.len(), 32);
        assert!(Control::parse(&[9; 16], &mut |_| Err(EBADF)).is_err());
        assert!(
            Control::parse(&[1; 15], &mut |_| Err(EBADF))
                .unwrap()
                .is_empty()
        );
    }

    proptest::proptest! {
        #[test]
        fn never_panics(b in proptest::collection::vec(0u8..40, 0..120), room in 0usize..90) {
            if let Ok(c) = Control::parse(&b, &mut |_| Err(EBADF)) {
                assert!(c.encode(room, &mut |_| Ok(0)).0.len() <= room);
            }
        }
    }
}
