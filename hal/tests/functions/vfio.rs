//! The kernel's VFIO driver as far as it can be met on any machine; the rest is tested in a virtual one.

use fpga_hal::vfio::{self, OpenError, Options};
use fpga_hal::{BusKind, Domain, Error, PciAddress};

/// Nobody sits there: no machine has that many segments.
const NOWHERE: PciAddress = PciAddress::new(0xffff_fff0, 0xff, 0x1f, 7).unwrap();

#[test]
fn a_domain_of_another_bus_is_refused_before_anything_is_opened() {
    let error = vfio::open(NOWHERE, &Domain::in_process()).unwrap_err();
    assert!(matches!(error, Error::DomainKind { bus: BusKind::Vfio, domain: BusKind::InProcess }), "{error}");
    assert!(error.to_string().contains("on kernel VFIO"), "{error}");
}

/// With VFIO or without, as whatever user: the answer is typed, and says what to do.
#[test]
fn a_machine_has_vfio_or_says_why_not() {
    match Domain::vfio() {
        Ok(domain) => {
            assert_eq!((domain.kind(), domain.mappings(), domain.ranges()), (BusKind::Vfio, 0, Vec::new()));
            assert!(matches!(domain.allocate(4096, 1), Err(Error::EmptyDomain)));
            let error = vfio::open_with(NOWHERE, &domain, &Options::default()).unwrap_err();
            assert!(matches!(error, Error::Vfio(OpenError::NoFunction { address: NOWHERE })), "{error}");
        }
        Err(Error::Vfio(error @ OpenError::NoDriver { .. })) => {
            assert!(error.to_string().contains("/dev/vfio/vfio") && error.to_string().contains("modprobe vfio-pci"));
        }
        Err(Error::Vfio(
            OpenError::Permission { .. } | OpenError::NotPermitted { .. } | OpenError::Container { .. },
        )) => {}
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn protection_is_on_unless_somebody_says_otherwise() {
    let Options { vf_token, no_iommu, without_reset } = Options::default();
    assert!(vf_token.is_none() && !no_iommu && !without_reset);
}
