//! What a file system is mounted with: the parameters of mount(2)'s text, or of fsconfig(2).

use crate::mount::Path;

/// A value.
#[derive(Clone, Debug)]
pub enum Value {
    /// None: `ro`.
    Flag,
    /// `size=1m`.
    Text(String),
    /// Bytes, or a path: no file system here takes either.
    Bytes,
    /// An object that was given by its path or descriptor, and how it is shown.
    Place(Path, String),
}

/// A parameter (`struct fs_parameter`).
#[derive(Clone, Debug)]
pub struct Param {
    pub key: String,
    pub value: Value,
}

impl Param {
    /// One that has a text, or none.
    #[must_use]
    pub fn new(key: &str, value: Option<&str>) -> Param {
        Param {
            key: key.to_owned(),
            value: value.map_or(Value::Flag, |v| Value::Text(v.to_owned())),
        }
    }
    /// The text; `None` for what has none.
    #[must_use]
    pub fn text(&self) -> Option<&str> {
        match &self.value {
            Value::Text(t) => Some(t),
            Value::Flag | Value::Bytes | Value::Place(..) => None,
        }
    }
    /// As `/proc/mounts` shows it (`seq_show_option`): what would end it is in octal.
    fn shown(&self) -> String {
        let key = escape(&self.key, ",= \t\n\\");
        match &self.value {
            Value::Flag => key,
            Value::Bytes => format!("{key}="),
            Value::Text(t) | Value::Place(_, t) => format!("{key}={}", escape(t, ", \t\n\\")),
        }
    }
    /// As mount(2)'s text has it.
    #[must_use]
    pub fn word(&self) -> String {
        match &self.value {
            Value::Flag => self.key.clone(),
            Value::Bytes => format!("{}=", self.key),
            Value::Text(t) | Value::Place(_, t) => format!("{}={t}", self.key),
        }
    }
}

/// Parameters, in the order in which they were given.
#[derive(Clone, Debug, Default)]
pub struct Params(pub Vec<Param>);

impl Params {
    /// From mount(2)'s text. `escape`: a character that takes a comma's meaning.
    #[must_use]
    pub fn split(data: &str, escape: Option<char>) -> Params {
        let (mut words, mut word, mut chars) = (Vec::new(), String::new(), data.chars());
        while let Some(c) = chars.next() {
            match c {
                ',' => words.push(std::mem::take(&mut word)),
                c if Some(c) == escape => match chars.next() {
                    Some(',') => word.push(','),
                    other => word.extend([c].into_iter().chain(other)),
                },
                c => word.push(c),
            }
        }
        words.push(word);
        let param = |w: &String| match w.split_once('=') {
            Some((k, v)) => Param::new(k, Some(v)),
            None => Param::new(w, None),
        };
        Params(words.iter().filter(|w| !w.is_empty()).map(param).collect())
    }
    /// As mount(2)'s text.
    #[must_use]
    pub fn joined(&self) -> String {
        let words: Vec<_> = self.0.iter().map(Param::word).collect();
        words.join(",")
    }
    /// As [`crate::dentry::FileSystem::options`] gives them.
    #[must_use]
    pub fn shown(&self) -> String {
        let words = self.0.iter().map(|p| format!(",{}", p.shown()));
        words.collect()
    }
}

/// Has these of the ASCII characters in octal (`seq_escape`).
pub(crate) fn escape(text: &str, these: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if these.contains(c) {
            out += &format!("\\{:03o}", u32::from(c));
        } else {
            out.push(c);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_split_at_commas() {
        let p = Params::split("a,,b=1=2,c\\,d", None);
        assert_eq!(p.joined(), "a,b=1=2,c\\,d");
        assert_eq!(p.0.len(), 4);
        let p = Params::split("lowerdir=/a\\,b:/c\\:d,ro", Some('\\'));
        assert_eq!(p.0.len(), 2);
        assert_eq!(p.0[0].text(), Some("/a,b:/c\\:d"));
        assert!(Params::split("", None).0.is_empty());
    }

    #[test]
    fn what_is_shown_is_one_word_each() {
        let p = Params(vec![
            Param::new("ro", None),
            Param::new("lower dir", Some("a b,c=\t\n\\")),
        ]);
        assert_eq!(p.shown(), ",ro,lower\\040dir=a\\040b\\054c=\\011\\012\\134");
    }
}
