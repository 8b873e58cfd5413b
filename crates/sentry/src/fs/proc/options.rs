//! Options of a proc mount: who sees whose processes (proc(5), "Mount options").

use crate::task::access::{self, By};
use crate::{Kernel, Task};
use abi::Result;
use abi::errno::EINVAL;
use parking_lot::Mutex;
use std::sync::Arc;
use vfs::fs::dynamic::DynOptions;
use vfs::userns::UserNs;
use vfs::{Caller, Credentials};

/// `hidepid=`: what there is of processes that the caller may not trace, in Linux's order.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Hidden {
    /// Everything.
    #[default]
    Nothing,
    /// The directory, which cannot be entered.
    Contents,
    /// Nothing.
    Names,
    /// Nothing, for the members of the group `gid=`, too.
    NamesFromAll,
}

impl Hidden {
    fn parse(word: &str) -> Result<Hidden> {
        Ok(match word {
            "off" | "0" => Hidden::Nothing,
            "noaccess" | "1" => Hidden::Contents,
            "invisible" | "2" => Hidden::Names,
            "ptraceable" | "4" => Hidden::NamesFromAll,
            _ => return Err(EINVAL),
        })
    }
    fn word(self) -> &'static str {
        match self {
            Hidden::Nothing => "off",
            Hidden::Contents => "noaccess",
            Hidden::Names => "invisible",
            Hidden::NamesFromAll => "ptraceable",
        }
    }
}

/// What a mount was asked for. The group is the kernel's number.
#[derive(Clone, Copy, Default, Debug)]
struct Options {
    hidden: Hidden,
    gid: u32,
    pids_only: bool,
}

impl Options {
    /// The options that `data` names; others stay.
    fn change(&mut self, data: &str, ns: &UserNs) -> Result<()> {
        for word in data.split(',').filter(|w| !w.is_empty()) {
            match word.split_once('=') {
                Some(("hidepid", v)) => self.hidden = Hidden::parse(v)?,
                Some(("gid", v)) => self.gid = ns.gid_from(v.parse().map_err(|_| EINVAL)?)?,
                Some(("subset", "pid")) => self.pids_only = true,
                _ => return Err(EINVAL),
            }
        }
        Ok(())
    }
}

/// The options of one mount, until a remount asks for something else.
pub struct ProcMount(Mutex<Options>, UserNs);

impl ProcMount {
    pub fn new(data: &str, ns: UserNs) -> Result<ProcMount> {
        let mut o = Options::default();
        o.change(data, &ns)?;
        Ok(ProcMount(Mutex::new(o), ns))
    }

    /// Whether it shows nothing but processes.
    pub fn pids_only(&self) -> bool {
        self.0.lock().pids_only
    }

    /// Whether the caller sees the name of a directory. `target` is asked only where that depends
    /// on whose it is.
    pub fn shows(&self, cx: &Caller<'_>, target: impl FnOnce() -> Target) -> bool {
        self.passes(Hidden::Names, cx.cred, || may_read(cx, &target()))
    }
    /// Whether the caller may enter it.
    pub fn opens(&self, cx: &Caller<'_>, target: impl FnOnce() -> Target) -> bool {
        self.passes(Hidden::Contents, cx.cred, || may_read(cx, &target()))
    }

    fn passes(&self, from: Hidden, cred: &Credentials, may: impl FnOnce() -> bool) -> bool {
        let o = *self.0.lock();
        if o.hidden == Hidden::NamesFromAll {
            return may();
        }
        o.hidden < from || cred.in_group(o.gid) || may()
    }
}

/// Who a directory is of.
pub enum Target {
    Task(Arc<Task>),
    /// A process that waits to be waited for, by its last credentials.
    Ended(Arc<Credentials>),
    /// One between the two.
    Ending,
}

impl Target {
    /// What there is of a process, if it can be of its thread `tid`.
    pub fn new(k: &Kernel, tgid: i32, tid: i32) -> Target {
        let l = k.tasks.lock();
        let ended = || Some(l.process(tgid)?.ended.as_ref()?.cred.clone());
        match l.task(tid).or_else(|| l.some_thread(tgid)) {
            Some(t) => Target::Task(t),
            None => ended().map_or(Target::Ending, Target::Ended),
        }
    }
}

fn may_read(cx: &Caller<'_>, target: &Target) -> bool {
    let r = match (target, crate::task::task_of(cx.task)) {
        (Target::Task(it), Some(t)) => access::may_access(t, it, By::Fs),
        (Target::Task(it), None) => access::may_access_as(cx.cred, it, By::Fs),
        (Target::Ended(it), _) => access::may_access_ended(cx.cred, it, By::Fs),
        (Target::Ending, _) => return false,
    };
    r.is_ok()
}

impl DynOptions for ProcMount {
    fn shown(&self) -> String {
        let o = *self.0.lock();
        let mut s = String::new();
        if o.gid != 0 {
            s += &format!(",gid={}", o.gid);
        }
        if o.hidden != Hidden::Nothing {
            s += &format!(",hidepid={}", o.hidden.word());
        }
        if o.pids_only {
            s += ",subset=pid";
        }
        s
    }
    fn change(&self, data: &str) -> Result<()> {
        let mut o = self.0.lock();
        // All of it, or nothing.
        let mut new = *o;
        new.change(data, &self.1)?;
        *o = new;
        Ok(())
    }
}
