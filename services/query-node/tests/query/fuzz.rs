//! Calls every rpc of the query node with random and damaged messages. Each call has to end with an answer, or with a
//! fault that is not an internal error of the node.

use std::time::Duration;

use ::fuzz::rand::Rng;
use ::fuzz::{Messages, Method, RawCodec, cases, damage, noise};
use client::query::QueryClient;
use query_node::QueryNode;
use tonic::codegen::tokio_stream::StreamExt;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request, Status};
use wire::{DESCRIPTORS, Fault, Reason};

use crate::node::{near, served};
use crate::table::vector;

/// Texts for the fields of messages. Most are names, keys or filters that the served table has.
const WORDS: [&str; 16] = [
    "t",
    "t",
    "t",
    "id",
    "key",
    "text",
    "tag",
    "vector",
    "_rowaddr",
    "row-8",
    "row-7",
    "oak trees",
    "id < 10",
    "tag = 'tag-1' AND id >= 5",
    "id = (SELECT 1)",
    "no such thing",
];

/// Maximum number of answers that are read from a call's stream. A caller may leave before the last answer.
const ANSWERS_MAX: usize = 20;

#[tokio::test(flavor = "multi_thread")]
async fn fuzz_every_call() {
    let (_table, node, client) = served().await;
    let channel = channel(&node).await;
    let messages = Messages::of(DESCRIPTORS, &WORDS);
    let methods = messages.methods("/bireme.query.");
    assert!(methods.len() >= 8, "{methods:?}");
    // The calls are generated first and sent below, because a case is not async.
    let mut calls = Vec::new();
    cases("fuzz_every_call", 400, |rng| {
        let method = methods[rng.random_range(0..methods.len())].clone();
        let count = if method.is_client_streaming { rng.random_range(0..4) } else { 1 };
        let asked = (0..count).map(|_| {
            let mut bytes = messages.message(rng, &method.request);
            match rng.random_range(0..8) {
                0 => damage(rng, &mut bytes),
                1 => bytes = noise(rng, 60),
                _ => {}
            }
            bytes
        });
        let asked: Vec<_> = asked.collect();
        calls.push((method, asked));
    });
    let (mut answered, mut refused) = (0, 0);
    for (number, (method, asked)) in calls.into_iter().enumerate() {
        match call(channel.clone(), &method, asked.clone()).await {
            Ok(()) => answered += 1,
            Err(status) => {
                refused += 1;
                let fault = Fault::from_status(&status);
                let is_the_callers =
                    fault.reason != Reason::Internal && status.code() != Code::Unknown;
                assert!(
                    is_the_callers && !fault.message.is_empty(),
                    "call {number}, {}: {status:?}\nasked with {asked:?}",
                    method.path
                );
            }
        }
    }
    assert!(answered > 50 && refused > 50, "{answered} {refused}");
    still_serves(&client).await;
}

async fn still_serves(client: &QueryClient) {
    assert_eq!(client.search(near(vector(1), 5)).await.unwrap().rows.num_rows(), 5);
}

async fn channel(node: &QueryNode) -> Channel {
    let endpoint = Endpoint::from_shared(format!("http://{}", node.local_addr())).unwrap();
    endpoint.connect().await.unwrap()
}

/// Calls `method` with the messages `asked`, and reads at most [`ANSWERS_MAX`] answers.
async fn call(channel: Channel, method: &Method, asked: Vec<Vec<u8>>) -> Result<(), Status> {
    let mut grpc = tonic::client::Grpc::new(channel);
    grpc.ready().await.map_err(|error| Status::unavailable(error.to_string()))?;
    let mut request = Request::new(tonic::codegen::tokio_stream::iter(asked));
    request.set_timeout(Duration::from_secs(20));
    let path = method.path.parse().unwrap();
    let answers = grpc.streaming(request, path, RawCodec).await?.into_inner();
    let mut answers = answers.take(ANSWERS_MAX);
    while let Some(answer) = answers.next().await {
        answer?;
    }
    Ok(())
}
