"""CIFAR from torchvision's files, without the network."""

from __future__ import annotations

import hashlib
import io
import pickle
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from lipt.data.sources import open_source, recognise
from lipt.errors import TransientError
from lipt.flow.checks.validation import check_run
from lipt.stages.ingest import ingest
from tests.tiny import tiny_context


@pytest.fixture
def cifar(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A CIFAR-10 of 20 + 10 images, known to torchvision by its md5, and no network."""
    from torchvision.datasets import CIFAR10

    def dump(name: str, document: object) -> str:
        data = pickle.dumps(document)
        (tmp_path / "cifar-10-batches-py").mkdir(exist_ok=True)
        (tmp_path / "cifar-10-batches-py" / name).write_bytes(data)
        return hashlib.md5(data).hexdigest()

    def batch(count: int) -> dict[str, object]:
        values = np.random.default_rng(count).integers(0, 256, (count, 3072), dtype=np.uint8)
        return {"data": values, "labels": [i % 10 for i in range(count)]}

    monkeypatch.setattr(CIFAR10, "train_list", [["data_batch_1", dump("data_batch_1", batch(20))]])
    monkeypatch.setattr(CIFAR10, "test_list", [["test_batch", dump("test_batch", batch(10))]])
    md5 = dump("batches.meta", {"label_names": [f"thing {label}" for label in range(10)]})
    monkeypatch.setattr(CIFAR10, "meta", {"filename": "batches.meta", "key": "label_names", "md5": md5})
    monkeypatch.setattr(CIFAR10, "url", "http://127.0.0.1:9/cifar-10-python.tar.gz")
    return tmp_path


@pytest.mark.parametrize("plain", [False, True])
def test_cifar_from_a_folder(cifar: Path, plain: bool) -> None:
    source = open_source(str(cifar), "cifar10") if plain else open_source(f"cifar10:{cifar}")
    assert (source.name, len(source.classes)) == ("cifar10", 10)
    assert {split: len(labels) for split, labels in source.splits.items()} == {"train": 20, "test": 10}
    expected = np.random.default_rng(20).integers(0, 256, (20, 3072), dtype=np.uint8)[7].reshape(3, 32, 32)
    assert np.array_equal(np.asarray(Image.open(io.BytesIO(source.read("train", 7)[0]))).transpose(2, 0, 1), expected)
    assert source.splits["train"][7] == 7
    assert source.names["train"][7] == "cifar10/train/00007.png"
    assert {split: len(set(names)) for split, names in source.names.items()} == {"train": 20, "test": 10}
    assert "md5" in source.fingerprint()


def test_a_plan_can_see_whether_a_download_is_needed(cifar: Path) -> None:
    kind = recognise("cifar10")
    assert kind.is_here(f"cifar10:{cifar}")
    assert not kind.is_here(f"cifar10:{cifar / 'nothing-here'}")
    (cifar / "cifar-10-batches-py" / "test_batch").write_bytes(b"damaged")
    assert not kind.is_here(f"cifar10:{cifar}")


@pytest.mark.parametrize("name", ["cifar10", "cifar100"])
def test_the_published_archive_is_the_one_that_torchvision_checks(name: str) -> None:
    import torchvision.datasets

    published = recognise(name).published
    assert published is not None
    assert published.fingerprint == f"{name}-md5-{getattr(torchvision.datasets, name.upper()).tgz_md5}"
    assert {split: sum(counts) for split, counts in published.counts.items()} == {"train": 50_000, "test": 10_000}


def test_nothing_is_downloaded_on_a_dry_run(cifar: Path, tmp_path: Path) -> None:
    """Not even to see which stages are up to date."""
    source = {"source": f"cifar10:{tmp_path / 'nothing-here'}"}
    ctx = replace(tiny_context(tmp_path / "workspace", {"data": source}), dry_run=True)
    check_run(ctx)
    assert not ingest(ctx).make().is_finished
    with pytest.raises(TransientError, match="cannot download"):
        ingest(replace(ctx, dry_run=False)).make()


def test_cifar_without_network_is_transient(cifar: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with pytest.raises(
        TransientError, match=r"cannot download http.*\n  -> put cifar-10-python.tar.gz .* cifar10:FOLDER"
    ):
        open_source("cifar10")


class Bomb:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return (open_bomb, ("x",))


def open_bomb(_text: str) -> None:
    raise AssertionError("a foreign pickle was executed")


def test_foreign_pickle_is_not_loaded(cifar: Path) -> None:
    (cifar / "cifar-10-batches-py" / "test_batch").write_bytes(pickle.dumps(Bomb()))
    with pytest.raises(TransientError, match="cannot download"):
        open_source(f"cifar10:{cifar}")
