//! What the engine promises when many are under way at once: one answer for all, no stale error, no hold lost for another's sake,
//! and a turn for everybody. On a paused clock.

mod engine_crowds_cases {
    mod closing;
    mod latches;
    mod leases;
    mod slow;
    mod turns;
    mod unknown;
}
