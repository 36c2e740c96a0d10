//! The embedded store through the public interface, with real files and real time.

#![cfg(feature = "sqlite")]

mod sqlite_cases {
    mod boots;
    mod clients;
    mod deaths;
    mod files;
    mod lines;
    mod locks;
    mod since;
}
