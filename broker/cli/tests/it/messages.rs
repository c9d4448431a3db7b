//! What the program says when something is wrong, and with which code it ends.

use std::net::TcpListener;

use crate::program::{Server, levada, program, run};

fn nobody() -> String {
    let free = TcpListener::bind("127.0.0.1:0").expect("a free port");
    format!("http://{}", free.local_addr().expect("it is bound"))
}

#[test]
fn without_a_server_every_command_says_what_to_do() {
    let url = nobody();
    for args in [
        &["topic", "list"][..],
        &["consume", "t"],
        &["consume", "t", "--follow"],
        &["consume", "t", "--partition", "0"],
        &["consume", "t", "--group", "g"],
        &["group", "list"],
        &["group", "reset", "g", "--topic", "t", "--to", "earliest"],
        &["dlq", "list"],
        &["dlq", "redrive", "t"],
        &["bench", "consume"],
    ] {
        let error = levada(&[args, &["--url", &url]].concat()).failed(1);
        assert!(error.contains(&format!("nothing answers at {url}; is `levada serve` running?")), "{args:?}: {error}");
        assert!(error.contains("--url"), "{error}");
    }
}

#[test]
fn the_address_comes_from_the_environment_unless_a_flag_names_it() {
    let url = nobody();
    let error = run(program().args(["topic", "list"]).env("LEVADA_URL", &url), b"").failed(1);
    assert!(error.contains(&url), "{error}");
    let server = Server::new(&[]);
    run(server.command(&["topic", "list"]).env("LEVADA_URL", &url), b"").ok();
}

#[test]
fn an_unknown_topic_is_told_with_where_to_look() {
    let server = Server::new(&["--auto-create-topics=false"]);
    for args in [&["consume", "nope"][..], &["consume", "nope", "--follow"], &["topic", "describe", "nope"]] {
        let error = server.levada(args).failed(1);
        assert!(error.contains("nope") && error.contains("topic-not-found"), "{error}");
        assert!(error.contains("levada topic list"), "{error}");
    }
    let printed = server.pipe(&["produce", "nope"], "1\n2\n3\n");
    assert!(printed.out.starts_with("0 stored ("), "{printed:?}");
    let error = printed.failed(1);
    assert!(error.contains("error: line 1: ") && error.contains("topic-not-found"), "{error}");
    assert!(error.contains("levada topic list"), "{error}");
}

#[test]
fn an_address_that_is_none_is_told() {
    for (url, hint) in [("127.0.0.1:8080", "http://"), ("https://127.0.0.1:1", "http only")] {
        let error = levada(&["topic", "list", "--url", url]).failed(1);
        assert!(error.contains(hint), "{error}");
    }
}

#[test]
fn a_wrong_command_line_ends_with_code_2() {
    for args in [&["nonsense"][..], &[], &["topic"], &["consume"], &["consume", "t", "--output", "xml"]] {
        levada(args).failed(2);
    }
}
