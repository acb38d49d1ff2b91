//! Compares published figures with measured ones: rows, their tolerances, what agreement means, and the output of it.

use std::collections::BTreeSet;
use std::path::Path;

use fpga_select::{Basis, Component};
use schemars::JsonSchema;
use serde::Serialize;

use crate::cli::{Cli, Published, Rows};
use crate::exit::{Exit, Failure, Result};
use crate::units::rounded;
use crate::{output, progress, size};

/// Tolerance of a row.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Accept {
    /// Largest deviation in percent, in both directions.
    Percent(f64),
    /// Inclusive range, in the row's unit.
    Between(f64, f64),
    /// Exclusive upper limit, in the row's unit.
    Below(f64),
    /// No published value, or one that the row makes no claim about.
    Anything,
}

/// What agreement with the row says about the mock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Claim {
    /// It follows from no fitted value alone. Rows with the same fact say one thing about several operations or sizes.
    Predicted { fact: &'static str },
    /// It is a sum or a multiple of fitted values.
    Derived,
    /// A component was fitted to it.
    Fitted,
    /// It is an equation of the source, or a model beside the mock.
    Computed,
}

/// A row of the comparison.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Row<Q> {
    pub(super) id: String,
    pub(super) what: String,
    pub(super) unit: &'static str,
    /// `None` without a published value, and for a curve, whose published value depends on the size.
    pub(super) published: Option<f64>,
    pub(super) accept: Accept,
    pub(super) claim: Claim,
    /// Why the row is outside its tolerance, if it is known to be.
    pub(super) outside: Option<&'static str>,
    pub(super) quantity: Q,
}

impl<Q> Row<Q> {
    /// A derived row.
    pub(super) fn new(
        id: impl Into<String>,
        what: impl Into<String>,
        unit: &'static str,
        published: impl Into<Option<f64>>,
        accept: Accept,
        quantity: Q,
    ) -> Self {
        let (id, what, published) = (id.into(), what.into(), published.into());
        Row { id, what, unit, published, accept, claim: Claim::Derived, outside: None, quantity }
    }

    pub(super) fn fitted(self) -> Self {
        Row { claim: Claim::Fitted, ..self }
    }

    pub(super) fn computed(self) -> Self {
        Row { claim: Claim::Computed, ..self }
    }

    pub(super) fn predicted(self, fact: &'static str) -> Self {
        Row { claim: Claim::Predicted { fact }, ..self }
    }

    /// Marks a row that is outside its tolerance: it stays so, or the mark is wrong.
    pub(super) fn outside(self, why: &'static str) -> Self {
        Row { outside: Some(why), ..self }
    }
}

/// A measured value; for a row over several sizes, also the size and its published value.
pub(super) struct Value {
    pub(super) ours: f64,
    pub(super) at_bytes: Option<u64>,
    pub(super) published: Option<f64>,
}

impl From<f64> for Value {
    fn from(ours: f64) -> Self {
        Value { ours, at_bytes: None, published: None }
    }
}

/// A published system beside its mock.
#[derive(JsonSchema, Serialize)]
pub(crate) struct Comparison {
    schema: &'static str,
    profile: &'static str,
    kind: &'static str,
    rows: Vec<PrintedRow>,
    summary: Summary,
    not_reproduced: &'static [&'static str],
    /// Values that are not published, and what stands for them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    assumed: Vec<String>,
    /// Paths of the figures drawn.
    figures: Vec<String>,
    /// First line of the text.
    #[serde(skip)]
    title: &'static str,
}

/// What the rows say about the mock, against what was fitted.
#[derive(JsonSchema, Serialize, Default)]
struct Summary {
    predicted: usize,
    derived: usize,
    fitted: usize,
    /// Rows that are an equation of the source, or a model beside the mock.
    computed: usize,
    /// Different facts among the predicted rows.
    independent_facts: usize,
    /// Components of the profile that were fitted.
    fitted_values: usize,
}

#[derive(JsonSchema, Serialize)]
struct PrintedRow {
    id: String,
    what: String,
    unit: &'static str,
    published: Option<f64>,
    ours: f64,
    difference_percent: Option<f64>,
    within: bool,
    basis: &'static str,
    accept: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    at_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    outside: Option<&'static str>,
}

/// Returns the rows named: a row by its id, or all rows `id/..`; without names all.
pub(super) fn choose<Q>(all: Vec<Row<Q>>, rows: &Rows) -> Result<Vec<Row<Q>>> {
    let is_selected = |row: &Row<Q>, id: &String| {
        row.id.strip_prefix(id.as_str()).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    if let Some(unknown) = rows.row.iter().find(|id| !all.iter().any(|row| is_selected(row, id))) {
        return Err(Failure::usage(format!("unknown row {unknown:?}; without --row all rows are printed")));
    }
    let is_chosen = |row: &Row<Q>| rows.row.is_empty() || rows.row.iter().any(|id| is_selected(row, id));
    Ok(all.into_iter().filter(is_chosen).collect())
}

/// A published system, and its mock.
pub(super) struct PublishedSystem {
    /// Its profile, and the first line of the text.
    pub(super) names: (&'static str, &'static str),
    /// Values of the profile.
    pub(super) components: Vec<Component>,
    pub(super) not_reproduced: &'static [&'static str],
    pub(super) assumed: Vec<String>,
}

impl PublishedSystem {
    /// Measures the chosen rows of `all` with `measure`, draws figures with `draw` into the directory of the command line, which is
    /// created before, and prints the comparison. Both are given `lab`.
    pub(super) fn run<L, Q>(
        self,
        cli: &Cli,
        arguments: &Published,
        (all, lab): (Vec<Row<Q>>, &mut L),
        mut measure: impl FnMut(&mut L, &Q) -> Result<Value>,
        draw: impl FnOnce(&mut L, &Path) -> Result<Vec<String>>,
    ) -> Result<()> {
        let rows = choose(all, &arguments.rows)?;
        if let Some(directory) = &arguments.svg {
            std::fs::create_dir_all(directory).map_err(|error| Failure::file(directory, &error))?;
        }
        let mut comparison = Comparison::measure(self, rows, |one| measure(lab, one))?;
        if let Some(directory) = &arguments.svg {
            comparison.figures = draw(lab, directory)?;
        }
        comparison.print(cli, arguments.rows.check)
    }
}

impl Comparison {
    /// Measures `rows` on the mock of `system`.
    fn measure<Q>(
        system: PublishedSystem,
        rows: Vec<Row<Q>>,
        mut measure: impl FnMut(&Q) -> Result<Value>,
    ) -> Result<Self> {
        let PublishedSystem { names: (profile, title), components, not_reproduced, assumed } = system;
        let summary = Summary::new(&rows, &components);
        let bar = progress::count(rows.len() as u64);
        let mut printed_rows = Vec::with_capacity(rows.len());
        for row in rows {
            bar.set_message(row.id.clone());
            let value = measure(&row.quantity)?;
            printed_rows.push(printed(row, &value));
            bar.inc(1);
        }
        bar.finish_and_clear();
        let (schema, kind, rows) = ("fpgactl.bench/1", "mock", printed_rows);
        Ok(Comparison { schema, profile, kind, rows, summary, not_reproduced, assumed, figures: Vec::new(), title })
    }

    /// Returns the rows that are not where they are expected.
    fn wrong(&self) -> Vec<String> {
        let name = |row: &PrintedRow| match row.within {
            true => format!("{} (within, and marked as outside)", row.id),
            false => row.id.clone(),
        };
        self.rows.iter().filter(|row| row.within == row.outside.is_some()).map(name).collect()
    }

    /// Prints the comparison.
    ///
    /// # Errors
    /// [`Exit::Verification`] if `check` is set and a row is outside its tolerance, or within and marked as outside.
    fn print(&self, cli: &Cli, check: bool) -> Result<()> {
        output::print(cli.json, self, || text(self))?;
        let out = self.wrong();
        if check && !out.is_empty() {
            return Err(Failure::new(Exit::Verification, format!("out of tolerance: {}", out.join(", "))));
        }
        Ok(())
    }
}

impl Summary {
    fn new<Q>(rows: &[Row<Q>], components: &[Component]) -> Self {
        let count = |is_one: fn(&Claim) -> bool| rows.iter().filter(|row| is_one(&row.claim)).count();
        let fact = |row: &Row<Q>| match row.claim {
            Claim::Predicted { fact } => Some(fact),
            Claim::Derived | Claim::Fitted | Claim::Computed => None,
        };
        Summary {
            predicted: count(|claim| matches!(claim, Claim::Predicted { .. })),
            derived: count(|claim| matches!(claim, Claim::Derived)),
            fitted: count(|claim| matches!(claim, Claim::Fitted)),
            computed: count(|claim| matches!(claim, Claim::Computed)),
            independent_facts: rows.iter().filter_map(fact).collect::<BTreeSet<_>>().len(),
            fitted_values: components.iter().filter(|one| matches!(one.basis, Basis::Fitted(_))).count(),
        }
    }
}

fn printed<Q>(row: Row<Q>, value: &Value) -> PrintedRow {
    let published = row.published.or(value.published);
    let ours = rounded(value.ours);
    let difference = published.filter(|published| *published != 0.0).map(|right| 100.0 * (ours / right - 1.0));
    let (within, accept) = match row.accept {
        Accept::Percent(most) => (difference.is_some_and(|off| off.abs() <= most), format!("{most} %")),
        Accept::Between(low, high) if low == high => (ours == low, "exact".to_owned()),
        Accept::Between(low, high) => ((low..=high).contains(&ours), format!("{low} to {high}")),
        Accept::Below(limit) => (ours < limit, format!("below {limit}")),
        Accept::Anything if published.is_some() => (true, "no claim".to_owned()),
        Accept::Anything => (true, "not published".to_owned()),
    };
    PrintedRow {
        id: row.id,
        what: row.what,
        unit: row.unit,
        published: published.map(rounded),
        ours,
        // Adding zero turns minus zero into zero.
        difference_percent: difference.map(|off| (off * 1e3).round() / 1e3 + 0.0),
        within,
        basis: match row.claim {
            Claim::Predicted { .. } => "predicted",
            Claim::Derived => "derived",
            Claim::Fitted => "fitted",
            Claim::Computed => "computed",
        },
        accept,
        at_bytes: value.at_bytes,
        outside: row.outside,
    }
}

fn text(printed: &Comparison) -> String {
    let header = ["ROW", "UNIT", "PUBLISHED", "OURS", "DIFFERENCE", "ACCEPT", "WITHIN", "BASIS", "WHAT"];
    let mut table = vec![header.map(String::from).to_vec()];
    for row in &printed.rows {
        let at = row.at_bytes.map(|bytes| format!(" (at {})", size::show(bytes))).unwrap_or_default();
        table.push(vec![
            row.id.clone(),
            row.unit.to_owned(),
            row.published.map_or("-".to_owned(), figure),
            figure(row.ours),
            row.difference_percent.map_or("-".to_owned(), |off| format!("{:+.2} %", (off * 1e2).round() / 1e2 + 0.0)),
            row.accept.clone(),
            if row.within { "yes" } else { "NO" }.to_owned(),
            row.basis.to_owned(),
            format!("{}{at}", row.what),
        ]);
    }
    let mut text = format!("{}, published and ours\n\n{}", printed.title, output::table(&table));
    let Summary { predicted, derived, fitted, computed, independent_facts, fitted_values } = printed.summary;
    let computed = match computed {
        0 => String::new(),
        _ => format!("; {computed} rows computed, by equations of the source or models beside the mock"),
    };
    text += &format!(
        "\n{predicted} rows predicted, of {independent_facts} independent facts; {derived} rows derived, sums or multiples of \
         fitted values; {fitted} rows fitted{computed}. The profile has {fitted_values} fitted values.\n"
    );
    let list = |text: &mut String, title: &str, lines: &[String]| {
        if !lines.is_empty() {
            *text += &format!("\n{title}:\n");
            lines.iter().for_each(|line| *text += &format!("  {line}\n"));
        }
    };
    list(&mut text, "outside, and why", &reasons(&printed.rows));
    list(&mut text, "not reproduced here", &printed.not_reproduced.iter().map(ToString::to_string).collect::<Vec<_>>());
    list(&mut text, "assumed, as nothing is published", &printed.assumed);
    list(&mut text, "drawn", &printed.figures);
    text
}

/// Returns each reason with the rows that are outside for it.
fn reasons(rows: &[PrintedRow]) -> Vec<String> {
    let mut reasons: Vec<(&str, Vec<&str>)> = Vec::new();
    for (row, why) in rows.iter().filter(|row| !row.within).filter_map(|row| Some((row, row.outside?))) {
        match reasons.iter_mut().find(|one| one.0 == why) {
            Some((_, ids)) => ids.push(&row.id),
            None => reasons.push((why, vec![&row.id])),
        }
    }
    reasons.into_iter().map(|(why, ids)| format!("{}: {why}", ids.join(", "))).collect()
}

/// Formats a value with four significant digits; a whole number keeps all digits.
fn figure(value: f64) -> String {
    let decimals =
        if value.fract() == 0.0 || value >= 1000.0 { 0 } else { (3 - value.abs().log10().floor() as i32).clamp(0, 6) };
    format!("{value:.*}", decimals as usize)
}

#[cfg(test)]
pub(super) fn assert_ids_are_different<Q>(rows: &[Row<Q>]) {
    assert_eq!(rows.iter().map(|row| &row.id).collect::<BTreeSet<_>>().len(), rows.len());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn system() -> PublishedSystem {
        PublishedSystem { names: ("p", "t"), components: Vec::new(), not_reproduced: &[], assumed: Vec::new() }
    }

    #[test]
    fn a_row_that_is_known_to_be_outside_says_why_and_has_to_stay_outside() {
        let rows = || {
            let one = |id: &str, ours: f64| Row::new(id, "what", "x", None, Accept::Between(1.0, 2.0), ours);
            vec![one("a", 1.5), one("b", 3.0).outside("far away"), one("c", 4.0).outside("far away")]
        };
        let comparison = |rows| Comparison::measure(system(), rows, |ours| Ok(Value::from(*ours))).unwrap();
        assert!(comparison(rows()).wrong().is_empty());
        assert!(text(&comparison(rows())).contains("\noutside, and why:\n  b, c: far away\n"));
        let mut changed = rows();
        (changed[0].quantity, changed[1].quantity) = (2.5, 2.0);
        assert_eq!(comparison(changed).wrong(), ["a", "b (within, and marked as outside)"]);
    }

    /// A measurement takes minutes.
    #[test]
    fn a_directory_that_cannot_be_made_is_refused_before_anything_is_measured() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let rows = Rows { row: Vec::new(), check: false };
        let arguments = Published { svg: Some(file.path().join("figures")), rows };
        let cli = <Cli as clap::Parser>::parse_from(["fpgactl", "bench", "circus"]);
        let row = Row::new("a", "what", "x", None, Accept::Anything, ());
        let measure = |(): &mut (), (): &()| panic!("it is measured");
        let failure =
            system().run(&cli, &arguments, (vec![row], &mut ()), measure, |(), _| Ok(Vec::new())).unwrap_err();
        assert_eq!(failure.exit(), Exit::NoFile);
    }

    #[test]
    fn figures_have_four_digits() {
        assert_eq!(figure(0.705), "0.7050");
        assert_eq!(figure(44.99871), "45.00");
        assert_eq!(figure(968.0), "968");
        assert_eq!(figure(0.0), "0");
    }
}
