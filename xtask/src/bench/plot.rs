//! Plots as SVG: bars for single values, lines for series ("name@x").
//!
//! A plot for every unit of an experiment's single values, and one for every series' name; scales
//! are logarithmic, because what is compared differs by factors.

use super::results::{Results, is_rate, times};
use super::{Result, report};
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use std::path::Path;

pub struct Plot {
    /// Empty: of several.
    pub experiment: String,
    pub pinned: bool,
    pub title: String,
    /// Beside the report.
    pub file: String,
}

/// Of peers, in their order: distinct in print, too, and for those who see few colours.
const COLOURS: &[RGBColor] = &[
    RGBColor(90, 90, 90),
    RGBColor(170, 170, 170),
    RGBColor(86, 180, 233),
    RGBColor(230, 159, 0),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(0, 114, 178),
    RGBColor(240, 200, 66),
];

fn colour(peer: usize) -> RGBColor {
    COLOURS[peer % COLOURS.len()]
}

/// A peer's place in the results, with its points.
type Series = (usize, Vec<(f64, f64)>);

pub fn all(r: &Results, out: &Path) -> Result<Vec<Plot>> {
    let mut plots = across(r, out)?;
    for (experiment, pinned) in report::parts(r) {
        let lines = report::lines(r, &experiment, pinned);
        let mut done: Vec<&str> = Vec::new();
        for (line, unit) in lines.iter().filter(|(_, u)| !u.is_empty()) {
            let base = line.split_once('@').map(|(b, _)| b);
            let key = base.unwrap_or(unit.as_str());
            if done.contains(&key) {
                continue;
            }
            done.push(key);
            let cpus = if pinned { ", on one CPU" } else { "" };
            let title = match base {
                Some(b) => format!("{experiment}: {b}{cpus}"),
                None => format!("{experiment}{cpus}"),
            };
            let file = file_name(&experiment, pinned, key);
            let path = out.join(&file);
            let drawn = match base {
                Some(b) => {
                    let series = series(r, &experiment, pinned, b, &lines);
                    curves(&path, &title, unit, axis(b, &experiment), r, &series)
                }
                None => {
                    let names: Vec<&str> = lines
                        .iter()
                        .filter(|(l, u)| u == unit && !l.contains('@'))
                        .map(|(l, _)| l.as_str())
                        .collect();
                    let values = names
                        .iter()
                        .map(|l| {
                            r.peers
                                .iter()
                                .map(|p| r.median(&experiment, pinned, &p.name, l))
                                .collect()
                        })
                        .collect::<Vec<Vec<_>>>();
                    bars(&path, &title, unit, r, &names, &values)
                }
            };
            if drawn.map_err(|e| format!("{}: {e}", path.display()))? {
                plots.push(Plot {
                    experiment: experiment.clone(),
                    pinned,
                    title,
                    file,
                });
            }
        }
    }
    Ok(plots)
}

/// What several experiments have in common: an experiment, its line, and what the plot calls it.
const PLACES: &[(&str, &str, &str)] = &[
    ("files-root", "open+close", "root"),
    ("files-bind", "open+close", "bind mount of a host tmpfs"),
    ("files-inner", "open+close", "tmpfs inside"),
];
const IMPORTS: &[(&str, &str, &str)] = &[
    ("imports-root", "all nine", "root"),
    ("imports-bind", "all nine", "bind mount of a host tmpfs"),
    ("imports-inner", "all nine", "tmpfs inside"),
];

/// The plots that compare experiments.
fn across(r: &Results, out: &Path) -> Result<Vec<Plot>> {
    let mut plots = Vec::new();
    let mut draw =
        |file: &str, title: &str, unit: &str, names: &[&str], values: &[Vec<Option<f64>>]| {
            let path = out.join(file);
            if bars(&path, title, unit, r, names, values)
                .map_err(|e| format!("{}: {e}", path.display()))?
            {
                let (title, file) = (title.to_owned(), file.to_owned());
                plots.push(Plot {
                    experiment: String::new(),
                    pinned: false,
                    title,
                    file,
                });
            }
            Ok::<(), String>(())
        };
    let both = [
        (PLACES, "open-by-place.svg", "open+close, by place", "ns"),
        (
            IMPORTS,
            "imports-by-place.svg",
            "Python imports of nine modules, by place",
            "ms",
        ),
    ];
    for (parts, file, title, unit) in both {
        let median = |e: &str, l: &str| {
            r.peers
                .iter()
                .map(|p| r.median(e, false, &p.name, l))
                .collect()
        };
        let names: Vec<&str> = parts.iter().map(|p| p.2).collect();
        let values: Vec<Vec<Option<f64>>> = parts.iter().map(|p| median(p.0, p.1)).collect();
        draw(file, title, unit, &names, &values)?;
    }
    let apps: Vec<_> = r
        .rows
        .iter()
        .filter(|x| x.peer == "native" && x.experiment.starts_with("app-") && !x.values.is_empty())
        .collect();
    let names: Vec<&str> = apps.iter().map(|x| x.line.as_str()).collect();
    let ratio = |native: &super::results::Row, peer: &str| {
        let other = r.median(&native.experiment, false, peer, &native.line)?;
        Some(times(other, native.median()?, &native.unit))
    };
    let values: Vec<Vec<Option<f64>>> = apps
        .iter()
        .map(|x| r.peers.iter().map(|p| ratio(x, &p.name)).collect())
        .collect();
    draw(
        "applications.svg",
        "Whole applications, beside native runs",
        "times native",
        &names,
        &values,
    )?;
    Ok(plots)
}

pub fn file_name(experiment: &str, pinned: bool, key: &str) -> String {
    let plain: String = key
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() { c } else { '-' })
        .collect();
    let cpus = if pinned { "-one-cpu" } else { "" };
    format!("{experiment}{cpus}-{plain}.svg").replace("--", "-")
}

/// What the numbers after the "@" are.
fn axis(base: &str, experiment: &str) -> &'static str {
    match experiment {
        "rate" => "threads",
        "mmap-counts" => "mappings",
        _ if base.starts_with("read") || base.starts_with("write") => "bytes of a call",
        _ => "bytes",
    }
}

fn series(
    r: &Results,
    experiment: &str,
    pinned: bool,
    base: &str,
    lines: &[(String, String)],
) -> Vec<Series> {
    let at: Vec<(f64, &str)> = lines
        .iter()
        .filter_map(|(l, _)| {
            let (b, x) = l.split_once('@')?;
            if b == base {
                Some((x.parse().ok()?, l.as_str()))
            } else {
                None
            }
        })
        .collect();
    let points = |peer: &str| {
        let mut p: Vec<(f64, f64)> = at
            .iter()
            .filter_map(|&(x, l)| {
                Some((
                    x,
                    r.median(experiment, pinned, peer, l).filter(|v| *v > 0.0)?,
                ))
            })
            .collect();
        p.sort_by(|a, b| a.0.total_cmp(&b.0));
        p
    };
    let all = r
        .peers
        .iter()
        .enumerate()
        .map(|(i, p)| (i, points(&p.name)));
    all.filter(|(_, p)| !p.is_empty()).collect()
}

/// The least and the most, a little apart.
fn range(values: impl Iterator<Item = f64> + Clone, room: f64) -> std::ops::Range<f64> {
    let least = values.clone().fold(f64::INFINITY, f64::min);
    let most = values.fold(f64::NEG_INFINITY, f64::max);
    least / room..most * room
}

type Drawn = std::result::Result<bool, Box<dyn std::error::Error>>;

fn curves(
    path: &Path,
    title: &str,
    unit: &str,
    x_name: &str,
    r: &Results,
    series: &[Series],
) -> Drawn {
    if series.is_empty() {
        return Ok(false);
    }
    let points = series.iter().flat_map(|(_, p)| p.iter());
    let xs = range(points.clone().map(|p| p.0), 1.1);
    let ys = range(points.map(|p| p.1), 1.6);
    let root = SVGBackend::new(path, (760, 440)).into_drawing_area();
    root.fill(&WHITE)?;
    head(
        &root,
        title,
        r,
        &series.iter().map(|s| s.0).collect::<Vec<_>>(),
    )?;
    let mut chart = ChartBuilder::on(&root)
        .margin(10)
        .margin_top(HEAD)
        .margin_right(24)
        .x_label_area_size(44)
        .y_label_area_size(72)
        .build_cartesian_2d(xs.log_scale(), ys.log_scale())?;
    chart
        .configure_mesh()
        .light_line_style(WHITE)
        .bold_line_style(BLACK.mix(0.12))
        .x_desc(x_name)
        .y_desc(unit)
        .x_label_formatter(&|x| short(*x))
        .y_label_formatter(&|y| short(*y))
        .label_style(("sans-serif", 13))
        .draw()?;
    for (peer, points) in series {
        let c = colour(*peer);
        chart.draw_series(LineSeries::new(points.iter().copied(), c.stroke_width(2)))?;
        chart.draw_series(points.iter().map(|&p| Circle::new(p, 3, c.filled())))?;
    }
    root.present()?;
    Ok(true)
}

/// The title, and below it the peers' colours: within the plot, they would hide values. What it
/// needs at the top.
fn head<DB: DrawingBackend>(
    root: &DrawingArea<DB, plotters::coord::Shift>,
    title: &str,
    r: &Results,
    peers: &[usize],
) -> std::result::Result<(), Box<dyn std::error::Error>>
where
    DB::ErrorType: 'static,
{
    root.draw_text(title, &("sans-serif", 18).into_text_style(root), (12, 10))?;
    let style = ("sans-serif", 13).into_text_style(root);
    let mut x = 14;
    for &peer in peers {
        let name = &r.peers[peer].name;
        root.draw(&Rectangle::new(
            [(x, 38), (x + 14, 48)],
            colour(peer).filled(),
        ))?;
        root.draw_text(name, &style, (x + 19, 37))?;
        x += 44 + 7 * i32::try_from(name.chars().count()).unwrap_or(0);
    }
    Ok(())
}

/// The height of `head`.
const HEAD: u32 = 60;
const BAR: u32 = 13;
const LEFT: u32 = 230;

/// Horizontal bars, grouped by line: names are long. `values` are by line, then by peer.
fn bars(
    path: &Path,
    title: &str,
    unit: &str,
    r: &Results,
    names: &[&str],
    values: &[Vec<Option<f64>>],
) -> Drawn {
    let known = |v: &&f64| **v > 0.0;
    let all = values.iter().flatten().flatten().filter(known).copied();
    if all.clone().next().is_none() {
        return Ok(false);
    }
    let shown: Vec<usize> = (0..r.peers.len())
        .filter(|&p| values.iter().any(|v| v[p].is_some()))
        .collect();
    let group = shown.len() as f64 + 1.0;
    let wide = 860;
    let tall = HEAD + 60 + (group * names.len() as f64) as u32 * BAR;
    let xs = range(all, 2.0);
    let floor = xs.start;
    let root = SVGBackend::new(path, (wide, tall)).into_drawing_area();
    root.fill(&WHITE)?;
    head(&root, title, r, &shown)?;
    let total = group * names.len() as f64;
    let mut chart = ChartBuilder::on(&root)
        .margin(8)
        .margin_top(HEAD)
        .margin_right(24)
        .x_label_area_size(40)
        .y_label_area_size(LEFT)
        .build_cartesian_2d(xs.log_scale(), 0.0..total)?;
    let better = if is_rate(unit) {
        "more is better"
    } else {
        "less is better"
    };
    chart
        .configure_mesh()
        .disable_y_mesh()
        .y_labels(0)
        .light_line_style(WHITE)
        .bold_line_style(BLACK.mix(0.12))
        .x_desc(format!("{unit} ({better})"))
        .x_label_formatter(&|x| short(*x))
        .label_style(("sans-serif", 13))
        .draw()?;
    let right = Pos::new(HPos::Right, VPos::Center);
    let left = Pos::new(HPos::Left, VPos::Center);
    let name_style = ("sans-serif", 13).into_text_style(&root).pos(right);
    let value_style = ("sans-serif", 10).into_text_style(&root).pos(left);
    // From the top.
    for (line, name) in names.iter().enumerate() {
        let top = total - group * line as f64;
        let middle = chart.backend_coord(&(floor, top - group / 2.0));
        root.draw_text(name, &name_style, (middle.0 - 8, middle.1))?;
    }
    for (place, &peer) in shown.iter().enumerate() {
        let c = colour(peer);
        let bar = |(line, v): (usize, &Vec<Option<f64>>)| {
            let v = v[peer].filter(|v| *v > 0.0)?;
            let top = total - group * line as f64 - 0.5 - place as f64;
            Some((v, top))
        };
        let all: Vec<(f64, f64)> = values.iter().enumerate().filter_map(bar).collect();
        chart.draw_series(
            all.iter()
                .map(|&(v, top)| Rectangle::new([(floor, top - 0.9), (v, top)], c.filled())),
        )?;
        for (v, top) in all {
            let at = chart.backend_coord(&(v, top - 0.45));
            root.draw_text(&report::number(v), &value_style, (at.0 + 3, at.1))?;
        }
    }
    root.present()?;
    Ok(true)
}

fn short(x: f64) -> String {
    match x {
        x if x >= 1e9 => format!("{}G", report::number(x / 1e9)),
        x if x >= 1e6 => format!("{}M", report::number(x / 1e6)),
        x if x >= 1e4 => format!("{}k", report::number(x / 1e3)),
        x => report::number(x),
    }
}
