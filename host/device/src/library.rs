//! Libraries that are opened at run time.

/// What the dynamic linker says, without the call that it says it of.
pub(crate) fn words(error: &libloading::Error) -> String {
    let source = std::error::Error::source(error).map(ToString::to_string);
    source.unwrap_or_else(|| error.to_string())
}
