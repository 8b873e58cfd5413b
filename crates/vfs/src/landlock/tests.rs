use super::*;

/// Who passes limits.
fn free(n: usize) -> Result<Charge> {
    crate::Credentials::root().kmem(n, ENOMEM)
}

fn ruleset(handled: Handled) -> Ruleset {
    Ruleset::new(handled, &free).unwrap()
}

fn layer(before: Option<&Domain>, handled: Handled) -> Domain {
    Domain::new(before.cloned(), &ruleset(handled), &free).unwrap()
}

#[test]
fn ports_need_every_layer() {
    let net = Handled {
        net: NetAccess::all(),
        ..Handled::default()
    };
    let first = ruleset(net);
    first.allow_port(80, NetAccess::CONNECT_TCP, &free).unwrap();
    let a = Domain::new(None, &first, &free).unwrap();
    assert!(a.allows_port(80, NetAccess::CONNECT_TCP) && !a.allows_port(80, NetAccess::BIND_TCP));
    // What is allowed after a ruleset was enforced is for the next layer.
    first.allow_port(81, NetAccess::all(), &free).unwrap();
    assert!(!a.allows_port(81, NetAccess::CONNECT_TCP));
    let b = Domain::new(Some(a), &first, &free).unwrap();
    assert!(!b.allows_port(81, NetAccess::CONNECT_TCP));
    assert!(b.allows_port(80, NetAccess::CONNECT_TCP));
}

#[test]
fn layers_are_counted() {
    let fs = Handled {
        fs: FsAccess::EXECUTE,
        ..Handled::default()
    };
    let mut d = layer(None, fs);
    for _ in 1..MAX_LAYERS {
        d = layer(Some(&d), fs);
    }
    let more = Domain::new(Some(d.clone()), &ruleset(fs), &free);
    assert_eq!(more.err(), Some(E2BIG));
    assert!(d.confines_files() && !d.confines_ports());
}

#[test]
fn scopes_hold_inside() {
    let signal = Handled {
        scoped: Scope::SIGNAL,
        ..Handled::default()
    };
    let none = Handled {
        net: NetAccess::BIND_TCP,
        ..Handled::default()
    };
    let outer = layer(None, none);
    let a = layer(Some(&outer), signal);
    let below = layer(Some(&a), none);
    let sibling = layer(Some(&outer), signal);
    let kept = |x: &Domain, y: Option<&Domain>| x.keeps_from(y, Scope::SIGNAL);
    assert!(kept(&a, None) && kept(&a, Some(&outer)) && kept(&a, Some(&sibling)));
    assert!(!kept(&a, Some(&a)) && !kept(&a, Some(&below)) && !kept(&below, Some(&a)));
    assert!(!kept(&outer, None) && !kept(&outer, Some(&a)));
    assert!(kept(&below, Some(&outer)));
    assert!(outer.may_trace(Some(&below)) && !below.may_trace(Some(&outer)));
    assert!(!a.may_trace(Some(&sibling)) && !a.may_trace(None) && a.may_trace(Some(&a)));
}
