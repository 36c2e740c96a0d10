//! A quorum whose nodes a test can silence, slow down and make forget, on a paused clock.

mod quorum_of_memory_cases {
    mod crowds;
    mod restarts;
    mod set;
    mod votes;
}
