"""The command line as a user meets it: exit codes, one clear error, stdout for results alone."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import click
import pyarrow.parquet as pq
import pytest
import yaml
from click.testing import CliRunner

import lipt.cli as lipt_cli
from lipt.adapters.store.file import FileStore
from lipt.cli import machine_checks, main
from lipt.config import parse_config
from lipt.errors import UsageError
from lipt.selection import Selection
from tests.programs import lipt, on_terminal, run_python
from tests.tiny import TINY
from tests.unit.report.report_samples import document


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


def test_a_wrong_target_of_an_export_is_refused_before_anything_is_imported(tmp_path: Path) -> None:
    script = (
        "import sys; from lipt.cli import main\ntry: main(sys.argv[1:])\nexcept SystemExit as end: print(end.code)\n"
        "print(*sys.modules)"
    )
    for target in (str(tmp_path), str(tmp_path / "list.docx")):
        (tmp_path / "there").touch()  # the folder is not empty
        code, modules = run_python("-c", script, "export", "missing.yaml", "--to", target).splitlines()
        assert code == "2"
        assert not {"torch", "numpy", "pydantic", "pyarrow"} & {*modules.split()}


def test_a_run_prints_verdict_and_report_and_json_when_asked(config: Path) -> None:
    ended = lipt("run", str(config))
    assert ended.returncode == 0, ended.stderr
    report = Path(ended.stdout.splitlines()[-1])
    assert report.is_file()
    assert "random" in ended.stdout
    assert "pretrain[2]" in ended.stderr
    links = re.findall(r'href="(\.\./[^"]*)"', report.read_text())
    assert all((report.parent / link).is_file() for link in links)
    found = [Path(link).name for link in links]
    assert found[:5] == ["chosen.txt", "config.yaml", "report.json", "subset.parquet", "weights.safetensors"]
    chosen = (report.parent / "chosen.txt").read_text().splitlines()
    assert len(chosen) == json.loads((report.parent / "report.json").read_text())["subset"]["count"]
    assert f"images seen, in {TINY['train']['epochs']} epoch" in report.read_text()
    again = lipt("run", str(config), "-o", "json")
    document = json.loads(again.stdout)
    assert document["report"] == str(report)
    assert [row["role"] for row in document["rows"]] == ["selected", "random"]
    assert "would run" not in lipt("run", str(config), "--dry-run").stderr
    shown = lipt("report", str(config))
    assert shown.stdout == ended.stdout
    plain = lipt("report", str(config), PYTHONIOENCODING="ascii")  # a terminal that lacks the characters
    assert (plain.returncode, plain.stderr) == (0, shown.stderr)
    assert plain.stdout == ended.stdout.encode("ascii", errors="replace").decode()


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
    jigsaws = f"pretrain[0-{TINY['dispatch']['jigsaws'] - 1}]"
    assert planned[:5] == ["ingest", "dispatch", "initialise", jigsaws, "merge"]
    assert not (config.parent / "runs").exists()


def test_a_dry_run_has_no_json(config: Path) -> None:
    refused = CliRunner().invoke(lipt_cli.cli, ["run", str(config), "--dry-run", "-o", "json"]).exception
    assert isinstance(refused, UsageError)
    assert refused.message == "--dry-run lists the stages as text"


def test_stage_by_stage_gives_the_references_of_a_run(config: Path) -> None:
    def stage(*arguments: str) -> str:
        ended = lipt("stage", arguments[0], str(config), *arguments[1:])
        assert ended.returncode == 0, ended.stderr
        return ended.stdout.strip()

    dataset = stage("ingest")
    shards = stage("dispatch", "--in", f"dataset={dataset}")
    theta = stage("initialise", "--in", f"dataset={dataset}")
    jigsaw = stage(
        "pretrain", "--in", f"dataset={dataset}", "--in", f"theta={theta}", "--in", f"shards={shards}", "--index", "0"
    )
    ended = lipt("run", str(config))
    assert ended.returncode == 0, ended.stderr
    for reference in (dataset, shards, theta, jigsaw):
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
        (["run", "CONFIG", "--set", "data.format=digit"], 2, "did you mean 'digits'?"),
        (["run", "CONFIG", "--set", "model.name=resnet81", "--set", "dispatch.jigsaws=2"], 2, "resnet18"),
        (["run", "CONFIG", "--set", "dispatch.jigsaws=1000"], 2, "the data set has 1,294"),
        (["run", "CONFIG", "--set", "data.validation_fraction=1e-4"], 2, "cannot be set aside for validation"),
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
    (tmp_path / "run.yaml").write_text("seed: 0")
    arguments = [argument.replace("CONFIG", str(tmp_path / "run.yaml")) for argument in arguments]
    if len(arguments) > 1:
        arguments = [*arguments, "--set", f"workspace={tmp_path}"]
    ended = lipt(*arguments)
    assert ended.returncode == code, ended.stderr
    assert message in ended.stderr
    assert "Traceback" not in ended.stderr
    assert ended.stdout == ""


def test_a_folder_that_was_deleted_is_named(tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    program = "import os, sys; os.rmdir(os.getcwd()); from lipt.cli import main; main(['ls'])"
    ended = subprocess.run([sys.executable, "-c", program], cwd=gone, capture_output=True, text=True, check=False)
    expected = "lipt: the current folder does not exist any more\n  -> cd into another one\n"
    assert (ended.returncode, ended.stderr) == (2, expected)


def test_an_unreachable_store_is_transient(config: Path) -> None:
    secrets = {"AWS_ACCESS_KEY_ID": "someone", "AWS_SECRET_ACCESS_KEY": "s3cr3t-value"}
    unreachable = {"LIPT_S3_ENDPOINT": "http://127.0.0.1:9", "LIPT_S3_RETRY_S": "1"}
    ended = lipt("run", str(config), "--set", "workspace=s3://bucket/prefix", **secrets, **unreachable)
    assert ended.returncode == 3, ended.stderr
    assert "127.0.0.1:9" in ended.stderr
    assert "s3cr3t-value" not in ended.stderr
    assert "Traceback" not in ended.stderr


@pytest.mark.parametrize(
    ("sent", "code", "said"), [(signal.SIGINT, 130, "interrupted"), (signal.SIGTERM, 143, "terminated")]
)
def test_a_stopped_run_says_how_to_continue(config: Path, sent: signal.Signals, code: int, said: str) -> None:
    changes = ("--set", "train.epochs=3000", "--set", "train.checkpoint_s=0")
    process = subprocess.Popen(
        [sys.executable, "-m", "lipt", "run", str(config), *changes], stderr=subprocess.PIPE, text=True
    )
    deadline = time.monotonic() + 100
    while not list(config.parent.glob("runs/train/*/checkpoint")) and time.monotonic() < deadline:
        time.sleep(0.05)
    process.send_signal(sent)
    _, stderr = process.communicate(timeout=30)
    assert process.returncode == code, stderr
    assert stderr.endswith(f"lipt: {said}\n  -> the same command continues: finished stages are kept\n"), stderr
    assert re.search(r"^train \w+ +stopped: continues from its last checkpoint$", stderr, re.MULTILINE), stderr
    assert "Traceback" not in stderr


_SWALLOWING = """
import contextlib, signal
from lipt.errors import RunError, TransientError

def swallow(**options):
    with contextlib.suppress(BaseException):
        {sent}
    raise {error}
"""


@pytest.mark.parametrize(
    "run",
    [
        "import lipt.cli; lipt.cli.cli.main = swallow; lipt.cli.main([])",
        "from lipt.pods.boxes import pod\nwith pod(): swallow()",
    ],
)
@pytest.mark.parametrize(
    ("sent", "error", "code", "said"),
    [
        ("pass", "AttributeError('matrix')", 1, "AttributeError: matrix\n"),
        ("signal.raise_signal(signal.SIGTERM)", "AttributeError('matrix')", 143, "lipt: terminated\n  -> the same"),
        ("signal.raise_signal(signal.SIGTERM)", "RunError('no model')", 143, "lipt: terminated\n  -> the same"),
        ("signal.raise_signal(signal.SIGTERM)", "TransientError('a pod was lost')", 3, "lipt: a pod was lost\n"),
        ("signal.raise_signal(signal.SIGINT)", "AttributeError('matrix')", 130, "lipt: interrupted\n  -> the same"),
    ],
)  # fmt: skip
def test_a_signal_that_a_library_swallows_ends_the_process_all_the_same(
    run: str, sent: str, error: str, code: int, said: str, tmp_path: Path
) -> None:
    """torch does so while it loads numpy, and leaves it half loaded. In a pod, exit code 1 would not be retried."""
    if "pod" in run and code == 130:
        pytest.skip("nobody interrupts a pod")
    log = tmp_path / "termination-log"
    log.touch()
    program = (
        _SWALLOWING.format(sent=sent, error=error) + f"import lipt.errors as e; e._TERMINATION_LOG = {str(log)!r}\n"
    )
    ended = subprocess.run([sys.executable, "-c", program + run], capture_output=True, text=True)
    assert ended.returncode == code, ended.stderr
    assert said in ended.stderr
    assert ("Traceback" in ended.stderr) is (code == 1)
    assert bool(log.read_text()) is (code < 100)


def test_ctrl_c_while_the_command_line_loads_shows_no_traceback(tmp_path: Path) -> None:
    (tmp_path / "click.py").write_text("import signal; signal.raise_signal(signal.SIGINT)")
    ended = lipt("--version", PYTHONPATH=os.pathsep.join([str(tmp_path), *sys.path]))
    assert ended.returncode == 130, ended.stderr
    assert ended.stderr == "lipt: interrupted\n  -> the same command continues: finished stages are kept\n"


def shell(command: str) -> subprocess.CompletedProcess[str]:
    """The command line as a shell runs it, with redirections."""
    return subprocess.run(
        f"{shlex.quote(sys.executable)} -m lipt {command}", shell=True, capture_output=True, text=True
    )


@pytest.mark.skipif(sys.platform != "linux", reason="needs /dev/full")
@pytest.mark.parametrize("command", ["report RUNS/reports/x-1", "--help"])
def test_a_stdout_that_cannot_be_written_is_one_message(command: str, tmp_path: Path) -> None:
    stored = tmp_path / "reports/x-1/report.json"
    stored.parent.mkdir(parents=True)
    stored.write_text(document().model_dump_json())
    command = command.replace("RUNS", shlex.quote(str(tmp_path)))
    ended = shell(f"{command} > /dev/full")
    assert ended.returncode == 1
    assert ended.stderr == "lipt: stdout: No space left on device\n  -> send it to a place that can be written\n"
    for elsewhere in (">&-", "<&-", "| true"):
        ended = shell(f"{command} {elsewhere}")
        assert (ended.returncode, ended.stderr) == (0, "")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("ls", ""), "the address of a folder or bucket is empty\n  -> name it; . is the current folder"),
        (("ingest", "digits", ""), "the address of a folder or bucket is empty\n"),
        (("ingest", "", "store"), "lipt ingest: data.source: String should have at least 1 character\n"),
        (("export", "run.yaml", "--to", ""), "--to is empty\n  -> name a file or a folder"),
        (("sweep", "sweep.yaml", "--results", ""), "--results '' is no file\n"),
        (("reproduce", "b1", "--results", "", "--dry-run"), "--results is empty\n"),
        (("run", "empty.yaml"), "empty.yaml, line 1: workspace: String should have at least 1 character\n"),
    ],
    ids=str,
)
def test_an_empty_place_is_not_the_current_folder(
    arguments: tuple[str, ...], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    files = {"run": {}, "sweep": {"grid": {"train.lr": [0.1, 0.2]}}, "empty": {"workspace": ""}}
    for name, settings in files.items():
        Path(f"{name}.yaml").write_text(json.dumps(settings))
    with pytest.raises(SystemExit) as end:
        main([*arguments])
    assert end.value.code == 2
    assert capsys.readouterr().err.startswith(f"lipt: {said}")
    assert len(list(tmp_path.iterdir())) == len(files)


def test_verbose_shows_the_traceback_of_a_known_error(tmp_path: Path) -> None:
    missing = str(tmp_path / "missing.yaml")
    plain = lipt("config", "show", missing)
    assert "Traceback" not in plain.stderr
    for arguments in (("-v", "config", "show", missing), ("config", "show", "-v", missing)):
        shown = lipt(*arguments)
        assert shown.returncode == 2
        assert "FileNotFoundError" in shown.stderr  # what it was raised from, too
        assert shown.stderr.endswith(plain.stderr)


def test_exit_codes_in_the_help_are_those_of_the_taxonomy() -> None:
    text = " ".join(lipt("--help").stdout.split())
    assert all(f"{code} " in text.partition("Exit codes:")[2] for code in (0, 1, 2, 3, 130, 143))


@pytest.mark.parametrize("group", ["", "config", "pipeline"])
def test_no_list_of_verbs_is_cut(group: str) -> None:
    shown = CliRunner().invoke(lipt_cli.cli, [*group.split(), "--help"]).stdout
    assert "..." not in shown.replace("[ARGS]...", "")


def test_every_verb_that_prints_results_prints_json() -> None:
    group = lipt_cli.cli
    context = click.Context(group)
    verbs = {name: group.get_command(context, name) for name in group.list_commands(context)}
    verbs |= {f"config {name}": command for name, command in verbs["config"].commands.items()}  # type: ignore[union-attr]
    without = {name for name, verb in verbs.items() if "output" not in {option.name for option in verb.params}}  # type: ignore[union-attr]
    groups, actions = {"config", "box", "pipeline"}, {"cancel", "open"}
    files = {"init", "completion", "reproduce"}  # `reproduce` writes its results as JSON lines
    assert without == groups | actions | files | {"config schema"}  # which is JSON anyhow


def test_config_show_and_schema(config: Path) -> None:
    shown = yaml.safe_load(lipt("config", "show", str(config), "--set", "seed=7").stdout)
    assert (shown["seed"], shown["dispatch"]["jigsaws"], shown["merge"]["method"]) == (7, 3, "greedy_interpolation")
    assert json.loads(lipt("config", "show", str(config), "--set", "seed=7", "-o", "json").stdout) == shown
    schema = json.loads(lipt("config", "schema").stdout)
    assert "select" in schema["properties"]


def test_a_configuration_that_cannot_be_read_is_our_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Ours says what to do."""
    for verb in (["config", "show"], ["plan"], ["sweep"]):
        with pytest.raises(SystemExit) as end:
            lipt_cli.main([*verb, str(tmp_path)])
        err = capsys.readouterr().err
        assert (end.value.code, err.count("\n  -> ")) == (2, 1)
        assert f"{tmp_path} is a folder, not a configuration" in err
        with pytest.raises(SystemExit):
            lipt_cli.main([*verb, str(tmp_path / "missing.yaml")])
        assert f"cannot read {tmp_path}/missing.yaml: No such file" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (["data.source=photos"], "settings are written --set data.source=photos"),
        (["--set", "select.fraction", "0.1"], "settings are written --set A.B=VALUE, without spaces around =, and in"),
        (["--set", "select.fraction", "=", "0.1"], "written --set A.B=VALUE, without spaces around =, and in"),
        (["--set", "compare.variants=[lipt,", "rs2]"], "and in quotes if VALUE has spaces"),
        (["--batch-size", "8"], "or --set train.batch_size=…"),
        (["--fraction", "0.1"], "settings are written --set select.fraction=…"),
    ],
)
def test_a_setting_without_set_is_told_how_it_is_written(
    arguments: list[str], hint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as end:
        lipt_cli.main(["run", "examples/01-quickstart.yaml", *arguments])
    assert end.value.code == 2
    assert hint in capsys.readouterr().err


def test_ingest_with_a_configuration_names_the_command_for_it(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        lipt_cli.main(["ingest", "photos.yaml"])
    assert end.value.code == 2
    assert "-> the images of a configuration are ingested by: lipt stage ingest CONFIG" in capsys.readouterr().err


def test_config_without_its_verb_names_it(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        lipt_cli.main(["config", "photos.yaml"])
    assert end.value.code == 2
    assert "-> lipt config show photos.yaml" in capsys.readouterr().err


def test_a_terminal_breaks_errors_and_titles_between_words() -> None:
    lines = on_terminal(80, "-m", "lipt", "report", "no-such-configuration", code=2).splitlines()
    assert lines[:2] == [
        "lipt: no-such-configuration: neither a configuration nor a run",
        "  -> name a YAML file, a run in runs (lipt ls lists them),",
    ]
    assert lines[2].rstrip() == "     WORKSPACE/reports/RUN, or the handle of a run on a cluster"
    title = on_terminal(80, "-m", "lipt", "reproduce", "table1", "--dry-run").splitlines()[0]
    assert title.rstrip() == "Table 1: seconds before and in the main training, with selection repeated during"


def test_doctor_says_what_is_wrong_and_what_to_do(config: Path) -> None:
    well = lipt("doctor", str(config))
    assert well.returncode == 0, well.stdout
    assert well.stdout.count("\nok") == 6
    sick = lipt("doctor", str(config), "--set", "data.source=/nowhere", "--set", "device=cuda")
    assert sick.returncode == 1
    assert sick.stdout.count("FAIL") == 2
    assert sick.stdout.count("->") == 2


def test_a_doctor_leaves_no_folder_behind(tmp_path: Path) -> None:
    config = parse_config(TINY | {"workspace": str(tmp_path / "not/yet/there")})
    assert "write, read, list, delete" in machine_checks.workspace(config)
    assert list(tmp_path.iterdir()) == []


def test_two_doctors_of_one_workspace_do_not_disturb_each_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a pod, each is process 1."""
    config, read = parse_config(TINY | {"workspace": str(tmp_path)}), FileStore._read

    def with_another(*arguments: Any) -> bytes:
        monkeypatch.setattr(FileStore, "_read", read)
        machine_checks.workspace(config)
        return read(*arguments)

    monkeypatch.setattr("os.getpid", lambda: 1)
    monkeypatch.setattr(FileStore, "_read", with_another)
    assert "write, read, list, delete" in machine_checks.workspace(config)


def test_doctor_works_where_the_extra_is_not_installed(
    config: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What breaks lines between words needs rich."""
    for module in ("rich", "lipt.report.terminal"):
        monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(SystemExit) as end:
        lipt_cli.main(["doctor", str(config), "--set", "data.source=/nowhere"])
    out, err = capsys.readouterr()
    assert (end.value.code, err) == (1, "")
    assert [out.count("\nok"), out.count("FAIL")] == [4, 1]


def test_doctor_knows_pods_on_a_cluster_only(config: Path) -> None:
    refused = lipt("doctor", str(config), "-p", "gpus=1")
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "add --engine argo" in refused.stderr
    refused = lipt("doctor", str(config), "--engine", "argo", "-p", "gpu=1")
    assert refused.returncode == 2
    assert "did you mean 'gpus'?" in refused.stderr
