//! The host's control groups: where they are mounted, and how much memory they leave to this
//! process.

use std::path::{Path, PathBuf};

/// Mounted hierarchies.
#[derive(Debug, Default)]
pub struct Hierarchies {
    /// Those of version 1, with the controllers of each.
    pub v1: Vec<(Mount, Vec<String>)>,
    pub v2: Option<Mount>,
}

/// A place where a hierarchy is mounted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    pub at: PathBuf,
    /// Which of its groups is seen there.
    root: PathBuf,
}

impl Mount {
    /// The directory of a group that `/proc/PID/cgroup` tells of, if it is seen.
    fn directory(&self, group: &str) -> Option<PathBuf> {
        let below = Path::new(group).strip_prefix(&self.root).ok()?;
        Some(self.at.join(below))
    }
}

impl Hierarchies {
    #[must_use]
    pub fn of_host() -> Hierarchies {
        Hierarchies::parse(&std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default())
    }

    /// From `/proc/PID/mountinfo` (proc_pid_mountinfo(5)).
    #[must_use]
    pub fn parse(text: &str) -> Hierarchies {
        let mut h = Hierarchies::default();
        for line in text.lines() {
            let Some((left, right)) = line.split_once(" - ") else {
                continue;
            };
            let mut left = left.split(' ').skip(3);
            let (Some(root), Some(at)) = (left.next(), left.next()) else {
                continue;
            };
            let mount = Mount {
                at: at.into(),
                root: root.into(),
            };
            let mut right = right.split(' ');
            match (right.next(), right.nth(1)) {
                (Some("cgroup2"), _) => {
                    h.v2.get_or_insert(mount);
                }
                (Some("cgroup"), Some(options)) => {
                    let names = options
                        .split(',')
                        .filter(|o| !matches!(*o, "rw" | "ro" | "xattr" | "noprefix"))
                        .map(str::to_owned)
                        .collect();
                    h.v1.push((mount, names));
                }
                _ => {}
            }
        }
        h
    }

    /// The least that a group which `groups` (`/proc/PID/cgroup`, cgroups(7)) tells of, or one
    /// above it, may have; bytes, with swap where the host has some.
    fn memory_limit(&self, groups: &str, swap: u64) -> Option<u64> {
        let of = |wanted: &dyn Fn(&str) -> bool| {
            groups.lines().find_map(|l| {
                let mut f = l.splitn(3, ':').skip(1);
                let (names, path) = (f.next()?, f.next()?);
                wanted(names).then_some(path)
            })
        };
        let has_memory = |names: &[String]| names.iter().any(|n| n == "memory");
        let v1 = self.v1.iter().find(|(_, names)| has_memory(names));
        if let Some((mount, _)) = v1 {
            let group = of(&|names| names.split(',').any(|n| n == "memory"))?;
            return hierarchical_limit(&mount.directory(group)?, swap);
        }
        let mount = self.v2.as_ref()?;
        let directory = mount.directory(of(&str::is_empty)?)?;
        let up = directory.ancestors();
        let up = up.take_while(|d| d.starts_with(&mount.at));
        up.filter_map(|d| {
            let memory = number(&d.join("memory.max"))?;
            let swap = number(&d.join("memory.swap.max")).map_or(swap, |n| n.min(swap));
            Some(memory.saturating_add(swap))
        })
        .min()
    }
}

/// Version 1 tells it of all groups above, too (`memory.stat`).
fn hierarchical_limit(directory: &Path, swap: u64) -> Option<u64> {
    let stat = std::fs::read_to_string(directory.join("memory.stat")).ok()?;
    let word = |name: &str| {
        let line = stat.lines().find_map(|l| l.strip_prefix(name));
        line.and_then(|n| n.trim().parse::<u64>().ok())
    };
    let memory = word("hierarchical_memory_limit ")?.saturating_add(swap);
    Some(word("hierarchical_memsw_limit ").map_or(memory, |n| n.min(memory)))
}

fn number(file: &Path) -> Option<u64> {
    std::fs::read_to_string(file).ok()?.trim().parse().ok()
}

/// How much memory application frames may take of what the host leaves to this process, bytes: its
/// control groups' limits, or all that the machine has, less what the sandbox needs itself.
///
/// So a program that takes all meets the sandbox's own killer, which ends that program. The host's
/// would count what was written for it (read(2), files in memory) as the Sentry's, and end all.
#[must_use]
pub fn memory_bound() -> u64 {
    /// One part in so many is for processes and page tables, within bounds.
    const OWN: u64 = 16;
    let (memory, swap) = hostcall::process::memory_and_swap();
    let groups = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let limit = Hierarchies::of_host().memory_limit(&groups, swap);
    let all = limit.unwrap_or(u64::MAX).min(memory.saturating_add(swap));
    let own = (all / OWN).clamp(16 << 20, 512 << 20);
    all.saturating_sub(own.min(all / 2))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hierarchies() {
        let h = Hierarchies::parse(
            "30 25 0:26 / /sys/fs/cgroup rw - tmpfs tmpfs ro,mode=755\n\
             31 30 0:27 / /sys/fs/cgroup/unified rw,nosuid shared:5 - cgroup2 cgroup2 rw,nsdelegate\n\
             32 30 0:28 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n\
             33 30 0:29 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,xattr,name=systemd\n",
        );
        let at = h.v2.as_ref().map(|m| m.at.as_path());
        assert_eq!(at, Some(Path::new("/sys/fs/cgroup/unified")));
        assert_eq!(h.v1[0].1, ["cpu", "cpuacct"]);
        assert_eq!(h.v1[1].1, ["name=systemd"]);
    }

    /// A tree of groups as files, mounted as the options say.
    fn tree(kind: &str, root: &str, files: &[(&str, &str)]) -> (tempfile::TempDir, Hierarchies) {
        let d = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = d.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        let line = format!("30 25 0:26 {root} {} rw - {kind}", d.path().display());
        (d, Hierarchies::parse(&line))
    }

    #[test]
    fn the_least_limit_above_counts() {
        let files = [
            ("a/memory.max", "300\n"),
            ("a/memory.swap.max", "max\n"),
            ("a/b/memory.max", "max\n"),
            ("a/b/c/memory.max", "900\n"),
            ("a/b/c/memory.swap.max", "0\n"),
        ];
        let (_d, h) = tree("cgroup2 cgroup2 rw", "/", &files);
        assert_eq!(h.memory_limit("0::/a/b/c\n", 0), Some(300));
        assert_eq!(h.memory_limit("0::/a/b/c\n", 700), Some(900));
        assert_eq!(h.memory_limit("0::/z\n", 0), None);
        let (_d, h) = tree("cgroup2 cgroup2 rw", "/pod", &files);
        assert_eq!(h.memory_limit("0::/pod/a/b\n", 0), Some(300));
        assert_eq!(h.memory_limit("0::/a/b\n", 0), None);
    }

    #[test]
    fn version_1_tells_it_of_all_above() {
        let stat = "cache 0\nhierarchical_memory_limit 500\nhierarchical_memsw_limit 600\n";
        let files = [("x/memory.stat", stat)];
        let (_d, h) = tree("cgroup cgroup rw,memory", "/", &files);
        let groups = "5:cpu,cpuacct:/y\n4:memory:/x\n0::/\n";
        assert_eq!(h.memory_limit(groups, 0), Some(500));
        assert_eq!(h.memory_limit(groups, 1000), Some(600));
    }
}
