//! The bus over a socket: the vfio-user protocol, both ends of it.
//!
//! A [`Server`] puts any [`Endpoint`](crate::Endpoint) on a UNIX socket; QEMU and other programs that speak vfio-user
//! attach to it, as does [`connect`]. One client at a time has an endpoint: another is refused, with `EBUSY` to its
//! version message. A client that goes, however it goes, leaves the endpoint clean: its DMA finds no host, its
//! descriptors and mappings are closed, and it is reset.
//!
//! Neither end trusts the other. Whatever arrives, the server answers with an errno or hangs up, and the endpoints on
//! other sockets never notice: what a client can make wait is the thread that serves it, and no thread of an endpoint. What
//! all clients of a process may hold together is bounded by a [`Budget`]; `docs/vfio-user.md` lists all limits.

mod client;
#[cfg(feature = "vfio-user-server")]
mod server;
#[cfg_attr(not(feature = "vfio-user-server"), expect(dead_code, reason = "only a server reads commands"))]
mod wire;

pub use client::{Options, connect, connect_with};
#[cfg(feature = "vfio-user-server")]
pub use server::{Budget, Limits, Server, Serving, serve_stream};
