//! Times as text.

use std::time::{Duration, UNIX_EPOCH};

/// The end of the year 9999, the last one that can be written. What comes later is a broken row's.
const LAST: u64 = 253_402_300_799_999;

/// Milliseconds since 1970 in the form of RFC 3339.
pub(crate) fn utc(milliseconds: u64) -> String {
    humantime::format_rfc3339_millis(time(milliseconds)).to_string()
}

/// The same without the fraction.
pub(crate) fn utc_seconds(milliseconds: u64) -> String {
    humantime::format_rfc3339_seconds(time(milliseconds)).to_string()
}

fn time(milliseconds: u64) -> std::time::SystemTime {
    UNIX_EPOCH + Duration::from_millis(milliseconds.min(LAST))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_time_can_be_written() {
        assert_eq!(utc(1_796_204_413_090), "2026-12-02T09:40:13.090Z");
        assert_eq!(utc_seconds(1_796_204_413_090), "2026-12-02T09:40:13Z");
        assert_eq!(utc(u64::MAX), "9999-12-31T23:59:59.999Z");
    }
}
