//! Draws line charts, bar charts and tables as SVG.

use std::ops::Range;
use std::path::Path;

use plotters::coord::Shift;
use plotters::coord::ranged1d::{AsRangedCoord, SegmentValue, ValueFormatter};
use plotters::prelude::*;

use crate::exit::{Exit, Failure, Result};
use crate::{atomic_file, progress, size};

const PANEL: (u32, u32) = (760, 440);
const FONT: &str = "sans-serif";
const TEXT: i32 = 15;
/// Colours that are distinct in print and for the colour-blind (Okabe and Ito).
const COLOURS: [RGBColor; 7] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(86, 180, 233),
    RGBColor(230, 159, 0),
    RGBColor(200, 190, 40),
];

/// Most series with rings around each other: the outermost ring of more would hide its neighbours.
const RINGS_MAX: u32 = 6;

/// The drawing area of a panel.
pub(crate) type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// Name of a file, and the function that draws into it what it measures in a laboratory `L`.
pub(super) type Figure<L> = (&'static str, fn(&mut L, &Path) -> Result<()>);

/// Draws `figures` into `directory`, and returns their paths.
pub(super) fn draw<L>(lab: &mut L, directory: &Path, figures: &[Figure<L>]) -> Result<Vec<String>> {
    let bar = progress::count(figures.len() as u64);
    let mut paths = Vec::with_capacity(figures.len());
    for (name, figure) in figures {
        bar.set_message(*name);
        let path = directory.join(name);
        figure(lab, &path)?;
        paths.push(path.display().to_string());
        bar.inc(1);
    }
    bar.finish_and_clear();
    Ok(paths)
}

/// What fills a panel.
pub(crate) trait Panel {
    /// Draws it.
    fn draw(&self, area: &Area<'_>) -> Result<()>;
}

/// Draws panels, one below the other, into the file at `path`.
pub(crate) fn file(path: &Path, panels: &[&dyn Panel]) -> Result<()> {
    let (width, height) = PANEL;
    let count = panels.len();
    image(path, (width, height * count as u32), |root| {
        root.split_evenly((count, 1)).iter().zip(panels).try_for_each(|(area, panel)| panel.draw(area))
    })
}

/// Scale of an axis.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Scale {
    Linear,
    Log,
}

/// A series of points.
pub(super) struct Series {
    pub(super) name: String,
    pub(super) points: Vec<(f64, f64)>,
    /// Drawn dotted and without marks, for theory.
    pub(super) is_dotted: bool,
}

/// A panel with series over a size in bytes.
pub(super) struct SizeChart {
    pub(super) title: &'static str,
    pub(super) x_label: &'static str,
    pub(super) y_label: &'static str,
    pub(super) y_scale: Scale,
    pub(super) y_range: Range<f64>,
    pub(super) lines: Vec<Series>,
}

/// A panel with bars: for each category a bar of each part, side by side or stacked.
pub(crate) struct Bars {
    pub(crate) title: &'static str,
    pub(crate) x_label: &'static str,
    pub(crate) y_label: &'static str,
    pub(crate) y_top: f64,
    pub(crate) categories: Vec<String>,
    pub(crate) parts: Vec<(&'static str, Vec<f64>)>,
    pub(crate) is_stacked: bool,
}

fn failed(error: impl std::fmt::Display) -> Failure {
    Failure::new(Exit::Failed, format!("cannot draw the figure: {error}"))
}

/// Formats a value with at most four decimals.
fn short(value: &f64) -> String {
    format!("{value:.4}").trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// Draws an image of this extent into the file at `path`, which appears when it is complete.
fn image(path: &Path, extent: (u32, u32), draw: impl FnOnce(&Area<'_>) -> Result<()>) -> Result<()> {
    let mut text = String::new();
    {
        let root = SVGBackend::with_string(&mut text, extent).into_drawing_area();
        root.fill(&WHITE).map_err(failed)?;
        draw(&root)?;
        root.present().map_err(failed)?;
    }
    atomic_file::write(path, text.as_bytes())
}

impl Panel for SizeChart {
    fn draw(&self, area: &Area<'_>) -> Result<()> {
        self.draw_with(area, &|bytes| size::show(bytes.round() as u64))
    }
}

/// A panel with series over numbers that are no bytes.
pub(super) struct OverNumbers(pub(super) SizeChart);

impl Panel for OverNumbers {
    fn draw(&self, area: &Area<'_>) -> Result<()> {
        self.0.draw_with(area, &|number| format!("{number:.0}"))
    }
}

impl SizeChart {
    fn draw_with(&self, area: &Area<'_>, x_text: &dyn Fn(&f64) -> String) -> Result<()> {
        let sizes = || self.lines.iter().flat_map(|line| &line.points).map(|point| point.0);
        let range = sizes().fold(f64::MAX, f64::min)..sizes().fold(f64::MIN, f64::max) * 1.2;
        let x = range.log_scale().base(4.0);
        match self.y_scale {
            Scale::Linear => self.draw_on(area, (x, x_text), self.y_range.clone()),
            Scale::Log => self.draw_on(area, (x, x_text), self.y_range.clone().log_scale()),
        }
    }

    fn draw_on<X, Y>(&self, area: &Area<'_>, (x, x_text): (X, &dyn Fn(&f64) -> String), y: Y) -> Result<()>
    where
        X: AsRangedCoord<Value = f64>,
        Y: AsRangedCoord<Value = f64>,
        X::CoordDescType: ValueFormatter<f64>,
        Y::CoordDescType: ValueFormatter<f64>,
    {
        let mut chart = ChartBuilder::on(area)
            .caption(self.title, (FONT, TEXT + 3))
            .margin(12)
            .x_label_area_size(46)
            .y_label_area_size(64)
            .build_cartesian_2d(x, y)
            .map_err(failed)?;
        chart
            .configure_mesh()
            .light_line_style(TRANSPARENT)
            .bold_line_style(BLACK.mix(0.12))
            .x_desc(self.x_label)
            .y_desc(self.y_label)
            .x_labels(15)
            .x_label_formatter(&x_text)
            .y_label_formatter(&short)
            .label_style((FONT, TEXT - 3))
            .axis_desc_style((FONT, TEXT))
            .draw()
            .map_err(failed)?;
        let solid = self.lines.iter().filter(|line| !line.is_dotted).count() as u32;
        // If each line has a theory, listed in the same order after all lines, both have one colour.
        let has_pairs = self.lines.len() as u32 == 2 * solid && solid > 1;
        for ((line, colour), number) in self.lines.iter().zip(COLOURS.into_iter().cycle()).zip(0_u32..) {
            let points = || line.points.iter().copied();
            let colour = match (line.is_dotted, number.checked_sub(solid).filter(|_| has_pairs)) {
                (false, _) => colour,
                (true, Some(partner)) => COLOURS[partner as usize % COLOURS.len()],
                (true, None) => BLACK,
            };
            // Series can overlap: shrinking rings show all of them, unless there are too many.
            let later = if solid > RINGS_MAX { 0 } else { solid.saturating_sub(number + 1) };
            let mark = if later == 0 { colour.filled() } else { colour.stroke_width(2) };
            if line.is_dotted {
                chart
                    .draw_series(DashedLineSeries::new(points(), 3, 4, colour.stroke_width(1)))
                    .map_err(failed)?
                    .label(&line.name)
                    .legend(move |(x, y)| PathElement::new([(x, y), (x + 22, y)], colour.stroke_width(1)));
            } else {
                chart.draw_series(LineSeries::new(points(), colour.stroke_width(2))).map_err(failed)?;
                chart
                    .draw_series(points().map(|point| Circle::new(point, 3 + 3 * later, mark)))
                    .map_err(failed)?
                    .label(&line.name)
                    .legend(move |(x, y)| PathElement::new([(x, y), (x + 22, y)], colour.stroke_width(3)));
            }
        }
        let place = SeriesLabelPosition::UpperLeft;
        chart
            .configure_series_labels()
            .position(place)
            .background_style(WHITE.mix(0.9))
            .border_style(BLACK.mix(0.3))
            .label_font((FONT, TEXT - 2))
            .draw()
            .map_err(failed)
    }
}

impl Panel for Bars {
    fn draw(&self, area: &Area<'_>) -> Result<()> {
        let count = self.categories.len();
        let mut chart = ChartBuilder::on(area)
            .caption(self.title, (FONT, TEXT + 3))
            .margin(12)
            .x_label_area_size(46)
            .y_label_area_size(64)
            .build_cartesian_2d((0..count - 1).into_segmented(), 0.0..self.y_top)
            .map_err(failed)?;
        chart
            .configure_mesh()
            .disable_x_mesh()
            .light_line_style(TRANSPARENT)
            .bold_line_style(BLACK.mix(0.12))
            .x_desc(self.x_label)
            .y_desc(self.y_label)
            .x_labels(count)
            .x_label_formatter(&|segment| match segment {
                SegmentValue::CenterOf(index) => self.categories.get(*index).cloned().unwrap_or_default(),
                _ => String::new(),
            })
            .y_label_formatter(&short)
            .label_style((FONT, TEXT - 3))
            .axis_desc_style((FONT, TEXT))
            .draw()
            .map_err(failed)?;
        let slot = (PANEL.0 - 64 - 24) / count as u32;
        let parts = if self.is_stacked { 1 } else { self.parts.len() as u32 };
        let (gap, width) = (slot / 6, (slot - slot / 3) / parts);
        let mut floor = vec![0.0; count];
        for ((number, (name, values)), colour) in (0..).zip(&self.parts).zip(COLOURS) {
            let place = if self.is_stacked { 0 } else { number };
            let (left, right) = (gap + place * width, gap + (parts - 1 - place) * width);
            let bars: Vec<_> = values
                .iter()
                .enumerate()
                .map(|(index, value)| {
                    let ends = [
                        (SegmentValue::Exact(index), floor[index]),
                        (SegmentValue::Exact(index + 1), floor[index] + value),
                    ];
                    let mut bar = Rectangle::new(ends, colour.filled());
                    bar.set_margin(0, 0, left, right);
                    bar
                })
                .collect();
            chart
                .draw_series(bars)
                .map_err(failed)?
                .label(*name)
                .legend(move |(x, y)| Rectangle::new([(x, y - 5), (x + 14, y + 5)], colour.filled()));
            if self.is_stacked {
                floor.iter_mut().zip(values).for_each(|(floor, value)| *floor += value);
            }
        }
        chart
            .configure_series_labels()
            .position(SeriesLabelPosition::UpperRight)
            .background_style(WHITE.mix(0.9))
            .border_style(BLACK.mix(0.3))
            .label_font((FONT, TEXT - 2))
            .draw()
            .map_err(failed)
    }
}

/// Height of a row of a table, in pixels.
const LINE: i32 = 24;

/// Draws a table with columns of `width` pixels into the file at `path`.
pub(super) fn table(path: &Path, title: &str, width: i32, rows: &[Vec<String>]) -> Result<()> {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0) as i32;
    let extent = (columns * width + 40, (rows.len() as i32 + 2) * LINE + 24);
    image(path, (extent.0 as u32, extent.1 as u32), |root| {
        let text = |text: &str, at: (i32, i32), height: i32| {
            root.draw(&Text::new(text.to_owned(), at, (FONT, height))).map_err(failed)
        };
        text(title, (20, 14), TEXT + 3)?;
        for (row, y) in rows.iter().zip((LINE * 2..).step_by(LINE as usize)) {
            for (cell, x) in row.iter().zip((20..).step_by(width as usize)) {
                text(cell, (x, y), TEXT)?;
            }
            let rule = PathElement::new([(20, y + LINE - 5), (extent.0 - 20, y + LINE - 5)], BLACK.mix(0.15));
            root.draw(&rule).map_err(failed)?;
        }
        Ok(())
    })
}
