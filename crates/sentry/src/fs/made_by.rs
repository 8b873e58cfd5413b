//! File systems whose root depends on who mounts them.

use abi::Result;
use abi::errno::EINVAL;
use std::sync::Arc;
use vfs::params::{Param, Params, Value};
use vfs::vfs::FsType;
use vfs::{Caller, Dentry};

/// A type of file systems whose root is made by a function that looks at who mounts it, and the
/// parameters that may be given, to no effect.
pub struct MadeBy<F>(pub F, pub &'static [&'static str]);

impl<F> FsType for MadeBy<F>
where
    F: Fn(&Arc<vfs::Vfs>, &Caller<'_>) -> Result<Arc<Dentry>> + Send + Sync,
{
    fn mount(
        &self,
        vfs: &Arc<vfs::Vfs>,
        cx: &Caller<'_>,
        _: &str,
        _: &Params,
    ) -> Result<Arc<Dentry>> {
        (self.0)(vfs, cx)
    }
    fn parameters(&self) -> &'static [&'static str] {
        self.1
    }
    fn parse(&self, _: &Caller<'_>, p: Param) -> Result<Param> {
        match p.value {
            Value::Flag => Ok(p),
            _ => Err(EINVAL),
        }
    }
}
