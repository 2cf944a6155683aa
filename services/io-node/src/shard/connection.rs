//! An accepted connection on its way to the core that will serve it.

use connections::{Carrier, Connection, Lifetimes, Peer, Served};

/// An accepted connection.
pub enum Accepted {
    /// A connection over TCP.
    Socket(Box<connections::Accepted>),
    /// A connection over a simulated network.
    Simulated(Box<dyn Carrier>),
}

impl Accepted {
    /// Registers the connection with the runtime of this thread, which must be a core's thread. Returns `None` if it
    /// cannot be served. `simulated` counts the core's connections over a simulated network.
    pub fn adopt(self, simulated: &mut u64) -> Option<Served> {
        match self {
            Self::Socket(accepted) => accepted.adopt(),
            Self::Simulated(carrier) => {
                let connection =
                    Connection::new(&Lifetimes::default(), *simulated, Peer::default(), None);
                *simulated += 1;
                Some(Served { carrier, connection, slot: None })
            }
        }
    }
}
