//! What `cloister memory show` tells.

use serde::{Deserialize, Serialize};

/// Who has a container's memory. In bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MemoryReport {
    /// What may be here; `None` for no limit.
    pub limit: Option<u64>,
    /// What the limit counts: frames that are made and not swapped out, touched or not.
    pub counted: u64,
    /// What of them has a page.
    pub resident: u64,
    /// What may be swapped out, 0 where there is no swap; and what is (pages of zeros are not).
    pub swap_limit: u64,
    pub swapped: u64,
    /// What the host's memory holds for that.
    pub swap_memory: u64,
    /// How many processes were ended for lack of memory.
    pub ended: u64,
    pub processes: Vec<MemoryProcess>,
}

/// One process's address space. Processes that share one are told one by one, with the same numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MemoryProcess {
    pub pid: i32,
    pub command: String,
    /// What it has mapped.
    pub size: u64,
    /// What its own limit counts: frames that serve its mappings and are not swapped out.
    pub counted: u64,
    /// What of them has a page.
    pub resident: u64,
    /// What of `resident` others have, too.
    pub shared: u64,
    /// `resident`, with what is shared divided by how many have it.
    pub proportional: u64,
    pub swapped: u64,
    /// What others cannot have swapped out.
    pub reserved: u64,
    /// What `counted` may be; `None` for no limit.
    pub limit: Option<u64>,
}
