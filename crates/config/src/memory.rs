//! What `cloister memory show` and `cloister memory map` tell, and what of a container is
//! confidential.

use crate::Replacement;
use serde::{Deserialize, Serialize};

/// Who has a container's memory. In bytes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MemoryReport {
    /// What may be here; `None` for no limit.
    pub limit: Option<u64>,
    /// What the limit counts: frames that are made and not swapped out, touched or not, and the
    /// kernel's own.
    pub counted: u64,
    /// The kernel's own for what the container's programs have made it keep.
    #[serde(default)]
    pub kernel: u64,
    /// What of the frames has a page.
    pub resident: u64,
    /// What may be swapped out, 0 where there is no swap; and what is (pages of zeros are not).
    pub swap_limit: u64,
    pub swapped: u64,
    /// What the host's memory holds for that.
    pub swap_memory: u64,
    /// How it is chosen what is swapped out.
    #[serde(default)]
    pub replacement: Replacement,
    /// What its threads have lost for lack of memory.
    #[serde(default)]
    pub pressure: Pressure,
    /// How many processes were ended for lack of memory.
    pub ended: u64,
    pub processes: Vec<MemoryProcess>,
}

/// As in /proc/pressure/memory: some of the threads stalled, or none ran meanwhile.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Pressure {
    pub some: StallTime,
    pub full: StallTime,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StallTime {
    /// In percent, over 10, 60 and 300 seconds.
    pub averages: [f64; 3],
    pub total_us: u64,
}

/// One process's address space. Processes that share one are told one by one, with the same
/// numbers.
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

/// A container's memory by places: what lies in its address space (CLAS), and whose it is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MemoryMap {
    /// Bytes of a cell.
    pub cell: u64,
    /// Those with frames that somebody has, upwards.
    pub cells: Vec<MapCell>,
    pub processes: Vec<MapProcess>,
}

/// One cell. In bytes, of frames in it that somebody has.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MapCell {
    /// Its number: times [`MemoryMap::cell`] it is its address.
    pub number: u64,
    pub frames: u64,
    /// What of them has a page, and what is swapped out. The rest was never touched.
    pub resident: u64,
    pub swapped: u64,
    /// What more than one has: forks, or a file and who maps it.
    pub shared: u64,
    /// Contents of files in memory, and shared memory.
    pub files: u64,
    pub confidential: u64,
    /// What is mapped on the host: it was used lately.
    pub used: u64,
    /// The process that has most of it mapped; `None` where nobody has any.
    pub pid: Option<i32>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MapProcess {
    pub pid: i32,
    pub command: String,
}

/// What of a container is confidential from its start on (`mm::confidential`). Programs say more
/// themselves, for their own memory.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Confidential {
    #[default]
    Nothing,
    /// The memory of all its processes.
    All,
    /// Files at these places and below: a process that opens one is confidential from then on, and
    /// so are its children and what it becomes.
    Files(Vec<String>),
}

impl std::str::FromStr for Confidential {
    type Err = String;

    fn from_str(s: &str) -> Result<Confidential, String> {
        if s == "all" {
            return Ok(Confidential::All);
        }
        let places: Vec<String> = s.split(',').map(str::to_owned).collect();
        match places.iter().find(|p| !p.starts_with('/')) {
            None => Ok(Confidential::Files(places)),
            Some(p) => Err(format!(
                "write all, or absolute paths separated by commas: {p:?} is neither"
            )),
        }
    }
}
