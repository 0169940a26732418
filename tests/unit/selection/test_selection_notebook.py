"""Selection without the pipeline: arrays, networks and data sets in; subsets, samplers and files out."""

from __future__ import annotations

import json
import re
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from selection_samples import make
from torch import Tensor, nn
from torch.utils.data import Dataset, IterableDataset, Subset, TensorDataset

from lipt.core.nets import build_model
from lipt.core.selection import ALGORITHMS, Candidates, Selection, requirements, score_dataset, select
from lipt.core.selection.compressed import TopLogits
from lipt.errors import LiptError, RunError, UsageError

N, C, D = 60, 4, 6


def arrays(models: int = 2, dtype: type = np.float32) -> dict[str, Any]:
    whole = make(N, C, D, models=models)
    return {
        "labels": whole.labels_N.numpy(),
        "logits": [each.logits_NC.numpy().astype(dtype) for each in whole.outputs],  # type: ignore[union-attr]
        "features": [each.features_ND.numpy().astype(dtype) for each in whole.outputs],
        "forgetting": whole.forgetting_N.numpy(),  # type: ignore[union-attr]
    }


def mapped(folder: Path, values: dict[str, Any], mode: str) -> dict[str, Any]:
    def one(name: str, array: Any) -> Any:
        np.save(folder / f"{name}.npy", array)
        return np.load(folder / f"{name}.npy", mmap_mode=mode)  # type: ignore[call-overload]

    return {
        name: [one(f"{name}{index}", each) for index, each in enumerate(value)]
        if isinstance(value, list)
        else one(name, value)
        for name, value in values.items()
    }


def same(one: Selection, other: Selection) -> None:
    for name in ("indices_K", "weights_K", "scores_N", "labels_N", "positions_N"):
        mine, theirs = getattr(one, name), getattr(other, name)
        assert (mine is None) == (theirs is None), name
        assert mine is None or (mine.dtype == theirs.dtype and torch.equal(mine, theirs)), name
    assert one.provenance == other.provenance


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_read_only_memory_maps_select_what_arrays_select(tmp_path: Path, algorithm: str, dtype: type) -> None:
    """An algorithm that changed its input in place would kill the process."""
    values = arrays(dtype=dtype)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        candidates = Candidates.of(**mapped(tmp_path, values, "r"))
        expected = Candidates.of(**values)
    assert candidates.outputs[0].features_ND.dtype == torch.from_numpy(values["features"][0]).dtype
    same(select(algorithm, candidates, fraction=0.3, seed=3), select(algorithm, expected, fraction=0.3, seed=3))


def test_arrays_are_viewed_not_copied(tmp_path: Path) -> None:
    values = mapped(tmp_path, arrays(), "r+")
    candidates = Candidates.of(**values)
    tensors = [
        (values["labels"], candidates.labels_N),
        (values["forgetting"], candidates.forgetting_N),
        *zip(values["logits"], (each.logits_NC for each in candidates.outputs), strict=True),
        *zip(values["features"], (each.features_ND for each in candidates.outputs), strict=True),
    ]
    for array, tensor in tensors:
        assert isinstance(array, np.memmap)
        assert tensor.data_ptr() == array.ctypes.data
        array[0] = 3
        assert (tensor[0] == 3).all()


def test_the_same_candidates_from_whatever_holds_them() -> None:
    values = arrays(models=1)
    logits, features = values["logits"][0], values["features"][0]
    expected = Candidates.of(values["labels"], logits=logits, features=features)
    assert expected.num_classes == C
    backwards = logits[::-1].copy()[::-1]
    assert backwards.strides[0] < 0
    gradient = torch.from_numpy(logits).requires_grad_()
    for labels, z, h in [
        (values["labels"].tolist(), torch.from_numpy(logits), torch.from_numpy(features)),
        (values["labels"].astype(np.int32), [logits], (features,)),
        (values["labels"].astype(np.uint8), logits.astype(">f4"), features),
        (torch.from_numpy(values["labels"]).int(), backwards, np.asfortranarray(features)),
        ([torch.tensor(label) for label in values["labels"]], gradient, features),
    ]:
        found = Candidates.of(labels, logits=z, features=h)
        assert torch.equal(found.labels_N, expected.labels_N)
        assert torch.equal(found.outputs[0].logits_NC, expected.outputs[0].logits_NC)  # type: ignore[arg-type]
        assert torch.equal(found.outputs[0].features_ND, expected.outputs[0].features_ND)
        assert not found.outputs[0].logits_NC.requires_grad  # type: ignore[union-attr]


def test_compressed_logits_and_labels_alone() -> None:
    values = arrays(models=1)
    top = TopLogits.compress(torch.from_numpy(values["logits"][0]), torch.from_numpy(values["labels"]), 2)
    assert Candidates.of(values["labels"], logits=top, features=values["features"]).outputs[0].logits_NC is top
    assert Candidates.of([0, 2, 1]).num_classes == 3
    assert Candidates.of([0, 2, 1], num_classes=7).num_classes == 7


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"labels": [0.0, 1.0]}, "labels must be integers, not torch.float64"),
        ({"labels": [True, False]}, "labels must be integers, not torch.bool"),
        ({"labels": ["cat", "dog"]}, "labels: can't convert"),
        ({"labels": [[0, 1], [1, 0]]}, "labels must be int64 (N,)"),
        ({"labels": [0, -1]}, "label -1 of sample 1"),
        ({"labels": [0, 1], "logits": np.zeros((2, 2))}, "logits of 1 model(s) and features of 0"),
        ({"labels": [0, 1], "logits": [np.zeros((2, 2))] * 2, "features": np.zeros((2, 3))}, "logits of 2 model(s)"),
        ({"labels": [0, 1], "logits": np.zeros((3, 2)), "features": np.zeros((3, 3))}, "expected (2, 2)"),
        ({"labels": [0, 1], "logits": np.zeros((2, 2), int), "features": np.zeros((2, 3))}, "floating point"),
        ({"labels": [0, 1], "logits": np.zeros((2, 2), np.longdouble), "features": np.zeros((2, 3))}, "logits: "),
        ({"labels": [0, 1], "logits": np.zeros((2, 2)), "features": [[[1.0], [1.0, 2.0]]]}, "features: "),
        ({"labels": [0, 1], "forgetting": [1]}, "1 forgetting counts for 2"),
    ],
)
def test_arrays_that_cannot_be_candidates(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=re.escape(message)) as error:
        Candidates.of(**arguments)
    assert "\n" not in error.value.message


class Net(nn.Module):
    """The layer of the logits is neither the last one registered nor the only one; `unused` never runs."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(16, C)
        self.body = nn.Sequential(
            nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.Dropout(0.5), nn.AdaptiveAvgPool2d(1), nn.Flatten()
        )
        self.middle = nn.Linear(8, 16)
        self.unused = nn.Linear(1, 1)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.head(self.middle(self.body(x)).relu())
        return logits


def images(n: int = 21) -> TensorDataset:
    generator = torch.Generator().manual_seed(0)
    return TensorDataset(torch.rand(n, 3, 8, 8, generator=generator), torch.arange(n) % C)


@torch.no_grad()
def by_hand(model: Net, dataset: TensorDataset) -> tuple[Tensor, Tensor]:
    model.eval()
    rows = [model.middle(model.body(x[None])).relu() for x, _ in dataset]
    return torch.cat([model.head(row) for row in rows]), torch.cat(rows)


@pytest.mark.parametrize("batch_size", [1, 8, 128])
def test_a_model_and_a_data_set_give_what_a_loop_gives(batch_size: int) -> None:
    torch.manual_seed(0)
    model, dataset = Net(), images()
    model.body(torch.rand(32, 3, 8, 8))  # running statistics that differ from those of a batch
    logits, features = by_hand(model, dataset)
    candidates = score_dataset(model.train(), dataset, batch_size=batch_size)
    outputs = candidates.outputs[0]
    torch.testing.assert_close(outputs.logits_NC, logits)
    torch.testing.assert_close(outputs.features_ND, features)
    assert outputs.features_ND.dtype == torch.float32
    assert not outputs.features_ND.requires_grad
    assert candidates.labels_N.tolist() == [i % C for i in range(21)]
    assert candidates.num_classes == C


def test_the_model_is_left_as_it_was() -> None:
    model = Net().train()
    model.body[1].eval()  # frozen statistics
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    score_dataset(model, images(), device="cpu")
    assert {name: module.training for name, module in model.named_modules() if not module.training} == {"body.1": False}
    assert all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())
    assert not any(module._forward_pre_hooks for module in model.modules())

    def fail(*_: Any) -> None:
        raise RuntimeError("out of memory")

    handle = model.head.register_forward_hook(fail)
    with pytest.raises(RuntimeError, match="out of memory"):
        score_dataset(model, images())
    handle.remove()
    assert model.training
    assert not any(module._forward_pre_hooks for module in model.modules())


def test_half_precision_and_several_models() -> None:
    dataset = images()
    models = [nn.Sequential(nn.Flatten(), nn.Linear(192, C)).double() for _ in range(2)]
    double = TensorDataset(dataset.tensors[0].double(), dataset.tensors[1])
    candidates = score_dataset(models, double)
    assert [each.logits_NC.dtype for each in candidates.outputs] == [torch.float32] * 2
    for model, outputs in zip(models, candidates.outputs, strict=True):
        torch.testing.assert_close(outputs.logits_NC, model(double.tensors[0]).float())
    assert len(select("dual", candidates, fraction=0.2).indices_K) == 4


def test_the_classifier_that_the_model_carries_or_the_caller_names() -> None:
    model, dataset = build_model("resnet18", num_classes=C, seed=0, width=4), images()
    carried = score_dataset(model, dataset)
    assert carried.outputs[0].num_features == 32
    assert torch.equal(
        carried.outputs[0].features_ND, score_dataset(model, dataset, classifier="classifier").outputs[0].features_ND
    )
    with pytest.raises(UsageError, match=re.escape("'middle' should take (1, 8) and the model give (1, 16)")):
        score_dataset(Net(), dataset, classifier="middle")
    with pytest.raises(UsageError, match=r"'unused' is no linear layer that the model runs\n.*'middle', 'head'"):
        score_dataset(Net(), dataset, classifier="unused")


class Samples(Dataset[Any]):
    def __init__(self, *samples: Any) -> None:
        self.samples = samples

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, position: int) -> Any:
        return self.samples[position]


class Stream(IterableDataset[Any]):
    def __iter__(self) -> Iterator[Any]:
        return iter([(IMAGE, 0)])


IMAGE = torch.zeros(3, 8, 8)
LINEAR = nn.Sequential(nn.Flatten(), nn.Linear(192, C))


@pytest.mark.parametrize(
    ("model", "dataset", "message"),
    [
        (nn.Conv2d(3, C, 8), images(), "the model runs no linear layer"),
        (nn.Sequential(nn.Flatten(), nn.Linear(192, C), nn.Linear(C, C), nn.GLU()), images(), "the model give (1, 4)"),
        (nn.LSTM(8, C), Samples((torch.zeros(2, 8), 0)), "the model runs no linear layer"),
        (nn.Linear(8, C), Samples((torch.zeros(3, 8), 0)), "they take (1, 3, 8) and give (1, 3, 4)"),
        ([], images(), "there is no model"),
        (LINEAR, Stream(), "the data set has no length"),
        (LINEAR, Samples(), "the data set is empty"),
        (LINEAR, Samples(IMAGE), "the data set gives Tensor, not (image tensor, label)"),
        (LINEAR, Samples((np.zeros(3), 0)), "the data set gives (ndarray, int)"),
        (LINEAR, Samples((IMAGE, 0, "name")), "the data set gives (Tensor, int, str)"),
        (LINEAR, Samples((IMAGE, "cat")), "labels: can't convert"),
        (LINEAR, Samples((IMAGE, 0.5)), "labels must be integers"),
        (LINEAR, Samples((IMAGE, C)), "label 4 of sample 0 is outside 0..3"),
    ],
)
def test_models_and_data_sets_that_cannot_be_scored(model: Any, dataset: Dataset[Any], message: str) -> None:
    with pytest.raises(UsageError, match=re.escape(message)):
        score_dataset(model, dataset)


@pytest.mark.parametrize("algorithm", ["random", "gradmatch", "el2n"])
@pytest.mark.parametrize("balanced", [True, False])
def test_a_saved_selection_is_loaded_as_it_was(tmp_path: Path, algorithm: str, balanced: bool) -> None:
    selection = select(
        algorithm, make(N, C), fraction=0.3, seed=7, balanced=balanced,
        notes={"data": "sha256:0a1b", "epochs": [1, 2], "view": {"size": 32}},
    )  # fmt: skip
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
        first.save(path / "below a file")


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
        (lambda table: table.drop_columns(["weight"]), "its columns are position, label, score, rank, expected"),
        (lambda table: table.append_column("rank", table["rank"]), "Multiple matches"),
        (lambda table: table.append_column("more", table["rank"]), "its columns are"),
        (lambda table: table.set_column(0, "position", table["position"].cast(pa.float64())), "its columns are"),
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
    ],
)
def test_tables_that_are_no_selections(tmp_path: Path, change: Callable[[pa.Table], pa.Table], message: str) -> None:
    table = pa.table(
        {
            "position": pa.array([3, 1, 2, 0], pa.int64()), "label": pa.array([0, 0, 1, 1], pa.int32()),
            "score": pa.nulls(4, pa.float32()), "rank": pa.array([1, None, 0, None], pa.int32()),
            "weight": pa.array([1.0, None, 2.0, None], pa.float32()),
        },
        metadata={"lipt": json.dumps(GOOD)},
    )  # fmt: skip
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


def weighted(weights: list[float]) -> Selection:
    """Picks 7, 2, 5 of ten candidates, which lie at 10 times their number."""
    selection = select("random", make(10, 2), fraction=0.3)
    return replace(
        selection, indices_K=torch.tensor([7, 2, 5]), weights_K=torch.tensor(weights), positions_N=torch.arange(10) * 10
    )


def test_the_subset_ascends_and_its_weights_go_with_it() -> None:
    selection = weighted([6.0, 1.0, 2.0])
    dataset = TensorDataset(torch.arange(91))
    subset = selection.subset(dataset)
    assert isinstance(subset, Subset)
    assert [int(value) for (value,) in subset] == [20, 50, 70]
    assert selection.ascending()[0].tolist() == [20, 50, 70]
    assert selection.ascending()[1].tolist() == [1, 2, 6]
    torch.testing.assert_close(selection.normalised_weights(), torch.tensor([1 / 3, 2 / 3, 2.0]))
    with pytest.raises(UsageError, match="reach up to position 90, the data set has 90 samples"):
        selection.subset(TensorDataset(torch.arange(90)))


def test_the_sampler_draws_in_proportion_to_the_weights() -> None:
    selection, draws = weighted([6.0, 1.0, 2.0]), 9000
    rows = list(selection.sampler(draws, torch.Generator().manual_seed(0)))
    counts, expected = np.bincount(rows, minlength=3), np.array([1000, 2000, 6000])
    chi_square = float(((counts - expected) ** 2 / expected).sum())
    assert chi_square < 13.8  # 2 degrees of freedom, p = 0.001
    assert len(list(selection.sampler())) == 3
    assert rows == list(selection.sampler(draws, torch.Generator().manual_seed(0)))
    never = weighted([0.0, 1.0, 2.0]).sampler(500, torch.Generator().manual_seed(0))
    assert set(never) == {0, 1}


def test_what_cannot_be_sampled() -> None:
    with pytest.raises(UsageError, match="all weights of the selection are 0"):
        weighted([0.0, 0.0, 0.0]).sampler()
    with pytest.raises(UsageError, match="num_samples must be at least 1, not 0"):
        weighted([1.0, 1.0, 1.0]).sampler(0)


def test_errors_have_a_remedy() -> None:
    for fails in (
        lambda: Candidates.of([0.5]),
        lambda: Selection.load("/nowhere"),
        lambda: score_dataset(nn.Identity(), images()),
        lambda: weighted([0.0, 0.0, 0.0]).normalised_weights(),
    ):
        with pytest.raises(LiptError) as error:
            fails()
        assert error.value.remedy


def test_every_algorithm_runs_on_a_scored_data_set() -> None:
    torch.manual_seed(0)
    dataset = images(40)
    candidates = score_dataset([Net(), Net()], dataset)
    held_out = score_dataset([Net(), Net()], images(12))
    for algorithm in sorted(set(ALGORITHMS) - {"forgetting"}):
        validation = held_out if requirements(algorithm, 0.1).validation else None
        selection = select(algorithm, candidates, fraction=0.2, validation=validation)
        assert len(selection.subset(dataset)) == 8, algorithm
