"""`lipt completion`: what the shells offer at the tab key."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from select import select

import pytest

from lipt.config import Config
from lipt.flow.address import REPORT
from tests.programs import lipt
from tests.unit.report.report_samples import document

#: shell -> the file below the home folder from which it learns to complete
SHELLS = {"bash": ".bashrc", "zsh": ".zshrc", "fish": ".config/fish/completions/lipt.fish"}


@pytest.mark.parametrize("shell", SHELLS)
def test_a_shell_completes_an_algorithm(shell: str, tmp_path: Path) -> None:
    if not shutil.which(shell):
        pytest.skip(f"{shell} is not installed")
    start = tmp_path / SHELLS[shell]
    start.parent.mkdir(parents=True, exist_ok=True)
    start.write_text(lipt("completion", shell).stdout)
    ours = {"HOME": str(tmp_path), "ZDOTDIR": str(tmp_path), "TERM": "dumb", "LANG": "C.UTF-8"}
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    terminal = [sys.executable, "-c", "import pty, sys; pty.spawn(sys.argv[1:])", shell, "-i"]
    with subprocess.Popen(
        terminal, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=os.environ | ours | {"PATH": path}
    ) as process:
        try:
            enter(process, "echo re''ady\n", "ready")
            enter(process, "lipt config show --set select.algorithm=cra\t", "aig")
            enter(process, "\n", "algorithm: craig")
        finally:
            process.kill()


def enter(process: subprocess.Popen[bytes], keys: str, text: str) -> None:
    """Press the keys, and wait until the terminal shows the text."""
    assert process.stdin is not None
    assert process.stdout is not None
    os.write(process.stdin.fileno(), keys.encode())
    shown, end = b"", time.monotonic() + 120
    while text.encode() not in shown:
        assert time.monotonic() < end, shown.decode()
        if select([process.stdout], [], [], 1)[0]:
            data = os.read(process.stdout.fileno(), 65536)
            assert data, f"the shell has ended: {shown.decode()}"
            shown += data


def test_completion_knows_the_verbs() -> None:
    ended = lipt(_LIPT_COMPLETE="bash_complete", COMP_WORDS="lipt comp", COMP_CWORD="1")
    assert ended.stdout.split() == ["plain,compare", "plain,completion"]


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("lipt run --set select.fra", ["select.fraction="]),
        ("lipt run --set train.random_baseline=", ["train.random_baseline=true", "train.random_baseline=false"]),
        (
            "lipt run --set select.algorithm=gra",
            [f"select.algorithm={name}" for name in ("gradmatch", "grand", "graph_cut")],
        ),
        ("lipt run --set precis", ["precision=auto", "precision=fp32", "precision=bf16"]),
        ("lipt run --set score.proxy.w", ["score.proxy.width="]),
        ("lipt select --algorithm au", ["aum", "auto"]),
        ("lipt run --set model.name=torchvision.r", ["model.name=torchvision.resnet18"]),
        ("lipt init your", ["your-folder", "your-model"]),
        ("lipt pipeline export ma", ["manifests"]),
        ("lipt submit -p nod", ["node_selector=", "nodes="]),
        ("lipt stage s", ["score", "select"]),
    ],
)
def test_completion_knows_settings_and_names(line: str, offered: list[str]) -> None:
    words = {"COMP_WORDS": line, "COMP_CWORD": str(len(line.split()) - 1)}
    ended = lipt(_LIPT_COMPLETE="bash_complete", **words)
    assert ended.stdout.split() == [f"plain,{name}" for name in offered]


@pytest.mark.parametrize("verb", ["open", "report", "export"])
def test_completion_knows_the_runs_that_lipt_ls_lists(
    verb: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for run in ("photos-1", "photos-2"):
        folder = tmp_path / f"{Config().workspace}/reports/{run}"
        folder.mkdir(parents=True)
        (folder / REPORT).write_text(document(run_id=run, ledger=[], subset=None, classes=None).model_dump_json())
    (tmp_path / "runs/reports/photos-stopped").mkdir()
    (tmp_path / "photos.yaml").touch()
    assert [line.split()[0] for line in lipt("ls").stdout.splitlines()[1:]] == ["photos-1", "photos-2"]
    offered = {"pho": ["plain,photos-1", "plain,photos-2", "plain,photos.yaml"], "no": ["file,no"]}
    offered[f"{tmp_path}/pho"] = [f"plain,{tmp_path}/photos.yaml"]
    for begun, names in offered.items():
        ended = lipt(_LIPT_COMPLETE="bash_complete", COMP_WORDS=f"lipt {verb} {begun}", COMP_CWORD="2")
        assert ended.stdout.split() == names


def test_to_complete_a_run_nothing_slow_is_imported() -> None:
    code = """
import sys
from lipt.cli import cli
for verb in ("open", "report", "export"):
    cli.get_command(None, verb).params[0].shell_complete(None, "")
sys.exit(bool({"lipt.config", "pydantic", "numpy", "torch"} & {*sys.modules}))
"""
    subprocess.run([sys.executable, "-c", code], check=True)
