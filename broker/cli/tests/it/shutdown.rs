//! Ending the server: what was acknowledged is there, and a clean end says so.

use std::sync::Arc;

use levada_client::{AcksWord, Client, NewRecord};
use rustix::process::Signal;
use tokio::sync::Semaphore;

use crate::program::Server;

/// Writers send one record after another until the server is gone; answers what was acknowledged: place and value.
async fn write_until_it_ends(url: &str, acked: Arc<Semaphore>) -> Vec<(u32, u64, String)> {
    let mut writers = tokio::task::JoinSet::new();
    for writer in 0..4_u64 {
        let (client, acked) = (Client::new(url).expect("a good address"), Arc::clone(&acked));
        writers.spawn(async move {
            let mut stored = Vec::new();
            for n in 0.. {
                let value = format!("{{\"writer\":{writer},\"n\":{n}}}");
                let record = NewRecord::json(value.clone()).expect("it is JSON");
                let Ok(answer) = client.produce("t", &[record], AcksWord::All).await else { break };
                for place in answer.records {
                    let levada_api::Placement::Placed(placed) = place else { continue };
                    stored.push((placed.partition, placed.offset.expect("acks=all tells it"), value.clone()));
                }
                acked.add_permits(1);
            }
            stored
        });
    }
    writers.join_all().await.into_iter().flatten().collect()
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime")
}

#[test]
fn sigterm_under_load_leaves_a_clean_end_and_all_that_was_acknowledged() {
    let server = Server::new(&[]);
    server.levada(&["topic", "create", "t", "--partitions", "2", "--config", "segment.bytes=16384"]).ok();
    let runtime = runtime();
    let acked = Arc::new(Semaphore::new(0));
    let url = server.url.clone();
    let stored = runtime.block_on(async {
        let counted = Arc::clone(&acked);
        let writing = tokio::spawn(async move { write_until_it_ends(&url, counted).await });
        acked.acquire_many(100).await.expect("it is never closed").forget();
        server.running.signal(Signal::TERM);
        writing.await.expect("writers do not panic")
    });
    let (status, dir) = server.ended();
    assert!(status.success(), "{status}");
    let dir = dir.expect("it is its own");
    assert!(dir.path().join("clean-shutdown").exists());

    let server = Server::on(dir.path(), &[]);
    assert!(!dir.path().join("clean-shutdown").exists(), "a marker is used once");
    let client = Client::new(&server.url).expect("a good address");
    for (partition, offset, value) in stored {
        let read = runtime.block_on(client.record_value("t", partition, offset)).expect("it was acknowledged");
        assert_eq!(read, value);
    }
}

#[test]
fn a_second_signal_ends_it_at_once() {
    let server = Server::new(&["--shutdown-timeout-ms", "600000"]);
    server.levada(&["topic", "create", "t"]).ok();
    // A request whose body never ends keeps the first shutdown waiting.
    let mut request = std::net::TcpStream::connect(server.url.trim_start_matches("http://")).expect("it listens");
    let head = "POST /v1/topics/t/records HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/x-ndjson\r\nContent-Length: 1000\r\n\r\n1";
    std::io::Write::write_all(&mut request, head.as_bytes()).expect("it is sent");
    let mut answer = [0; 12];
    std::io::Read::read_exact(&mut request, &mut answer).expect("it is answered at once, line by line");
    assert_eq!(&answer, b"HTTP/1.1 200");
    server.running.signal(Signal::TERM);
    server.running.signal(Signal::INT);
    let (status, _dir) = server.ended();
    assert_eq!(status.code(), Some(1));
}
