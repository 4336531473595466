//! A prediction as a picture, in SVG: a lane for each rank, time across, messages as arrows.

use std::fmt::Write;

use rustc_hash::FxHashMap;

use super::predict::{Bytes, Model, Moment, watch};
use super::{Action, Port, Schedule};

/// Text above and below the lanes.
#[derive(Clone, Copy, Debug)]
pub struct Labels<'a> {
    /// The title.
    pub title: &'a str,
    /// The model and its parameters.
    pub subtitle: &'a str,
    /// The unit of time.
    pub unit: &'a str,
}

/// Width of the picture, and its margins at the left and the top, in units of the picture.
const WIDTH: f64 = 1000.0;
const LEFT: f64 = 70.0;
const TOP: f64 = 84.0;

/// Draws the schedules of `size` ranks, where `of(rank)` is that of a rank.
///
/// # Errors
/// The rank and the step at which the prediction stops, if the ranks wait for each other forever.
pub fn svg<M: Model>(
    labels: Labels<'_>,
    size: u32,
    of: impl FnMut(u32) -> Schedule,
    bytes: Bytes<'_>,
    model: &M,
) -> Result<String, (u32, u32)> {
    let schedules: Vec<Schedule> = (0..size).map(of).collect();
    let mut moments = Vec::new();
    let time = watch(size, |rank| schedules[rank as usize].clone(), bytes, model, |m| moments.push(m))?.time;
    let last = moments.iter().map(|m| m.end).fold(time, f64::max);
    let scale = Scale { time: if last > 0.0 { last } else { 1.0 }, lane: (640.0 / f64::from(size)).clamp(10.0, 34.0) };
    let mut text = String::new();
    // Writing to a string cannot fail.
    let _ = draw(&mut text, labels, &schedules, &moments, time, scale);
    Ok(text)
}

#[derive(Clone, Copy)]
struct Scale {
    time: f64,
    lane: f64,
}

impl Scale {
    fn x(self, time: f64) -> f64 {
        LEFT + time / self.time * (WIDTH - LEFT - 30.0)
    }

    fn y(self, rank: u32) -> f64 {
        TOP + (f64::from(rank) + 0.5) * self.lane
    }

    /// The tick marks of the time axis: about ten round numbers.
    fn ticks(self) -> impl Iterator<Item = f64> {
        let power = 10f64.powf((self.time / 10.0).log10().floor());
        let factors = [1.0, 2.0, 5.0, 10.0];
        let step = power * factors.into_iter().find(|f| self.time / (power * f) <= 10.0).unwrap_or(10.0);
        (0..).map(move |i| f64::from(i) * step).take_while(move |t| *t <= self.time * 1.000_001)
    }
}

fn draw(
    out: &mut String,
    labels: Labels<'_>,
    schedules: &[Schedule],
    moments: &[Moment],
    time: f64,
    scale: Scale,
) -> std::fmt::Result {
    let size = schedules.len() as u32;
    let bottom = TOP + f64::from(size) * scale.lane;
    let height = bottom + 46.0;
    writeln!(
        out,
        r##"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:.0}" width="{WIDTH}" height="{height:.0}" font-family="sans-serif" font-size="12">
<style>.send{{fill:#2f6fb5}}.receive{{fill:#3a9a5c}}.reduce{{fill:#d98324}}.message,.signal{{stroke:#444;stroke-width:1;marker-end:url(#head)}}.signal{{stroke-dasharray:4 3}}.grid{{stroke:#ddd}}.lane{{stroke:#bbb}}</style>
<defs><marker id="head" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="7" markerHeight="7" orient="auto"><path d="M0 0L8 4L0 8z" fill="#444"/></marker></defs>
<rect width="100%" height="100%" fill="white"/>
<text x="{LEFT}" y="24" font-size="17" font-weight="bold">{}</text>
<text x="{LEFT}" y="44" fill="#555">{}</text>"##,
        escaped(labels.title),
        escaped(labels.subtitle)
    )?;
    let mut x = LEFT;
    for (class, name) in [("send", "send"), ("receive", "receive"), ("reduce", "reduce")] {
        writeln!(
            out,
            r#"<rect class="{class}" x="{x}" y="56" width="14" height="10"/><text x="{}" y="65">{name}</text>"#,
            x + 19.0
        )?;
        x += 85.0;
    }
    for (class, name) in [("message", "message"), ("signal", "signal")] {
        writeln!(
            out,
            r#"<line class="{class}" x1="{x}" y1="61" x2="{}" y2="61"/><text x="{}" y="65">{name}</text>"#,
            x + 26.0,
            x + 32.0
        )?;
        x += 105.0;
    }
    for t in scale.ticks() {
        let x = scale.x(t);
        writeln!(
            out,
            r#"<line class="grid" x1="{x:.1}" y1="{TOP}" x2="{x:.1}" y2="{bottom}"/><text x="{x:.1}" y="{}" text-anchor="middle">{}</text>"#,
            bottom + 16.0,
            rounded(t)
        )?;
    }
    writeln!(
        out,
        r#"<text x="{}" y="{}" text-anchor="middle">time in {}; the last rank is done at {}</text>"#,
        (LEFT + WIDTH) / 2.0,
        bottom + 36.0,
        escaped(labels.unit),
        rounded(time)
    )?;
    let every = (12.0 / scale.lane).ceil() as usize;
    for rank in 0..size {
        let y = scale.y(rank);
        writeln!(out, r#"<line class="lane" x1="{LEFT}" y1="{y:.1}" x2="{}" y2="{y:.1}"/>"#, WIDTH - 30.0)?;
        if (rank as usize).is_multiple_of(every) {
            let name = if rank == 0 { "rank 0".to_owned() } else { rank.to_string() };
            writeln!(out, r#"<text x="{}" y="{:.1}" text-anchor="end">{name}</text>"#, LEFT - 8.0, y + 4.0)?;
        }
    }
    let bar = (scale.lane * 0.36).min(10.0);
    for m in moments.iter().filter(|m| m.end > m.start) {
        let class = match schedules[m.rank as usize].step(m.step as usize).action.message(m.rank) {
            _ if m.reduces => "reduce",
            Some((Port::Out, _)) => "send",
            _ => "receive",
        };
        let (x, y, width) = (scale.x(m.start), scale.y(m.rank) - bar / 2.0, scale.x(m.end) - scale.x(m.start));
        writeln!(
            out,
            r#"<rect class="{class}" x="{x:.1}" y="{y:.1}" width="{:.1}" height="{bar:.1}"/>"#,
            (width - 0.5).max(0.5)
        )?;
    }
    let mut sends = FxHashMap::default();
    for m in moments.iter().filter(|m| !m.reduces) {
        let action = schedules[m.rank as usize].step(m.step as usize).action;
        let Some((port, key)) = action.message(m.rank) else { continue };
        if port == Port::Out {
            sends.insert(key, *m);
            continue;
        }
        let Some(send) = sends.get(&key) else { continue };
        // If a message arrives before its send has ended, its arrow begins where the send starts.
        let from = if m.start > send.end { send.end } else { send.start };
        let class = if matches!(action, Action::Await { .. }) { "signal" } else { "message" };
        writeln!(
            out,
            r#"<line class="{class}" x1="{:.1}" y1="{:.1}" x2="{:.1}" y2="{:.1}"/>"#,
            scale.x(from),
            scale.y(send.rank),
            scale.x(m.start),
            scale.y(m.rank)
        )?;
    }
    writeln!(out, "</svg>")
}

/// A number with at most four digits after the point.
fn rounded(number: f64) -> f64 {
    (number * 1e4).round() / 1e4
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
