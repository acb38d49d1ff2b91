//! Draws `docs/architecture.svg` from `docs/architecture.md`.
//!
//! A crate is a box of its rooms, in layers: a room uses only rooms of its crate that are below it. An arrow between crates
//! stands for all arrows between their rooms; an arrow that other arrows already imply is left out.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use crate::page::{Crate, Page, Room};

const WIDTH: u32 = 1000;
const MARGIN: u32 = 14;
/// Between crates, for arrows.
const GAP: u32 = 48;
/// Between the rooms of a crate, and around them.
const ROOM_GAP: u32 = 8;
/// Widest box of a crate without neighbours, and narrowest room.
const ROOM_WIDTH: u32 = 132;
const CRATE_HEAD: u32 = 30;
const ROOM_HEAD: u32 = 22;
const LINE: u32 = 14;
/// Widest average of a letter of the small text.
const LETTER: u32 = 6;

/// A rectangle.
#[derive(Debug, Clone, Copy)]
struct Area {
    x: u32,
    y: u32,
    width: u32,
    height: u32,
}

/// Draws the picture.
pub(crate) fn draw(page: &Page) -> String {
    let mut body = String::new();
    let mut areas: BTreeMap<&str, Area> = BTreeMap::new();
    let mut y = MARGIN;
    for row in &page.arrangement {
        let columns = row.len() as u32;
        let width = (WIDTH - 2 * MARGIN - (columns - 1) * GAP) / columns;
        let heights = row.iter().map(|stack| stack_height(page, stack, width));
        let height = heights.max().unwrap_or(0);
        for (column, stack) in (0..).zip(row) {
            let x = MARGIN + column * (width + GAP);
            let spare = height - stack_height(page, stack, width);
            let mut top = y;
            for (index, one) in stack.iter().enumerate() {
                // The last of a column reaches down to the end of the row.
                let last = index + 1 == stack.len();
                let height = crate_height(page, one, width) + if last { spare } else { 0 };
                let area = Area { x, y: top, width, height };
                draw_crate(&mut body, page, one, area);
                areas.insert(&one.name, area);
                top += height + GAP / 2;
            }
        }
        y += height + GAP;
    }
    for (from, to) in arrows(page) {
        draw_arrow(&mut body, &from, areas[from.as_str()], &to, areas[to.as_str()]);
    }
    let height = y - GAP + MARGIN;
    format!(
        r##"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" font-family="Helvetica, Arial, 'DejaVu Sans', sans-serif">
<defs><marker id="head" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="9" markerHeight="9" orient="auto"><path d="M0 0L10 5L0 10z" fill="#24292f"/></marker></defs>
<rect width="{WIDTH}" height="{height}" rx="8" fill="#ffffff"/>
{body}</svg>
"##
    )
}

/// The rooms of a crate by layers, the highest first: those that no room of the crate uses.
fn layers<'a>(page: &'a Page, one: &'a Crate) -> Vec<Vec<&'a Room>> {
    let rooms: Vec<&Room> = page.rooms_in(&one.folder).collect();
    let mut layers = Vec::new();
    let mut left = rooms;
    while !left.is_empty() {
        let (layer, rest): (Vec<&Room>, _) =
            left.iter().partition(|room| !left.iter().any(|other| other.uses.contains(&room.name)));
        assert!(!layer.is_empty(), "rooms of {} use each other in a circle: {left:?}", one.name);
        layers.push(layer);
        left = rest;
    }
    layers
}

/// The rows in which the rooms of a crate are drawn: layers, broken where they are wider than the crate.
fn rows<'a>(page: &'a Page, one: &'a Crate, width: u32) -> Vec<Vec<&'a Room>> {
    let most = ((width - ROOM_GAP) / (ROOM_WIDTH + ROOM_GAP)).max(1) as usize;
    let even = |layer: &Vec<&'a Room>| layer.len().div_ceil(layer.len().div_ceil(most));
    layers(page, one)
        .iter()
        .flat_map(|layer| layer.chunks(even(layer)).map(<[_]>::to_vec).collect::<Vec<_>>())
        .collect()
}

fn row_height(row: &[&Room], width: u32) -> u32 {
    let width = room_width(row.len(), width);
    let lines = row.iter().map(|room| wrap(&room.holds, width).len()).max().unwrap_or(0);
    ROOM_HEAD + LINE * lines as u32 + 6
}

fn room_width(count: usize, width: u32) -> u32 {
    (width - ROOM_GAP * (count as u32 + 1)) / count as u32
}

fn crate_height(page: &Page, one: &Crate, width: u32) -> u32 {
    let rows = rows(page, one, width);
    CRATE_HEAD + rows.iter().map(|row| row_height(row, width) + ROOM_GAP).sum::<u32>()
}

fn stack_height(page: &Page, stack: &[Crate], width: u32) -> u32 {
    let heights = stack.iter().map(|one| crate_height(page, one, width));
    heights.sum::<u32>() + GAP / 2 * (stack.len() as u32 - 1)
}

fn draw_crate(body: &mut String, page: &Page, one: &Crate, area: Area) {
    let Area { x, y, width, height } = area;
    let folder = one.folder.display();
    let _ = writeln!(
        body,
        r##"<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="7" fill="#f6f8fa" stroke="#57606a"/>
<text x="{}" y="{}" font-size="15" font-weight="bold" fill="#1f2328">{}</text>
<text x="{}" y="{}" font-size="12" fill="#57606a" text-anchor="end">{folder}</text>"##,
        x + 10,
        y + 21,
        one.name,
        x + width - 10,
        y + 21,
    );
    let rows = rows(page, one, width);
    // Room to spare goes to the rooms.
    let needed = crate_height(page, one, width);
    let spare = (height - needed) / rows.len().max(1) as u32;
    let mut top = y + CRATE_HEAD;
    for row in rows {
        let height = row_height(&row, width) + spare;
        let width = room_width(row.len(), width);
        for (column, room) in (0..).zip(&row) {
            let area = Area { x: x + ROOM_GAP + column * (width + ROOM_GAP), y: top, width, height };
            draw_room(body, room, page.steps.get(&room.name).map_or(&[][..], Vec::as_slice), area);
        }
        top += height + ROOM_GAP;
    }
}

fn draw_room(body: &mut String, room: &Room, steps: &[String], area: Area) {
    let Area { x, y, width, height } = area;
    let _ = writeln!(
        body,
        r##"<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="4" fill="#ffffff" stroke="#afb8c1"/>
<text x="{}" y="{}" font-size="13" font-weight="bold" fill="#0a3069">{}</text>"##,
        x + 8,
        y + 17,
        room.name,
    );
    for (place, step) in (0..).zip(steps.iter().rev()) {
        let (x, y) = (x + width - 13 - 20 * place, y + 13);
        let _ = writeln!(
            body,
            r##"<circle cx="{x}" cy="{y}" r="8.5" fill="#bf3989"/><text x="{x}" y="{}" font-size="10.5" font-weight="bold" fill="#ffffff" text-anchor="middle">{step}</text>"##,
            y + 4,
        );
    }
    for (line, text) in (0..).zip(wrap(&room.holds, width)) {
        let y = y + ROOM_HEAD + 11 + LINE * line;
        let _ = writeln!(body, r##"<text x="{}" y="{y}" font-size="11" fill="#424a53">{text}</text>"##, x + 8);
    }
}

/// Breaks a text into lines that fit into a room of this width.
fn wrap(text: &str, width: u32) -> Vec<String> {
    let most = ((width - 14) / LETTER) as usize;
    let mut lines: Vec<String> = Vec::new();
    for word in text.replace('`', "").split(' ') {
        match lines.last_mut() {
            Some(line) if line.len() + 1 + word.len() <= most => *line = format!("{line} {word}"),
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

/// Arrows between crates that no other arrows imply.
fn arrows(page: &Page) -> BTreeSet<(String, String)> {
    let names: BTreeSet<&str> = page.crates().map(|one| one.name.as_str()).collect();
    let mut uses: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for one in page.crates() {
        let to = page.rooms_in(&one.folder).flat_map(|room| &room.uses).map(String::as_str);
        uses.insert(&one.name, to.filter(|to| names.contains(to)).collect());
    }
    let reaches = |from: &str, to: &str| {
        let mut seen = BTreeSet::new();
        let mut next = vec![from];
        while let Some(at) = next.pop() {
            next.extend(uses.get(at).into_iter().flatten().copied().filter(|one| seen.insert(*one)));
        }
        seen.contains(to)
    };
    let mut arrows = BTreeSet::new();
    for (from, all) in &uses {
        for to in all {
            if !all.iter().any(|other| other != to && reaches(other, to)) {
                arrows.insert(((*from).to_owned(), (*to).to_owned()));
            }
        }
    }
    arrows
}

/// Draws an arrow straight down or straight to the side.
fn draw_arrow(body: &mut String, from: &str, a: Area, to: &str, b: Area) {
    let middle = |start: u32, length: u32, other: u32, other_length: u32| {
        let (low, high) = (start.max(other), (start + length).min(other + other_length));
        (low < high).then(|| (low + high) / 2)
    };
    let across = middle(a.x, a.width, b.x, b.width);
    let beside = middle(a.y, a.height, b.y, b.height);
    let (x1, y1, x2, y2) = match (across, beside) {
        (Some(x), _) if a.y + a.height < b.y => (x, a.y + a.height, x, b.y),
        (_, Some(y)) if a.x + a.width < b.x => (a.x + a.width, y, b.x, y),
        (_, Some(y)) if b.x + b.width < a.x => (a.x, y, b.x + b.width, y),
        _ => panic!("the arrangement has no straight way from {from} down or to the side to {to}"),
    };
    let _ = writeln!(
        body,
        r##"<line x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}" stroke="#24292f" stroke-width="1.6" marker-end="url(#head)"/>"##
    );
}
