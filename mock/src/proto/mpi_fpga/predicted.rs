//! The LogGP model of section 5 with the components of a profile, and the overheads of processors.

use cmdseq::switch::{Call, Shape, times};

use crate::engine::Time;
use crate::profile::mpi_fpga::Profile;
use crate::proto::mpi_fpga::network::NetworkError;

/// Returns the predicted time of the last rank of a call on all nodes, each of rank as its number, in picoseconds.
///
/// # Errors
/// [`NetworkError`] for a call or shape that a network would refuse.
pub fn predicted_ps(profile: &Profile, shape: Shape, call: &Call) -> Result<Time, NetworkError> {
    shape.check()?;
    if profile.clock_hertz == 0 {
        return Err(NetworkError::Profile("clock"));
    }
    let nodes: Vec<u32> = (0..shape.processors()).collect();
    call.check(shape.processors(), shape.is_direct())?;
    let last = times((shape, profile.parameters(shape)), call, &nodes, &[]).got_ps.into_iter().max().unwrap_or(0);
    Ok(Time::from(profile.overhead_ps + last + profile.overhead_ps))
}
