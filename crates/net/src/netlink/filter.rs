//! NETLINK_NETFILTER: rules (nf_tables), what iptables' programs ask beside them, and connections
//! (`net/netfilter/nfnetlink.c`).
//!
//! Changes of rules come in batches: all of one hold from one moment on, or none does. Then those
//! who listen are told what has changed (`nft monitor`), and which generation it is; and of
//! connections (`conntrack -E`: [`netfilter::events`]).

use super::log;
use super::message::{Builder, HEADER, Messages, Request};
use super::{NLM_F_ACK, NLM_F_MULTI, NLM_F_REQUEST, NLMSG_MIN_TYPE, Netlink, Refused};
use crate::clock::now;
use crate::devices::News;
use crate::protocol::Caller;
use abi::Result;
use abi::errno::{EBADMSG, EINVAL, ERESTART};
use netfilter::attr::{Answer, Bag, Out, Selection};
use netfilter::ct;
use netfilter::nft::{self, Message, Transaction, kind};
use netfilter::packet::Version;
use netfilter::table::{Family, Ruleset};
use netfilter::xt::{self, Role};

const BATCH_BEGIN: u16 = 16;
const BATCH_END: u16 = 17;
const CONNTRACK: u8 = 1;
const TABLES: u8 = 10;
const COMPAT: u8 = 11;

const NLM_F_ECHO: u16 = 8;
/// `struct nfgenmsg`.
const GENMSG: usize = 4;

/// A message's subsystem and what it is among those of it.
fn parts(req: &Request<'_>) -> (u8, u8) {
    ((req.kind >> 8) as u8, req.kind as u8)
}

/// What is behind `struct nfgenmsg`.
fn attrs<'a>(req: &Request<'a>) -> Result<&'a [u8]> {
    req.whole.get(HEADER + GENMSG..).ok_or(EINVAL)
}

fn message<'a>(req: &Request<'a>) -> Result<Message<'a>> {
    Ok(Message {
        kind: req.kind as u8,
        flags: req.flags,
        family: req.family(),
        attrs: attrs(req)?,
    })
}

/// Whether a message may ask for all of a kind.
pub(super) fn may_dump(req: &Request<'_>) -> bool {
    match parts(req) {
        (TABLES, n) => matches!(
            n,
            kind::GETTABLE
                | kind::GETCHAIN
                | kind::GETRULE
                | kind::GETRULE_RESET
                | kind::GETSET
                | kind::GETSETELEM
                | kind::GETSETELEM_RESET
                | kind::GETOBJ
                | kind::GETOBJ_RESET
                | kind::GETFLOWTABLE
        ),
        (CONNTRACK, n) => matches!(n, ct::GET | ct::GET_RESET | ct::STATS_CPU | ct::STATS),
        _ => false,
    }
}

/// Whether what was sent is a batch.
pub(super) fn is_batch(data: &[u8]) -> bool {
    data.get(4..6) == Some(&BATCH_BEGIN.to_le_bytes())
}

impl Netlink {
    /// Answers of a request's subsystem: `struct nfgenmsg` and attributes.
    fn told(&self, req: &Request<'_>, port: u32, flags: u16, all: &[Answer]) -> Vec<Vec<u8>> {
        // Readers see by it that what they read is of one moment.
        let generation = self.common.ns.rules.rules().generation as u16;
        let (subsystem, _) = parts(req);
        let one = |a: &Answer| {
            let kind = u16::from(subsystem) << 8 | u16::from(a.kind);
            Builder::new(kind, flags, req, port)
                .bytes(&[a.family, 0])
                .bytes(&generation.to_be_bytes())
                .bytes(&a.attrs)
                .finish()
        };
        all.iter().map(one).collect()
    }

    /// The answers to a message that asks.
    fn answers(
        &self,
        who: &Caller<'_>,
        req: &Request<'_>,
        port: u32,
        asked: Selection,
    ) -> Result<Vec<Vec<u8>>> {
        let flags = match asked {
            Selection::All => NLM_F_MULTI,
            Selection::One => 0,
        };
        let (rules, m) = (&self.common.ns.rules, message(req)?);
        let found = match parts(req) {
            (TABLES, _) => {
                let by = (who.number as u32, &who.paths.command()[..]);
                nft::ask(&rules.rules(), &m, asked, now().0, by)?
            }
            (CONNTRACK, n) => ct::ask(&rules.flows, n, m.family, m.attrs, asked, now().0)?,
            (COMPAT, 0) => vec![Answer {
                kind: 0,
                family: m.family,
                attrs: compat(m.family, m.attrs)?,
            }],
            _ => return Err(EINVAL),
        };
        Ok(self.told(req, port, flags, &found))
    }

    /// All of a kind.
    pub(super) fn filter_dump(
        &self,
        who: &Caller<'_>,
        req: &Request<'_>,
        port: u32,
    ) -> Result<Vec<Vec<u8>>> {
        self.may_administer(who)?;
        self.answers(who, req, port, Selection::All)
    }

    /// Asks for one thing, or has connections forgotten.
    pub(super) fn filter_request(
        &self,
        who: &Caller<'_>,
        req: &Request<'_>,
        port: u32,
    ) -> core::result::Result<(), Refused> {
        self.may_administer(who)?;
        if parts(req) == (log::SUBSYSTEM, log::CONFIG) {
            return Ok(self.log_config(req, attrs(req)?)?);
        }
        for a in self.answers(who, req, port, Selection::One)? {
            self.reply(a);
        }
        Ok(())
    }

    /// Does what a batch says, and tells of each message what its sender wants to know; of one that
    /// cannot be, which it is.
    pub(super) fn batch(&self, who: &Caller<'_>, data: &[u8], port: u32) {
        let mut all = Messages(data);
        let Some(begin) = all.next() else { return };
        let mut said: Vec<Said<'_>> = Vec::new();
        let done = self.run_batch(who, &begin, all, &mut said, port);
        // What cannot hold as a whole is nobody's fault alone.
        if let Err(e) = done
            && said.iter().all(|(_, refused)| refused.is_none())
        {
            said.insert(0, (begin, Some(e.into())));
        }
        for (req, refused) in said {
            self.status(&req, port, refused);
        }
    }

    fn run_batch<'a>(
        &self,
        who: &Caller<'_>,
        begin: &Request<'a>,
        all: Messages<'a>,
        said: &mut Vec<Said<'a>>,
        port: u32,
    ) -> Result<()> {
        self.may_administer(who)?;
        let head = begin.body();
        let subsystem = head.get(2..4).ok_or(EINVAL)?;
        if subsystem != [0, TABLES] {
            return Err(EINVAL);
        }
        let ns = &self.common.ns;
        let change = ns.rules.change();
        let old = change.rules();
        // The generation that the sender has seen.
        let seen = Bag::new(attrs(begin)?).be32(1)?;
        if seen.is_some_and(|g| g != old.generation) {
            // Another change has overtaken it: programs begin again.
            return Err(ERESTART);
        }
        let mut t = Transaction::new(&old, now().0);
        let (mut failed, mut ended, mut echoes) = (None, false, Vec::new());
        for req in all {
            if req.kind == BATCH_END {
                ended = true;
                break;
            }
            if req.kind == BATCH_BEGIN {
                return Err(EBADMSG);
            }
            match one(&mut t, &req) {
                Err(e) => {
                    failed = failed.or(Some(e));
                    let at = t.blamed(req.whole);
                    said.push((req, Some(Refused { at, ..e.into() })));
                }
                Ok(()) => {
                    if req.flags & NLM_F_ECHO != 0 {
                        echoes.push((req, t.made()));
                    }
                    if req.flags & NLM_F_ACK != 0 {
                        said.push((req, None));
                    }
                }
            }
        }
        match failed {
            Some(e) => Err(e),
            // One that is cut off was to be tried only.
            None if !ended => change.check(&t.finish()),
            None => {
                let owner = self.common.user.get();
                ns.charge_rules(t.finish(), owner, |new| change.commit(new))?;
                if ns.rule_listeners.any() {
                    self.tell_rules(who, begin, (&old, &change.rules()), port);
                }
                for (req, made) in echoes {
                    self.echo(&req, made, port)?;
                }
                Ok(())
            }
        }
    }

    /// Tells those who listen what a batch has changed.
    fn tell_rules(
        &self,
        who: &Caller<'_>,
        begin: &Request<'_>,
        (old, new): (&Ruleset, &Ruleset),
        port: u32,
    ) {
        let ns = &self.common.ns;
        let generation = new.generation;
        let tell = |a: &Answer, flags: u16| {
            let kind = u16::from(TABLES) << 8 | u16::from(a.kind);
            let message = Builder::new(kind, flags, begin, port)
                .bytes(&[a.family, 0])
                .bytes(&(generation as u16).to_be_bytes())
                .bytes(&a.attrs)
                .finish();
            ns.rule_listeners.tell(ns, &News::Rules(message));
        };
        nft::changes(old, new, now().0, &mut |a, flags| tell(&a, flags));
        let by = (who.number as u32, &who.paths.command()[..]);
        tell(&nft::generation(generation, 0, by), 0);
    }

    /// Tells the sender of a message what it has made, with the names and numbers that it has got.
    fn echo(&self, req: &Request<'_>, made: Option<u64>, port: u32) -> Result<()> {
        let m = message(req)?;
        let mut rule = Out::default();
        let (kind, attrs) = match m.kind {
            kind::NEWTABLE => (kind::GETTABLE, m.attrs),
            kind::NEWCHAIN => (kind::GETCHAIN, m.attrs),
            kind::NEWSET => (kind::GETSET, m.attrs),
            kind::NEWSETELEM => (kind::GETSETELEM, m.attrs),
            kind::NEWRULE => {
                let b = Bag::new(m.attrs);
                rule.put(1, b.need(1)?);
                rule.put(2, b.get(2).unwrap_or_default());
                rule.be64(3, made.unwrap_or(0));
                (kind::GETRULE, &rule.0[..])
            }
            _ => return Ok(()),
        };
        let asks = Message { kind, attrs, ..m };
        let rules = self.common.ns.rules.rules();
        // (What has no name of its own is told with what asks it.)
        let found =
            nft::ask(&rules, &asks, Selection::One, now().0, (port, "")).unwrap_or_default();
        let how = req.flags & (nft::NLM_F_CREATE | nft::NLM_F_EXCL | nft::NLM_F_APPEND);
        for a in self.told(req, port, how, &found) {
            self.reply(a);
        }
        Ok(())
    }
}

/// What is told of a message.
type Said<'a> = (Request<'a>, Option<Refused>);

/// One message of a batch.
fn one(t: &mut Transaction, req: &Request<'_>) -> Result<()> {
    let (subsystem, _) = parts(req);
    let asked = req.flags & NLM_F_REQUEST != 0 && req.kind >= NLMSG_MIN_TYPE;
    if !asked || subsystem != TABLES {
        return Err(EINVAL);
    }
    t.apply(&message(req)?)
}

/// Whether a match or target of iptables is there in a revision (`nft_compat`).
fn compat(family: u8, attrs: &[u8]) -> Result<Vec<u8>> {
    const LONGEST: usize = 32;
    let b = Bag::new(attrs);
    let name = b.need_text(1, LONGEST)?;
    let (revision, kind) = (b.need32(2)?, b.need32(3)?);
    let version = Family::by_number(family).map_or(Version::V4, Family::version);
    let role = match kind {
        1 => Role::Target,
        _ => Role::Match,
    };
    xt::has_revision(name, revision, version, role)?;
    let mut o = Out::default();
    o.text(1, name);
    o.be32(2, revision);
    o.be32(3, kind);
    Ok(o.0)
}
