//! The name of a core file (`format_corename`).

use super::super::{Context, limits};
use std::sync::atomic::Ordering;

/// `/` would be another directory.
fn escaped(out: &mut Vec<u8>, word: &[u8]) {
    let from = out.len();
    // (A host name may have zeros.)
    let word = word.split(|&b| b == 0).next().unwrap_or_default();
    out.extend(word.iter().map(|&b| if b == b'/' { b'!' } else { b }));
    // No such name stands for a directory.
    match word {
        b"" => out.push(b'!'),
        b"." | b".." => out[from] = b'!',
        _ => {}
    }
}

/// By the pattern; `%p` and its like stand for what the process is.
pub(super) fn of(cx: &Context, pattern: &[u8], signal: i32) -> Vec<u8> {
    let mut out = Vec::new();
    let mut has_pid = false;
    let mut words = pattern.iter();
    while let Some(&b) = words.next() {
        if b != b'%' {
            out.push(b);
            continue;
        }
        match words.next() {
            None => break,
            Some(b'%') => out.push(b'%'),
            Some(b'h') => escaped(&mut out, &cx.task.ns().uts.get().nodename),
            Some(b'e') => escaped(&mut out, &cx.task.comm()),
            Some(&f @ (b'f' | b'E')) => escaped(&mut out, &program(cx, f == b'E')),
            Some(&f) => {
                has_pid |= f == b'p';
                if let Some(n) = number(cx, f, signal) {
                    out.extend(n.to_string().into_bytes());
                }
            }
        }
    }
    let uses_pid = cx.group.container.core.uses_pid.load(Ordering::Relaxed) != 0;
    if uses_pid && !has_pid {
        let pid = cx.group.pid.seen_in(&cx.group.pid.ns);
        out.extend(format!(".{pid}").into_bytes());
    }
    out
}

/// What a letter stands for; nothing, where Linux has none.
fn number(cx: &Context, letter: u8, signal: i32) -> Option<i128> {
    let g = &cx.group;
    let cred = cx.task.cred();
    Some(match letter {
        b'p' => g.pid.seen_in(&g.pid.ns).into(),
        b'P' => g.tgid.into(),
        b'i' => cx.task.pid.seen_in(&g.pid.ns).into(),
        b'I' => cx.task.tid.into(),
        b'u' => cred.uid.into(),
        b'g' => cred.gid.into(),
        b'd' => i128::from(cx.task.mm().privacy().is_dumpable()),
        b's' => signal.into(),
        b't' => (hostcall::time::clock_nanos(0) / 1_000_000_000).into(),
        b'c' => g.limits.lock().0[limits::CORE].current.into(),
        _ => return None,
    })
}

/// The program's path, or the last name in it.
fn program(cx: &Context, whole: bool) -> Vec<u8> {
    let exe = cx.group.exe.read().clone();
    let Some(path) = exe else {
        return [&cx.task.comm()[..], b" (path unknown)"].concat();
    };
    let path = path.describe(&cx.task.fs().root()).name;
    match path.rsplit(|&b| b == b'/').next() {
        Some(last) if !whole => last.to_vec(),
        _ => path,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_word_leads_to_another_directory() {
        for (word, is) in [
            ("a/b", "a!b"),
            ("..", "!."),
            (".", "!"),
            ("", "!"),
            ("...", "..."),
            ("/", "!"),
            ("a\0b", "a"),
        ] {
            let mut out = b"core.".to_vec();
            escaped(&mut out, word.as_bytes());
            assert_eq!(out, format!("core.{is}").into_bytes());
        }
    }
}
