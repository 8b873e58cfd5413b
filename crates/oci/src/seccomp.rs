//! A bundle's seccomp profile as a classic BPF program for our kernel.
//!
//! The program is a binary search over the system-call numbers; its leaves return an action or ask
//! for the arguments. Where a profile is ambiguous it is read as runc and libseccomp read it: names
//! that this machine does not know are left out; a rule that says what the default says is left
//! out; a rule without conditions beats those with conditions; two conditions of one rule on the
//! same argument are two rules. Where the default refuses, calls newer than every one that the
//! profile names give `ENOSYS`, so that libraries fall back to what the profile's author knew.

use crate::Error;
use crate::spec::{Seccomp, SeccompArg};
use seccomp::bpf::{AND_K, ARCH, Insn, JA, JEQ_K, JGE_K, JGT_K, LD_ABS, MAX_INSNS, RET_K};
use seccomp::{ALLOW, ERRNO, KILL_PROCESS, KILL_THREAD, LOG, TRACE, TRAP};
use std::collections::BTreeMap;

/// Offsets in `struct seccomp_data`.
const NR: u32 = 0;
const ARCH_AT: u32 = 4;
const ARGS: u32 = 16;

/// The x32 calls' bit.
const X32: u32 = 0x4000_0000;
/// runc writes these as errno where the profile gives none.
const EPERM: u32 = 1;
const ENOSYS: u32 = 38;

fn insn(code: u16, k: u32, jt: usize, jf: usize) -> Insn {
    Insn {
        code,
        // Both fit: see `search` and `MAX_CONDITIONS`.
        jt: jt as u8,
        jf: jf as u8,
        k,
    }
}

fn action(name: &str, errno: Option<u32>) -> Result<u32, Error> {
    if errno.is_some_and(|e| e > 4095) {
        return Err(Error::new("linux.seccomp: errnoRet is larger than 4095"));
    }
    Ok(match name {
        "SCMP_ACT_ALLOW" => ALLOW,
        "SCMP_ACT_ERRNO" => ERRNO | errno.unwrap_or(EPERM),
        "SCMP_ACT_KILL" | "SCMP_ACT_KILL_THREAD" => KILL_THREAD,
        "SCMP_ACT_KILL_PROCESS" => KILL_PROCESS,
        "SCMP_ACT_TRAP" => TRAP,
        "SCMP_ACT_TRACE" => TRACE | errno.unwrap_or(EPERM),
        "SCMP_ACT_LOG" => LOG,
        "SCMP_ACT_NOTIFY" => {
            return Err(Error::new(
                "linux.seccomp: SCMP_ACT_NOTIFY is not supported: who listens on the host cannot look inside",
            ));
        }
        _ => {
            return Err(Error::new(format!(
                "linux.seccomp: action {name:?} is unknown"
            )));
        }
    })
}

/// A comparison of one argument.
#[derive(Clone, Copy)]
enum Test {
    Equal(u64),
    Greater(u64),
    GreaterOrEqual(u64),
    /// The bits of the mask, and what they must be.
    Masked(u64, u64),
}

#[derive(Clone, Copy)]
struct Condition {
    index: u32,
    test: Test,
    /// The test must fail.
    negated: bool,
}

impl Condition {
    fn new(a: &SeccompArg) -> Result<Condition, Error> {
        if a.index > 5 {
            return Err(Error::new(format!(
                "linux.seccomp: there is no argument {}",
                a.index
            )));
        }
        let (test, negated) = match a.op.as_str() {
            "SCMP_CMP_EQ" => (Test::Equal(a.value), false),
            "SCMP_CMP_NE" => (Test::Equal(a.value), true),
            "SCMP_CMP_GT" => (Test::Greater(a.value), false),
            "SCMP_CMP_LE" => (Test::Greater(a.value), true),
            "SCMP_CMP_GE" => (Test::GreaterOrEqual(a.value), false),
            "SCMP_CMP_LT" => (Test::GreaterOrEqual(a.value), true),
            "SCMP_CMP_MASKED_EQ" => (Test::Masked(a.value, a.value_two & a.value), false),
            op => {
                return Err(Error::new(format!(
                    "linux.seccomp: operator {op:?} is unknown"
                )));
            }
        };
        Ok(Condition {
            index: a.index,
            test,
            negated,
        })
    }

    /// Appends code that goes on behind itself if the condition holds, and else to `fail`
    /// instructions behind itself.
    fn emit(self, out: &mut Vec<Insn>, fail: usize) {
        let low = ARGS + 8 * self.index;
        let load = |at| insn(LD_ABS, at, 0, 0);
        let halves = |v: u64| ((v >> 32) as u32, v as u32);
        let (yes, no) = if self.negated { (fail, 0) } else { (0, fail) };
        // Distances count from behind the instruction: the last one's are `yes` and `no`, earlier
        // ones skip what lies between.
        match self.test {
            Test::Equal(v) => {
                let (hi, lo) = halves(v);
                out.push(load(low + 4));
                out.push(insn(JEQ_K, hi, 0, no + 2));
                out.push(load(low));
                out.push(insn(JEQ_K, lo, yes, no));
            }
            Test::Masked(mask, v) => {
                let ((mh, ml), (hi, lo)) = (halves(mask), halves(v));
                out.push(load(low + 4));
                out.push(insn(AND_K, mh, 0, 0));
                out.push(insn(JEQ_K, hi, 0, no + 3));
                out.push(load(low));
                out.push(insn(AND_K, ml, 0, 0));
                out.push(insn(JEQ_K, lo, yes, no));
            }
            Test::Greater(v) | Test::GreaterOrEqual(v) => {
                let (hi, lo) = halves(v);
                let code = if matches!(self.test, Test::Greater(_)) {
                    JGT_K
                } else {
                    JGE_K
                };
                out.push(load(low + 4));
                out.push(insn(JGT_K, hi, yes + 3, 0));
                out.push(insn(JEQ_K, hi, 0, no + 2));
                out.push(load(low));
                out.push(insn(code, lo, yes, no));
            }
        }
    }
}

/// Conditions that must all hold, and what then happens.
#[derive(Clone)]
struct Rule {
    all: Vec<Condition>,
    action: u32,
}

/// What is done with one system call.
#[derive(Clone)]
enum Leaf {
    Always(u32),
    /// The first that holds; else the default.
    Rules(Vec<Rule>),
}

impl Leaf {
    fn emit(&self, default: u32) -> Vec<Insn> {
        let mut out = Vec::new();
        match self {
            Leaf::Always(a) => out.push(insn(RET_K, *a, 0, 0)),
            Leaf::Rules(rules) => {
                for r in rules {
                    // From the back: each must know how far the end of the rule is.
                    let mut rule = vec![insn(RET_K, r.action, 0, 0)];
                    for c in r.all.iter().rev() {
                        let mut code = Vec::new();
                        c.emit(&mut code, rule.len());
                        code.append(&mut rule);
                        rule = code;
                    }
                    out.append(&mut rule);
                }
                out.push(insn(RET_K, default, 0, 0));
            }
        }
        out
    }
}

/// A rule has at most one condition for each argument: 6 × 6 + 1 instructions, well below a jump's
/// 255.
const MAX_CONDITIONS: usize = 6;

/// The search: `ranges` are first numbers with their leaves, in order.
fn search(ranges: &[(u32, Vec<Insn>)]) -> Vec<Insn> {
    if let [(_, code)] = ranges {
        return code.clone();
    }
    let (low, high) = ranges.split_at(ranges.len() / 2);
    let (mut below, mut above) = (search(low), search(high));
    let mut out = Vec::with_capacity(below.len() + above.len() + 2);
    if below.len() <= 255 {
        out.push(insn(JGE_K, high[0].0, below.len(), 0));
    } else {
        out.push(insn(JGE_K, high[0].0, 0, 1));
        out.push(insn(JA, below.len() as u32, 0, 0));
    }
    out.append(&mut below);
    out.append(&mut above);
    out
}

fn number(name: &str) -> Option<u32> {
    let all = abi::syscalls::NAMES;
    all.iter().find(|n| n.name == name).map(|n| n.nr)
}

const FLAGS: [&str; 3] = [
    "SECCOMP_FILTER_FLAG_LOG",
    "SECCOMP_FILTER_FLAG_SPEC_ALLOW",
    "SECCOMP_FILTER_FLAG_TSYNC",
];

/// What a profile may say, for the features document.
#[must_use]
pub fn features() -> serde_json::Value {
    serde_json::json!({
        "enabled": true,
        "actions": ["SCMP_ACT_ALLOW", "SCMP_ACT_ERRNO", "SCMP_ACT_KILL", "SCMP_ACT_KILL_PROCESS",
            "SCMP_ACT_KILL_THREAD", "SCMP_ACT_LOG", "SCMP_ACT_TRACE", "SCMP_ACT_TRAP"],
        "operators": ["SCMP_CMP_EQ", "SCMP_CMP_GE", "SCMP_CMP_GT", "SCMP_CMP_LE", "SCMP_CMP_LT",
            "SCMP_CMP_MASKED_EQ", "SCMP_CMP_NE"],
        "archs": ["SCMP_ARCH_X86_64"],
        "knownFlags": FLAGS,
        "supportedFlags": FLAGS,
    })
}

/// Compiles a profile.
pub fn compile(p: &Seccomp) -> Result<Vec<Insn>, Error> {
    check(p)?;
    let default = action(&p.default_action, p.default_errno_ret)?;
    let (calls, newest) = by_call(p, default)?;
    let mut out = vec![
        insn(LD_ABS, ARCH_AT, 0, 0),
        insn(JEQ_K, ARCH, 1, 0),
        insn(RET_K, KILL_PROCESS, 0, 0),
        insn(LD_ABS, NR, 0, 0),
    ];
    out.append(&mut search(&ranges(&calls, newest, default)));
    if out.len() > MAX_INSNS {
        return Err(Error::new(format!(
            "linux.seccomp: the profile is too large ({} instructions, {MAX_INSNS} at most)",
            out.len()
        )));
    }
    Ok(out)
}

/// Refuses what is asked for and is not there.
fn check(p: &Seccomp) -> Result<(), Error> {
    if !p.listener_path.is_empty() {
        return Err(Error::new(
            "linux.seccomp.listenerPath is not supported: who listens on the host cannot look inside",
        ));
    }
    for f in &p.flags {
        // What they ask for is so anyway, or has no meaning for a kernel without speculation or a
        // log.
        if !FLAGS.contains(&f.as_str()) {
            return Err(Error::new(format!(
                "linux.seccomp: flag {f} is not supported"
            )));
        }
    }
    Ok(())
}

/// What the profile says of each call, where that is not the default; and the newest call that it
/// names.
fn by_call(p: &Seccomp, default: u32) -> Result<(BTreeMap<u32, Leaf>, u32), Error> {
    let mut calls: BTreeMap<u32, Leaf> = BTreeMap::new();
    let mut newest = 0;
    for rule in &p.syscalls {
        let action = action(&rule.action, rule.errno_ret)?;
        let conditions = rule
            .args
            .iter()
            .map(Condition::new)
            .collect::<Result<Vec<_>, _>>()?;
        let rules = split(conditions, action)?;
        for name in &rule.names {
            let Some(nr) = number(name) else { continue };
            newest = newest.max(nr);
            if action == default {
                continue;
            }
            if rules.is_empty() {
                // The last such rule counts.
                calls.insert(nr, Leaf::Always(action));
                continue;
            }
            match calls.entry(nr).or_insert_with(|| Leaf::Rules(Vec::new())) {
                Leaf::Always(_) => {}
                Leaf::Rules(r) => r.extend(rules.iter().cloned()),
            }
        }
    }
    Ok((calls, newest))
}

/// All numbers, as ranges that begin at one and have the same code.
fn ranges(calls: &BTreeMap<u32, Leaf>, newest: u32, default: u32) -> Vec<(u32, Vec<Insn>)> {
    let refuses = !matches!(default & 0xffff_0000, ALLOW | LOG | TRACE);
    let beyond = if refuses { ERRNO | ENOSYS } else { default };
    let mut ranges: Vec<(u32, Vec<Insn>)> = Vec::new();
    let mut add = |from: u32, code: Vec<Insn>| {
        // Neighbours that do the same are one range.
        if ranges.last().is_none_or(|l| l.1 != code) {
            ranges.push((from, code));
        }
    };
    let otherwise = vec![insn(RET_K, default, 0, 0)];
    let mut next = 0;
    for (nr, leaf) in calls {
        if *nr > next {
            add(next, otherwise.clone());
        }
        add(*nr, leaf.emit(default));
        next = nr + 1;
    }
    if next <= newest {
        add(next, otherwise.clone());
    }
    add(newest + 1, vec![insn(RET_K, beyond, 0, 0)]);
    add(X32, otherwise);
    ranges
}

/// One rule, or one for each condition where an argument is named twice.
fn split(all: Vec<Condition>, action: u32) -> Result<Vec<Rule>, Error> {
    let twice = all
        .iter()
        .enumerate()
        .any(|(n, c)| all[..n].iter().any(|d| d.index == c.index));
    if twice {
        let each = all.into_iter().map(|c| Rule {
            all: vec![c],
            action,
        });
        return Ok(each.collect());
    }
    debug_assert!(all.len() <= MAX_CONDITIONS);
    Ok(if all.is_empty() {
        Vec::new()
    } else {
        vec![Rule { all, action }]
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use seccomp::bpf::Program;

    fn run(program: &Program, nr: u32, args: [u64; 6]) -> u32 {
        let mut data = [0u32; 16];
        data[0] = nr;
        data[1] = ARCH;
        for (n, a) in args.iter().enumerate() {
            data[4 + 2 * n] = *a as u32;
            data[5 + 2 * n] = (*a >> 32) as u32;
        }
        program.run(&data)
    }

    fn profile(text: &str) -> Program {
        let (p, unknown) = crate::spec::parse::<Seccomp>(text.as_bytes()).unwrap();
        assert!(unknown.is_empty());
        Program::new(&compile(&p).unwrap()).unwrap()
    }

    #[test]
    fn rules_of_a_profile() {
        let p = profile(
            r#"{"defaultAction":"SCMP_ACT_ERRNO","defaultErrnoRet":13,"architectures":["SCMP_ARCH_X86_64"],
            "syscalls":[
              {"names":["read","write","chown32"],"action":"SCMP_ACT_ALLOW"},
              {"names":["personality"],"action":"SCMP_ACT_ALLOW","args":[{"index":0,"value":0,"op":"SCMP_CMP_EQ"}]},
              {"names":["personality"],"action":"SCMP_ACT_ALLOW","args":[{"index":0,"value":8,"op":"SCMP_CMP_EQ"}]},
              {"names":["clone"],"action":"SCMP_ACT_ALLOW",
               "args":[{"index":0,"value":2114060288,"valueTwo":0,"op":"SCMP_CMP_MASKED_EQ"}]},
              {"names":["socket"],"action":"SCMP_ACT_ALLOW",
               "args":[{"index":0,"value":40,"op":"SCMP_CMP_NE"}]},
              {"names":["clone3"],"action":"SCMP_ACT_ERRNO","errnoRet":38}]}"#,
        );
        let call = |name: &str, a: u64| run(&p, number(name).unwrap(), [a, 0, 0, 0, 0, 0]);
        assert_eq!(call("read", 1), ALLOW);
        assert_eq!(call("open", 1), ERRNO | 13);
        assert_eq!(call("personality", 8), ALLOW);
        assert_eq!(call("personality", 8 | 1 << 40), ERRNO | 13);
        assert_eq!(call("personality", 7), ERRNO | 13);
        assert_eq!(call("clone", 17), ALLOW);
        assert_eq!(call("clone", 0x1000_0000), ERRNO | 13);
        assert_eq!(call("socket", 40), ERRNO | 13);
        assert_eq!(call("socket", 40 | 1 << 32), ALLOW);
        assert_eq!(call("clone3", 0), ERRNO | 38);
        // Newer than what the profile names.
        assert_eq!(call("openat2", 0), ERRNO | 38);
        assert_eq!(run(&p, X32, [0; 6]), ERRNO | 13);
    }

    #[test]
    fn refusals_name_the_word() {
        for (text, word) in [
            (r#"{"defaultAction":"ALLOW"}"#, "\"ALLOW\""),
            (r#"{"defaultAction":"SCMP_ACT_NOTIFY"}"#, "SCMP_ACT_NOTIFY"),
            (
                r#"{"defaultAction":"SCMP_ACT_ALLOW","listenerPath":"/x"}"#,
                "listenerPath",
            ),
            (
                r#"{"defaultAction":"SCMP_ACT_ALLOW","flags":["X"]}"#,
                "flag X",
            ),
            (
                r#"{"defaultAction":"SCMP_ACT_ALLOW","syscalls":[{"names":["read"],"action":"SCMP_ACT_LOG",
                "args":[{"index":6,"op":"SCMP_CMP_EQ"}]}]}"#,
                "argument 6",
            ),
        ] {
            let (p, _) = crate::spec::parse::<Seccomp>(text.as_bytes()).unwrap();
            let Err(why) = compile(&p).map_err(|e| e.to_string()) else {
                panic!("{text} is accepted")
            };
            assert!(why.contains(word), "{why}");
        }
    }

    proptest! {
        /// Every operator against what it says, also at the edges of the halves.
        #[test]
        fn operators(op in 0usize..7, v in edges(), two in edges(), arg in edges(), index in 0u32..6) {
            let names = ["EQ", "NE", "GT", "GE", "LT", "LE", "MASKED_EQ"];
            let text = format!(
                r#"{{"defaultAction":"SCMP_ACT_KILL","syscalls":[{{"names":["ioctl"],"action":"SCMP_ACT_ALLOW",
                "args":[{{"index":{index},"value":{v},"valueTwo":{two},"op":"SCMP_CMP_{}"}}]}}]}}"#,
                names[op]
            );
            let mut args = [0x55; 6];
            args[index as usize] = arg;
            let holds = match op {
                0 => arg == v,
                1 => arg != v,
                2 => arg > v,
                3 => arg >= v,
                4 => arg < v,
                5 => arg <= v,
                _ => arg & v == two & v,
            };
            let answer = run(&profile(&text), number("ioctl").unwrap(), args);
            prop_assert_eq!(answer, if holds { ALLOW } else { 0 });
        }

        /// Any set of names: the search finds exactly them.
        #[test]
        fn names(picked in proptest::collection::btree_set(0usize..300, 0..300)) {
            let names: Vec<_> = picked.iter().map(|n| abi::syscalls::NAMES[*n].name).collect();
            let text = format!(
                r#"{{"defaultAction":"SCMP_ACT_LOG","syscalls":[{{"names":{},"action":"SCMP_ACT_ALLOW"}}]}}"#,
                serde_json::to_string(&names).unwrap()
            );
            let p = profile(&text);
            for (at, n) in abi::syscalls::NAMES.iter().enumerate() {
                let want = if picked.contains(&at) { ALLOW } else { LOG };
                prop_assert_eq!(run(&p, n.nr, [0; 6]), want);
            }
        }
    }

    fn edges() -> impl Strategy<Value = u64> {
        prop_oneof![
            Just(0),
            Just(1),
            Just(u64::from(u32::MAX)),
            Just(1 << 32),
            Just(u64::MAX),
            0u64..4,
            any::<u64>()
        ]
    }
}
