//! Decoding, and what `--strace` shows, without an application.

use super::*;
use crate::syscalls::lookup;
use abi::errno::EINVAL;
use abi::{Va, nr};

/// How words look as an argument of a type that shows no memory.
fn shown<A: Argument>(raw: &[u64]) -> String {
    match A::SHOW {
        Show::Words(show) => show(raw),
        Show::Read(_) | Show::Written(_) => panic!("it shows memory"),
    }
}

flags! {
    struct Strict: u32, refused {
        ONE = 1,
        FOUR = 4,
    }
}

flags! {
    struct Lenient: u64, kept {
        NONE = 0,
        BOTH = 3,
        ONE = 1,
    }
}

named! {
    struct What(i32) {
        FIRST = 1,
        LAST = -1,
    }
}

#[test]
fn registers_are_cut_as_linux_cuts_them() {
    let raw = [0xdead_beef_ffff_ffff];
    assert_eq!(i32::decode(&raw), Ok(-1));
    assert_eq!(u32::decode(&raw), Ok(u32::MAX));
    assert_eq!(Fd::decode(&raw), Ok(Fd(-1)));
    assert_eq!(DirFd::decode(&[(-100i64) as u64]), Ok(DirFd::CWD));
    assert_eq!(u64::decode(&raw), Ok(raw[0]));
    assert_eq!(usize::decode(&raw), Ok(raw[0] as usize));
    assert_eq!(i64::decode(&[u64::MAX]), Ok(-1));
}

#[test]
fn strict_flags_refuse_what_they_do_not_know() {
    assert_eq!(Strict::decode(&[5]), Ok(Strict::ONE | Strict::FOUR));
    assert_eq!(Strict::decode(&[2]), Err(EINVAL));
    // The upper half of a register is not part of a flag word.
    assert_eq!(Strict::decode(&[1 << 32]), Ok(Strict::empty()));
    assert_eq!(Lenient::decode(&[8]).map(|f| f.bits()), Ok(8));
}

#[test]
fn names_keep_what_has_none() {
    assert_eq!(What::decode(&[1]), Ok(What::FIRST));
    assert_eq!(What::decode(&[7]), Ok(What(7)));
}

#[test]
fn null_pointers_are_none_where_they_may_be() {
    assert!(matches!(Option::<Va>::decode(&[0]), Ok(None)));
    assert!(matches!(Option::<Va>::decode(&[16]), Ok(Some(Va(16)))));
    let buf = Option::<BytesIn<i32>>::decode(&[16, u64::MAX]);
    assert!(matches!(
        buf,
        Ok(Some(BytesIn {
            va: Va(16),
            len: -1
        }))
    ));
}

#[test]
fn arrays_step_by_their_elements() {
    let a = UserArray::<i32>::new(Va(0x1000));
    assert_eq!(a.at(0).va(), Va(0x1000));
    assert_eq!(a.at(3).va(), Va(0x100c));
    assert_eq!(a.at(1 << 62).va(), Va(0x1000));
}

#[test]
fn words_look_as_strace_shows_them() {
    assert_eq!(shown::<Strict>(&[0]), "0");
    assert_eq!(shown::<Strict>(&[5]), "ONE|FOUR");
    assert_eq!(shown::<Strict>(&[0x11]), "ONE|0x10");
    assert_eq!(shown::<Lenient>(&[0]), "NONE");
    assert_eq!(shown::<Lenient>(&[3]), "BOTH");
    assert_eq!(shown::<Lenient>(&[9]), "ONE|0x8");
    assert_eq!(shown::<What>(&[u64::MAX]), "LAST");
    assert_eq!(shown::<What>(&[2]), "2");
    assert_eq!(shown::<Fd>(&[u64::MAX]), "-1");
    assert_eq!(shown::<DirFd>(&[(-100i64) as u64]), "AT_FDCWD");
    assert_eq!(shown::<Mode>(&[0o644]), "0644");
    assert_eq!(shown::<Uid>(&[0xffff_ffff]), "-1");
    assert_eq!(shown::<SignalNumber>(&[15]), "SIGTERM");
    assert_eq!(shown::<SignalNumber>(&[0]), "0");
    assert_eq!(shown::<Va>(&[0]), "NULL");
    assert_eq!(shown::<Option<Va>>(&[0x10]), "0x10");
    assert_eq!(shown::<OpenFlags>(&[0]), "O_RDONLY");
    assert_eq!(
        shown::<OpenFlags>(&[0o2000101]),
        "O_WRONLY|O_CREAT|O_CLOEXEC"
    );
    assert_eq!(shown::<ClockId>(&[7]), "CLOCK_BOOTTIME");
}

#[test]
fn strings_look_as_strace_shows_them() {
    assert_eq!(
        text::quoted(b"a\n\"\\\x01", text::Cut::No),
        "\"a\\n\\\"\\\\\\1\""
    );
    assert_eq!(text::quoted(b"a", text::Cut::Yes), "\"a\"...");
    let inet = [2, 0, 0, 80, 127, 0, 0, 1];
    assert_eq!(
        text::sockaddr(&inet),
        "{sa_family=AF_INET, sin_port=80, sin_addr=127.0.0.1}"
    );
    assert_eq!(
        text::sockaddr(b"\x01\0/run/x\0y"),
        "{sa_family=AF_UNIX, sun_path=\"/run/x\"}"
    );
    assert_eq!(text::sockaddr(&[10, 0]), "{sa_family=10}");
}

/// A function's signature is the row: its words are counted where two make one argument.
#[test]
fn rows_know_their_parameters() {
    let words = |nr: u32| -> usize {
        let call = lookup(nr.into()).expect("it is there");
        call.params.iter().map(|p| p.words).sum()
    };
    assert_eq!(words(nr::GETPID), 0);
    assert_eq!(words(nr::READ), 3);
    assert_eq!(words(nr::MMAP), 6);
    assert_eq!(words(nr::SENDTO), 6);
    let open = lookup(nr::OPENAT.into()).expect("it is there");
    let kinds: Vec<Kind> = open.params.iter().map(|p| p.kind).collect();
    assert_eq!(
        kinds,
        [Kind::Descriptor, Kind::Path, Kind::Other, Kind::Other]
    );
}

#[test]
fn the_table_holds_every_row_under_its_name() {
    for call in crate::syscalls::TABLE.iter().flatten() {
        assert_eq!(abi::syscalls::name(call.nr.into()), Some(call.name));
    }
}
