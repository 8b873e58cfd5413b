//! The network by policy: rules, questions of an application, answers of a name server, and what
//! the Sentry and its broker say to each other.
#![no_main]

use egress::dns::Transport;
use egress::{Guard, Policy, Question, Rule};
use libfuzzer_sys::arbitrary::{self, Arbitrary};
use net::user::wire::{Answer, Request, ToBroker, ToSentry};

#[derive(Arbitrary, Debug)]
struct Input<'a> {
    rule: &'a str,
    question: &'a [u8],
    answer: &'a [u8],
    packet: &'a [u8],
}

libfuzzer_sys::fuzz_target!(|i: Input<'_>| {
    let rules: Vec<Rule> = i.rule.parse().into_iter().collect();
    for r in &rules {
        assert_eq!(r.to_string().parse().as_ref(), Ok(r));
    }
    for by in [Transport::Udp, Transport::Tcp] {
        let mut guard = Guard::new(Policy::new(Vec::new(), rules.clone()));
        if let Question::Ask(asked) = guard.question(i.question, by) {
            // A real answer has the question's bytes in front.
            let mut whole = asked.ask(7);
            let _ = guard.answer(&asked, i.answer, 7, by, 0);
            whole[2] |= 0x80;
            whole[7] = 1;
            whole.extend_from_slice(i.answer);
            let _ = guard.answer(&asked, &whole, 7, by, 0);
        }
    }
    let p = i.packet;
    let _ = (Request::decode(p), Answer::decode(p));
    let _ = (ToBroker::decode(p), ToSentry::decode(p));
});
