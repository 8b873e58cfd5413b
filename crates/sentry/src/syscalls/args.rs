//! How arguments are shown by `--strace`.

/// The kind of an argument.
#[derive(Clone, Copy, Debug)]
pub enum Arg {
    /// Signed decimal.
    Int,
    /// Unsigned decimal.
    Uint,
    /// Hexadecimal.
    Hex,
    /// A pointer that is not followed.
    Ptr,
    Fd,
    /// `AT_FDCWD` or a descriptor.
    DirFd,
    /// A NUL-terminated string.
    Path,
    /// Permission bits, octal.
    Mode,
    /// Bytes that the call reads; the length is this argument's.
    In(u8),
    /// Bytes that the call writes; as many as the result says.
    Out,
    /// A bit set with names; bits without one are shown in hexadecimal.
    Flags(&'static [(u64, &'static str)]),
    /// One of these values.
    Enum(&'static [(u64, &'static str)]),
    Signal,
    /// A `sigset_t` that the call reads.
    SigSet,
    /// A `struct timespec` that the call reads.
    Timespec,
    /// A `struct sockaddr` that the call reads; the length is this argument's.
    SockAddr(u8),
    /// An array of strings, up to a null pointer.
    Strings,
    /// `int[2]` that the call writes.
    FdPair,
    /// `open(2)` flags.
    OpenFlags,
    /// `struct stat` that the call writes.
    Stat,
    /// `int` that the call writes (a wait status, a tid).
    IntOut,
    /// An `iovec` array; the count is this argument's.
    Iovec(u8),
}
