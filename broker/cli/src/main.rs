//! `levada`, the one program: the server, and everything that talks to one. Here are the command line's outline, its
//! exit codes (1 failure, 2 usage) and nothing of what the commands do.

mod bench;
mod completions;
mod config;
mod consume;
mod demo;
mod dlq;
mod failure;
mod group;
mod host;
mod line;
mod log;
mod module;
mod output;
mod processor;
mod produce;
mod segment;
mod serve;
mod signals;
mod topic;
mod transaction;

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use levada_client::Client;
use output::{Format, Printer};

/// A durable, partitioned log over plain HTTP.
#[derive(Debug, Parser)]
#[command(name = "levada", version, propagate_version = true, max_term_width = 100)]
struct Cli {
    /// Where the server answers.
    #[arg(long, global = true, env = "LEVADA_URL", default_value = "http://127.0.0.1:8080")]
    url: String,
    /// How to print results.
    #[arg(long, global = true, value_enum, default_value_t)]
    output: Format,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the server.
    Serve(Box<serve::ServeCommand>),
    /// Create, look at, change and delete topics.
    #[command(subcommand)]
    Topic(topic::TopicCommand),
    /// Send lines as records.
    Produce(produce::ProduceCommand),
    /// Read records.
    Consume(consume::ConsumeCommand),
    /// Look at consumer groups, set where they go on, and delete them.
    #[command(subcommand)]
    Group(group::GroupCommand),
    /// Look at open transactions, and abort them.
    #[command(subcommand)]
    Transaction(transaction::TransactionCommand),
    /// Put, look at, try and delete modules.
    #[command(subcommand)]
    Module(module::ModuleCommand),
    /// Put, look at and steer processors.
    #[command(subcommand)]
    Processor(processor::ProcessorCommand),
    /// Look at dead letters, and send them back.
    #[command(subcommand)]
    Dlq(dlq::DlqCommand),
    /// Read log files offline, without a server.
    #[command(subcommand)]
    Log(log::LogCommand),
    /// Measure a server, in the manner of Kafka's perf tools.
    #[command(subcommand)]
    Bench(bench::BenchCommand),
    /// Print a completion script for a shell.
    Completions(completions::CompletionsCommand),
    /// Compile a module for the server, which starts this by itself.
    #[command(name = host::COMPILE_COMMAND, hide = true)]
    CompileModule,
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    if matches!(cli.command, Command::CompileModule) {
        return levada_host::run_compiler();
    }
    let runtime = match tokio::runtime::Runtime::new() {
        Ok(runtime) => runtime,
        Err(error) => return failure::report(&error.into()),
    };
    let result = runtime.block_on(run(cli));
    // A thread may still wait for standard input; nothing that counts is left undone.
    runtime.shutdown_background();
    match result {
        Ok(code) => code,
        Err(error) => failure::report(&error),
    }
}

async fn run(cli: Cli) -> anyhow::Result<ExitCode> {
    let printer = Printer::new(cli.output);
    let client = || Client::new(&cli.url);
    match cli.command {
        Command::Serve(command) => serve::run(*command, printer).await,
        Command::Topic(command) => topic::run(command, &client()?, printer).await,
        Command::Produce(command) => produce::run(command, client()?, printer).await,
        Command::Consume(command) => consume::run(command, &client()?, printer).await,
        Command::Group(command) => group::run(command, &client()?, printer).await,
        Command::Transaction(command) => transaction::run(command, &client()?, printer).await,
        Command::Module(command) => module::run(command, || Ok(client()?), printer).await,
        Command::Processor(command) => processor::run(command, &client()?, printer).await,
        Command::Dlq(command) => dlq::run(command, &client()?, printer).await,
        Command::Log(command) => log::run(command, printer),
        Command::Bench(command) => bench::run(command, &cli.url, printer).await,
        Command::Completions(command) => completions::run(&command),
        Command::CompileModule => unreachable!("it never comes here"),
    }
}
