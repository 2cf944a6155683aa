//! Tests only: I/O nodes and their clients, simulated from one seed (`tests/seeds`).
