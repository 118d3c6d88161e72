//! Times, and the table of them.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

/// What a figure should be.
#[derive(Clone, Copy)]
pub(crate) enum Goal {
    AtMost(f64),
    AtLeast(f64),
}

impl Goal {
    fn met(self, value: f64) -> bool {
        match self {
            Goal::AtMost(limit) => value <= limit,
            Goal::AtLeast(limit) => value >= limit,
        }
    }

    /// In the words of the table.
    fn verdict(self, value: f64) -> String {
        let met = if self.met(value) { "met" } else { "MISSED" };
        match self {
            Goal::AtMost(limit) => format!("{met}: at most {limit}"),
            Goal::AtLeast(limit) => format!("{met}: at least {limit}"),
        }
    }

    fn json(self, value: f64) -> Value {
        let (at_most, at_least) = match self {
            Goal::AtMost(limit) => (Some(limit), None),
            Goal::AtLeast(limit) => (None, Some(limit)),
        };
        json!({"value": value, "at_most": at_most, "at_least": at_least, "met": self.met(value)})
    }
}

/// What of ours and another's is compared.
#[derive(Clone, Copy)]
pub(crate) enum Measure {
    /// Ours divided by the other's, of medians.
    Ratio,
    /// The same of the 99th percentiles.
    RatioOfP99,
    /// The milliseconds that ours takes longer, of medians.
    Added,
}

/// How long one way of doing a thing took, each time.
pub(crate) struct Series {
    label: String,
    times: Vec<Duration>,
    /// What ours should be beside it.
    goals: Vec<(Measure, Goal)>,
}

impl Series {
    pub(crate) fn new(label: &str) -> Series {
        Series {
            label: label.to_owned(),
            times: Vec::new(),
            goals: Vec::new(),
        }
    }

    pub(crate) async fn time<T>(&mut self, call: impl Future<Output = T>) -> T {
        let start = Instant::now();
        let result = call.await;
        self.add(start.elapsed());
        result
    }

    /// What ours should be beside this one.
    pub(crate) fn at_most(mut self, measure: Measure, limit: f64) -> Series {
        self.goals.push((measure, Goal::AtMost(limit)));
        self
    }

    pub(crate) fn count(&self) -> usize {
        self.times.len()
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

    /// What ours should be beside the way that was named last.
    pub(crate) fn at_most(mut self, measure: Measure, limit: f64) -> Contest<C> {
        if let Some(last) = self.entrants.pop() {
            self.entrants.push(Entrant {
                series: last.series.at_most(measure, limit),
                ..last
            });
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
    /// What our median should be, in milliseconds.
    goal: Option<Goal>,
    figures: Vec<Figure>,
}

/// What else there is to say of a row, as a number.
struct Figure {
    name: &'static str,
    value: f64,
    goal: Option<Goal>,
}

impl Row {
    pub(crate) fn new(name: impl Into<String>, series: Vec<Series>) -> Row {
        Row {
            name: name.into(),
            series,
            goal: None,
            figures: Vec::new(),
        }
    }

    /// What our median should be at most.
    pub(crate) fn at_most(mut self, ms: f64) -> Row {
        self.goal = Some(Goal::AtMost(ms));
        self
    }

    pub(crate) fn figure(mut self, name: &'static str, value: f64) -> Row {
        let goal = None;
        self.figures.push(Figure { name, value, goal });
        self
    }

    pub(crate) fn figure_with(mut self, name: &'static str, value: f64, goal: Goal) -> Row {
        let goal = Some(goal);
        self.figures.push(Figure { name, value, goal });
        self
    }

    /// In milliseconds.
    pub(crate) fn median(&self) -> f64 {
        self.series.first().map_or(0.0, Series::median)
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// What ours was measured beside: its label and its median.
    pub(crate) fn others(&self) -> impl Iterator<Item = (&str, f64)> {
        let others = self.series.iter().skip(1);
        others.map(|series| (&*series.label, series.median()))
    }

    fn measure(&self, other: &Series, measure: Measure) -> f64 {
        let p99 = self.series.first().map_or(0.0, |ours| ours.quantile(0.99));
        match measure {
            Measure::Ratio => self.median() / other.median(),
            Measure::RatioOfP99 => p99 / other.quantile(0.99),
            Measure::Added => self.median() - other.median(),
        }
    }

    /// Everything that has a goal, as its value and the goal.
    fn goals(&self) -> Vec<(f64, Goal)> {
        let of_others = self.series.iter().skip(1).flat_map(|other| {
            let goals = other.goals.iter();
            goals.map(|(measure, goal)| (self.measure(other, *measure), *goal))
        });
        let of_figures = self.figures.iter();
        of_others
            .chain(of_figures.filter_map(|figure| Some((figure.value, figure.goal?))))
            .chain(self.goal.map(|goal| (self.median(), goal)))
            .collect()
    }

    fn json(&self) -> Value {
        let times = |series: &Series| {
            json!({
                "what": series.label,
                "rounds": series.times.len(),
                "p50_ms": series.median(),
                "p99_ms": series.quantile(0.99),
            })
        };
        let against = self.series.iter().skip(1).map(|other| {
            let mut value = times(other);
            if let Some(fields) = value.as_object_mut() {
                let ratio = self.measure(other, Measure::Ratio);
                fields.insert("ratio_p50".to_owned(), json!(ratio));
                let p99 = self.measure(other, Measure::RatioOfP99);
                fields.insert("ratio_p99".to_owned(), json!(p99));
            }
            value
        });
        let figures: serde_json::Map<_, _> = self
            .figures
            .iter()
            .map(|figure| (figure.name.to_owned(), json!(figure.value)))
            .collect();
        let goals = self.goals().into_iter();
        json!({
            "name": self.name,
            "ours": self.series.first().map(times),
            "against": against.collect::<Vec<_>>(),
            "figures": figures,
            "goals": goals.map(|(value, goal)| goal.json(value)).collect::<Vec<_>>(),
        })
    }
}

impl std::fmt::Display for Row {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.series.first() {
            Some(ours) => {
                let verdict = self.goal.map(|goal| goal.verdict(self.median()) + " ms");
                write_line(out, &self.name, ours, "", &verdict.unwrap_or_default())?;
            }
            None => writeln!(out, "{}", self.name)?,
        }
        for other in self.series.iter().skip(1) {
            let label = format!("    {}", other.label);
            let ratio = format!("{:.2}", self.measure(other, Measure::Ratio));
            let verdicts = other.goals.iter().map(|(measure, goal)| {
                let value = self.measure(other, *measure);
                let verdict = goal.verdict(value);
                match measure {
                    Measure::Ratio => verdict,
                    Measure::RatioOfP99 => format!("p99 {value:.2} {verdict}"),
                    Measure::Added => format!("+ {value:.2} ms {verdict} ms"),
                }
            });
            let verdicts = verdicts.collect::<Vec<_>>().join("; ");
            write_line(out, &label, other, &ratio, &verdicts)?;
        }
        for Figure { name, value, goal } in &self.figures {
            let verdict = goal.map(|goal| goal.verdict(*value)).unwrap_or_default();
            let line = format!("    {name}: {value:.2}  {verdict}");
            writeln!(out, "{}", line.trim_end())?;
        }
        Ok(())
    }
}

fn write_line(
    out: &mut std::fmt::Formatter<'_>,
    label: &str,
    series: &Series,
    ratio: &str,
    verdict: &str,
) -> std::fmt::Result {
    let line = format!(
        "{label:<46} {:>9.2} ms {:>9.2} ms {ratio:>6}  {verdict}",
        series.median(),
        series.quantile(0.99)
    );
    writeln!(out, "{}", line.trim_end())
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

    pub(crate) fn rows(&self) -> &[Row] {
        &self.rows
    }

    pub(crate) fn json(&self) -> Vec<Value> {
        self.rows.iter().map(Row::json).collect()
    }

    /// How many goals were met, in words.
    pub(crate) fn verdict(&self) -> String {
        let all: Vec<_> = self.rows.iter().flat_map(Row::goals).collect();
        let met = all.iter().filter(|(value, goal)| goal.met(*value)).count();
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
