//! Leases, against a real ClickHouse.
