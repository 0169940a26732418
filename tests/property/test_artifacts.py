"""Anything in place of a file of an artifact: it is found damaged and made again, or refused with one message."""

from __future__ import annotations

import io
import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from lipt.errors import IntegrityError, LiptError
from lipt.ledger import Cost
from lipt.progress import Reporter
from lipt.runtime.artifact import Artifact, canonical_json
from lipt.runtime.attempt import Attempt
from lipt.runtime.workspace import Workspace
from lipt.selection import Candidates, Selection, select
from lipt.training.tensor_files import decode_delta, encode_delta, pack, unpack
from tests.tiny import bare_context, demo_stage

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda below: st.lists(below, max_size=3) | st.dictionaries(st.text(max_size=5), below, max_size=3),
    max_leaves=5,
)
STATE = {"w": torch.arange(24.0).view(4, 6), "b": torch.ones(4)}
OTHER = {name: tensor + 1 for name, tensor in STATE.items()}


@st.composite
def damaged(draw: st.DrawFn, whole: bytes) -> bytes:
    """Bytes instead of `whole`: cut, empty, one bit flipped, a stretch of noise, another type of JSON, nested deep."""
    kind = draw(st.sampled_from(["cut", "flip", "noise", "json", "field", "deep"]))
    at = draw(st.integers(0, max(0, len(whole) - 1)))
    if kind == "cut":
        return whole[:at]
    if kind == "flip":
        return whole[:at] + bytes([whole[at] ^ (1 << draw(st.integers(0, 7)))]) + whole[at + 1 :]
    if kind == "noise":
        return whole[:at] + draw(st.binary(max_size=40)) + whole[at:]
    if kind == "deep":
        return b"[" * 100_000
    if kind == "field" and whole.startswith(b"{"):
        document = json.loads(whole)
        document[draw(st.sampled_from(sorted(document)))] = draw(JSON)
        return json.dumps(document).encode()
    return json.dumps(draw(JSON)).encode()


def make(workspace: Workspace) -> Artifact:
    def body(attempt: Attempt) -> dict[str, Any]:
        attempt.put("weights.safetensors", pack(STATE), kind="model")
        return {"accuracy": 0.5}

    return demo_stage(workspace, body, settings={"a": 1}).make()


Made = tuple[Workspace, Artifact, dict[Path, bytes]]


@pytest.fixture(scope="module")
def made() -> Made:
    workspace = Workspace(tempfile.mkdtemp())
    artifact = make(workspace)
    folder = Path(workspace.store.uri.removeprefix("file://"), artifact.ref)
    return workspace, artifact, {path: path.read_bytes() for path in folder.iterdir()}


@settings(max_examples=30)
@given(data=st.data())
@pytest.mark.parametrize("name", ["artifact.json", "cost.json", "weights.safetensors"])
def test_damage_is_made_again(made: Made, name: str, data: st.DataObject) -> None:
    workspace, artifact, files = made
    for path, whole in files.items():
        path.write_bytes(whole)
    (path,) = [path for path in files if path.name == name]
    whole = files[path]
    wrong = data.draw(damaged(whole))
    path.write_bytes(wrong)
    attempt = Attempt(ctx=bare_context(workspace, Reporter(io.StringIO())), ref="x/y", label="x")
    if name == "artifact.json":
        try:
            assert workspace.get(artifact.ref) == artifact  # a space more is no damage
        except IntegrityError:
            assert workspace.find(artifact.ref) is None
    else:
        found = None
        try:
            attempt.read(artifact, "weights.safetensors", kind="model")
            assert isinstance(workspace.cost(artifact), Cost)  # a number that is changed is still a number
        except IntegrityError as error:
            found = error
        assert (workspace.find(artifact.ref) is None) == (found is not None)
        assert found is None or found.remedy == "run again: demo is repeated"
    assert make(workspace) == workspace.find(artifact.ref) == artifact
    assert name != "weights.safetensors" or path.read_bytes() == whole


def _delta(data: bytes) -> object:
    return decode_delta(data, STATE, origin="a delta")


def _weights(data: bytes) -> object:
    return unpack(data, origin="weights")


def _subset(data: bytes) -> object:
    return Selection.from_parquet(data, origin="a subset")


def _record(data: bytes) -> object:
    return Artifact.from_json(data, origin="a record")


@settings(max_examples=60)
@given(data=st.data())
@pytest.mark.parametrize("read", [_delta, _weights, _subset, _record])
def test_a_reader_takes_it_or_refuses_it(read: Callable[[bytes], object], data: st.DataObject) -> None:
    """Also where no digest stands before it: files that a user hands over."""
    labels_N = torch.arange(12) % 3
    whole = {
        _delta: encode_delta(OTHER, STATE),
        _weights: pack(STATE),
        _subset: select("stratified", Candidates(labels_N=labels_N, num_classes=3), fraction=0.5).to_parquet(),
        _record: canonical_json({"stage": "a", "key": "b", "inputs": [], "made_from": [], "files": {}, "digest": ""}),
    }[read]
    refused = None
    try:
        read(data.draw(damaged(whole)))
    except LiptError as error:
        refused = error
    assert refused is None or (refused.message and refused.remedy)
