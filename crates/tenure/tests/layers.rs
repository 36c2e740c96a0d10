//! Dependencies point one way: a module uses only modules below it. This reads the paths in the sources and checks it.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// The modules of the library, bottom to top. A module may use itself and those in rows before its own; those in one row know
/// nothing of each other. A module stands for all files under it that are not in a row of their own.
const LAYERS: &[(&[&str], &str)] = &[
    (
        &["invalid", "caller", "clock", "mode", "retry", "signal", "lifeline", "own_thread"],
        "values and tools that need nothing else",
    ),
    (&["name"], "names, identities, tokens"),
    (&["lost"], "how a hold ends"),
    (&["error"], "what can go wrong"),
    (&["duration", "secret"], "what is read from texts and files"),
    (&["backend"], "the contract between the engine and a store"),
    (&["stats", "audit", "store"], "what is counted and recorded; what opening a store needs"),
    (&["engine/background", "engine/hold"], "where work runs, one grant"),
    (&["engine/driven"], "work that its caller drives, or the background; how long a call may take"),
    // One room: a guard gives back through the keeper, which hands the hold on through the turnstile to who acquires, who gets a
    // guard; and each is reached by way of the engine that has them.
    (&["engine"], "acquiring, keeping, handing over, losing"),
    (&["primitives"], "locks as users see them, on any store"),
    (&["backends/decision"], "the rules of all modes"),
    (&["backends/memory", "backends/redis", "backends/sqlite", "backends/quorum"], "the stores"),
    (&["backends/prefixed", "backends/faulty"], "stores made of another one"),
    (&["backends"], "the list of them"),
    (&["connect"], "the table of schemes, from a URL to a store"),
    // One room: each is made by the other.
    (&["locker"], "a client of a store, and its options"),
    (&["sql"], "what fences and records ask of a database"),
    (&["fence"], "what refuses those who come too late"),
    (&["once"], "work that is done once"),
    (&["blocking"], "all of it for threads"),
    (&["conformance", "fuzz", "testing"], "what is asked of all that, and for tests of users"),
    (&["lib"], "what users see"),
];

/// Modules that stand apart, though one row is before the other.
const APART: &[(&str, &str, &str)] = &[
    ("backends", "engine", "a store knows nothing of waiting, guards and retries"),
    ("backends", "primitives", "a store knows claims, and not what they are for"),
];

#[test]
fn dependencies_point_one_way() {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let root = std::fs::read_to_string(src.join("lib.rs")).expect("a crate");
    let exported = exported(&root);
    let mut wrong = BTreeSet::new();
    let mut seen = BTreeSet::new();
    for file in sources(&src) {
        let text = std::fs::read_to_string(&file).expect("a source");
        let module = module(file.strip_prefix(&src).expect("under src"));
        seen.insert(layer(&module).unwrap_or_else(|| panic!("{} is in no row", module.join("/"))).1);
        wrong.extend(faults(&module, &text, &exported));
    }
    assert!(wrong.is_empty(), "\n{}\n", wrong.into_iter().collect::<Vec<_>>().join("\n"));
    let rows: BTreeSet<&str> = LAYERS.iter().flat_map(|(names, _)| *names).copied().collect();
    assert_eq!(seen, rows, "a row without a module");
}

/// All files of Rust under a folder.
fn sources(dir: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(dir).expect("a folder").map(|entry| entry.expect("an entry").path());
    let (dirs, files): (Vec<_>, Vec<_>) = entries.partition(|path| path.is_dir());
    let files = files.into_iter().filter(|file| file.extension().is_some_and(|ext| ext == "rs"));
    files.chain(dirs.iter().flat_map(|dir| sources(dir))).collect()
}

/// The path of a file as a module: `engine/keeper/mod.rs` is `engine`, `keeper`.
fn module(file: &Path) -> Vec<String> {
    let mut parts: Vec<String> = file.with_extension("").iter().map(|part| part.to_string_lossy().into_owned()).collect();
    parts.pop_if(|last| last == "mod");
    parts
}

/// The row of a module, and the name by which it is there.
fn layer(path: &[String]) -> Option<(usize, &'static str)> {
    let named = LAYERS.iter().enumerate().flat_map(|(row, (names, _))| names.iter().map(move |name| (row, *name)));
    let under = |name: &str| name.split('/').enumerate().all(|(i, part)| path.get(i).is_some_and(|own| own == part));
    named.filter(|(_, name)| under(name)).max_by_key(|(_, name)| name.len())
}

/// What the crate's root hands on, and the path where it is: `crate::Guard` is a use of the engine.
fn exported(root: &str) -> Vec<(String, Vec<String>)> {
    let code = code(root);
    let uses = code.split("pub use ").skip(1).filter_map(|text| text.split_once(';'));
    let paths = uses.flat_map(|(tree, _)| tree_paths(&tokens(tree)));
    paths.filter_map(|path| Some((path.last()?.clone(), path))).collect()
}

/// The paths in a source that lead to a module above or beside its own.
fn faults(from: &[String], text: &str, exported: &[(String, Vec<String>)]) -> Vec<String> {
    let (row, name) = layer(from).unwrap_or_else(|| panic!("{} is in no row", from.join("/")));
    let mut faults = Vec::new();
    for path in used(from, text) {
        let of_root = exported.iter().find(|(item, _)| *item == path[0]);
        let to = of_root.map_or(&path, |(_, path)| path);
        let Some((to_row, to_name)) = layer(to) else { continue };
        let apart = APART.iter().find(|(a, b, _)| name.starts_with(a) && to_name.starts_with(b));
        let fault = match apart {
            Some((_, _, why)) => Some(*why),
            None if to_name == name || to_row < row => None,
            None if to_row == row => Some("stands beside it"),
            None => Some("stands above it"),
        };
        faults.extend(fault.map(|why| format!("{} uses {}: {why}", from.join("/"), to.join("::"))));
    }
    faults
}

/// All paths in a source that begin with `crate`, `self` or `super`, from the root on.
fn used(from: &[String], text: &str) -> Vec<Vec<String>> {
    let tokens = tokens(&without_tests(&code(text)));
    let mut paths = Vec::new();
    for (at, token) in tokens.iter().enumerate() {
        let follows = at > 0 && tokens[at - 1] == "::";
        if follows || !["crate", "self", "super"].contains(&token.as_str()) || tokens.get(at + 1).is_none_or(|next| next != "::")
        {
            continue;
        }
        for path in tree_paths(&tokens[at..]) {
            paths.extend(absolute(from, &path));
        }
    }
    paths
}

/// Of a module's own view. `None` where nothing of the path is left.
fn absolute(from: &[String], path: &[String]) -> Option<Vec<String>> {
    let mut all = match path.first()?.as_str() {
        "crate" => Vec::new(),
        _ if from == ["lib"] => Vec::new(),
        _ => from.to_vec(),
    };
    for part in path {
        match part.as_str() {
            "crate" | "self" | "*" => {}
            "super" => drop(all.pop()),
            part => all.push(part.to_owned()),
        }
    }
    (!all.is_empty()).then_some(all)
}

/// The paths of a tree: `a::{b, c::d}` has two.
fn tree_paths(tokens: &[String]) -> Vec<Vec<String>> {
    fn tree(tokens: &[String], at: &mut usize, before: &[String], paths: &mut Vec<Vec<String>>) {
        let mut path = before.to_vec();
        loop {
            match tokens.get(*at).map(String::as_str) {
                Some("{") => {
                    *at += 1;
                    while tokens.get(*at).is_some_and(|token| token != "}") {
                        tree(tokens, at, &path, paths);
                        // A name of its own is behind `as`.
                        while tokens.get(*at).is_some_and(|token| token != "," && token != "}") {
                            *at += 1;
                        }
                        *at += usize::from(tokens.get(*at).is_some_and(|token| token == ","));
                    }
                    *at += 1;
                    return;
                }
                Some(part) if part == "*" || is_word(part) => {
                    path.push(part.to_owned());
                    *at += 1;
                }
                _ => break,
            }
            if tokens.get(*at).is_none_or(|token| token != "::") {
                break;
            }
            *at += 1;
        }
        paths.push(path);
    }
    let mut paths = Vec::new();
    tree(tokens, &mut 0, &[], &mut paths);
    paths
}

fn is_word(token: &str) -> bool {
    token.starts_with(|c: char| c.is_alphabetic() || c == '_')
}

/// Words, `::`, and single signs.
fn tokens(code: &str) -> Vec<String> {
    let mut tokens = Vec::new();
    let mut rest = code.trim_start();
    while let Some(first) = rest.chars().next() {
        let length = if rest.starts_with("::") {
            2
        } else if is_word(rest) {
            rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len())
        } else {
            first.len_utf8()
        };
        tokens.push(rest[..length].to_owned());
        rest = rest[length..].trim_start();
    }
    tokens
}

/// A source without comments and without what stands in quotes.
fn code(text: &str) -> String {
    let mut code = String::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let raw = rest.strip_prefix('r').map(|raw| raw.len() - raw.trim_start_matches('#').len());
        let after_word = code.ends_with(|c: char| c.is_alphanumeric() || c == '_');
        let skipped = if rest.starts_with("//") {
            rest.find('\n').unwrap_or(rest.len())
        } else if rest.starts_with("/*") {
            rest.find("*/").map_or(rest.len(), |end| end + 2)
        } else if let Some(signs) = raw.filter(|signs| !after_word && rest[1 + signs..].starts_with('"')) {
            let end = format!("\"{}", "#".repeat(signs));
            rest[signs + 2..].find(&end).map_or(rest.len(), |at| signs + 2 + at + end.len())
        } else if first == '"' {
            quoted(rest, '"')
        } else if first == '\'' && (rest[1..].starts_with('\\') || rest.chars().nth(2) == Some('\'')) {
            quoted(rest, '\'')
        } else {
            0
        };
        if skipped == 0 {
            code.push(first);
            rest = &rest[first.len_utf8()..];
        } else {
            code.push(' ');
            rest = &rest[skipped..];
        }
    }
    code
}

/// How long a quotation is, with its quotes.
fn quoted(text: &str, quote: char) -> usize {
    let mut escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            c if c == quote => return at + 1,
            _ => {}
        }
    }
    text.len()
}

/// Code without its modules of tests: those may look at everything.
fn without_tests(code: &str) -> String {
    let mut kept = String::new();
    let mut rest = code;
    while let Some((before, attribute)) = rest.split_once("#[cfg(") {
        kept.push_str(before);
        let (condition, after) = attribute.split_once(']').unwrap_or((attribute, ""));
        rest = after;
        let of_tests = condition.starts_with("test)") || condition.starts_with("all(test,");
        if of_tests && after.trim_start().starts_with("mod ") && after.find('{') < after.find(';') {
            let mut depth = 0;
            let end = after.char_indices().find(|(_, c)| {
                depth += i32::from(*c == '{') - i32::from(*c == '}');
                *c == '}' && depth == 0
            });
            rest = end.map_or("", |(end, _)| &after[end + 1..]);
        }
    }
    kept + rest
}

#[test]
fn a_path_that_leads_up_or_aside_is_found_wherever_it_stands() {
    let exported = exported("pub use engine::guard::{Guard, State};\npub use error::{Error, Result};\n");
    let of = |from: &str, text: &str| faults(&from.split('/').map(str::to_owned).collect::<Vec<_>>(), text, &exported);
    for (from, text, words) in [
        ("error", "use crate::backend::Mode;", "error uses backend::Mode: stands above it"),
        ("backend/state", "use crate::{name::Token, engine::{hold, keeper}};", "uses engine::keeper: stands above it"),
        ("backend", "fn f() { let x = crate::locker::Locker::builder(); }", "uses locker::Locker::builder: stands above it"),
        ("backend", "fn f(guard: &crate::Guard) {}", "uses engine::guard::Guard: stands above it"),
        ("backends/memory/slot", "use super::super::redis::keys;", "uses backends::redis::keys: stands beside it"),
        ("backends/sqlite", "pub(crate) use crate::backends::memory::Memory as M;", "stands beside it"),
        ("backends/redis/open", "use crate::connect::{self, Context};", "uses connect: stands above it"),
        ("backends/redis", "use crate::engine::background;", "a store knows nothing of waiting"),
        ("clock", "#[cfg(feature = \"a\")]\nmod a { use crate::name::Token; }", "uses name::Token"),
        ("clock", "#[cfg(test)]\nuse crate::name::Token;", "uses name::Token: stands above it"),
        ("clock", "const A: &str = \"//\"; use crate::name::Token;", "uses name::Token"),
        ("clock", "const A: char = '\"'; use crate::name::Token; const B: char = '\"';", "uses name::Token"),
        ("clock", "#[cfg(test)]\nmod tests { fn f() { {} } }\nuse crate::name::Token;", "uses name::Token"),
        ("engine/hold", "use super::guard::State;", "uses engine::guard::State: stands above it"),
    ] {
        let found = of(from, text);
        assert!(found.iter().any(|fault| fault.contains(words)), "{from}: {text}: {found:?}");
    }
    for (from, text) in [
        ("locker", "use crate::connect; use crate::engine::{Engine, Settings}; use self::builder::Builder;"),
        ("locker/builder", "use super::Locker;"),
        ("error", "/// See [`Locker`](crate::Locker).\n// crate::locker\n/* crate::locker */ use crate::lost::Lost;"),
        ("error", "const A: &str = \"crate::locker\"; const B: &str = r#\"crate::\"locker\"#;"),
        ("backend/opened", "#[cfg(test)]\nmod tests {\n    use crate::backends::memory::Memory;\n}"),
        ("engine/owner", "#[cfg(all(test, feature = \"a\"))]\nmod tests { use crate::locker::Locker; }"),
        ("engine/guard", "use crate::engine::keeper::Keeper; fn f<'a>(x: &'a str) -> crate::Result<()> {}"),
        ("backends/quorum/open", "use super::node::Open; use crate::store::Context;"),
    ] {
        assert_eq!(of(from, text), [""; 0], "{from}: {text}");
    }
}
