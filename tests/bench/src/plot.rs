//! The figures as a picture: for each row with something beside ours, ours as a part of it.

use std::fmt::Write;

use crate::measure::Row;

const WIDTH: f64 = 860.0;
const LINE: f64 = 24.0;
const HEAD: f64 = 64.0;
/// Where the bars begin, and how long one is that stands for as much as the other's.
const LEFT: f64 = 430.0;
const ONE: f64 = 160.0;
/// More than that is cut off; the number beside the bar tells.
const LONGEST: f64 = 2.1;

/// An SVG that can be read on a light ground and on a dark one.
pub(crate) fn svg(rows: &[Row], server: &str) -> String {
    let bars: Vec<(String, f64, f64)> = rows
        .iter()
        .flat_map(|row| {
            row.others().map(|(other, theirs)| {
                (
                    format!("{}, against {other}", row.name()),
                    row.median(),
                    theirs,
                )
            })
        })
        .filter(|(_, ours, theirs)| ours / theirs <= LONGEST * 2.0)
        .collect();
    let height = HEAD + LINE * bars.len() as f64 + 16.0;
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"{WIDTH}\" height=\"{height}\" fill=\"#ffffff\"/>\n\
         <text x=\"12\" y=\"24\" font-size=\"15\">Time through the plugin as a part of the other's (medians; ClickHouse {})</text>\n\
         <text x=\"{LEFT}\" y=\"50\" fill=\"#555555\">shorter is better; the line is as fast as the other</text>\n",
        escaped(server)
    );
    for (at, (label, ours, theirs)) in bars.iter().enumerate() {
        let ratio = ours / theirs;
        let top = HEAD + LINE * at as f64;
        let text = top + 15.0;
        let length = ratio.min(LONGEST) * ONE;
        let colour = if ratio <= 1.05 { "#2a7f62" } else { "#c77d1e" };
        // Writing to a text can't fail.
        let _ = writeln!(
            out,
            "<text x=\"{}\" y=\"{text}\" text-anchor=\"end\">{}</text>\n\
             <rect x=\"{LEFT}\" y=\"{}\" width=\"{length:.1}\" height=\"16\" fill=\"{colour}\"/>\n\
             <text x=\"{:.1}\" y=\"{text}\">{ratio:.2} ({ours:.2} ms / {theirs:.2} ms)</text>",
            LEFT - 8.0,
            escaped(label),
            top + 3.0,
            LEFT + length + 6.0,
        );
    }
    let _ = writeln!(
        out,
        "<line x1=\"{0}\" x2=\"{0}\" y1=\"{HEAD}\" y2=\"{1}\" stroke=\"#333333\" stroke-dasharray=\"3 3\"/>\n</svg>",
        LEFT + ONE,
        height - 12.0
    );
    out
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;")
}
