//! A table of the server, with the rows of one state: what an insert under a token does to it.

use crate::version::Version;
use crate::writes::{self, Fate, Name, Sent};

/// A moment by the server's clock, which goes in large ticks. It is always 0 now: what was before is below that.
pub(super) type Tick = i64;

/// The column `writes`: versions and names, the newest first.
pub(super) type Writes = Vec<(Version, u64)>;

#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Row<C> {
    pub(super) version: Version,
    pub(super) writes: Writes,
    pub(super) content: C,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Table<C> {
    /// In the order of their versions. Of equal ones the last inserted comes last.
    pub(super) rows: Vec<Row<C>>,
    pub(super) tokens: Vec<Token>,
}

/// A token that is remembered, the oldest first: steps to one version share one.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Token {
    pub(super) version: Version,
    pub(super) stored: Tick,
}

impl<C> Table<C> {
    pub(super) fn new(rows: Vec<Row<C>>) -> Self {
        Self {
            rows,
            tokens: Vec::new(),
        }
    }

    /// What a reader sees (`FINAL`, `argMax`).
    pub(super) fn last(&self) -> Option<&Row<C>> {
        self.rows.last()
    }

    pub(super) fn at(&self, version: Version) -> Option<&Row<C>> {
        self.rows.iter().find(|row| row.version == version)
    }

    pub(super) fn remembers(&self, version: Version) -> bool {
        self.tokens.iter().any(|token| token.version == version)
    }

    /// Under the token of its version: whether the row is stored.
    pub(super) fn insert(&mut self, row: Row<C>) -> bool {
        if self.remembers(row.version) {
            return false;
        }
        self.tokens.push(Token {
            version: row.version,
            stored: 0,
        });
        self.insert_without_token(row)
    }

    pub(super) fn insert_without_token(&mut self, row: Row<C>) -> bool {
        let place = self
            .rows
            .partition_point(|other| other.version <= row.version);
        self.rows.insert(place, row);
        true
    }

    /// The reading back.
    pub(super) fn fate(&self, sent: Sent) -> Fate {
        let rows: Vec<(Version, String)> = self
            .rows
            .iter()
            .map(|row| (row.version, text(&row.writes)))
            .collect();
        writes::fate(&rows, sent)
    }

    /// The server merges parts: the last row alone stays. Whether there was anything to merge.
    pub(super) fn merge(&mut self) -> bool {
        let hidden = self.rows.len().saturating_sub(1);
        self.rows.drain(..hidden);
        hidden > 0
    }

    /// So many inserts for other states have come that the oldest token is forgotten, if it was stored by then.
    pub(super) fn forget(&mut self, by: Tick) -> bool {
        let old = self.tokens.first().is_some_and(|token| token.stored <= by);
        if old {
            self.tokens.remove(0);
        }
        old
    }

    /// Drops what makes no difference any more: rows below the last one that nobody reads back, names of writes before those,
    /// tokens that nobody sends again.
    pub(super) fn tidy(&mut self, read: Version, sent: Version) {
        let hidden = self.rows.len().saturating_sub(1);
        let unread = self.rows.partition_point(|row| row.version < read);
        self.rows.drain(..hidden.min(unread));
        let last = self.last().map_or(read, |row| row.version);
        for row in &mut self.rows {
            // A reader looks for the version that it went on from, too.
            row.writes
                .retain(|(at, _)| *at >= last || at.step() >= read);
        }
        self.tokens.retain(|token| token.version >= sent);
    }
}

/// As the code writes it.
pub(super) fn text(writes: &Writes) -> String {
    let oldest_first = writes.iter().rev();
    oldest_first.fold(String::new(), |before, (version, name)| {
        writes::add(&before, *version, Name(*name))
    })
}

/// The column of a row that is made from this version, if from any, whose own is `before`, if that is known.
pub(super) fn writes_of(
    from: Option<Version>,
    before: &Writes,
    version: Version,
    name: u64,
) -> Writes {
    let before = from.map_or_else(String::new, |from| writes::after(from, &text(before)));
    let writes = writes::add(&before, version, Name::new(name));
    writes::parse(&writes)
        .map(|(version, Name(name))| (version, name))
        .collect()
}
