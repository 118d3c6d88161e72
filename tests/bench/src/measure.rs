//! Times, and the table of them.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

/// How long one way of doing a thing took, each time.
pub(crate) struct Series {
    label: String,
    times: Vec<Duration>,
    /// What ours may be of it at most, median by median.
    target: Option<f64>,
}

impl Series {
    pub(crate) fn new(label: &str) -> Series {
        Series {
            label: label.to_owned(),
            times: Vec::new(),
            target: None,
        }
    }

    pub(crate) async fn time<T>(&mut self, call: impl Future<Output = T>) -> T {
        let start = Instant::now();
        let result = call.await;
        self.add(start.elapsed());
        result
    }

    pub(crate) fn add(&mut self, time: Duration) {
        self.times.push(time);
    }

    /// In milliseconds.
    fn quantile(&self, q: f64) -> f64 {
        let mut sorted = self.times.clone();
        sorted.sort();
        let at = (sorted.len() as f64 * q) as usize;
        let time = sorted.get(at.min(sorted.len().saturating_sub(1)));
        time.copied().unwrap_or_default().as_secs_f64() * 1e3
    }

    fn median(&self) -> f64 {
        self.quantile(0.5)
    }
}

/// Some ways of doing one thing; the first is ours, by which the others are judged.
pub(crate) struct Contest<C> {
    entrants: Vec<Entrant<C>>,
}

pub(crate) struct Entrant<C> {
    pub(crate) client: C,
    pub(crate) series: Series,
}

impl<C> Contest<C> {
    pub(crate) fn of(ours: C) -> Contest<C> {
        Contest {
            entrants: Vec::new(),
        }
        .against("ours", ours)
    }

    pub(crate) fn against(mut self, label: &str, client: C) -> Contest<C> {
        self.entrants.push(Entrant {
            client,
            series: Series::new(label),
        });
        self
    }

    /// What ours should be of the way that was named last.
    pub(crate) fn at_most(mut self, ratio: f64) -> Contest<C> {
        if let Some(last) = self.entrants.last_mut() {
            last.series.target = Some(ratio);
        }
        self
    }

    /// All of them, each round another one first: the first may have to warm what the others find warm.
    pub(crate) fn round(&mut self, round: usize) -> impl Iterator<Item = &mut Entrant<C>> {
        let first = round % self.entrants.len().max(1);
        let (before, from) = self.entrants.split_at_mut(first);
        from.iter_mut().chain(before)
    }

    pub(crate) fn row(self, name: impl Into<String>) -> Row {
        let series = self.entrants.into_iter().map(|entrant| entrant.series);
        Row::new(name, series.collect())
    }
}

/// One thing that was measured.
pub(crate) struct Row {
    name: String,
    /// The first is ours.
    series: Vec<Series>,
    /// What our median should be at most, in milliseconds.
    target: Option<f64>,
    figures: Vec<(&'static str, f64)>,
}

impl Row {
    pub(crate) fn new(name: impl Into<String>, series: Vec<Series>) -> Row {
        Row {
            name: name.into(),
            series,
            target: None,
            figures: Vec::new(),
        }
    }

    pub(crate) fn under(mut self, ms: f64) -> Row {
        self.target = Some(ms);
        self
    }

    /// What else there is to say, as a number.
    pub(crate) fn figure(mut self, name: &'static str, value: f64) -> Row {
        self.figures.push((name, value));
        self
    }

    fn median(&self) -> f64 {
        self.series.first().map_or(0.0, Series::median)
    }

    /// Whether the median is what it should be, where that was said.
    fn met(&self) -> Option<bool> {
        self.target.map(|target| self.median() < target)
    }

    fn against(&self) -> impl Iterator<Item = Comparison<'_>> {
        let ours = self.median();
        self.series.iter().skip(1).map(move |series| Comparison {
            series,
            ratio: ours / series.median(),
        })
    }

    fn json(&self) -> Value {
        let figures: serde_json::Map<_, _> = self
            .figures
            .iter()
            .map(|(name, value)| ((*name).to_owned(), json!(value)))
            .collect();
        json!({
            "name": self.name,
            "rounds": self.series.first().map_or(0, |ours| ours.times.len()),
            "ours_p50_ms": self.median(),
            "ours_p99_ms": self.series.first().map(|ours| ours.quantile(0.99)),
            "target_p50_ms": self.target,
            "met": self.met(),
            "against": self.against().map(|other| other.json()).collect::<Vec<_>>(),
            "figures": figures,
        })
    }
}

struct Comparison<'a> {
    series: &'a Series,
    ratio: f64,
}

impl Comparison<'_> {
    fn met(&self) -> Option<bool> {
        self.series.target.map(|target| self.ratio <= target)
    }

    fn json(&self) -> Value {
        json!({
            "what": self.series.label,
            "p50_ms": self.series.median(),
            "p99_ms": self.series.quantile(0.99),
            "ratio_p50": self.ratio,
            "target_ratio": self.series.target,
            "met": self.met(),
        })
    }
}

impl std::fmt::Display for Row {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if let Some(ours) = self.series.first() {
            let target = verdict("under", self.target, self.met(), " ms");
            write_line(out, &self.name, ours, "", &target)?;
        }
        for other in self.against() {
            let label = format!("    {}", other.series.label);
            let ratio = format!("{:.2}", other.ratio);
            let target = verdict("at most", other.series.target, other.met(), "");
            write_line(out, &label, other.series, &ratio, &target)?;
        }
        for (name, value) in &self.figures {
            writeln!(out, "    {name}: {value:.1}")?;
        }
        Ok(())
    }
}

fn write_line(
    out: &mut std::fmt::Formatter<'_>,
    label: &str,
    series: &Series,
    ratio: &str,
    target: &str,
) -> std::fmt::Result {
    let line = format!(
        "{label:<46} {:>9.2} ms {:>9.2} ms {ratio:>6}  {target}",
        series.median(),
        series.quantile(0.99)
    );
    writeln!(out, "{}", line.trim_end())
}

fn verdict(relation: &str, target: Option<f64>, met: Option<bool>, unit: &str) -> String {
    match (target, met) {
        (Some(target), Some(true)) => format!("met: {relation} {target}{unit}"),
        (Some(target), _) => format!("MISSED: {relation} {target}{unit}"),
        (None, _) => String::new(),
    }
}

/// The rows, printed as they come.
pub(crate) struct Report {
    rows: Vec<Row>,
}

impl Report {
    pub(crate) fn new() -> Report {
        println!("{:<46} {:>12} {:>12} {:>6}", "", "median", "p99", "ratio");
        Report { rows: Vec::new() }
    }

    pub(crate) fn push(&mut self, row: Row) {
        print!("{row}");
        self.rows.push(row);
    }

    pub(crate) fn json(&self) -> Vec<Value> {
        self.rows.iter().map(Row::json).collect()
    }

    /// How many targets were met, in words.
    pub(crate) fn verdict(&self) -> String {
        let all: Vec<bool> = self
            .rows
            .iter()
            .flat_map(|row| {
                let ratios: Vec<_> = row.against().map(|other| other.met()).collect();
                ratios.into_iter().chain([row.met()])
            })
            .flatten()
            .collect();
        let met = all.iter().filter(|met| **met).count();
        format!("{met} of {} targets met", all.len())
    }
}

/// With commas between the thousands.
pub(crate) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}
