//! Host code: C for OpenCL.

use crate::generate::ends::{Generated, writers};
use crate::generate::template::fill;

/// Returns the declarations.
pub(super) fn header(application: &str, guard: &str, ends: &[Generated<'_>]) -> String {
    let writers = writers(ends);
    let sender = |end: &Generated<'_>| {
        let values = [("NAME", end.end.name.as_str().into()), ("TYPE", end.word.to_string().into())];
        fill(include_str!("templates/sender.h"), &values)
    };
    let values = [
        ("APP", application.into()),
        ("GUARD", guard.into()),
        // One more loads the routing table.
        ("KERNELS", (writers.len() + 1).to_string().into()),
        ("SENDERS", writers.iter().map(sender).collect::<String>().into()),
    ];
    fill(include_str!("templates/host.h"), &values)
}

/// Returns the functions.
pub(super) fn source(application: &str, ends: &[Generated<'_>]) -> String {
    let writers = writers(ends);
    let names: String = writers.iter().map(|end| format!("    \"circus_send_{}\",\n", end.end.name)).collect();
    let values = [("APP", application.into()), ("NAMES", names.into())];
    let mut text = fill(include_str!("templates/host.c"), &values);
    if !writers.is_empty() {
        text += include_str!("templates/send.c");
    }
    for (place, end) in writers.iter().enumerate() {
        let values = [("NAME", end.end.name.as_str().into()), ("INDEX", (place + 1).to_string().into())];
        text += &fill(include_str!("templates/sender.c"), &values);
    }
    text
}
