//! How types are sent: a number as its little-endian bytes, a struct as its fields, an enum as one
//! byte for the variant and then its fields. [`fields`] and [`tagged`] make that from one list.

use super::{MAX_NAMES, Reader, Writer};
use crate::proto::Handle;
use abi::errno::EBADMSG;
use abi::{Errno, Result};

/// A type that is sent in messages.
pub trait Field: Sized {
    fn put(&self, w: &mut Writer);
    /// `EBADMSG` for bytes that [`Field::put`] does not write.
    fn get(r: &mut Reader<'_>) -> Result<Self>;

    /// A list: how many there are (two bytes), and each. A longer one than [`MAX_NAMES`] is a
    /// fault of the writer, and the reader will refuse it.
    fn put_all(list: &[Self], w: &mut Writer) {
        w.u16(list.len() as u16);
        list.iter().for_each(|v| v.put(w));
    }
    fn get_all(r: &mut Reader<'_>) -> Result<Vec<Self>> {
        let n = r.u16()?;
        get_list(r, n.into(), MAX_NAMES)
    }
}

/// `n` values, of at most `most`.
pub fn get_list<T: Field>(r: &mut Reader<'_>, n: usize, most: usize) -> Result<Vec<T>> {
    if n > most {
        return Err(EBADMSG);
    }
    let mut list = Vec::with_capacity(n);
    for _ in 0..n {
        list.push(T::get(r)?);
    }
    Ok(list)
}

macro_rules! numbers {
    ($($type:ident),*) => {$(
        impl Field for $type {
            #[inline]
            fn put(&self, w: &mut Writer) {
                w.$type(*self);
            }
            #[inline]
            fn get(r: &mut Reader<'_>) -> Result<Self> {
                r.$type()
            }
        }
    )*};
}

numbers!(u16, u32, u64, i64);

/// A list of bytes is a string: see [`Writer::bytes`].
impl Field for u8 {
    #[inline]
    fn put(&self, w: &mut Writer) {
        w.u8(*self);
    }
    #[inline]
    fn get(r: &mut Reader<'_>) -> Result<Self> {
        r.u8()
    }
    fn put_all(list: &[u8], w: &mut Writer) {
        w.bytes(list);
    }
    fn get_all(r: &mut Reader<'_>) -> Result<Vec<u8>> {
        Ok(r.bytes()?.to_vec())
    }
}

impl Field for bool {
    #[inline]
    fn put(&self, w: &mut Writer) {
        w.u8((*self).into());
    }
    #[inline]
    fn get(r: &mut Reader<'_>) -> Result<Self> {
        match r.u8()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(EBADMSG),
        }
    }
}

impl Field for Handle {
    #[inline]
    fn put(&self, w: &mut Writer) {
        w.u64(self.0);
    }
    #[inline]
    fn get(r: &mut Reader<'_>) -> Result<Self> {
        Ok(Handle(r.u64()?))
    }
}

/// The error's number, 0 for none.
impl Field for Option<Errno> {
    #[inline]
    fn put(&self, w: &mut Writer) {
        w.u32(self.map_or(0, |e| e.raw() as u32));
    }
    #[inline]
    fn get(r: &mut Reader<'_>) -> Result<Self> {
        match i32::try_from(r.u32()?) {
            Ok(0) => Ok(None),
            Ok(n) => Errno::new(n).map(Some).ok_or(EBADMSG),
            Err(_) => Err(EBADMSG),
        }
    }
}

/// Whether there is one, and it.
impl<T: Field> Field for Option<T> {
    #[inline]
    fn put(&self, w: &mut Writer) {
        self.is_some().put(w);
        if let Some(v) = self {
            v.put(w);
        }
    }
    #[inline]
    fn get(r: &mut Reader<'_>) -> Result<Self> {
        bool::get(r)?.then(|| T::get(r)).transpose()
    }
}

impl<T: Field> Field for Vec<T> {
    #[inline]
    fn put(&self, w: &mut Writer) {
        T::put_all(self, w);
    }
    #[inline]
    fn get(r: &mut Reader<'_>) -> Result<Self> {
        T::get_all(r)
    }
}

/// A struct that is sent as these fields, in this order; others are as in `..rest`.
macro_rules! fields {
    ($name:ident { $($field:ident),* $(, ..$rest:expr)? }) => {
        impl $crate::wire::Field for $name {
            #[inline]
            fn put(&self, w: &mut $crate::wire::Writer) {
                $(self.$field.put(w);)*
            }
            #[inline]
            fn get(r: &mut $crate::wire::Reader<'_>) -> abi::Result<Self> {
                $(let $field = $crate::wire::Field::get(r)?;)*
                Ok($name { $($field,)* $(..$rest)? })
            }
        }
        #[cfg(test)]
        impl $crate::sample::Sample for $name {
            fn sample(s: &mut $crate::sample::Samples<'_>) -> Self {
                $(let $field = $crate::sample::Sample::sample(s);)*
                $name { $($field,)* $(..$rest)? }
            }
        }
    };
}

/// An enum of which each variant is a row: its number, its name, and what is sent of it, in this
/// order. Another number is `EBADMSG`.
macro_rules! tagged {
    ($(#[$meta:meta])* pub enum $enum:ident {$(
        $(#[$doc:meta])* $tag:literal = $name:ident
        $(($($of:ident: $of_type:ty),+))?
        $({$($(#[$field_doc:meta])* $field:ident: $type:ty),+ $(,)?})?
    ),+ $(,)?}) => {
        $(#[$meta])*
        pub enum $enum {$(
            $(#[$doc])* $name
            $(($($of_type),+))?
            $({$($(#[$field_doc])* $field: $type),+})?
        ),+}

        impl $crate::wire::Field for $enum {
            #[inline]
            fn put(&self, w: &mut $crate::wire::Writer) {
                match self {$(
                    $enum::$name $(($($of),+))? $({$($field),+})? => {
                        w.u8($tag);
                        $($($of.put(w);)+)?
                        $($($field.put(w);)+)?
                    }
                )+}
            }
            #[inline]
            fn get(r: &mut $crate::wire::Reader<'_>) -> abi::Result<Self> {
                match r.u8()? {
                    $($tag => {
                        $($(let $of = $crate::wire::Field::get(r)?;)+)?
                        $($(let $field = $crate::wire::Field::get(r)?;)+)?
                        Ok($enum::$name $(($($of),+))? $({$($field),+})?)
                    })+
                    _ => Err(abi::errno::EBADMSG),
                }
            }
        }

        #[cfg(test)]
        impl $crate::sample::Sample for $enum {
            fn sample(s: &mut $crate::sample::Samples<'_>) -> Self {
                let rows: &[fn(&mut $crate::sample::Samples<'_>) -> Self] = &[$(|_s| {
                    $($(let $of = $crate::sample::Sample::sample(_s);)+)?
                    $($(let $field = $crate::sample::Sample::sample(_s);)+)?
                    $enum::$name $(($($of),+))? $({$($field),+})?
                }),+];
                s.pick(rows)(s)
            }
        }
    };
}

pub(crate) use {fields, tagged};
