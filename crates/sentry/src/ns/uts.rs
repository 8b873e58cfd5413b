//! UTS namespaces (`uts_namespaces(7)`), and what `uname(2)` says.

/// The host name and the domain name.
#[derive(Clone, Debug)]
pub struct Uts {
    pub nodename: Vec<u8>,
    pub domainname: Vec<u8>,
}

impl Uts {
    /// `struct new_utsname`.
    #[must_use]
    pub fn utsname(&self) -> platform::lanes::Names {
        const FIELD: usize = 65;
        let mut out: platform::lanes::Names = [0; 6 * FIELD];
        let fields = [
            b"Linux".as_slice(),
            &self.nodename,
            RELEASE.as_bytes(),
            VERSION.as_bytes(),
            b"x86_64",
            &self.domainname,
        ];
        for (to, f) in out.chunks_exact_mut(FIELD).zip(fields) {
            let n = f.len().min(FIELD - 1);
            to[..n].copy_from_slice(&f[..n]);
        }
        out
    }
}

/// What `uname(2)` says of this kernel.
pub const RELEASE: &str = "6.12.0-cloister";
/// The build, as `uname -v` shows it.
pub const VERSION: &str = "#1 SMP PREEMPT_DYNAMIC Cloister";
