//! The suite on every store, plain and through faults: one line per store.

use std::time::Duration;

use libtest_mimic::{Arguments, Failed, Trial};
use tenure::conformance::{Subject, properties};

fn main() {
    let mut trials = Vec::new();
    for property in properties() {
        let name = property.name;
        trials.push(Trial::test(format!("memory::{name}"), move || {
            property.run_paused(Subject::memory);
            Ok(())
        }));
    }
    for property in properties() {
        let name = property.name;
        trials.push(Trial::test(format!("memory::faulty::{name}"), move || {
            property.run_paused(|| Subject::memory().faulty());
            Ok(())
        }));
    }
    if let Ok(port) = std::env::var("P") {
        for q in ["", "?layout=plain", "?wake=pubsub"] {
            for f in [false, true] {
                for property in properties() {
                    let name = property.name;
                    let url = format!("redis://127.0.0.1:{port}{q}");
                    let s = Subject::url(&url, Duration::from_secs(1));
                    let s = if f { s.faulty() } else { s };
                    trials.push(Trial::test(format!("redis{q}{}::{name}", if f { "::faulty" } else { "" }), move || {
                        property.run(&s);
                        Ok(())
                    }));
                }
            }
        }
    }
    let _: Option<Failed> = None;
    libtest_mimic::run(&Arguments::from_args(), trials).exit();
}
