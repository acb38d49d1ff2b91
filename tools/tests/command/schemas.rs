//! The JSON Schemas in `docs/schemas`: they are of this command, and every object that the tests see is valid by its schema.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::{fs, panic};

use jsonschema::Validator;
use serde_json::{Map, Value};

use crate::{json, parsed, run, stdout};

fn docs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs")
}

/// The file of the schema `name`, such as `fpgactl.coll/1`.
fn file(name: &str) -> PathBuf {
    docs().join("schemas").join(name.replace('/', "-") + ".json")
}

/// The keys of an object's schema. An object of keys may have the key `properties` too.
fn properties(schema: &Map<String, Value>) -> Option<&Map<String, Value>> {
    let properties = schema.get("properties")?.as_object()?;
    properties.get("type").is_none_or(Value::is_object).then_some(properties)
}

/// Refuses keys that a schema does not list. The files allow them, because later versions of the command add keys.
fn closed(mut schema: Value) -> Value {
    match &mut schema {
        Value::Object(keys) => {
            for value in keys.values_mut() {
                *value = closed(value.take());
            }
            if properties(keys).is_some() {
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

/// Adds the keys of all objects in a schema.
fn keys(schema: &Value, names: &mut BTreeSet<String>) {
    match schema {
        Value::Object(fields) => {
            names.extend(properties(fields).into_iter().flat_map(|properties| properties.keys().cloned()));
            fields.values().for_each(|field| keys(field, names));
        }
        Value::Array(values) => values.iter().for_each(|value| keys(value, names)),
        _ => {}
    }
}

/// The sections of the page by the names in their headings.
fn sections(page: &str) -> BTreeMap<&str, &str> {
    let sections = page.split("\n## ").skip(1).map(|section| section.split_once('\n').unwrap());
    sections.flat_map(|(heading, text)| heading.split(", ").map(move |name| (name, text))).collect()
}

/// Adds `name`, and all names that its section refers to: in full, or as in `coll`.
fn refer<'a>(sections: &BTreeMap<&'a str, &str>, name: &'a str, referred: &mut BTreeSet<&'a str>) {
    if !referred.insert(name) {
        return;
    }
    let text = sections[name].split_whitespace().collect::<Vec<_>>().join(" ");
    for other in sections.keys() {
        let short = other.trim_start_matches("fpgactl.").trim_end_matches("/1");
        if text.contains(other) || text.contains(&format!("as in `{short}`")) {
            refer(sections, other, referred);
        }
    }
}

#[test]
fn every_key_is_in_its_section_of_the_page() {
    let page = fs::read_to_string(docs().join("json.md")).unwrap();
    let (sections, head) = (sections(&page), page.split("\n## ").next().unwrap());
    for entry in fs::read_dir(docs().join("schemas")).unwrap() {
        let (path, mut names) = (entry.unwrap().path(), BTreeSet::new());
        let schema = read(&path);
        keys(&schema, &mut names);
        let mut referred = BTreeSet::new();
        refer(&sections, schema["title"].as_str().unwrap(), &mut referred);
        let text: String = [head].into_iter().chain(referred.iter().map(|name| sections[name])).collect();
        let missing: Vec<_> = names.iter().filter(|name| !text.contains(&format!("`{name}`"))).collect();
        assert!(missing.is_empty(), "{}: {missing:?}", path.display());
    }
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
