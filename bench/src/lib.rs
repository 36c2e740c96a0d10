//! What the drivers and the program that starts them agree on: options, the line that a driver prints, clocks and histograms.

pub mod clock;
pub mod histogram;
pub mod options;
pub mod outcome;
