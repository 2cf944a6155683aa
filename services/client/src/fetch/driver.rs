//! The task of one stream: connects, moves messages between the ledger and the connection, and reconnects when the
//! connection breaks.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use endpoint::Endpoint;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::time::Instant;
use tracing::debug;
use wire::fetch::fetch_request::Kind as RequestKind;
use wire::fetch::fetch_response::Kind as ResponseKind;
use wire::fetch::{FetchRequest, FetchResponse};
use wire::{Fault, Reason};

use super::backoff::Backoff;
use super::incoming::Incoming;
use super::job::Command;
use super::ledger::{Ledger, batch_rows_max};
use super::link::{Link, unreachable};
use super::options::FetchOptions;
use super::outage::{Connected, Outage};
use super::state::{self, StreamState};

pub(super) struct Driver {
    pub endpoint: Endpoint,
    pub options: FetchOptions,
    pub shared: Arc<StreamState>,
    pub outage: Arc<Outage>,
    pub backoff: Backoff,
    /// The callers' commands. The number of batches among them is bounded by the queue places of [`StreamState`].
    pub commands: UnboundedReceiver<Command>,
    /// The ids of batches to cancel; never more than there are batches that wait or are outstanding.
    pub cancels: UnboundedReceiver<u64>,
    /// Commands that waited on a stream when it was retired. They are sent first on the next stream.
    pub unsent: Vec<Command>,
}

/// The client and all its callers are gone.
struct Abandoned;

/// The reason why a stream is no longer used.
enum End {
    Abandoned,
    Broken(Fault),
    /// The node asked for a new stream, or the secret with which this one began is withdrawn. This stream still
    /// delivers the replies to the batches that were sent on it.
    Retired(Incoming),
}

impl Driver {
    /// Runs until the client is dropped.
    pub async fn run(mut self) {
        let mut fault = None;
        loop {
            let link = match &fault {
                None => Link::dial(&self.endpoint, &self.options).await,
                Some(fault) => match self.dial_later(fault).await {
                    Ok(link) => link,
                    Err(Abandoned) => return,
                },
            };
            fault = match link {
                Ok(link) => match self.use_link(link).await {
                    Ok(fault) => fault,
                    Err(Abandoned) => return,
                },
                Err(fault) => {
                    self.unsent.drain(..).for_each(|command| command.fail(fault.clone()));
                    self.outage.report(&self.endpoint, &fault);
                    self.shared.set_link(state::LinkState::Down(fault.clone()));
                    Some(fault)
                }
            };
        }
    }

    /// Connects after a pause. In the meantime, callers' commands fail at once.
    async fn dial_later(&mut self, fault: &Fault) -> Result<Result<Link, Fault>, Abandoned> {
        let pause = self.backoff.pause();
        let (endpoint, options) = (self.endpoint.clone(), self.options.clone());
        let attempt = async move {
            tokio::time::sleep(pause).await;
            Link::dial(&endpoint, &options).await
        };
        self.refuse_during(attempt, fault).await
    }

    /// Runs `work`. In the meantime, callers' commands fail with `fault`.
    async fn refuse_during<T>(
        &mut self,
        work: impl Future<Output = T>,
        fault: &Fault,
    ) -> Result<T, Abandoned> {
        tokio::pin!(work);
        loop {
            tokio::select! {
                biased;
                done = &mut work => return Ok(done),
                _ = self.cancels.recv(), if !self.cancels.is_closed() => {}
                command = self.commands.recv() => command.ok_or(Abandoned)?.fail(fault.clone()),
            }
        }
    }

    /// Uses a stream until it ends. Returns `None` if the next stream should be dialled at once, because the node has
    /// answered a request on this stream, or this stream was retired. Otherwise returns the fault, and the next stream
    /// is dialled after a pause, as if this one had not been connected.
    async fn use_link(&mut self, link: Link) -> Result<Option<Fault>, Abandoned> {
        self.shared.connections.fetch_add(1, Ordering::Relaxed);
        let mut ledger = Ledger::new(&link.welcome, self.options.projections_max);
        let connected = Connected::to(&self.outage, &self.endpoint, &link.welcome.node);
        let batch_rows_max = batch_rows_max(&link.welcome);
        self.shared.credit_rows.store(link.welcome.credit_rows as usize, Ordering::Relaxed);
        self.shared.set_link(state::LinkState::Up { batch_rows_max });
        std::mem::take(&mut self.unsent).into_iter().for_each(|command| ledger.admit(command));
        let end = self.serve(link, &mut ledger).await;
        self.shared.outstanding_rows.store(0, Ordering::Relaxed);
        self.shared.credit_rows.store(0, Ordering::Relaxed);
        drop(connected);
        let fault = match end {
            End::Abandoned => return Err(Abandoned),
            End::Broken(fault) => fault,
            End::Retired(incoming) => {
                self.backoff.reset();
                self.shared.set_link(state::LinkState::Connecting);
                self.unsent = ledger.take_unsent();
                tokio::spawn(finish(self.endpoint.clone(), incoming, ledger));
                return Ok(None);
            }
        };
        self.outage.report(&self.endpoint, &fault);
        let useful = ledger.answered() > 0;
        if useful {
            self.backoff.reset();
            self.shared.set_link(state::LinkState::Connecting);
        } else {
            self.shared.set_link(state::LinkState::Down(fault.clone()));
        }
        ledger.fail(&fault);
        Ok((!useful).then_some(fault))
    }

    /// Selects an event and applies it to the ledger. Incoming messages and commands come before outgoing messages, so
    /// that all waiting batches leave together.
    async fn serve(&mut self, mut link: Link, ledger: &mut Ledger) -> End {
        loop {
            if link.incoming.is_withdrawn() {
                return End::Retired(link.incoming);
            }
            self.shared.outstanding_rows.store(ledger.outstanding_rows(), Ordering::Relaxed);
            ledger.check_credit(Instant::now);
            tokio::select! {
                biased;
                message = link.incoming.message() => match self.on_message(message, ledger) {
                    Ok(MessageEffect::Answer) => {}
                    // Dropping `link.outgoing` ends this side of the stream.
                    Ok(MessageEffect::Retire) => return End::Retired(link.incoming),
                    Err(fault) => return End::Broken(fault),
                },
                id = self.cancels.recv(), if !self.cancels.is_closed() => {
                    id.into_iter().for_each(|id| ledger.cancel(id));
                }
                command = self.commands.recv() => {
                    let Some(command) = command else { return End::Abandoned };
                    self.admit_all(command, ledger).await;
                }
                permit = link.outgoing.reserve(), if ledger.has_message() => {
                    let Ok(permit) = permit else {
                        return End::Broken(unreachable(&self.endpoint, "it closed the stream"));
                    };
                    if let Some(kind) = ledger.next_message(Instant::now()) {
                        self.count(&kind, ledger);
                        permit.send(FetchRequest { kind: Some(kind) });
                    }
                }
            }
        }
    }

    /// Admits `first` and all commands that wait in the channel. As in Nagle's algorithm, yields once in between if the
    /// node has batches to answer, so that tasks that are ready to run can send theirs. A node without batches would
    /// only stay idle meanwhile. Waits for nothing else.
    async fn admit_all(&mut self, first: Command, ledger: &mut Ledger) {
        ledger.admit(first);
        if ledger.outstanding_rows() > 0 {
            tokio::task::yield_now().await;
        }
        while let Ok(command) = self.commands.try_recv() {
            ledger.admit(command);
        }
    }

    fn on_message(
        &self,
        message: Result<Option<FetchResponse>, tonic::Status>,
        ledger: &mut Ledger,
    ) -> Result<MessageEffect, Fault> {
        on_message(&self.endpoint, message, ledger)
    }

    fn count(&self, kind: &RequestKind, ledger: &mut Ledger) {
        if let RequestKind::Batches(batches) = kind {
            self.shared.messages.fetch_add(1, Ordering::Relaxed);
            self.shared.batches.fetch_add(batches.batches.len() as u64, Ordering::Relaxed);
        }
        let waits = ledger.take_waits();
        if waits.batches > 0 {
            self.shared.credit_waits.fetch_add(waits.batches, Ordering::Relaxed);
            let wait_us = waits.time.as_micros() as u64;
            self.shared.credit_wait_us.fetch_add(wait_us, Ordering::Relaxed);
        }
    }
}

/// The effect of a message from the node.
enum MessageEffect {
    Answer,
    Retire,
}

fn on_message(
    endpoint: &Endpoint,
    message: Result<Option<FetchResponse>, tonic::Status>,
    ledger: &mut Ledger,
) -> Result<MessageEffect, Fault> {
    let broken = |why: &str| unreachable(endpoint, why);
    let kind = match message {
        Err(status) => return Err(broken(&format!("the stream broke: {}", status.message()))),
        Ok(None) => return Err(broken("it ended the stream")),
        Ok(Some(FetchResponse { kind })) => kind,
    };
    let obeyed = match kind {
        Some(ResponseKind::Opened(opened)) => ledger.on_opened(opened),
        Some(ResponseKind::Reply(reply)) => ledger.on_reply(reply, Instant::now()),
        Some(ResponseKind::Retire(_)) => return Ok(MessageEffect::Retire),
        Some(ResponseKind::Welcome(_)) => return Err(broken("it welcomed twice")),
        None => {
            debug!(%endpoint, "a message of a kind not known here");
            Ok(())
        }
    };
    obeyed.map(|()| MessageEffect::Answer).map_err(|fault| broken(&fault.message))
}

/// Receives the remaining replies of a stream that was replaced.
async fn finish(endpoint: Endpoint, mut incoming: Incoming, mut ledger: Ledger) {
    while ledger.has_outstanding() {
        if let Err(fault) = on_message(&endpoint, incoming.message().await, &mut ledger) {
            return ledger.fail(&fault);
        }
    }
}

/// Returns the fault for requests to a client that is shutting down.
pub(super) fn shutting_down(endpoint: &Endpoint) -> Fault {
    Fault::new(Reason::NodeUnavailable, format!("the client of {endpoint} is shutting down"))
}
