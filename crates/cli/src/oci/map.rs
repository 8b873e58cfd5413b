//! `cloister memory map`: a container's memory, drawn.

use super::show::{in_a_row, pretty_and_plain, print};
use clap::Args;
use config::{MapCell, MemoryMap};
use oci::{Error, Runtime};
use std::fmt::Write;
use std::io::IsTerminal;
use std::path::PathBuf;

#[derive(Args, Debug)]
#[command(after_help = "\
Each place is a part of the container's address space (CLAS) that somebody has memory in; parts that are free
are left out. Colours, or letters where there are none, say which process has most of it mapped (a dot: a file
that nobody maps); how full it is drawn says its state:

  █ in memory, and used lately      ▓ in memory      ▒ swapped out      ░ never touched

Examples:
  cloister memory map web
  cloister memory map web --svg web.svg
  cloister memory map --json web | jq '[.cells[].swapped] | add'")]
pub struct MapArgs {
    /// As JSON
    #[arg(long, conflicts_with = "svg")]
    json: bool,
    /// As a picture, into this file
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    id: String,
}

/// Of processes in their order: distinct for those who see few colours, too. As 0xRRGGBB.
const COLOURS: [u32; 8] = [
    0x0056_b4e9,
    0x00e6_9f00,
    0x0000_9e73,
    0x00cc_79a7,
    0x00d5_5e00,
    0x0000_72b2,
    0x00f0_c842,
    0x008c_564b,
];
const NOBODY: u32 = 0x0090_9090;

pub fn map(rt: &Runtime, a: &MapArgs) -> oci::Result<()> {
    let m = oci::memory_map(rt, &a.id)?;
    if a.json {
        print(&pretty_and_plain(&m));
    } else if let Some(file) = &a.svg {
        let what = |e| Error::new(format!("cannot write {}: {e}", file.display()));
        std::fs::write(file, as_svg(&m, &a.id)).map_err(what)?;
    } else {
        let is_terminal = std::io::stdout().is_terminal();
        print(as_text(&m, is_terminal).trim_end());
    }
    Ok(())
}

/// What most of a cell is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Used,
    Resident,
    Swapped,
    Untouched,
}

impl State {
    fn of(c: &MapCell) -> State {
        if c.resident == 0 && c.swapped == 0 {
            State::Untouched
        } else if c.swapped > c.resident {
            State::Swapped
        } else if c.used * 2 >= c.resident {
            State::Used
        } else {
            State::Resident
        }
    }

    fn shade(self) -> char {
        match self {
            State::Used => '█',
            State::Resident => '▓',
            State::Swapped => '▒',
            State::Untouched => '░',
        }
    }

    /// How much of the colour is seen in a picture.
    fn opacity(self) -> &'static str {
        match self {
            State::Used => "1",
            State::Resident => "0.6",
            State::Swapped => "0.3",
            State::Untouched => "0.1",
        }
    }
}

/// Where a process is in the list.
fn place(m: &MemoryMap, c: &MapCell) -> Option<usize> {
    let pid = c.pid?;
    m.processes.iter().position(|p| p.pid == pid)
}

fn colour(place: Option<usize>) -> u32 {
    place.map_or(NOBODY, |i| COLOURS[i % COLOURS.len()])
}

fn letter(place: Option<usize>) -> char {
    let letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    place.map_or('.', |i| letters.chars().cycle().nth(i % 52).unwrap_or('?'))
}

fn mb(n: u64) -> String {
    format!("{:.1}M", n as f64 / f64::from(1 << 20))
}

/// What there is in all: in memory, used lately, swapped out, untouched, shared, of files,
/// confidential.
fn sums(m: &MemoryMap) -> String {
    let sum = |f: fn(&MapCell) -> u64| mb(m.cells.iter().map(f).sum());
    format!(
        "{} in memory ({} used lately), {} swapped out, {} never touched; {} shared, {} of files, \
         {} confidential; a place is {} KB",
        sum(|c| c.resident),
        sum(|c| c.used),
        sum(|c| c.swapped),
        sum(|c| c.frames.saturating_sub(c.resident + c.swapped)),
        sum(|c| c.shared),
        sum(|c| c.files),
        sum(|c| c.confidential),
        m.cell >> 10
    )
}

/// The cells in rows; a new one where some are left out between two.
fn rows(m: &MemoryMap, width: usize) -> Vec<&[MapCell]> {
    let apart = |a: &MapCell, b: &MapCell| b.number - a.number > width as u64;
    let parts = m.cells.chunk_by(|a, b| !apart(a, b));
    parts.flat_map(|p| p.chunks(width)).collect()
}

fn as_text(m: &MemoryMap, is_terminal: bool) -> String {
    const WIDTH: usize = 64;
    let mut t = sums(m) + "\n\n";
    for row in rows(m, WIDTH) {
        let _ = write!(t, "{:>12x}  ", row[0].number * m.cell);
        for c in row {
            let (place, shade) = (place(m, c), State::of(c).shade());
            if is_terminal {
                let [_, r, g, b] = colour(place).to_be_bytes();
                let _ = write!(t, "\x1b[38;2;{r};{g};{b}m{shade}");
            } else {
                let _ = write!(t, "{}{shade}", letter(place));
            }
        }
        t += if is_terminal { "\x1b[0m\n" } else { "\n" };
    }
    t.push('\n');
    for (i, p) in m.processes.iter().enumerate() {
        let line = format!("{:>6}  {}\n", p.pid, in_a_row(&p.command));
        if is_terminal {
            let [_, r, g, b] = colour(Some(i)).to_be_bytes();
            let _ = write!(t, "\x1b[38;2;{r};{g};{b}m██\x1b[0m{line}");
        } else {
            let _ = write!(t, " {}{line}", letter(Some(i)));
        }
    }
    t
}

/// Text within SVG.
fn escaped(s: &str) -> String {
    let mut out = String::new();
    for c in s.chars() {
        match c {
            '&' => out += "&amp;",
            '<' => out += "&lt;",
            '>' => out += "&gt;",
            '"' => out += "&quot;",
            c => out.push(c),
        }
    }
    out
}

fn as_svg(m: &MemoryMap, id: &str) -> String {
    const WIDTH: usize = 96;
    const SIDE: usize = 8;
    const LEFT: usize = 110;
    const TOP: usize = 64;
    let rows = rows(m, WIDTH);
    let below = TOP + rows.len() * SIDE + 24;
    let (width, height) = (
        LEFT + WIDTH * SIDE + 20,
        below + m.processes.len() * 16 + 20,
    );
    let mut t = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
         font-family=\"monospace\" font-size=\"10\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n\
         <text x=\"10\" y=\"20\" font-size=\"14\">memory of {}</text>\n\
         <text x=\"10\" y=\"38\">{}</text>\n\
         <text x=\"10\" y=\"52\">full: used lately; paler: in memory; pale: swapped out; almost \
         white: never touched; framed: confidential</text>\n",
        escaped(id),
        escaped(&sums(m))
    );
    for (y, row) in rows.iter().enumerate() {
        let top = TOP + y * SIDE;
        let (at, base) = (row[0].number * m.cell, top + SIDE - 1);
        let _ = writeln!(
            t,
            "<text x=\"10\" y=\"{base}\" font-size=\"8\">{at:x}</text>"
        );
        for (x, c) in row.iter().enumerate() {
            let (fill, opacity) = (colour(place(m, c)), State::of(c).opacity());
            let frame = if c.confidential > 0 {
                " stroke=\"#000000\""
            } else {
                ""
            };
            let left = LEFT + x * SIDE;
            let tip = format!(
                "{:x}: {} KB in memory, {} swapped out, {} shared",
                c.number * m.cell,
                c.resident >> 10,
                c.swapped >> 10,
                c.shared >> 10
            );
            let _ = writeln!(
                t,
                "<rect x=\"{left}\" y=\"{top}\" width=\"7\" height=\"7\" fill=\"#{fill:06x}\" \
                 fill-opacity=\"{opacity}\"{frame}><title>{tip}</title></rect>"
            );
        }
    }
    for (i, p) in m.processes.iter().enumerate() {
        let (y, fill) = (below + i * 16, colour(Some(i)));
        let name = escaped(&format!("{} {}", p.pid, in_a_row(&p.command)));
        let _ = writeln!(
            t,
            "<rect x=\"10\" y=\"{y}\" width=\"10\" height=\"10\" fill=\"#{fill:06x}\"/>\
             <text x=\"26\" y=\"{}\">{name}</text>",
            y + 9
        );
    }
    t + "</svg>\n"
}

#[cfg(test)]
mod tests {
    use super::*;
    use config::MapProcess;

    fn cell(number: u64, resident: u64, swapped: u64, used: u64, pid: Option<i32>) -> MapCell {
        MapCell {
            number,
            frames: 65536,
            resident,
            swapped,
            used,
            pid,
            ..MapCell::default()
        }
    }

    fn some() -> MemoryMap {
        let process = |pid, command: &str| MapProcess {
            pid,
            command: command.into(),
        };
        MemoryMap {
            cell: 65536,
            cells: vec![
                cell(0, 65536, 0, 65536, Some(1)),
                cell(1, 65536, 0, 0, Some(7)),
                cell(2, 4096, 61440, 0, Some(7)),
                cell(5000, 0, 0, 0, None),
            ],
            processes: vec![process(1, "sh"), process(7, "a <b> & \x1b[31m")],
        }
    }

    #[test]
    fn text_has_letters_and_shades() {
        let t = as_text(&some(), false);
        assert!(t.contains("           0  A█B▓B▒\n"), "{t}");
        assert!(t.contains(".░\n") && t.contains(" A     1  sh\n"), "{t}");
        assert!(!t.contains('\x1b'));
        assert!(as_text(&some(), true).contains("\x1b[38;2;86;180;233m█"));
    }

    #[test]
    fn pictures_are_well_formed() {
        let t = as_svg(&some(), "a<b");
        assert_eq!(t.matches("<rect x=\"").count(), 4 + 2);
        assert!(t.contains("a&lt;b") && t.contains("a &lt;b&gt; &amp;"));
        assert!(!t.contains('\x1b') && t.ends_with("</svg>\n"));
    }
}
