"""The command line as a user meets it: exit codes, one clear error, stdout for results alone."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
import yaml
from safetensors.numpy import save_file

from lipt.cli import cli
from lipt.core.selection import Candidates, Selection, select
from lipt.errors import UsageError
from tests.programs import run_python
from tests.tiny import TINY


def lipt(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "lipt", *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env=os.environ | environment,
    )


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "tiny.yaml"
    path.write_text(yaml.safe_dump(TINY | {"workspace": str(tmp_path / "runs")}))
    return path


def test_help_imports_nothing_heavy() -> None:
    script = (
        "import sys; from lipt.cli import main\ntry: main(['--help'])\nexcept SystemExit: pass\nprint(*sys.modules)"
    )
    stdout = run_python("-c", script)
    for verb in ("run", "stage", "ingest", "compare", "select", "report", "config", "doctor"):
        assert f"\n  {verb} " in stdout
    modules = set(stdout.splitlines()[-1].split())
    assert not modules & {"torch", "numpy", "pydantic", "yaml", "rich", "minio", "kfp", "matplotlib"}


def test_a_run_prints_verdict_and_report_and_json_when_asked(config: Path) -> None:
    ended = lipt("run", str(config))
    assert ended.returncode == 0, ended.stderr
    report = Path(ended.stdout.splitlines()[-1])
    assert report.is_file()
    assert "Random" in ended.stdout
    assert "pretrain[2]" in ended.stderr
    again = lipt("run", str(config), "-o", "json")
    document = json.loads(again.stdout)
    assert document["report"] == str(report)
    assert [row["role"] for row in document["rows"]] == ["selected", "random"]
    assert "would run" not in lipt("run", str(config), "--dry-run").stderr
    shown = lipt("report", str(config))
    assert shown.stdout == ended.stdout


def test_the_subset_of_a_run_is_a_selection(config: Path) -> None:
    changes = ("select.algorithm=stratified", "train.epochs=1", "train.random_baseline=false")
    ended = lipt("run", str(config), *(item for change in changes for item in ("--set", change)))
    assert ended.returncode == 0, ended.stderr
    (path,) = config.parent.glob("runs/select/*/subset.parquet")
    selection, table = Selection.load(path), pq.read_table(path)
    kept = [row for row in table.to_pylist() if row["rank"] is not None]
    assert selection.ascending()[0].tolist() == sorted(row["position"] for row in kept)
    assert selection.positions_N.tolist() == table["position"].to_pylist() != list(range(len(table)))
    assert selection.algorithm == selection.notes["requested"]["algorithm"] == "stratified"
    assert selection.notes["dataset"]
    assert selection.fraction == TINY["select"]["fraction"]


def test_a_dry_run_lists_the_stages_and_runs_none(config: Path) -> None:
    ended = lipt("run", str(config), "--dry-run")
    assert ended.returncode == 0, ended.stderr
    planned = [line.split()[0] for line in ended.stderr.splitlines() if "would run" in line]
    assert planned[:6] == ["ingest", "dispatch", "initialise", "pretrain[0]", "pretrain[1]", "pretrain[2]"]
    assert not (config.parent / "runs").exists()


def test_stage_by_stage_gives_the_references_of_a_run(config: Path) -> None:
    def stage(*arguments: str) -> str:
        ended = lipt("stage", arguments[0], str(config), *arguments[1:])
        assert ended.returncode == 0, ended.stderr
        return ended.stdout.strip()

    dataset = stage("ingest")
    plans = stage("dispatch", "--in", f"dataset={dataset}")
    theta = stage("initialise", "--in", f"dataset={dataset}")
    jigsaw = stage(
        "pretrain", "--in", f"dataset={dataset}", "--in", f"theta={theta}", "--in", f"plans={plans}", "--index", "0"
    )
    ended = lipt("run", str(config))
    assert ended.returncode == 0, ended.stderr
    for reference in (dataset, plans, theta, jigsaw):
        assert f"{reference.split('/')[0]}" in ended.stderr
    assert ended.stderr.count("up to date") >= 4


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["runn"], 2, "did you mean 'run'"),
        (["run", "missing.yaml"], 2, "cannot read missing.yaml"),
        (["run", "CONFIG", "--set", "selct.fraction=1"], 2, "did you mean 'select'"),
        (["run", "CONFIG", "--set", "select.algorithm=grnad"], 2, "grand"),
        (["run", "CONFIG", "--set", "data.source=/nowhere"], 2, "/nowhere"),
        (["run", "CONFIG", "--set", "model.name=resnet81", "--set", "dispatch.jigsaws=2"], 2, "resnet18"),
        (["run", "CONFIG", "--set", "dispatch.jigsaws=1000"], 1, "the data set has 1,294"),
        (["run", "CONFIG", "--set", "device=cuda"], 2, "torch sees no GPU"),
        (["stage", "merg", "CONFIG"], 2, "did you mean 'merge'"),
        (["stage", "pretrain", "CONFIG"], 2, "needs dataset"),
        (["stage", "dispatch", "CONFIG", "--in", "dataset=ingest/0123456789abcdef"], 1, "no such object"),
        (["report", "CONFIG"], 1, "lipt run"),
        (["run"], 2, "CONFIG"),
        (["run", "CONFIG", "--frobnicate"], 2, "--frobnicate"),
    ],
)
def test_errors_are_one_message_and_the_documented_code(
    tmp_path: Path, arguments: list[str], code: int, message: str
) -> None:
    (tmp_path / "empty.yaml").write_text("")
    arguments = [argument.replace("CONFIG", str(tmp_path / "empty.yaml")) for argument in arguments]
    if len(arguments) > 1:
        arguments = [*arguments, "--set", f"workspace={tmp_path}"]
    ended = lipt(*arguments)
    assert ended.returncode == code, ended.stderr
    assert message in ended.stderr
    assert "Traceback" not in ended.stderr
    assert ended.stdout == ""


def test_an_unreachable_store_is_transient(config: Path) -> None:
    secrets = {"AWS_ACCESS_KEY_ID": "someone", "AWS_SECRET_ACCESS_KEY": "s3cr3t-value"}
    unreachable = {"LIPT_S3_ENDPOINT": "http://127.0.0.1:9", "LIPT_S3_RETRY_S": "1"}
    ended = lipt("run", str(config), "--set", "workspace=s3://bucket/prefix", **secrets, **unreachable)
    assert ended.returncode == 3, ended.stderr
    assert "127.0.0.1:9" in ended.stderr
    assert "s3cr3t-value" not in ended.stderr
    assert "Traceback" not in ended.stderr


def test_ctrl_c_leaves_a_resumable_run(config: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "lipt",
        "run",
        str(config),
        "--set",
        "train.epochs=3000",
        "--set",
        "train.checkpoint_s=0",
    ]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 100
    while not list(config.parent.glob("runs/train/*/checkpoint")) and time.monotonic() < deadline:
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=30)
    assert process.returncode == 130, stderr
    assert "the same command continues" in stderr
    assert "Traceback" not in stderr


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
        "select", *options, "--algorithm", "gradmatch", "--fraction", "0.2", "--option", "lam=0.25", "--seed", "5",
        "--note", "checkpoint=sha256:0a1b", "--to", to, "-o", "json",
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    assert ended.stderr == ""
    loaded = Selection.load(to)
    expected = select(
        "gradmatch", Candidates.of(**scored), fraction=0.2, seed=5, options={"lam": 0.25},
        notes={"checkpoint": "sha256:0a1b"},
    )  # fmt: skip
    assert torch.equal(loaded.indices_K, expected.indices_K)
    assert torch.equal(loaded.weights_K, expected.weights_K)
    assert loaded.provenance == expected.provenance
    assert json.loads(ended.stdout) == {"file": to, "count": 20, **expected.provenance}
    assert pq.read_table(to)["rank"].null_count == 80


def test_select_from_blocks_is_select_from_arrays(tmp_path: Path, scored: dict[str, np.ndarray]) -> None:
    first, second, to = (str(tmp_path / name) for name in ("0.safetensors", "1.safetensors", "subset.parquet"))
    here(
        "select", "--outputs", first, "--outputs", second, "--validation", second, "--algorithm", "glister",
        "--unbalanced", "--to", to,
    )  # fmt: skip
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
    here("select", "--labels", labels, *both, "--algorithm", "dual", "--to", to)
    models = {"logits": [scored["logits"], scored["logits"][::-1]], "features": [scored["features"]] * 2}
    expected = select("dual", Candidates.of(scored["labels"], **models), fraction=0.1)
    assert Selection.load(to).indices_K.tolist() == expected.indices_K.tolist()
    here("select", "--labels", labels, "--algorithm", "stratified", "--to", to)
    assert Selection.load(to).algorithm == "stratified"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("", "the candidates come from --labels, --logits and --features, or from --outputs"),
        ("--labels labels.npy --outputs 0.safetensors", "the candidates come from"),
        ("--outputs 0.safetensors --logits logits.npy", "the candidates come from"),
        ("--labels labels.npy --logits logits.npy", "logits of 1 model(s) and features of 0"),
        ("--labels nowhere.npy", "cannot read nowhere.npy: "),
        ("--labels .", "cannot read .: "),
        ("--labels empty", "cannot read empty: "),
        ("--labels 0.safetensors", "cannot read 0.safetensors: "),
        ("--labels pickled.npy", "cannot read pickled.npy: "),
        ("--labels cut.npy", "cannot read cut.npy: "),
        ("--labels logits.npy", "labels must be integers, not torch.float16"),
        ("--labels labels.npy --logits features.npy --features logits.npy --algorithm moderat", "unknown selection"),
        ("--labels labels.npy --algorithm el2n", "needs the outputs of at least 1 model(s)"),
        ("--labels labels.npy --option beta", "--option beta: not of the form NAME=VALUE"),
        ("--labels labels.npy --option =1", "--option =1: not of the form NAME=VALUE"),
        ("--labels labels.npy --option beta=[", "--option beta=[: not a YAML value"),
        ("--labels labels.npy --note checkpoint", "--note checkpoint: not of the form NAME=VALUE"),
        ("--labels labels.npy --algorithm random --note seed=3", "note 'seed' is an entry of every provenance"),
        ("--outputs nowhere.safetensors", "cannot read nowhere.safetensors: "),
        ("--outputs labels.npy", "cannot read labels.npy: "),
        ("--outputs empty", "cannot read empty: "),
        ("--outputs bare.safetensors", "cannot read bare.safetensors: it has no tensor 'features'"),
        (
            "--outputs uneven.safetensors",
            "uneven.safetensors has tensors of labels (60,), logits (60, 4), features (40",
        ),
        ("--outputs 0.safetensors --outputs other.safetensors", "other.safetensors has tensors of"),
        ("--outputs 0.safetensors --algorithm glister --validation other.safetensors", "scored by the same models"),
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
    save_file({name: block[name] for name in ("labels", "logits")}, "bare.safetensors")
    save_file(block | {"features": block["features"][:40].copy()}, "uneven.safetensors")
    save_file(block | {"features": block["features"][:, :3].copy()}, "other.safetensors")
    with pytest.raises(UsageError, match=re.escape(message)) as error:
        here("select", *arguments.split(), "--to", "subset.parquet")
    assert "\n" not in error.value.message
    assert not Path("subset.parquet").exists()


def test_select_ends_with_one_error_and_a_remedy(tmp_path: Path) -> None:
    ended = lipt("select", "--labels", str(tmp_path / "nowhere.npy"), "--to", str(tmp_path / "subset.parquet"))
    assert (ended.returncode, ended.stdout) == (2, "")
    assert re.fullmatch(r"lipt: cannot read .*nowhere.npy: .*\n  -> save it with numpy.save\n", ended.stderr)


def test_config_show_and_schema(config: Path) -> None:
    shown = yaml.safe_load(lipt("config", "show", str(config), "--set", "seed=7").stdout)
    assert (shown["seed"], shown["dispatch"]["jigsaws"], shown["merge"]["method"]) == (7, 3, "greedy_interpolation")
    schema = json.loads(lipt("config", "schema").stdout)
    assert "select" in schema["properties"]


def test_doctor_says_what_is_wrong_and_what_to_do(config: Path) -> None:
    well = lipt("doctor", str(config))
    assert well.returncode == 0, well.stdout
    assert well.stdout.count("\nok") == 5
    sick = lipt("doctor", str(config), "--set", "data.source=/nowhere", "--set", "device=cuda")
    assert sick.returncode == 1
    assert sick.stdout.count("FAIL") == 2
    assert sick.stdout.count("->") == 2


def test_doctor_knows_pods_on_a_cluster_only(config: Path) -> None:
    refused = lipt("doctor", str(config), "-p", "gpus=1")
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "add --engine argo" in refused.stderr
    refused = lipt("doctor", str(config), "--engine", "argo", "-p", "gpu=1")
    assert refused.returncode == 2
    assert "did you mean 'gpus'?" in refused.stderr
