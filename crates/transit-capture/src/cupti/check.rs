//! Tries CUPTI out, for `transit-record doctor`: which copy would be used, and whether it records
//! here. To be called in a process of its own that has a context, since what CUPTI starts in a
//! process never quite ends.

use std::path::PathBuf;

use super::Session;
use super::library::Library;

/// What came of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CuptiCheck {
    /// The copy's file, if the dynamic linker knows.
    pub path: Option<String>,
    /// Where it was found, in a word or two.
    pub found: &'static str,
    /// `CUPTI_API_VERSION`: 14 to 28 for 11.4 to 12.9, 130000 and more from 13.0 on.
    pub version: u32,
    /// Why there would be neither kernel times nor migrations.
    pub no_records: Option<String>,
    /// Why there would be no migrations.
    pub no_migrations: Option<String>,
}

/// Opens CUPTI, starts its records and stops them again. `directories` come after a copy that is
/// mapped already and before every other.
///
/// # Errors
/// Says where was looked, or why the copy found cannot be used.
pub fn check_cupti(directories: &[PathBuf]) -> Result<CuptiCheck, String> {
    let (library, found) = Library::find(directories).map_err(|failure| failure.to_string())?;
    let path = library.path();
    let named = |failure: super::Failure| match &path {
        Some(path) => format!("{path}: {failure}"),
        None => failure.to_string(),
    };
    let session = Session::of(library).map_err(named)?;
    let started = session.start(false);
    session.stop();
    let (no_records, no_migrations) = match started {
        Ok(missing) => (None, missing.map(|failure| failure.to_string())),
        Err(failure) => (Some(failure.to_string()), None),
    };
    Ok(CuptiCheck {
        path,
        found,
        version: session.version(),
        no_records,
        no_migrations,
    })
}
