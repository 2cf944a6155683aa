//! Nothing but tests: I/O nodes and their clients from one seed (`tests/seeds`).
