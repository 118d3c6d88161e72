//! Runs the cases through every host, and shows which of them behaves as it must.

mod case;
mod driver;
mod pattern;
mod table;

use std::process::ExitCode;
use std::thread;

use clap::Parser;

use case::{Case, Host, World};
use driver::Driver;
use table::{Column, Outcome};

/// Runs the cases of the conformance suite through every host
#[derive(Parser)]
struct Args {
    /// Put the table into README.md
    #[arg(long, conflicts_with_all = ["check", "host"])]
    write: bool,
    /// Fail unless README.md has this table
    #[arg(long, conflicts_with = "host")]
    check: bool,
    /// This host alone
    #[arg(long)]
    host: Option<String>,
    /// The cases whose names contain this alone
    #[arg(long, conflicts_with_all = ["write", "check"])]
    case: Option<String>,
}

fn main() -> ExitCode {
    match run(&Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("conformance: {why}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &Args) -> Result<(), String> {
    let mut cases = case::cases()?;
    let mut hosts: Vec<Host> = case::read("hosts.json")?;
    hosts.retain(|host| {
        args.host
            .as_ref()
            .is_none_or(|name| host.host.contains(name))
    });
    cases.retain(|case| {
        args.case
            .as_ref()
            .is_none_or(|name| case.name.contains(name))
    });
    if hosts.is_empty() || cases.is_empty() {
        return Err("there is no such host, or no such case".to_owned());
    }
    let world = World::new()?;
    // Hosts beside one another, since most of the time of a case is waiting.
    let columns: Vec<(Column, Vec<String>)> = thread::scope(|scope| {
        let running: Vec<_> = hosts
            .iter()
            .map(|host| scope.spawn(|| through(host, &cases, &world)))
            .collect();
        running
            .into_iter()
            .map(thread::ScopedJoinHandle::join)
            .collect::<Result<_, _>>()
    })
    .map_err(|_| "a thread broke off")?;
    let (columns, failures): (Vec<_>, Vec<_>) = columns.into_iter().unzip();
    let table = table::table(&cases, &columns);
    println!("{table}");
    let failures = failures.concat();
    for failure in &failures {
        eprintln!("{failure}\n");
    }
    if args.write {
        table::write(&table)?;
    }
    if !failures.is_empty() {
        return Err(format!("{} failures", failures.len()));
    }
    if args.check {
        table::check(&table)?;
    }
    Ok(())
}

/// All cases through one host, and what was wrong.
fn through<'a>(host: &'a Host, cases: &[Case], world: &World) -> (Column<'a>, Vec<String>) {
    let (mut results, mut failures) = (Vec::new(), Vec::new());
    let mut running = None;
    for case in cases {
        if case.except.contains_key(&host.host) {
            results.push(Outcome::Excepted);
            continue;
        }
        let done = match running.take() {
            Some(driver) => Ok(driver),
            None => case::command(host).and_then(|mut command| Driver::start(&mut command)),
        }
        .and_then(|mut driver| {
            case.run(world, &mut driver)?;
            Ok(driver)
        });
        match done {
            Ok(driver) => {
                running = Some(driver);
                results.push(Outcome::Passed);
            }
            // The next case gets a driver that has done nothing wrong.
            Err(why) => {
                failures.push(format!("{}: {}\n  {why}", host.host, case.name));
                results.push(Outcome::Failed);
            }
        }
    }
    if let Some(Err(why)) = running.map(Driver::end) {
        failures.push(format!("{}: {why}", host.host));
    }
    (Column { host, results }, failures)
}
