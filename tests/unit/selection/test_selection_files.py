"""What a selection leaves: files, and the subsets and samplers that train on it."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from selection_samples import make, same
from torch.utils.data import Dataset, Subset, TensorDataset

from lipt.errors import LiptError, RunError, UsageError
from lipt.selection import Selection, select

N, C = 60, 4


@pytest.mark.parametrize("algorithm", ["random", "gradmatch", "el2n"])
@pytest.mark.parametrize("balanced", [True, False])
def test_a_saved_selection_is_loaded_as_it_was(tmp_path: Path, algorithm: str, balanced: bool) -> None:
    selection = select(
        algorithm,
        make(N, C),
        fraction=0.3,
        seed=7,
        balanced=balanced,
        notes={"data": "sha256:0a1b", "epochs": [1, 2], "view": {"size": 32}},
    )
    selection = replace(selection, positions_N=torch.randperm(900)[:N], version="0.0.9")
    path = tmp_path / "new folder" / "subset.parquet"
    selection.save(path)
    loaded = Selection.load(path)
    same(loaded, selection)
    assert loaded.notes == {"data": "sha256:0a1b", "epochs": [1, 2], "view": {"size": 32}}
    assert loaded.provenance["version"] == "0.0.9"
    assert loaded.to_parquet() == path.read_bytes()


def test_the_table_is_what_anyone_can_read() -> None:
    selection = replace(select("gradmatch", make(N, C), fraction=0.3), positions_N=torch.arange(N) + 100)
    table = selection.table()
    assert table.column_names == ["position", "label", "score", "rank", "weight"]
    assert table["position"].to_pylist() == list(range(100, 100 + N))
    assert table["label"].to_pylist() == selection.labels_N.tolist()
    assert table["score"].null_count == N
    for rank, (index, weight) in enumerate(
        zip(selection.indices_K.tolist(), selection.weights_K.tolist(), strict=True)
    ):
        assert (table["rank"][index].as_py(), table["weight"][index].as_py()) == (rank, weight)
    assert table["rank"].null_count == table["weight"].null_count == N - len(selection.indices_K)
    assert json.loads(table.schema.metadata[b"lipt"]) == selection.provenance


def test_saving_is_all_or_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "subset.parquet"
    first = select("random", make(N, C), fraction=0.3)
    first.save(path)

    def full(_descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(RunError, match="No space left on device"):
        select("random", make(N, C), fraction=0.5).save(path)
    assert [file.name for file in tmp_path.iterdir()] == ["subset.parquet"]
    same(Selection.load(path), first)
    with pytest.raises(RunError, match="cannot write"):
        first.save(path / "below a file.parquet")


def test_of_a_link_the_file_is_written_and_no_pipe_is_replaced(tmp_path: Path) -> None:
    first = select("random", make(N, C), fraction=0.3)
    (tmp_path / "real.parquet").write_bytes(b"old")
    (tmp_path / "link.parquet").symlink_to("real.parquet")
    first.save(tmp_path / "link.parquet")
    assert (tmp_path / "link.parquet").is_symlink()
    same(Selection.load(tmp_path / "real.parquet"), first)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(UsageError, match="pipe is a device or a pipe, which would be replaced"):
        first.save(tmp_path / "pipe")
    assert (tmp_path / "pipe").is_fifo()


def test_a_selection_is_not_saved_under_the_name_of_another_format(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"subset.csv: the selection is written as Parquet") as error:
        weighted([1.0, 1.0, 1.0]).save(tmp_path / "subset.csv")
    assert error.value.remedy == f"name it {tmp_path}/subset.parquet"
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize("path", ["", "/", "a\0b", None])
def test_paths_that_name_no_file(path: Any) -> None:
    for fails in (lambda: Selection.load(path), lambda: weighted([1.0, 1.0, 1.0]).save(path)):
        with pytest.raises(UsageError, match="is no name of a file") as error:
            fails()
        assert error.value.remedy


def with_column(name: str, values: list[Any]) -> Callable[[pa.Table], pa.Table]:
    def change(table: pa.Table) -> pa.Table:
        index = table.column_names.index(name)
        return table.set_column(index, name, pa.array(values, table.schema.field(name).type))

    return change


def with_provenance(text: str) -> Callable[[pa.Table], pa.Table]:
    return lambda table: table.replace_schema_metadata({"lipt": text})


GOOD = {"algorithm": "random", "options": {}, "fraction": 0.5, "balanced": True, "seed": 0, "version": "0"}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda table: table.drop_columns(["weight"]),
            "its columns are position (int64), label (int32), score (float), rank (int32), expected position (int64), "
            "label (int32), score (float), rank (int32), weight (float)",
        ),
        (lambda table: table.append_column("rank", table["rank"]), "Multiple matches"),
        (lambda table: table.append_column("more", table["rank"]), "its columns are"),
        (
            lambda table: table.set_column(0, "position", table["position"].cast(pa.float64())),
            "its columns are position (double), ",
        ),
        (lambda table: table.slice(0, 0), "no row is chosen"),
        (lambda table: table.replace_schema_metadata(None), "its provenance lacks algorithm"),
        (with_provenance("[1]"), "its provenance lacks algorithm"),
        (with_provenance("{"), "Expecting property name"),
        (with_provenance(json.dumps(GOOD | {"seed": "0"})), "its provenance lacks seed"),
        (with_column("rank", [None] * 4), "no row is chosen"),
        (with_column("rank", [0, None, 0, None]), "the ranks of its 2 chosen rows are not 0..1"),
        (with_column("rank", [0, None, -1, None]), "the ranks of its 2 chosen rows are not 0..1"),
        (with_column("weight", [None] * 4), "a row lacks its"),
        (with_column("weight", [float("nan")] * 4), "its weights are negative or not finite"),
        (with_column("weight", [-1.0] * 4), "its weights are negative or not finite"),
        (with_column("position", [0, 1, 2, None]), "a row lacks its"),
        (with_column("position", [0, 1, 1, 2]), "its positions are negative or not distinct"),
        (with_column("position", [0, 1, -1, 2]), "its positions are negative or not distinct"),
        (with_column("score", [0.5, None, 0.5, 0.5]), "a row lacks its"),
        (with_column("score", [0.5, float("nan"), 0.5, 0.5]), "a label is negative, or a score is NaN"),
        (with_column("label", [0, 0, 1, -1]), "a label is negative, or a score is NaN"),
    ],
)
def test_tables_that_are_no_selections(tmp_path: Path, change: Callable[[pa.Table], pa.Table], message: str) -> None:
    table = pa.table(
        {
            "position": pa.array([3, 1, 2, 0], pa.int64()),
            "label": pa.array([0, 0, 1, 1], pa.int32()),
            "score": pa.nulls(4, pa.float32()),
            "rank": pa.array([1, None, 0, None], pa.int32()),
            "weight": pa.array([1.0, None, 2.0, None], pa.float32()),
        },
        metadata={"lipt": json.dumps(GOOD)},
    )
    path = tmp_path / "subset.parquet"
    pq.write_table(table, path)
    assert Selection.load(path).indices_K.tolist() == [2, 0]
    pq.write_table(change(table), path)
    with pytest.raises(UsageError, match=re.escape(f"{path} is not a selection: {message}")) as error:
        Selection.load(path)
    assert "\n" not in error.value.message


def test_files_that_are_no_tables(tmp_path: Path) -> None:
    path = tmp_path / "subset.parquet"
    with pytest.raises(UsageError, match=r"cannot read .*: No such file"):
        Selection.load(path)
    with pytest.raises(UsageError, match=r"cannot read .*: Is a directory"):
        Selection.load(tmp_path)
    select("random", make(N, C), fraction=0.3).save(path)
    whole = path.read_bytes()
    for data in (b"", b"PAR1", whole[: len(whole) // 2], whole[:40] + bytes(200) + whole[240:], b"\x80\x04N."):
        path.write_bytes(data)
        with pytest.raises(UsageError, match="is not a selection"):
            Selection.load(path)
    table = pq.read_table(pa.BufferReader(whole)).replace_schema_metadata({b"lipt": b"[" * 100_000})
    pq.write_table(table, path)
    with pytest.raises(UsageError, match="is not a selection: maximum recursion depth"):
        Selection.load(path)


def weighted(weights: list[float]) -> Selection:
    """Picks 7, 2, 5 of ten candidates, which lie at 10 times their number."""
    selection = select("random", make(10, 2), fraction=0.3)
    return replace(
        selection, indices_K=torch.tensor([7, 2, 5]), weights_K=torch.tensor(weights), positions_N=torch.arange(10) * 10
    )


def test_everything_of_the_chosen_is_in_order_of_pick() -> None:
    """Row k of the subset is pick k, whose weight is weight k: users zip them."""
    selection = weighted([6.0, 1.0, 2.0])
    dataset = TensorDataset(torch.arange(91))
    subset = selection.subset(dataset)
    assert isinstance(subset, Subset)
    assert [int(value) for (value,) in subset] == [70, 20, 50]
    assert selection.ascending()[0].tolist() == [20, 50, 70]
    assert selection.ascending()[1].tolist() == [1, 2, 6]
    torch.testing.assert_close(selection.normalised_weights(), torch.tensor([2.0, 1 / 3, 2 / 3]))
    rows = list(selection.sampler(200, torch.Generator().manual_seed(0)))
    assert max(set(rows), key=rows.count) == 0
    with pytest.raises(UsageError, match="reach up to position 90, the data set has 90 samples"):
        selection.subset(TensorDataset(torch.arange(90)))
    with pytest.raises(UsageError, match="the data set has no length"):
        selection.subset(Dataset())


def test_the_sampler_draws_in_proportion_to_the_weights() -> None:
    selection, draws = weighted([6.0, 1.0, 2.0]), 9000
    rows = list(selection.sampler(draws, torch.Generator().manual_seed(0)))
    counts, expected = np.bincount(rows, minlength=3), np.array([6000, 1000, 2000])
    chi_square = float(((counts - expected) ** 2 / expected).sum())
    assert chi_square < 13.8  # 2 degrees of freedom, p = 0.001
    assert len(list(selection.sampler())) == 3
    assert rows == list(selection.sampler(draws, torch.Generator().manual_seed(0)))
    never = weighted([0.0, 1.0, 2.0]).sampler(500, torch.Generator().manual_seed(0))
    assert set(never) == {1, 2}


def test_weights_however_small_can_be_drawn_by() -> None:
    tiny = weighted([6e-45, 1.4e-45, 0.0])
    assert set(tiny.sampler(500, torch.Generator().manual_seed(0))) == {0, 1}
    assert bool(tiny.normalised_weights().isfinite().all())
    double = replace(weighted([1, 1, 1]), weights_K=torch.tensor([6e-290, 1e-290, 2e-290], dtype=torch.float64))
    torch.testing.assert_close(double.normalised_weights(), torch.tensor([2.0, 1 / 3, 2 / 3]))


def test_what_cannot_be_sampled() -> None:
    with pytest.raises(UsageError, match="all weights of the selection are 0"):
        weighted([0.0, 0.0, 0.0]).sampler()
    with pytest.raises(UsageError, match="num_samples must be an integer of 1 or more, not 0\n  -> pass such a number"):
        weighted([1.0, 1.0, 1.0]).sampler(0)


def test_errors_have_a_remedy() -> None:
    for fails in (lambda: Selection.load("/nowhere"), lambda: weighted([0.0, 0.0, 0.0]).normalised_weights()):
        with pytest.raises(LiptError) as error:
            fails()
        assert error.value.remedy
