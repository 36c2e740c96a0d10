//! Locks that are shared with other libraries: Redisson, redis-py, redsync, node-redlock. `interop/run` builds programs with
//! these and runs this one; what is not built is skipped.

mod interop_cases {
    pub(crate) mod crowd;
    pub(crate) mod fair;
    pub(crate) mod java;
    pub(crate) mod kinds;
    pub(crate) mod latch;
    pub(crate) mod permits;
    pub(crate) mod place;
    pub(crate) mod plain;
    pub(crate) mod process;
    pub(crate) mod rwlock;
    pub(crate) mod sees;
    pub(crate) mod verbs;
}

use interop_cases::{java, latch, place, plain, process, verbs};
use tenure_testkit::peer::Language;
use tenure_testkit::{Needs, Test};

fn main() {
    if process::play() {
        return;
    }
    let mut tests = tenure_testkit::tests! { Java in verbs: every_verb_of_java_does_what_it_says java_wakes_java; };
    for (place_name, place) in place::PLACES {
        for (kind, cases) in java::ROWS {
            for (name, case) in cases.iter().copied().flatten() {
                let run = move || case(place, kind);
                tests.push(Test::new(format!("{place_name}::{}::{name}", kind.name), Needs::Java, run));
            }
        }
    }
    for (place_name, place) in place::PLACES {
        for (name, case) in latch::CASES {
            tests.push(Test::new(format!("{place_name}::latch::{name}"), Needs::Java, move || case(place)));
        }
    }
    for (language, needs) in [(Language::Python, Needs::Python), (Language::Go, Needs::Go), (Language::Node, Needs::Node)] {
        for (name, case) in plain::CASES {
            tests.push(Test::new(format!("plain::{}::{name}", language.name()), needs, move || case(language)));
        }
    }
    tenure_testkit::run(tests)
}
