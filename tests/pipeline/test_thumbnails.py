"""A proxy reads thumbnails instead of images: `data.thumbnails`."""

from __future__ import annotations

import io
import shutil
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from lipt.adapters.store import open_store
from lipt.cli import main
from lipt.config import parse_config
from lipt.errors import DamagedDataError, IntegrityError, UsageError
from lipt.flow.checks.facts import Facts
from lipt.flow.compare import run_with_baseline
from lipt.flow.dag import run
from lipt.flow.outcome import Outcome
from lipt.flow.runs import list_unused
from lipt.runtime.context import Context
from lipt.stages.ingest import ingest
from tests.programs import lipt
from tests.tiny import TINY, digests, tiny_context, write_store

#: Of digits, which have 8 x 8 pixels.
PROXY = {"score": {"proxy": {"width": 2, "image_size": 5}}}
SMALL = {"data": {"thumbnails": 5}}
OF_SCORER = {"initialise", "pretrain", "group", "merge", "score"}


def context(folder: Path, changes: dict[str, Any] | None = None, source: Path | str = "digits") -> Context:
    data = SMALL["data"] | (changes or {}).get("data", {}) | {"source": str(source)}
    return tiny_context(folder, {"train": {"epochs": 1}} | PROXY | (changes or {}) | {"data": data})


def data_read(ctx: Context, outcome: Outcome) -> dict[str, int]:
    """Bytes of images that each stage read, by the ledger."""
    read: dict[str, int] = {}
    for artifact in outcome.artifacts():
        read[artifact.stage] = read.get(artifact.stage, 0) + ctx.workspace.cost(artifact).read.get("data", 0)
    return read


def results(ctx: Context, outcome: Outcome) -> list[Any]:
    """What the stages computed. Shards say where images lie, and a subset names the scores that it was made from."""
    subset = ctx.workspace.store.read(f"{outcome.subset.ref}/subset.parquet", kind="other")
    made = [artifact for artifact in outcome.artifacts() if artifact.stage not in ("dispatch", "select")]
    return [*((artifact.stage, artifact.files) for artifact in made), pq.read_table(io.BytesIO(subset)).to_pydict()]


@pytest.mark.parametrize("groups", [1, 2])
def test_the_scorer_reads_a_tenth_and_computes_the_same(tmp_path: Path, groups: int) -> None:
    changes = {"merge": TINY["merge"] | {"groups": groups}}
    small = context(tmp_path / "small", changes)
    whole = context(tmp_path / "whole", changes | {"data": {"thumbnails": None}})
    found, expected = run(small), run(whole)
    assert found.prepared.dataset.ref == expected.prepared.dataset.ref
    little, much = data_read(small, found), data_read(whole, expected)
    read = OF_SCORER if groups > 1 else OF_SCORER - {"group"}
    assert {stage for stage in much if little[stage] != much[stage]} == read
    for stage in read:
        assert 0 < little[stage] < much[stage] / 10, stage
    assert results(small, found) == results(whole, expected)  # the weights, the scores, the subset: bit by bit


@pytest.mark.parametrize(
    "changes",
    [
        {
            "score": {"model": "trajectory", "runs": 1, "epochs": 2} | PROXY["score"],
            "select": {"algorithm": "dual", "fraction": 0.1},
        },
        {"data": {"resident_mb": 0.01}},
        {"data": {"image_size": 8, "crop": "resized", "thumbnails": 6}},
    ],
    ids=["trajectory", "streamed", "crops"],
)
def test_other_scorers_read_less_too(tmp_path: Path, changes: dict[str, Any]) -> None:
    small = context(tmp_path, changes)
    whole = context(tmp_path, changes | {"data": changes.get("data", {}) | {"thumbnails": None}})
    little, much = data_read(small, run(small)), data_read(whole, run(whole))
    for stage in {"initialise", "score"} & much.keys():
        assert little[stage] < much[stage] / 8 or little[stage] == much[stage] == 0, stage
    assert little["initialise"] < much["initialise"]
    for stage in ("train", "evaluate"):
        assert little[stage] == pytest.approx(much[stage], rel=0.2)  # another subset, if pixels differ


@pytest.mark.parametrize("proxy", [None, {"width": 2}])
def test_without_a_proxy_on_smaller_images_nothing_changes(tmp_path: Path, proxy: dict[str, int] | None) -> None:
    changes = {"score": {"proxy": proxy}}
    before = run(context(tmp_path, changes | {"data": {"thumbnails": None}}))
    ctx = context(tmp_path, changes)
    after = run(ctx)
    assert before.artifacts() == after.artifacts()
    assert {artifact.ref for artifact in after.artifacts()} <= ctx.workspace.reused


def test_the_report_shows_the_bytes_and_all_that_was_read_is_in_use(tmp_path: Path) -> None:
    ctx = context(tmp_path)
    document = run_with_baseline(ctx)
    assert document is not None
    rows = {row.stage: row for row in document.ledger}
    assert rows["score"].data_read < rows["evaluate"].data_read  # more images
    assert not list_unused(ctx.workspace, days=0)
    again = context(tmp_path)
    run_with_baseline(again)
    assert digests(again.workspace).keys() == {f"{ref}/artifact.json" for ref in again.workspace.reused}


def test_thumbnails_of_ingested_data_are_added_without_a_second_copy_of_the_images(tmp_path: Path) -> None:
    before = ingest(context(tmp_path, {"data": {"thumbnails": None}})).make()
    after = ingest(context(tmp_path)).make()
    assert after == before
    tars = list(tmp_path.rglob("*.tar"))
    assert {file.parent for file in tars} == {tmp_path / str(before.summary["location"])}
    ctx = context(tmp_path)
    found = results(ctx, run(ctx))
    shutil.rmtree(tmp_path / str(before.summary["location"]))  # the images alone
    assert results(ctx, run(context(tmp_path))) == found
    assert len(list(tmp_path.rglob("*.tar"))) == len(tars)


def test_two_sizes_stand_side_by_side(tmp_path: Path) -> None:
    for side in (5, 6, 5):
        ctx = context(tmp_path, {"data": {"thumbnails": side}})
        dataset = ingest(ctx).make()
        assert str(ctx.data_of_scorer(dataset).summary["location"]).endswith(f"/thumbnails-{side}")
        assert ctx.workspace.find(ctx.data_of_scorer(dataset).ref)


def test_damaged_thumbnails_are_found_and_written_again(tmp_path: Path) -> None:
    ctx = context(tmp_path)
    found = results(ctx, run(ctx))
    (file,) = tmp_path.rglob("thumbnails-5/train-00000.bin")
    whole = file.read_bytes()
    file.write_bytes(whole[:-40] + bytes(40))
    shutil.rmtree(tmp_path / "initialise")
    with pytest.raises(IntegrityError, match="damaged") as error:
        run(context(tmp_path))
    assert "run again: ingest is repeated" in str(error.value)
    assert results(ctx, run(context(tmp_path))) == found
    assert file.read_bytes() == whole


@pytest.mark.parametrize("gone", ["train-00000.bin", "manifest.json"])
def test_deleted_thumbnails_are_written_again(tmp_path: Path, gone: str) -> None:
    run(context(tmp_path))
    (file,) = tmp_path.rglob(f"thumbnails-5/{gone}")
    whole = file.read_bytes()
    file.unlink()
    run(context(tmp_path))
    assert file.read_bytes() == whole


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A chunk store with thumbnails of 5 pixels."""
    folder = tmp_path_factory.mktemp("ingested") / "digits"
    write_store(parse_config(TINY | SMALL | {"data": TINY["data"] | SMALL["data"]}).data, open_store(str(folder)))
    return folder


def test_the_command_line_writes_the_same_store(tmp_path: Path, store: Path) -> None:
    made = lipt("ingest", "digits", str(tmp_path / "store"), "--chunk-mb", "0.5", "--thumbnails", "5")
    assert made.returncode == 0, made.stderr
    for folder in (".", "thumbnails-5"):
        files = sorted(file.name for file in (store / folder).iterdir() if file.is_file())
        assert files == sorted(file.name for file in (tmp_path / "store" / folder).iterdir() if file.is_file())
        assert all((store / folder / f).read_bytes() == (tmp_path / "store" / folder / f).read_bytes() for f in files)


def test_a_chunk_store_brings_its_thumbnails(tmp_path: Path, store: Path) -> None:
    ctx = context(tmp_path / "named", source=store)
    own = context(tmp_path / "own")
    found, expected = run(ctx), run(own)
    assert [artifact.ref for artifact in found.artifacts()] == [artifact.ref for artifact in expected.artifacts()]
    assert data_read(ctx, found) == data_read(own, expected)
    assert not list((tmp_path / "named").rglob("*.bin"))


def test_a_chunk_store_without_such_thumbnails_is_one_error(tmp_path: Path, store: Path) -> None:
    ctx = context(tmp_path, {"data": {"thumbnails": 6}}, source=store)
    for use in (ingest(ctx).make, ingest(ctx).find, lambda: Facts.of(ctx.config.data)):
        with pytest.raises(UsageError, match=r"has no thumbnails of 6 pixels\n  -> ingest again .* `--thumbnails 6`"):
            use()


def test_doctor_refuses_a_chunk_store_that_no_run_can_use(
    tmp_path: Path, store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    broken, config = Path(shutil.copytree(store, tmp_path / "broken")), tmp_path / "run.yaml"
    next(broken.glob("train-*.tar")).unlink()
    for source, side, code, told in (
        (store, 5, 0, " training images, 10 classes"),
        (store, 6, 1, "has no thumbnails of 6 pixels"),
        (broken, 5, 1, "is missing (1 of "),
    ):
        settings = context(tmp_path / "runs", {"data": {"thumbnails": side}}, source=source).config
        config.write_text(settings.model_dump_json())
        with pytest.raises(SystemExit) if code else nullcontext():
            main(["doctor", str(config)])
        assert told in " ".join(capsys.readouterr().out.split())


def test_thumbnails_of_another_data_set_are_refused(tmp_path: Path, store: Path) -> None:
    mixed = Path(shutil.copytree(store, tmp_path / "mixed"))
    for file in mixed.glob("*.*"):
        file.unlink()
    data = TINY["data"] | {"shuffle_seed": 1}
    write_store(parse_config({"data": data}).data, open_store(str(mixed)))
    with pytest.raises(DamagedDataError, match="thumbnails-5 belong to another data set"):
        ingest(context(tmp_path / "runs", source=mixed)).make()
    (mixed / "thumbnails-5").rename(mixed / "thumbnails-6")
    whole = context(tmp_path / "runs", {"data": {"thumbnails": None}}, source=mixed)
    assert ingest(whole).make().summary["train"] == 1438


@pytest.mark.parametrize(
    ("data", "needed"),
    [({"thumbnails": 4}, 5), ({"thumbnails": 5, "crop": "resized", "image_size": 8}, 6)],
)
def test_thumbnails_that_are_too_small_for_the_proxy_are_one_error(
    tmp_path: Path, data: dict[str, Any], needed: int
) -> None:
    with pytest.raises(UsageError, match=rf"too small for score.proxy.image_size \(5\).*it should be {needed} or more"):
        context(tmp_path, {"data": data})
    context(tmp_path, {"data": data | {"thumbnails": needed}})
