//! What other modules keep at an inode, a mount or a super block, which know nothing of it: at most
//! one of each type, from its first use on.
//!
//! At an inode: [`crate::watch::Watchers`] and inotify's list beside it, [`crate::leases::Leases`],
//! its place in [`crate::listed`]. At a mount: [`crate::watch::marks::Marks`]. At a super block:
//! those, too, and the files that are kept for their watches (`watch::kept`).

use std::any::Any;
use std::sync::{Arc, OnceLock};

/// What may be attached.
pub trait Attachable: Any + Send + Sync {
    /// The mount that it is attached to is gone, or the file system's last one. The caller may hold
    /// any lock.
    fn gone(&self) {}
}

/// What is attached to one thing.
#[derive(Default)]
pub struct Attachments(OnceLock<Box<Node>>);

struct Node {
    item: Arc<dyn Attachable>,
    next: Attachments,
}

impl Attachments {
    fn nodes(&self) -> impl Iterator<Item = &Node> {
        std::iter::successors(self.first(), |n| n.next.first())
    }
    fn first(&self) -> Option<&Node> {
        self.0.get().map(|n| &**n)
    }

    /// What there is of this type.
    #[must_use]
    pub fn get<T: Attachable>(&self) -> Option<&T> {
        self.nodes().find_map(|n| {
            let any: &dyn Any = &*n.item;
            any.downcast_ref()
        })
    }

    /// What there is of this type, made if there is none.
    pub fn get_or_make<T: Attachable + Default>(&self) -> Arc<T> {
        let mut at = self;
        loop {
            let node = at.0.get_or_init(|| {
                Box::new(Node {
                    item: Arc::<T>::default(),
                    next: Attachments::default(),
                })
            });
            let any: Arc<dyn Any + Send + Sync> = node.item.clone();
            match any.downcast() {
                Ok(t) => return t,
                Err(_) => at = &node.next,
            }
        }
    }

    /// What they are attached to is gone.
    pub(crate) fn gone(&self) {
        self.nodes().for_each(|n| n.item.gone());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Default)]
    struct One(OnceLock<u8>);
    #[derive(Default)]
    struct Other;
    impl Attachable for One {}
    impl Attachable for Other {}

    #[test]
    fn there_is_one_of_each_type() {
        let all = Attachments::default();
        assert!(all.get::<One>().is_none());
        all.get_or_make::<Other>();
        assert!(all.get::<One>().is_none());
        all.get_or_make::<One>().0.set(7).unwrap();
        assert_eq!(all.get_or_make::<One>().0.get(), Some(&7));
        assert_eq!(all.get::<One>().unwrap().0.get(), Some(&7));
        assert!(all.get::<Other>().is_some());
    }
}
