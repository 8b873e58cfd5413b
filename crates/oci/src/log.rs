//! Messages for the caller: to standard error, and to the file of `--log` in runc's two forms.

use std::fs::File;
use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::SystemTime;

/// `--log-format`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Format {
    #[default]
    Text,
    Json,
}

/// Where messages go.
#[derive(Clone, Debug, Default)]
pub struct Log {
    pub path: Option<PathBuf>,
    pub format: Format,
    pub debug: bool,
    /// The file, where it stays open: see [`Log::keep_open`].
    pub open: Option<Arc<File>>,
}

impl Log {
    pub fn error(&self, text: &str) {
        let text = in_words(text);
        self.write("error", &text);
        self.say(&text);
    }
    /// For what is not honoured. Standard error is the container's in `create`: only the log gets
    /// it, unless there is none.
    pub fn warning(&self, text: &str) {
        let text = in_words(text);
        if self.path.is_some() {
            self.write("warning", &text);
        } else {
            self.say(&format!("warning: {text}"));
        }
    }
    pub fn debug(&self, text: &str) {
        if self.debug {
            self.write("debug", text);
        }
    }

    fn say(&self, text: &str) {
        // A bundle's words are in it: they neither speak to a terminal nor make lines of their own.
        let plain: String = text
            .chars()
            .map(|c| if c.is_control() { ' ' } else { c })
            .collect();
        let plain = shortened(&plain);
        // Standard error may be closed: then there is nobody to tell.
        let _ = writeln!(std::io::stderr(), "cloister: {plain}");
    }

    /// Opens the file for good: for a process that will not be able to open one.
    pub fn keep_open(&mut self) {
        self.open = self.opened();
    }

    fn opened(&self) -> Option<Arc<File>> {
        let file = std::fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(self.path.as_ref()?);
        file.ok().map(Arc::new)
    }

    fn write(&self, level: &str, text: &str) {
        if self.path.is_none() {
            return;
        }
        let text = &*shortened(text);
        let time = now();
        let line = match self.format {
            Format::Json => {
                serde_json::json!({"level": level, "msg": text, "time": time}).to_string()
            }
            Format::Text => format!("time=\"{time}\" level={level} msg={text:?}"),
        };
        if let Some(f) = self.open.clone().or_else(|| self.opened()) {
            // Whole: others write there, too.
            let _ = (&*f).write_all(format!("{line}\n").as_bytes());
        }
    }
}

/// The longest message, in characters.
const LENGTH: usize = 1000;

/// A message with its middle left out, if it is too long to be read.
fn shortened(text: &str) -> std::borrow::Cow<'_, str> {
    let n = text.chars().count();
    if n <= LENGTH {
        return text.into();
    }
    let begin = text.chars().take(LENGTH / 2);
    let end = text.chars().skip(n - LENGTH / 2);
    begin
        .chain(" ... ".chars())
        .chain(end)
        .collect::<String>()
        .into()
}

/// The time as RFC 3339 has it.
#[must_use]
pub fn now() -> String {
    humantime::format_rfc3339_nanos(SystemTime::now()).to_string()
}
/// Without the numbers that the standard library adds to the words of an error: ` (os error 2)`.
#[must_use]
pub fn in_words(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once(" (os error ") {
        out.push_str(before);
        match after.split_once(')') {
            Some((n, tail)) if !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()) => {
                rest = tail;
            }
            _ => {
                out.push_str(" (os error ");
                rest = after;
            }
        }
    }
    out + rest
}

#[cfg(test)]
mod tests {
    use super::in_words;

    #[test]
    fn errors_are_told_in_words() {
        let e = std::io::Error::from_raw_os_error(2);
        assert_eq!(
            in_words(&format!("a: {e}, b: {e}.")),
            "a: No such file or directory, b: No such file or directory."
        );
        for plain in ["", "x (os error 2", "x (os error )", "(os error x) y"] {
            assert_eq!(in_words(plain), plain);
        }
    }
}
