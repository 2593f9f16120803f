//! What a scene writes down, run by run.

use anyhow::{Result, ensure};

use super::bar::{Bar, Line};

/// Figures by bar, each with what it was made from.
#[derive(Debug, Default)]
pub struct Record(Vec<(&'static Bar, Vec<(f64, String)>)>);

impl Record {
    /// Adds the figure of one run.
    pub fn add(&mut self, bar: &'static Bar, figure: f64, note: impl Into<String>) {
        let run = (figure, note.into());
        match self.0.iter_mut().find(|(known, _)| std::ptr::eq(*known, bar)) {
            Some((_, runs)) => runs.push(run),
            None => self.0.push((bar, vec![run])),
        }
    }

    /// The lines of these bars; an error when one of them has no figure.
    pub fn lines(&self, bars: &[&'static Bar]) -> Result<Vec<Line>> {
        let missing: Vec<&str> =
            bars.iter().filter(|bar| self.runs(bar).is_none()).map(|bar| bar.what).collect();
        ensure!(missing.is_empty(), "nothing was measured of: {}", missing.join("; "));
        Ok(bars.iter().filter_map(|bar| Some(line(bar, self.runs(bar)?))).collect())
    }

    fn runs(&self, bar: &'static Bar) -> Option<&[(f64, String)]> {
        self.0.iter().find(|(known, _)| std::ptr::eq(*known, bar)).map(|(_, runs)| runs.as_slice())
    }
}

/// The note is that of the run whose figure is the line's, or next to it.
fn line(bar: &'static Bar, runs: &[(f64, String)]) -> Line {
    let mut line = Line { bar, runs: runs.iter().map(|(figure, _)| *figure).collect(), note: String::new() };
    let figure = line.figure();
    let distance = |run: &&(f64, String)| (run.0 - figure).abs();
    let nearest = runs.iter().min_by(|a, b| distance(a).total_cmp(&distance(b)));
    line.note = nearest.map(|(_, note)| note.clone()).unwrap_or_default();
    line
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::bar::{Limit, Run, Unit};

    const BAR: Bar =
        Bar { id: "B", what: "this", unit: Unit::Times, limit: Limit::AtMost(1.0), run: Run::Median };
    const OTHER: Bar =
        Bar { id: "B", what: "that", unit: Unit::Times, limit: Limit::AtMost(1.0), run: Run::Median };
    static THIS: Bar = BAR;
    static THAT: Bar = OTHER;

    #[test]
    fn a_line_tells_what_its_figure_was_made_from() {
        let mut record = Record::default();
        for (figure, note) in [(3.0, "slow"), (1.0, "quick"), (2.0, "middling")] {
            record.add(&THIS, figure, note);
        }
        let lines = record.lines(&[&THIS]).unwrap();
        assert_eq!(lines[0].runs, [3.0, 1.0, 2.0]);
        assert_eq!(lines[0].note, "middling");
    }

    #[test]
    fn a_bar_that_was_not_measured_is_an_error_and_never_a_line() {
        let mut record = Record::default();
        record.add(&THIS, 1.0, "");
        let error = record.lines(&[&THIS, &THAT]).unwrap_err();
        assert!(error.to_string().contains("that"), "{error}");
    }
}
