"""The examples of the documentation, run."""

from __future__ import annotations

import doctest

import pytest

import meltano_state_backend_pipeline_state.manager
import pipeline_state
import pipeline_state._plugins
from conftest import Place


@pytest.mark.parametrize(
    "module", [pipeline_state, pipeline_state._plugins, meltano_state_backend_pipeline_state.manager]
)
def test_examples(module: object, place: Place) -> None:
    uri = f"{place.uri}?schema={place.schema}"
    results = doctest.testmod(module, extraglobs={"uri": uri, "State": pipeline_state.State}, report=True)  # type: ignore[arg-type]
    assert results.attempted > 0
    assert results.failed == 0
