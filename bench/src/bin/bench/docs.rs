//! The results as a page, and as the part of docs/performance.md between two marks.

use std::fmt::Write;
use std::io::{Error, Result};
use std::path::Path;

use crate::results::CaseResult;
use crate::{bars, plot, table};

const BEGIN: &str = "<!-- results: begin -->";
const END: &str = "<!-- results: end -->";

/// Tables, plots and bars. `plots` is the folder of the plots, as the page sees it.
pub(crate) fn page(results: &[CaseResult], plots: &str) -> String {
    let mut text = bars::table(&bars::judge(results));
    for case in results {
        let _infallible = write!(text, "\n### {}: {}\n\n", case.id, case.title);
        let note = if case.note.is_empty() { String::new() } else { format!("{}. ", case.note) };
        let _infallible = write!(text, "{note}Measured on {}.\n\n", case.machine);
        let _infallible = write!(text, "![{id}: {}]({plots}{id}.svg)\n\n{}", case.title, table::of(case), id = case.id);
    }
    text
}

pub(crate) fn plots(folder: &Path, results: &[CaseResult]) -> Result<()> {
    results.iter().try_for_each(|case| std::fs::write(folder.join(format!("{}.svg", case.id)), plot::of(case)))
}

/// Writes the plots, and puts the page between its marks.
pub(crate) fn update(docs: &Path, results: &[CaseResult]) -> Result<()> {
    let (path, folder) = (docs.join("performance.md"), docs.join("performance"));
    std::fs::create_dir_all(&folder)?;
    plots(&folder, results)?;
    let old = std::fs::read_to_string(&path)?;
    let new = between(&old, &page(results, "performance/"))
        .ok_or_else(|| Error::other(format!("{} has no {BEGIN} before an {END}", path.display())))?;
    std::fs::write(path, new)
}

fn between(old: &str, new: &str) -> Option<String> {
    let (before, rest) = old.split_once(BEGIN)?;
    let (_, after) = rest.split_once(END)?;
    Some(format!("{before}{BEGIN}\n{new}{END}{after}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_between_the_marks_is_replaced() {
        let old = format!("a\n{BEGIN}\nold\n{END}\nb\n");
        assert_eq!(between(&old, "new\n"), Some(format!("a\n{BEGIN}\nnew\n{END}\nb\n")));
        assert_eq!(between("no marks", "new"), None);
    }
}
