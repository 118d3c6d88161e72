"""The program `pipeline-state` beside `meltano state`: each reads what the other wrote, or differs on purpose."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from conftest import Place

PROGRAM = "PIPELINE_STATE_TEST_PROGRAM"

STATES: dict[str, dict[str, Any]] = {
    "dev:tap-to-target": {"completed": {"singer_state": {"bookmarks": {"a": {"at": "2026-12-01"}}}}, "partial": {}},
    "dev:tap-to-target:ü 'x'": {"completed": {}, "partial": {"singer_state": {"n": 2**63 + 1, "x": 1.5, "no": None}}},
    "prod:tap-to-target": {"completed": {"singer_state": {"n": 1}}, "partial": {"singer_state": {"n": [2, "\x00"]}}},
}


@dataclass(frozen=True)
class Done:
    code: int
    out: str


@dataclass(frozen=True)
class Project:
    """A Meltano project, in which both programs find where the state is."""

    folder: Path
    settings: dict[str, str]

    def run(self, program: Path, args: tuple[str, ...], stdin: str) -> Done:
        kept = {
            name: value for name, value in os.environ.items() if not name.startswith(("MELTANO_", "PIPELINE_STATE_"))
        }
        done = subprocess.run(
            [program, *args],
            cwd=self.folder,
            env={**kept, **self.settings, "NO_COLOR": "1", "MELTANO_CLI_LOG_LEVEL": "warning"},
            input=stdin,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        print(args, done.returncode, done.stdout, done.stderr)
        return Done(done.returncode, done.stdout)

    def meltano(self, *args: str, stdin: str = "") -> Done:
        return self.run(Path(sys.executable).with_name("meltano"), ("state", *args), stdin)

    def program(self, *args: str, stdin: str = "") -> Done:
        if PROGRAM not in os.environ:
            pytest.exit(f"{PROGRAM} must name `pipeline-state`; `cargo dev python` builds it")
        return self.run(Path(os.environ[PROGRAM]), args, stdin)

    def exported(self, exporting: str) -> dict[str, Any]:
        """Every state, as one of the two exports it. A document that is not there is an empty one."""
        done = self.program("export") if exporting == "program" else self.meltano("export")
        assert done.code == 0
        states: dict[str, dict[str, Any]] = json.loads(done.out)
        return {id: {name: document or {} for name, document in state.items()} for id, state in states.items()}


def project(folder: Path, settings: dict[str, str]) -> Project:
    folder.mkdir()
    folder.joinpath("meltano.yml").write_text("send_anonymous_usage_stats: false\nproject_id: test\n")
    return Project(folder, settings)


@pytest.fixture
def clickhouse(place: Place, tmp_path: Path) -> Project:
    return project(
        tmp_path / "clickhouse",
        {"MELTANO_STATE_BACKEND_URI": place.uri, "MELTANO_STATE_BACKEND_CLICKHOUSE_SCHEMA": place.schema},
    )


def test_each_imports_what_the_other_exports(clickhouse: Project, tmp_path: Path) -> None:
    own = project(tmp_path / "own", {})
    assert own.meltano("import", stdin=json.dumps(STATES)).code == 0
    exported = own.meltano("export").out
    assert clickhouse.program("import", "--quiet", stdin=exported) == Done(0, "")
    assert clickhouse.exported("program") == STATES

    other = project(tmp_path / "other", {})
    assert other.meltano("import", stdin=clickhouse.program("export").out).code == 0
    assert other.exported("meltano") == STATES


@pytest.mark.parametrize("kind", ["sqlite", "file"])
def test_what_meltano_has_itself_moves_over_and_back(clickhouse: Project, tmp_path: Path, kind: str) -> None:
    folder = tmp_path / "own"
    uri = {"sqlite": f"sqlite://{folder}/.meltano/meltano.db", "file": f"file://{folder}/states"}[kind]
    own = project(folder, {"MELTANO_STATE_BACKEND_URI": uri} if kind == "file" else {})
    # Meltano's folder takes no name like the second one's.
    states = {id: state for id, state in STATES.items() if kind == "sqlite" or "'" not in id}
    assert own.meltano("import", stdin=json.dumps(states)).code == 0

    assert clickhouse.program("sync", "--quiet", uri, ".").code == 0
    assert clickhouse.exported("program") == states
    changed = '{"singer_state": {"n": 18446744073709551617}}'
    for args in [
        ("set", "--force", "prod:tap-to-target", changed),
        ("set", "new", '{"singer_state": {}}'),
        ("sync", "--quiet", ".", uri),
    ]:
        assert clickhouse.program(*args).code == 0
    assert own.exported("meltano") == clickhouse.exported("program")
    assert json.loads(own.meltano("get", "prod:tap-to-target").out) == json.loads(changed)


ONE = '{"singer_state":{"bookmarks":{"a":1}}}'
TWO = '{"singer_state":{"bookmarks":{"b":2}}}'
BOTH = '{"singer_state":{"bookmarks":{"a":1,"b":2}}}'
BAD = '{"bookmarks":{}}'
DONE = Done(0, "")


def ask(question: str) -> Done:
    return Done(1, f"{question} Continue? [y/N]: ")


@dataclass(frozen=True)
class Step:
    """A command, with `@` before each ID, which stands for what tells the IDs of the two programs apart."""

    args: tuple[str, ...]
    meltano: Done
    ours: Done | None = None
    """What ours does, if it is not the same, and why not."""
    why: str = ""
    stdin: str = ""


ASKS_LESS = "it asks only where something would be replaced"
NO_STATE = "that there is no such state is an error"
CODE = "the code tells the kind of the error"
NOT_A_TERMINAL = "where nobody can be asked, nothing is asked, and the code is that of wrong usage"

STEPS = [
    Step(("get", "@a"), Done(0, "{}\n"), Done(3, ""), NO_STATE),
    Step(("set", "@a", ONE), ask("This will overwrite the state's current value."), DONE, ASKS_LESS),
    Step(("set", "@a", TWO), ask("This will overwrite the state's current value."), Done(2, ""), NOT_A_TERMINAL),
    Step(("set", "--force", "@a", ONE), DONE),
    Step(("set", "--force", "@bad", BAD), Done(1, ""), Done(2, ""), CODE),
    Step(("set", "--force", "--no-validate", "@bad", BAD), DONE),
    Step(("set", "--force", "--input-file", "two.json", "@b"), DONE),
    Step(("list", "--pattern", "@*"), Done(0, "@a\n@b\n@bad\n")),
    Step(("get", "@a"), Done(0, ONE + "\n"), Done(0, f'{{"completed": {ONE}, "partial": {{}}}}\n'), "it shows both"),
    Step(("merge", "@a", "--from-state-id", "@b"), DONE),
    Step(("merge", "@a", BAD), Done(1, ""), Done(2, ""), CODE),
    Step(("merge", "@new", TWO), DONE),
    Step(("copy", "--force", "@b", "@c"), DONE),
    Step(("copy", "@b", "@c"), ask("This will overwrite state for the destination."), DONE, ASKS_LESS),
    Step(("move", "--force", "@c", "@d"), DONE),
    Step(("move", "--force", "@c", "@d"), Done(1, ""), Done(3, ""), NO_STATE),
    Step(("clear", "--force", "@none"), DONE, Done(3, ""), NO_STATE),
    Step(("clear", "@d"), ask("This will clear state for the job(s)."), Done(2, ""), NOT_A_TERMINAL),
    Step(("clear", "--force", "@d"), DONE),
    Step(("import", "-"), DONE, stdin=f'{{"@i": {{"completed": {ONE}, "partial": {{}}}}}}'),
    Step(("import",), Done(1, ""), Done(2, ""), CODE, stdin="nonsense"),
    Step(("import",), DONE, Done(2, ""), "it checks", stdin=f'{{"@j": {{"completed": {BAD}, "partial": {{}}}}}}'),
]


def test_each_command_side_by_side_on_the_same_tables(clickhouse: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    (clickhouse.folder / "two.json").write_text(TWO)

    def run(prefix: str, step: Step) -> Done:
        args = tuple(arg.replace("@", prefix) for arg in step.args)
        command = clickhouse.meltano if prefix == "m:" else clickhouse.program
        done = command(*args, stdin=step.stdin.replace("@", prefix))
        return Done(done.code, done.out.replace(prefix, "@"))

    for step in STEPS:
        assert (run("m:", step), step.args) == (step.meltano, step.args)
        assert (run("p:", step), step.args) == (step.ours or step.meltano, step.args)
        assert (step.ours is None) == (step.why == "")

    # Whoever wrote them, either reads them, and they are the same.
    for exporting in ["meltano", "program"]:
        states = clickhouse.exported(exporting)
        of = {prefix: {id[2:]: states[id] for id in states if id.startswith(prefix)} for prefix in ["m:", "p:"]}
        # Meltano imported what it would not read.
        assert of["m:"].pop("j") == {"completed": json.loads(BAD), "partial": {}}
        assert of["m:"] == of["p:"]
        assert of["p:"].keys() == {"a", "b", "bad", "i", "new"}
    assert json.loads(clickhouse.meltano("get", "p:a").out) == json.loads(BOTH)
    assert json.loads(clickhouse.program("get", "--merged", "m:a").out) == json.loads(BOTH)
    pretty = clickhouse.meltano("get", "--format", "pretty", "p:b").out
    assert clickhouse.program("get", "--merged", "--format", "pretty", "m:b").out == pretty

    # Each opens what it shows with `get` in an editor.
    editor = clickhouse.folder / "editor"
    editor.write_text("""#!/bin/sh\nsed -i 's/"b": *2/"b":3/' "$1"\n""")
    editor.chmod(0o700)
    monkeypatch.delenv("VISUAL", raising=False)
    monkeypatch.setenv("EDITOR", str(editor))
    assert clickhouse.meltano("edit", "--force", "m:b") == clickhouse.program("edit", "--force", "p:b") == DONE
    states = clickhouse.exported("program")
    assert states["m:b"] == states["p:b"] == {"completed": json.loads(TWO.replace("2", "3")), "partial": {}}

    assert clickhouse.meltano("clear", "--all") == ask("This will clear state for the job(s).")
    assert clickhouse.program("clear", "--all") == Done(2, "")
    assert clickhouse.meltano("clear", "--all", "--force") == DONE
    assert clickhouse.program("list") == clickhouse.meltano("list") == DONE
    assert clickhouse.program("set", "a", ONE) == DONE
    assert clickhouse.program("clear", "--all", "--force", "--quiet") == DONE
    assert clickhouse.meltano("list") == DONE
