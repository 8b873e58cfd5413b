//! `#!` (`fs/binfmt_script.c`).

use crate::HEAD;
use abi::Result;
use abi::errno::ENOEXEC;

/// The first line of a script.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Script {
    /// The path of the interpreter.
    pub interpreter: Vec<u8>,
    /// All that follows, as one argument.
    pub argument: Option<Vec<u8>>,
}

fn is_blank(b: u8) -> bool {
    b == b' ' || b == b'\t'
}

fn ends_word(b: u8) -> bool {
    is_blank(b) || b == 0
}

/// Reads the first line of a script, given the file's first [`HEAD`] bytes (short files padded with
/// zeros). `ENOEXEC` where it names nothing, or where the path may be cut off.
pub fn parse_shebang(head: &[u8; HEAD]) -> Result<Script> {
    // The last byte does not count: the kernel keeps it as a terminator.
    let line = head.strip_prefix(b"#!").ok_or(ENOEXEC)?;
    let line = &line[..line.len() - 1];
    let line = match line.iter().position(|b| *b == b'\n') {
        Some(end) => &line[..end],
        None => {
            let start = line.iter().position(|b| !is_blank(*b)).ok_or(ENOEXEC)?;
            // No end of a word: the path may go on behind what was read.
            if !line[start..].iter().any(|b| ends_word(*b)) {
                return Err(ENOEXEC);
            }
            line
        }
    };
    let end = line
        .iter()
        .rposition(|b| !is_blank(*b))
        .map_or(0, |i| i + 1);
    let line = &line[..end];
    let start = line.iter().position(|b| !is_blank(*b)).ok_or(ENOEXEC)?;
    let line = &line[start..];
    let name = line
        .iter()
        .position(|b| ends_word(*b))
        .unwrap_or(line.len());
    if name == 0 {
        return Err(ENOEXEC);
    }
    let mut argument = None;
    if line.get(name).is_some_and(|b| *b != 0)
        && let Some(at) = line[name..].iter().position(|b| !is_blank(*b))
    {
        let rest = &line[name + at..];
        let rest = &rest[..rest.iter().position(|b| *b == 0).unwrap_or(rest.len())];
        argument = (!rest.is_empty()).then(|| rest.to_vec());
    }
    Ok(Script {
        interpreter: line[..name].to_vec(),
        argument,
    })
}
