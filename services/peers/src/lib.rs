//! Lets the nodes of both tiers recognise each other.
//!
//! An I/O node recognises its peers by the names in their certificates ([`Names`]). Without TLS, or in addition to it,
//! both tiers share a secret. With each call a query node proves that it knows the secret ([`Prover`]); the I/O node
//! checks the proof ([`Checker`]) and answers with a proof of its own, which the query node checks before it accepts
//! any data. The secret itself is never sent.
//!
//! ```text
//! query node                                                             I/O node
//!   proof: time, nonce, address,
//!          MAC(secret, query node, time, nonce, address, rpc) ─────►   is the MAC right, the time now, the nonce new,
//!                                                                      and the address mine?
//!   is the MAC right?  ◄── answer: MAC(secret, I/O node, time, nonce, address, rpc)
//! ```
//!
//! The MAC is BLAKE3 with a key that is derived from the secret. The role in it keeps a query node's proof from being
//! sent back as an I/O node's answer, and the nonce ties the answer to this call. The address, if the query node knows
//! it, prevents a program that answers at another address from passing the proof on to a real I/O node. Nodes prove
//! that they know the secret only when a call begins. Messages are neither encrypted nor protected from changes on the
//! way; that requires TLS.

#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

mod checker;
mod name_pattern;
mod names;
mod proof;
mod prover;
mod secret;
mod secret_file;
mod seen_nonces;

pub use checker::{Checked, Checker, NotProven};
pub use name_pattern::NamePattern;
pub use names::Names;
pub use proof::{CLOCK_SKEW_MAX, PROOF_HEADER};
pub use prover::{NotAnswered, PendingProof, Prover};
pub use secret::Secret;
pub use secret_file::{SecretError, SecretFile};
