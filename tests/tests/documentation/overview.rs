//! Draws `docs/overview.svg` from `docs/overview.txt`: layers of boxes, and beside each layer the steps of a collective.

use std::fmt::Write as _;

const WIDTH: usize = 1000;
/// Width of the layers; the steps are right of it.
const STACK: usize = 600;
const MARGIN: usize = 14;
const GAP: usize = 14;
const LINE: usize = 15;
/// Widest average of a letter of the small text.
const LETTER: usize = 6;

/// A box of a layer.
struct Part<'t> {
    name: &'t str,
    text: &'t str,
    /// Whether a network leads to the next box.
    is_linked: bool,
}

struct Layer<'t> {
    parts: Vec<Part<'t>>,
    steps: Vec<&'t str>,
}

fn layers(text: &str) -> Vec<Layer<'_>> {
    let mut layers: Vec<(&str, Layer<'_>)> = Vec::new();
    for line in text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        if let Some((name, parts)) = line.split_once(" = ") {
            let parts = parts.split('|').map(|part| {
                let (name, text) = part.split_once(": ").unwrap_or_else(|| panic!("{part:?} has no text"));
                let text = text.trim();
                let linked = text.strip_suffix('>');
                Part { name: name.trim(), text: linked.unwrap_or(text).trim(), is_linked: linked.is_some() }
            });
            layers.push((name, Layer { parts: parts.collect(), steps: Vec::new() }));
        } else {
            let (name, step) = line.split_once(" < ").unwrap_or_else(|| panic!("{line:?} is no layer and no step"));
            let layer = layers.iter_mut().find(|(one, _)| *one == name).unwrap_or_else(|| panic!("no layer {name}"));
            layer.1.steps.push(step);
        }
    }
    layers.into_iter().map(|(_, layer)| layer).collect()
}

/// Lines of at most `width` pixels.
fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let last = lines.last_mut().expect("never empty");
        if !last.is_empty() && (last.len() + 1 + word.len()) * LETTER > width {
            lines.push(word.to_owned());
        } else {
            *last += if last.is_empty() { "" } else { " " };
            *last += word;
        }
    }
    lines
}

/// Draws the picture.
pub(crate) fn draw(text: &str) -> String {
    let mut body = String::new();
    let mut y = MARGIN;
    for (index, layer) in layers(text).iter().enumerate() {
        let count = layer.parts.len();
        let between = if layer.parts.iter().any(|part| part.is_linked) { 2 * GAP } else { GAP };
        let width = (STACK - 2 * MARGIN - (count - 1) * between) / count;
        let texts: Vec<Vec<String>> = layer.parts.iter().map(|part| wrap(part.text, width - 2 * GAP)).collect();
        let steps: Vec<Vec<String>> = layer.steps.iter().map(|step| wrap(step, WIDTH - STACK - 2 * MARGIN)).collect();
        let lines = texts.iter().map(Vec::len).max().unwrap_or(0) + 1;
        let height = (lines * LINE + GAP).max(steps.iter().map(Vec::len).sum::<usize>() * LINE + GAP);
        if index > 0 {
            let (x, top) = (STACK / 2, y - 2 * GAP);
            let _ = writeln!(
                body,
                r##"<path d="M{x} {top}V{y}" stroke="#24292f" stroke-width="1.5" marker-start="url(#head)" marker-end="url(#head)"/>"##
            );
        }
        for (column, (part, text)) in layer.parts.iter().zip(&texts).enumerate() {
            let x = MARGIN + column * (width + between);
            let _ = writeln!(
                body,
                r##"<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="5" fill="#f6f8fa" stroke="#6e7781"/>"##
            );
            write_text(
                &mut body,
                x + GAP,
                y + LINE + 3,
                "font-size=\"13\" font-weight=\"bold\" fill=\"#0a3069\"",
                part.name,
            );
            for (line, text) in text.iter().enumerate() {
                write_text(&mut body, x + GAP, y + (line + 2) * LINE + 3, "font-size=\"11\" fill=\"#424a53\"", text);
            }
            if part.is_linked {
                let (from, to, middle) = (x + width, x + width + between, y + height / 2);
                let _ = writeln!(body, r##"<path d="M{from} {middle}H{to}" stroke="#bf3989" stroke-width="4"/>"##);
            }
        }
        for (line, text) in steps.iter().flatten().enumerate() {
            write_text(&mut body, STACK + MARGIN, y + (line + 1) * LINE + 3, "font-size=\"12\" fill=\"#24292f\"", text);
        }
        y += height + 2 * GAP;
    }
    let height = y - 2 * GAP + MARGIN;
    format!(
        r##"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" font-family="Helvetica, Arial, 'DejaVu Sans', sans-serif">
<defs><marker id="head" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="8" markerHeight="8" orient="auto-start-reverse"><path d="M0 0L10 5L0 10z" fill="#24292f"/></marker></defs>
<rect width="{WIDTH}" height="{height}" rx="8" fill="#ffffff"/>
{body}</svg>
"##
    )
}

fn write_text(body: &mut String, x: usize, y: usize, style: &str, text: &str) {
    let text = text.replace('&', "&amp;").replace('<', "&lt;");
    let _ = writeln!(body, r#"<text x="{x}" y="{y}" {style}>{text}</text>"#);
}
