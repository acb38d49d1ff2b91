//! A server's requests for the client's memory (sections "`VFIO_USER_DMA_READ`" and "`VFIO_USER_DMA_WRITE`").

use nix::errno::Errno;

use crate::Iova;
use crate::memory::table::FunctionIommu;
use crate::vfio_user::wire::header::{Command, Header};
use crate::vfio_user::wire::memory::DmaAccess;
use crate::vfio_user::wire::version::DEFAULT_TRANSFER_BYTES;

/// Does what a request asks for, and returns the fixed part and the data of the reply.
pub(super) fn answer(
    memory: &FunctionIommu,
    header: &Header,
    body: &[u8],
) -> Result<([u8; DmaAccess::BYTES], Vec<u8>), Errno> {
    let (access, data) = DmaAccess::decode(body).ok_or(Errno::EINVAL)?;
    if access.count > DEFAULT_TRANSFER_BYTES {
        return Err(Errno::EINVAL);
    }
    let count = access.count as usize;
    match Command::from_number(header.command) {
        Some(Command::DmaRead) if data.is_empty() => {
            let mut read = vec![0; count];
            memory.read(Iova(access.address), &mut read).map_err(|_| Errno::EFAULT)?;
            Ok((access.encode(), read))
        }
        Some(Command::DmaWrite) if data.len() == count => {
            memory.write(Iova(access.address), data).map_err(|_| Errno::EFAULT)?;
            Ok((access.encode(), Vec::new()))
        }
        Some(Command::DmaRead | Command::DmaWrite) => Err(Errno::EINVAL),
        _ => Err(Errno::ENOTSUP),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Direction;
    use crate::memory::backend::Mapping;
    use crate::memory::member::Member;
    use crate::memory::region::Region;
    use crate::memory::table::InProcessIommu;
    use nix::sys::memfd::MFdFlags;
    use std::sync::Arc;

    const MEMORY: Iova = Iova(0x1000_0000);
    const OF_ANOTHER: Iova = Iova(0x3000_0000);
    const MEMORY_BYTES: usize = 2 << 20;

    #[test]
    fn a_request_for_memory_is_served_or_refused() {
        let table = Arc::<InProcessIommu>::default();
        let memory = FunctionIommu { table: Arc::clone(&table), member: Member(0) };
        let region = Region::new("memory", "test", MEMORY_BYTES, MFdFlags::empty()).unwrap();
        let (bytes, region) = (MEMORY_BYTES as u64, Arc::new(region));
        let only = Some(Member(1));
        let of_another =
            Mapping { iova: OF_ANOTHER, bytes, direction: Direction::Both, region: Arc::clone(&region), only };
        table.map(Mapping { iova: MEMORY, only: None, ..of_another.clone() });
        table.map(of_another);
        let (base, end) = (MEMORY.0, MEMORY.0 + MEMORY_BYTES as u64);
        let most = DEFAULT_TRANSFER_BYTES;
        let serve = |command: u16, address: u64, count: u64, data: &[u8]| {
            let body = [&DmaAccess { address, count }.encode(), data].concat();
            let header = Header { command, ..Header::command(0, Command::Reset, body.len()) };
            answer(&memory, &header, &body).map(|(head, read)| {
                assert_eq!(head, DmaAccess { address, count }.encode());
                read
            })
        };
        let (read, write) = (Command::DmaRead as u16, Command::DmaWrite as u16);
        assert_eq!(serve(write, base + 2, 3, &[7, 8, 9]), Ok(Vec::new()));
        assert_eq!(serve(read, base, 6, &[]), Ok(vec![0, 0, 7, 8, 9, 0]));
        assert_eq!(serve(read, base, most, &[]).map(|data| data.len() as u64), Ok(most));
        assert_eq!(serve(read, end - 4, 4, &[]), Ok(vec![0; 4]));
        for (command, address, count, bytes, errno) in [
            (read, base, most + 1, 0, Errno::EINVAL),
            (read, base, u64::MAX, 0, Errno::EINVAL),
            (read, base, 4, 1, Errno::EINVAL),
            (read, end - 3, 4, 0, Errno::EFAULT),
            (read, OF_ANOTHER.0, 4, 0, Errno::EFAULT),
            (write, OF_ANOTHER.0, 4, 4, Errno::EFAULT),
            (write, base, 4, 3, Errno::EINVAL),
            (write, base, 4, 5, Errno::EINVAL),
            (write, base, most + 1, most as usize + 1, Errno::EINVAL),
            (write, end - 3, 4, 4, Errno::EFAULT),
            (Command::Reset as u16, base, 0, 0, Errno::ENOTSUP),
            (77, base, 0, 0, Errno::ENOTSUP),
        ] {
            assert_eq!(serve(command, address, count, &vec![1; bytes]), Err(errno), "{command} {address:#x} {count}");
        }
        let header = Header::command(0, Command::DmaRead, 15);
        assert_eq!(answer(&memory, &header, &[0; 15]), Err(Errno::EINVAL));
        assert_eq!(serve(read, base, 6, &[]), Ok(vec![0, 0, 7, 8, 9, 0]), "nothing else was written");
    }
}
