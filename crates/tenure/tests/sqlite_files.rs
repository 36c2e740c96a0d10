//! The file of the embedded store: what it may be, what is refused, older and newer formats.

#![cfg(feature = "sqlite")]

mod sqlite_cases {
    mod files;
    mod formats;
    mod opening;
}
