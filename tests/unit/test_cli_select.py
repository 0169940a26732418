"""`lipt select`: from files to a subset, and what it says of files that do not fit."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from safetensors.numpy import save_file

from lipt.cli import cli
from lipt.cli.select import select as select_command
from lipt.config import Select
from lipt.errors import UsageError
from lipt.selection import Candidates, Selection, select
from tests.programs import lipt


@pytest.fixture
def scored(tmp_path: Path) -> dict[str, np.ndarray]:
    """Outputs of 100 candidates, as files below tmp_path: whole (.npy), and in blocks of 60 and 40 (.safetensors)."""
    rng = np.random.default_rng(0)
    files = {
        "labels": np.arange(100) % 4,
        "logits": rng.normal(size=(100, 4)).astype(np.float16),
        "features": rng.normal(size=(100, 8)).astype(np.float16),
    }
    for name, array in files.items():
        np.save(tmp_path / f"{name}.npy", array)
    save_file({name: array[:60].copy() for name, array in files.items()}, tmp_path / "0.safetensors")
    save_file({name: array[60:].copy() for name, array in files.items()}, tmp_path / "1.safetensors")
    return files


def here(*arguments: str) -> None:
    """`lipt` in this process: quicker, and its errors are exceptions."""
    cli.main(args=list(arguments), prog_name="lipt", standalone_mode=False)


def test_select_from_files(tmp_path: Path, scored: dict[str, np.ndarray]) -> None:
    options = [item for name in scored for item in (f"--{name}", str(tmp_path / f"{name}.npy"))]
    to = str(tmp_path / "new" / "subset.parquet")
    ended = lipt(
        "select",
        *options,
        "--algorithm",
        "gradmatch",
        "--fraction",
        "0.2",
        "--option",
        "lam=0.25",
        "--seed",
        "5",
        "--note",
        "checkpoint=sha256:0a1b",
        "--to",
        to,
        "-o",
        "json",
    )
    assert ended.returncode == 0, ended.stderr
    assert ended.stderr == ""
    loaded = Selection.load(to)
    expected = select(
        "gradmatch",
        Candidates.of(**scored),
        fraction=0.2,
        seed=5,
        lam=0.25,
        notes={"checkpoint": "sha256:0a1b"},
    )
    assert torch.equal(loaded.indices_K, expected.indices_K)
    assert torch.equal(loaded.weights_K, expected.weights_K)
    assert loaded.provenance == expected.provenance
    assert json.loads(ended.stdout) == {"file": to, "count": 20, "remarks": [], **expected.provenance}
    assert pq.read_table(to)["rank"].null_count == 80


def test_select_from_blocks_is_select_from_arrays(tmp_path: Path, scored: dict[str, np.ndarray]) -> None:
    first, second, to = (str(tmp_path / name) for name in ("0.safetensors", "1.safetensors", "subset.parquet"))
    here(
        "select",
        "--outputs",
        first,
        "--outputs",
        second,
        "--validation",
        second,
        "--algorithm",
        "glister",
        "--unbalanced",
        "--fraction",
        "0.1",
        "--to",
        to,
    )
    held_out = Candidates.of(**{name: array[60:] for name, array in scored.items()})
    candidates = Candidates.of(**scored)
    expected = select("glister", candidates, fraction=0.1, balanced=False, validation=held_out)
    loaded = Selection.load(to)
    assert loaded.indices_K.tolist() == expected.indices_K.tolist()
    assert loaded.labels_N.tolist() == scored["labels"].tolist()
    assert loaded.indices_K.tolist() != select("glister", candidates, fraction=0.1, balanced=False).indices_K.tolist()


def test_select_with_several_models_or_none(tmp_path: Path, scored: dict[str, np.ndarray]) -> None:
    labels, logits, features, to = (
        str(tmp_path / name) for name in ("labels.npy", "logits.npy", "features.npy", "subset.parquet")
    )
    np.save(tmp_path / "other.npy", scored["logits"][::-1])
    both = ["--logits", logits, "--features", features, "--logits", str(tmp_path / "other.npy"), "--features", features]
    here("select", "--labels", labels, *both, "--algorithm", "dual", "--k", "10", "--to", to)
    models = {"logits": [scored["logits"], scored["logits"][::-1]], "features": [scored["features"]] * 2}
    expected = select("dual", Candidates.of(scored["labels"], **models), fraction=0.1)
    assert Selection.load(to).indices_K.tolist() == expected.indices_K.tolist()
    here("select", "--labels", labels, "--algorithm", "stratified", "--to", to)
    assert Selection.load(to).algorithm == "stratified"


def test_the_default_fraction_is_that_of_a_configuration_and_uses_the_logits(
    tmp_path: Path, scored: dict[str, np.ndarray]
) -> None:
    """It was 10 %, where auto draws at random and says nothing of the logits that it was given."""
    to = str(tmp_path / "subset.parquet")
    options = [item for name in scored for item in (f"--{name}", str(tmp_path / f"{name}.npy"))]
    here("select", *options, "--to", to)
    loaded = Selection.load(to)
    assert (loaded.fraction, loaded.algorithm) == (Select().fraction, "ccs")
    assert f"{Select().fraction:g}" in next(each.help for each in select_command.params if each.name == "fraction")


def test_outputs_that_are_not_used_and_classes_that_get_none_are_said(
    tmp_path: Path, scored: dict[str, np.ndarray]
) -> None:
    to = str(tmp_path / "subset.parquet")
    options = [item for name in scored for item in (f"--{name}", str(tmp_path / f"{name}.npy"))]
    ended = lipt("select", *options, "--fraction", "0.1", "--to", to, "-o", "json")
    assert ended.returncode == 0
    (remark,) = json.loads(ended.stdout)["remarks"]
    assert "the outputs of the models were not used" in remark
    assert ended.stderr == f"lipt: warning: {remark}\n"
    ended = lipt("select", *options, "--k", "3", "--to", to)
    assert ended.stderr.splitlines() == [
        "lipt: warning: 1 of 4 classes get none of the 3 samples: class 3; raise the budget to train on them",
        "lipt: 3 of 100 samples, by ccs",
    ]
    assert len(Selection.load(to).indices_K) == 3


def test_blocks_may_hold_logits_alone_or_features_alone(tmp_path: Path, scored: dict[str, np.ndarray]) -> None:
    to = str(tmp_path / "subset.parquet")
    for what, algorithm in (("logits", "el2n"), ("features", "herding")):
        paths = [str(tmp_path / f"{what}{index}.safetensors") for index in range(2)]
        for path, rows in zip(paths, (slice(60), slice(60, 100)), strict=True):
            save_file({name: scored[name][rows].copy() for name in ("labels", what)}, path)
        here("select", "--outputs", paths[0], "--outputs", paths[1], "--algorithm", algorithm, "--to", to)
        expected = select(algorithm, Candidates.of(**scored), fraction=0.05)
        assert Selection.load(to).indices_K.tolist() == expected.indices_K.tolist()


def test_what_is_selected_already_from_a_file(tmp_path: Path, scored: dict[str, np.ndarray]) -> None:
    first, second = str(tmp_path / "first.parquet"), str(tmp_path / "second.parquet")
    options = ["--labels", str(tmp_path / "labels.npy"), "--features", str(tmp_path / "features.npy")]
    options += ["--algorithm", "k_center", "--k", "10"]
    here("select", *options, "--to", first)
    begun = Selection.load(first).indices_K
    np.save(tmp_path / "begun.npy", begun.numpy())
    expected = select("k_center", Candidates.of(**scored), k=10, initial=begun).indices_K.tolist()
    for initial in (first, str(tmp_path / "begun.npy")):
        here("select", *options, "--initial", initial, "--to", second)
        assert Selection.load(second).indices_K.tolist() == expected
    assert not set(expected) & set(begun.tolist())


def test_the_file_of_a_run_names_positions_in_the_data_set(tmp_path: Path, scored: dict[str, np.ndarray]) -> None:
    """The candidates of a run are a part of the data set; numbers among them are other samples."""
    last = Candidates.of(scored["labels"][40:], features=scored["features"][40:])
    run = replace(select("k_center", last, k=10), positions_N=torch.arange(40, 100))
    run.save(tmp_path / "run.parquet")
    options = ["--labels", str(tmp_path / "labels.npy"), "--features", str(tmp_path / "features.npy")]
    options += ["--algorithm", "k_center", "--k", "30", "--initial", str(tmp_path / "run.parquet")]
    here("select", *options, "--to", str(tmp_path / "more.parquet"))
    expected = select("k_center", Candidates.of(**scored), k=30, initial=run.indices_K + 40).indices_K.tolist()
    assert Selection.load(tmp_path / "more.parquet").indices_K.tolist() == expected
    assert not set(expected) & set(run.positions_K.tolist())


def test_own_scores_from_a_file(tmp_path: Path, scored: dict[str, np.ndarray]) -> None:
    own = np.random.default_rng(1).permutation(100)
    np.save(tmp_path / "own.npy", own)
    labels, scores, to = (str(tmp_path / name) for name in ("labels.npy", "own.npy", "subset.parquet"))
    here(
        "select",
        "--labels",
        labels,
        "--scores",
        scores,
        "--algorithm",
        "scores",
        "--unbalanced",
        "--k",
        "7",
        "--to",
        to,
    )
    assert Selection.load(to).indices_K.tolist() == np.argsort(-own)[:7].tolist()
    blocks = ["--outputs", str(tmp_path / "0.safetensors"), "--outputs", str(tmp_path / "1.safetensors")]
    options = ["--algorithm", "ccs", "--option", "score=scores", "--option", "beta=0.5"]
    here("select", *blocks, "--scores", scores, *options, "--to", to)
    assert own[Selection.load(to).indices_K].max() < 60


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("", "no candidates: neither --labels nor --outputs is given"),
        ("--logits logits.npy", "no candidates: neither --labels nor --outputs is given"),
        ("--labels labels.npy --outputs 0.safetensors", "the candidates come either from --labels"),
        ("--outputs 0.safetensors --logits logits.npy", "the candidates come either from --labels"),
        ("--labels labels.npy --logits logits.npy --algorithm grand", "algorithm grand needs the features of model 0"),
        ("--labels nowhere.npy", "cannot read nowhere.npy: "),
        ("--labels .", "cannot read .: "),
        ("--labels empty", "cannot read empty: "),
        ("--labels 0.safetensors", "cannot read 0.safetensors: "),
        ("--labels pickled.npy", "cannot read pickled.npy: "),
        ("--labels cut.npy", "cannot read cut.npy: "),
        ("--labels logits.npy", "labels must be integers, not torch.float16"),
        ("--labels labels.npy --logits features.npy --features logits.npy --algorithm moderat", "unknown selection"),
        (
            "--labels labels.npy --k 3 --fraction 0.1 --algorithm random",
            "--fraction and --k both say how many samples to keep",
        ),
        (
            "--labels labels.npy --k 101 --algorithm random",
            "k must be an integer from 1 to the number of candidates, 100",
        ),
        ("--labels labels.npy --algorithm el2n", "the outputs of at least 1 model; there is none"),
        ("--labels labels.npy --option beta", "--option beta: not of the form NAME=VALUE"),
        ("--labels labels.npy --option =1", "--option =1: not of the form NAME=VALUE"),
        ("--labels labels.npy --option beta=[", "the value of --option beta is not YAML"),
        ("--labels labels.npy --option beta=.3 --option beta=.4", "--option beta is given twice"),
        ("--labels labels.npy --note a=1 --note a=1", "--note a is given twice"),
        ("--labels labels.npy --note checkpoint", "--note checkpoint: not of the form NAME=VALUE"),
        ("--labels labels.npy --algorithm random --note seed=3", "note 'seed' is an entry of every provenance"),
        ("--outputs nowhere.safetensors", "cannot read nowhere.safetensors: "),
        ("--outputs labels.npy", "cannot read labels.npy: "),
        ("--outputs empty", "cannot read empty: "),
        ("--outputs bare.safetensors", "cannot read bare.safetensors: it has neither logits nor features"),
        ("--outputs unlabelled.safetensors", "cannot read unlabelled.safetensors: it has no tensor 'labels'"),
        ("--outputs 0.safetensors --outputs logits.safetensors", "logits.safetensors has tensors of labels (60,), log"),
        ("--outputs logits.safetensors --algorithm grand", "algorithm grand needs the features of model 0"),
        ("--labels labels.npy --scores logits.npy --algorithm scores", "scores have shape (100, 4), expected (100,)"),
        ("--labels labels.npy --algorithm scores", "own scores are missing"),
        ("--labels labels.npy --algorithm random --initial labels.npy", "random takes no initial samples"),
        ("--labels labels.npy --features features.npy --algorithm herding --initial logits.npy", "must be integers"),
        (
            "--outputs uneven.safetensors",
            "uneven.safetensors has tensors of labels (60,), logits (60, 4), features (40",
        ),
        ("--outputs 0.safetensors --outputs other.safetensors", "other.safetensors has tensors of"),
        ("--outputs 0.safetensors --algorithm glister --validation other.safetensors", "scored by the same models"),
        ("--outputs identifiers.safetensors", "the largest label is 8,589,934,592: the labels look like identifiers"),
    ],
)
def test_select_says_what_is_wrong_with_a_file(
    tmp_path: Path, scored: dict[str, np.ndarray], monkeypatch: pytest.MonkeyPatch, arguments: str, message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("empty").touch()
    np.save("pickled.npy", np.array([{}], dtype=object), allow_pickle=True)
    Path("cut.npy").write_bytes(Path("labels.npy").read_bytes()[:-8])
    block = {name: array[:60].copy() for name, array in scored.items()}
    save_file({"labels": block["labels"]}, "bare.safetensors")
    save_file({"logits": block["logits"]}, "unlabelled.safetensors")
    save_file({name: block[name] for name in ("labels", "logits")}, "logits.safetensors")
    save_file(block | {"features": block["features"][:40].copy()}, "uneven.safetensors")
    save_file(block | {"features": block["features"][:, :3].copy()}, "other.safetensors")
    save_file({"labels": np.array([0, 2**33]), "features": block["features"][:2].copy()}, "identifiers.safetensors")
    with pytest.raises(UsageError, match=re.escape(message)) as error:
        here("select", *arguments.split(), "--to", "subset.parquet")
    assert "\n" not in error.value.message
    assert not Path("subset.parquet").exists()


@pytest.mark.parametrize(
    ("arguments", "to"),
    [
        ("--labels labels.npy --logits logits.npy", "labels.npy"),
        ("--labels labels.npy --logits logits.npy", "./logits.npy"),
        ("--labels labels.npy --features features.npy", "alias.npy"),
        ("--labels labels.npy --scores scores.npy --algorithm scores", "scores.npy"),
        ("--labels labels.npy --logits logits.npy --initial initial.npy", "initial.npy"),
        ("--outputs 0.safetensors --outputs 1.safetensors", "1.safetensors"),
        ("--outputs 0.safetensors --validation 1.safetensors --algorithm glister", "1.safetensors"),
    ],
)
@pytest.mark.usefixtures("scored")
def test_select_never_replaces_what_it_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: str, to: str
) -> None:
    monkeypatch.chdir(tmp_path)
    np.save("scores.npy", np.arange(100.0))
    np.save("initial.npy", np.arange(3))
    Path("alias.npy").symlink_to("features.npy")
    before = Path(to).read_bytes()
    for target in (to, f"file://{tmp_path / to}"):
        with pytest.raises(UsageError, match=r"^--to .* is .*, which this command reads"):
            here("select", *arguments.split(), "--to", target)
    assert Path(to).read_bytes() == before


@pytest.mark.usefixtures("scored")
def test_select_writes_only_to_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for target in ("", ".", f"file://{tmp_path}"):
        with pytest.raises(UsageError, match=r"^--to .* is no file"):
            here("select", "--labels", "labels.npy", "--features", "features.npy", "--to", target)
    for target in ("subset.csv", "s3://bucket/subset.csv"):
        with pytest.raises(UsageError, match=r"written as Parquet") as error:
            here("select", "--labels", "labels.npy", "--algorithm", "random", "--to", target)
        assert error.value.remedy == f"name it {target.replace('.csv', '.parquet')}"
    assert not Path("subset.csv").exists()


def test_select_ends_with_one_error_and_a_remedy(tmp_path: Path) -> None:
    ended = lipt("select", "--labels", str(tmp_path / "nowhere.npy"), "--to", str(tmp_path / "subset.parquet"))
    assert (ended.returncode, ended.stdout) == (2, "")
    assert re.fullmatch(r"lipt: cannot read .*nowhere.npy: .*\n  -> name a .npy file that you may read\n", ended.stderr)
