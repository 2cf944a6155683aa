//! Tests endpoints at which a node of the other tier answers, or a server that is not a Bireme node.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::time::Duration;

use client::fetch::{FetchClient, FetchOptions};
use client::query::QueryClient;
use wire::{Fault, Reason};

use crate::cluster::{Cluster, endpoint, soon};

/// Starts a server that answers every connection like a web server without HTTP/2.
fn web_server() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let _ = stream.read(&mut [0; 1024]);
            let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n");
        }
    });
    address
}

async fn asked_for_tables(address: SocketAddr) -> Fault {
    match QueryClient::connect(&endpoint(address)).await {
        Ok(client) => client.tables().await.unwrap_err(),
        Err(fault) => fault,
    }
}

fn fetch_client(address: SocketAddr) -> FetchClient {
    FetchClient::new(endpoint(address), FetchOptions::default()).unwrap()
}

#[track_caller]
fn says(fault: &Fault, address: SocketAddr, what: &str) {
    assert_eq!(fault.reason, Reason::NodeUnavailable, "{fault}");
    assert!(fault.message.contains(&address.to_string()), "{fault}");
    assert!(fault.message.contains(what), "{fault}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_error_names_a_node_of_the_other_tier() {
    let cluster = Cluster::start(1, &[]).await;
    let io = cluster.io[0].node.local_addr();
    says(&asked_for_tables(io).await, io, "is an I/O node; give a query node's endpoint");
    let query = cluster.query.local_addr();
    let client = fetch_client(query);
    let what = "is a query node; give an I/O node's endpoint";
    says(&client.ready(soon()).await.unwrap_err(), query, what);
    says(&client.describe(Duration::from_secs(5)).await.unwrap_err(), query, what);
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_error_names_the_endpoint_of_another_server() {
    let web = web_server();
    says(&asked_for_tables(web).await, web, "no query node answers");
    let client = fetch_client(web);
    says(&client.ready(soon()).await.unwrap_err(), web, "can't be reached: ");
    says(&client.describe(Duration::from_secs(5)).await.unwrap_err(), web, "can't be reached: ");
}
