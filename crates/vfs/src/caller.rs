//! The caller.

use crate::cred::Credentials;
use std::any::Any;
use std::sync::Arc;

/// The caller, as file systems see it.
#[derive(Clone, Copy)]
pub struct Caller<'a> {
    pub cred: &'a Arc<Credentials>,
    /// The task, for `/proc/self` and terminals: downcast in the Sentry.
    pub task: &'a dyn Any,
}
