//! `struct termios` and `struct termios2` as the kernel has them (`termios(3)`,
//! `include/uapi/asm-generic/termbits.h`).

use abi::Result;
use abi::errno::EINVAL;

// Input flags
pub const IGNBRK: u32 = 0o1;
pub const ISTRIP: u32 = 0o40;
pub const INLCR: u32 = 0o100;
pub const IGNCR: u32 = 0o200;
pub const ICRNL: u32 = 0o400;
pub const IUCLC: u32 = 0o1000;
pub const IXON: u32 = 0o2000;
pub const IXANY: u32 = 0o4000;
pub const IXOFF: u32 = 0o10000;
pub const IMAXBEL: u32 = 0o20000;
pub const IUTF8: u32 = 0o40000;
pub const PARMRK: u32 = 0o10;

// Output flags
pub const OPOST: u32 = 0o1;
pub const OLCUC: u32 = 0o2;
pub const ONLCR: u32 = 0o4;
pub const OCRNL: u32 = 0o10;
pub const ONOCR: u32 = 0o20;
pub const ONLRET: u32 = 0o40;
pub const TABDLY: u32 = 0o14000;
pub const XTABS: u32 = 0o14000;

// Control flags
pub const B38400: u32 = 0o17;
pub const CS8: u32 = 0o60;
pub const CREAD: u32 = 0o200;
pub const CSIZE: u32 = 0o60;
pub const PARENB: u32 = 0o400;
pub const CBAUD: u32 = 0o10017;
pub const BOTHER: u32 = 0o10000;

// Local flags
pub const ISIG: u32 = 0o1;
pub const ICANON: u32 = 0o2;
pub const ECHO: u32 = 0o10;
pub const ECHOE: u32 = 0o20;
pub const ECHOK: u32 = 0o40;
pub const ECHONL: u32 = 0o100;
pub const NOFLSH: u32 = 0o200;
pub const TOSTOP: u32 = 0o400;
pub const ECHOCTL: u32 = 0o1000;
pub const ECHOPRT: u32 = 0o2000;
pub const ECHOKE: u32 = 0o4000;
pub const IEXTEN: u32 = 0o100000;
pub const EXTPROC: u32 = 0o200000;

// Control characters
pub const VINTR: usize = 0;
pub const VQUIT: usize = 1;
pub const VERASE: usize = 2;
pub const VKILL: usize = 3;
pub const VEOF: usize = 4;
pub const VTIME: usize = 5;
pub const VMIN: usize = 6;
pub const VSTART: usize = 8;
pub const VSTOP: usize = 9;
pub const VSUSP: usize = 10;
pub const VEOL: usize = 11;
pub const VREPRINT: usize = 12;
pub const VWERASE: usize = 14;
pub const VLNEXT: usize = 15;
pub const VEOL2: usize = 16;

/// How many control characters there are.
pub const NCCS: usize = 19;
/// The sizes of the two structs.
pub const TERMIOS_SIZE: usize = 36;
pub const TERMIOS2_SIZE: usize = 44;

/// A terminal's settings.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Termios {
    pub iflag: u32,
    pub oflag: u32,
    pub cflag: u32,
    pub lflag: u32,
    pub line: u8,
    pub cc: [u8; NCCS],
    pub ispeed: u32,
    pub ospeed: u32,
}

impl Default for Termios {
    /// Linux's `tty_std_termios`, as a pty's slave starts.
    fn default() -> Termios {
        Termios {
            iflag: ICRNL | IXON,
            oflag: OPOST | ONLCR,
            cflag: B38400 | CS8 | CREAD,
            lflag: ISIG | ICANON | ECHO | ECHOE | ECHOK | ECHOCTL | ECHOKE | IEXTEN,
            line: 0,
            cc: [
                3, 28, 127, 21, 4, 0, 1, 0, 17, 19, 26, 0, 18, 15, 23, 22, 0, 0, 0,
            ],
            ispeed: 38400,
            ospeed: 38400,
        }
    }
}

/// Speeds by CBAUD's bits: the low ones, then those with BOTHER's bit.
const SPEEDS: [u32; 16] = [
    0, 50, 75, 110, 134, 150, 200, 300, 600, 1200, 1800, 2400, 4800, 9600, 19200, 38400,
];
const FAST: [u32; 16] = [
    0, 57600, 115_200, 230_400, 460_800, 500_000, 576_000, 921_600, 1_000_000, 1_152_000,
    1_500_000, 2_000_000, 2_500_000, 3_000_000, 3_500_000, 4_000_000,
];

fn speed(cbaud: u32) -> Option<u32> {
    let low = (cbaud & 0o17) as usize;
    if cbaud & BOTHER == 0 {
        Some(SPEEDS[low])
    } else {
        Some(FAST[low]).filter(|_| low != 0)
    }
}

impl Termios {
    #[must_use]
    pub fn input(&self, flag: u32) -> bool {
        self.iflag & flag != 0
    }
    #[must_use]
    pub fn output(&self, flag: u32) -> bool {
        self.oflag & flag != 0
    }
    #[must_use]
    pub fn local(&self, flag: u32) -> bool {
        self.lflag & flag != 0
    }
    /// Whether `c` is the control character `which`; 0 disables one.
    #[must_use]
    pub fn is(&self, which: usize, c: u8) -> bool {
        c != 0 && self.cc[which] == c
    }

    /// For TCGETS (`termios`, without the speeds) and TCGETS2.
    #[must_use]
    pub fn encode(&self, size: usize) -> Vec<u8> {
        let mut v = Vec::with_capacity(TERMIOS2_SIZE);
        for f in [self.iflag, self.oflag, self.cflag, self.lflag] {
            v.extend_from_slice(&f.to_le_bytes());
        }
        v.push(self.line);
        v.extend_from_slice(&self.cc);
        v.extend_from_slice(&self.ispeed.to_le_bytes());
        v.extend_from_slice(&self.ospeed.to_le_bytes());
        v.truncate(size);
        v
    }

    /// For TCSETS and TCSETS2 on a terminal with the settings `old`. A pty keeps no parity and
    /// eight bits.
    pub fn decode(b: &[u8], old: &Termios) -> Result<Termios> {
        if b.len() < TERMIOS_SIZE {
            return Err(EINVAL);
        }
        let word = |at: usize| u32::from_le_bytes([b[at], b[at + 1], b[at + 2], b[at + 3]]);
        let mut t = Termios {
            iflag: word(0),
            oflag: word(4),
            cflag: word(8),
            lflag: word(12),
            line: b[16],
            ..*old
        };
        t.cc.copy_from_slice(&b[17..36]);
        if let Some(s) = speed(t.cflag & CBAUD) {
            t.ospeed = s;
            t.ispeed = s;
        } else if b.len() >= TERMIOS2_SIZE {
            t.ispeed = word(36);
            t.ospeed = word(40);
        }
        t.cflag = (t.cflag & !(CSIZE | PARENB)) | CS8 | CREAD;
        Ok(t)
    }
}
