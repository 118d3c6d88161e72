"""A real Meltano project: `meltano` itself, a tap and a target of other people, and its state kept by this add-on.

The tap reads an HTTP interface hour by hour, and says after each how far it got; the target says so each time that it
has written two rows. What is asked of the interface shows from which state a run has started.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from shutil import copy
from threading import Event, Thread
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from test_python_backend import PythonBackend

from conftest import Place

PLUGINS = "PIPELINE_STATE_TEST_PLUGINS"
ID = "dev:tap-rest-api-to-target-duckdb"
START = datetime(2026, 11, 1)


def hour(number: int) -> str:
    # As the tap writes it: without a time zone, in that of its process.
    return (START + timedelta(hours=number)).isoformat()


def events(hours: Iterable[int]) -> list[int]:
    """The numbers of all events of some hours."""
    return [3 * number + n for number in hours for n in range(3)]


@dataclass
class Source:
    """The interface: three events an hour, of which it gives those of one hour."""

    asked: list[str] = field(default_factory=list)
    """From when on it was asked for events, by each request."""
    held_back: str | None = None
    """What is asked for from this time on gets no answer."""
    gone: Event = field(default_factory=Event)
    url: str = ""

    def answer(self, since: str) -> list[dict[str, object]]:
        self.asked.append(since)
        if since == self.held_back:
            self.gone.wait()
        begin = datetime.fromisoformat(since)
        numbers = events([(begin - START) // timedelta(hours=1)])
        return [{"n": n, "at": (begin + timedelta(minutes=n % 3)).isoformat()} for n in numbers]


@pytest.fixture
def source() -> Iterator[Source]:
    source = Source()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            (since,) = parse_qs(urlsplit(self.path).query)["since"]
            answer = json.dumps(source.answer(since)).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            with suppress(BrokenPipeError):  # of who was killed meanwhile
                self.wfile.write(answer)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        source.url = f"http://127.0.0.1:{server.server_address[1]}/?since={{start_datetime}}"
        Thread(target=server.serve_forever, daemon=True).start()
        yield source
        source.gone.set()
        server.shutdown()


@dataclass
class Project:
    folder: Path
    plugins: Path
    environment: dict[str, str]

    def start(self, *args: str, **variables: str) -> subprocess.Popen[str]:
        # A group of its own, so that all of it can be killed.
        return subprocess.Popen(
            [Path(sys.executable).with_name("meltano"), *args],
            cwd=self.folder,
            env={**self.environment, **variables},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def meltano(self, *args: str, fails: bool = False, **variables: str) -> str:
        """What a command prints. What it logs goes where the error of a failing test is shown."""
        process = self.start(*args, **variables)
        try:
            printed, logged = process.communicate(timeout=120)
        except BaseException:
            os.killpg(process.pid, signal.SIGKILL)
            raise
        assert (process.returncode != 0) == fails, logged + printed
        return printed + logged if fails else printed

    def run(self, hours: int, *args: str) -> str:
        return self.meltano("run", *args, "tap-rest-api", "target-duckdb", TAP_REST_API_END_DATETIME=hour(hours))

    def state(self, *args: str) -> str:
        return self.meltano("state", *args).strip()

    def rows(self) -> list[int]:
        """The numbers of the events that the target has written."""
        program = (
            "import duckdb; events = duckdb.connect('events.duckdb').table('events')\n"
            "print(*sorted(row[0] for row in events.project('n').distinct().fetchall()), sep='\\n')"
        )
        python = self.plugins / "target/bin/python"
        done = subprocess.run([python, "-c", program], cwd=self.folder, check=True, capture_output=True, text=True)
        return [int(line) for line in done.stdout.splitlines()]


@pytest.fixture
def project(place: Place, source: Source, tmp_path: Path) -> Project:
    if PLUGINS not in os.environ:
        pytest.exit(f"{PLUGINS} must be a folder with a tap and a target; `cargo dev python` makes one")
    plugins = Path(os.environ[PLUGINS])
    copy(Path(__file__).with_name("meltano") / "meltano.yml", tmp_path)
    columns = {"n": {"type": "integer"}, "at": {"type": "string"}}
    schema = {"selected": True, "type": "object", "properties": columns}
    (tmp_path / "schemas").mkdir()
    (tmp_path / "schemas" / "events.json").write_text(json.dumps(schema))
    # What a project has in its `.env`; the schema is not the default one, so that its setting counts.
    (tmp_path / ".env").write_text(
        f"MELTANO_STATE_BACKEND_URI='{place.uri}'\nMELTANO_STATE_BACKEND_CLICKHOUSE_SCHEMA={place.schema}\n"
    )
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith(("MELTANO_", "PIPELINE_STATE_"))},
        "PATH": os.pathsep.join([os.environ["PATH"], str(plugins / "tap/bin"), str(plugins / "target/bin")]),
        "TAP_REST_API_URL": source.url,
        "NO_COLOR": "1",
        "TZ": "UTC",
    }
    return Project(tmp_path, plugins, environment)


def bookmark(until: int) -> dict[str, Any]:
    return {"singer_state": {"bookmarks": {"events": {"last_update": hour(until)}}}}


def reached(state: Any) -> str:
    last: str = state["singer_state"]["bookmarks"]["events"]["last_update"]
    return last


def test_a_project_moves_over_and_back_and_each_run_goes_on_where_the_last_one_ended(
    project: Project, place: Place, source: Source
) -> None:
    # The Python backend was there before, and got as far as the second hour.
    theirs = PythonBackend(place)
    theirs.set(ID, bookmark(2), {})
    project.run(5)
    assert source.asked == [hour(2), hour(3), hour(4)]
    project.run(6)
    assert source.asked == [hour(number) for number in (2, 3, 4, 5)]
    assert project.rows() == events([2, 3, 4, 5])
    # It could go on from here.
    stored = theirs.get(ID)
    assert stored is not None
    assert (reached(stored[0]), stored[1]) == (hour(6), {})
    assert theirs.ids() == [ID]


def test_a_run_that_was_killed_is_gone_on_with(project: Project, place: Place, source: Source) -> None:
    source.held_back = hour(3)
    killed = project.start("run", "tap-rest-api", "target-duckdb", TAP_REST_API_END_DATETIME=hour(5))
    try:
        store = place.store()
        deadline = time.monotonic() + 90
        entry = None
        # The tap waits for the fourth hour. The target has written the first two, and a part of the third.
        while time.monotonic() < deadline and killed.poll() is None:
            entry = store.get(ID)
            if entry is not None and hour(2) in (entry.state.completed or ""):
                break
            time.sleep(0.1)
    finally:
        if killed.poll() is None:
            os.killpg(killed.pid, signal.SIGKILL)
    _, logged = killed.communicate()
    assert killed.returncode == -signal.SIGKILL, logged
    assert entry is not None
    assert reached(json.loads(entry.state.completed or "{}")) == hour(2)

    source.asked.clear()
    source.held_back = None
    # Its own database takes the killed run for one that is under way still.
    project.run(5, "--force")
    assert source.asked == [hour(2), hour(3), hour(4)]
    assert project.rows() == events(range(5))
    done = place.manager().get(ID)
    assert done is not None
    assert (reached(done.completed_state), done.partial_state) == (hour(5), {})
    # No lock was left behind.
    assert store.holders() == []


def test_each_command_of_meltano_state(project: Project, place: Place, tmp_path: Path) -> None:
    theirs = PythonBackend(place)
    state = project.state
    one, two = '{"singer_state": {"a": 1, "of": {"x": 1}}}', '{"singer_state": {"b": 18446744073709551617}}'

    state("set", "--force", "dev:one", one)
    assert json.loads(state("get", "dev:one")) == json.loads(one)
    assert theirs.get("dev:one") == (json.loads(one), {})
    (tmp_path / "two.json").write_text(two)
    state("set", "--force", "--input-file", str(tmp_path / "two.json"), "dev:two")
    assert state("list").splitlines() == ["dev:one", "dev:two"]
    assert state("list", "--pattern", "*:o*").splitlines() == ["dev:one"]

    state("merge", "dev:one", '{"singer_state": {"of": {"y": 2}}}')
    merged = {"singer_state": {"a": 1, "of": {"x": 1, "y": 2}}}
    assert json.loads(state("get", "dev:one")) == merged
    assert theirs.get("dev:one") == (json.loads(one), {"singer_state": {"of": {"y": 2}}})
    state("merge", "--from-state-id", "dev:two", "dev:one")
    merged["singer_state"]["b"] = 18446744073709551617
    assert json.loads(state("get", "dev:one")) == merged

    state("copy", "--force", "dev:one", "dev:three")
    state("move", "--force", "dev:two", "dev:four")
    assert theirs.ids() == ["dev:four", "dev:one", "dev:three"]
    assert theirs.get("dev:three") == (merged, {})
    assert theirs.get("dev:four") == (json.loads(two), {})

    exported = state("export")
    assert set(json.loads(exported)) == {"dev:four", "dev:one", "dev:three"}
    state("clear", "--force", "dev:three")
    assert state("list").splitlines() == ["dev:four", "dev:one"]
    state("clear", "--force", "--all")
    assert state("list") == ""
    (tmp_path / "all.json").write_text(exported)
    state("import", str(tmp_path / "all.json"))
    assert json.loads(state("export")) == json.loads(exported)


def test_a_command_under_lock_run_writes_under_its_lease(project: Project, place: Place) -> None:
    program = os.environ["PIPELINE_STATE_TEST_PROGRAM"]
    environment = {**project.environment, "PIPELINE_STATE_URI": place.uri}
    meltano = [str(Path(sys.executable).with_name("meltano")), "state", "set", "--force", ID, json.dumps(bookmark(1))]
    # Were the lease not its own too, it would wait for itself.
    done = subprocess.run(
        [program, "lock", "run", "--setting", f"schema={place.schema}", ID, "--", *meltano],
        cwd=project.folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=25,
    )
    assert done.returncode == 0, done.stderr
    stored = PythonBackend(place).get(ID)
    assert stored is not None
    assert reached(stored[0]) == hour(1)
    assert place.store().holders() == []


def test_what_is_wrong_is_told_in_a_line(project: Project) -> None:
    told = project.meltano("state", "list", fails=True, MELTANO_STATE_BACKEND_URI="clickhouse://u:sekret@127.0.0.1:1/d")
    assert "nothing listens at http://127.0.0.1:1; check the host and the port" in told
    assert "Traceback" not in told
    assert "sekret" not in told
