//! The bits of registers that are sets of flags.

/// Defines a set of flags, and the table of its bits for the documentation.
macro_rules! flags {
    ($(#[$doc:meta])* $name:ident { $($flag:ident = $bit:literal, $meaning:literal;)* }) => {
        bitflags::bitflags! {
            $(#[$doc])*
            #[derive(Debug, Clone, Copy, PartialEq, Eq)]
            pub struct $name: u32 {
                $(#[doc = $meaning] const $flag = 1 << $bit;)*
            }
        }

        impl $name {
            /// Number, name and meaning of each bit.
            pub const TABLE: &[(u32, &str, &str)] = &[$(($bit, stringify!($flag), $meaning)),*];
        }
    };
}

flags! {
    /// Bits of [`crate::sequencer::FEATURES`].
    Features {
        HOST_RING = 0, "The sequencer fetches instructions from a ring in host memory and writes completions to one.";
        CARD_RING = 1, "The sequencer fetches instructions from a ring in card memory and writes completions to one. Without HOST_RING it reaches no host memory.";
        REGISTERS = 2, "The host writes instructions to registers and reads completions from registers.";
        RESIDENT = 8, "Programs can be stored on the card and launched repeatedly.";
        USER_LOGIC = 9, "The changeover switch connects user logic.";
        EXTRAPOLATED = 16, "The fabric is larger than the published system: its times are extrapolated.";
        REDUCTIONS_EXTEND = 17, "The published system has no reductions: the reduction units and their times are an extension.";
        MODEL = 18, "The card is a model in software, whatever its PCI ids say.";
    }
}

flags! {
    /// Bits of [`crate::sequencer::STATUS`].
    Status {
        READY = 0, "The sequencer accepts commands. Before that, after a reset, writes to its registers do nothing.";
        BUSY = 1, "An instruction is running.";
        HALTED = 2, "The sequencer stopped because of an error: see ERROR.";
    }
}

flags! {
    /// Bits of [`crate::sequencer::ERROR`].
    Errors {
        BAD_DOORBELL = 0, "A doorbell announced more entries than the ring has, or went backwards.";
        FETCH_FAULT = 1, "A read of the submission ring failed: the bus refused it, unless another bit tells why.";
        COMPLETION_FAULT = 2, "The bus refused a write to the completion ring.";
        RECEIVE_OVERRUN = 3, "Data arrived on a link while its receive buffer was full, and was lost.";
        UNEXPECTED_DATA = 4, "Data arrived that no instruction expected, and was dropped.";
        COMPLETION_TIMEOUT = 5, "Beside FETCH_FAULT: the read was not answered within the completion timeout.";
        POISONED_DATA = 6, "Beside FETCH_FAULT: the read was answered with poisoned data, which was not used.";
        LINK_ERROR = 7, "Something came over a link with a wrong checksum, and was lost: see LINK_ERRORS.";
    }
}

flags! {
    /// Bits of [`crate::channel::STATUS`].
    ChannelStatus {
        READY = 0, "The block accepts commands.";
        ROUTED = 1, "The router's table was loaded since power-up.";
    }
}

flags! {
    /// Bits of [`crate::channel::FEATURES`].
    ChannelFeatures {
        MODEL = 18, "The card is a model in software, whatever its PCI ids say.";
    }
}

pub(crate) use flags;
