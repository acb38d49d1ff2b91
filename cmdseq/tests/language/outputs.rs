//! Which bytes of an output are compared with the request.

use cmdseq::meaning::expect;
use cmdseq::plan::{Collective, Piece, Program, ProgramSet, Request};
use cmdseq::{Combine, Element, Reduction};

use super::cards::connected;

/// A collective of 0 bytes has no output, so no byte of an output piece is compared.
#[test]
fn bytes_beyond_an_empty_output_are_not_checked() {
    let combine = Some(Combine::new(Reduction::Sum, Element::F32));
    let output = vec![Piece { offset: 0, address: 0x1000, bytes: 64 }];
    for collective in [Collective::Allreduce, Collective::Alltoall, Collective::Sendrecv] {
        let programs = [(); 2].map(|()| Program { output: output.clone(), ..Program::default() });
        let request = Request { combine, ..Request::new(collective, vec![0, 1], 0) };
        expect(&ProgramSet::new([0, 1], programs), &connected(2), &request).unwrap();
    }
}
