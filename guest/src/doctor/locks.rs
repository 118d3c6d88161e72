//! How leases are kept here, and how they might be.

use super::{Finding, Severity, not_told};
use crate::client::{Client, Outside};
use crate::options::Lock;
use crate::sql;

use Severity::{Fine, Note, Problem, Warning};

/// What there is to keep leases in.
#[derive(Clone, Copy, Debug)]
struct Place {
    /// Keeper or ZooKeeper, by the server's configuration.
    keeper: bool,
    /// Whether several servers have the table of states.
    replicated: bool,
    leases: Leases,
}

/// The table of leases.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Leases {
    NotThere,
    Sound,
    /// Without what makes the server refuse a step that is late, or another one's.
    Unsound,
}

impl<O: Outside> Client<'_, O> {
    pub(super) fn check_locks(&self, findings: &mut Vec<Finding>) {
        let to = self.connection;
        let definition = match self.ask(sql::lease_definition(to)) {
            Ok(definition) => definition,
            Err(error) => return findings.push(not_told("locks", &error)),
        };
        // It is there only where one is configured.
        let keeper = self.exists("system.zookeeper_connection");
        let place = Place {
            keeper: keeper.unwrap_or(false),
            replicated: self.is_on_replicas().unwrap_or_default(),
            leases: leases(&definition),
        };
        findings.push(judge(to.options.lock, place));
    }
}

/// A row of `sql::lease_definition`, if there is one.
fn leases(rows: &[Vec<String>]) -> Leases {
    match rows.iter().flatten().next() {
        None => Leases::NotThere,
        Some(definition)
            if definition.contains("non_replicated_deduplication_window = ")
                && !definition.contains("non_replicated_deduplication_window = 0")
                && definition.contains("CONSTRAINT in_time CHECK") =>
        {
            Leases::Sound
        }
        Some(_) => Leases::Unsound,
    }
}

fn judge(lock: Lock, place: Place) -> Finding {
    let finding = |severity, text| Finding::new(severity, "locks", text);
    match (lock, place) {
        (Lock::None, _) => finding(Note, "leases are switched off (`lock` is none)")
            .mend("set `lock` to table, or on replicas to keeper"),
        (Lock::Keeper, Place { keeper: true, .. }) => {
            finding(Fine, "leases are kept in Keeper (`lock` is keeper)")
        }
        (Lock::Keeper, _) => finding(
            Problem,
            "`lock` is keeper, and this server has no Keeper or ZooKeeper, or this user may not see it",
        )
        .mend("configure <zookeeper> and <keeper_map_path_prefix>, or set `lock` to table"),
        (
            Lock::Table,
            Place {
                replicated: true,
                keeper,
                ..
            },
        ) => finding(
            Problem,
            "`lock` is table, which is exact on one server, and the states are on replicas: leases are refused or inexact",
        )
        .mend(match keeper {
            true => "set `lock` to keeper",
            false => "configure <keeper_map_path_prefix> and set `lock` to keeper",
        }),
        (Lock::Table, place) => match place.leases {
            Leases::Sound => finding(Fine, "leases are kept in a table (`lock` is table)"),
            Leases::NotThere => finding(
                Fine,
                "leases will be kept in a table (`lock` is table), which the first one makes, or `migrate`",
            ),
            Leases::Unsound => finding(
                Warning,
                "the table of leases lacks its deduplication window or its constraint: two may hold one lease",
            )
            .mend("drop the table of leases while nothing runs; the next lease makes it anew"),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_mode_is_judged_by_what_is_there() {
        let good =
            "... CONSTRAINT in_time CHECK x SETTINGS non_replicated_deduplication_window = 10000";
        let place = |keeper, replicated, definition: Option<&str>| {
            let rows: Vec<_> = definition
                .map(|text| vec![text.to_owned()])
                .into_iter()
                .collect();
            Place {
                keeper,
                replicated,
                leases: leases(&rows),
            }
        };
        let (one, many) = (false, true);
        for (lock, place, severity, words) in [
            (Lock::None, place(true, one, None), Note, "switched off"),
            (
                Lock::Keeper,
                place(true, many, None),
                Fine,
                "kept in Keeper",
            ),
            (
                Lock::Keeper,
                place(false, one, None),
                Problem,
                "has no Keeper",
            ),
            (
                Lock::Table,
                place(true, many, Some(good)),
                Problem,
                "on replicas",
            ),
            (Lock::Table, place(false, one, None), Fine, "will be kept"),
            (
                Lock::Table,
                place(false, one, Some(good)),
                Fine,
                "are kept in a table",
            ),
            (
                Lock::Table,
                place(false, one, Some(&good.replace("10000", "0"))),
                Warning,
                "lacks",
            ),
            (
                Lock::Table,
                place(false, one, Some(&good.replace("in_time", "other"))),
                Warning,
                "lacks",
            ),
        ] {
            let finding = judge(lock, place);
            assert_eq!(finding.severity, severity, "{finding:?}");
            assert!(finding.text.contains(words), "{finding:?}");
        }
    }
}
