//! An accepted connection on its way to the core that will serve it.

use connections::{Carrier, Connection, Lifetimes, Served};

use crate::shard::here;

/// An accepted connection.
pub enum Accepted {
    /// Over TCP.
    Socket(Box<connections::Accepted>),
    /// Over a simulated network.
    Simulated(Box<dyn Carrier>),
}

impl Accepted {
    /// Registers the connection with the runtime of this thread, which is a core's. Returns `None` if it cannot be
    /// served.
    pub fn adopt(self) -> Option<Served> {
        match self {
            Self::Socket(accepted) => accepted.adopt(),
            Self::Simulated(carrier) => {
                let core = here();
                let number = core.simulated.replace(core.simulated.get() + 1);
                let connection = Connection::new(&Lifetimes::default(), number, None);
                Some(Served { carrier, connection, slot: None })
            }
        }
    }
}
