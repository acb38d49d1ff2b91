//! The bus over a socket: client and server of the vfio-user protocol.
//!
//! A [`Server`] serves any [`Endpoint`](crate::Endpoint) on a UNIX socket. [`connect`] attaches to it, and so do QEMU and
//! other clients of vfio-user. An endpoint has one client at a time: the server refuses another with `EBUSY` to its version
//! message. When a client leaves, in whatever way, the server cleans up: outstanding DMA fails, the client's descriptors and
//! mappings are closed, and the endpoint is reset.
//!
//! Neither end trusts the other. To a malformed message, the server replies with an errno, or it disconnects the client.
//! Endpoints on other sockets are not affected: a client can delay the thread that serves it, but no thread of an endpoint.
//! A [`Budget`] bounds what all clients of a process hold together; `docs/vfio-user.md` lists all limits.
//!
//! `client` and `server` use `wire`, which has the messages and the socket; `wire` uses neither, and they do not use each
//! other. The server is the feature `vfio-user-server`.

mod client;
#[cfg(feature = "vfio-user-server")]
mod server;
#[cfg_attr(not(feature = "vfio-user-server"), expect(dead_code, reason = "only a server reads commands"))]
mod wire;

pub use client::{Options, connect, connect_with};
#[cfg(feature = "vfio-user-server")]
pub use server::{Budget, Limits, Server, Serving};
