//! Versions of a state, and how they follow one another.
//!
//! The version of a row is its `updated_at`, in nanoseconds since 1970. `ReplacingMergeTree` keeps the row with
//! the highest one. Three rules make the versions of one state grow, and every expectation exact:
//!
//! 1. A write that expects nothing takes the server's clock, or, where that is not above what is stored, a version far
//!    above that, with some chance. It comes to lie on top of whatever it did not see.
//! 2. A write that expects the version v (a *step*) takes v + 1, so it lies below every write of the first kind that it
//!    did not see: those have a million more at least. So such a write is never overwritten by a step that
//!    knows nothing of it; their order is "the step, then the write". Of two steps from v one alone is stored, since
//!    both are sent under one insert token.
//! 3. A state that is made again goes on from the version of its deletion, by the same two rules.
//!
//! A row of the Python backend has the server's clock and so obeys the first rule.

use crate::error::Error;

/// A version: nanoseconds since 1970, never negative.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Version(i64);

/// A creation that expects nothing to be there lies this much below the server's clock, in nanoseconds: above a row of the
/// Python backend that was sent before it would be stored unseen.
const CREATION_MARGIN: i64 = 1_000_000_000;

/// How far a write jumps over what is stored where the clock is behind, at least, and twice that at most: over all steps that
/// may be made meanwhile, and so that two writers that do so at the same moment hardly take the same version.
const JUMP: u64 = 1_000_000;

impl Version {
    pub(crate) fn new(nanoseconds: i64) -> Self {
        Self(nanoseconds.max(0))
    }

    /// Below all others; no row has it.
    pub(crate) const ZERO: Self = Self(0);

    #[cfg(test)]
    pub(crate) const fn from_nanoseconds(nanoseconds: i64) -> Self {
        Self(nanoseconds)
    }

    pub(crate) fn from_contract(version: u64) -> Result<Self, Error> {
        i64::try_from(version).map(Self).map_err(|_| {
            Error::InvalidInput(format!(
                "there is no version {version}: ClickHouse's end at {}",
                i64::MAX
            ))
        })
    }

    pub(crate) fn get(self) -> i64 {
        self.0
    }

    /// As a time since 1970.
    pub(crate) fn milliseconds(self) -> i64 {
        self.0 / 1_000_000
    }

    pub(crate) fn to_contract(self) -> u64 {
        self.0.unsigned_abs()
    }

    /// Of a step from this version.
    pub(crate) fn step(self) -> Self {
        Self(self.0.saturating_add(1))
    }

    /// Of a write that lies on top of this version. `now` is the server's clock, `chance` any number.
    pub(crate) fn top(self, now: Version, chance: u64) -> Self {
        let jump = i64::try_from(JUMP + chance % JUMP).unwrap_or_default();
        Self(now.0.max(self.0.saturating_add(jump)))
    }

    /// Of a write that lies on top of this version in a table of the Python backend, which keeps milliseconds.
    pub(crate) fn plain_top(self, now: Version) -> Self {
        const MILLISECOND: i64 = 1_000_000;
        let clock = now.0 - now.0.rem_euclid(MILLISECOND);
        let next = self.0.saturating_add(MILLISECOND);
        Self(clock.max(next - next.rem_euclid(MILLISECOND)))
    }

    /// Of a state that was never there, made by a write that expects that; this is the server's clock.
    pub(crate) fn creation(self) -> Self {
        Self::new(self.0.saturating_sub(CREATION_MARGIN))
    }
}

impl std::fmt::Display for Version {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Version = Version(1_796_199_517_390_704_202);

    #[test]
    fn a_step_lies_below_every_write_that_it_did_not_see() {
        for clock in [-1_000_000_000_i64, -1, 0, 1, 2, 1_000_000_000] {
            for chance in [0, 1, u64::MAX] {
                let unseen = NOW.top(Version(NOW.0 + clock), chance);
                assert!(NOW < NOW.step() && NOW.step() < unseen, "{clock} {chance}");
            }
        }
    }

    #[test]
    fn a_write_lies_on_top_of_many_steps_that_it_did_not_see_also_where_the_clock_is_behind() {
        let top = NOW.top(Version(0), 0);
        let steps = (0..1000).fold(NOW, |version, _| version.step());
        assert!(steps < top);
    }

    #[test]
    fn a_table_of_the_python_backend_gets_whole_milliseconds() {
        let stored = Version(5_000_000);
        assert_eq!(stored.plain_top(Version(7_900_001)), Version(7_000_000));
        assert_eq!(stored.plain_top(Version(5_900_000)), Version(6_000_000));
        assert_eq!(Version(5_000_001).plain_top(Version(0)), Version(6_000_000));
    }

    #[test]
    fn a_creation_lies_below_the_clock() {
        assert_eq!(NOW.creation().0, NOW.0 - CREATION_MARGIN);
        assert_eq!(Version(5).creation(), Version::ZERO);
    }

    #[test]
    fn versions_end_before_they_overflow() {
        let last = Version(i64::MAX);
        assert_eq!(last.step(), last);
        assert_eq!(last.top(NOW, 5), last);
        assert!(Version::from_contract(u64::MAX).is_err());
    }
}
