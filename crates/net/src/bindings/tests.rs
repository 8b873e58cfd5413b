use super::*;
use crate::ns::NetNamespace;
use crate::sys::{IPPROTO_TCP, SOCK_STREAM};
use std::collections::HashSet;
use std::net::Ipv4Addr;

struct Bench {
    table: PortTable<()>,
    common: Arc<Common>,
    ports: PortRange,
}

fn bench(low: u16, high: u16) -> Bench {
    let ns = NetNamespace::new();
    Bench {
        table: PortTable::new(),
        common: Common::new(&ns, AF_INET, SOCK_STREAM, IPPROTO_TCP),
        ports: PortRange::new(low, high).unwrap(),
    }
}

fn end(last: u8, port: u16) -> Endpoint {
    Endpoint {
        ip: Ipv4Addr::new(10, 0, 0, last).into(),
        port,
    }
}

impl Bench {
    fn asked(&self, at: Endpoint) -> BindRequest<'_> {
        BindRequest {
            at,
            ports: self.ports,
            families: Families::Both,
            common: &self.common,
            uid: 0,
        }
    }
    fn bind(&self, at: Endpoint) -> Result<Arc<Binding<()>>> {
        self.table.bind(&self.asked(at), Rule::Tcp, None)
    }
    fn towards(&self, to: Endpoint) -> Result<Arc<Binding<()>>> {
        self.table.bind_towards(&self.asked(end(1, 0)), to)
    }
}

#[test]
fn a_port_serves_many_destinations() {
    let b = bench(40_000, 40_009);
    let mut all = Vec::new();
    for n in 0..20 {
        let to = end(2, 1000 + n);
        let mine: Vec<_> = (0..10).map(|_| b.towards(to).unwrap()).collect();
        let ports: HashSet<u16> = mine.iter().map(|b| b.port).collect();
        assert_eq!(ports.len(), 10);
        assert_eq!(b.towards(to).err(), Some(EADDRNOTAVAIL));
        all.extend(mine);
    }
    // One that is over makes room for one more, at its port.
    let gone = all.swap_remove(57);
    let to = end(2, 1005);
    b.table.unbind(&gone);
    assert_eq!(b.towards(to).unwrap().port, gone.port);
    assert_eq!(b.table.all().len(), 200);
}

#[test]
fn no_connection_is_given_what_was_bound() {
    let b = bench(40_000, 40_001);
    let bound = b.bind(end(1, 40_000)).unwrap();
    assert_eq!(b.towards(end(2, 1)).unwrap().port, 40_001);
    assert_eq!(b.towards(end(2, 1)).err(), Some(EADDRNOTAVAIL));
    // And nobody binds what a connection has, at its address.
    assert_eq!(b.bind(end(1, 40_001)).err(), Some(EADDRINUSE));
    assert_eq!(b.bind(end(1, 0)).err(), Some(EADDRINUSE));
    assert!(b.bind(end(9, 0)).is_ok());
    b.table.unbind(&bound);
    assert_eq!(b.bind(end(1, 0)).unwrap().port, 40_000);
}

#[test]
fn binding_and_connecting_take_other_ports_first() {
    let b = bench(40_000, 40_099);
    let bound: Vec<_> = (0..50).map(|_| b.bind(end(1, 0)).unwrap()).collect();
    assert!(bound.iter().all(|b| b.port % 2 == 1));
    let out: Vec<_> = (0..50).map(|_| b.towards(end(2, 1)).unwrap()).collect();
    assert!(out.iter().all(|b| b.port % 2 == 0));
}

#[test]
fn both_sides_hold_the_ends() {
    let b = bench(40_000, 40_000);
    let (listener, to) = (b.bind(end(2, 7)).unwrap(), end(2, 7));
    let client = b.towards(to).unwrap();
    let server = b.table.share(&listener, to.ip, &b.common);
    let held = client.ends();
    b.table.unbind(&client);
    assert_eq!(b.towards(to).err(), Some(EADDRNOTAVAIL));
    drop(held);
    b.table.unbind(&server);
    let client = b.towards(to).unwrap();
    // What has a port of its own goes by the same rule.
    let own = b.bind(end(3, 40_000)).unwrap();
    assert_eq!(b.table.connects(&own, to.ip, to), Ok(()));
    assert_eq!(b.table.connects(&own, end(1, 0).ip, to), Err(EADDRNOTAVAIL));
    client.ends().unwrap().release();
    assert_eq!(b.table.connects(&own, end(1, 0).ip, to), Ok(()));
    // That one's end is told once.
    drop(client);
    assert_eq!(b.table.connects(&listener, end(2, 0).ip, end(9, 9)), Ok(()));
    let third = b.bind(end(4, 40_000)).unwrap();
    assert_eq!(
        b.table.connects(&third, end(1, 0).ip, to),
        Err(EADDRNOTAVAIL)
    );
}

/// A full range is not searched port by port.
#[test]
fn all_ports_to_one_place() {
    let b = bench(1024, 65_535);
    let to = end(2, 1);
    let mut seen = HashSet::new();
    let all: Vec<_> = (0..64_512).map(|_| b.towards(to).unwrap()).collect();
    assert!(all.iter().all(|b| seen.insert(b.port)));
    assert_eq!(b.towards(to).err(), Some(EADDRNOTAVAIL));
    let other: Vec<_> = (0..1000).map(|_| b.towards(end(3, 1)).unwrap()).collect();
    // Nobody foresees them: they neither follow each other nor begin where the last ones did.
    let follow = other
        .windows(2)
        .filter(|w| w[0].port.abs_diff(w[1].port) <= 2);
    assert!(follow.count() < 20);
}

#[test]
fn none_is_chosen_but_of_the_newest_ones_group() {
    let ns = NetNamespace::new();
    let table = PortTable::<u8>::new();
    let at = end(1, 40_000);
    let add = |n: u8, flags: &[i32]| {
        let common = Common::new(&ns, AF_INET, SOCK_STREAM, IPPROTO_TCP);
        let cred = vfs::Credentials::user(0, 0, vec![]);
        let set = |f: &i32| common.set(*f, &1i32.to_le_bytes(), &cred).unwrap();
        flags.iter().for_each(set);
        let asked = BindRequest {
            at,
            ports: PortRange::new(40_000, 40_009).unwrap(),
            families: Families::Both,
            common: &common,
            uid: 0,
        };
        let b = table.bind(&asked, Rule::Udp, Some(Arc::new(n)));
        b.unwrap()
    };
    let both = [SO_REUSEADDR, SO_REUSEPORT];
    let _all = [add(1, &[SO_REUSEADDR]), add(2, &both), add(3, &both)];
    let who = |port: u16| {
        let coming = Coming {
            from: end(2, port),
            ask: &|_| 0,
        };
        *table.lookup(at, Some(coming), |_| Some(0)).unwrap()
    };
    let chosen: HashSet<u8> = (1..100).map(who).collect();
    assert_eq!(chosen, HashSet::from([2, 3]));
}
