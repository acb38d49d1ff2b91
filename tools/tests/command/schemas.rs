//! The JSON Schemas in `docs/schemas`: they are of this command, and every object that the tests see is valid by its schema.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::{fs, panic};

use jsonschema::Validator;
use serde_json::Value;

use crate::{json, parsed, run, stdout};

fn docs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs")
}

/// The file of the schema `name`, such as `fpgactl.coll/1`.
fn file(name: &str) -> PathBuf {
    docs().join("schemas").join(name.replace('/', "-") + ".json")
}

/// Refuses keys that a schema does not list. The files allow them, because later versions of the command add keys.
fn closed(mut schema: Value) -> Value {
    match &mut schema {
        Value::Object(keys) => {
            for value in keys.values_mut() {
                *value = closed(value.take());
            }
            if keys.get("properties").is_some_and(|properties| properties.get("type").is_none_or(Value::is_object)) {
                keys.entry("additionalProperties").or_insert(false.into());
            }
        }
        Value::Array(values) => values.iter_mut().for_each(|value| *value = closed(value.take())),
        _ => {}
    }
    schema
}

fn read(path: &Path) -> Value {
    let text = fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    serde_json::from_slice(&text).unwrap()
}

fn validators() -> &'static BTreeMap<String, Validator> {
    static VALIDATORS: OnceLock<BTreeMap<String, Validator>> = OnceLock::new();
    VALIDATORS.get_or_init(|| {
        let one = |entry: std::io::Result<fs::DirEntry>| {
            let schema = closed(read(&entry.unwrap().path()));
            let validator = jsonschema::draft202012::new(&schema).unwrap();
            (schema["title"].as_str().unwrap().to_owned(), validator)
        };
        fs::read_dir(docs().join("schemas")).unwrap().map(one).collect()
    })
}

/// Panics unless `object` is valid by the schema that it names.
pub(crate) fn check(object: &Value) {
    let name = object["schema"].as_str().unwrap_or_else(|| panic!("no schema is named: {object}"));
    let validator = validators().get(name).unwrap_or_else(|| panic!("no file has the schema {name}"));
    let errors: Vec<String> =
        validator.iter_errors(object).map(|error| format!("{}: {error}", error.instance_path())).collect();
    assert!(errors.is_empty(), "{name}: {errors:#?}\n{object}");
}

#[test]
fn the_files_are_of_this_command() {
    let mut names: BTreeSet<String> = stdout(&["schema"]).lines().map(str::to_owned).collect();
    for name in &names {
        let (printed, path) = (stdout(&["schema", name]), file(name));
        if std::env::var_os("UPDATE").is_some() {
            fs::write(&path, &printed).unwrap();
        }
        let expected = fs::read_to_string(&path).unwrap_or_default();
        assert!(printed == expected, "{} differs (UPDATE=1 writes it)", path.display());
        let schema: Value = serde_json::from_str(&printed).unwrap();
        assert_eq!(schema["$schema"], "https://json-schema.org/draft/2020-12/schema");
        jsonschema::meta::validate(&schema).unwrap();
    }
    assert_eq!(json(&["schema"])["names"].as_array().unwrap().len(), names.len());
    let text = fs::read_to_string(docs().join("json.md")).unwrap();
    let documented: BTreeSet<String> = text
        .lines()
        .filter_map(|line| line.strip_prefix("## "))
        .flat_map(|heading| heading.split(", ").map(str::to_owned))
        .filter(|name| name.contains('/'))
        .collect();
    // This one is printed by libfpga_mpi.
    names.insert("fpga-mpi.stats/1".to_owned());
    assert_eq!(documented, names, "docs/json.md and the schemas name other outputs");
    let files =
        fs::read_dir(docs().join("schemas")).unwrap().map(|entry| entry.unwrap().path()).collect::<BTreeSet<_>>();
    assert!(files.is_subset(&names.iter().map(|name| file(name)).collect()), "a file of no schema: {files:?}");
}

#[test]
fn an_unknown_schema_is_a_usage_error() {
    let output = run(&["schema", "fpgactl.nothing/1"]);
    let errors = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.code() == Some(2) && errors.contains("fpgactl.nothing/1"), "{errors}");
    let output = run(&["schema", "fpgactl.coll/1", "--json"]);
    assert!(parsed(&output.stderr)["message"].as_str().unwrap().contains("no effect"));
}

/// The check of all other tests can fail.
#[test]
fn an_object_that_differs_from_its_schema_is_found() {
    let valid = json(&["coll", "allgather", "--bytes", "64"]);
    let changes: [fn(&mut Value); 6] = [
        |object| object["schema"] = "fpgactl.coll/0".into(),
        |object| object["t1_us"] = "1".into(),
        |object| object["ranks"] = (-1).into(),
        |object| object["unknown"] = 1.into(),
        |object| object["predicted"]["unknown"] = 1.into(),
        |object| drop(object.as_object_mut().unwrap().remove("verified")),
    ];
    for change in changes {
        let mut changed = valid.clone();
        change(&mut changed);
        assert!(panic::catch_unwind(|| check(&changed)).is_err(), "{changed}");
    }
}
