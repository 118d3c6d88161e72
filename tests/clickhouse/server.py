#!/usr/bin/env python3
"""Runs a real ClickHouse server for tests and demonstrations: a program that is installed, or else the wheel `chdb-core`.

The wheel links ClickHouse's own HTTP handler. Its private `_chdb.query()` runs the program `clickhouse local`, in which
`SYSTEM START LISTEN HTTP` opens the real listener, here on loopback alone. Nothing of the Python package but that
one function is used.

It reads one JSON object from standard input, so that no password stands in a process list:

    {"folder": "/tmp/x", "port": 0, "program": null, "zone": "UTC",
     "users": [{"name": "app", "password": "secret", "readonly": false, "grants": ["SELECT ON *.*"]}]}

where `program` is the path of a `clickhouse`, or null for the wheel, `zone` is the server's time zone, and a user
without `grants` may do everything. It prints `READY <port>` once requests are answered, and ends when standard input is closed, which is when the parent
ends, however it ends. The folder is removed then.
"""

import ctypes
import hashlib
import importlib.util
import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from xml.sax.saxutils import escape

USERS = """<clickhouse>
  <profiles>
    <default/>
    <readonly><readonly>1</readonly></readonly>
  </profiles>
  <users>
    <!-- The engine's own session is this user without a password; requests can't be. -->
    <default>
      <password/><networks><ip>127.0.0.1</ip><ip>::1</ip></networks>
      <profile>default</profile><quota>default</quota>
    </default>
    {users}
  </users>
  <quotas><default/></quotas>
</clickhouse>
"""

USER = """<{name}>
      <password_sha256_hex>{digest}</password_sha256_hex>
      <networks><ip>127.0.0.1</ip><ip>::1</ip></networks>
      <profile>{profile}</profile><quota>default</quota>{grants}
    </{name}>"""

CONFIG = """<clickhouse>
  <logger><level>none</level></logger>
  <log-level>none</log-level>
  <listen_host>127.0.0.1</listen_host>
  <http_port>{port}</http_port>
  <path>{folder}/data/</path>
  <timezone>{zone}</timezone>
  <mark_cache_size>67108864</mark_cache_size>
  <users_config>users.xml</users_config>
  <!-- A request that names no user is nobody, not `default`. -->
  <default_session_user></default_session_user>
</clickhouse>
"""


def free_port():
    """A port that nobody listens on now. Somebody may a moment later: then the caller starts anew."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def write_configuration(wanted, folder, port):
    users = "\n    ".join(
        USER.format(
            name=escape(user["name"]),
            digest=hashlib.sha256(user["password"].encode()).hexdigest(),
            profile="readonly" if user["readonly"] else "default",
            grants=grants(user.get("grants") or []),
        )
        for user in wanted["users"]
    )
    with open(os.path.join(folder, "users.xml"), "w", encoding="utf-8") as file:
        file.write(USERS.format(users=users))
    with open(os.path.join(folder, "config.xml"), "w", encoding="utf-8") as file:
        file.write(CONFIG.format(folder=escape(folder), port=port, zone=escape(wanted["zone"])))


def grants(rights):
    queries = "".join(f"<query>{escape(f'GRANT {right}')}</query>" for right in rights)
    return f"<grants>{queries}</grants>" if rights else ""


def load_engine():
    """The engine's library, without `import chdb`, which would open another engine first."""
    path = os.path.join(importlib.util.find_spec("chdb").submodule_search_locations[0], "_chdb.abi3.so")
    rtld_deepbind = 8  # its own allocator, as the package itself loads it
    ctypes.CDLL(path, mode=sys.getdlopenflags() | rtld_deepbind)
    spec = importlib.util.spec_from_file_location("_chdb", path)
    engine = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(engine)
    return engine


class Wheel:
    """The engine in this process. It holds its session open by reading a pipe that nothing is written to."""

    def __init__(self, folder):
        self.ended = threading.Event()
        engine = load_engine()
        os.mkfifo("hold")
        threading.Thread(target=self._serve, args=(engine, folder), daemon=True).start()
        self.hold = os.open("hold", os.O_RDWR)

    def _serve(self, engine, folder):
        query = (
            "SYSTEM START LISTEN HTTP;"
            f" SELECT count() FROM file('{folder}/hold', 'LineAsString', 'line String') FORMAT Null"
        )
        try:
            result = engine.query(query, "TabSeparated", path=os.path.join(folder, "data"))
            if result.has_error():
                print(result.error_message(), file=sys.stderr, flush=True)
        except BaseException as error:  # the thread's only way to say why it ended
            print(f"server.py: {error}", file=sys.stderr, flush=True)
        self.ended.set()

    def has_ended(self):
        return self.ended.is_set()

    def end(self):
        os.close(self.hold)  # ends the query, and so the engine
        self.ended.wait(10)


class Program:
    """An installed `clickhouse`, as a child."""

    def __init__(self, path):
        self.child = subprocess.Popen(
            [path, "server", "--config-file", "config.xml"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
        )

    def has_ended(self):
        return self.child.poll() is not None

    def end(self):
        self.child.terminate()
        try:
            self.child.wait(10)
        except subprocess.TimeoutExpired:
            self.child.kill()


def answers(port, user):
    """Whether it is this server that answers: somebody else's on the same port does not know the probe's password."""
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/",
        data=b"SELECT 1",
        headers={"X-ClickHouse-User": user["name"], "X-ClickHouse-Key": user["password"]},
    )
    try:
        with urllib.request.urlopen(request, timeout=1) as response:
            return response.read() == b"1\n"
    except OSError:
        return False


def wait_for_end_of_input(stop):
    """What the parent closes by ending, also when it is killed."""
    while sys.stdin.buffer.read(4096):
        pass
    stop.set()


def main():
    wanted = json.loads(sys.stdin.buffer.readline())
    folder = os.path.abspath(wanted["folder"])
    os.makedirs(os.path.join(folder, "data"), mode=0o700, exist_ok=True)
    port = wanted["port"] or free_port()
    probe = {"name": "probe", "password": secrets.token_hex(16), "readonly": True}
    wanted["users"].append(probe)
    write_configuration(wanted, folder, port)
    os.chdir(folder)  # where both look for their configuration

    stop = threading.Event()
    threading.Thread(target=wait_for_end_of_input, args=(stop,), daemon=True).start()
    server = Program(wanted["program"]) if wanted["program"] else Wheel(folder)
    while not answers(port, probe) and not server.has_ended() and not stop.is_set():
        time.sleep(0.01)
    for end in (signal.SIGTERM, signal.SIGINT):  # after the engine, which sets handlers of its own
        signal.signal(end, lambda *_: stop.set())
    if not server.has_ended():
        print(f"READY {port}", flush=True)
    while not stop.is_set() and not server.has_ended():
        stop.wait(0.2)
    server.end()
    os.chdir("/")
    shutil.rmtree(folder, ignore_errors=True)
    # Threads of the engine may be left: nothing of theirs is worth waiting for.
    os._exit(0 if stop.is_set() else 1)


if __name__ == "__main__":
    main()
