//! What the kernel does with a container as a whole: hold it, end it.

use super::Kernel;
use crate::container::Container;
use crate::task::{Task, ThreadGroup};
use abi::errno::EAGAIN;
use abi::signal::SIGKILL;
use config::control::ToStarter;
use config::limits;
use std::any::Any;
use std::sync::Arc;
use std::time::{Duration, Instant};
use wait::{Events, Steady, block_until};

impl Kernel {
    /// The container that a caller is in: of a task, or of the kernel while it makes one.
    #[must_use]
    pub fn container_of(&self, caller: &dyn Any) -> Arc<Container> {
        if let Some(t) = caller.downcast_ref::<Arc<Task>>() {
            return t.group.container.clone();
        }
        let made = caller.downcast_ref::<Arc<Container>>();
        made.unwrap_or(&self.root).clone()
    }

    /// The processes of a container.
    #[must_use]
    pub fn members(&self, c: &Arc<Container>) -> Vec<Arc<ThreadGroup>> {
        let l = self.tasks.lock();
        l.processes()
            .filter(|p| Arc::ptr_eq(&p.group.container, c))
            .map(|p| p.group.clone())
            .collect()
    }

    /// Holds every task of a container at its next boundary, and has it come there. A task that
    /// sleeps in a system call restarts the call afterwards.
    pub fn freeze(&self, c: &Arc<Container>) {
        c.freeze();
        self.kick(c);
    }
    /// Lets them go on.
    pub fn thaw(&self, c: &Arc<Container>) {
        c.thaw();
        self.kick(c);
    }
    fn kick(&self, c: &Arc<Container>) {
        for t in self.tasks.lock().all() {
            if Arc::ptr_eq(&t.group.container, c) {
                t.kick();
            }
        }
    }

    /// Ends all processes that a container has.
    pub fn kill_container(&self, c: &Arc<Container>) {
        // Who is being told to end makes no more children (`clone` looks under the list's lock):
        // the next time finds those that were made meanwhile.
        loop {
            let mut all = self.members(c);
            all.retain(|g| !g.needs_no_kill());
            if all.is_empty() {
                return;
            }
            for g in all {
                self.kill_group(&g, SIGKILL.number());
            }
        }
    }

    /// Ends all processes of a container, which gets no more.
    pub fn close_container(&self, c: &Arc<Container>) {
        {
            let _list = self.tasks.lock();
            c.close();
        }
        c.withdraw(None);
        self.kill_container(c);
    }

    /// Waits until none of these processes, which have been killed, runs any more. Where one does
    /// not obey, what it runs is ended under it.
    pub fn see_off(&self, groups: &[Arc<ThreadGroup>]) -> bool {
        self.await_end(groups, limits::OBEY) || {
            for g in groups {
                self.end_space(g);
            }
            self.await_end(groups, limits::FORCED)
        }
    }

    /// Ends an address space, unless somebody shares it who is to live. Whether no code of the
    /// process's can run any more.
    fn end_space(&self, g: &ThreadGroup) -> bool {
        let l = self.tasks.lock();
        let Some(mm) = l.memory_of(g.tgid, &self.no_memory) else {
            return true;
        };
        let doomed = l.all().all(|t| t.is_killed() || !Arc::ptr_eq(&t.mm(), &mm));
        drop(l);
        if doomed {
            mm.address_space().kill();
        }
        doomed
    }

    /// Waits until none of these processes runs any more: whether that came in time.
    fn await_end(&self, groups: &[Arc<ThreadGroup>], limit: Duration) -> bool {
        let deadline = Instant::now() + limit;
        let mut ended = true;
        for g in groups {
            let ends = || {
                let l = self.tasks.lock();
                let lives = l.process(g.tgid).is_some_and(|p| p.zombie.is_none());
                if lives { Err(EAGAIN) } else { Ok(()) }
            };
            let end = [(&g.exit_wait, Events::READABLE)];
            ended &= block_until(&Steady::default(), &end, Some(deadline), ends).is_ok();
        }
        ended
    }

    /// A process that was started from outside has ended, and is reaped.
    pub fn end_outsider(&self, g: &ThreadGroup, status: i32) {
        let c = &g.container;
        if g.tgid == c.first() {
            self.end_container(c, status);
            return;
        }
        c.close_console(g.tgid, self.drain);
        self.platform.wait_unmapped(limits::UNMAP);
        c.tell_exited(g.tgid, status);
    }

    /// For the person who started a program by hand: what it asked for and could not have.
    fn tell_of_missing(&self, c: &Container) {
        if !c.is_managed && self.initial.net.was_missed() {
            let text = "the program asked for a network, and has none: --net=user gives it one \
                        (--allow says what it may reach)";
            c.tell(ToStarter::Note, text.as_bytes());
        }
    }

    /// The first process of a container has ended: the others end, the starter is told. With the
    /// root container the sandbox ends, and this process exits. Whether no code of the container's
    /// can run any more.
    pub fn end_container(&self, c: &Arc<Container>, status: i32) -> bool {
        let is_root = Arc::ptr_eq(c, &self.root);
        self.close_container(c);
        // What waits for the host, and can run no more code, is no reason to keep the status back.
        let ended = is_root
            || self.see_off(&self.members(c))
            || self.members(c).iter().all(|g| self.end_space(g));
        if !ended {
            c.tell(ToStarter::Error, b"a process of the container does not end");
            return false;
        }
        if is_root && self.initial.net.has_devices() {
            // Their sockets close as they end.
            self.await_end(&self.members(c), limits::FORCED);
            self.initial.net.say_last_words(limits::LAST_WORDS);
        }
        c.close_console(c.first(), self.drain);
        self.platform.wait_unmapped(limits::UNMAP);
        self.tell_of_missing(c);
        c.tell(ToStarter::Exit, &(status as u32).to_le_bytes());
        if is_root {
            // The Gofer ends while the memory of this process is taken down.
            if let Some(gofer) = c.root().and_then(|r| r.gofer.as_ref()) {
                gofer.hang_up();
            }
            // The namespace's first process ends here, and everything in it.
            hostcall::process::exit_group(0);
        }
        true
    }
}
