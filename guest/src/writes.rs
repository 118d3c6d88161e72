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
    /// It was stored, and another one of the same token too: the server takes no notice of tokens.
    Doubled,
}

/// The fate of the write `name`, which was to have the version `version`. `rows` are the versions and `writes` of
/// all rows of the state. A creation is a write of a state that was not there.
pub(crate) fn fate(
    rows: &[(Version, String)],
    version: Version,
    name: Name,
    creation: bool,
) -> Fate {
    // A step is hidden by nothing below it.
    let rows: Vec<_> = rows
        .iter()
        .filter(|(at, _)| creation || *at >= version)
        .collect();
    if rows.is_empty() {
        return Fate::Dropped;
    }
    let entries = || rows.iter().flat_map(|(_, writes)| parse(writes));
    let mine = entries().any(|(_, known)| known == name);
    // Of all creations of one token only one can be, and it has nobody before it.
    let rival = match creation {
        true => rows.iter().any(|(_, writes)| {
            let all: Vec<_> = parse(writes).collect();
            let first = all.last().map(|(_, first)| *first);
            all.len() < KEPT && first.is_some_and(|first| first != name && first != UNNAMED)
        }),
        false => entries().any(|(at, known)| at == version && known != name),
    };
    match (mine, rival) {
        (true, false) => Fate::Stored,
        (true, true) => Fate::Doubled,
        (false, true) => Fate::Lost,
        (false, false) => Fate::Covered,
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

    #[test]
    fn a_write_is_recognized_also_after_it_was_overtaken() {
        let rows = |writes: &str| vec![(at(99), writes.to_owned())];
        assert_eq!(
            fate(&rows(&chain(10, &[1])), at(10), MINE, false),
            Fate::Stored
        );
        assert_eq!(
            fate(&rows(&chain(10, &[1, 5, 6])), at(10), MINE, false),
            Fate::Stored
        );
        assert_eq!(
            fate(&rows(&chain(10, &[2])), at(10), MINE, false),
            Fate::Lost
        );
        assert_eq!(
            fate(&rows(&chain(10, &[2, 5, 6])), at(10), MINE, false),
            Fate::Lost
        );
        let far = chain(10, &[1, 2, 3, 4, 5, 6, 7, 8, 9]);
        assert_eq!(fate(&rows(&far), at(10), MINE, false), Fate::Covered);
        assert_eq!(fate(&rows(""), at(10), MINE, false), Fate::Covered);
        assert_eq!(fate(&[], at(10), MINE, false), Fate::Dropped);
        let below = [(at(9), chain(9, &[5]))];
        assert_eq!(fate(&below, at(10), MINE, false), Fate::Dropped);
    }

    #[test]
    fn two_rows_of_one_token_show_that_tokens_are_switched_off() {
        let row = |name| (at(10), add("9:9", at(10), name));
        assert_eq!(
            fate(&[row(MINE), row(OTHER)], at(10), MINE, false),
            Fate::Doubled
        );
        assert_eq!(fate(&[row(OTHER)], at(10), MINE, false), Fate::Lost);
    }

    #[test]
    fn of_creations_only_one_can_be_the_first() {
        let created = |version, name| (at(version), add("", at(version), name));
        assert_eq!(fate(&[created(10, MINE)], at(10), MINE, true), Fate::Stored);
        // Another writer's clock gave it another version.
        assert_eq!(fate(&[created(12, OTHER)], at(10), MINE, true), Fate::Lost);
        let both = [created(10, MINE), created(12, OTHER)];
        assert_eq!(fate(&both, at(10), MINE, true), Fate::Doubled);
        // The Python backend has written meanwhile.
        let python = (at(20), String::new());
        assert_eq!(fate(&[python], at(10), MINE, true), Fate::Covered);
        let after_python = add(&after(at(20), ""), at(21), OTHER);
        assert_eq!(
            fate(&[(at(21), after_python)], at(10), MINE, true),
            Fate::Covered
        );
        let overtaken = (at(20), chain(10, &[1, 7]));
        assert_eq!(fate(&[overtaken], at(10), MINE, true), Fate::Stored);
    }

    #[test]
    fn what_others_put_into_the_column_does_no_harm() {
        for writes in ["", " ", "x", "1:", ":1", "1:zz", "a:1 b", "-5:1"] {
            let _ = parse(writes).count();
            assert!(add(writes, at(1), MINE).starts_with("1:0000000000000001"));
        }
    }
}
