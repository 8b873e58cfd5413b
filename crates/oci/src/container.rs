//! A container that exists: its directory, its record, and what its monitor says of it.

use crate::client::{self, Connection, Request};
use crate::state::{self, Dir, Record, Status};
use crate::{Error, Result};
use hostcall::RawFd;
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// A container that has a record.
#[derive(Debug)]
pub struct Container {
    pub dir: Dir,
    pub record: Record,
}

/// What `state` and `list` print.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Info {
    pub oci_version: String,
    pub id: String,
    pub pid: i32,
    pub status: Status,
    pub bundle: PathBuf,
    pub rootfs: PathBuf,
    pub created: String,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
    pub owner: String,
    /// The monitor is there, and has not told the status in time.
    #[serde(skip)]
    pub is_guessed: bool,
}

impl Container {
    /// Opens the one of this name. Fails where there is none, or it was never created as a whole.
    pub fn open(root: &Path, id: &str) -> Result<Container> {
        let dir = Dir::open(root, id)?;
        match dir.load()? {
            Some(record) => Ok(Container { dir, record }),
            None => Err(Error::Incomplete(id.to_owned())),
        }
    }

    /// What it does now: the monitor is asked.
    #[must_use]
    pub fn status(&self) -> Status {
        // A monitor that is there and says nothing is held, or very busy.
        self.told().unwrap_or(Status::Running)
    }

    /// `None` where the monitor does not answer in time.
    fn told(&self) -> Option<Status> {
        let is_alive = || state::is_alive(self.record.pid, self.record.pid_start);
        if !is_alive() {
            return Some(Status::Stopped);
        }
        match client::status(&self.dir) {
            Ok(s) => s,
            Err(_) if is_alive() => Some(Status::Creating),
            Err(_) => Some(Status::Stopped),
        }
    }

    /// What is known of it, with its status.
    #[must_use]
    pub fn info(&self) -> Info {
        let told = self.told();
        let status = told.unwrap_or(Status::Running);
        let r = &self.record;
        Info {
            oci_version: r.oci_version.clone(),
            id: r.id.clone(),
            pid: if status == Status::Stopped { 0 } else { r.pid },
            status,
            bundle: r.bundle.clone(),
            rootfs: r.rootfs.clone(),
            created: r.created.clone(),
            annotations: r.annotations.clone(),
            owner: r.owner.clone(),
            is_guessed: told.is_none(),
        }
    }

    /// Connects to its monitor. Fails where none listens.
    pub fn connect(&self) -> Result<Connection> {
        Connection::open(&self.dir)
    }

    /// Asks its monitor for something on a connection of its own; gives what `Done` carries.
    pub fn ask(&self, r: &Request, given: &[RawFd]) -> Result<u32> {
        self.connect()?.ask(r, given)
    }
}
