//! Board files: where the parts of a board's functions are, for parts that no identifier leads to.
//!
//! A board file is TOML. It names the functions of a board by their ids and BARs, and places blocks in these BARs. It says where to
//! look, and nothing more: whoever drives a block checks the identifier in it. Each block has a source, and says whether a document has its
//! place, or whoever designed the shell chose it.
//!
//! ```
//! use fpga_driver::board::{Board, BlockKind};
//!
//! let text = r#"
//!     name = "lab-card"
//!     about = "a card of our own"
//!
//!     [[function]]
//!     role = "card"
//!     ids = ["1172:0001"]
//!     bars = [{ bar = 0, bytes = 0x10000 }]
//!
//!     [[function.block]]
//!     kind = "sequencer"
//!     bar = 0
//!     offset = 0x2000
//!     basis = "choice"
//!     source = "lab/shell.sv"
//! "#;
//! let board = Board::parse("lab-card.toml", text)?;
//! assert_eq!(board.functions[0].block(BlockKind::Sequencer).map(|block| block.offset), Some(0x2000));
//! let wrong = Board::parse("lab-card.toml", &text.replace("0x2000", "0xf800")).unwrap_err();
//! assert_eq!(
//!     wrong.to_string(),
//!     "lab-card.toml, line 10: block sequencer: 0x1000 bytes at 0xf800 of BAR0, which has 0x10000 bytes"
//! );
//! # Ok::<(), fpga_driver::board::BoardError>(())
//! ```

pub(crate) mod block;
mod description;
mod error;
mod feed;
mod file;
mod foreign;
mod known;

pub use block::{Basis, Block, BlockKind, Rings};
pub use description::{Board, BoardFunction, Ids, Role};
pub use error::{BoardError, WrongBoard};
pub use feed::Feed;
pub(crate) use foreign::with_foreign_shell;
pub use known::{AlreadyUsed, built_in, of, passed_over, use_boards};
