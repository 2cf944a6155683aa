//! A connection that ends when its server's certificate is no longer trusted.

use std::fmt;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use rustls::ClientConfig;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::ServerCertVerifier;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep};
use tokio_rustls::client::TlsStream;

use super::expiry::{expires, instant_of};
use super::reload::{LoadedConfig, Reloaded};
use crate::Carrier;

/// The interval at which a connection checks its server's certificate.
const CHECK_INTERVAL: Duration = Duration::from_secs(5);

/// The time for which a connection outlasts its server's certificate, so that a server with a new one can end the
/// connection by itself, without failed requests. A revoked certificate gets no such time. A server gives open streams
/// as long (`Lifetimes::untrusted_grace`).
const EXPIRED_GRACE: Duration = Duration::from_secs(30);

/// The settings of the connecting side, made from files.
pub type ClientFiles = Reloaded<LoadedConfig<ClientConfig, Arc<WebPkiServerVerifier>>>;

/// A TLS connection to a server whose certificate is verified again when the TLS files have changed. Once it is not
/// trusted any more, reading fails.
pub struct VerifiedStream<C> {
    stream: TlsStream<C>,
    files: Arc<ClientFiles>,
    name: ServerName<'static>,
    /// The server's certificate, followed by the intermediate ones.
    chain: Vec<CertificateDer<'static>>,
    expires: Option<Instant>,
    /// The generation of the files with which the chain was last verified.
    verified: u64,
    next_check: Pin<Box<Sleep>>,
    is_over: bool,
}

impl<C: Carrier> VerifiedStream<C> {
    /// Wraps a connection whose handshake is done. `verified` is the generation of the files that the handshake used.
    pub(super) fn new(
        stream: TlsStream<C>,
        files: Arc<ClientFiles>,
        name: ServerName<'static>,
        verified: u64,
    ) -> Self {
        let chain = stream.get_ref().1.peer_certificates().unwrap_or_default().to_vec();
        let expires = expires(&chain).map(instant_of);
        let next_check = Box::pin(tokio::time::sleep(CHECK_INTERVAL));
        Self { stream, files, name, chain, expires, verified, next_check, is_over: false }
    }

    /// Fails once the server's certificate is not trusted any more.
    fn poll_trust(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        while !self.is_over && self.next_check.as_mut().poll(cx).is_ready() {
            self.next_check.as_mut().reset(Instant::now() + CHECK_INTERVAL);
            self.files.check_in_background();
            self.is_over =
                self.check().inspect_err(|why| tracing::warn!(%why, "a connection ends")).is_err();
        }
        match self.is_over {
            true => Err(io::Error::new(
                io::ErrorKind::ConnectionAborted,
                "its certificate has expired or is revoked",
            )),
            false => Ok(()),
        }
    }

    fn check(&mut self) -> Result<(), rustls::Error> {
        let now = Instant::now();
        let expired_for = self.expires.and_then(|expires| now.checked_duration_since(expires));
        if expired_for.is_some_and(|time| time >= EXPIRED_GRACE) {
            return Err(rustls::CertificateError::Expired.into());
        }
        let generation = self.files.generation();
        if generation == self.verified {
            return Ok(());
        }
        self.verified = generation;
        let [own, between @ ..] = &*self.chain else {
            return Err(rustls::Error::NoCertificatesPresented);
        };
        let verifier = &self.files.loaded().verifier;
        verifier.verify_server_cert(own, between, &self.name, &[], time_of(expired_for)).map(drop)
    }
}

/// Returns the time at which a certificate is verified: now, or, if it expired `expired_for` ago, shortly before it
/// expired. So a certificate that is revoked after it has expired is recognised as such.
fn time_of(expired_for: Option<Duration>) -> UnixTime {
    let now = UnixTime::now();
    let Some(expired_for) = expired_for else { return now };
    let before = expired_for.as_secs() + 2;
    UnixTime::since_unix_epoch(Duration::from_secs(now.as_secs().saturating_sub(before)))
}

impl<C> fmt::Debug for VerifiedStream<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("VerifiedStream").field("name", &self.name).finish_non_exhaustive()
    }
}

impl<C: Carrier> AsyncRead for VerifiedStream<C> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.poll_trust(cx)?;
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl<C: Carrier> AsyncWrite for VerifiedStream<C> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
