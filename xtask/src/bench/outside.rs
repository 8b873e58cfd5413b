//! What is measured from outside the container.

use super::Result;
use super::command::{Group, run};
use super::peers::Net;
use super::results::Line;
use super::turns::{Turn, owned};
use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// Containers created and destroyed in a second, by so many threads at a time.
pub fn rate(turn: &Turn, threads: &[u32]) -> Result<Vec<Line>> {
    let long = Duration::from_millis(if turn.plan.smoke { 100 } else { 3000 });
    let mut found = Vec::new();
    for &n in threads {
        let done = AtomicU32::new(0);
        let began = Instant::now();
        let one = || -> Result<()> {
            while began.elapsed() < long {
                let (mut command, id) =
                    turn.command(&owned(&["/bench/bin/nothing"]), Net::Own, &[])?;
                let output = run(&mut command, turn.limit, turn.stop);
                let output = output.inspect_err(|_| turn.peer.delete(turn.plan, &id))?;
                if !output.status.success() {
                    return Err(output.words(&turn.peer.name));
                }
                done.fetch_add(1, Ordering::Relaxed);
            }
            Ok(())
        };
        std::thread::scope(|s| {
            let all: Vec<_> = (0..n).map(|_| s.spawn(one)).collect();
            all.into_iter().try_for_each(|t| {
                t.join()
                    .unwrap_or_else(|_| Err("a thread failed".to_owned()))
            })
        })?;
        let per_second = f64::from(done.into_inner()) / began.elapsed().as_secs_f64();
        found.push(Line::Value(
            format!("containers, by threads@{n}"),
            per_second,
            "/s".to_owned(),
        ));
    }
    Ok(found)
}

/// What is measured beside a busy loop on each CPU.
pub fn beside_loops(measure: impl FnOnce() -> Result<Vec<Line>>) -> Result<Vec<Line>> {
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let over = AtomicBool::new(false);
    let found = std::thread::scope(|s| {
        for _ in 0..cpus {
            s.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            });
        }
        // Until all of them run.
        std::thread::sleep(Duration::from_millis(20));
        let found = measure();
        over.store(true, Ordering::Relaxed);
        found
    })?;
    let beside = |l| match l {
        Line::Value(name, value, unit) => Line::Value(format!("{name}, busy"), value, unit),
        l => l,
    };
    Ok(found.into_iter().map(beside).collect())
}

/// Memory of one sandbox, and of each of ten, in which a program sleeps.
pub fn idle(turn: &Turn) -> Result<Vec<Line>> {
    let mut found = Vec::new();
    for (n, name) in [(1, "PSS of one"), (10, "PSS of each of ten")] {
        if turn.plan.smoke && n > 1 {
            continue;
        }
        let before = processes();
        let mut running = Vec::new();
        let told = sleepers(turn, n, &mut running).and_then(|()| {
            let now: BTreeSet<u32> = processes().difference(&before).copied().collect();
            for (child, _) in &mut running {
                if let Ok(Some(status)) = child.0.try_wait() {
                    return Err(format!("the sandbox ended with {status}"));
                }
            }
            Ok((now.iter().map(|&p| pss(p)).sum::<f64>() / 1024.0, now.len()))
        });
        for (child, id) in running {
            // First the one that would wait for the sandbox, too: runsc's `delete` and `run` get
            // into each other's way.
            drop(child);
            turn.peer.delete(turn.plan, &id);
        }
        // What the runtime leaves to others to reap, or what still ends.
        let until = Instant::now() + Duration::from_secs(10);
        while processes().difference(&before).next().is_some() && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(20));
        }
        let (mib, count) = told?;
        found.push(Line::Value(
            name.to_owned(),
            mib / f64::from(n),
            "MiB".to_owned(),
        ));
        if n == 1 {
            found.push(Line::Value(
                "processes of one".to_owned(),
                count as f64,
                "".to_owned(),
            ));
        }
    }
    Ok(found)
}

fn sleepers(turn: &Turn, n: u32, running: &mut Vec<(Group, String)>) -> Result<()> {
    for _ in 0..n {
        let (mut command, id) = turn.command(&owned(&["/bin/sleep", "1000"]), Net::Own, &[])?;
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        running.push((Group::start(&mut command)?, id));
    }
    let until = Instant::now()
        + Duration::from_millis(if turn.plan.smoke {
            500
        } else {
            1500 + 200 * u64::from(n)
        });
    while Instant::now() < until {
        if turn.stop.is_set() {
            return Err("interrupted".to_owned());
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    Ok(())
}

/// How many calls the processes of a sandbox may make.
pub fn host_calls(turn: &Turn) -> Result<Vec<Line>> {
    let mut command = Command::new(&turn.peer.program);
    command.args(["debug", "host-calls", "--json"]);
    let told = run(&mut command, turn.limit, turn.stop)?.ok("debug host-calls")?;
    let calls: Vec<serde_json::Map<String, serde_json::Value>> =
        serde_json::from_str(&told).map_err(|e| format!("debug host-calls: {e}"))?;
    let of = |process: &str| {
        let may = |c: &&serde_json::Map<_, _>| c[process] == serde_json::Value::Bool(true);
        let count = calls.iter().filter(may).count();
        Line::Value(process.to_owned(), count as f64, "calls".to_owned())
    };
    Ok(vec![of("sentry"), of("gofer")])
}

/// All in this process namespace: there is nobody else's.
pub fn processes() -> BTreeSet<u32> {
    let Ok(dir) = std::fs::read_dir("/proc") else {
        return BTreeSet::new();
    };
    dir.flatten()
        .filter_map(|e| e.file_name().to_str()?.parse().ok())
        .collect()
}

/// The CPU time of a process and its threads; none of one that has ended.
pub fn cpu_ms(pid: u32) -> f64 {
    let Ok(threads) = std::fs::read_dir(format!("/proc/{pid}/task")) else {
        return 0.0;
    };
    let of = |t: std::fs::DirEntry| {
        let text = std::fs::read_to_string(t.path().join("schedstat")).ok()?;
        text.split(' ').next()?.parse::<f64>().ok()
    };
    threads.flatten().filter_map(of).sum::<f64>() / 1e6
}

/// KiB; none of a process that has ended.
fn pss(pid: u32) -> f64 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap_or_default();
    let line = text.lines().find(|l| l.starts_with("Pss:"));
    line.and_then(|l| l.split_whitespace().nth(1)?.parse().ok())
        .unwrap_or(0.0)
}

/// A client in the container, with the host's network, and a server on the host.
pub fn download(turn: &Turn) -> Result<Vec<Line>> {
    let mut command = Command::new(turn.plan.material.dir.join("bin/download"));
    command
        .arg("serve")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    let mut server = Group::start(&mut command)?;
    let mut port = String::new();
    let out = server.0.stdout.take().ok_or("the server has no output")?;
    BufReader::new(out)
        .read_line(&mut port)
        .map_err(|e| format!("the server: {e}"))?;
    turn.inside(
        &owned(&["/bench/bin/download", "from", port.trim()]),
        Net::Host,
    )
}
