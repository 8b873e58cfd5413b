//! Extended attributes.

use super::Server;
use super::ops::{Answer, writable};
use super::table::{ACL_NAME, proc_name};
use crate::proto::{ACL, Handle, Reply};
use crate::wire::MAX_STRING;
use abi::Result;
use abi::errno::{EACCES, EINVAL, ENODATA, ENOSYS, EPERM};
use hostcall::{HostFd, path};
use std::ffi::CString;

impl Server {
    /// Only `user.` attributes are the container's, and file capabilities can be read.
    fn xattr_name(name: &[u8]) -> Result<CString> {
        if name.len() > 255 {
            return Err(EINVAL);
        }
        CString::new(name).map_err(|_| EINVAL)
    }

    pub(super) fn get_xattr(&self, h: Handle, name: &[u8]) -> Answer {
        let n = self.table.get(h)?;
        if name == ACL {
            let mut buf = vec![0u8; MAX_STRING.min(65536)];
            match path::getxattrat(self.proc_fd.raw(), &proc_name(&n.fd), ACL_NAME, &mut buf) {
                Err(ENOSYS) => {}
                len => {
                    buf.truncate(len?);
                    return Ok((Reply::Bytes(buf), None));
                }
            }
        } else if !name.starts_with(b"user.") && name != b"security.capability" {
            return Err(ENODATA);
        }
        let fd = self
            .reopen(&n, libc::O_RDONLY)
            .map_err(|e| if e == EACCES { e } else { ENODATA })?;
        let mut buf = vec![0u8; MAX_STRING.min(65536)];
        let len = path::fgetxattr(fd.raw(), &Self::xattr_name(name)?, &mut buf)?;
        buf.truncate(len);
        Ok((Reply::Bytes(buf), None))
    }

    pub(super) fn xattr_for_change(&self, h: Handle, name: &[u8]) -> Result<(HostFd, CString)> {
        let n = self.table.get(h)?;
        writable(&n)?;
        if !name.starts_with(b"user.") {
            return Err(EPERM);
        }
        let fd = self.reopen(&n, libc::O_RDONLY)?;
        Ok((fd, Self::xattr_name(name)?))
    }

    pub(super) fn list_xattr(&self, h: Handle) -> Answer {
        let n = self.table.get(h)?;
        if n.kind != libc::S_IFREG && n.kind != libc::S_IFDIR {
            return Ok((Reply::Bytes(Vec::new()), None));
        }
        let fd = self.reopen(&n, libc::O_RDONLY)?;
        let mut buf = vec![0u8; MAX_STRING.min(65536)];
        let len = path::flistxattr(fd.raw(), &mut buf)?;
        let mut names = Vec::new();
        for name in buf[..len].split(|b| *b == 0) {
            if name.starts_with(b"user.") || name == b"security.capability" {
                names.extend_from_slice(name);
                names.push(0);
            }
        }
        Ok((Reply::Bytes(names), None))
    }
}
