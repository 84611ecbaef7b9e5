//! The symbols a shim exports, in one list.

/// Names of every symbol that [`crate::export_all!`] defines.
pub const EXPORTS: &[&str] = &[];

/// Defines every exported symbol in the calling shim crate. The argument is the path of a
/// `fn()` that calls [`crate::install`].
#[macro_export]
macro_rules! export_all {
    ($setup:path) => {
        const _: fn() = $setup;
    };
}
