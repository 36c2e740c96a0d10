//! The Java peer by itself, so that a test against it fails only for the other side's faults.

use super::place::Place;

/// Two who do everything that does not wait, each line with what is answered. Names are of this test only.
const SCRIPT: &str = "
    a take lock v:L                    ->
    a held lock v:L                    -> true
    b held lock v:L                    -> false
    b locked lock v:L                  -> true
    b try lock v:L                     -> refused
    b try lock v:L wait=20 lease=1000  -> refused
    a give lock v:L                    ->
    a locked lock v:L                  -> false
    a ttl lock v:L                     -> -2
    b try lock v:L lease=600000        -> taken
    a force lock v:L                   -> true
    b held lock v:L                    -> false
    a take fenced v:F lease=600000     -> 1
    b try fenced v:F                   -> refused
    a give fenced v:F                  ->
    b take fenced v:F                  -> 2
    b token fenced v:F                 -> 2
    b give fenced v:F                  ->
    b try fenced v:F wait=20           -> taken 3
    b give fenced v:F                  ->
    a take fair v:Q                    ->
    b try fair v:Q                     -> refused
    b try fair v:Q wait=20             -> refused
    a give fair v:Q                    ->
    b try fair v:Q                     -> taken
    b give fair v:Q                    ->
    a take read v:RW lease=600000      ->
    b try read v:RW                    -> taken
    b try write v:RW                   -> refused
    b give read v:RW                   ->
    a give read v:RW                   ->
    b take write v:RW                  ->
    a try read v:RW wait=20            -> refused
    b give write v:RW                  ->
    a set semaphore v:S 3              -> true
    b set semaphore v:S 4              -> false
    a take semaphore v:S n=2           ->
    b try semaphore v:S n=2            -> refused
    b try semaphore v:S n=2 wait=20    -> refused
    b available semaphore v:S          -> 1
    a give semaphore v:S n=2           ->
    a add semaphore v:S 2              ->
    a available semaphore v:S          -> 5
    a set permit v:P 3                 -> true
    a take permit v:P n=2              -> ID,ID
    a take permit v:P lease=600000     -> ID
    b try permit v:P                   -> refused
    b try permit v:P wait=20           -> refused
    a extend permit v:P lease=900000   -> true
    a give permit v:P                  ->
    b available permit v:P             -> 1
    b try permit v:P lease=600000      -> taken ID
    b give permit v:P                  ->
    a give permit v:P                  ->
    a add permit v:P 1                 ->
    a available permit v:P             -> 4
    a set latch v:C 2                  -> true
    b set latch v:C 5                  -> false
    a await latch v:C wait=20          -> false
    a down latch v:C                   ->
    b count latch v:C                  -> 1
    b down latch v:C                   ->
    a await latch v:C                  -> true
    a set latch v:C 1                  -> true
    b delete latch v:C                 -> true
    b count latch v:C                  -> 0
    a crowd write v:RW v:counter 3     -> 3
    b crowd permit v:P v:counter 2     -> 2
    a pair write v:RW v:one v:two 2    -> 0
    b pair read v:RW v:one v:two 2     -> 0
    b pair read v:RW v:one v:counter 2 -> 2
";

pub(crate) fn every_verb_of_java_does_what_it_says() {
    let java = &Place::Single.site().java;
    let (a, b) = (java.actor(), java.actor());
    for line in SCRIPT.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let (command, expected) = line.split_once("->").expect("an arrow");
        let (actor, command) = command.trim().split_once(' ').expect("an actor");
        let answer = if actor == "a" { &a } else { &b }.ask(command);
        let words = answer.split(' ').map(|word| word.split(',').map(without_id).collect::<Vec<_>>().join(","));
        assert_eq!(words.collect::<Vec<_>>().join(" "), expected.trim(), "{line}");
    }
    for wrong in ["give lock v:L", "give permit v:P", "token lock v:L", "fly lock v:L", "take latch v:C", "take lock"] {
        a.tell(wrong);
        assert!(a.result().is_err(), "{wrong}");
    }
}

fn without_id(word: &str) -> &str {
    let hex = |c: char| c.is_ascii_digit() || ('a'..='f').contains(&c);
    if word.len() == 32 && word.chars().all(hex) { "ID" } else { word }
}

/// A wait of each kind, ended by somebody in another process.
pub(crate) fn java_wakes_java() {
    for place in [Place::Single, Place::Cluster] {
        let site = place.site();
        let other = site.another_java(&["--fair-wait", "600000", "--watchdog", "600000"]);
        let (a, b) = (site.java.actor(), other.actor());
        let kinds = [("lock", ""), ("fenced", ""), ("fair", ""), ("write", ""), ("semaphore", "1"), ("permit", "1")];
        for (kind, permits) in kinds {
            let name = format!("w:{kind}");
            if !permits.is_empty() {
                a.ask(&format!("set {kind} {name} {permits}"));
            }
            a.ask(&format!("take {kind} {name} lease=600000"));
            b.tell(&format!("take {kind} {name}"));
            site.awaits(&name, 1);
            b.falls_asleep();
            assert!(!b.has_answered(), "{kind}: the other has it");
            a.ask(&format!("give {kind} {name}"));
            b.answer();
            assert_eq!(a.ask(&format!("try {kind} {name}")), "refused");
            b.ask(&format!("give {kind} {name}"));
        }
        a.ask("set latch w:latch 1");
        b.tell("await latch w:latch");
        b.falls_asleep();
        assert!(!b.has_answered(), "not yet");
        a.ask("down latch w:latch");
        assert_eq!(b.answer(), "true");
        assert_eq!(other.actor().ask("quit"), "");
    }
}
