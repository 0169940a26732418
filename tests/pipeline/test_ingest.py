"""When data are ingested again, and what of a run is repeated then."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from lipt.adapters.store import open_store
from lipt.cli import main
from lipt.config import Data, parse_config
from lipt.errors import IntegrityError, RunError, UsageError
from lipt.flow.runs import list_unused, note_point, remove
from lipt.runtime.context import Context
from lipt.runtime.dataset import open_apart
from lipt.runtime.workspace import Workspace
from lipt.stages.ingest import ingest
from tests.tiny import demo_stage, write_store
from tests.unit.data.sources.files import image, tree
from tests.unit.data.sources.test_names import tar

PETS = {f"{name}/{number}.png": image(10 * len(name) + number) for name in ("cat", "horse") for number in range(6)}

PAIRS = {f"{n}.{ext}": image(n) if ext == "png" else b"%d" % (n // 2) for n in range(4) for ext in ("png", "cls")}


@pytest.fixture
def pets(tmp_path: Path) -> Path:
    return tree(tmp_path / "pets", PETS)


def context(tmp_path: Path, source: Path | str) -> Context:
    return Context.of(parse_config({"workspace": f"{tmp_path}/runs", "data": {"source": str(source)}}))


def stores(tmp_path: Path) -> list[Path]:
    """The data sets in the workspace."""
    return [file.parent for file in (tmp_path / "runs").rglob("manifest.json")]


def test_an_image_replaced_by_one_of_the_same_size_is_used(tmp_path: Path, pets: Path) -> None:
    before = ingest(context(tmp_path, pets)).make()
    assert len(image(99)) == len(PETS["cat/0.png"])
    (pets / "cat/0.png").write_bytes(image(99))
    after = ingest(context(tmp_path, pets)).make()
    assert after.ref != before.ref
    assert after.summary["digest"] != before.summary["digest"]


def test_images_that_were_copied_are_the_same_data_set_and_are_kept_once(tmp_path: Path, pets: Path) -> None:
    before = ingest(context(tmp_path, pets)).make()
    for file in pets.rglob("*.png"):
        os.utime(file, ns=(1, 1))
    shutil.move(pets, tmp_path / "elsewhere")
    ctx = context(tmp_path, tmp_path / "elsewhere")
    assert ingest(ctx).make() == before
    assert before.ref not in ctx.workspace.reused  # it was read again
    assert len(stores(tmp_path)) == 1
    again = context(tmp_path, tmp_path / "elsewhere")
    assert ingest(again).make() == before
    assert before.ref in again.workspace.reused


def test_images_that_were_touched_are_read_once_even_if_artifacts_were_removed_since(
    tmp_path: Path, pets: Path
) -> None:
    ctx = context(tmp_path, pets)
    note_point(ctx.workspace, ctx.config, [ingest(ctx).make()])
    for file in pets.rglob("*.png"):
        os.utime(file, ns=(1, 1))
    made = ingest(context(tmp_path, pets)).make()
    unused = demo_stage(ctx.workspace, lambda _attempt: {"count": 1}, name="score").make()
    found = list_unused(ctx.workspace, days=0)
    assert [each.ref for each in found] == [unused.ref]
    remove(ctx.workspace, found)
    again = context(tmp_path, pets)
    assert ingest(again).make() == made
    assert made.ref in again.workspace.reused


@pytest.mark.parametrize(("splits", "reused"), [(("train/", "test/"), True), (("",), False)])
def test_a_share_of_test_images_counts_only_where_they_are_drawn(
    tmp_path: Path, splits: tuple[str, ...], reused: bool
) -> None:
    source = tree(tmp_path / "split", {f"{split}{name}": data for split in splits for name, data in PETS.items()})
    data = {"source": str(source)}
    for share in (0.2, 0.5):
        ctx = Context.of(parse_config({"workspace": f"{tmp_path}/runs", "data": data | {"test_fraction": share}}))
        made = ingest(ctx).make()
    assert (made.ref in ctx.workspace.reused) == reused


def test_a_chunk_store_and_the_images_it_was_made_of_are_the_same_data_set(tmp_path: Path, pets: Path) -> None:
    data = parse_config({"data": {"source": str(pets)}}).data
    write_store(data, open_store(f"{tmp_path}/store"))
    mine, stored = ingest(context(tmp_path, pets)).make(), ingest(context(tmp_path, tmp_path / "store")).make()
    assert mine.ref == stored.ref


def test_a_chunk_store_that_was_moved_is_read_where_it_is_now(tmp_path: Path, pets: Path) -> None:
    data = parse_config({"data": {"source": str(pets)}}).data
    write_store(data, open_store(f"{tmp_path}/store"))
    before = ingest(context(tmp_path, tmp_path / "store")).make()
    made = demo_stage(context(tmp_path, tmp_path / "store").workspace, lambda _attempt: {}, inputs=[before]).make()
    shutil.move(tmp_path / "store", tmp_path / "fast")
    ctx = context(tmp_path, tmp_path / "fast")
    after = ingest(ctx).make()
    assert after.ref == before.ref
    assert after.summary["location"] == f"file://{tmp_path}/fast"
    assert ctx.workspace.get(after.ref) == after
    assert Workspace(f"{tmp_path}/runs").find(made.ref) == made  # what was made from it is not made again


@pytest.mark.parametrize("name", ["manifest.json", "train-00000.tar", "test.index.parquet"])
def test_a_file_that_was_deleted_from_the_workspace_is_made_again(tmp_path: Path, pets: Path, name: str) -> None:
    before = ingest(context(tmp_path, pets)).make()
    (store,) = stores(tmp_path)
    kept = {file.name: file.read_bytes() for file in store.iterdir()}
    (store / name).unlink()
    assert ingest(context(tmp_path, pets)).make() == before
    assert {file.name: file.read_bytes() for file in store.iterdir()} == kept


def test_chunks_that_stood_for_copied_images_too_are_made_again(tmp_path: Path, pets: Path) -> None:
    """The second ingest kept none of its own."""
    before = ingest(context(tmp_path, pets)).make()
    for file in pets.rglob("*.png"):
        os.utime(file, ns=(1, 1))
    assert ingest(context(tmp_path, pets)).make() == before
    (store,) = stores(tmp_path)
    kept = {file.name: file.read_bytes() for file in store.iterdir() if file.suffix == ".tar"}
    (store / "train-00000.tar").unlink()
    ctx = context(tmp_path, pets)
    after = ingest(ctx).make()
    assert after.ref == before.ref not in ctx.workspace.reused
    moved = tmp_path / "runs" / str(after.summary["location"])
    assert {file.name: file.read_bytes() for file in moved.glob("*.tar")} == kept
    assert ingest(context(tmp_path, pets)).make() == after


def test_a_damaged_record_of_cost_is_written_again(tmp_path: Path, pets: Path) -> None:
    before = ingest(context(tmp_path, pets)).make()
    (tmp_path / "runs" / before.ref / "cost.json").write_bytes(b"{")
    workspace = context(tmp_path, pets).workspace
    with pytest.raises(IntegrityError, match=r"cost.json is damaged"):
        workspace.cost(before)
    assert ingest(context(tmp_path, pets)).make() == before
    assert workspace.cost(before).written["data"] > 0


def test_a_source_that_changed_during_an_interruption_is_ingested_anew(
    tmp_path: Path, pets: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = parse_config({"data": {"source": str(pets), "chunk_mb": 0.003}}).data
    before = write_store(data, open_store(f"{tmp_path}/store"))
    assert len(interrupt(tmp_path, data, after=5)) == 2
    (pets / "cat/0.png").write_bytes(image(99))
    capsys.readouterr()
    after = write_store(data, open_store(f"{tmp_path}/cut"))
    assert "ignored train-00000.part of an unfinished ingest: the source has changed since" in capsys.readouterr().err
    whole = write_store(data, open_store(f"{tmp_path}/new"))
    assert after == whole
    assert after.digest != before.digest
    names = sorted(os.listdir(tmp_path / "new"))
    assert sorted(os.listdir(tmp_path / "cut")) == names
    assert all((tmp_path / "cut" / name).read_bytes() == (tmp_path / "new" / name).read_bytes() for name in names)


def interrupt(tmp_path: Path, data: Data, *, after: int) -> list[str]:
    """An ingest into `cut` that ends after `after` written files; its journal."""
    store = open_store(f"{tmp_path}/cut")
    write, count = store._write, 0

    def limited(key: str, content: bytes) -> None:
        nonlocal count
        count += 1
        if count > after:
            raise RunError("full")
        write(key, content)

    store._write = limited  # type: ignore[method-assign]
    with pytest.raises(RunError, match="full"):
        write_store(data, store)
    return [name for name in os.listdir(tmp_path / "cut") if name.endswith(".part")]


@pytest.mark.parametrize("place", ["pets", "pets/cat", "pets/chunks", "link", "."])
def test_images_and_chunks_must_lie_apart(tmp_path: Path, pets: Path, place: str) -> None:
    (tmp_path / "link").symlink_to(pets)
    data = parse_config({"data": {"source": str(pets)}}).data
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(UsageError, match=r"overlap.*\n  -> choose a destination"):
        open_apart(data, open_store(str(tmp_path / place)))
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize(("pattern", "place"), [("x.tar", "."), ("*/*.tar", "chunks"), ("*.tar", "../link")])
def test_tars_and_chunks_must_lie_apart(tmp_path: Path, pattern: str, place: str) -> None:
    for folder in ("tars", "tars/deep"):
        tar(tmp_path / folder / "x.tar", PAIRS)
    (tmp_path / "link").symlink_to(tmp_path / "tars")
    data = parse_config({"data": {"source": f"{tmp_path}/tars/{pattern}"}}).data
    with pytest.raises(UsageError, match=r"overlap"):
        open_apart(data, open_store(str(tmp_path / "tars" / place)))


def test_tars_may_lie_beside_the_workspace(tmp_path: Path) -> None:
    tar(tmp_path / "x.tar", PAIRS)
    assert ingest(context(tmp_path, f"{tmp_path}/*.tar")).make().summary["train"] == 2


def test_a_workspace_among_the_images_is_refused(tmp_path: Path, pets: Path) -> None:
    ctx = Context.of(parse_config({"workspace": f"{pets}/runs", "data": {"source": str(pets)}}))
    with pytest.raises(UsageError, match="overlap"):
        ingest(ctx).make()
    assert not (pets / "runs").exists()


def test_a_workspace_above_the_images_is_fine(tmp_path: Path, pets: Path) -> None:
    ctx = Context.of(parse_config({"workspace": str(tmp_path), "data": {"source": str(pets)}}))
    assert ingest(ctx).make().summary["classes"] == ["cat", "horse"]


def test_an_ingested_data_set_is_no_source(tmp_path: Path, pets: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["ingest", str(pets), f"{tmp_path}/store"])
    capsys.readouterr()
    with pytest.raises(SystemExit) as end:
        main(["ingest", f"{tmp_path}/store", f"{tmp_path}/again"])
    assert end.value.code == 2
    said = f"{tmp_path}/store is an ingested data set, not a source of images\n  -> use it as data.source\n"
    assert capsys.readouterr().err.endswith(said)
    assert not (tmp_path / "again").exists()


def test_a_data_set_is_described_alike_each_time(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said = []
    for _ in range(2):
        main(["ingest", "digits", f"{tmp_path}/store"])
        said.append(capsys.readouterr().err.splitlines()[-1])
    size = sum(path.stat().st_size for path in tmp_path.rglob("*.tar"))
    assert said == [f"digits: 1,438 train, 359 test images of 10 classes, {size / 1e6:.1f} MB"] * 2
