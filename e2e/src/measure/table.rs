//! What was measured, as a table for people and as JSON for machines.

use serde_json::{Value, json};

use super::{
    bar::{Bar, Limit, Line},
    figures,
};

/// The columns; notes follow without one.
const HEAD: [&str; 6] = ["bar", "what", "figure", "spread", "limit", ""];

/// One aligned line for each bar.
pub fn table(lines: &[Line]) -> String {
    let cells = lines.iter().map(|line| {
        let text = |figure| line.bar.unit.text(figure);
        let spread = match line.runs.len() {
            1 => "1 run".to_owned(),
            runs => format!(
                "{}..{} ({runs} runs)",
                text(figures::smallest(&line.runs)),
                text(figures::largest(&line.runs))
            ),
        };
        let bar = line.bar;
        let row = [
            bar.id.to_owned(),
            bar.what.to_owned(),
            text(line.figure()),
            spread,
            bar.limit_text(),
            line.verdict().word().to_owned(),
        ];
        (row, line.note.as_str())
    });
    aligned(&HEAD, cells.collect())
}

/// What can be measured: one aligned line for each bar.
pub fn list(bars: &[&Bar]) -> String {
    let rows = bars.iter().map(|bar| ([bar.id.to_owned(), bar.what.to_owned(), bar.limit_text()], ""));
    aligned(&["bar", "what", "limit"], rows.collect())
}

/// The same as JSON, one object for each bar.
pub fn json(lines: &[Line]) -> Value {
    let lines = lines.iter().map(|line| {
        let limit = match line.bar.limit {
            Limit::AtMost(limit) => json!({"atMost": limit}),
            Limit::AtLeast(limit) => json!({"atLeast": limit}),
            Limit::None => Value::Null,
        };
        json!({
            "bar": line.bar.id,
            "what": line.bar.what,
            "unit": line.bar.unit,
            "figure": line.figure(),
            "runs": line.runs,
            "limit": limit,
            "verdict": line.verdict(),
            "note": line.note,
        })
    });
    lines.collect()
}

fn aligned<const N: usize>(head: &[&str; N], rows: Vec<([String; N], &str)>) -> String {
    let head = (head.map(str::to_owned), "");
    let rows: Vec<_> = std::iter::once(head).chain(rows).collect();
    let width = |column: usize| rows.iter().map(|(row, _)| row[column].chars().count()).max().unwrap_or(0);
    let widths: [usize; N] = std::array::from_fn(width);
    let line = |(row, note): &([String; N], &str)| {
        let cells = row.iter().zip(widths).map(|(cell, width)| format!("{cell:width$}"));
        let line = cells.chain([(*note).to_owned()]).collect::<Vec<_>>().join("  ");
        format!("{}\n", line.trim_end())
    };
    rows.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::bar::{Run, Unit};

    const SLOW: Bar = Bar {
        id: "B-P1",
        what: "claim over bare",
        unit: Unit::Times,
        limit: Limit::AtMost(5.0),
        run: Run::Median,
    };
    const NEVER: Bar = Bar {
        id: "X-1",
        what: "status writes",
        unit: Unit::Count,
        limit: Limit::AtMost(0.0),
        run: Run::Worst,
    };

    fn lines() -> Vec<Line> {
        vec![
            Line { bar: &SLOW, runs: vec![6.0, 4.0, 7.5], note: "9 ms over 2 ms".into() },
            Line { bar: &NEVER, runs: vec![0.0], note: String::new() },
        ]
    }

    #[test]
    fn one_line_a_bar_and_short_says_short() {
        let expected = "\
bar   what             figure  spread                    limit
B-P1  claim over bare  6.00 ×  4.00 ×..7.50 × (3 runs)  ≤ 5.00 ×  short  9 ms over 2 ms
X-1   status writes    0       1 run                    ≤ 0       ok
";
        let told = table(&lines());
        let words = |text: &str| -> Vec<Vec<String>> {
            text.lines().map(|line| line.split_whitespace().map(str::to_owned).collect()).collect()
        };
        assert_eq!(words(&told), words(expected));
        let starts = |of: &str| -> Vec<usize> {
            told.lines().filter_map(|line| line.find(of).map(|at| line[..at].chars().count())).collect()
        };
        assert_eq!(starts("≤").len(), 2);
        assert!(starts("≤").windows(2).all(|pair| pair[0] == pair[1]), "aligned:\n{told}");
    }

    #[test]
    fn machines_get_the_runs_as_well() {
        let told = json(&lines());
        assert_eq!(told[0]["verdict"], "short");
        assert_eq!(told[0]["runs"], json!([6.0, 4.0, 7.5]));
        assert_eq!(told[0]["limit"], json!({"atMost": 5.0}));
        assert_eq!(told[1]["verdict"], "ok");
        assert_eq!(told[0]["unit"], "times");
    }

    #[test]
    fn the_list_names_every_bar() {
        assert_eq!(list(&[&SLOW, &NEVER]).lines().count(), 3);
    }
}
