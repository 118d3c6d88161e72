"""The settings of the add-on, as Meltano asks for them at each of its commands: `state_backend.clickhouse.<name>`.

They are what the plugin declares; a test holds the two against each other. None has its default here: Meltano hands on
defaults as if they were given, and what is given wins over the URI.
"""

from __future__ import annotations

from meltano.core.setting_definition import SettingDefinition, SettingKind


def _setting(
    name: str,
    kind: SettingKind,
    label: str,
    description: str | None = None,
    *,
    sensitive: bool = False,
) -> SettingDefinition:
    return SettingDefinition(
        name=f"state_backend.clickhouse.{name}",
        kind=kind,
        label=label,
        description=description or label,
        sensitive=sensitive,
        env_specific=True,
    )


_TEXT, _INTEGER, _BOOLEAN = SettingKind.STRING, SettingKind.INTEGER, SettingKind.BOOLEAN

# Those of the Python backend, by its names and labels.
host = _setting("host", _TEXT, "ClickHouse Host", "Name or address of the server; localhost where none is given")
port = _setting("port", _INTEGER, "ClickHouse Port (HTTP interface)", "8123 where none is given; with `secure`, 8443")
database = _setting("database", _TEXT, "ClickHouse Database", "Database of the connection; the state is in `schema`")
user = _setting("user", _TEXT, "ClickHouse User")
password = _setting("password", _TEXT, "ClickHouse Password", sensitive=True)
secure = _setting("secure", _BOOLEAN, "ClickHouse Secure (TLS)", "Whether to use HTTPS")
schema = _setting("schema", _TEXT, "ClickHouse Schema", "Database that holds the state; `meltano` where none is given")
table = _setting("table", _TEXT, "ClickHouse Table", "Table that holds the state; `state` where none is given")

# Ours.
cluster = _setting("cluster", _TEXT, "ClickHouse Cluster", "Cluster on which tables are made (ON CLUSTER)")
engine = _setting("engine", _TEXT, "ClickHouse Engine", "Engine of new tables; ReplacingMergeTree where none is given")
insert_quorum = _setting("insert_quorum", _TEXT, "ClickHouse Quorum", "Replicas that must have a write, or `auto`")
select_sequential_consistency = _setting(
    "select_sequential_consistency", _BOOLEAN, "ClickHouse Sequential Consistency", "Reads wait for what a quorum has"
)
connect_timeout = _setting("connect_timeout", _TEXT, "ClickHouse Connection Time-out", "Seconds; 10 if none is given")
request_timeout = _setting("request_timeout", _TEXT, "ClickHouse Request Time-out", "Seconds; 60 if none is given")
compress = _setting("compress", _BOOLEAN, "ClickHouse Compression", "Whether bodies above 1 KiB travel as gzip")
skip_unchanged = _setting(
    "skip_unchanged",
    _BOOLEAN,
    "Skip Unchanged",
    "A write of what is stored already writes nothing; true if not given",
)
refuse_empty = _setting("refuse_empty", _BOOLEAN, "Refuse Empty", "A write that would empty a state is refused")
history = _setting("history", _BOOLEAN, "History", "New tables keep the history of states, in <table>_history")
history_days = _setting("history_days", _INTEGER, "History Days", "Days of history; 30 where none are given")
lock = _setting("lock", _TEXT, "Lock", "How locks are kept: `table` where nothing is given, `keeper` or `none`")

NAMES = tuple(name for name, value in list(globals().items()) if isinstance(value, SettingDefinition))
"""All of them, by the names under which Meltano hands them on."""
