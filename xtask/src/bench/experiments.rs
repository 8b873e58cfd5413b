//! The list of experiments.

use super::wire::{End, Ends, Way, wire};
use std::time::Duration;

/// One program that is measured, with all lines that it tells.
pub struct Experiment {
    pub name: &'static str,
    pub about: &'static str,
    pub what: What,
    pub turns: Turns,
    /// The longest that one turn may take.
    pub limit: Duration,
    /// Programs that it runs, with the Debian package of each.
    pub needs: &'static [(&'static str, &'static str)],
    /// Part of the quick check.
    pub smoke: bool,
}

pub enum What {
    /// A program in the container, that tells its measurements.
    Inside(&'static [&'static str]),
    /// The same within a limit of memory.
    Within(Memory, &'static [&'static str]),
    /// The time that a container of this program takes, from start to end.
    Start(&'static [&'static str]),
    /// The same beside a busy loop on each CPU.
    StartBusy(&'static [&'static str]),
    /// Containers created and destroyed, by so many threads at a time.
    Rate(&'static [u32]),
    /// Memory of sandboxes that sleep.
    Idle,
    /// What the CLAS says of the frames that programs have, and what it takes itself.
    Footprint,
    /// How many calls Cloister's own processes may make.
    HostCalls,
    /// A client in the container with the host's network, and a server outside.
    HostDownload,
    /// A program in the container, and one at the other end of its device.
    Wire(Ends),
    /// CPU of open connections by which nothing comes.
    WireIdle,
}

/// What a container may have, in megabytes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Memory {
    pub limit: u64,
    /// Its own swap, which only Cloister has; a native run has no limit then.
    pub swap: Option<u64>,
}

impl What {
    /// Whether a container's start is what is timed.
    pub fn is_start(&self) -> bool {
        matches!(self, What::Start(_) | What::StartBusy(_))
    }
}

/// How often, and on how many CPUs.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Turns {
    /// As often as asked, on one CPU and on all, after a turn that is not counted.
    Short,
    /// As often as asked, on all CPUs, after a turn that is not counted.
    Unpinned,
    /// Fewer times, on all CPUs, each in a new container.
    Long,
}

const fn inside(
    name: &'static str,
    about: &'static str,
    args: &'static [&'static str],
    turns: Turns,
    seconds: u64,
) -> Experiment {
    Experiment {
        name,
        about,
        what: What::Inside(args),
        turns,
        limit: Duration::from_secs(seconds),
        needs: &[],
        smoke: true,
    }
}

const fn app(
    name: &'static str,
    about: &'static str,
    args: &'static [&'static str],
    needs: &'static [(&'static str, &'static str)],
    smoke: bool,
) -> Experiment {
    Experiment {
        needs,
        smoke,
        ..inside(name, about, args, Turns::Long, 180)
    }
}

const fn ends(
    name: &'static str,
    about: &'static str,
    ends: Ends,
    needs: &'static [(&'static str, &'static str)],
    smoke: bool,
) -> Experiment {
    Experiment {
        what: What::Wire(ends),
        ..app(name, about, &[], needs, smoke)
    }
}

const IP: (&str, &str) = ("ip", "iproute2");
const PYTHON: (&str, &str) = ("/usr/bin/python3", "python3");

const MEMORY: &[&str] = &[
    "/bench/bin/memory",
    "/bench/bin/nothing",
    "/bench/bind/data",
];

/// More than any of the programs needs.
const LIMITED: Memory = Memory {
    limit: 2048,
    swap: None,
};

const SWAPPING: Memory = Memory {
    limit: 64,
    swap: Some(256),
};

pub const ALL: &[Experiment] = &[
    // What promises are made about.
    inside(
        "calls",
        "simple system calls, by each way that they can take",
        &["/bench/bin/calls", "/bench/bind"],
        Turns::Short,
        60,
    ),
    inside(
        "files-bind",
        "open, stat, create, read, write on a bind-mounted host tmpfs",
        &["/bench/bin/files", "/bench/bind"],
        Turns::Short,
        60,
    ),
    inside(
        "files-root",
        "the same on the root",
        &["/bench/bin/files", "/bench/root"],
        Turns::Short,
        60,
    ),
    inside(
        "files-inner",
        "the same on a tmpfs inside",
        &["/bench/bin/files", "/bench/inner"],
        Turns::Short,
        60,
    ),
    inside(
        "memory",
        "faults, fork, exec, mmap, mprotect",
        MEMORY,
        Turns::Short,
        90,
    ),
    inside(
        "switches",
        "hand-overs by pipe, socket and futex; threads",
        &["/bench/bin/switches"],
        Turns::Short,
        60,
    ),
    inside(
        "uring",
        "io_uring: requests that do nothing, and reads, one or 32 for each call",
        &["/bench/bin/uring"],
        Turns::Short,
        30,
    ),
    inside(
        "contention",
        "calls of 1 to 16 threads, and of as many processes, each of its own files and memory",
        &["/bench/bin/contention", "/bench/inner"],
        Turns::Short,
        60,
    ),
    Experiment {
        what: What::Start(&["/bench/bin/nothing"]),
        ..inside(
            "start-static",
            "`run` of a static program that does nothing",
            &[],
            Turns::Unpinned,
            30,
        )
    },
    Experiment {
        what: What::Start(&["/bin/true"]),
        ..inside("start-true", "`run` of /bin/true", &[], Turns::Unpinned, 30)
    },
    Experiment {
        what: What::StartBusy(&["/bin/true"]),
        ..inside(
            "start-busy",
            "`run` of /bin/true beside a busy loop on each CPU",
            &[],
            Turns::Unpinned,
            30,
        )
    },
    Experiment {
        what: What::Idle,
        ..inside(
            "idle",
            "memory of sandboxes that sleep: PSS of all their processes",
            &[],
            Turns::Long,
            60,
        )
    },
    Experiment {
        what: What::HostCalls,
        ..inside(
            "host-calls",
            "lengths of the allow-lists of Cloister's own processes",
            &[],
            Turns::Long,
            30,
        )
    },
    Experiment {
        needs: &[PYTHON],
        ..inside(
            "imports-root",
            "Python imports of nine modules from the root",
            &["/usr/bin/python3", "/bench/bin/imports.py", "/bench/site"],
            Turns::Long,
            120,
        )
    },
    Experiment {
        needs: &[PYTHON],
        ..inside(
            "imports-bind",
            "the same from a bind-mounted host tmpfs",
            &[
                "/usr/bin/python3",
                "/bench/bin/imports.py",
                "/bench/bind/site",
            ],
            Turns::Long,
            120,
        )
    },
    Experiment {
        needs: &[PYTHON],
        ..inside(
            "imports-inner",
            "the same from a tmpfs inside",
            &[
                "/usr/bin/python3",
                "/bench/bin/imports.py",
                "/bench/bind/site",
                "copy-to",
                "/bench/inner/site",
            ],
            Turns::Long,
            300,
        )
    },
    // Series.
    inside(
        "mallocs",
        "malloc of 4 KB to 1 MB, touched and not, never freed",
        &["/bench/bin/mallocs"],
        Turns::Long,
        180,
    ),
    inside(
        "mmap-counts",
        "Exp1: 5,000 to 500,000 mappings of 4, 16, 64 KB, never unmapped",
        &["/bench/bin/mmaps", "counts", "/bench/bind/data"],
        Turns::Long,
        300,
    ),
    inside(
        "mmap-sizes",
        "Exp2: 25,000 mappings of 1 KB to 1 MB, never unmapped",
        &["/bench/bin/mmaps", "sizes", "/bench/bind/data"],
        Turns::Long,
        400,
    ),
    inside(
        "download",
        "1 MB to 1 GB over the loopback inside",
        &["/bench/bin/download"],
        Turns::Long,
        120,
    ),
    Experiment {
        what: What::HostDownload,
        ..inside(
            "download-host",
            "1 MB to 1 GB from outside, with the host's network",
            &[],
            Turns::Long,
            120,
        )
    },
    Experiment {
        what: What::Rate(&[1, 2, 4, 8, 16]),
        ..inside(
            "rate",
            "containers created and destroyed by 1 to 16 threads",
            &[],
            Turns::Long,
            120,
        )
    },
    // Memory that is governed (ContainerVisor's paper).
    Experiment {
        what: What::Footprint,
        ..app(
            "footprint",
            "frames that the CLAS lists beside those that the host has, and its own memory",
            &[],
            &[
                PYTHON,
                ("sysbench", "sysbench"),
                ("redis-server", "redis-server"),
            ],
            false,
        )
    },
    Experiment {
        what: What::Within(LIMITED, MEMORY),
        ..inside(
            "memory-limit",
            "the experiment memory within a limit of 2 GB",
            &[],
            Turns::Short,
            90,
        )
    },
    app(
        "sysbench",
        "sysbench memory: sizes of blocks and of all that is written",
        &["/bin/bash", "/bench/apps/sysbench.sh"],
        &[("sysbench", "sysbench")],
        false,
    ),
    Experiment {
        what: What::Within(LIMITED, &["/bin/bash", "/bench/apps/sysbench.sh"]),
        ..app(
            "sysbench-limit",
            "the same within a limit of 2 GB",
            &[],
            &[("sysbench", "sysbench")],
            false,
        )
    },
    Experiment {
        what: What::Within(
            Memory {
                limit: 568,
                swap: None,
            },
            &["/bin/bash", "/bench/apps/sysbench.sh"],
        ),
        ..app(
            "sysbench-near",
            "the same, the largest block within a tenth of the limit",
            &[],
            &[("sysbench", "sysbench")],
            false,
        )
    },
    Experiment {
        what: What::Within(SWAPPING, &["/bench/bin/swap"]),
        ..inside(
            "swap",
            "pages that are swapped out and in, and 1.2 times the limit",
            &[],
            Turns::Long,
            120,
        )
    },
    Experiment {
        what: What::Within(SWAPPING, &["/bench/bin/policy"]),
        ..inside(
            "policy",
            "replacement policies: more than the limit, alone and beside others",
            &[],
            Turns::Long,
            120,
        )
    },
    // A network with a device.
    ends(
        "wire-client",
        "a client inside and a server outside: bytes, round trips, connections",
        wire(
            &["/bench/bin/wire", "all", "ADDRESS"],
            &["/bench/bin/wire", "serve", "cpu"],
            End::Inside,
        ),
        &[IP],
        true,
    ),
    ends(
        "wire-server",
        "the same, with the server inside",
        wire(
            &["/bench/bin/wire", "serve"],
            &["/bench/bin/wire", "all", "ADDRESS", "cpu"],
            End::Outside,
        ),
        &[IP],
        true,
    ),
    ends(
        "wire-scale",
        "round trips beside 10 to 10,000 open connections",
        wire(
            &["/bench/bin/wire", "serve"],
            &["/bench/bin/wire", "scale", "ADDRESS"],
            End::Outside,
        ),
        &[IP],
        false,
    ),
    Experiment {
        what: What::WireIdle,
        ..app(
            "wire-idle",
            "CPU of 100 open connections by which nothing comes",
            &[],
            &[IP],
            false,
        )
    },
    ends(
        "wire-user",
        "wire-client by a broker (--net=user)",
        Ends {
            way: Way::Broker,
            ..wire(
                &["/bench/bin/wire", "all", "ADDRESS"],
                &["/bench/bin/wire", "serve", "cpu"],
                End::Inside,
            )
        },
        &[IP],
        false,
    ),
    ends(
        "wire-nginx",
        "nginx inside; curl and wrk outside",
        wire(
            &["/bin/bash", "/bench/apps/wire.sh", "nginx", "serve"],
            &[
                "/bin/bash",
                "/bench/apps/wire.sh",
                "nginx",
                "tell",
                "ADDRESS",
            ],
            End::Outside,
        ),
        &[
            IP,
            ("nginx", "nginx-light"),
            ("wrk", "wrk"),
            ("curl", "curl"),
        ],
        false,
    ),
    ends(
        "wire-redis",
        "redis inside, redis-benchmark outside",
        wire(
            &["/bin/bash", "/bench/apps/wire.sh", "redis", "serve"],
            &[
                "/bin/bash",
                "/bench/apps/wire.sh",
                "redis",
                "tell",
                "ADDRESS",
            ],
            End::Outside,
        ),
        &[
            IP,
            ("redis-server", "redis-server"),
            ("redis-benchmark", "redis-tools"),
        ],
        false,
    ),
    ends(
        "wire-iperf3",
        "iperf3 -s inside, 1 and 8 streams both ways",
        wire(
            &["/bin/bash", "/bench/apps/wire.sh", "iperf3", "serve"],
            &[
                "/bin/bash",
                "/bench/apps/wire.sh",
                "iperf3",
                "tell",
                "ADDRESS",
            ],
            End::Outside,
        ),
        &[IP, ("iperf3", "iperf3")],
        false,
    ),
    // Whole applications.
    app(
        "app-redis",
        "redis-benchmark: SET and GET",
        &["/bin/bash", "/bench/apps/redis.sh"],
        &[
            ("redis-server", "redis-server"),
            ("redis-benchmark", "redis-tools"),
        ],
        true,
    ),
    app(
        "app-nginx",
        "nginx and wrk over the loopback",
        &["/bin/bash", "/bench/apps/nginx.sh"],
        &[("nginx", "nginx-light"), ("wrk", "wrk")],
        true,
    ),
    app(
        "app-sqlite",
        "SQLite: inserts, an index, transactions",
        &["/bin/bash", "/bench/apps/sqlite.sh"],
        &[("sqlite3", "sqlite3")],
        true,
    ),
    app(
        "app-node",
        "node: start, and HTTP to itself",
        &["/bin/bash", "/bench/apps/node.sh"],
        &[("node", "nodejs")],
        true,
    ),
    app(
        "app-cxx",
        "a C++ build",
        &["/bin/bash", "/bench/apps/cxx.sh"],
        &[("g++", "g++"), ("make", "make")],
        true,
    ),
    app(
        "app-git",
        "git clone and status of 5,000 files",
        &["/bin/bash", "/bench/apps/git.sh"],
        &[("git", "git")],
        true,
    ),
    app(
        "app-go",
        "a Go build",
        &["/bin/bash", "/bench/apps/go.sh"],
        &[("go", "golang-go")],
        false,
    ),
    app(
        "app-ffmpeg",
        "ffmpeg: encodes a test picture",
        &["/bin/bash", "/bench/apps/ffmpeg.sh"],
        &[("ffmpeg", "ffmpeg")],
        true,
    ),
    app(
        "app-pgbench",
        "PostgreSQL: initdb, pgbench",
        &["/bin/bash", "/bench/apps/pgbench.sh"],
        &[("/usr/lib/postgresql", "postgresql")],
        false,
    ),
];

pub fn named(name: &str) -> Option<&'static Experiment> {
    ALL.iter().find(|e| e.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_distinct() {
        for (i, e) in ALL.iter().enumerate() {
            assert!(ALL[..i].iter().all(|o| o.name != e.name), "{}", e.name);
            assert!(named(e.name).is_some_and(|f| f.about == e.about));
        }
    }

    /// What runs inside is there.
    #[test]
    fn programs_and_scripts_exist() {
        let bench = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../bench");
        for e in ALL {
            let (What::Inside(args) | What::Within(_, args)) = e.what else {
                continue;
            };
            for a in args {
                let file = if let Some(name) = a.strip_prefix("/bench/apps/") {
                    bench.join("apps").join(name)
                } else if let Some(name) = a.strip_prefix("/bench/bin/") {
                    let name = if name.contains('.') {
                        name.to_owned()
                    } else {
                        format!("{name}.c")
                    };
                    bench.join("programs").join(name)
                } else {
                    continue;
                };
                assert!(file.exists(), "{}: {}", e.name, file.display());
            }
        }
    }
}
