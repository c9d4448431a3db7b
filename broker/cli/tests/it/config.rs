//! Every setting of `serve`, by flag, by environment and by file, reaches the configuration, in the promised order.

use std::collections::BTreeSet;
use std::process::Command;

use tempfile::TempDir;
use toml::{Table, Value};

use crate::program::{Server, levada, program, run, write_file};

/// Every setting with two values that are not its default, as the command line writes them.
const SETTINGS: &[(&str, &str, &str)] = &[
    ("data-dir", "/tmp/a", "/tmp/b"),
    ("listen", "127.0.0.1:1", "[::1]:2"),
    ("demo", "true", "true"),
    ("demo-pace-ms", "1", "2"),
    ("allowed-hosts", "a.example,b.example", "c.example"),
    ("allowed-origins", "https://a.example,http://b.example:81", "https://c.example"),
    ("max-body-bytes", "1", "2"),
    ("max-module-bytes", "1", "2"),
    ("modules", "false", "false"),
    ("module-memory-bytes", "1", "2"),
    ("modules-memory-bytes", "1", "2"),
    ("max-connections", "1", "2"),
    ("max-headers", "1", "2"),
    ("max-header-bytes", "1", "2"),
    ("header-timeout-ms", "1", "2"),
    ("body-timeout-ms", "1", "2"),
    ("idle-timeout-ms", "1", "2"),
    ("auto-create-topics", "false", "false"),
    ("producer-id-expiration-ms", "1", "2"),
    ("maintenance-interval-ms", "1", "2"),
    ("compaction-memory-bytes", "1048576", "2097152"),
    ("linger-ms", "1", "2"),
    ("group-initial-rebalance-delay-ms", "1", "2"),
    ("offsets-retention-ms", "1", "2"),
    ("shutdown-timeout-ms", "1", "2"),
    ("sse-heartbeat-ms", "1", "2"),
    ("ws-ping-interval-ms", "1", "2"),
    ("ws-slow-reader-timeout-ms", "1", "2"),
    ("log-format", "json", "json"),
    ("log-level", "warn", "levada_server=debug,error"),
];

fn printed(command: &mut Command) -> Table {
    let text = run(command.args(["--print-config"]), b"").ok();
    toml::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

fn serve() -> Command {
    let mut command = program();
    command.arg("serve");
    command
}

/// The value as the file writes it: of the type that the default has.
fn in_file(defaults: &Table, name: &str, text: &str) -> Value {
    match &defaults[name] {
        Value::Integer(_) => Value::Integer(text.parse().expect("a number")),
        Value::Boolean(_) => Value::Boolean(text.parse().expect("a boolean")),
        Value::Array(_) => Value::Array(text.split(',').map(Value::from).collect()),
        _ => Value::from(text),
    }
}

#[test]
fn every_setting_is_taken_from_flag_environment_and_file_in_this_order() {
    let defaults = printed(&mut serve());
    let names: BTreeSet<_> = defaults.keys().map(String::as_str).collect();
    assert_eq!(names, SETTINGS.iter().map(|(name, ..)| *name).collect(), "every setting has its row");
    let dir = TempDir::new().expect("a temporary directory");
    let file = dir.path().join("levada.toml");
    for (name, first, second) in SETTINGS {
        let flag = format!("--{name}={second}");
        let variable = format!("LEVADA_{}", name.to_ascii_uppercase().replace('-', "_"));
        let (first_value, second_value) = (in_file(&defaults, name, first), in_file(&defaults, name, second));
        assert_ne!(defaults[*name], first_value, "{name} is tried with another value than its default");

        assert_eq!(printed(serve().arg(&flag))[*name], second_value, "{flag}");
        assert_eq!(printed(serve().env(&variable, second))[*name], second_value, "{variable}");
        write_file(&file, Table::from_iter([((*name).to_owned(), first_value.clone())]).to_string());
        assert_eq!(printed(serve().arg("--config").arg(&file))[*name], first_value, "{name} in the file");

        let over_file = printed(serve().env("LEVADA_CONFIG", &file).env(&variable, second));
        assert_eq!(over_file[*name], second_value, "{variable} over the file");
        let over_all = printed(serve().arg("--config").arg(&file).env(&variable, first).arg(&flag));
        assert_eq!(over_all[*name], second_value, "{flag} over {variable}");
    }
}

#[test]
fn a_boolean_can_be_put_back() {
    let dir = TempDir::new().expect("a temporary directory");
    let file = dir.path().join("levada.toml");
    write_file(&file, "demo = true\nauto-create-topics = false\n");
    let config = printed(serve().arg("--config").arg(&file).args(["--demo=false", "--auto-create-topics"]));
    assert_eq!((config["demo"].as_bool(), config["auto-create-topics"].as_bool()), (Some(false), Some(true)));
}

#[test]
fn topics_are_created_by_producing_on_loopback_only_unless_it_is_said() {
    let creates = |flags: &[&str]| printed(serve().args(flags))["auto-create-topics"].as_bool();
    assert_eq!(creates(&["--listen", "[::1]:0"]), Some(true));
    assert_eq!(creates(&["--listen", "0.0.0.0:0"]), Some(false));
    assert_eq!(creates(&["--listen", "0.0.0.0:0", "--auto-create-topics", "true"]), Some(true));
}

#[test]
fn what_is_printed_can_be_read_back() {
    let dir = TempDir::new().expect("a temporary directory");
    let file = dir.path().join("levada.toml");
    let mut command = serve();
    let flags: Vec<_> = SETTINGS.iter().map(|(name, value, _)| format!("--{name}={value}")).collect();
    let text = run(command.args(flags).arg("--print-config"), b"").ok();
    write_file(&file, &text);
    assert_eq!(run(serve().arg("--print-config").arg("--config").arg(&file), b"").ok(), text);
}

#[test]
fn the_help_tells_the_defaults_in_force() {
    let help = levada(&["serve", "--help"]).ok();
    let help = help.split_whitespace().collect::<Vec<_>>().join(" ");
    for (name, value) in printed(&mut serve()) {
        let told = match value {
            Value::Array(_) => continue,
            Value::Boolean(_) if name == "demo" => continue,
            Value::Boolean(value) if name == "modules" => value.to_string(),
            Value::Boolean(_) => "true on loopback, else false".to_owned(),
            Value::String(text) => text,
            other => other.to_string(),
        };
        let entry = help.split(&format!("--{name} ")).nth(1).unwrap_or_else(|| panic!("--{name} is in the help"));
        let default = entry.split("[default: ").nth(1).and_then(|rest| rest.split(']').next());
        assert_eq!(default, Some(told.as_str()), "--{name}");
    }
}

#[test]
fn what_is_wrong_in_a_file_is_told_by_its_name_and_line() {
    let dir = TempDir::new().expect("a temporary directory");
    let file = dir.path().join("levada.toml");
    for (text, hint) in [
        ("linger-ms = 1\nmax-body-byte = 5\n", "unknown field `max-body-byte`"),
        ("\nlinger-ms = \"5\"\n", "line 2"),
        ("listen = \"nowhere\"\n", "socket address"),
        ("log-format = \"xml\"\n", "unknown variant `xml`"),
        ("linger-ms = \n", "line 1"),
    ] {
        write_file(&file, text);
        let error = run(serve().arg("--print-config").arg("--config").arg(&file), b"").failed(2);
        assert!(error.contains(hint) && error.contains("levada.toml"), "{text}: {error}");
    }
    let error = run(serve().args(["--print-config", "--config", "/nowhere/levada.toml"]), b"").failed(2);
    assert!(error.contains("/nowhere/levada.toml: the configuration cannot be read"), "{error}");
}

#[test]
fn wrong_values_are_usage_errors() {
    for (flags, hint) in [
        (["--listen", "localhost"], "--listen"),
        (["--linger-ms", "soon"], "--linger-ms"),
        (["--log-level", "loud=very"], "log-level"),
        (["--allowed-origins", "example.com"], "allowed-origins"),
        (["--max-connections", "0"], "--max-connections"),
        (["--module-memory-bytes", "1"], "--module-memory-bytes"),
    ] {
        let dir = TempDir::new().expect("a temporary directory");
        let flags = flags.into_iter().chain(["--data-dir", dir.path().to_str().expect("it is text")]);
        let free_port = if hint == "--listen" { None } else { Some("--listen=127.0.0.1:0") };
        let error = run(serve().args(flags).args(free_port), b"").failed(2);
        assert!(error.contains(hint), "{error}");
    }
}

#[test]
fn settings_reach_the_server() {
    // One of each kind; what each does is the server's own tests' to show.
    let server = Server::new(&["--max-body-bytes=1000", "--auto-create-topics=false", "--linger-ms=1"]);
    let error = server.pipe(&["produce", "t"], "1\n").failed(1);
    assert!(error.contains("topic-not-found"), "{error}");
    server.levada(&["topic", "create", "t"]).ok();
    let error = server.pipe(&["produce", "t"], format!("\"{}\"\n", "x".repeat(2000))).failed(1);
    assert!(error.contains("--max-body-bytes"), "{error}");
}
