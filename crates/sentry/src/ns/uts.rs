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
        let mut out: platform::lanes::Names = [0; 6 * FIELD];
        for (name, text) in [
            (Name::System, b"Linux".as_slice()),
            (Name::Node, &self.nodename),
            (Name::Release, RELEASE.as_bytes()),
            (Name::Version, VERSION.as_bytes()),
            (Name::Machine, b"x86_64"),
            (Name::Domain, &self.domainname),
        ] {
            put(&mut out, name, text);
        }
        out
    }
}

/// Bytes of a name in `struct new_utsname`, with the zero at its end.
const FIELD: usize = 65;

/// The names of `struct new_utsname`, in its order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Name {
    System,
    Node,
    Release,
    Version,
    Machine,
    Domain,
}

/// Writes one name over what is there.
pub fn put(names: &mut platform::lanes::Names, name: Name, text: &[u8]) {
    let to = &mut names[name as usize * FIELD..][..FIELD];
    let n = text.len().min(FIELD - 1);
    to.fill(0);
    to[..n].copy_from_slice(&text[..n]);
}

/// The release for programs that know none after 2.6 (`override_release`).
#[must_use]
pub fn release26() -> String {
    let number = RELEASE.find(|c: char| !c.is_ascii_digit() && c != '.');
    let (number, rest) = RELEASE.split_at(number.unwrap_or(RELEASE.len()));
    let minor = number.split('.').nth(1).and_then(|n| n.parse::<u32>().ok());
    format!("2.6.{}{rest}", minor.unwrap_or(0) + 60)
}

/// What `uname(2)` says of this kernel.
pub const RELEASE: &str = "6.12.0-cloister";
/// The build, as `uname -v` shows it.
pub const VERSION: &str = "#1 SMP PREEMPT_DYNAMIC Cloister";
