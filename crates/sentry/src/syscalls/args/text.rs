//! Words and bytes as strace(1) shows them.

use abi::Va;
use mm::Mm;
use std::fmt::Write as _;

/// The most bytes of a string or buffer that are shown, as strace's `-s 32`.
pub const SHOWN: usize = 32;

/// A pointer that is not followed.
#[must_use]
pub fn pointer(va: u64) -> String {
    match va {
        0 => "NULL".into(),
        va => format!("{va:#x}"),
    }
}

#[must_use]
pub fn hex(word: u64) -> String {
    match word {
        0 => "0".into(),
        word => format!("{word:#x}"),
    }
}

/// Permission bits, as C writes them.
#[must_use]
pub fn octal(bits: u32) -> String {
    match bits {
        0 => "0".into(),
        bits => format!("0{bits:o}"),
    }
}

/// A number without a name: small ones as people write them.
#[must_use]
pub fn number(n: i64) -> String {
    match n {
        -0xffff..=0xffff => n.to_string(),
        n => format!("{n:#x}"),
    }
}

/// A string in quotes; `cut` where there is more of it.
#[must_use]
pub fn quoted(bytes: &[u8], cut: Cut) -> String {
    let mut s = String::from("\"");
    for b in bytes {
        match b {
            b'\n' => s.push_str("\\n"),
            b'\t' => s.push_str("\\t"),
            b'\r' => s.push_str("\\r"),
            b'"' => s.push_str("\\\""),
            b'\\' => s.push_str("\\\\"),
            0x20..=0x7e => s.push(*b as char),
            _ => {
                let _ = write!(s, "\\{b:o}");
            }
        }
    }
    s.push('"');
    if cut == Cut::Yes {
        s.push_str("...");
    }
    s
}

/// Whether what is shown is a part.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Cut {
    No,
    Yes,
}

impl Cut {
    const fn beyond(len: usize) -> Cut {
        if len > SHOWN { Cut::Yes } else { Cut::No }
    }
}

/// The beginning of a buffer; its address where it cannot be read.
#[must_use]
pub fn bytes_at(mm: &Mm, va: u64, len: usize) -> String {
    let mut buf = vec![0u8; len.min(SHOWN)];
    match mm.read_bytes(Va(va), &mut buf) {
        0 if len > 0 => pointer(va),
        n => quoted(&buf[..n], Cut::beyond(len)),
    }
}

/// A NUL-terminated string.
#[must_use]
pub fn path_at(mm: &Mm, va: u64) -> String {
    match mm.read_cstr(Va(va), vfs::PATH_MAX) {
        Ok(p) if va != 0 => quoted(&p, Cut::No),
        _ => pointer(va),
    }
}

/// Bits by name, those without one in hexadecimal; a name of zero where none is set.
#[must_use]
pub fn flags(word: u64, names: impl Iterator<Item = (u64, &'static str)>) -> String {
    let mut left = word;
    let mut zero = None;
    let mut out: Vec<String> = Vec::new();
    for (bits, name) in names {
        if bits == 0 {
            zero = Some(name);
        } else if left & bits == bits {
            out.push(name.into());
            left &= !bits;
        }
    }
    match (left, out.is_empty()) {
        (0, true) => zero.unwrap_or("0").into(),
        (0, false) => out.join("|"),
        _ => {
            out.push(hex(left));
            out.join("|")
        }
    }
}

/// An array of strings, up to a null pointer.
#[must_use]
pub fn strings_at(mm: &Mm, va: u64) -> String {
    let mut out = Vec::new();
    for i in 0..16u64 {
        match mm.read_obj::<u64>(Va(va).offset(8 * i)) {
            Ok(0) | Err(_) => return format!("[{}]", out.join(", ")),
            Ok(p) => match mm.read_cstr(Va(p), 4096) {
                Ok(s) => out.push(quoted(&s[..s.len().min(SHOWN)], Cut::beyond(s.len()))),
                Err(_) => out.push(pointer(p)),
            },
        }
    }
    format!("[{}, ...]", out.join(", "))
}

/// The first buffers of an `iovec` array, with what they hold.
#[must_use]
pub fn iovec_at(mm: &Mm, va: u64, count: usize) -> String {
    let mut out = Vec::new();
    for i in 0..count.min(4) {
        match mm.read_obj::<[u64; 2]>(Va(va).offset(16 * i as u64)) {
            Ok([base, len]) => out.push(format!(
                "{{iov_base={}, iov_len={len}}}",
                bytes_at(mm, base, len as usize)
            )),
            Err(_) => return pointer(va),
        }
    }
    let more = if count > 4 { ", ..." } else { "" };
    format!("[{}{more}]", out.join(", "))
}

/// A socket's address.
#[must_use]
pub fn sockaddr_at(mm: &Mm, va: u64, len: usize) -> String {
    let mut raw = [0u8; 110];
    match mm.read_bytes(Va(va), &mut raw[..len.min(110)]) {
        0 | 1 => pointer(va),
        n => sockaddr(&raw[..n]),
    }
}

/// A socket's address: of at least the two bytes of the family.
#[must_use]
pub fn sockaddr(b: &[u8]) -> String {
    let port = |b: &[u8]| u16::from_be_bytes([b[2], b[3]]);
    match u16::from_le_bytes([b[0], b[1]]) {
        1 => format!(
            "{{sa_family=AF_UNIX, sun_path={}}}",
            quoted(b[2..].split(|c| *c == 0).next().unwrap_or(&[]), Cut::No)
        ),
        2 if b.len() >= 8 => format!(
            "{{sa_family=AF_INET, sin_port={}, sin_addr={}.{}.{}.{}}}",
            port(b),
            b[4],
            b[5],
            b[6],
            b[7]
        ),
        10 if b.len() >= 4 => format!("{{sa_family=AF_INET6, sin6_port={}}}", port(b)),
        family => format!("{{sa_family={family}}}"),
    }
}
