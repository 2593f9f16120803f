//! A bar: what is measured, in what, and how good it has to be. And the line that a measurement of it becomes.

use serde::Serialize;

use super::figures;

/// One thing that is measured. Several may share an id: a bar of the project with more than one clause.
#[derive(Debug, Serialize)]
pub struct Bar {
    /// The bar's name in the project's list, `B-P1`.
    pub id: &'static str,
    /// What is measured; with a ratio, over what.
    pub what: &'static str,
    /// What the figure counts.
    pub unit: Unit,
    /// How good it has to be.
    pub limit: Limit,
    /// Which of several runs is held against it.
    pub run: Run,
}

/// What a figure counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Unit {
    /// A ratio of two figures of the same run.
    Times,
    /// Milliseconds.
    Milliseconds,
    /// Seconds.
    Seconds,
    /// Hundredths.
    Percent,
    /// Pieces.
    Count,
    /// Pieces a second.
    PerSecond,
}

/// How good it has to be.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Limit {
    /// No more than this.
    AtMost(f64),
    /// No less than this.
    AtLeast(f64),
    /// Nobody asked; it is worth knowing.
    None,
}

/// Which of several runs is held against the limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Run {
    /// The median: how long something takes.
    Median,
    /// The worst: what must not happen even once.
    Worst,
}

/// Whether the bar is reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Verdict {
    /// It is.
    Ok,
    /// It is not.
    Short,
    /// There is no limit.
    Open,
}

/// What came of measuring a bar.
#[derive(Debug, Clone)]
pub struct Line {
    /// The bar.
    pub bar: &'static Bar,
    /// One figure for each run, in the order of the runs; never empty.
    pub runs: Vec<f64>,
    /// What the figure was made from.
    pub note: String,
}

impl Line {
    /// The figure that is held against the limit.
    pub fn figure(&self) -> f64 {
        match (self.bar.run, self.bar.limit) {
            (Run::Median, _) | (Run::Worst, Limit::None) => figures::median(&self.runs),
            (Run::Worst, Limit::AtMost(_)) => figures::largest(&self.runs),
            (Run::Worst, Limit::AtLeast(_)) => figures::smallest(&self.runs),
        }
    }

    /// Whether that is good enough. Judged by what was measured, not by what is printed of it.
    pub fn verdict(&self) -> Verdict {
        let reached = match self.bar.limit {
            Limit::None => return Verdict::Open,
            // A figure that is no number reaches nothing.
            Limit::AtMost(limit) => self.figure() <= limit,
            Limit::AtLeast(limit) => self.figure() >= limit,
        };
        if reached { Verdict::Ok } else { Verdict::Short }
    }
}

impl Verdict {
    /// The word for it.
    pub fn word(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Short => "short",
            Self::Open => "-",
        }
    }
}

impl Unit {
    /// A figure as a person reads it.
    pub fn text(self, figure: f64) -> String {
        match self {
            Self::Times => format!("{figure:.2} ×"),
            Self::Milliseconds => format!("{figure:.1} ms"),
            Self::Seconds => format!("{figure:.2} s"),
            Self::Percent => format!("{figure:.2} %"),
            Self::Count if figure.fract() == 0.0 => format!("{figure:.0}"),
            Self::Count => format!("{figure:.2}"),
            Self::PerSecond => format!("{figure:.1}/s"),
        }
    }
}

impl Bar {
    /// The limit as a person reads it.
    pub fn limit_text(&self) -> String {
        match self.limit {
            Limit::AtMost(limit) => format!("≤ {}", self.unit.text(limit)),
            Limit::AtLeast(limit) => format!("≥ {}", self.unit.text(limit)),
            Limit::None => "-".to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const QUICK: Bar =
        Bar { id: "Q", what: "", unit: Unit::Times, limit: Limit::AtMost(2.0), run: Run::Median };
    const NEVER: Bar =
        Bar { id: "N", what: "", unit: Unit::Count, limit: Limit::AtMost(0.0), run: Run::Worst };
    const MUCH: Bar =
        Bar { id: "M", what: "", unit: Unit::PerSecond, limit: Limit::AtLeast(0.5), run: Run::Median };
    const ALWAYS: Bar =
        Bar { id: "A", what: "", unit: Unit::Percent, limit: Limit::AtLeast(100.0), run: Run::Worst };
    const KNOWN: Bar = Bar { id: "K", what: "", unit: Unit::Seconds, limit: Limit::None, run: Run::Worst };

    fn verdict(bar: &'static Bar, runs: &[f64]) -> (f64, &'static str) {
        let line = Line { bar, runs: runs.to_vec(), note: String::new() };
        (line.figure(), line.verdict().word())
    }

    #[test]
    fn short_is_called_short() {
        assert_eq!(verdict(&QUICK, &[2.0]), (2.0, "ok"));
        assert_eq!(verdict(&QUICK, &[2.001]), (2.001, "short"), "though it is printed as 2.00");
        assert_eq!(verdict(&MUCH, &[0.5]), (0.5, "ok"));
        assert_eq!(verdict(&MUCH, &[0.49]), (0.49, "short"));
        assert_eq!(verdict(&KNOWN, &[1e9]).1, "-");
    }

    #[test]
    fn a_duration_is_judged_by_its_median_and_a_promise_by_its_worst_run() {
        assert_eq!(verdict(&QUICK, &[9.0, 1.0, 1.5]), (1.5, "ok"));
        assert_eq!(verdict(&NEVER, &[0.0, 0.0, 1.0]), (1.0, "short"));
        assert_eq!(verdict(&ALWAYS, &[100.0, 99.5, 100.0]), (99.5, "short"));
    }

    #[test]
    fn what_is_no_number_is_short() {
        assert_eq!(verdict(&QUICK, &[f64::NAN]).1, "short");
        assert_eq!(verdict(&MUCH, &[f64::NAN]).1, "short");
    }

    #[test]
    fn figures_are_written_with_their_unit() {
        for (unit, figure, text) in [
            (Unit::Times, 0.5, "0.50 ×"),
            (Unit::Milliseconds, 12.34, "12.3 ms"),
            (Unit::Seconds, 1.0, "1.00 s"),
            (Unit::Percent, 0.123, "0.12 %"),
            (Unit::Count, 4.0, "4"),
            (Unit::Count, 4.25, "4.25"),
            (Unit::PerSecond, 300.0, "300.0/s"),
        ] {
            assert_eq!(unit.text(figure), text);
        }
    }
}
