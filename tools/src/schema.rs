//! `fpgactl schema`: JSON Schemas of what `--json` prints, made from the types.

use schemars::generate::SchemaSettings;
use schemars::transform::{RecursiveTransform, Transform as _};
use schemars::{JsonSchema, Schema};
use serde::Serialize;
use serde_json::Value;

use crate::cli::{self, Cli};
use crate::exit::{Failure, Result};
use crate::{
    asm, bench, bind, calibration, channel, channel_generate, channel_info, channel_load, coll, control_info, disasm,
    doctor, exit, fft3d, function_info, image, info, lint, list, mem, metrics, output, plan, readings, reg, route,
    run_program, selftest, serve, stats, topo, tune,
};

/// A schema by its name and version, as in the key `schema` of an output.
type Entry = (&'static str, fn() -> Schema);

const SCHEMAS: [Entry; 47] = [
    ("fpgactl.asm/1", of::<asm::Printed>),
    ("fpgactl.bench-accesses/1", of::<bench::accesses::Printed>),
    ("fpgactl.bench-coll-trace/1", of::<bench::coll::Traced>),
    ("fpgactl.bench-coll/1", of::<bench::coll::row::Row>),
    ("fpgactl.bench-planner/1", of::<bench::planner::Printed>),
    ("fpgactl.bench/1", of::<bench::comparison::Comparison>),
    ("fpgactl.bind/1", of::<bind::Printed>),
    ("fpgactl.calibration/1", of::<calibration::File>),
    ("fpgactl.channel-check/1", of::<channel::Printed>),
    ("fpgactl.channel-generate/1", of::<channel_generate::Printed>),
    ("fpgactl.channel-load/1", of::<channel_load::Printed>),
    ("fpgactl.coll/1", of::<coll::Printed>),
    ("fpgactl.disasm/1", of::<disasm::Printed>),
    ("fpgactl.doctor/1", of::<doctor::Printed>),
    ("fpgactl.error/1", of::<exit::Printed>),
    ("fpgactl.fft3d/1", of::<fft3d::Printed>),
    ("fpgactl.function/1", of::<function_info::Printed>),
    ("fpgactl.image-inspect/1", of::<image::inspect::Printed>),
    ("fpgactl.image-load/1", of::<image::load::Printed>),
    ("fpgactl.image-recover/1", of::<image::recover::Printed>),
    ("fpgactl.info-channels/1", of::<channel_info::Printed>),
    ("fpgactl.info-control/1", of::<control_info::Printed>),
    ("fpgactl.info-readings/1", of::<readings::Printed>),
    ("fpgactl.info/1", of::<info::Printed>),
    ("fpgactl.lint/1", of::<lint::Printed>),
    ("fpgactl.list/1", of::<list::Printed>),
    ("fpgactl.mem/1", of::<mem::Printed>),
    ("fpgactl.metrics/1", of::<metrics::server::Printed>),
    ("fpgactl.mock-image/1", of::<image::mock::Printed>),
    ("fpgactl.mock-serve/1", of::<serve::Printed>),
    ("fpgactl.plan/1", of::<plan::Printed>),
    ("fpgactl.reg/1", of::<reg::Printed>),
    ("fpgactl.reset/1", of::<bind::Reset>),
    ("fpgactl.route-compile/1", of::<route::Printed>),
    ("fpgactl.route-load/1", of::<route::load::Printed>),
    ("fpgactl.route-show/1", of::<route::Shown>),
    ("fpgactl.route-tables/1", of::<route::file::TablesFile>),
    ("fpgactl.route-verify/1", of::<route::Printed>),
    ("fpgactl.run/1", of::<run_program::Printed>),
    ("fpgactl.schemas/1", of::<Names>),
    ("fpgactl.selftest/1", of::<selftest::Printed>),
    ("fpgactl.stats-clean/1", of::<stats::Cleaned>),
    ("fpgactl.stats/1", of::<stats::Printed>),
    ("fpgactl.topo-dragonfly/1", of::<topo::Sizes>),
    ("fpgactl.topo/1", of::<topo::Printed>),
    ("fpgactl.tune/1", of::<tune::Printed>),
    ("fpgactl.unbind/1", of::<bind::Printed>),
];

#[derive(JsonSchema, Serialize)]
struct Names {
    schema: &'static str,
    names: Vec<&'static str>,
}

/// Generates the schema of what `T` is printed as: a key that is left out when empty is not required.
fn of<T: JsonSchema>() -> Schema {
    SchemaSettings::draft2020_12().for_serialize().into_generator().into_root_schema_for::<T>()
}

/// Returns the names of all schemas.
pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    SCHEMAS.iter().map(|(name, _)| *name)
}

pub(crate) fn run(cli: &Cli, arguments: &cli::Schema) -> Result<()> {
    let Some(wanted) = &arguments.name else {
        if cli.json {
            return output::json(&Names { schema: "fpgactl.schemas/1", names: names().collect() });
        }
        return output::write(names().map(|name| format!("{name}\n")).collect::<String>().as_bytes());
    };
    let Some((name, generate)) = SCHEMAS.iter().find(|(name, _)| name == wanted) else {
        return Err(Failure::usage(format!("unknown schema {wanted:?}: expected a name that `fpgactl schema` lists")));
    };
    output::json(&named(name, generate()))
}

/// Adds the name: as title, and as the only value of the key `schema`.
fn named(name: &str, mut schema: Schema) -> Schema {
    schema.insert("title".into(), name.into());
    if let Some(key) = schema.pointer_mut("/properties/schema") {
        *key = serde_json::json!({ "const": name });
    }
    RecursiveTransform(leave_out_null).transform(&mut schema);
    schema
}

/// Removes null from keys that may be missing: they are left out instead. One that may be missing with all of its object, and null
/// in it, is marked as `nullable`.
fn leave_out_null(schema: &mut Schema) {
    let required = schema.get("required").and_then(Value::as_array).cloned().unwrap_or_default();
    let Some(properties) = schema.get_mut("properties").and_then(Value::as_object_mut) else { return };
    for (_, property) in properties.iter_mut().filter(|(key, _)| required.iter().all(|one| one != key.as_str())) {
        if property.as_object_mut().is_some_and(|keys| keys.remove("nullable").is_some()) {
            continue;
        }
        if let Some(Value::Array(types)) = property.get_mut("type") {
            types.retain(|one| one != "null");
            if let [one] = types.as_slice() {
                property["type"] = one.clone();
            }
        }
        if let Some(Value::Array(schemas)) = property.get_mut("anyOf") {
            schemas.retain(|one| one["type"] != "null");
            if let [one] = schemas.as_slice() {
                *property = one.clone();
            }
        }
    }
}
