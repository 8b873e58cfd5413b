//! Messages for the caller: to standard error, and to the file of `--log` in runc's two forms.

use std::io::Write;
use std::path::PathBuf;
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
}

impl Log {
    pub fn error(&self, text: &str) {
        self.write("error", text);
        self.say(text);
    }
    /// For what is not honoured. Standard error is the container's in `create`: only the log gets it, unless
    /// there is none.
    pub fn warning(&self, text: &str) {
        if self.path.is_some() {
            self.write("warning", text);
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

    fn write(&self, level: &str, text: &str) {
        let Some(path) = &self.path else { return };
        let text = &*shortened(text);
        let time = now();
        let line = match self.format {
            Format::Json => {
                serde_json::json!({"level": level, "msg": text, "time": time}).to_string()
            }
            Format::Text => format!("time=\"{time}\" level={level} msg={text:?}"),
        };
        let opened = std::fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(path);
        if let Ok(mut f) = opened {
            let _ = writeln!(f, "{line}");
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
