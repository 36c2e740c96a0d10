//! `tenure completions` and `tenure man`: made from the same description as the parser.

use std::path::Path;

use clap::CommandFactory;
use clap_complete::Shell;
use clap_mangen::Man;

use crate::args::Cli;
use crate::exit::{self, Failure};
use crate::output;

pub(crate) fn completions(shell: Shell) -> Result<u8, Failure> {
    // Through a buffer: the generator panics when it cannot write.
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "tenure", &mut script);
    output::print(&String::from_utf8_lossy(&script))?;
    Ok(0)
}

pub(crate) fn man(dir: Option<&Path>) -> Result<u8, Failure> {
    if let Some(dir) = dir {
        let written = std::fs::create_dir_all(dir).and_then(|()| clap_mangen::generate_to(Cli::command(), dir));
        written.map_err(|e| Failure::new(exit::FAILED, format!("cannot write to {}: {e}", dir.display())))?;
        return Ok(0);
    }
    let mut page = Vec::new();
    Man::new(Cli::command()).render(&mut page)?;
    output::print(&String::from_utf8_lossy(&page))?;
    Ok(0)
}
