//! By which hooks each entry of a table is reached (`mark_source_chains`).

use crate::packet::Hook;
use abi::Result;
use abi::errno::ELOOP;

/// Where packets go on behind an entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Way {
    /// To the next one.
    On,
    /// Nowhere.
    Ends,
    /// To this one, or else to the next; none: to where no entry begins.
    Leads(Option<usize>),
}

/// Of each entry the hooks that lead to it, a bit for each. `begins`: the entries of the hooks.
/// Each entry is looked at once for each hook.
///
/// # Errors
///
/// `ELOOP`: a way comes back to where it was, ends behind the last entry, or leads to what is no
/// entry.
pub(super) fn hooks(ways: &[Way], begins: &[(Hook, usize)]) -> Result<Vec<u8>> {
    let mut all = vec![0u8; ways.len()];
    // Those on the way to where we are.
    let mut entered = vec![false; ways.len()];
    let mut path: Vec<(usize, u8)> = Vec::new();
    for (hook, first) in begins {
        let bit = 1 << *hook as u8;
        let mut next = Some(*first);
        loop {
            if let Some(n) = next {
                if *entered.get(n).ok_or(ELOOP)? {
                    return Err(ELOOP);
                }
                if all[n] & bit == 0 {
                    all[n] |= bit;
                    entered[n] = true;
                    path.push((n, 0));
                }
            }
            let Some((at, gone)) = path.last_mut() else {
                break;
            };
            *gone += 1;
            next = match (ways[*at], *gone) {
                (Way::Leads(to), 1) => Some(to.ok_or(ELOOP)?),
                (Way::On, 1) | (Way::Leads(_), 2) => Some(*at + 1),
                _ => None,
            };
            if next.is_none() {
                entered[*at] = false;
                path.pop();
            }
        }
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::Way::{Ends, Leads, On};
    use super::*;

    #[test]
    fn ways_end_and_are_no_circles() {
        let of = |ways: &[Way]| hooks(ways, &[(Hook::Input, 0)]);
        assert_eq!(of(&[On, Ends, On]), Ok(vec![2, 2, 0]));
        assert_eq!(of(&[Leads(Some(2)), Ends, Ends]), Ok(vec![2, 2, 2]));
        // (One that is led to twice is no circle.)
        assert_eq!(
            of(&[Leads(Some(3)), Leads(Some(3)), Ends, Ends]),
            Ok(vec![2; 4])
        );
        for circle in [
            &[Leads(Some(0)), Ends][..],
            &[Leads(Some(2)), Ends, Leads(Some(0)), Ends],
            &[On, On],
            &[Leads(None), Ends],
            &[Leads(Some(9)), Ends],
            &[Leads(Some(1)), Leads(Some(1)), Ends],
        ] {
            assert_eq!(of(circle), Err(ELOOP), "{circle:?}");
        }
        // What no hook leads to is not looked at.
        assert_eq!(of(&[Ends, Leads(Some(1))]), Ok(vec![2, 0]));
        let both = hooks(&[On, Ends], &[(Hook::Input, 0), (Hook::Output, 1)]);
        assert_eq!(both, Ok(vec![2, 10]));
    }
}
