//! What perf recorded, as `perf script` prints it, counted by role.

use super::record::{EVERY, Recorded};
use super::roles::{Marks, Role, call, is_idle, kind};
use crate::bench::Result;
use crate::bench::command::{Group, Stop};
use crate::bench::results::{Event, Part, Profile};
use std::collections::{BTreeMap, HashMap};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

/// Functions and calls that are told, at most.
const TOLD: usize = 12;

/// Where a sample was.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Place {
    Own,
    Stub,
    Kernel,
}

/// Stacks are outermost first, joined by ";".
#[derive(PartialEq, Eq, Hash)]
struct Stack {
    thread: String,
    user: String,
    kernel: String,
    place: Place,
    /// The stub's code lies beneath.
    stub: bool,
}

#[derive(Default)]
struct Process {
    marks: Marks,
    stacks: HashMap<Stack, u64>,
}

#[derive(Default)]
pub struct Found {
    /// Of the sandbox.
    pub samples: u64,
    idle: u64,
    others: u64,
    stacks: Vec<(Role, Stack, u64)>,
    calls: BTreeMap<(Role, String), u64>,
    switches: BTreeMap<Role, u64>,
    faults: BTreeMap<Role, u64>,
}

/// The first line of a record: `comm pid/tid [cpu] time: more`.
#[derive(Debug, PartialEq)]
struct Head<'a> {
    comm: &'a str,
    pid: i32,
    cpu: usize,
    time: f64,
    rest: &'a str,
}

impl<'a> Head<'a> {
    /// A comm may have spaces: what stands before the first number/number is one.
    fn parse(line: &'a str) -> Option<Head<'a>> {
        let (at, ids) = line.match_indices('/').find_map(|(slash, _)| {
            let from = line[..slash].rfind(' ')? + 1;
            let to = slash + line[slash..].find(' ')?;
            let (pid, tid) = line[from..to].split_once('/')?;
            tid.parse::<i32>().ok()?;
            Some((from..to, pid.parse::<i32>().ok()?))
        })?;
        let mut rest = line[at.end..].trim_start().splitn(2, ']');
        let cpu = rest.next()?.strip_prefix('[')?.parse().ok()?;
        let (time, rest) = rest.next()?.split_once(':')?;
        Some(Head {
            comm: line[..at.start].trim(),
            pid: ids,
            cpu,
            time: time.trim().parse().ok()?,
            rest: rest.trim(),
        })
    }
}

/// A line of a stack: address, function and file, `\t  7f12 name+0x1 (/lib/x)`.
struct Frame {
    kernel: bool,
    name: String,
    dso: String,
}

impl Frame {
    fn parse(line: &str) -> Option<Frame> {
        let (address, rest) = line.trim().split_once(' ')?;
        let address = u64::from_str_radix(address, 16).ok()?;
        // Where the recorded part of a stack ended.
        if address == u64::MAX {
            return None;
        }
        let whole = rest.strip_suffix(" (deleted))").unwrap_or(rest);
        let (name, dso) = whole.split_at(whole.rfind(" (")?);
        let mut name = name.replace(';', ":");
        for end in [".isra.", ".part.", ".constprop.", ".cold"] {
            if let Some(at) = name.find(end) {
                name.truncate(at);
            }
        }
        Some(Frame {
            kernel: address >= 1 << 63,
            name,
            dso: dso[2..].trim_end_matches(')').to_owned(),
        })
    }

    /// Functions without a name by their file's.
    fn shown(&self) -> String {
        if self.name != "[unknown]" {
            return self.name.clone();
        }
        let file = self.dso.rsplit('/').next().unwrap_or_default();
        match file {
            "" | "[unknown]" => String::new(),
            f => format!("[{}]", f.replace(';', ":")),
        }
    }
}

/// `perf script` of a recording, line by line.
fn script(data: &Path, fields: &str, stop: &Stop, mut each: impl FnMut(&str)) -> Result<()> {
    let mut command = Command::new("perf");
    command
        .args(["script", "--no-inline", "-F", fields, "-i"])
        .arg(data)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    let mut perf = Group::start(&mut command)?;
    let out = perf.0.stdout.take().ok_or("perf has no output")?;
    let mut lines = BufReader::with_capacity(1 << 20, out);
    let mut line = Vec::new();
    loop {
        line.clear();
        if lines
            .read_until(b'\n', &mut line)
            .map_err(|e| e.to_string())?
            == 0
        {
            break;
        }
        if stop.is_set() {
            return Err("interrupted".to_owned());
        }
        each(String::from_utf8_lossy(&line).trim_end());
    }
    let status = perf.0.wait().map_err(|e| e.to_string())?;
    if status.success() {
        Ok(())
    } else {
        Err(format!("perf script ended with {status}"))
    }
}

/// What happened within the window. `cpu`: the only one that was used; another's idleness says
/// nothing.
pub fn read(
    recorded: &Recorded,
    window: (f64, f64),
    cpu: Option<usize>,
    stop: &Stop,
) -> Result<Found> {
    let within = |h: &Head| h.time >= window.0 && h.time <= window.1;
    let mut found = Found::default();
    let mut processes: HashMap<i32, Process> = HashMap::new();
    let mut head: Option<(String, i32, usize, bool)> = None;
    let mut frames: Vec<Frame> = Vec::new();
    let mut sample = |head: Option<(String, i32, usize, bool)>, frames: &mut Vec<Frame>| {
        if let Some((comm, pid, on, counts)) = head {
            found.add(
                &mut processes,
                (comm, pid),
                frames,
                counts,
                cpu.is_none_or(|c| c == on),
            );
        }
        frames.clear();
    };
    script(
        &recorded.stacks(),
        "comm,pid,tid,cpu,time,ip,sym,dso",
        stop,
        |line| {
            if line.starts_with('\t') {
                frames.extend(Frame::parse(line));
            } else if !line.is_empty() {
                sample(head.take(), &mut frames);
                head = Head::parse(line).map(|h| (h.comm.to_owned(), h.pid, h.cpu, within(&h)));
            }
        },
    )?;
    sample(head.take(), &mut frames);
    let roles: HashMap<i32, Role> = processes
        .iter()
        .filter_map(|(&pid, p)| Some((pid, p.marks.role()?)))
        .collect();
    for (pid, p) in processes {
        let all = p.stacks.values().sum::<u64>();
        let Some(&role) = roles.get(&pid) else {
            found.others += all;
            continue;
        };
        found.samples += all;
        found
            .stacks
            .extend(p.stacks.into_iter().map(|(s, n)| (role, s, n)));
    }
    script(
        &recorded.events(),
        "comm,pid,tid,cpu,time,event,trace",
        stop,
        |line| {
            let Some(h) = Head::parse(line).filter(within) else {
                return;
            };
            // A process that was never sampled: what it is called decides.
            let mut marks = Marks::default();
            marks.comm(h.comm);
            if let Some(role) = roles.get(&h.pid).copied().or(marks.role())
                && h.pid > 0
            {
                found.event(role, h.rest);
            }
        },
    )?;
    Ok(found)
}

impl Found {
    fn add(
        &mut self,
        processes: &mut HashMap<i32, Process>,
        (comm, pid): (String, i32),
        frames: &[Frame],
        counts: bool,
        here: bool,
    ) {
        let kernel: Vec<&str> = frames
            .iter()
            .filter(|f| f.kernel)
            .map(|f| f.name.as_str())
            .collect();
        // A process that is not in this process namespace has the number 0, as idle CPUs have.
        if pid <= 0 {
            match counts && here {
                true if is_idle(&kernel) => self.idle += 1,
                true => self.others += 1,
                false => {}
            }
            return;
        }
        let p = processes.entry(pid).or_default();
        p.marks.comm(&comm);
        frames.iter().for_each(|f| p.marks.frame(&f.name, &f.dso));
        if !counts {
            return;
        }
        let user: Vec<&Frame> = frames.iter().filter(|f| !f.kernel).collect();
        let stub = user
            .first()
            .is_some_and(|f| f.dso.contains("cloister-stub"));
        let place = match (kernel.is_empty(), stub) {
            (false, _) => Place::Kernel,
            (true, true) => Place::Stub,
            (true, false) => Place::Own,
        };
        let names: Vec<String> = user
            .iter()
            .rev()
            .map(|f| f.shown())
            .filter(|n| !n.is_empty())
            .collect();
        let stack = Stack {
            thread: comm,
            user: names.join(";"),
            kernel: kernel.into_iter().rev().collect::<Vec<_>>().join(";"),
            place,
            stub,
        };
        *p.stacks.entry(stack).or_default() += 1;
    }

    fn event(&mut self, role: Role, rest: &str) {
        let Some((event, trace)) = rest.split_once(": ") else {
            return;
        };
        match event.trim() {
            "raw_syscalls:sys_enter" => {
                // NR 16 (b, c0502100, …)
                let Some((nr, arguments)) = trace
                    .trim()
                    .strip_prefix("NR ")
                    .and_then(|t| t.split_once(" ("))
                else {
                    return;
                };
                let Ok(nr) = nr.parse() else { return };
                let second = arguments.split(", ").nth(1).unwrap_or_default();
                let second = u64::from_str_radix(second, 16).unwrap_or(0);
                *self.calls.entry((role, call(nr, second))).or_default() += EVERY;
            }
            "sched:sched_switch" => *self.switches.entry(role).or_default() += EVERY,
            "exceptions:page_fault_user" => *self.faults.entry(role).or_default() += EVERY,
            _ => {}
        }
    }

    /// For a flame graph: role, thread, functions, and how many samples.
    pub fn folded(&self) -> Vec<String> {
        let mut all: BTreeMap<String, u64> = BTreeMap::new();
        for (role, s, n) in &self.stacks {
            let under = match (role, s.stub) {
                (Role::Application, true) => "stub",
                // Where the host's kernel was called from is not told of memory that perf knows no
                // file of.
                (Role::Application, false) if s.user.is_empty() && s.place == Place::Kernel => "",
                // Unwinding what a hostile program has on its stack tells nothing.
                (Role::Application, false) => "program",
                _ => s.user.as_str(),
            };
            let thread = if *role == Role::Sentry {
                s.thread.as_str()
            } else {
                ""
            };
            let parts = [role.name(), thread, under, s.kernel.as_str()];
            let parts: Vec<&str> = parts.into_iter().filter(|p| !p.is_empty()).collect();
            *all.entry(parts.join(";")).or_default() += n;
        }
        all.into_iter().map(|(s, n)| format!("{s} {n}")).collect()
    }

    /// The counts, into a profile.
    pub fn tell(&self, to: &mut Profile) {
        let (mut kinds, mut functions) = (BTreeMap::new(), BTreeMap::new());
        for role in Role::ALL {
            let of = |place| {
                let mine = self
                    .stacks
                    .iter()
                    .filter(|(r, s, _)| *r == role && s.place == place);
                mine.map(|(_, _, n)| n).sum::<u64>()
            };
            let sum = |m: &BTreeMap<Role, u64>| m.get(&role).copied().unwrap_or(0);
            to.parts.push(Part {
                role: role.name().to_owned(),
                own: of(Place::Own),
                stub: of(Place::Stub),
                kernel: of(Place::Kernel),
                calls: self
                    .calls
                    .iter()
                    .filter(|((r, _), _)| *r == role)
                    .map(|(_, n)| n)
                    .sum(),
                switches: sum(&self.switches),
                faults: sum(&self.faults),
            });
        }
        for (role, s, n) in &self.stacks {
            if s.place == Place::Kernel {
                let frames: Vec<&str> = s.kernel.split(';').rev().collect();
                *kinds.entry((*role, kind(&frames).to_owned())).or_default() += n;
            }
            let leaf = match (s.place, role) {
                (Place::Kernel, _) => s.kernel.rsplit(';').next().unwrap_or_default(),
                (Place::Stub, _) => "the stub",
                (Place::Own, Role::Application) => "the program",
                (Place::Own, _) => s.user.rsplit(';').next().unwrap_or_default(),
            };
            *functions.entry((*role, leaf.to_owned())).or_default() += n;
        }
        to.samples = self.samples;
        to.idle = self.idle;
        to.others = self.others;
        to.kinds = most(kinds, usize::MAX);
        to.functions = most(functions, TOLD);
        to.calls = most(self.calls.clone(), TOLD);
    }
}

/// The largest first.
fn most(of: BTreeMap<(Role, String), u64>, at_most: usize) -> Vec<Event> {
    let event = |((role, name), count): ((Role, String), u64)| Event {
        role: role.name().to_owned(),
        name,
        count,
    };
    let mut all: Vec<Event> = of.into_iter().map(event).collect();
    all.sort_by_key(|e| std::cmp::Reverse(e.count));
    all.truncate(at_most);
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads() {
        let h = Head::parse("lto cgu.0/1  12/34    [001]  764.332538: ").unwrap();
        assert_eq!(
            (h.comm, h.pid, h.cpu, h.time),
            ("lto cgu.0/1", 12, 1, 764.332_538)
        );
        let h =
            Head::parse("  task 125/134 [000] 9.5: raw_syscalls:sys_enter: NR 16 (b, c0502100, 0)")
                .unwrap();
        assert_eq!(h.rest, "raw_syscalls:sys_enter: NR 16 (b, c0502100, 0)");
        assert_eq!(Head::parse(":-1 -1/-1 [000] 9.5: ").unwrap().pid, -1);
        assert_eq!(Head::parse("nothing of the kind"), None);
    }

    #[test]
    fn frames() {
        let f = Frame::parse("\t 1e7 [unknown] (/memfd:cloister-stub (deleted))").unwrap();
        assert_eq!(
            (f.dso.as_str(), f.shown().as_str()),
            ("/memfd:cloister-stub", "[memfd:cloister-stub]")
        );
        let f = Frame::parse("\tffffffff821f2fa7 finish_task_switch.isra.0 ([kernel.kallsyms])")
            .unwrap();
        assert_eq!((f.kernel, f.name.as_str()), (true, "finish_task_switch"));
        let f = Frame::parse("\t 5ce769 <a as b (c)>::d (/x/cloister)").unwrap();
        assert_eq!(
            (f.kernel, f.name.as_str(), f.dso.as_str()),
            (false, "<a as b (c)>::d", "/x/cloister")
        );
        assert!(Frame::parse("\tffffffffffffffff [unknown] ([unknown])").is_none());
    }

    #[test]
    fn samples_by_role() {
        let mut found = Found::default();
        let mut processes = HashMap::new();
        let frames = |lines: &[&str]| {
            lines
                .iter()
                .filter_map(|l| Frame::parse(l))
                .collect::<Vec<_>>()
        };
        let idle = frames(&["\tffffffff80000000 do_idle ([kernel.kallsyms])"]);
        found.add(&mut processes, ("swapper".to_owned(), 0), &idle, true, true);
        found.add(&mut processes, ("rustc".to_owned(), 0), &[], true, true);
        // Another CPU's, and another time's.
        found.add(&mut processes, ("rustc".to_owned(), 0), &[], true, false);
        found.add(&mut processes, ("rustc".to_owned(), 0), &[], false, true);
        let stub = frames(&[
            "\tffffffff80000000 seccomp_do_user_notification ([kernel.kallsyms])",
            "\t1e7 [unknown] (/memfd:cloister-stub (deleted))",
        ]);
        found.add(
            &mut processes,
            ("cloister".to_owned(), 7),
            &stub,
            true,
            true,
        );
        found.add(
            &mut processes,
            ("cloister".to_owned(), 7),
            &stub[1..],
            true,
            true,
        );
        assert_eq!((found.idle, found.others), (1, 1));
        let p = processes.remove(&7).unwrap();
        let role = p.marks.role().unwrap();
        found.samples = 2;
        found.stacks = p.stacks.into_iter().map(|(s, n)| (role, s, n)).collect();
        found.event(role, "raw_syscalls:sys_enter: NR 202 (0, 1, 2)");
        let mut told = Profile::default();
        found.tell(&mut told);
        assert_eq!((told.parts[0].stub, told.parts[0].kernel), (1, 1));
        assert_eq!(
            (told.calls[0].name.as_str(), told.calls[0].count),
            ("futex", EVERY)
        );
        assert_eq!(
            found.folded(),
            [
                "application;stub 1",
                "application;stub;seccomp_do_user_notification 1"
            ]
        );
    }
}
