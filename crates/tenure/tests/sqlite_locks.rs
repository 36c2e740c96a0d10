//! Locks in the embedded store: exclusion, queues, deaths, restarts of the machine. With real files and real time.

#![cfg(feature = "sqlite")]

mod sqlite_cases {
    mod boots;
    mod clients;
    mod deaths;
    mod locks;
    mod opening;
    mod queues;
    mod rows;
}
