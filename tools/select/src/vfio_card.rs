//! A function on the kernel's VFIO: `vfio:ADDRESS[+OPTION..]`.

use std::collections::BTreeMap;
use std::panic::resume_unwind;
use std::thread;

use fpga_hal::vfio::{self, VfToken};
use fpga_hal::{Domain, Function, PciAddress};

use crate::error::Error;

/// A function on the kernel's VFIO, with its options.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct VfioCard {
    pub(crate) address: PciAddress,
    pub(crate) vf_token: Option<VfToken>,
    pub(crate) no_iommu: bool,
    pub(crate) without_reset: bool,
}

impl VfioCard {
    /// Parses one card; `None` if the form is wrong.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let mut parts = text.strip_prefix("vfio:").unwrap_or(text).split('+');
        let mut function =
            VfioCard { address: parts.next()?.parse().ok()?, vf_token: None, no_iommu: false, without_reset: false };
        for option in parts {
            match option.split_once('=') {
                Some(("vf-token", token)) => function.vf_token = Some(token.parse().ok()?),
                None if option == "no-iommu" => function.no_iommu = true,
                None if option == "without-reset" => function.without_reset = true,
                _ => return None,
            }
        }
        Some(function)
    }

    /// Opens the function in `domain`.
    pub(crate) fn open(&self, domain: &Domain) -> Result<Function, Error> {
        let VfioCard { address, vf_token, no_iommu, without_reset } = *self;
        let options = vfio::Options { vf_token, no_iommu, without_reset };
        let named = |source| Error::Open { selector: format!("vfio:{address}"), source };
        vfio::open_with(address, domain, &options).map_err(named)
    }
}

/// Opens functions, those of different buses side by side: the kernel resets each, which takes tenths of a second. Functions of one bus are
/// opened one after the other, because a reset may reach them all.
pub(crate) fn open_all(cards: &[VfioCard], domain: &Domain) -> Result<Vec<Function>, Error> {
    let mut buses = BTreeMap::<_, Vec<usize>>::new();
    for (index, card) in cards.iter().enumerate() {
        buses.entry((card.address.segment(), card.address.bus())).or_default().push(index);
    }
    let open =
        |of_bus: &[usize]| -> Vec<_> { of_bus.iter().map(|index| (*index, cards[*index].open(domain))).collect() };
    let mut opened: Vec<_> = if buses.len() == 1 {
        buses.values().flat_map(|of_bus| open(of_bus)).collect()
    } else {
        thread::scope(|scope| {
            let (mut opened, mut threads) = (Vec::new(), Vec::new());
            for of_bus in buses.values() {
                let thread = thread::Builder::new().name("opening".to_owned());
                match thread.spawn_scoped(scope, || open(of_bus)) {
                    Ok(thread) => threads.push(thread),
                    Err(_) => opened.extend(open(of_bus)), // Without a thread they are opened here.
                }
            }
            for thread in threads {
                opened.extend(thread.join().unwrap_or_else(|panic| resume_unwind(panic)));
            }
            opened
        })
    };
    opened.sort_by_key(|(index, _)| *index);
    // The first in the user's order that failed.
    opened.into_iter().map(|(_, function)| function).collect()
}
