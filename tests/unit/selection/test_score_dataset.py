"""What `score_dataset` takes: data sets, loaders and models of several kinds; and outputs on disk."""

from __future__ import annotations

import fcntl
import re
from collections import OrderedDict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor, nn
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    IterableDataset,
    SequentialSampler,
    Subset,
    TensorDataset,
    WeightedRandomSampler,
    default_collate,
)

from lipt.cli import main
from lipt.errors import RunError, UsageError
from lipt.selection import Candidates, Selection, score_dataset, select
from lipt.selection.inputs.disk import rows_in

N, C = 21, 4
LABELS = [i % C for i in range(N)]
PAIRS = [(torch.zeros(3, 8, 8), 1) for _ in range(6)]


class Listed(Dataset[Any]):
    """A map-style data set of these samples."""

    def __init__(self, samples: list[Any]) -> None:
        self.samples = samples

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, position: int) -> Any:
        return self.samples[position]


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(3 * 8 * 8, 16), nn.ReLU(), nn.Linear(16, C))


def pixels() -> np.ndarray[Any, np.dtype[np.uint8]]:
    return np.random.default_rng(0).integers(0, 256, (N, 8, 8, 3), dtype=np.uint8)


def tensors() -> Tensor:
    return torch.from_numpy(pixels()).permute(0, 3, 1, 2).float() / 255


def equal(found: Candidates, expected: Candidates) -> None:
    assert found.labels_N.tolist() == expected.labels_N.tolist()
    assert found.num_classes == expected.num_classes
    for mine, theirs in zip(found.outputs, expected.outputs, strict=True):
        torch.testing.assert_close(mine.logits_NC, theirs.logits_NC)
        torch.testing.assert_close(mine.features_ND, theirs.features_ND)


def forms() -> dict[str, Any]:
    x, pictures = tensors(), [Image.fromarray(each) for each in pixels()]
    pairs = list(zip(x, LABELS, strict=True))
    rows = datasets.Dataset.from_dict({"image": pictures, "label": LABELS})
    return {
        "hugging face": rows,
        "hugging face, torch": rows.with_format("torch"),
        "hugging face, loader": DataLoader(rows.with_format("torch"), batch_size=5),
        "with index": Listed([(image, label, 100 + i) for i, (image, label) in enumerate(pairs)]),
        "dicts": Listed([{"image": image, "label": label, "name": "a"} for image, label in pairs]),
        "dicts of pictures": Listed([{"img": p, "fine_label": y} for p, y in zip(pictures, LABELS, strict=True)]),
        "dicts of bytes": Listed([{"image": (255 * image).round().byte(), "label": label} for image, label in pairs]),
        "pictures": Listed(list(zip(pictures, LABELS, strict=True))),
        "pictures with an alpha channel": Listed(
            [(p.convert("RGBA"), y) for p, y in zip(pictures, LABELS, strict=True)]
        ),
        "labels of shape (1,)": Listed([(image, torch.tensor([label])) for image, label in pairs]),
        "loader with labels of shape (1,)": DataLoader(TensorDataset(x, torch.tensor(LABELS)[:, None]), batch_size=4),
        "loader": DataLoader(TensorDataset(x, torch.tensor(LABELS)), batch_size=4),
        "loader of dicts": DataLoader(Listed([{"pixel_values": x, "labels": y} for x, y in pairs]), batch_size=5),
    }


@pytest.mark.parametrize("form", list(forms()))
def test_every_form_of_a_data_set_gives_the_same_candidates(form: str) -> None:
    expected = score_dataset(network(), TensorDataset(tensors(), torch.tensor(LABELS)))
    equal(score_dataset(network(), forms()[form], batch_size=8), expected)


def test_grey_pictures_and_a_transform_in_the_workers_of_a_loader() -> None:
    grey = [(Image.fromarray(each[:, :, 0]), y) for each, y in zip(pixels(), LABELS, strict=True)]
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, C))
    candidates = score_dataset(model, Listed(grey))
    with torch.no_grad():
        torch.testing.assert_close(candidates.outputs[0].logits_NC, model(tensors()[:, :1]))
        scaled = score_dataset(model, Listed(grey), transform=doubled, num_workers=1)
        torch.testing.assert_close(scaled.outputs[0].logits_NC, model(2 * tensors()[:, :1]))


def doubled(picture: Image.Image) -> Tensor:
    return torch.from_numpy(np.asarray(picture, np.float32))[None] * 2 / 255


class Stream(IterableDataset[Any]):
    def __len__(self) -> int:
        return len(PAIRS)

    def __iter__(self) -> Iterator[Any]:
        return iter(PAIRS)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (Listed([{"image": torch.zeros(3, 8, 8), "name": "a"}]), "a sample is a dict of image, name"),
        (Listed([(Image.new("L", (8, 8)), 0), (Image.new("RGB", (8, 8)), 1)]), "images have different modes: L, RGB"),
        (Listed([(Image.new("I;16", (8, 8)), 0)]), "16 or 32 bits per pixel (mode I;16)"),
        (Listed([(Image.new("F", (8, 8)), 0)]), "16 or 32 bits per pixel (mode F)"),
        (datasets.DatasetDict(), "the data set is empty"),
        (datasets.DatasetDict(train=datasets.Dataset.from_dict({"a": [1]})), "a dict of the splits train"),
        (Listed([(torch.zeros(1, 8, 8), 0), (torch.zeros(3, 8, 8), 1)]), "different modes: 1 channels, 3 channels"),
        (
            Listed([(Image.new("RGB", (8, 8)), 0), (Image.new("RGB", (9, 8)), 1)]),
            "images have different sizes: [(3, 8, 8), (3, 8, 9)]",
        ),
        (DataLoader(TensorDataset(torch.zeros(4, 3, 8, 8), torch.zeros(4)), shuffle=True), "in batches and in order"),
        (
            DataLoader(
                TensorDataset(torch.zeros(4, 3, 8, 8), torch.zeros(4)), sampler=WeightedRandomSampler([1.0] * 4, 4)
            ),
            "in batches and in order",
        ),
        (
            DataLoader(TensorDataset(torch.zeros(4, 3, 8, 8), torch.zeros(4)), 3, drop_last=True),
            "in batches and in order",
        ),
        (
            DataLoader(TensorDataset(torch.zeros(4, 3, 8, 8), torch.zeros(4)), batch_size=None),
            "in batches and in order",
        ),
        (
            DataLoader(Listed(PAIRS), batch_sampler=BatchSampler(SequentialSampler(PAIRS), 4, drop_last=True)),
            "in batches and in order",
        ),
        (DataLoader(Listed(PAIRS), sampler=SequentialSampler(range(10))), "in batches and in order"),
        (DataLoader(Listed(PAIRS), 4, collate_fn=lambda batch: default_collate(batch[:3])), "hold 5 samples, the data"),
        (DataLoader(Listed(PAIRS), 4, collate_fn=lambda batch: default_collate(2 * batch)), "hold 12 samples, the da"),
        (DataLoader(Listed(PAIRS), 4, collate_fn=list), "gives a batch as a list of samples, not as images and labels"),
        (Listed([(torch.zeros(3, 8, 8), torch.eye(4).long()[0])]), "1 images has labels of shape (1, 4)"),
        (DataLoader(TensorDataset(torch.zeros(0, 3, 8, 8), torch.zeros(0))), "the data set is empty"),
        (Stream(), "the data set is iterable (Stream): its samples have no positions"),
        (DataLoader(Stream()), "the data set is iterable (Stream): its samples have no positions"),
        (Listed([(torch.zeros(3, 8, 8).long(), 0)]), "the images are torch.int64: their range is unknown"),
        (DataLoader(Listed([(torch.zeros(3, 8, 8).short(), 0)])), "the images are torch.int16: their range is unknown"),
    ],
)
def test_data_that_cannot_be_scored(data: Any, message: str) -> None:
    with pytest.raises(UsageError, match=re.escape(message)):
        score_dataset(network(), data)


def test_the_callers_random_numbers_stay_as_they_were() -> None:
    model, before = network(), torch.get_rng_state()
    score_dataset(model, TensorDataset(tensors(), torch.tensor(LABELS)))
    assert torch.equal(torch.get_rng_state(), before)


def test_a_loader_is_used_as_it_is() -> None:
    loader = DataLoader(TensorDataset(tensors(), torch.tensor(LABELS)))
    with pytest.raises(UsageError, match="without transform"):
        score_dataset(network(), loader, transform=doubled)


class Answers(nn.Module):
    """Returns a dict, as Hugging Face's models do."""

    def __init__(self, *names: str) -> None:
        super().__init__()
        self.body, self.head, self.names = nn.Linear(24, 6), nn.Linear(6, C), names

    def forward(self, pixel_values: Tensor) -> dict[str, Tensor]:
        hidden = self.body(pixel_values.flatten(2).transpose(1, 2).reshape(len(pixel_values), 8, 24))
        pooled = hidden.mean(1)
        found = {"last_hidden_state": hidden, "pooler_output": pooled[:, :, None, None] * 2}
        if "logits" in self.names:
            found["logits"] = self.head(pooled)
        return OrderedDict((name, found[name]) for name in self.names)


def test_models_that_return_a_dict() -> None:
    dataset = TensorDataset(tensors(), torch.tensor(LABELS))
    model = Answers("logits", "last_hidden_state")
    with torch.no_grad():
        answers = model(tensors())
        doubled = Answers("pooler_output", "last_hidden_state")
        doubled.load_state_dict(model.state_dict())
        tokens = Answers("last_hidden_state")
        tokens.load_state_dict(model.state_dict())
    whole, pooled, mean = (score_dataset(each, dataset, batch_size=6) for each in (model, doubled, tokens))
    torch.testing.assert_close(whole.outputs[0].logits_NC, answers["logits"])
    torch.testing.assert_close(whole.outputs[0].features_ND, answers["last_hidden_state"].mean(1))
    torch.testing.assert_close(pooled.outputs[0].features_ND, 2 * answers["last_hidden_state"].mean(1))
    torch.testing.assert_close(mean.outputs[0].features_ND, answers["last_hidden_state"].mean(1))
    assert mean.outputs[0].num_classes == 0
    assert len(select("herding", mean, k=8)) == 8
    with pytest.raises(UsageError, match="needs the logits"):
        select("el2n", mean, k=8)
    with pytest.raises(UsageError, match="the model returns a dict of attentions"):
        score_dataset(Attentions(), dataset)


@pytest.mark.parametrize("order", [1, -1])
def test_models_of_which_only_some_give_logits_are_refused(tmp_path: Path, order: int) -> None:
    dataset = TensorDataset(tensors(), torch.tensor(LABELS))
    models = [Answers("pooler_output"), Answers("logits")][::order]
    with pytest.raises(UsageError, match=r"the models give different numbers of logits: (0, 4|4, 0)"):
        score_dataset(models, dataset, to=tmp_path)
    assert not list(tmp_path.iterdir())


class Attentions(nn.Module):
    def forward(self, x: Tensor) -> dict[str, Tensor]:
        return {"attentions": x}


def test_outputs_on_disk_are_those_in_memory_and_lipt_select_reads_them(tmp_path: Path) -> None:
    dataset, folder = TensorDataset(tensors(), torch.tensor(LABELS)), tmp_path / "outputs"
    expected = score_dataset(network(), dataset)
    stored = score_dataset(network(), dataset, to=folder)
    equal(stored, expected)
    assert sorted(path.name for path in folder.iterdir()) == ["features.npy", "labels.npy", "logits.npy"]
    on_disk = np.load(folder / "features.npy", mmap_mode="r+")
    on_disk[0] = 7  # the candidates are a view of the file
    assert stored.outputs[0].features_ND[0].tolist() == [7] * 16
    files = ["--labels", f"{folder}/labels.npy", "--logits", f"{folder}/logits.npy"]
    main(["select", *files, "--algorithm", "el2n", "--k", "5", "--to", f"{tmp_path}/s.parquet"])
    assert Selection.load(tmp_path / "s.parquet").indices_K.tolist() == select("el2n", expected, k=5).indices_K.tolist()


class Twice(nn.Module):
    """Runs its last layer a second time: for an auxiliary output before or after the logits, or to average both."""

    def __init__(self, use: str) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.body, self.fc, self.use = nn.Sequential(nn.Flatten(), nn.Linear(192, 16), nn.ReLU()), nn.Linear(16, C), use

    def forward(self, x: Tensor) -> Tensor:
        first, second = self.fc(self.body(0 * x)), self.fc(self.body(x))
        if self.use == "last":
            return second
        return first if self.use == "first" else (first + second) / 2


def test_features_are_those_of_which_the_logits_were_made() -> None:
    dataset, model = TensorDataset(tensors(), torch.tensor(LABELS)), Twice("last")
    (found,) = score_dataset(model, dataset).outputs
    torch.testing.assert_close(model.fc(found.features_ND), found.logits_NC)
    assert len(found.features_ND.unique(dim=0)) == N


@pytest.mark.parametrize("use", ["first", "mean"])
def test_a_model_whose_logits_are_not_its_last_output_is_refused(use: str) -> None:
    with pytest.raises(UsageError, match=r"the output of no linear layer is the logits; those that run: body.1, fc"):
        score_dataset(Twice(use), TensorDataset(tensors(), torch.tensor(LABELS)))


class Heads(nn.Module):
    """Two linear layers of C outputs; `use` says which gives the logits."""

    def __init__(self, use: str) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.body, self.use = nn.Sequential(nn.Flatten(), nn.Linear(192, 16), nn.ReLU()), use
        self.head, self.aux = nn.Linear(16, C), nn.Linear(192, C)

    def forward(self, x: Tensor) -> Tensor:
        logits, other = self.head(self.body(x)), self.aux(x.flatten(1))
        if self.use == "mean":
            return (logits + other) / 2
        return logits.log_softmax(1) if self.use == "log_softmax" else logits


@pytest.mark.parametrize("use", ["logits", "log_softmax"])
def test_a_head_beside_the_classifier_is_not_taken_for_it(use: str) -> None:
    dataset, model = TensorDataset(tensors(), torch.tensor(LABELS)), Heads(use)
    (found,) = score_dataset(model, dataset).outputs
    torch.testing.assert_close(found.features_ND, model.body(tensors()).detach())
    with pytest.raises(UsageError, match=r"the logits; those that run: body.1, head, aux"):
        score_dataset(Heads("mean"), dataset)
    (named,) = score_dataset(Heads("mean"), dataset, classifier="head").outputs
    torch.testing.assert_close(named.features_ND, found.features_ND)


def test_a_model_that_averages_over_each_batch() -> None:
    """The features are those of whole batches; a batch of one has no average."""
    dataset = TensorDataset(tensors(), torch.tensor(LABELS))
    body = nn.Sequential(nn.Flatten(), nn.Linear(192, 16), nn.BatchNorm1d(16, track_running_stats=False)).eval()
    model = nn.Sequential(body, nn.Linear(16, C))
    (found,) = score_dataset(model, dataset).outputs
    with torch.no_grad():
        torch.testing.assert_close(found.features_ND, body(tensors()))
    for few, batch_size in ((dataset, 20), (Subset(dataset, [0]), 128)):  # 21 images
        with pytest.raises(UsageError, match=r"^model 0 averages over a batch .* and one has a single image"):
            score_dataset(model, few, batch_size=batch_size)


def test_what_a_probe_of_one_image_shows_is_said(tmp_path: Path) -> None:
    dataset = TensorDataset(tensors(), torch.tensor(LABELS))

    class Squeezed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc = nn.Linear(192, C)

        def forward(self, x: Tensor) -> Tensor:
            logits: Tensor = self.fc(x.flatten(1).squeeze())  # of one image it has no axis of images
            return logits

    with pytest.raises(UsageError, match=r"for a batch of 1 the linear layer 'fc' should take \(1, 192\)"):
        score_dataset(Squeezed(), dataset)
    broken = network()
    nn.init.constant_(broken.get_parameter("3.bias"), torch.nan)
    with pytest.raises(RunError, match="logits of candidate sample 0"):
        select("el2n", score_dataset(broken, dataset), k=3)
    for wrong in ("5", -1, True):
        with pytest.raises(UsageError, match="num_classes"):
            score_dataset(network(), dataset, num_classes=wrong)  # type: ignore[arg-type]


def test_compiled_models_and_a_module_list() -> None:
    dataset, whole = TensorDataset(tensors(), torch.tensor(LABELS)), network()
    expected = score_dataset(whole, dataset)
    compiled = torch.compile(network(), backend="eager")
    compiled(tensors())  # hooks that are added now are not called
    equal(score_dataset(compiled, dataset), expected)
    own = network()
    own.compile(backend="eager")
    equal(score_dataset(own, dataset), expected)
    equal(score_dataset(nn.ModuleList([whole, own]), dataset), score_dataset([whole, own], dataset))


class Counted(Listed):
    """Counts how often a sample is read."""

    read = 0

    def __getitem__(self, position: int) -> Any:
        self.read += 1
        return super().__getitem__(position)


def of_classes(count: int) -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(192, count))


@pytest.mark.parametrize(
    ("models", "label", "num_classes", "message"),
    [
        ([network()], C, None, "label 4 of sample 1 is outside 0..3"),
        ([nn.Sequential(network(), nn.Softmax(1))], 0, None, "model 0 are probabilities"),
        ([network(), of_classes(5)], 0, None, "different numbers of logits: 4, 5"),
        ([network()], 0, 5, "the model gives 4 logits, and num_classes is 5"),
    ],
)
def test_what_is_wrong_with_the_first_images_is_said_at_once(
    models: list[nn.Module], label: int, num_classes: int | None, message: str
) -> None:
    """Not after hours of a pass."""
    labels = [label if i == 1 else 0 for i in range(N)]
    dataset = Counted(list(zip(tensors(), labels, strict=True)))
    with pytest.raises(UsageError, match=message):
        score_dataset(models, dataset, batch_size=4, num_classes=num_classes)
    assert dataset.read == 1 + 4  # one to look at, and the first batch


def test_several_models_read_each_sample_once() -> None:
    """Decoding the images takes longer than a small network, and a random transform would differ between models."""
    dataset = Counted(list(zip(tensors(), LABELS, strict=True)))
    models = [network().train(), of_classes(C)]
    found = score_dataset([*models, models[0]], dataset, batch_size=4)
    assert dataset.read == 1 + N  # one to look at
    assert [each.training for each in models] == [True, True]
    for model, outputs in zip([*models, models[0]], found.outputs, strict=True):
        torch.testing.assert_close(outputs.logits_NC, score_dataset(model, dataset).outputs[0].logits_NC)


def test_a_model_that_gives_no_tensor_is_refused() -> None:
    class Pair(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.network = network()

        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            return self.network(x), x

    for classifier in (None, "network.3"):
        with pytest.raises(UsageError, match="the model gives a tuple, not logits"):
            score_dataset(Pair(), Listed(PAIRS), classifier=classifier)
    weights: Any = network().state_dict()
    with pytest.raises(UsageError, match=r"of type OrderedDict, not a torch.nn.Module\n.*load_state_dict"):
        score_dataset(weights, Listed(PAIRS))


def test_files_of_a_killed_pass_are_deleted_and_those_of_another_that_runs_are_not(tmp_path: Path) -> None:
    dataset = TensorDataset(tensors(), torch.tensor(LABELS))
    dead, alive, mine = (tmp_path / f".features-0.npy.{end}" for end in ("0" * 32, "1" * 32, "mine"))
    for path in (dead, alive, mine):
        path.touch()
    with alive.open() as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        score_dataset(network(), dataset, to=tmp_path)
        assert {path.name for path in tmp_path.glob(".*")} == {alive.name, mine.name}
    score_dataset(network(), dataset, to=tmp_path)
    assert {path.name for path in tmp_path.glob(".*")} == {mine.name}


def test_a_pass_that_begins_before_a_new_file_has_its_lock_takes_none_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the lock a file looks like that of a killed pass."""
    dataset, flock, begun = TensorDataset(tensors(), torch.tensor(LABELS)), fcntl.flock, list[int]()

    def beside_another(file: Any, how: int) -> None:
        if how == fcntl.LOCK_EX and len(begun) < 2:
            begun.append(how)
            with rows_in(tmp_path):
                pass
        flock(file, how)

    monkeypatch.setattr(fcntl, "flock", beside_another)
    score_dataset(network(), dataset, to=tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["features.npy", "labels.npy", "logits.npy"]


def test_a_full_disk_keeps_no_file_without_a_header(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(path: Path, **_options: Any) -> None:
        path.touch()
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np.lib.format, "open_memmap", full)
    with pytest.raises(RunError, match="No space left on device"):
        score_dataset(network(), TensorDataset(tensors(), torch.tensor(LABELS)), to=tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_several_models_on_disk_and_nothing_of_a_failed_pass(tmp_path: Path) -> None:
    dataset = TensorDataset(tensors(), torch.tensor(LABELS))
    score_dataset([network(), network()], dataset, to=tmp_path)
    before = sorted(path.name for path in tmp_path.iterdir())
    assert before == ["features-0.npy", "features-1.npy", "labels.npy", "logits-0.npy", "logits-1.npy"]
    broken = Listed([*((image, 0) for image in tensors()), (torch.zeros(3, 8, 8), "cat")])
    with pytest.raises(UsageError, match="labels"):
        score_dataset(network(), broken, to=tmp_path, batch_size=4)
    assert sorted(path.name for path in tmp_path.iterdir()) == before
    mine = ["features-mine.npy", "labels-1.npy", "notes.txt"]
    for name in mine:
        (tmp_path / name).touch()
    left = ["features.npy", "labels.npy"]  # of a model without logits; nothing of the models before is beside them
    score_dataset(Answers("pooler_output"), dataset, to=tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(left + mine)
    (tmp_path / "file").touch()
    with pytest.raises(RunError, match="cannot write"):
        score_dataset(network(), dataset, to=tmp_path / "file")
    not_a_name: Any = 3
    with pytest.raises(UsageError, match="to=3 is no name of a folder"):
        score_dataset(network(), dataset, to=not_a_name)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_images_take_the_precision_of_the_model(dtype: torch.dtype) -> None:
    dataset = TensorDataset(tensors(), torch.tensor(LABELS))
    expected, found = (score_dataset(each, dataset) for each in (network(), network().to(dtype)))
    for name in ("logits_NC", "features_ND"):
        whole, own = getattr(expected.outputs[0], name), getattr(found.outputs[0], name)
        assert own.dtype == torch.float32
        torch.testing.assert_close(own, whole, rtol=0.03, atol=0.03)


class Odd(nn.Module):
    """Calls its classifier by keyword, and gives a dict with or without these entries."""

    def __init__(self, **answers: Any) -> None:
        super().__init__()
        self.body, self.head = nn.Linear(3 * 8 * 8, 5), nn.Linear(5, C)
        self.answers = answers

    def forward(self, x: Tensor) -> Any:
        hidden = self.body(input=x.flatten(1))
        return {"last_hidden_state": hidden, **self.answers} if self.answers else self.head(input=hidden)


def test_models_that_are_called_or_answer_in_unusual_ways() -> None:
    dataset = TensorDataset(tensors(), torch.tensor(LABELS))
    odd = Odd()
    with torch.no_grad():
        hidden = odd.body(tensors().flatten(1))
    torch.testing.assert_close(score_dataset(odd, dataset).outputs[0].features_ND, hidden)
    flat = Odd(pooler_output=None)
    flat.load_state_dict(odd.state_dict())
    torch.testing.assert_close(score_dataset(flat, dataset).outputs[0].features_ND, hidden)
    vectors = TensorDataset(tensors().flatten(1), torch.tensor(LABELS))
    probe = nn.Linear(3 * 8 * 8, C)
    torch.testing.assert_close(score_dataset(probe, vectors).outputs[0].features_ND, tensors().flatten(1))
    with pytest.raises(UsageError, match="weights on the device meta"):
        score_dataset(Odd().to("meta"), dataset)


@pytest.mark.parametrize("workers", [0, 1])
def test_the_error_of_a_worker_is_the_error(workers: int) -> None:
    images = [(torch.zeros(3, side, side), 1) for side in (8, 9)]
    with pytest.raises(UsageError) as caught:
        score_dataset(network(), Listed(images), num_workers=workers)
    assert caught.value.message.startswith("images have different sizes: [(3, 8, 8)")
    assert caught.value.remedy == "resize them with transform="
