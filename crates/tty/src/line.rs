//! The line discipline, as a machine without locks: bytes from the master go in, cells for the
//! slave and echo for the master come out.
//!
//! Input is a queue of [`Cell`]s. In canonical mode the first `committed` of them are finished
//! lines; only those after them can be edited. Names and cases follow `n_tty.c`, so that they can
//! be compared.

use crate::termios::*;
use abi::Signal;
use abi::signal::{SIGINT, SIGQUIT, SIGTSTP};
use ipc::ring::ByteRing;
use std::collections::VecDeque;

/// Linux's N_TTY_BUF_SIZE, less the one cell that it keeps free.
pub const INPUT_MAX: usize = 4095;
/// How much output waits for the master.
pub const OUTPUT_MAX: usize = 32768;
/// Echo may go beyond that by so much.
const ECHO_MAX: usize = 4096;
/// A write starts only with this much room: it is what poll promises.
pub const WRITE_ROOM: usize = 4096;

/// A byte of input. `end`: it ends a line. `eof`: it ends a line, and is not read itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cell {
    pub byte: u8,
    pub end: bool,
    pub eof: bool,
}

/// What packet mode reports (`TIOCPKT_*`).
pub mod packet {
    pub const FLUSHREAD: u8 = 1;
    pub const FLUSHWRITE: u8 = 2;
    pub const STOP: u8 = 4;
    pub const START: u8 = 8;
    pub const NOSTOP: u8 = 16;
    pub const DOSTOP: u8 = 32;
}

/// The machine.
pub struct Line {
    pub termios: Termios,
    pub input: VecDeque<Cell>,
    pub committed: usize,
    /// The next byte is literal (LNEXT).
    lnext: bool,
    /// Inside a `\…/` of ECHOPRT.
    erasing: bool,
    /// The pending cells came from a change of mode: their first line may be read in pieces.
    pub column: usize,
    canon_column: usize,
    pub output: ByteRing,
    /// Echo that waits while the output is stopped.
    held_echo: Vec<u8>,
    /// Output stopped by the STOP character or TCOOFF.
    pub stopped: bool,
    /// By TCOOFF: the characters do not start it.
    pub tco_stopped: bool,
    /// Events for packet mode that the master has not read yet.
    pub packet_status: u8,
    /// Signals for the foreground process group that the caller must send.
    pub signals: Vec<Signal>,
}

fn is_control(c: u8) -> bool {
    c < 0x20 || c == 0x7f
}

/// ISO 8859-1's letters count as words, as they do in the kernel's ctype table.
fn is_word(c: u8) -> bool {
    c.is_ascii_alphanumeric() || c == b'_' || (c >= 0xc0 && c != 0xd7 && c != 0xf7)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Erase {
    Char,
    Word,
    Line,
}

/// What asks whether there is something to read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Asks {
    /// A read takes what there is.
    Read,
    /// poll(2) tells of VMIN bytes.
    Poll,
}

impl Line {
    pub fn new() -> Line {
        Line {
            termios: Termios::default(),
            input: VecDeque::new(),
            committed: 0,
            lnext: false,
            erasing: false,
            column: 0,
            canon_column: 0,
            output: ByteRing::new(),
            held_echo: Vec::new(),
            stopped: false,
            tco_stopped: false,
            packet_status: 0,
            signals: Vec::new(),
        }
    }

    fn canonical(&self) -> bool {
        self.termios.local(ICANON) && !self.termios.local(EXTPROC)
    }

    // Input

    /// How many bytes may come in now. A line that is too long still takes bytes, and loses them.
    pub fn room(&self) -> usize {
        let free = INPUT_MAX.saturating_sub(self.input.len());
        if free == 0 && self.canonical() && self.committed == 0 {
            1
        } else {
            free
        }
    }

    /// Whether there is something for a read, or so much that poll(2) tells of it.
    pub fn readable(&self, asks: Asks) -> bool {
        if self.canonical() {
            return self.committed > 0;
        }
        let (min, time) = (self.termios.cc[VMIN], self.termios.cc[VTIME]);
        let need = if asks == Asks::Poll && time == 0 && min > 0 {
            usize::from(min)
        } else {
            1
        };
        self.input.len() >= need
    }

    /// FIONREAD.
    pub fn available(&self) -> usize {
        if self.canonical() {
            return self
                .input
                .iter()
                .take(self.committed)
                .filter(|c| !c.eof)
                .count();
        }
        self.input.len()
    }

    fn put(&mut self, byte: u8) {
        self.put_cell(Cell {
            byte,
            end: false,
            eof: false,
        });
    }

    fn put_cell(&mut self, c: Cell) {
        if self.input.len() >= INPUT_MAX && self.canonical() && self.committed < self.input.len() {
            // The line is full: the new cell takes the last one's place, so that an end can still
            // come.
            self.input.pop_back();
        }
        self.input.push_back(c);
    }

    /// Bytes that the master wrote.
    pub fn receive(&mut self, bytes: &[u8]) {
        for &b in bytes {
            self.receive_byte(b);
        }
    }

    fn receive_byte(&mut self, mut c: u8) {
        let t = self.termios;
        if t.input(ISTRIP) {
            c &= 0x7f;
        }
        if t.input(IUCLC) && t.local(IEXTEN) {
            c = c.to_ascii_lowercase();
        }
        if t.local(EXTPROC) {
            self.put(c);
            return;
        }
        if self.lnext {
            self.lnext = false;
            self.receive_plain(c);
            return;
        }
        if t.input(IXON) {
            if t.is(VSTART, c) {
                self.start();
                return;
            }
            if t.is(VSTOP, c) {
                self.stop();
                return;
            }
        }
        if t.local(ISIG) {
            for (which, signal) in [(VINTR, SIGINT), (VQUIT, SIGQUIT), (VSUSP, SIGTSTP)] {
                if t.is(which, c) {
                    self.receive_signal(signal, c);
                    return;
                }
            }
        }
        self.restart_on_any();
        match c {
            b'\r' if t.input(IGNCR) => return,
            b'\r' if t.input(ICRNL) => c = b'\n',
            b'\n' if t.input(INLCR) => c = b'\r',
            _ => {}
        }
        if t.local(ICANON) && self.receive_canonical(c) {
            return;
        }
        if t.local(ECHO) {
            self.finish_erasing();
            if c == b'\n' {
                self.echo_raw(b'\n');
            } else {
                self.note_canon_column();
                self.echo(c);
            }
        }
        self.put_marked(c);
    }

    /// A byte without meaning of its own.
    fn receive_plain(&mut self, c: u8) {
        self.restart_on_any();
        if self.termios.local(ECHO) {
            self.finish_erasing();
            self.note_canon_column();
            self.echo(c);
        }
        self.put_marked(c);
    }

    fn put_marked(&mut self, c: u8) {
        if c == 0xff && self.termios.input(PARMRK) {
            self.put(c);
        }
        self.put(c);
    }

    fn restart_on_any(&mut self) {
        if self.stopped
            && !self.tco_stopped
            && self.termios.input(IXON)
            && self.termios.input(IXANY)
        {
            self.start();
        }
    }

    fn receive_signal(&mut self, signal: Signal, c: u8) {
        self.signals.push(signal);
        if !self.termios.local(NOFLSH) {
            self.flush_output();
            self.flush_input();
        }
        if self.termios.input(IXON) {
            self.start();
        }
        if self.termios.local(ECHO) {
            self.echo(c);
        }
    }

    /// The special characters of canonical mode; whether `c` was one.
    fn receive_canonical(&mut self, c: u8) -> bool {
        let t = self.termios;
        let ext = t.local(IEXTEN);
        if t.is(VERASE, c) {
            self.erase(Erase::Char, c);
        } else if t.is(VKILL, c) {
            self.erase(Erase::Line, c);
        } else if ext && t.is(VWERASE, c) {
            self.erase(Erase::Word, c);
        } else if ext && t.is(VLNEXT, c) {
            self.lnext = true;
            if t.local(ECHO) {
                self.finish_erasing();
                if t.local(ECHOCTL) {
                    self.echo_raw(b'^');
                    self.echo_raw(0x08);
                }
            }
        } else if ext && t.local(ECHO) && t.is(VREPRINT, c) {
            self.finish_erasing();
            self.echo(c);
            self.echo_raw(b'\n');
            let pending: Vec<u8> = self
                .input
                .iter()
                .skip(self.committed)
                .map(|c| c.byte)
                .collect();
            for b in pending {
                self.echo(b);
            }
        } else if c == b'\n' {
            if t.local(ECHO) || t.local(ECHONL) {
                self.echo_raw(b'\n');
            }
            self.end_line(Cell {
                byte: c,
                end: true,
                eof: false,
            });
        } else if t.is(VEOF, c) {
            self.end_line(Cell {
                byte: 0,
                end: true,
                eof: true,
            });
        } else if t.is(VEOL, c) || (ext && t.is(VEOL2, c)) {
            if t.local(ECHO) {
                self.note_canon_column();
                self.echo(c);
            }
            if c == 0xff && t.input(PARMRK) {
                self.put(c);
            }
            self.end_line(Cell {
                byte: c,
                end: true,
                eof: false,
            });
        } else {
            return false;
        }
        true
    }

    fn end_line(&mut self, c: Cell) {
        self.put_cell(c);
        self.committed = self.input.len();
    }

    fn is_continuation(&self, c: u8) -> bool {
        self.termios.input(IUTF8) && c & 0xc0 == 0x80
    }

    /// The cells that are being edited.
    fn editing(&self) -> usize {
        self.input.len() - self.committed
    }

    /// n_tty's `eraser`.
    fn erase(&mut self, mut kind: Erase, c: u8) {
        let t = self.termios;
        if self.editing() == 0 {
            return;
        }
        if kind == Erase::Line {
            if !t.local(ECHO) {
                self.input.truncate(self.committed);
                return;
            }
            if !t.local(ECHOK) || !t.local(ECHOKE) || !t.local(ECHOE) {
                self.input.truncate(self.committed);
                self.finish_erasing();
                self.echo(c);
                if t.local(ECHOK) {
                    self.echo_raw(b'\n');
                }
                return;
            }
            kind = Erase::Line;
        }
        let mut seen_word = false;
        while self.editing() > 0 {
            // One character, of several bytes perhaps.
            let mut head = self.input.len();
            loop {
                head -= 1;
                if !self.is_continuation(self.input[head].byte) || head == self.committed {
                    break;
                }
            }
            let first = self.input[head].byte;
            if self.is_continuation(first) {
                break; // Only a part of a character is left.
            }
            if kind == Erase::Word {
                if is_word(first) {
                    seen_word = true;
                } else if seen_word {
                    break;
                }
            }
            let gone: Vec<u8> = self.input.drain(head..).map(|c| c.byte).collect();
            if t.local(ECHO) {
                self.echo_erased(kind, &gone);
            }
            if kind == Erase::Char {
                break;
            }
        }
        if self.editing() == 0 && t.local(ECHO) {
            self.finish_erasing();
        }
    }

    fn echo_erased(&mut self, kind: Erase, gone: &[u8]) {
        let t = self.termios;
        let first = gone[0];
        if t.local(ECHOPRT) {
            if !self.erasing {
                self.echo_raw(b'\\');
                self.erasing = true;
            }
            self.echo(first);
            for &b in &gone[1..] {
                self.echo_raw(b);
            }
        } else if kind == Erase::Char && !t.local(ECHOE) {
            self.echo(t.cc[VERASE]);
        } else if first == b'\t' {
            // Columns since the last tab, or since the input began.
            let (mut columns, mut after_tab) = (0, false);
            for cell in self.input.iter().skip(self.committed).rev() {
                if cell.byte == b'\t' {
                    after_tab = true;
                    break;
                }
                if is_control(cell.byte) {
                    columns += if t.local(ECHOCTL) { 2 } else { 0 };
                } else if !self.is_continuation(cell.byte) {
                    columns += 1;
                }
            }
            if !after_tab {
                columns += self.canon_column;
            }
            for _ in 0..8 - (columns & 7) {
                self.emit(&[0x08]);
                self.column = self.column.saturating_sub(1);
            }
        } else {
            let rub = |l: &mut Line| {
                for b in [0x08, b' ', 0x08] {
                    l.echo_raw(b);
                }
            };
            if is_control(first) && t.local(ECHOCTL) {
                rub(self);
            }
            if !is_control(first) || t.local(ECHOCTL) {
                rub(self);
            }
        }
    }

    fn finish_erasing(&mut self) {
        if self.erasing {
            self.echo_raw(b'/');
            self.erasing = false;
        }
    }

    fn note_canon_column(&mut self) {
        if self.editing() == 0 {
            self.canon_column = self.column;
        }
    }

    /// Echoes a byte; control characters as `^X` with ECHOCTL.
    fn echo(&mut self, c: u8) {
        if self.termios.local(ECHOCTL) && is_control(c) && c != b'\t' {
            self.emit(&[b'^', c ^ 0x40]);
            self.column += 2;
        } else {
            self.echo_raw(c);
        }
    }

    fn echo_raw(&mut self, c: u8) {
        if self.termios.output(OPOST) {
            let mut out = Vec::with_capacity(8);
            self.process(c, &mut out);
            self.emit(&out);
        } else {
            self.emit(&[c]);
        }
    }

    /// Appends echo to the output.
    fn emit(&mut self, bytes: &[u8]) {
        if self.stopped {
            if self.held_echo.len() + bytes.len() <= ECHO_MAX {
                self.held_echo.extend_from_slice(bytes);
            }
        } else if self.output.len() + bytes.len() <= OUTPUT_MAX + ECHO_MAX {
            self.output.push(bytes);
        }
    }

    // Reading

    /// Moves up to `max` bytes out. In canonical mode: at most one line.
    pub fn take(&mut self, max: usize) -> Vec<u8> {
        if !self.canonical() {
            let n = max.min(self.input.len());
            self.committed = self.committed.saturating_sub(n);
            return self.input.drain(..n).map(|c| c.byte).collect();
        }
        let mut out = Vec::new();
        let mut ended = false;
        while out.len() < max && self.committed > 0 {
            let Some(c) = self.input.pop_front() else {
                break;
            };
            self.committed -= 1;
            if !c.eof {
                out.push(c.byte);
            }
            if c.end {
                ended = true;
                break;
            }
        }
        // A buffer that was filled exactly does not leave the end of file for the next read.
        if !ended
            && !out.is_empty()
            && self.committed > 0
            && self.input.front().is_some_and(|c| c.eof)
        {
            self.input.pop_front();
            self.committed -= 1;
        }
        out
    }

    // Output

    /// Whether a write may start.
    pub fn writable(&self) -> bool {
        !self.stopped && self.output.len() + WRITE_ROOM <= OUTPUT_MAX
    }

    /// How many bytes of a write fit, at the worst expansion (a tab becomes 8 spaces).
    pub fn write_room(&self) -> usize {
        if self.stopped {
            return 0;
        }
        let free = OUTPUT_MAX.saturating_sub(self.output.len());
        if self.termios.output(OPOST) {
            free / 8
        } else {
            free
        }
    }

    /// Bytes that the slave wrote.
    pub fn write(&mut self, mut bytes: &[u8]) {
        if !self.termios.output(OPOST) {
            self.output.push(bytes);
            return;
        }
        let upper = self.termios.output(OLCUC);
        while let Some(&c) = bytes.first() {
            // Runs of plain characters go as they are.
            let plain = if upper {
                0
            } else {
                bytes.iter().take_while(|b| !is_control(**b)).count()
            };
            if plain > 0 {
                self.output.push(&bytes[..plain]);
                self.column += if self.termios.input(IUTF8) {
                    bytes[..plain].iter().filter(|b| **b & 0xc0 != 0x80).count()
                } else {
                    plain
                };
                bytes = &bytes[plain..];
                continue;
            }
            let mut out = Vec::with_capacity(8);
            self.process(c, &mut out);
            self.output.push(&out);
            bytes = &bytes[1..];
        }
    }

    /// n_tty's `do_output_char`.
    fn process(&mut self, mut c: u8, out: &mut Vec<u8>) {
        let t = self.termios;
        match c {
            b'\n' => {
                if t.output(ONLRET) {
                    self.column = 0;
                }
                if t.output(ONLCR) {
                    self.column = 0;
                    self.canon_column = 0;
                    out.extend_from_slice(b"\r\n");
                    return;
                }
                self.canon_column = self.column;
            }
            b'\r' => {
                if t.output(ONOCR) && self.column == 0 {
                    return;
                }
                if t.output(OCRNL) {
                    c = b'\n';
                    if t.output(ONLRET) {
                        self.column = 0;
                        self.canon_column = 0;
                    }
                } else {
                    self.column = 0;
                    self.canon_column = 0;
                }
            }
            b'\t' => {
                let spaces = 8 - (self.column & 7);
                self.column += spaces;
                if t.oflag & TABDLY == XTABS {
                    out.resize(out.len() + spaces, b' ');
                    return;
                }
            }
            0x08 => self.column = self.column.saturating_sub(1),
            _ => {
                if !is_control(c) {
                    if t.output(OLCUC) {
                        c = c.to_ascii_uppercase();
                    }
                    if !self.is_continuation(c) {
                        self.column += 1;
                    }
                }
            }
        }
        out.push(c);
    }

    // Control

    pub fn stop(&mut self) {
        if !self.stopped {
            self.stopped = true;
            self.packet_status = (self.packet_status & !packet::START) | packet::STOP;
        }
    }
    pub fn start(&mut self) {
        if self.stopped && !self.tco_stopped {
            self.stopped = false;
            self.packet_status = (self.packet_status & !packet::STOP) | packet::START;
            let held = std::mem::take(&mut self.held_echo);
            self.emit(&held);
        }
    }
    pub fn flush_input(&mut self) {
        self.input.clear();
        self.committed = 0;
        self.lnext = false;
        self.erasing = false;
        self.packet_status |= packet::FLUSHREAD;
    }
    pub fn flush_output(&mut self) {
        self.output.clear();
        self.held_echo.clear();
        self.packet_status |= packet::FLUSHWRITE;
    }

    /// n_tty's `set_termios`: a change of mode changes what the pending bytes mean.
    pub fn set_termios(&mut self, new: Termios) {
        let old = std::mem::replace(&mut self.termios, new);
        if (old.lflag ^ new.lflag) & (ICANON | EXTPROC) != 0 {
            for c in &mut self.input {
                c.end = false;
                c.eof = false;
            }
            self.committed = 0;
            if new.local(ICANON)
                && let Some(last) = self.input.back_mut()
            {
                last.end = true;
                self.committed = self.input.len();
            }
            self.erasing = false;
            self.lnext = false;
        }
        if old.input(IXON) && !new.input(IXON) && !self.tco_stopped {
            self.start();
        }
        // Packet mode tells whether ^S and ^Q work as flow control.
        let flow = |t: &Termios| t.input(IXON) && t.cc[VSTOP] == 0x13 && t.cc[VSTART] == 0x11;
        match (flow(&old), flow(&new)) {
            (true, false) => {
                self.packet_status = (self.packet_status & !packet::DOSTOP) | packet::NOSTOP;
            }
            (false, true) => {
                self.packet_status = (self.packet_status & !packet::NOSTOP) | packet::DOSTOP;
            }
            _ => {}
        }
    }
}
