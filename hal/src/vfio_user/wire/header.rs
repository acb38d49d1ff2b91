//! The header of every message (section "Header").

use nix::errno::Errno;

use super::fields::Fields;

/// Bytes of a header.
pub(crate) const HEADER_BYTES: usize = 16;

/// A command, by its number (section "Commands").
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u16)]
pub(crate) enum Command {
    Version = 1,
    DmaMap = 2,
    DmaUnmap = 3,
    GetInfo = 4,
    GetRegionInfo = 5,
    GetRegionIoDescriptors = 6,
    GetInterruptInfo = 7,
    SetInterrupts = 8,
    RegionRead = 9,
    RegionWrite = 10,
    DmaRead = 11,
    DmaWrite = 12,
    Reset = 13,
}

impl Command {
    pub(crate) const ALL: [Command; 13] = [
        Command::Version,
        Command::DmaMap,
        Command::DmaUnmap,
        Command::GetInfo,
        Command::GetRegionInfo,
        Command::GetRegionIoDescriptors,
        Command::GetInterruptInfo,
        Command::SetInterrupts,
        Command::RegionRead,
        Command::RegionWrite,
        Command::DmaRead,
        Command::DmaWrite,
        Command::Reset,
    ];

    pub(crate) fn from_number(number: u16) -> Option<Self> {
        Self::ALL.into_iter().find(|command| *command as u16 == number)
    }
}

/// The type of a message (section "Header": "Type", bits 0 to 3 of the flags).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Command,
    Reply,
}

/// The header, with the fields of section "Header".
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Header {
    /// Message ID: chosen by the sender of a command, and repeated in the reply.
    pub(crate) id: u16,
    /// Command: a number, which may be unknown. Commands with unknown numbers are answered too.
    pub(crate) command: u16,
    /// Message size: bytes of the message, with the header.
    pub(crate) size: u32,
    /// Flags: type (bits 0 to 3), No_reply (bit 4) and Error (bit 5).
    pub(crate) flags: u32,
    /// Error: an errno in a reply with the Error flag; reserved in a command.
    pub(crate) error: u32,
}

impl Header {
    const KIND: u32 = 0xf;
    const REPLY: u32 = 1;
    const NO_REPLY: u32 = 1 << 4;
    const ERROR: u32 = 1 << 5;

    /// Returns the header of a command with a body of `bytes` bytes.
    pub(crate) fn command(id: u16, command: Command, bytes: usize) -> Self {
        Header { id, command: command as u16, size: (HEADER_BYTES + bytes) as u32, flags: 0, error: 0 }
    }

    /// Asks for no reply.
    pub(crate) fn silence(&mut self) {
        self.flags |= Self::NO_REPLY;
    }

    /// Returns the header of the reply to `self` with a body of `bytes` bytes.
    pub(crate) fn reply(&self, bytes: usize) -> Self {
        Header { size: (HEADER_BYTES + bytes) as u32, flags: Self::REPLY, error: 0, ..*self }
    }

    /// Returns the error reply to `self`: a header alone ("If an error occurs, the reply message must only include the
    /// reply header").
    pub(crate) fn failure(&self, errno: Errno) -> Self {
        Header { size: HEADER_BYTES as u32, flags: Self::REPLY | Self::ERROR, error: errno as u32, ..*self }
    }

    /// Returns the type. `None`: the bits are neither of the two.
    pub(crate) fn kind(&self) -> Option<Kind> {
        match self.flags & Self::KIND {
            0 => Some(Kind::Command),
            Self::REPLY => Some(Kind::Reply),
            _ => None,
        }
    }

    /// Whether the sender wants no reply.
    pub(crate) fn is_silent(&self) -> bool {
        self.flags & Self::NO_REPLY != 0
    }

    /// Returns the errno of an error reply. An error of zero, which the section allows, counts as EIO.
    pub(crate) fn failed(&self) -> Option<Errno> {
        let known = |error| match Errno::from_raw(error) {
            Errno::UnknownErrno => Errno::EIO,
            errno => errno,
        };
        (self.flags & Self::ERROR != 0).then(|| i32::try_from(self.error).map_or(Errno::EIO, known))
    }

    pub(crate) fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[0..2].copy_from_slice(&self.id.to_ne_bytes());
        bytes[2..4].copy_from_slice(&self.command.to_ne_bytes());
        bytes[4..8].copy_from_slice(&self.size.to_ne_bytes());
        bytes[8..12].copy_from_slice(&self.flags.to_ne_bytes());
        bytes[12..16].copy_from_slice(&self.error.to_ne_bytes());
        bytes
    }

    pub(crate) fn decode(bytes: &[u8; HEADER_BYTES]) -> Self {
        let mut fields = Fields(bytes);
        let mut read = || {
            let (id, command) = (fields.u16()?, fields.u16()?);
            Some(Header { id, command, size: fields.u32()?, flags: fields.u32()?, error: fields.u32()? })
        };
        read().expect("sixteen bytes hold the five fields")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_have_the_specified_layout() {
        let command = Header { id: 0x1234, command: 9, size: 32, flags: 0, error: 7 };
        assert_eq!(Header::command(0x1234, Command::RegionRead, 16), Header { error: 0, ..command });
        // The reserved error field of a command is not copied to the reply.
        let reply = Header { id: 0x1234, command: 9, size: 21, flags: 1, error: 0 };
        assert_eq!(command.reply(5), reply);
        assert_eq!(Header { flags: 0x10, ..command }.reply(5), reply);
        assert_eq!(command.failure(Errno::EBUSY), Header { size: 16, flags: 0x21, error: 16, ..reply });
        let mut silent = command;
        silent.silence();
        assert_eq!(silent, Header { flags: 0x10, ..command });
        for (flags, kind, is_silent, has_failed) in [
            (0, Some(Kind::Command), false, false),
            (1, Some(Kind::Reply), false, false),
            (2, None, false, false),
            (3, None, false, false),
            (15, None, false, false),
            (0x10, Some(Kind::Command), true, false),
            (0x21, Some(Kind::Reply), false, true),
            (0xffff_ffc0, Some(Kind::Command), false, false),
            (0xffff_ffff, None, true, true),
        ] {
            let header = Header { flags, ..command };
            assert_eq!((header.kind(), header.is_silent()), (kind, is_silent), "{flags:#x}");
            assert_eq!(header.failed().is_some(), has_failed, "{flags:#x}");
        }
    }

    #[test]
    fn a_failure_always_has_an_errno() {
        let header = |error| Header { id: 0, command: 1, size: 16, flags: 0x21, error };
        assert_eq!(header(0).failed(), Some(Errno::EIO));
        assert_eq!(header(u32::MAX).failed(), Some(Errno::EIO));
        assert_eq!(header(16).failed(), Some(Errno::EBUSY));
        assert_eq!(Header { flags: 1, ..header(16) }.failed(), None);
    }
}
