//! A connection on its way to the core that is to serve it.

use connections::{Carrier, Connection, Lifetimes, Served};

use crate::core::here;

/// A connection that was accepted.
pub enum Accepted {
    /// Over TCP.
    Socket(Box<connections::Accepted>),
    /// Over a network that is simulated.
    Simulated(Box<dyn Carrier>),
}

impl Accepted {
    /// The connection on the runtime of this thread, a core's; `None` if it can't be served.
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
