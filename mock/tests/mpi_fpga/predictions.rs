//! Predictions of the LogGP model beside the simulation.

use cmdseq::reduction::{Combine, Element, Reduction};
use fpga_mock::mpi_fpga::{Call, Collective, predicted_ps};

use super::oracle::{case, leaves};

#[test]
#[ignore]
fn sweep() {
    let list = |name: &str, default: &str| -> Vec<String> {
        std::env::var(name).unwrap_or(default.into()).split(',').map(str::to_owned).collect()
    };
    let only = list("COLL", "");
    for shape in list("SHAPES", "fat:13,3x2x1") {
        let fifo: usize = list("FIFO", "1536")[0].parse().unwrap();
        let profile = fpga_mock::mpi_fpga::Profile { input_phits: fifo, ..fpga_mock::mpi_fpga::Profile::published() };
        let mut network = fpga_mock::mpi_fpga::Network::new(&profile, shape.parse().unwrap()).unwrap();
        let members: Vec<u32> = (0..network.shape().processors()).collect();
        let context = network.create(&members).unwrap();
        for collective in Collective::ALL {
            if !only[0].is_empty() && !only.contains(&collective.name().to_owned()) {
                continue;
            }
            let combine = collective.combines().then_some(Combine::new(Reduction::Sum, Element::F64));
            let forms = if network.shape().is_direct() { collective.forms() } else { &collective.forms()[..1] };
            for form in forms.iter().copied() {
                for bytes in list("SIZES", "8,240,480,1024,4096,16384") {
                    let bytes = bytes.parse().unwrap();
                    for root in list("ROOTS", "0") {
                        let root = root.parse().unwrap();
                        let call = Call { context, collective, form, combine, root, bytes };
                        if call.check(members.len() as u32, network.shape().is_direct()).is_err() {
                            continue;
                        }
                        let (inputs, _) = case(&call, members.len(), 3, leaves(&shape, &members).as_deref());
                        let outcome = network.run(&call, &inputs).unwrap();
                        let simulated = outcome.last_ps() as f64;
                        let predicted = predicted_ps(network.profile(), network.shape(), &call).unwrap() as f64;
                        if std::env::var_os("RANKS").is_some() {
                            let parts = (network.shape(), profile.parameters(network.shape()));
                            let times = cmdseq::switch::times(parts, &call, &members, &[]);
                            println!("sent {:?}\n got {:?}\n sim {:?}", times.sent_ps, times.got_ps, outcome.ended_ps);
                        }
                        println!(
                            "{shape:>10} {:>14} {:>8} root {root} {bytes:>7} B {:>10.3} {:>10.3} {:>+7.2} % held {} units {}",
                            collective.name(),
                            form.name(),
                            predicted / 1e6,
                            simulated / 1e6,
                            100.0 * (predicted / simulated - 1.0),
                            outcome.waits.held_back,
                            outcome.waits.for_unit,
                        );
                    }
                }
            }
        }
    }
}
