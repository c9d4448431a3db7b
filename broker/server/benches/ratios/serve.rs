//! This program in the role of a server: says its port on standard output when it is ready, serves until it is ended.

use std::io::Write;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use levada_server::ServeOptions;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};

use crate::bare;

/// Serves as `role` over `dir`.
pub(crate) fn run(role: &str, dir: PathBuf) {
    // The settings of `levada serve`, for both.
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        match role {
            "bare" => bare_server(dir).await,
            "levada" => levada(dir).await,
            other => panic!("there is no role {other}"),
        }
    });
}

fn say(port: u16) {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{port}").and_then(|()| out.flush()).expect("the bench listens");
}

async fn bare_server(dir: PathBuf) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a free port");
    say(listener.local_addr().expect("it is bound").port());
    let router = bare::router(dir);
    loop {
        let (stream, _) = listener.accept().await.expect("connections come");
        stream.set_nodelay(true).expect("a fresh socket");
        let service = hyper_util::service::TowerToHyperService::new(router.clone());
        let io = hyper_util::rt::TokioIo::new(stream);
        tokio::spawn(hyper::server::conn::http1::Builder::new().serve_connection(io, service).with_upgrades());
    }
}

async fn levada(dir: PathBuf) {
    let listen = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let options = ServeOptions { data_dir: dir, listen, ..ServeOptions::default() };
    let mut server = levada_server::start(options).await.expect("it starts");
    server.opened().await.expect("it recovers");
    say(server.address().port());
    signal(SignalKind::terminate()).expect("a handler").recv().await;
    server.shutdown().await.expect("it closes cleanly");
}
