//! Error numbers (`errno(3)`, `include/uapi/asm-generic/errno*.h`).

use core::fmt;

/// A Linux error number, 1..=4095. Never zero.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Errno(u16);

/// What a system call's implementation gives: a value, or the error number for the application.
pub type Result<T> = core::result::Result<T, Errno>;

impl Errno {
    /// The error with this number; `None` outside 1..=4095.
    #[must_use]
    pub const fn new(raw: i32) -> Option<Self> {
        if raw >= 1 && raw <= 4095 {
            Some(Self(raw as u16))
        } else {
            None
        }
    }

    /// The number, positive.
    #[must_use]
    pub const fn raw(self) -> i32 {
        self.0 as i32
    }

    /// Whether this is one of the kernel-internal restart codes, which never reach the application
    /// (`include/linux/errno.h`).
    #[must_use]
    pub const fn is_restart(self) -> bool {
        matches!(self.0, 512 | 513 | 514 | 516)
    }

    /// The symbolic name, `"EPERM"`; `"E?"` where Linux has none.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self.0 {
            1 => "EPERM",
            2 => "ENOENT",
            3 => "ESRCH",
            4 => "EINTR",
            5 => "EIO",
            6 => "ENXIO",
            7 => "E2BIG",
            8 => "ENOEXEC",
            9 => "EBADF",
            10 => "ECHILD",
            11 => "EAGAIN",
            12 => "ENOMEM",
            13 => "EACCES",
            14 => "EFAULT",
            15 => "ENOTBLK",
            16 => "EBUSY",
            17 => "EEXIST",
            18 => "EXDEV",
            19 => "ENODEV",
            20 => "ENOTDIR",
            21 => "EISDIR",
            22 => "EINVAL",
            23 => "ENFILE",
            24 => "EMFILE",
            25 => "ENOTTY",
            26 => "ETXTBSY",
            27 => "EFBIG",
            28 => "ENOSPC",
            29 => "ESPIPE",
            30 => "EROFS",
            31 => "EMLINK",
            32 => "EPIPE",
            33 => "EDOM",
            34 => "ERANGE",
            35 => "EDEADLK",
            36 => "ENAMETOOLONG",
            37 => "ENOLCK",
            38 => "ENOSYS",
            39 => "ENOTEMPTY",
            40 => "ELOOP",
            42 => "ENOMSG",
            43 => "EIDRM",
            44 => "ECHRNG",
            45 => "EL2NSYNC",
            46 => "EL3HLT",
            47 => "EL3RST",
            48 => "ELNRNG",
            49 => "EUNATCH",
            50 => "ENOCSI",
            51 => "EL2HLT",
            52 => "EBADE",
            53 => "EBADR",
            54 => "EXFULL",
            55 => "ENOANO",
            56 => "EBADRQC",
            57 => "EBADSLT",
            59 => "EBFONT",
            60 => "ENOSTR",
            61 => "ENODATA",
            62 => "ETIME",
            63 => "ENOSR",
            64 => "ENONET",
            65 => "ENOPKG",
            66 => "EREMOTE",
            67 => "ENOLINK",
            68 => "EADV",
            69 => "ESRMNT",
            70 => "ECOMM",
            71 => "EPROTO",
            72 => "EMULTIHOP",
            73 => "EDOTDOT",
            74 => "EBADMSG",
            75 => "EOVERFLOW",
            76 => "ENOTUNIQ",
            77 => "EBADFD",
            78 => "EREMCHG",
            79 => "ELIBACC",
            80 => "ELIBBAD",
            81 => "ELIBSCN",
            82 => "ELIBMAX",
            83 => "ELIBEXEC",
            84 => "EILSEQ",
            85 => "ERESTART",
            86 => "ESTRPIPE",
            87 => "EUSERS",
            88 => "ENOTSOCK",
            89 => "EDESTADDRREQ",
            90 => "EMSGSIZE",
            91 => "EPROTOTYPE",
            92 => "ENOPROTOOPT",
            93 => "EPROTONOSUPPORT",
            94 => "ESOCKTNOSUPPORT",
            95 => "EOPNOTSUPP",
            96 => "EPFNOSUPPORT",
            97 => "EAFNOSUPPORT",
            98 => "EADDRINUSE",
            99 => "EADDRNOTAVAIL",
            100 => "ENETDOWN",
            101 => "ENETUNREACH",
            102 => "ENETRESET",
            103 => "ECONNABORTED",
            104 => "ECONNRESET",
            105 => "ENOBUFS",
            106 => "EISCONN",
            107 => "ENOTCONN",
            108 => "ESHUTDOWN",
            109 => "ETOOMANYREFS",
            110 => "ETIMEDOUT",
            111 => "ECONNREFUSED",
            112 => "EHOSTDOWN",
            113 => "EHOSTUNREACH",
            114 => "EALREADY",
            115 => "EINPROGRESS",
            116 => "ESTALE",
            117 => "EUCLEAN",
            118 => "ENOTNAM",
            119 => "ENAVAIL",
            120 => "EISNAM",
            121 => "EREMOTEIO",
            122 => "EDQUOT",
            123 => "ENOMEDIUM",
            124 => "EMEDIUMTYPE",
            125 => "ECANCELED",
            126 => "ENOKEY",
            127 => "EKEYEXPIRED",
            128 => "EKEYREVOKED",
            129 => "EKEYREJECTED",
            130 => "EOWNERDEAD",
            131 => "ENOTRECOVERABLE",
            132 => "ERFKILL",
            133 => "EHWPOISON",
            512 => "ERESTARTSYS",
            513 => "ERESTARTNOINTR",
            514 => "ERESTARTNOHAND",
            516 => "ERESTART_RESTARTBLOCK",
            _ => "E?",
        }
    }
}

impl fmt::Debug for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}({})", self.name(), self.0)
    }
}

impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.words())
    }
}

impl core::error::Error for Errno {}

pub const EPERM: Errno = Errno(1);
pub const ENOENT: Errno = Errno(2);
pub const ESRCH: Errno = Errno(3);
pub const EINTR: Errno = Errno(4);
pub const EIO: Errno = Errno(5);
pub const ENXIO: Errno = Errno(6);
pub const E2BIG: Errno = Errno(7);
pub const ENOEXEC: Errno = Errno(8);
pub const EBADF: Errno = Errno(9);
pub const ECHILD: Errno = Errno(10);
pub const EAGAIN: Errno = Errno(11);
pub const ENOMEM: Errno = Errno(12);
pub const EACCES: Errno = Errno(13);
pub const EFAULT: Errno = Errno(14);
pub const ENOTBLK: Errno = Errno(15);
pub const EBUSY: Errno = Errno(16);
pub const EEXIST: Errno = Errno(17);
pub const EXDEV: Errno = Errno(18);
pub const ENODEV: Errno = Errno(19);
pub const ENOTDIR: Errno = Errno(20);
pub const EISDIR: Errno = Errno(21);
pub const EINVAL: Errno = Errno(22);
pub const ENFILE: Errno = Errno(23);
pub const EMFILE: Errno = Errno(24);
pub const ENOTTY: Errno = Errno(25);
pub const ETXTBSY: Errno = Errno(26);
pub const EFBIG: Errno = Errno(27);
pub const ENOSPC: Errno = Errno(28);
pub const ESPIPE: Errno = Errno(29);
pub const EROFS: Errno = Errno(30);
pub const EMLINK: Errno = Errno(31);
pub const EPIPE: Errno = Errno(32);
pub const EDOM: Errno = Errno(33);
pub const ERANGE: Errno = Errno(34);
pub const EDEADLK: Errno = Errno(35);
pub const ENAMETOOLONG: Errno = Errno(36);
pub const ENOLCK: Errno = Errno(37);
pub const ENOSYS: Errno = Errno(38);
pub const ENOTEMPTY: Errno = Errno(39);
pub const ELOOP: Errno = Errno(40);
pub const ENOMSG: Errno = Errno(42);
pub const EIDRM: Errno = Errno(43);
pub const ECHRNG: Errno = Errno(44);
pub const EL2NSYNC: Errno = Errno(45);
pub const EL3HLT: Errno = Errno(46);
pub const EL3RST: Errno = Errno(47);
pub const ELNRNG: Errno = Errno(48);
pub const EUNATCH: Errno = Errno(49);
pub const ENOCSI: Errno = Errno(50);
pub const EL2HLT: Errno = Errno(51);
pub const EBADE: Errno = Errno(52);
pub const EBADR: Errno = Errno(53);
pub const EXFULL: Errno = Errno(54);
pub const ENOANO: Errno = Errno(55);
pub const EBADRQC: Errno = Errno(56);
pub const EBADSLT: Errno = Errno(57);
pub const EBFONT: Errno = Errno(59);
pub const ENOSTR: Errno = Errno(60);
pub const ENODATA: Errno = Errno(61);
pub const ETIME: Errno = Errno(62);
pub const ENOSR: Errno = Errno(63);
pub const ENONET: Errno = Errno(64);
pub const ENOPKG: Errno = Errno(65);
pub const EREMOTE: Errno = Errno(66);
pub const ENOLINK: Errno = Errno(67);
pub const EADV: Errno = Errno(68);
pub const ESRMNT: Errno = Errno(69);
pub const ECOMM: Errno = Errno(70);
pub const EPROTO: Errno = Errno(71);
pub const EMULTIHOP: Errno = Errno(72);
pub const EDOTDOT: Errno = Errno(73);
pub const EBADMSG: Errno = Errno(74);
pub const EOVERFLOW: Errno = Errno(75);
pub const ENOTUNIQ: Errno = Errno(76);
pub const EBADFD: Errno = Errno(77);
pub const EREMCHG: Errno = Errno(78);
pub const ELIBACC: Errno = Errno(79);
pub const ELIBBAD: Errno = Errno(80);
pub const ELIBSCN: Errno = Errno(81);
pub const ELIBMAX: Errno = Errno(82);
pub const ELIBEXEC: Errno = Errno(83);
pub const EILSEQ: Errno = Errno(84);
pub const ERESTART: Errno = Errno(85);
pub const ESTRPIPE: Errno = Errno(86);
pub const EUSERS: Errno = Errno(87);
pub const ENOTSOCK: Errno = Errno(88);
pub const EDESTADDRREQ: Errno = Errno(89);
pub const EMSGSIZE: Errno = Errno(90);
pub const EPROTOTYPE: Errno = Errno(91);
pub const ENOPROTOOPT: Errno = Errno(92);
pub const EPROTONOSUPPORT: Errno = Errno(93);
pub const ESOCKTNOSUPPORT: Errno = Errno(94);
pub const EOPNOTSUPP: Errno = Errno(95);
pub const EPFNOSUPPORT: Errno = Errno(96);
pub const EAFNOSUPPORT: Errno = Errno(97);
pub const EADDRINUSE: Errno = Errno(98);
pub const EADDRNOTAVAIL: Errno = Errno(99);
pub const ENETDOWN: Errno = Errno(100);
pub const ENETUNREACH: Errno = Errno(101);
pub const ENETRESET: Errno = Errno(102);
pub const ECONNABORTED: Errno = Errno(103);
pub const ECONNRESET: Errno = Errno(104);
pub const ENOBUFS: Errno = Errno(105);
pub const EISCONN: Errno = Errno(106);
pub const ENOTCONN: Errno = Errno(107);
pub const ESHUTDOWN: Errno = Errno(108);
pub const ETOOMANYREFS: Errno = Errno(109);
pub const ETIMEDOUT: Errno = Errno(110);
pub const ECONNREFUSED: Errno = Errno(111);
pub const EHOSTDOWN: Errno = Errno(112);
pub const EHOSTUNREACH: Errno = Errno(113);
pub const EALREADY: Errno = Errno(114);
pub const EINPROGRESS: Errno = Errno(115);
pub const ESTALE: Errno = Errno(116);
pub const EUCLEAN: Errno = Errno(117);
pub const ENOTNAM: Errno = Errno(118);
pub const ENAVAIL: Errno = Errno(119);
pub const EISNAM: Errno = Errno(120);
pub const EREMOTEIO: Errno = Errno(121);
pub const EDQUOT: Errno = Errno(122);
pub const ENOMEDIUM: Errno = Errno(123);
pub const EMEDIUMTYPE: Errno = Errno(124);
pub const ECANCELED: Errno = Errno(125);
pub const ENOKEY: Errno = Errno(126);
pub const EKEYEXPIRED: Errno = Errno(127);
pub const EKEYREVOKED: Errno = Errno(128);
pub const EKEYREJECTED: Errno = Errno(129);
pub const EOWNERDEAD: Errno = Errno(130);
pub const ENOTRECOVERABLE: Errno = Errno(131);
pub const ERFKILL: Errno = Errno(132);
pub const EHWPOISON: Errno = Errno(133);
/// `EAGAIN` by its other name.
pub const EWOULDBLOCK: Errno = EAGAIN;
/// `EOPNOTSUPP` by its other name.
pub const ENOTSUP: Errno = EOPNOTSUPP;
/// Interrupted: restart if the handler has `SA_RESTART`, else `EINTR`.
pub const ERESTARTSYS: Errno = Errno(512);
/// Interrupted: restart always.
pub const ERESTARTNOINTR: Errno = Errno(513);
/// Interrupted: `EINTR` if a handler ran, else restart.
pub const ERESTARTNOHAND: Errno = Errno(514);
/// Interrupted: `EINTR` if a handler ran, else restart through `restart_syscall(2)`.
pub const ERESTART_RESTARTBLOCK: Errno = Errno(516);
