//! All stories. To add one: a file `fNN.rs` with a [`Story`], and a line here; its test, its row in `tenure lab ls`, in the
//! completions and on the page need no further code.
//!
//! A way is a function of a [`Testbed`](crate::testbed::Testbed): it starts servers and actors, tells the actors what to do step by
//! step, and returns an [`Outcome`](crate::story::Outcome): a line to read, and the claims to check. Numbers and timeline are
//! taken from the testbed. The naive ways send their commands by hand ([`Actor::redis`](crate::actor::Actor::redis)); an actor
//! that has to do something new gets a [`Request`](crate::protocol::Request) for it. Nothing depends on timing: a step waits for
//! its condition by polling ([`Testbed::until`](crate::testbed::Testbed::until)).

mod both_write;
mod f01;
mod f02;
mod f03;
mod f04;
mod f05;
mod f06;
mod f07;
mod f08;
mod f09;
mod f10;
mod f11;
mod f12;
mod f13;
mod f14;
mod f15;
mod f16;
mod f17;
mod f18;
mod failover;
mod late_release;
mod two_majorities;

use crate::story::Story;

/// All stories, in the order of their ids.
pub static STORIES: &[&Story] = &[
    &f01::STORY,
    &f02::STORY,
    &f03::STORY,
    &f04::STORY,
    &f05::STORY,
    &f06::STORY,
    &f07::STORY,
    &f08::STORY,
    &f09::STORY,
    &f10::STORY,
    &f11::STORY,
    &f12::STORY,
    &f13::STORY,
    &f14::STORY,
    &f15::STORY,
    &f16::STORY,
    &f17::STORY,
    &f18::STORY,
];
