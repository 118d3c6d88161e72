//! Times as text.

use std::time::{Duration, UNIX_EPOCH};

/// The end of the year 9999, the last one that can be written. What comes later is a broken row's.
const LAST: u64 = 253_402_300_799_999;

pub(super) fn utc(milliseconds: u64) -> String {
    let time = UNIX_EPOCH + Duration::from_millis(milliseconds.min(LAST));
    humantime::format_rfc3339_millis(time).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_time_can_be_written() {
        assert_eq!(utc(0), "1970-01-01T00:00:00.000Z");
        assert_eq!(utc(1_796_204_413_090), "2026-12-02T09:40:13.090Z");
        for far in [253_402_300_799_999, 253_402_300_800_000, u64::MAX] {
            assert_eq!(utc(far), "9999-12-31T23:59:59.999Z");
        }
    }
}
