"""The examples of the documentation, run."""

from __future__ import annotations

import doctest
import re
from pathlib import Path

import pytest

import meltano_state_backend_pipeline_state.manager
import pipeline_state
import pipeline_state._plugins
from conftest import Place

HERE = Path(__file__).parent


@pytest.mark.parametrize("readme", [HERE.parent / "README.md", HERE.parents[2] / "README.md"], ids=["own", "root"])
def test_what_the_readmes_show(readme: Path, place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIPELINE_STATE_URI", place.uri)
    monkeypatch.setenv("PIPELINE_STATE_CLICKHOUSE_SCHEMA", place.schema)
    programs = re.findall(r"^```python\n(.*?)^```$", readme.read_text(), re.DOTALL | re.MULTILINE)
    assert programs
    for program in programs:
        exec(compile(program, readme.name, "exec"), {})


@pytest.mark.parametrize(
    "module", [pipeline_state, pipeline_state._plugins, meltano_state_backend_pipeline_state.manager]
)
def test_examples(module: object, place: Place) -> None:
    uri = f"{place.uri}?schema={place.schema}"
    results = doctest.testmod(module, extraglobs={"uri": uri, "State": pipeline_state.State}, report=True)  # type: ignore[arg-type]
    assert results.attempted > 0
    assert results.failed == 0
