//! What the host told this process at its start. No host call.

/// The entry of the auxiliary vector with this type (`AT_*`); zero if there is none.
#[must_use]
pub fn get(kind: u64) -> u64 {
    // SAFETY: reads the vector that libc keeps.
    unsafe { libc::getauxval(kind) }
}
