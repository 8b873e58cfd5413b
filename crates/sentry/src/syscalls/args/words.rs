//! Sets of flags and words with names, as arguments. A name without a value is Linux's
//! ([`abi::linux`]).

/// Declares a set of flags. `refused`: bits without a name give `EINVAL`, before anything else of
/// the call. `kept`: they stay, for a check that comes later, or never.
macro_rules! flags {
    (
        $(#[$meta:meta])*
        $vis:vis struct $name:ident: $word:ident, $others:ident {
            $($flag:ident $(= $value:expr)?,)*
        }
    ) => {
        bitflags::bitflags! {
            $(#[$meta])*
            #[derive(Clone, Copy, PartialEq, Eq, Debug)]
            $vis struct $name: $word {
                $(const $flag = $crate::syscalls::args::value!($flag $word $($value)?);)*
            }
        }

        impl $crate::syscalls::args::Argument for $name {
            const SHOW: $crate::syscalls::args::Show =
                $crate::syscalls::args::Show::Words(|raw| {
                    let word = <$word as $crate::syscalls::args::Word>::from_raw(raw[0]);
                    let names = <$name as bitflags::Flags>::FLAGS.iter();
                    let names = names.map(|f| (u64::from(f.value().bits()), f.name()));
                    $crate::syscalls::args::text::flags(word.into(), names)
                });
            #[inline(always)]
            fn decode(raw: &[u64]) -> abi::Result<Self> {
                let bits = $crate::syscalls::args::Word::from_raw(raw[0]);
                $crate::syscalls::args::from_bits!($others bits)
            }
        }
    };
}

macro_rules! from_bits {
    (refused $bits:ident) => {
        Self::from_bits($bits).ok_or(abi::errno::EINVAL)
    };
    (kept $bits:ident) => {
        Ok(Self::from_bits_retain($bits))
    };
}

macro_rules! value {
    ($name:ident $word:ident) => {
        abi::linux::$name as $word
    };
    ($name:ident $word:ident $value:expr) => {
        $value
    };
}

/// Declares a word with names for its values, which keeps the values that have none.
macro_rules! named {
    (
        $(#[$meta:meta])*
        $vis:vis struct $name:ident($word:ident) {
            $($value:ident $(= $number:expr)?,)*
        }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        $vis struct $name(pub $word);

        #[allow(dead_code)]
        impl $name {
            $(
                pub const $value: $name =
                    $name($crate::syscalls::args::value!($value $word $($number)?));
            )*
        }

        impl $crate::syscalls::args::Argument for $name {
            const SHOW: $crate::syscalls::args::Show =
                $crate::syscalls::args::Show::Words(|raw| {
                    let word = <$word as $crate::syscalls::args::Word>::from_raw(raw[0]);
                    match $name(word) {
                        $($name::$value => stringify!($value).into(),)*
                        _ => $crate::syscalls::args::text::number(word.into()),
                    }
                });
            #[inline(always)]
            fn decode(raw: &[u64]) -> abi::Result<Self> {
                Ok($name($crate::syscalls::args::Word::from_raw(raw[0])))
            }
        }
    };
}

pub(in crate::syscalls) use {flags, from_bits, named, value};
