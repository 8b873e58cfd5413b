//! `priority`: less important processes give all that they have before more important ones give
//! anything; those that are equally important, as by `reservation`. How important a process is, its
//! `oom_score_adj` says: it is inherited, Docker and Kubernetes set it (`--oom-score-adj`; by a
//! pod's class), and everybody may raise his own.

use super::reservation::Reservation;
use super::{Part, Policy, Share, parts};
use mm::{Pick, SwapOut};

#[derive(Debug, Default)]
pub(super) struct Priority {
    equals: Reservation,
}

impl Policy for Priority {
    fn plan(&self, all: &[Share], bytes: u64) -> Vec<Part> {
        let mut out = Vec::new();
        let mut left = bytes;
        for class in classes(all) {
            let of: Vec<Share> = class.iter().map(|i| all[*i]).collect();
            let plan = self.equals.plan(&of, left).into_iter();
            out.extend(plan.map(|p| Part {
                who: class[p.who],
                ..p
            }));
            let above: u64 = of.iter().map(|s| s.above()).sum();
            left = left.saturating_sub(above);
            if left == 0 {
                break;
            }
        }
        out
    }

    fn rest(&self, all: &[Share], is_late: bool) -> Vec<Part> {
        let mut order = Vec::new();
        for class in classes(all) {
            let has_some = class.iter().any(|i| all[*i].above() > 0);
            order.extend(class);
            // (What it has may be such as cannot go.)
            if has_some && !is_late {
                break;
            }
        }
        parts(order, |i| (all[i].above(), Pick::SecondChance))
    }

    fn gave(&self, id: u64, pick: Pick, sent: SwapOut) {
        self.equals.gave(id, pick, sent);
    }
}

/// Who is equally important, the least first.
fn classes(all: &[Share]) -> Vec<Vec<usize>> {
    let mut order: Vec<usize> = (0..all.len()).collect();
    order.sort_by_key(|i| std::cmp::Reverse(all[*i].adj));
    let equal = |a: &usize, b: &usize| all[*a].adj == all[*b].adj;
    order.chunk_by(equal).map(<[usize]>::to_vec).collect()
}
