//! The model by itself, and what is drawn of it, beside `tests/expected` and the picture in the documentation. With UPDATE=1
//! in the environment these files are written anew.

use std::time::Duration;

use proptest::prelude::*;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::buffer::{Buffer, Cell};
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::style::Color;

use super::columns::COLUMNS;
use super::model::{Condition, Model};
use super::screen::{Pressed, Screen};
use super::{picture, table, view};
use crate::cli::Sort;
use crate::stats::{Card, Owner, Printed, Rates, Sensor, Unread};

fn second(count: u64) -> Duration {
    Duration::from_secs(count)
}

fn card(name: &str, node: u32, pid: u32) -> Card {
    Card {
        name: name.to_owned(),
        node,
        mock: false,
        pid,
        process: "solver".to_owned(),
        owner: Owner::Alive,
        state: "running".to_owned(),
        since_unix_s: 1.0,
        depth: 1024,
        in_flight: 3,
        submitted: 1003,
        completed: 1000,
        failed: 0,
        bytes: 1 << 30,
        restarts: 0,
        links: 3,
        link_failures: 0,
        sensors: Vec::new(),
        sensed_unix_s: None,
        rates: None,
        file: format!("/dev/shm/fpga-stats.{pid}.{node}"),
    }
}

fn read(cards: Vec<Card>) -> Printed {
    Printed::new(cards, Vec::new())
}

fn condition(model: &Model, name: &str) -> Condition {
    model.sorted(Sort::Card, false).into_iter().find(|row| row.card.name == name).unwrap().condition
}

fn sensors(degrees: u64) -> Vec<Sensor> {
    let sensor = |name: &str, unit, value, state, shown: String| Sensor {
        part: "cms".to_owned(),
        name: name.to_owned(),
        unit,
        value: Some(value),
        state,
        shown,
    };
    vec![
        sensor("12v_pex", "mV", 12_180, "good", "12.18 V".to_owned()),
        sensor("3v3_pex", "mV", 3310, "good", "3.31 V".to_owned()),
        sensor("vccint", "mV", 850, "good", "0.85 V".to_owned()),
        sensor("vccint_current", "mA", 14_500, "stale", "14.5 A".to_owned()),
        sensor("fpga_temperature", "mC", degrees * 1000, "good", format!("{degrees} C")),
        sensor("hbm_0_temperature", "mC", 41_000, "good", "41 C".to_owned()),
        sensor("fan_speed", "rpm", 1180, "good", "1180 rpm".to_owned()),
        sensor("12v_pex_current", "mA", 2100, "good", "2.1 A".to_owned()),
    ]
}

/// Eight cards in every condition, a file that cannot be read, and a card whose file cannot be read any more.
fn sample() -> Model {
    let mut cards: Vec<Card> =
        (0..8).map(|node| card(&format!("vfio:0000:{:02x}:00.0", 0x3b + 4 * node), node, 4711)).collect();
    let mut model = Model::default();
    model.update(read(cards.clone()), second(0));
    for (node, card) in cards.iter_mut().enumerate() {
        card.rates = Some(Rates { operations_per_s: 1234.5 * (node + 1) as f64, gbps: 12.5 * node as f64 });
        card.completed += 1000 * (node as u64 + 1);
        card.submitted = card.completed + 3;
    }
    for (node, degrees) in [(6, 44), (1, 61), (4, 50)] {
        cards[node].sensors = sensors(degrees);
    }
    let idle = Some(Rates { operations_per_s: 0.0, gbps: 0.0 });
    (cards[1].submitted, cards[1].completed, cards[1].rates) = (1003, 1000, idle);
    (cards[2].state, cards[2].failed, cards[2].in_flight) = ("poisoned".to_owned(), 1, 0);
    (cards[3].failed, cards[3].link_failures, cards[3].restarts) = (12, 7, 2);
    (cards[4].owner, cards[4].pid, cards[4].rates) = (Owner::Gone, 1999, idle);
    (cards[5].state, cards[5].rates) = ("gone".to_owned(), idle);
    (cards[6].name, cards[6].mock) = ("vfio-user:/run/user/1000/fabric/with/a/long/path/6.sock".to_owned(), true);
    let lost = cards.pop().unwrap();
    let unread =
        Unread { file: lost.file, error: "Cannot read /dev/shm/fpga-stats.4711.7: Permission denied".to_owned() };
    model.update(Printed::new(cards, vec![unread]), second(12));
    model
}

fn screen(has_color: bool) -> Screen {
    Screen::new(Sort::Card, 1.0, has_color)
}

fn press(screen: &mut Screen, code: KeyCode) -> Pressed {
    screen.press(KeyEvent::new(code, KeyModifiers::NONE))
}

fn drawn(model: &Model, screen: &mut Screen, width: u16, height: u16) -> Buffer {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| view::draw(frame, model, screen)).unwrap();
    terminal.backend().buffer().clone()
}

fn text(buffer: &Buffer) -> String {
    let line = |cells: &[Cell]| cells.iter().map(Cell::symbol).collect::<String>().trim_end().to_owned() + "\n";
    buffer.content.chunks(usize::from(buffer.area.width)).map(line).collect()
}

/// Compares `found` with a file of this crate.
fn expect(file: &str, found: &str) {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(file);
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(&path, found).unwrap();
    }
    let expected = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(found == expected, "{file} differs (UPDATE=1 writes it):\n{found}");
}

#[test]
fn cards_are_drawn_as_expected() {
    let model = sample();
    for (width, height) in [(80, 24), (120, 40)] {
        expect(
            &format!("tests/expected/top-{width}x{height}.txt"),
            &text(&drawn(&model, &mut screen(true), width, height)),
        );
    }
    let mut helped = screen(true);
    press(&mut helped, KeyCode::Char('h'));
    expect("tests/expected/top-help.txt", &text(&drawn(&model, &mut helped, 80, 24)));
    expect("tests/expected/top-none.txt", &text(&drawn(&Model::default(), &mut screen(true), 80, 24)));
    expect("tests/expected/top-once.txt", &table(&model, Sort::Gbps));
}

/// Narrow terminals show fewer columns: what is left of a cut number would be another.
#[test]
fn no_number_is_cut() {
    let mut cards = [card("a", 0, 4_194_303), card("b", 1, 4_194_304)];
    cards[0].in_flight = 0;
    cards[1].in_flight = 48;
    for card in &mut cards {
        card.rates = Some(Rates { operations_per_s: 98_765.0, gbps: 1234.25 });
    }
    cards[1].link_failures = 1000;
    cards[1].sensors = sensors(100);
    cards[1].sensors[4].shown = "100.5 C".to_owned();
    let mut model = Model::default();
    model.update(read(cards.to_vec()), second(0));
    for (row, column) in
        model.sorted(Sort::Card, false).iter().flat_map(|row| COLUMNS.iter().map(move |one| (row, one)))
    {
        let cell = (column.cell)(row);
        assert!(!column.is_number || cell.len() <= column.width.into(), "{}: {cell}", column.head);
    }
    for width in 10..130 {
        let drawn = text(&drawn(&model, &mut screen(true), width, 10));
        let rows: Vec<Vec<&str>> = drawn
            .lines()
            .skip(3)
            .take(2)
            .map(|row| row.split_whitespace().filter(|word| word.contains(|one: char| one.is_ascii_digit())).collect())
            .collect();
        let whole =
            ["0", "1", "3", "0/1024", "48/1024", "4194303", "4194304", "98.8k", "1234.25", "1000", "1.00k", "100.5"];
        assert!(rows.iter().flatten().all(|word| whole.contains(word)), "{width}: {drawn}");
        assert_eq!(rows[0].contains(&"0/1024") && rows[1].contains(&"48/1024"), width >= 32, "{width}: {drawn}");
        assert!(width < 50 || rows[0].contains(&"1234.25"), "{width}: {drawn}");
    }
}

/// Wide characters take two columns of the terminal each.
#[test]
fn names_are_cut_by_the_columns_that_they_take() {
    let mut model = Model::default();
    model.update(read(vec![card(&format!("{}9.sock", "卡".repeat(40)), 0, 7)]), second(0));
    let drawn = text(&drawn(&model, &mut screen(true), 80, 10));
    // The cell after that of a wide character is blank.
    let row = drawn.lines().nth(3).unwrap().replace("卡 ", "卡");
    assert!(row.starts_with('…') && row.contains("卡9.sock ") && row.ends_with(" 3"), "{drawn}");
}

#[test]
fn the_picture_in_the_documentation_is_of_this_view() {
    expect("../docs/top.svg", &picture::svg(&drawn(&sample(), &mut screen(true), 80, 24)));
}

#[test]
fn without_colors_every_cell_has_the_terminals() {
    let has_colors =
        |buffer: &Buffer| buffer.content.iter().any(|cell| (cell.fg, cell.bg) != (Color::Reset, Color::Reset));
    assert!(has_colors(&drawn(&sample(), &mut screen(true), 80, 24)));
    assert!(!has_colors(&drawn(&sample(), &mut screen(false), 80, 24)));
}

#[test]
fn a_card_without_progress_is_stalled_until_it_goes_on() {
    let (mut model, mut busy) = (Model::default(), card("a", 0, 1));
    for (at, expected) in [(0, Condition::Running), (4, Condition::Running), (6, Condition::Stalled(second(6)))] {
        model.update(read(vec![busy.clone()]), second(at));
        assert_eq!(condition(&model, "a"), expected, "at {at} s");
    }
    busy.completed += 1;
    model.update(read(vec![busy.clone()]), second(7));
    assert_eq!(condition(&model, "a"), Condition::Running);
    busy.in_flight = 0;
    model.update(read(vec![busy]), second(90));
    assert_eq!(condition(&model, "a"), Condition::Running, "an idle card");
}

#[test]
fn old_counts_are_shown_as_old_and_count_in_no_total() {
    let (mut model, mut one) = (Model::default(), card("a", 0, 1));
    one.rates = Some(Rates { operations_per_s: 5.0, gbps: 1.0 });
    model.update(read(vec![one.clone()]), second(0));
    assert_eq!((model.totals.old, model.totals.gbps, model.totals.in_flight), (0, 1.0, 3));

    model.fail("the directory is gone");
    assert_eq!((condition(&model, "a"), model.totals.old, model.totals.gbps), (Condition::Stale, 1, 0.0));
    assert!(text(&drawn(&model, &mut screen(true), 80, 24)).contains("the directory is gone"));

    model.update(read(vec![one.clone()]), second(1));
    assert_eq!((condition(&model, "a"), &model.error), (Condition::Running, &None));
    let unread = Unread { file: one.file.clone(), error: "refused".to_owned() };
    model.update(Printed::new(Vec::new(), vec![unread]), second(2));
    assert_eq!(condition(&model, "a"), Condition::Stale);

    one.owner = Owner::Gone;
    model.update(read(vec![one]), second(3));
    assert_eq!((condition(&model, "a"), model.totals.operations_per_s), (Condition::OwnerGone, 0.0));
    model.update(read(Vec::new()), second(4));
    assert!(model.sorted(Sort::Card, false).is_empty(), "a closed card is shown");
}

#[test]
fn cards_are_sorted_by_any_column() {
    let model = sample();
    let nodes =
        |sort, is_reversed| model.sorted(sort, is_reversed).into_iter().map(|row| row.card.node).collect::<Vec<_>>();
    assert_eq!(nodes(Sort::Card, false)[..3], [6, 0, 1], "vfio-user is before vfio:");
    assert_eq!(nodes(Sort::Failed, false)[..2], [3, 2]);
    assert_eq!(nodes(Sort::Gbps, false)[0], 6);
    assert_eq!(nodes(Sort::Ops, false)[0], 6);
    assert_eq!(nodes(Sort::Pid, false)[0], 4);
    assert_eq!(nodes(Sort::Pid, true)[7], 4);
}

/// Returns `names` as a model with cards of these names sorts them.
fn sorted(names: &[String]) -> Vec<String> {
    let mut model = Model::default();
    model.update(read(names.iter().zip(0..).map(|(name, number)| card(name, 0, number)).collect()), second(0));
    model.sorted(Sort::Card, false).into_iter().map(|row| row.card.name.clone()).collect()
}

#[test]
fn names_are_sorted_by_the_numbers_in_them() {
    for names in [
        &["card2", "card9", "card10"][..],
        &["9.sock", "10.sock", "1a.sock"],
        &["vfio:0000:0a:00.0", "vfio:0000:10:00.0", "vfio:0000:3b:00.0", "vfio:0000:3b:00.1", "vfio:0000:a0:00.0"],
        &["99999999999999999999", "100000000000000000000"],
        &["a", "a007", "a07", "a7"],
    ] {
        let reversed: Vec<String> = names.iter().rev().map(|name| (*name).to_owned()).collect();
        assert_eq!(sorted(&reversed), names);
    }
    // The numbers, then the names that begin with a letter.
    let (letters, mut hexadecimal): (Vec<String>, Vec<String>) =
        (0..64).map(|number| format!("{number:x}.sock")).partition(|name| name.starts_with(char::is_alphabetic));
    hexadecimal.extend(letters);
    let mixed: Vec<String> = (0..64).map(|index| hexadecimal[index * 37 % 64].clone()).collect();
    assert_eq!(sorted(&mixed), hexadecimal);
}

#[test]
fn keys_select_scroll_sort_and_quit() {
    let mut model = Model::default();
    model.update(read((0..50).map(|node| card("mock:optweb:50", node, 7)).collect()), second(0));
    let mut screen = screen(false);
    let shown = |screen: &mut Screen| {
        drawn(&model, screen, 80, 24);
        assert!((screen.offset..screen.offset + screen.page).contains(&screen.selected.unwrap()), "{screen:?}");
        screen.selected.unwrap()
    };
    assert_eq!(shown(&mut screen), 0);
    for (code, selected) in [
        (KeyCode::Up, 0),
        (KeyCode::Down, 1),
        (KeyCode::Char('j'), 2),
        (KeyCode::Char('k'), 1),
        (KeyCode::PageDown, 1 + screen.page),
        (KeyCode::End, 49),
        (KeyCode::Down, 49),
        (KeyCode::PageUp, 49 - screen.page),
        (KeyCode::Home, 0),
        (KeyCode::Char('G'), 49),
    ] {
        assert_eq!(press(&mut screen, code), Pressed::Continue);
        assert_eq!(shown(&mut screen), selected, "{code:?}");
    }
    // The selection stays on its card in another order.
    press(&mut screen, KeyCode::Char('r'));
    assert_eq!(shown(&mut screen), 0);
    let first = screen.sort;
    press(&mut screen, KeyCode::Char('S'));
    assert_eq!(screen.sort, Sort::Failed);
    press(&mut screen, KeyCode::Char('s'));
    assert_eq!(screen.sort, first);

    press(&mut screen, KeyCode::Char('?'));
    assert!(screen.shows_help);
    assert_eq!(press(&mut screen, KeyCode::Esc), Pressed::Continue);
    assert!(!screen.shows_help);
    for code in [KeyCode::Esc, KeyCode::Char('q')] {
        assert_eq!(press(&mut screen, code), Pressed::Quit);
    }
    assert_eq!(screen.press(KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL)), Pressed::Quit);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// The order of any two names does not depend on which is given first, and the orders of pairs agree with each other.
    #[test]
    fn names_have_one_order(names in prop::array::uniform3("[019abg.é]{0,5}")) {
        let is_before = |a: usize, b: usize| sorted(&[names[a].clone(), names[b].clone()])[0] == names[a];
        for [a, b, c] in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
            prop_assert!(names[a] == names[b] || is_before(a, b) != is_before(b, a));
            prop_assert!(!is_before(a, b) || !is_before(b, c) || is_before(a, c));
        }
    }

    /// Any counts, names, keys and sizes are drawn without a panic.
    #[test]
    fn anything_is_drawn(
        cards in prop::collection::vec(("\\PC{0,40}", any::<(u32, u32, u64, u64, bool)>(), any::<[f64; 2]>()), 0..20),
        keys in prop::collection::vec(prop::sample::select(vec!['h', 's', 'S', 'r', 'j', 'k', 'G', 'g']), 0..10),
        (width, height) in (1_u16..200, 1_u16..80),
    ) {
        let mut screen = screen(true);
        let mut model = Model::default();
        let cards = cards.into_iter().enumerate().map(|(node, (name, (pid, depth, count, failures, is_gone), [ops, gbps]))| Card {
            depth,
            in_flight: depth,
            completed: count,
            link_failures: failures,
            failed: failures,
            owner: if is_gone { Owner::Gone } else { Owner::Alive },
            rates: Some(Rates { operations_per_s: ops, gbps }),
            ..card(&name, node as u32, pid)
        });
        model.update(read(cards.collect()), second(1));
        for key in keys {
            press(&mut screen, KeyCode::Char(key));
            drawn(&model, &mut screen, width, height);
        }
        drawn(&model, &mut screen, width, height);
        table(&model, Sort::Ops);
    }
}
