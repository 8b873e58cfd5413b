//! What a container has of memory beside what its bundle says: swap of its own, how it is chosen
//! what goes there, and a limit of each process. The runtime's options say it, and annotations say
//! less of it.

use crate::spec::Spec;
use crate::state::Sandbox;
use crate::{Error, Result, Runtime};
use config::{Confidential, LEAST_MEMORY, Replacement};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// The annotation that says less than `--swap` for one container.
pub const SWAP_ANNOTATION: &str = "dev.cloister.memory.swap";
/// The annotation that says less than `--process-memory` for one container.
pub const PROCESS_ANNOTATION: &str = "dev.cloister.memory.process";

/// The annotation that says it for one container, where `--replacement` says nothing.
pub const REPLACEMENT_ANNOTATION: &str = "dev.cloister.memory.replacement";

/// The annotation that says what of a container is confidential: `all`, or places.
pub const CONFIDENTIAL_ANNOTATION: &str = "dev.cloister.memory.confidential";

/// What of a bundle's container is confidential.
pub fn confidential(spec: &Spec) -> Result<Confidential> {
    let wrong = |e| Error::Refused(format!("annotation {CONFIDENTIAL_ANNOTATION}: {e}"));
    let word = spec.annotations.get(CONFIDENTIAL_ANNOTATION);
    let said = word.map(|w| w.parse()).transpose().map_err(wrong)?;
    Ok(said.unwrap_or_default())
}

/// See the module. Bytes; `None` for no swap, and for no limit.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct MemoryOptions {
    /// What may be swapped out, to memory that the container's limit does not count, or to a file.
    #[serde(skip_serializing_if = "Option::is_none", with = "words")]
    pub swap: Option<u64>,
    /// The directory of that file.
    #[serde(skip_serializing_if = "Option::is_none", rename = "swap-dir")]
    pub swap_dir: Option<PathBuf>,
    /// How it is chosen what goes there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replacement: Option<Replacement>,
    /// What each process may have in memory.
    #[serde(skip_serializing_if = "Option::is_none", with = "words")]
    pub process: Option<u64>,
}

/// What a bundle gets. `sandbox`: what it joins, if it is a later container of a pod.
pub fn of_bundle(
    rt: &Runtime,
    spec: &Spec,
    sandbox: Option<&Sandbox>,
    warnings: &mut Vec<String>,
) -> Result<MemoryOptions> {
    let mut b = rt.memory.clone();
    if let Some(n) = annotation(spec, SWAP_ANNOTATION)? {
        if n > b.swap.unwrap_or(0) {
            return Err(more_than(SWAP_ANNOTATION, "--swap"));
        }
        b.swap = (n > 0).then_some(n);
    }
    if let Some(n) = annotation(spec, PROCESS_ANNOTATION)? {
        if b.process.is_some_and(|most| n > most) {
            return Err(more_than(PROCESS_ANNOTATION, "--process-memory"));
        }
        b.process = Some(n);
    }
    if let Some(name) = spec.annotations.get(REPLACEMENT_ANNOTATION) {
        let wrong = |e| Error::Refused(format!("annotation {REPLACEMENT_ANNOTATION}: {e}"));
        let name = name.parse().map_err(wrong)?;
        if rt.memory.replacement.is_some_and(|said| said != name) {
            return Err(wrong("the runtime says it (--replacement)".to_owned()));
        }
        b.replacement = Some(name);
    }
    if b.process.is_some_and(|n| n < LEAST_MEMORY) {
        return Err(Error::Refused(
            "no program runs with less than a megabyte for each process".into(),
        ));
    }
    let resources = spec.linux.as_ref().and_then(|l| l.resources.as_ref());
    let memory = resources.and_then(|r| r.memory.as_ref());
    let is_limited = memory.and_then(|m| m.limit).is_some_and(|n| n > 0);
    if sandbox.is_some() && b.swap.is_some() {
        warnings.push("a container that joins a pod has no swap of its own".into());
        b.swap = None;
    } else if !is_limited && !is_used(b.process, rt.memory.replacement) {
        b.swap = None;
    }
    Ok(b)
}

/// Whether something ever goes to swap where the container has no limit.
#[must_use]
pub fn is_used(process: Option<u64>, replacement: Option<Replacement>) -> bool {
    process.is_some() || replacement == Some(Replacement::WorkingSet)
}

fn more_than(annotation: &str, option: &str) -> Error {
    Error::Refused(format!(
        "annotation {annotation}: annotations may only say less than the runtime does ({option})"
    ))
}

fn annotation(spec: &Spec, name: &str) -> Result<Option<u64>> {
    let Some(text) = spec.annotations.get(name) else {
        return Ok(None);
    };
    let n = amount(text).map_err(|e| Error::Refused(format!("annotation {name}: {e}")))?;
    Ok(Some(n))
}

/// Bytes, as [`size`] has them, none of them negative.
pub fn amount(s: &str) -> core::result::Result<u64, String> {
    let n = size(s)?;
    u64::try_from(n).map_err(|_| "write a size, as in 50M".to_owned())
}

/// Bytes, with a unit of 1024 and its powers if there is one, as runc has it: 50M, 50MB, 50mib.
/// Negative for none.
pub fn size(s: &str) -> core::result::Result<i64, String> {
    let wrong = || "write bytes, or a number with k, m, g or t, as in 50M".to_owned();
    if let Ok(n) = s.parse() {
        return Ok(n);
    }
    let lower = s.to_ascii_lowercase();
    let digits = lower.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let shift = match &lower[digits.len()..] {
        "b" => 0,
        "k" | "kb" | "kib" => 10,
        "m" | "mb" | "mib" => 20,
        "g" | "gb" | "gib" => 30,
        "t" | "tb" | "tib" => 40,
        _ => return Err(wrong()),
    };
    let n: i64 = digits.trim_end().parse().map_err(|_| wrong())?;
    n.checked_mul(1 << shift).ok_or_else(wrong)
}

/// In a file: a number, or a size as on the command line.
mod words {
    use serde::de::{Deserializer, Error};
    use serde::{Deserialize, Serialize, Serializer};

    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Word {
        Number(u64),
        Text(String),
    }

    pub fn serialize<S: Serializer>(n: &Option<u64>, s: S) -> Result<S::Ok, S::Error> {
        n.serialize(s)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(d: D) -> Result<Option<u64>, D::Error> {
        match Option::<Word>::deserialize(d)? {
            None => Ok(None),
            Some(Word::Number(n)) => Ok(Some(n)),
            Some(Word::Text(t)) => super::amount(&t).map(Some).map_err(D::Error::custom),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
        for (text, bytes) in [
            ("0", 0),
            ("-1", -1),
            ("4096", 4096),
            ("50M", 50 << 20),
            ("1kb", 1024),
            ("2 GiB", 2 << 30),
            ("7b", 7),
        ] {
            assert_eq!(size(text), Ok(bytes), "{text}");
        }
        for bad in ["", "M", "1.5G", "5x", "9999999T", "--1", "1mm"] {
            assert!(size(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn words_of_a_file() {
        let of = |text| serde_json::from_str::<MemoryOptions>(text).ok();
        let both = MemoryOptions {
            swap: Some(1 << 30),
            swap_dir: Some("/var/tmp".into()),
            replacement: Some(Replacement::WorkingSet),
            process: Some(5 << 20),
        };
        let text = r#"{"swap": "1G", "process": 5242880, "replacement": "working-set",
                       "swap-dir": "/var/tmp"}"#;
        assert_eq!(of(text), Some(both));
        assert_eq!(of("{}"), Some(MemoryOptions::default()));
        for bad in [
            r#"{"swap": "-1"}"#,
            r#"{"swap": -1}"#,
            r#"{"swop": 1}"#,
            r#"{"replacement": "fifo"}"#,
        ] {
            assert_eq!(of(bad), None, "{bad}");
        }
    }
}
