"""What is deleted or damaged in a workspace is made again by the next run, to the same bytes."""

from __future__ import annotations

import io
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lipt.adapters.store import open_store
from lipt.config import parse_config
from lipt.errors import DamagedDataError, IntegrityError, TransientError
from lipt.flow.compare import run_with_baseline
from lipt.flow.dag import run
from lipt.progress import Reporter
from lipt.runtime.artifact import Artifact
from lipt.runtime.attempt import Attempt
from lipt.runtime.context import Context
from lipt.runtime.workspace import Workspace
from lipt.stages.ingest import ingest
from tests.tiny import TINY, bare_context, demo_stage, digests, tiny_context, write_store

QUICK = {"initialise": {"epochs": 1}, "train": {"epochs": 1}, "dispatch": {"jigsaws": 2}}


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("finished")
    run_with_baseline(tiny_context(folder, QUICK | {"train": {"epochs": 1, "random_baseline": False}}))
    return folder


@pytest.fixture
def copied(finished: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(finished, tmp_path / "copy"))


def contents(folder: Path) -> dict[str, bytes]:
    """Every file of every artifact, but for what an artifact cost."""
    files = [path for path in folder.rglob("*") if path.is_file() and path.name != "cost.json"]
    return {str(path.relative_to(folder)): path.read_bytes() for path in files if "reports" not in path.parts}


#: What the reporter says when a part of the workspace is made again. `ingest/KEY` says where the chunks are: without it
#: nothing is read again.
SAID = {"chunks": {"ingest"}, "ingest": set()}


def made_again(folder: Path) -> set[str]:
    """Run once more; the stages that did something."""
    said = io.StringIO()
    run(replace(tiny_context(folder, QUICK), reporter=Reporter(said)))
    return {line.split()[0].partition("[")[0] for line in said.getvalue().splitlines() if "up to date" not in line}


def test_a_deleted_file_of_any_artifact_is_made_again(copied: Path) -> None:
    """One after the other; what was made from it stays, since it comes out as it was."""
    whole = contents(copied)
    stages = {"chunks", "ingest", "initialise", "pretrain", "merge", "score", "train"}
    assert {name.split("/")[0] for name in whole} >= stages
    for name in whole:
        (copied / name).unlink()
        stage = name.split("/")[0]
        assert made_again(copied) == SAID.get(stage, {stage}), name
        assert contents(copied) == whole, name
    assert made_again(copied) == set()


@pytest.mark.parametrize("keep", [0, 100])
def test_whatever_is_cut_short_is_made_again(copied: Path, keep: int) -> None:
    whole = contents(copied)
    for name, data in whole.items():
        (copied / name).write_bytes(data[: min(keep, len(data) - 1)])
    made_again(copied)
    assert contents(copied) == whole


def flip(path: Path) -> None:
    """Change one bit in the middle: the size stays."""
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize("name", ["store/train-00000.tar", "store/train.index.parquet", "store/manifest.json"])
def test_a_changed_data_set_is_found_by_its_reader_and_made_again(copied: Path, name: str) -> None:
    """As an artifact's files are; the set of the workspace, not the one of a user."""
    whole = contents(copied)
    (store,) = copied.glob("chunks/*/")
    flip(store / name)
    shutil.rmtree(copied / "initialise")
    with pytest.raises(IntegrityError, match=name.rpartition("/")[2]) as caught:
        run(tiny_context(copied, QUICK))
    assert caught.value.remedy == "run again: ingest is repeated"
    assert made_again(copied) == {"ingest", "initialise"}
    assert contents(copied) == whole


def test_what_goes_missing_while_it_runs_is_found_by_its_reader(copied: Path) -> None:
    ctx = tiny_context(copied, QUICK)
    outcome = run(ctx)
    weights = copied / outcome.prepared.initial[0].ref / "weights.safetensors"
    weights.unlink()
    attempt = Attempt(ctx=ctx, ref="demo/0", label="demo")
    with pytest.raises(IntegrityError, match=r"weights.safetensors is missing") as caught:
        attempt.read(outcome.prepared.initial[0], "weights.safetensors", kind="model")
    assert caught.value.remedy == "run again: initialise is repeated"
    assert made_again(copied) == {"initialise"}


def test_a_chunk_that_is_missing_in_a_users_store_is_an_error_at_once(tmp_path: Path) -> None:
    data = parse_config(TINY | {"workspace": "x"}).data
    store = open_store(str(tmp_path / "mine"))
    write_store(data, store)
    whole = contents(tmp_path)
    chunk = tmp_path / "mine/train-00000.tar"
    chunk.unlink()
    with pytest.raises(DamagedDataError, match=r"mine/train-00000.tar is missing \(1 of \d chunks") as caught:
        ingest(tiny_context(tmp_path / "runs", {"data": {"source": str(tmp_path / "mine")}})).make()
    assert "lipt ingest" in caught.value.remedy
    assert not (tmp_path / "runs").exists()
    write_store(data, store)  # what `lipt ingest` does
    assert contents(tmp_path) == whole


def test_an_interrupted_ingest_that_lost_a_chunk_writes_it_again(tmp_path: Path) -> None:
    """The journal says that it was written; it is not there."""
    data = parse_config(TINY | {"workspace": "x"}).data
    straight, cut = open_store(str(tmp_path / "straight")), tmp_path / "cut"
    write_store(data, straight)
    with pytest.raises(KeyboardInterrupt):
        write_store(data, open_store(str(cut)), _Stops(cut))
    first = cut / "train-00000.tar"
    assert first.with_suffix(".part").exists()
    first.unlink()
    write_store(data, open_store(str(cut)))
    assert contents(cut) == contents(tmp_path / "straight")


class _Stops(Reporter):
    """As Ctrl-C when a chunk of this folder is done."""

    def __init__(self, folder: Path) -> None:
        super().__init__(io.StringIO())
        self.folder = folder

    def advance(self, label: str, done: int, total: int, text: str = "") -> None:
        if list(self.folder.glob("*.part")):
            raise KeyboardInterrupt


def test_what_is_made_from_something_that_came_out_otherwise_is_made_again(tmp_path: Path) -> None:
    """As on a GPU, where a repeated training is not the same to the last bit: a delta to other weights is worthless."""
    workspace = Workspace(str(tmp_path))

    def make(name: str, inputs: list[Artifact], data: bytes) -> Artifact:
        def body(attempt: Attempt) -> dict[str, Any]:
            attempt.put("out.bin", data, kind="model")
            return {}

        return demo_stage(workspace, body, name=name, settings={}, inputs=inputs).make()

    first = make("first", [], b"one")
    second = make("second", [first], b"two")
    third = make("third", [second], b"three")
    (tmp_path / first.ref / "out.bin").unlink()
    assert make("first", [], b"one") == first
    assert (workspace.find(second.ref), workspace.find(third.ref)) == (second, third)
    (tmp_path / first.ref / "out.bin").unlink()
    changed = make("first", [], b"1")
    assert Workspace(str(tmp_path)).find(second.ref) is None
    assert make("second", [changed], b"two").summary == second.summary
    assert Workspace(str(tmp_path)).find(third.ref) is None


def test_a_checkpoint_is_not_continued_on_an_input_that_came_out_otherwise(tmp_path: Path) -> None:
    """Otherwise a training would go on with weights that were trained on another subset."""
    workspace, found = Workspace(str(tmp_path)), list[bytes | None]()

    def first(data: bytes) -> Artifact:
        def body(attempt: Attempt) -> dict[str, Any]:
            attempt.put("out.bin", data, kind="model")
            return {}

        return demo_stage(workspace, body, name="first").make()

    def interrupted(attempt: Attempt) -> dict[str, Any]:
        found.append(attempt.load_checkpoint())
        attempt.save_checkpoint(f"epoch {len(found)}".encode())
        raise KeyboardInterrupt

    for data in (b"one", b"one", b"1", b"1"):
        made = first(data)
        with pytest.raises(KeyboardInterrupt):
            demo_stage(workspace, interrupted, name="second", inputs=[made]).make()
        (tmp_path / made.ref / "out.bin").unlink()
    assert found == [None, b"epoch 1", None, b"epoch 3"]


def test_a_lost_record_of_cost_is_made_again_with_its_stage(copied: Path) -> None:
    """A report without it would lie."""
    lost, _ = sorted(copied.glob("pretrain/*/cost.json"))
    lost.unlink()
    assert made_again(copied) == {"pretrain"}
    assert lost.exists()


def test_a_damaged_checkpoint_is_not_used(tmp_path: Path) -> None:
    said = io.StringIO()
    attempt = Attempt(ctx=bare_context(Workspace(str(tmp_path)), Reporter(said)), ref="demo/0", label="demo")
    attempt.save_checkpoint(bytes(1000))
    assert attempt.load_checkpoint() == bytes(1000)
    flip(tmp_path / "demo/0/checkpoint")
    assert attempt.load_checkpoint() is None
    assert "its checkpoint is damaged, or of other inputs: starts from its beginning" in said.getvalue()


def test_a_checkpoint_that_cannot_be_written_does_not_end_the_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store is away, once theta_* is trained, and comes back before the model is to be stored."""
    changes = {"select": {"algorithm": "random"}, "train": {"checkpoint_s": 0, "random_baseline": False}}
    straight, said = tiny_context(tmp_path / "straight", changes), io.StringIO()
    run(straight)

    def away(self: Attempt, _data: bytes) -> None:
        raise TransientError(f"{self.ref}: the store was unreachable", "try again")

    monkeypatch.setattr(Attempt, "save_checkpoint", away)
    ctx = Context.of(tiny_context(tmp_path / "away", changes).config, Reporter(said))
    run(ctx)
    assert digests(ctx.workspace) == digests(straight.workspace)
    assert said.getvalue().count("goes on without a new checkpoint: train/") == 3  # after each epoch but the last
