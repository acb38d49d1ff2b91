//! `fpgactl bind`, `unbind` and `reset`.

use std::time::Duration;

use fpga_driver::dfl::Control;
use fpga_hal::PciAddress;
use fpga_hal::sysfs::{BindError, Bound, Options, Sysfs};
use fpga_select::Selector;
use schemars::JsonSchema;
use serde::Serialize;

use crate::cli::{self, Cli};
use crate::exit::{Exit, Failure, Result};
use crate::interrupt::{self, Interrupt};
use crate::{address, boards, functions, output};

#[derive(JsonSchema, Serialize)]
pub(crate) struct Printed {
    schema: &'static str,
    functions: Vec<Changed>,
}

#[derive(JsonSchema, Serialize)]
struct Changed {
    address: String,
    before: Option<String>,
    driver: Option<String>,
    group: Option<u32>,
    /// VFIO node of the function.
    node: Option<String>,
}

#[derive(JsonSchema, Serialize)]
pub(crate) struct Reset<'a> {
    schema: &'static str,
    cards: Vec<&'a str>,
    /// Scope of each reset: function, hot or bus.
    resets: Vec<String>,
    /// Errors that were cleared.
    cleared: Vec<String>,
}

pub(crate) fn bind(cli: &Cli, arguments: &cli::Bind) -> Result<()> {
    let sysfs = functions::sysfs(cli);
    let options = options(&arguments.functions)?;
    let bound = sysfs.bind(&arguments.functions.address, &arguments.driver, &options);
    let bound = bound.map_err(|error| failure(&error, "bind", &arguments.functions.address))?;
    print(cli, &sysfs, ("fpgactl.bind/1", "interrupted; the functions are bound"), &bound)
}

pub(crate) fn unbind(cli: &Cli, arguments: &cli::Functions) -> Result<()> {
    let sysfs = functions::sysfs(cli);
    let bound = sysfs.unbind(&arguments.address, &options(arguments)?);
    let bound = bound.map_err(|error| failure(&error, "unbind", &arguments.address))?;
    print(cli, &sysfs, ("fpgactl.unbind/1", "interrupted; the functions are unbound"), &bound)
}

pub(crate) fn reset(cli: &Cli, arguments: &cli::Reset) -> Result<()> {
    let (mut names, mut cleared) = (Vec::new(), Vec::new());
    // Only an open function shows its error registers.
    if let Some(address) = address::in_selector(&arguments.card).filter(|_| !arguments.errors) {
        let options = Options { force: arguments.force, ..Options::default() };
        let sysfs = functions::sysfs(cli);
        let outcome = sysfs.reset(address, &options).map_err(|error| failure(&error, "reset", &[address]))?;
        names.push((address.to_string(), outcome));
    } else {
        let functions = Selector::parse(&arguments.card)?.open()?.functions;
        if arguments.errors {
            functions.iter().try_for_each(boards::check)?;
        }
        for function in functions {
            let outcome = function.reset()?;
            names.push((function.identity().name.clone(), outcome));
            if arguments.errors {
                let mut control = Control::open(function)?;
                cleared.extend(control.errors()?.iter().map(ToString::to_string));
                control.clear_errors()?;
            }
        }
    }
    if cli.json {
        let cards = names.iter().map(|(name, _)| name.as_str()).collect();
        let resets = names.iter().map(|(_, outcome)| outcome.to_string()).collect();
        return output::json(&Reset { schema: "fpgactl.reset/1", cards, resets, cleared });
    }
    let resets = names.iter().map(|(name, outcome)| format!("{name}: reset ({outcome})\n"));
    let lines: String = resets.chain(cleared.iter().map(|error| format!("cleared {error}\n"))).collect();
    output::text(&lines)
}

fn options(functions: &cli::Functions) -> Result<Options> {
    let interrupt = Some(Interrupt::listen_until_restored()?.flag());
    Ok(Options { force: functions.force, timeout: Duration::from_secs_f64(functions.timeout), interrupt })
}

/// Prints what was done. `interrupted` is the message of a signal that ends this.
fn print(cli: &Cli, sysfs: &Sysfs, (schema, interrupted): (&'static str, &'static str), bound: &[Bound]) -> Result<()> {
    let printed = Printed { schema, functions: bound.iter().map(|bound| changed(sysfs, bound)).collect() };
    let lines = || printed.functions.iter().map(line).collect();
    interrupt::ending_at_once_with(interrupted, || output::print(cli.json, &printed, lines))
}

fn changed(sysfs: &Sysfs, bound: &Bound) -> Changed {
    let group = sysfs.function(bound.address).ok().and_then(|function| function.group);
    let node = group.filter(|_| bound.now.as_deref() == Some(fpga_hal::sysfs::VFIO_PCI));
    let node = node.and_then(|number| sysfs.group(number).ok()).map(|group| group.node().display().to_string());
    let (before, driver) = (bound.before.clone(), bound.now.clone());
    Changed { address: bound.address.to_string(), before, driver, group, node }
}

fn line(changed: &Changed) -> String {
    let Changed { address, before, driver, node, .. } = changed;
    let name = |driver: &Option<String>| driver.clone().unwrap_or_else(|| "no driver".to_owned());
    let node = node.as_ref().map(|node| format!(", {node}")).unwrap_or_default();
    if before == driver {
        return format!("{address}: {}, unchanged{node}\n", name(driver));
    }
    format!("{address}: {}, was {}{node}\n", name(driver), name(before))
}

/// Maps an error to its exit code and adds the fix.
fn failure(error: &BindError, command: &str, addresses: &[PciAddress]) -> Failure {
    let list = addresses.iter().map(PciAddress::to_string).collect::<Vec<_>>().join(" ");
    let exit = |error: &BindError| match error {
        BindError::NoFunction { .. } | BindError::NoPermission { .. } => Exit::NoCard,
        BindError::Gone { .. } => Exit::Gone,
        BindError::DriverName { .. } => Exit::Usage,
        BindError::DriverMissing { .. }
        | BindError::NoIommu { .. }
        | BindError::NotViable { .. }
        | BindError::InUse { .. }
        | BindError::NoReset { .. } => Exit::Refused,
        BindError::TimedOut { .. } | BindError::Unfinished { .. } | BindError::Locked { .. } => Exit::Timeout,
        BindError::Interrupted { .. } => Exit::Interrupted,
        _ => Exit::Failed,
    };
    let help = match error {
        BindError::NoFunction { .. } => Some("fpgactl list --all shows possible cards".to_owned()),
        BindError::NoPermission { .. } => Some(format!("run as root: sudo fpgactl {command} {list}")),
        BindError::NoIommu { address } => Some(format!("fpgactl doctor {address} shows how to enable the IOMMU")),
        BindError::NotViable { foreign, .. } => {
            let others = foreign.iter().map(|member| member.name.as_str()).collect::<Vec<_>>().join(" ");
            Some(format!("if they are one card, bind them together (fpgactl bind {list} {others}); --force overrides"))
        }
        BindError::InUse { .. } => Some("--force overrides".to_owned()),
        BindError::Interrupted { .. } => Some("every function has its previous driver again".to_owned()),
        // A reset changes no driver.
        BindError::Unfinished { address, before, .. } if command != "reset" => {
            Some(restore_hint(*address, before.as_deref()))
        }
        BindError::NotRestored { address, driver, .. } => Some(restore_hint(*address, driver.as_deref())),
        _ => None,
    };
    let failure = Failure::chain(exit(error), error);
    match help {
        Some(help) => failure.with_help(&help),
        None => failure,
    }
}

/// Tells how to restore a driver when the outcome of a kernel operation is unknown.
fn restore_hint(address: PciAddress, driver: Option<&str>) -> String {
    let back = match driver {
        Some(driver) => format!("fpgactl bind {address} --driver {driver}"),
        None => format!("fpgactl unbind {address}"),
    };
    format!("fpgactl info {address} shows the current driver; once the kernel is done, restore it with {back}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_have_exit_codes_and_fixes() {
        let address: PciAddress = "0000:3b:00.0".parse().unwrap();
        let denied = || std::io::Error::from_raw_os_error(13);
        let exit = |error: &BindError| failure(error, "bind", &[address]).exit();
        let no_permission = BindError::NoPermission { path: "/sys/x".into(), source: denied() };
        assert_eq!(exit(&no_permission), Exit::NoCard);
        assert_eq!(exit(&BindError::Gone { address }), Exit::Gone);
        assert_eq!(exit(&BindError::Refused { address, step: "bind", source: denied() }), Exit::Failed);
        assert_eq!(exit(&BindError::TimedOut { address, step: "bind", waited: Duration::ZERO }), Exit::Timeout);
        assert_eq!(exit(&BindError::NoIommu { address }), Exit::Refused);
        assert_eq!(exit(&BindError::Interrupted { address }), Exit::Interrupted);
        let unfinished = |before| BindError::Unfinished { address, step: "unbind", waited: Duration::ZERO, before };
        assert_eq!(exit(&unfinished(None)), Exit::Timeout);
        let (failure_of, restore) = (Box::new(unfinished(None)), Box::new(unfinished(None)));
        let lost = BindError::NotRestored { address, driver: Some("xdma".into()), failure: failure_of, restore };
        assert_eq!(exit(&lost), Exit::Failed);
        let said = |error: &BindError| failure(error, "unbind", &[address]).message().to_owned();
        assert!(said(&lost).ends_with("restore it with fpgactl bind 0000:3b:00.0 --driver xdma"));
        assert!(said(&unfinished(None)).ends_with("restore it with fpgactl unbind 0000:3b:00.0"));
        assert!(
            format!("{:?}", failure(&no_permission, "bind", &[address])).contains("sudo fpgactl bind 0000:3b:00.0")
        );
    }
}
