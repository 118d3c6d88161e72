//! Which write a row is from, and which ones came before it: how a writer learns whether it was heard.
//!
//! The server drops all but one of the inserts that are sent under one token, and tells nobody. So each row carries a
//! random name of its write, and those of the last writes before it: `version:name version:name ...`, the newest
//! first. A writer reads back the rows from its own version on. It finds its name in one of them, or that of the
//! write that was stored instead, or learns that others have written over both.

use std::fmt::Write as _;

use crate::version::Version;

/// So many writes may overtake one before it is confirmed, and it is still recognized.
const KEPT: usize = 8;

/// The name of a write: 64 random bits. It need only differ from those of writers that choose the same version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Name(pub(crate) u64);

/// Stands for a write that gave no name: the Python backend's, or one of many at once.
pub(crate) const UNNAMED: Name = Name(0);

impl Name {
    pub(crate) fn new(random: u64) -> Self {
        Self(random.max(1))
    }
}

impl std::fmt::Display for Name {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// The column `writes` of a row that follows the row of version `version` with `before`.
pub(crate) fn after(version: Version, before: &str) -> String {
    match before.is_empty() {
        true => format!("{version}:{UNNAMED}"),
        false => before.to_owned(),
    }
}

/// The column `writes` of a new row, `before` being what `after` says of the row that it follows, if any.
pub(crate) fn add(before: &str, version: Version, name: Name) -> String {
    let mut writes = format!("{version}:{name}");
    for entry in before
        .split(' ')
        .filter(|entry| !entry.is_empty())
        .take(KEPT - 1)
    {
        // Writing to a string does not fail.
        let _ = write!(writes, " {entry}");
    }
    writes
}

/// The writes of one row, the newest first. What someone else put into the column is passed over.
pub(crate) fn parse(writes: &str) -> impl Iterator<Item = (Version, Name)> {
    writes.split(' ').filter_map(|entry| {
        let (version, name) = entry.split_once(':')?;
        let version = Version::new(version.parse().ok()?);
        Some((version, Name(u64::from_str_radix(name, 16).ok()?)))
    })
}

/// What the rows say of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// It was stored, whatever came over it since.
    Stored,
    /// Another one was stored in its place.
    Lost,
    /// Nothing is there: its token was used up by a row that is gone.
    Dropped,
    /// Others came over it, or over the one that was stored in its place, and their rows don't tell which.
    Covered,
    /// It was stored, and another one of the same token too: the server takes no notice of tokens, or has forgotten
    /// this one.
    Doubled,
}

/// A write that is to be confirmed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sent {
    pub(crate) name: Name,
    pub(crate) version: Version,
    /// The version that it was made of; none for a creation, of a state that was not there.
    pub(crate) from: Option<Version>,
}

/// The fate of a write. `rows` are the versions and `writes` of all rows of the state.
///
/// That its row is there does not suffice: a writer that was held up for long may come when the server has forgotten the
/// token, and its row then lies unseen below those of others. It counts where it is the last row, where the
/// last row names it, or where a row above it shows that it was made of the same version.
pub(crate) fn fate(rows: &[(Version, String)], sent: Sent) -> Fate {
    let creation = sent.from.is_none();
    // A step is hidden by nothing below it.
    let rows: Vec<(Version, Vec<(Version, Name)>)> = rows
        .iter()
        .filter(|(at, _)| creation || *at >= sent.version)
        .map(|(at, writes)| (*at, parse(writes).collect()))
        .collect();
    let Some((_, last)) = rows.iter().max_by_key(|(at, _)| *at) else {
        return Fate::Dropped;
    };
    let names = |writes: &[(Version, Name)]| writes.iter().any(|(_, name)| *name == sent.name);
    let rival = match sent.from {
        // Of all creations of one token only one can be, and it has nobody before it.
        None => rows.iter().any(|(_, writes)| {
            let first = writes.last().map(|(_, first)| *first);
            writes.len() < KEPT && first.is_some_and(|first| first != sent.name && first != UNNAMED)
        }),
        Some(_) => rows
            .iter()
            .flat_map(|(_, writes)| writes)
            .any(|(at, name)| *at == sent.version && *name != sent.name),
    };
    let stored = rows.iter().any(|(_, writes)| names(writes));
    let counts = names(last)
        || sent.from.is_some_and(|from| {
            let made_of_the_same = |writes: &[(Version, Name)]| {
                !names(writes) && writes.iter().any(|(at, _)| *at == from)
            };
            rows.iter().any(|(_, writes)| made_of_the_same(writes))
        });
    match (stored, rival) {
        (true, true) => Fate::Doubled,
        (true, false) if counts => Fate::Stored,
        (false, true) => Fate::Lost,
        _ => Fate::Covered,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINE: Name = Name(1);
    const OTHER: Name = Name(2);

    fn at(version: i64) -> Version {
        Version::new(version)
    }

    fn chain(from: i64, names: &[u64]) -> String {
        names
            .iter()
            .zip(from..)
            .fold(String::new(), |before, (name, version)| {
                add(&before, at(version), Name(*name))
            })
    }

    #[test]
    fn a_row_names_the_last_writes_the_newest_first() {
        let writes = chain(10, &[1, 2, 3]);
        assert_eq!(
            writes,
            "12:0000000000000003 11:0000000000000002 10:0000000000000001"
        );
        let long = chain(0, &[0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
        assert_eq!(parse(&long).count(), KEPT);
        assert_eq!(parse(&long).next(), Some((at(9), Name(9))));
    }

    /// A step from version 9 to 10.
    const STEP: Sent = Sent {
        name: MINE,
        version: Version::from_nanoseconds(10),
        from: Some(Version::from_nanoseconds(9)),
    };
    const CREATION: Sent = Sent { from: None, ..STEP };

    #[test]
    fn a_write_is_recognized_also_after_it_was_overtaken() {
        let last = |writes: &str| fate(&[(at(99), writes.to_owned())], STEP);
        assert_eq!(last(&chain(10, &[1])), Fate::Stored);
        assert_eq!(last(&chain(10, &[1, 5, 6])), Fate::Stored);
        assert_eq!(last(&chain(10, &[2])), Fate::Lost);
        assert_eq!(last(&chain(10, &[2, 5, 6])), Fate::Lost);
        assert_eq!(
            last(&chain(10, &[1, 2, 3, 4, 5, 6, 7, 8, 9])),
            Fate::Covered
        );
        assert_eq!(last(""), Fate::Covered);
        assert_eq!(fate(&[], STEP), Fate::Dropped);
        let below = [(at(9), chain(9, &[5]))];
        assert_eq!(fate(&below, STEP), Fate::Dropped);
    }

    #[test]
    fn a_write_that_expects_nothing_may_come_in_between() {
        let mine = (at(10), chain(9, &[7, 1]));
        // It was made of version 9 as well, so nobody else was at 10 before it.
        let top = (at(50), add(&chain(9, &[7]), at(50), OTHER));
        assert_eq!(fate(&[mine.clone(), top.clone()], STEP), Fate::Stored);
        assert_eq!(fate(&[top], STEP), Fate::Covered);
        // The Python backend names nothing.
        assert_eq!(fate(&[mine, (at(50), String::new())], STEP), Fate::Covered);
    }

    /// The server remembers so and so many tokens. A writer that comes after that finds its row, below all others.
    #[test]
    fn a_row_that_came_too_late_does_not_count() {
        let mine = (at(10), chain(9, &[7, 1]));
        let far = (at(20), chain(12, &[2, 3, 4, 5, 6, 7, 8, 9]));
        assert_eq!(fate(&[mine.clone(), far], STEP), Fate::Covered);
        let near = (at(12), chain(10, &[2, 3, 4]));
        assert_eq!(fate(&[mine, near], STEP), Fate::Doubled);
    }

    #[test]
    fn two_rows_of_one_token_show_that_tokens_are_switched_off() {
        let row = |name| (at(10), add("9:9", at(10), name));
        assert_eq!(fate(&[row(MINE), row(OTHER)], STEP), Fate::Doubled);
        assert_eq!(fate(&[row(OTHER)], STEP), Fate::Lost);
    }

    #[test]
    fn of_creations_only_one_can_be_the_first() {
        let created = |version, name| (at(version), add("", at(version), name));
        assert_eq!(fate(&[created(10, MINE)], CREATION), Fate::Stored);
        // Another writer's clock gave it another version.
        assert_eq!(fate(&[created(12, OTHER)], CREATION), Fate::Lost);
        let both = [created(10, MINE), created(12, OTHER)];
        assert_eq!(fate(&both, CREATION), Fate::Doubled);
        // The Python backend has written meanwhile.
        let python = (at(20), String::new());
        assert_eq!(fate(&[python], CREATION), Fate::Covered);
        let after_python = add(&after(at(20), ""), at(21), OTHER);
        assert_eq!(fate(&[(at(21), after_python)], CREATION), Fate::Covered);
        let overtaken = (at(20), chain(10, &[1, 7]));
        assert_eq!(fate(&[overtaken], CREATION), Fate::Stored);
    }

    #[test]
    fn what_others_put_into_the_column_does_no_harm() {
        for writes in ["", " ", "x", "1:", ":1", "1:zz", "a:1 b", "-5:1"] {
            let _ = parse(writes).count();
            assert!(add(writes, at(1), MINE).starts_with("1:0000000000000001"));
        }
    }
}
