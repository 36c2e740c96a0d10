//! The rules of a quorum on a paused clock: votes, restarts, crowds. A test can silence, slow down and reset each node (`set`).

mod quorum_of_memory_cases {
    mod crowds;
    mod restarts;
    mod set;
    mod votes;
}
