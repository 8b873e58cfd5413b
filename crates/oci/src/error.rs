//! What went wrong.
//!
//! An error crosses processes as what it is: its kind is never read out of its sentence, which a
//! hook, or the Sentry, may have said.

use crate::client;
use serde::{Deserialize, Serialize};

/// A sentence for the person. The words are runc's where its callers look for them.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error, Serialize, Deserialize)]
pub enum Error {
    /// There is no container of that name.
    #[error("container {0:?} does not exist")]
    NotFound(String),
    #[error("container with given ID already exists")]
    Exists,
    /// The container has ended.
    #[error("container not running")]
    NotRunning,
    /// The process has ended.
    #[error("no such process")]
    NoProcess,
    /// Its creation was cut off.
    #[error("container {0:?} was never created as a whole: delete it with --force")]
    Incomplete(String),
    /// A signal made the command give up.
    #[error("interrupted by signal {0}")]
    Interrupted(u8),
    /// A word of a bundle, or of a command, that cannot be honoured.
    #[error("{0}")]
    Refused(String),
    #[error("could not {step}: {why}")]
    Step { step: String, why: String },
    /// The sandbox did not start, or did not go on.
    #[error("{0}")]
    Sandbox(String),
    /// Says in what it happened.
    #[error("{what}: {why}")]
    Within { what: String, why: Box<Error> },
    #[error("{0}")]
    Other(String),
}

impl Error {
    #[must_use]
    pub fn new(text: impl Into<String>) -> Error {
        Error::Other(text.into())
    }

    pub(crate) fn within(self, what: &str) -> Error {
        Error::Within {
            what: what.to_owned(),
            why: Box::new(self),
        }
    }

    /// What it is, whatever it happened in.
    #[must_use]
    pub fn cause(&self) -> &Error {
        match self {
            Error::Within { why, .. } => why.cause(),
            e => e,
        }
    }

    /// The exit status of a command that a signal made give up, as shells tell it.
    #[must_use]
    pub fn interrupted_status(&self) -> Option<u8> {
        match self.cause() {
            Error::Interrupted(signal) => Some(128u8.saturating_add(*signal)),
            _ => None,
        }
    }

    /// With so much of the sentence as fits into a packet, whatever must be escaped there.
    pub(crate) fn fit(self) -> Error {
        const LONGEST: usize = client::MAX / 8;
        let text = self.to_string();
        if text.len() <= LONGEST {
            return self;
        }
        match self.cause() {
            Error::Exists | Error::NotRunning | Error::NoProcess | Error::Interrupted(_) => {
                self.cause().clone()
            }
            _ => {
                let end = (0..=LONGEST).rev().find(|at| text.is_char_boundary(*at));
                Error::new(&text[..end.unwrap_or(0)])
            }
        }
    }
}

impl From<sandbox::Error> for Error {
    fn from(e: sandbox::Error) -> Error {
        Error::Sandbox(e.to_string())
    }
}

pub type Result<T> = std::result::Result<T, Error>;

/// Adds what was tried.
pub(crate) trait Tried<T> {
    fn tried(self, step: &str) -> Result<T>;
}

impl<T, E: std::fmt::Display> Tried<T> for std::result::Result<T, E> {
    fn tried(self, step: &str) -> Result<T> {
        self.map_err(|e| Error::Step {
            step: step.to_owned(),
            why: e.to_string(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_it_is_survives_the_way() {
        let hook = Error::NotRunning.within("poststop hook #0");
        assert_eq!(hook.to_string(), "poststop hook #0: container not running");
        for e in [
            hook,
            Error::NotFound("a".into()).within("x"),
            Error::Interrupted(15),
        ] {
            let text = serde_json::to_string(&e.clone().fit()).unwrap();
            assert_eq!(serde_json::from_str::<Error>(&text).unwrap(), e);
        }
        let long = Error::NotRunning.within(&"ü".repeat(client::MAX)).fit();
        assert_eq!(long, Error::NotRunning);
        let long = Error::new("\u{1}".repeat(client::MAX)).fit();
        assert!(serde_json::to_vec(&Err::<u32, _>(long)).unwrap().len() < client::MAX);
    }
}
