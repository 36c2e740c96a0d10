//! What the engine promises when many calls are under way at once: one answer for all, no stale error, no hold lost because of
//! others, and a turn for every caller. On a paused clock.

mod engine_crowds_cases {
    mod closing;
    mod latches;
    mod leases;
    mod slow;
    mod turns;
    mod unknown;
}
