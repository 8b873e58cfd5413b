//! Arguments that point into the application's memory. None can be followed but through its [`Mm`]:
//! what is there is copied once, and checked after.

use super::{Argument, Kind, Show, Word, text};
use crate::task::Context;
use abi::time::{Timespec, Timeval};
use abi::{Result, SigSet, Signal, Va};
use mm::Mm;
use std::marker::PhantomData;
use zerocopy::{FromBytes, Immutable, IntoBytes};

/// What a pointer leads to.
pub trait Pointee: FromBytes + IntoBytes + Immutable {
    /// What `--strace` shows of it; nothing where the address is enough.
    fn text(&self) -> Option<String> {
        None
    }
}

/// The text of what lies at `va`, or the address.
fn pointee<T: Pointee>(mm: &Mm, va: u64) -> String {
    let there = (va != 0).then(|| mm.read_obj::<T>(Va(va)).ok()).flatten();
    there
        .and_then(|t| t.text())
        .unwrap_or_else(|| text::pointer(va))
}

/// An argument for which a null pointer may mean that there is none.
pub trait Nullable: Argument {}

impl<P: Nullable> Argument for Option<P> {
    const WORDS: usize = P::WORDS;
    const KIND: Kind = P::KIND;
    const SHOW: Show = P::SHOW;
    #[inline(always)]
    fn decode(raw: &[u64]) -> Result<Option<P>> {
        match raw[0] {
            0 => Ok(None),
            _ => P::decode(raw).map(Some),
        }
    }
}

macro_rules! pointers {
    ($($(#[$meta:meta])* $name:ident: $show:expr;)*) => {$(
        $(#[$meta])*
        pub struct $name<T>(Va, PhantomData<T>);

        impl<T> Clone for $name<T> {
            fn clone(&self) -> Self {
                *self
            }
        }
        impl<T> Copy for $name<T> {}

        impl<T> $name<T> {
            #[must_use]
            pub const fn new(va: Va) -> Self {
                $name(va, PhantomData)
            }
            #[must_use]
            pub const fn va(self) -> Va {
                self.0
            }
        }

        impl<T: Pointee> Nullable for $name<T> {}

        impl<T: Pointee> Argument for $name<T> {
            const SHOW: Show = $show;
            #[inline(always)]
            fn decode(raw: &[u64]) -> Result<Self> {
                Ok($name::new(Va(raw[0])))
            }
        }
    )*};
}

pointers! {
    /// What the call reads.
    UserIn: Show::Read(|mm, raw| pointee::<T>(mm, raw[0]));
    /// What the call writes.
    UserOut: Show::Written(|mm, raw, result| match result {
        Some(_) => pointee::<T>(mm, raw[0]),
        None => text::pointer(raw[0]),
    });
    /// What the call reads, and writes.
    UserPtr: Show::Read(|mm, raw| pointee::<T>(mm, raw[0]));
    /// Several, one after the other; how many is told elsewhere.
    UserArray: Show::Words(|raw| text::pointer(raw[0]));
}

impl<T: Pointee> UserIn<T> {
    pub fn read(self, mm: &Mm) -> Result<T> {
        mm.read_obj(self.0)
    }
}

impl<T: Pointee> UserOut<T> {
    pub fn write(self, mm: &Mm, value: &T) -> Result<()> {
        mm.write_obj(self.0, value)
    }
}

impl<T: Pointee> UserPtr<T> {
    /// The same, for reading alone.
    #[must_use]
    pub const fn input(self) -> UserIn<T> {
        UserIn::new(self.0)
    }
    pub fn read(self, mm: &Mm) -> Result<T> {
        mm.read_obj(self.0)
    }
    pub fn write(self, mm: &Mm, value: &T) -> Result<()> {
        mm.write_obj(self.0, value)
    }
}

impl<T: Pointee> UserArray<T> {
    /// The element at `index`; addresses wrap, as they do on Linux.
    #[must_use]
    pub const fn at(self, index: u64) -> UserPtr<T> {
        UserPtr::new(self.0.offset(index.wrapping_mul(size_of::<T>() as u64)))
    }
}

/// A NUL-terminated path that the call reads.
#[derive(Clone, Copy)]
pub struct PathPtr(pub Va);

impl PathPtr {
    /// `ENAMETOOLONG` past PATH_MAX; that it is empty is left to the walk.
    pub fn read(self, cx: &Context) -> Result<Vec<u8>> {
        cx.mm().read_cstr(self.0, vfs::PATH_MAX)
    }
}

/// Another NUL-terminated string that the call reads: a name, an option.
#[derive(Clone, Copy)]
pub struct StrPtr(pub Va);

/// A null-terminated array of strings.
#[derive(Clone, Copy)]
pub struct StringsPtr(pub Va);

macro_rules! strings {
    ($($name:ident: $kind:ident, $show:ident;)*) => {$(
        impl Nullable for $name {}
        impl Argument for $name {
            const KIND: Kind = Kind::$kind;
            const SHOW: Show = Show::Read(|mm, raw| text::$show(mm, raw[0]));
            #[inline(always)]
            fn decode(raw: &[u64]) -> Result<Self> {
                Ok($name(Va(raw[0])))
            }
        }
    )*};
}
strings! {
    PathPtr: Path, path_at;
    StrPtr: Other, path_at;
    StringsPtr: Other, strings_at;
}

impl Nullable for Va {}

macro_rules! buffers {
    ($($(#[$meta:meta])* $name:ident: $kind:ident, $show:expr;)*) => {$(
        $(#[$meta])*
        #[derive(Clone, Copy)]
        pub struct $name<N = usize> {
            pub va: Va,
            pub len: N,
        }
        impl<N: Argument + Word> Nullable for $name<N> {}
        impl<N: Argument + Word> Argument for $name<N> {
            const WORDS: usize = 2;
            const KIND: Kind = Kind::$kind;
            const SHOW: Show = $show;
            #[inline(always)]
            fn decode(raw: &[u64]) -> Result<Self> {
                Ok($name {
                    va: Va(raw[0]),
                    len: N::from_raw(raw[1]),
                })
            }
        }
    )*};
}

/// A length as its type shows it.
fn length<N: Argument>(raw: u64) -> String {
    match N::SHOW {
        Show::Words(show) => show(&[raw]),
        Show::Read(_) | Show::Written(_) => text::hex(raw),
    }
}

buffers! {
    /// Bytes that the call reads.
    BytesIn: Other, Show::Read(|mm, raw| {
        format!("{}, {}", text::bytes_at(mm, raw[0], raw[1] as usize), length::<N>(raw[1]))
    });
    /// Bytes that the call writes, as many as the result says.
    BytesOut: Other, Show::Written(|mm, raw, result| {
        let there = match result {
            Some(n) if raw[0] != 0 => text::bytes_at(mm, raw[0], n),
            _ => text::pointer(raw[0]),
        };
        format!("{there}, {}", length::<N>(raw[1]))
    });
    /// Buffers that the call reads.
    IovecIn: Other, Show::Read(|mm, raw| {
        format!("{}, {}", text::iovec_at(mm, raw[0], raw[1] as usize), length::<N>(raw[1]))
    });
    /// Buffers that the call writes.
    IovecOut: Other, Show::Words(|raw| {
        format!("{}, {}", text::pointer(raw[0]), length::<N>(raw[1]))
    });
    /// A socket's address that the call reads.
    AddressIn: Address, Show::Read(|mm, raw| {
        format!("{}, {}", text::sockaddr_at(mm, raw[0], raw[1] as usize), length::<N>(raw[1]))
    });
}

/// Types of which the address is enough.
macro_rules! opaque {
    ($($t:ty)*) => { $(impl $crate::syscalls::args::Pointee for $t {})* };
}
pub(in crate::syscalls) use opaque;

opaque! {
    u8 u16
    [u32; 2] [u32; 3] [i64; 2] [i64; 4] [[i64; 2]; 2] [u64; 2] [u64; 3] [u64; 4] [u64; 5] [u64; 14] [u64; 15] [u64; 18] [u64; 26]
}

/// Types that show themselves as one number.
macro_rules! numbers {
    ($($t:ty)*) => {$(
        impl Pointee for $t {
            fn text(&self) -> Option<String> {
                Some(format!("[{self}]"))
            }
        }
    )*};
}
numbers! { i32 u32 i64 u64 }

impl Pointee for [i32; 2] {
    fn text(&self) -> Option<String> {
        Some(format!("[{}, {}]", self[0], self[1]))
    }
}

impl Pointee for Timespec {
    fn text(&self) -> Option<String> {
        Some(format!("{{tv_sec={}, tv_nsec={}}}", self.sec, self.nsec))
    }
}

impl Pointee for Timeval {
    fn text(&self) -> Option<String> {
        Some(format!("{{tv_sec={}, tv_usec={}}}", self.sec, self.usec))
    }
}

impl Pointee for SigSet {
    fn text(&self) -> Option<String> {
        let names: Vec<String> = (1..=64)
            .filter_map(Signal::new)
            .filter(|s| self.contains(*s))
            .map(|s| format!("{s:?}").trim_start_matches("SIG").to_string())
            .collect();
        Some(format!("[{}]", names.join(" ")))
    }
}
