//! Arguments of system calls as types, and the functions that take them.
//!
//! A system call is a function of typed parameters:
//! `fn lseek(cx: &mut Context, fd: Fd, offset: i64, whence: Whence) -> SysResult`. Its signature is
//! the one place where the types stand. [`calls!`](super::calls) makes a row of the table of its
//! name: the number is the name's in [`abi::nr`], the types give the shim that decodes the raw
//! words ([`Handler`]) and what `--strace` shows ([`Show`]).
//!
//! Invariants:
//! - Words are decoded from left to right, before the function runs. A type whose decoding fails
//!   is for what Linux looks at first: unknown flags that give `EINVAL` before a descriptor is
//!   looked up. All else decodes to a type that keeps every word, and is checked where Linux does.
//! - Decoding reads the words alone, never the application's memory.
//! - The words that a function takes are at most six: the compiler counts them.

mod flags;
mod numbers;
mod pointers;
pub mod text;
mod words;

pub use flags::*;
pub use numbers::*;
pub use pointers::*;
pub(super) use words::{flags, from_bits, named, value};

use super::SysResult;
use crate::task::Context;
use abi::Result;
use mm::Mm;

/// The six raw words of a system call.
pub type Raw = [u64; 6];

/// A type of arguments.
pub trait Argument: Sized {
    /// How many words it takes: a buffer is an address and a length.
    const WORDS: usize = 1;
    const KIND: Kind = Kind::Other;
    const SHOW: Show;
    /// From its words, of which there are at least `WORDS`.
    fn decode(raw: &[u64]) -> Result<Self>;
}

/// What strace's classes ask of an argument.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    Descriptor,
    Path,
    /// Of a socket.
    Address,
    Other,
}

/// How `--strace` shows an argument, from its words.
#[derive(Clone, Copy)]
pub enum Show {
    /// As the words are.
    Words(fn(&[u64]) -> String),
    /// With what the call reads there. Asked before the call.
    Read(fn(&Mm, &[u64]) -> String),
    /// With what the call wrote there, by its result; `None` where it failed. Asked after it.
    Written(fn(&Mm, &[u64], Option<usize>) -> String),
}

/// A parameter of a system call, as a table has it.
#[derive(Clone, Copy)]
pub struct Param {
    pub words: usize,
    pub kind: Kind,
    pub show: Show,
}

impl Param {
    const fn of<A: Argument>() -> Param {
        Param {
            words: A::WORDS,
            kind: A::KIND,
            show: A::SHOW,
        }
    }
}

/// A function that does a system call. `P` are its parameters.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no function of a system call",
    note = "it takes `&mut Context` and up to six words of `Argument` types, and gives a `SysResult`"
)]
pub trait Handler<P>: Copy {
    const PARAMS: &'static [Param];
    /// Decodes the words and calls it.
    fn call(self, cx: &mut Context, raw: &Raw) -> SysResult;
}

macro_rules! handlers {
    ($(($($t:ident)*))*) => {$(
        impl<F, $($t: Argument),*> Handler<($($t,)*)> for F
        where
            F: Fn(&mut Context, $($t),*) -> SysResult + Copy,
        {
            const PARAMS: &'static [Param] = {
                assert!(0 $(+ $t::WORDS)* <= 6, "a system call has six words");
                &[$(Param::of::<$t>()),*]
            };
            #[inline(always)]
            #[allow(non_snake_case, unused)]
            fn call(self, cx: &mut Context, raw: &Raw) -> SysResult {
                let words = raw.as_slice();
                $(
                    let $t = $t::decode(words)?;
                    let words = &words[$t::WORDS..];
                )*
                self(cx, $($t),*)
            }
        }
    )*};
}
handlers! {
    ()
    (A)
    (A B)
    (A B C)
    (A B C D)
    (A B C D E)
    (A B C D E G)
}

/// The parameters of a function, for its row.
#[must_use]
pub const fn params<P, F: Handler<P>>(_: F) -> &'static [Param] {
    F::PARAMS
}

/// The table of a file: the names of its functions, which are the system calls', each with what is
/// missing, if anything is.
macro_rules! calls {
    ($($call:ident $(: $note:expr)?),* $(,)?) => {
        /// See [`super::ALL`].
        pub const CALLS: &[$crate::syscalls::Call] = &[$($crate::syscalls::Call {
            nr: abi::syscalls::number(stringify!($call)),
            name: stringify!($call),
            params: $crate::syscalls::args::params($call),
            handler: |cx, raw| $crate::syscalls::args::Handler::call($call, cx, raw),
            note: [$($note,)? ""][0],
        }),*];
    };
}
pub(super) use calls;

#[cfg(test)]
mod tests;
