//! Calibration files: `fpgactl.calibration/1` (docs/json.md), written by `calibrate`, read by `plan` and `coll`.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::hash::{DefaultHasher, Hasher as _};
use std::path::Path;

use cmdseq::calibration::{Calibration, Parameter, Unmeasured};
use cmdseq::capability::{Timing, TimingField};
use cmdseq::{Capabilities, CostModel};
use schemars::JsonSchema;
use serde::de::{Error as _, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

use crate::exit::{Failure, Result};
use crate::input_file;

/// Schema of the files.
const SCHEMA: &str = "fpgactl.calibration/1";
/// Size limit of a file to read: many times the size for the largest fabric.
const MAX_BYTES: u64 = 16 << 20;

/// A calibration file.
#[derive(Debug, JsonSchema, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct File {
    schema: String,
    selector: String,
    kind: String,
    mock: bool,
    #[serde(deserialize_with = "without_duplicates")]
    fabric: BTreeMap<String, u64>,
    parameters: Vec<Measured>,
    not_measured: Vec<NotMeasured>,
    links: Vec<Link>,
}

#[derive(Debug, JsonSchema, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Measured {
    name: String,
    stated: u32,
    measured: u32,
    points: usize,
    residual_percent: f64,
}

#[derive(Debug, JsonSchema, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct NotMeasured {
    name: String,
    why: String,
}

#[derive(Debug, JsonSchema, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Link {
    from: u32,
    to: u32,
    mbps: u32,
}

/// Reads a map, and refuses a key that is there twice, as of other objects.
fn without_duplicates<'de, D: Deserializer<'de>>(from: D) -> std::result::Result<BTreeMap<String, u64>, D::Error> {
    struct Facts;
    impl<'de> Visitor<'de> for Facts {
        type Value = BTreeMap<String, u64>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("an object of numbers")
        }

        fn visit_map<A: MapAccess<'de>>(self, mut from: A) -> std::result::Result<Self::Value, A::Error> {
            let mut facts = BTreeMap::new();
            while let Some((name, value)) = from.next_entry::<String, u64>()? {
                if facts.contains_key(&name) {
                    return Err(A::Error::custom(format!("duplicate field `{name}`")));
                }
                facts.insert(name, value);
            }
            Ok(facts)
        }
    }
    from.deserialize_map(Facts)
}

impl File {
    pub(crate) fn new(calibration: &Calibration, selector: &str, kind: &str, mock: bool) -> Self {
        let measured = |one: &Parameter| Measured {
            name: one.field.name.to_owned(),
            stated: one.stated,
            measured: one.measured,
            points: one.points,
            residual_percent: (one.residual_percent * 1e3).round() / 1e3,
        };
        let not = |one: &Unmeasured| NotMeasured { name: one.field.name.to_owned(), why: one.why.clone() };
        let link = |((from, to), mbps): (&(u32, u32), &u32)| Link { from: *from, to: *to, mbps: *mbps };
        File {
            schema: SCHEMA.to_owned(),
            selector: selector.to_owned(),
            kind: kind.to_owned(),
            mock,
            fabric: calibration.fabric.clone(),
            parameters: calibration.parameters.iter().map(measured).collect(),
            not_measured: calibration.unmeasured.iter().map(not).collect(),
            links: calibration.links.iter().map(link).collect(),
        }
    }

    /// Parses the text of a file; `Err` is the error message.
    fn parse(text: &str) -> std::result::Result<File, String> {
        #[derive(Deserialize)]
        struct Schema {
            schema: String,
        }
        let Schema { schema } = serde_json::from_str(text).map_err(|error| error.to_string())?;
        if schema != SCHEMA {
            return Err(format!("unsupported schema {schema:?}: expected {SCHEMA:?}"));
        }
        serde_json::from_str(text).map_err(|error| error.to_string())
    }

    /// Converts the file; refuses duplicate, unknown and invalid values.
    fn calibration(self) -> std::result::Result<Calibration, String> {
        let field = |name: &str| TimingField::named(name).ok_or_else(|| format!("unknown parameter {name:?}"));
        let mut seen: BTreeSet<&'static str> = BTreeSet::new();
        let mut once = |field: &'static TimingField| match seen.insert(field.name) {
            true => Ok(field),
            false => Err(format!("duplicate parameter {}", field.name)),
        };
        let mut parameters = Vec::new();
        for one in self.parameters {
            let field = once(field(&one.name)?)?;
            if field.is_rate && one.measured == 0 {
                return Err(format!("invalid rate 0 of {}: expected at least 1", field.name));
            }
            if !(one.residual_percent.is_finite() && one.residual_percent >= 0.0) {
                return Err(format!(
                    "invalid residual {} % of {}: expected 0 or more",
                    one.residual_percent, field.name
                ));
            }
            let (stated, measured) = (one.stated, one.measured);
            let (points, residual_percent) = (one.points, one.residual_percent);
            parameters.push(Parameter { field, stated, measured, points, residual_percent });
        }
        let mut unmeasured = Vec::new();
        for one in self.not_measured {
            unmeasured.push(Unmeasured { field: once(field(&one.name)?)?, why: one.why });
        }
        if let Some(missing) = Timing::FIELDS.iter().find(|field| !seen.contains(field.name)) {
            return Err(format!("missing parameter {}: expected in `parameters` or `not_measured`", missing.name));
        }
        let mut links = BTreeMap::new();
        for Link { from, to, mbps } in self.links {
            if mbps == 0 {
                return Err(format!("invalid rate 0 of the link from {from} to {to}: expected at least 1 Mb/s"));
            }
            if links.insert((from, to), mbps).is_some() {
                return Err(format!("duplicate link from {from} to {to}"));
            }
        }
        Ok(Calibration { fabric: self.fabric, parameters, unmeasured, links })
    }
}

/// Returns the cost model for cards with `capabilities`: as reported by the cards, or as measured in the file at `path`.
///
/// # Errors
/// The file is missing (exit code 4), is invalid, or belongs to another fabric (exit code 7).
pub(crate) fn model(path: Option<&Path>, capabilities: &Capabilities) -> Result<CostModel> {
    let Some(path) = path else { return Ok(CostModel::stated(capabilities)) };
    let refuse = |cause: String| Failure::refused(format!("{}: {cause}", path.display()));
    let text = String::from_utf8(input_file::read(path, ("a calibration", MAX_BYTES))?)
        .map_err(|error| refuse(format!("invalid calibration: {error}")))?;
    let calibration = File::parse(&text)
        .and_then(File::calibration)
        .map_err(|cause| refuse(format!("invalid calibration: {cause}")))?;
    let model = calibration.model(capabilities).map_err(|other| refuse(other.to_string()))?;
    let is_linked = |(from, to): &(u32, u32)| capabilities.topology.linked(*from, *to, capabilities.nodes);
    match model.links.keys().find(|link| !is_linked(link)) {
        Some((from, to)) => Err(refuse(format!("invalid calibration: the fabric has no link from {from} to {to}"))),
        None => Ok(model),
    }
}

/// Returns what tells calibrations apart: a hash of the file, if there is one.
pub(crate) fn fingerprint(path: Option<&Path>) -> String {
    let Some(path) = path else { return "as the cards state".to_owned() };
    let mut hasher = DefaultHasher::new();
    match input_file::read(path, ("a calibration", MAX_BYTES)) {
        Ok(bytes) => {
            hasher.write(&bytes);
            format!("a file with hash {:016x}", hasher.finish())
        }
        // `model` says why.
        Err(_) => "an unreadable file".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(change: impl FnOnce(&mut serde_json::Value)) -> std::result::Result<Calibration, String> {
        let parameters: Vec<_> = Timing::FIELDS[1..]
            .iter()
            .map(|field| {
                serde_json::json!({"name": field.name, "stated": 1, "measured": 2, "points": 3, "residual_percent": 0.5})
            })
            .collect();
        let mut value = serde_json::json!({
            "schema": SCHEMA, "selector": "mock:optweb:4", "kind": "mock", "mock": true, "fabric": {"nodes": 4},
            "parameters": parameters, "not_measured": [{"name": Timing::FIELDS[0].name, "why": "because"}],
            "links": [{"from": 0, "to": 1, "mbps": 5}],
        });
        change(&mut value);
        File::parse(&value.to_string()).and_then(File::calibration)
    }

    #[test]
    fn a_file_holds_the_measurements() {
        let calibration = file(|_| ()).unwrap();
        assert_eq!((calibration.parameters.len(), calibration.unmeasured.len()), (13, 1));
        assert_eq!(calibration.links, BTreeMap::from([((0, 1), 5)]));
    }

    #[test]
    fn invalid_files_are_refused_with_the_reason() {
        type Change = fn(&mut serde_json::Value);
        let wrong: [(Change, &str); 11] = [
            (|file| file["schema"] = "fpgactl.calibration/2".into(), "expected \"fpgactl.calibration/1\""),
            (|file| file["more"] = 1.into(), "unknown field `more`"),
            (|file| file["parameters"][0]["more"] = 1.into(), "unknown field `more`"),
            (|file| file["parameters"][0]["name"] = "speed".into(), "unknown parameter \"speed\""),
            (|file| file["parameters"][0]["name"] = "link_mbps".into(), "duplicate parameter link_mbps"),
            (|file| file["parameters"][0]["measured"] = (-1).into(), "invalid value"),
            (|file| file["parameters"][0]["residual_percent"] = (-1.0).into(), "invalid residual -1 % of"),
            (
                |file| file["parameters"].as_array_mut().unwrap().iter_mut().for_each(|one| one["measured"] = 0.into()),
                "invalid rate 0 of",
            ),
            (|file| file["not_measured"] = serde_json::json!([]), "missing parameter"),
            (|file| file["links"][0]["mbps"] = 0.into(), "invalid rate 0 of the link from 0 to 1"),
            (|file| file["fabric"] = 1.into(), "invalid type"),
        ];
        for (change, expected) in wrong {
            let error = file(change).unwrap_err();
            assert!(error.contains(expected), "{error:?} lacks {expected:?}");
        }
        let twice = r#"{"schema": "fpgactl.calibration/1", "fabric": {"nodes": 4, "nodes": 4}}"#;
        assert!(File::parse(twice).unwrap_err().contains("duplicate field `nodes`"));
        assert!(File::parse("").is_err() && File::parse("{}").is_err() && File::parse("[1]").is_err());
    }
}
