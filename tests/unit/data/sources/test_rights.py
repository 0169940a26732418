"""Images that the user who runs this must not read."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

import lipt
from lipt.adapters.store import open_store
from lipt.cli.export import _kind_of
from lipt.cli.finished import find_report
from lipt.cli.sweep import run_and_save
from lipt.cli.workspace import _existing
from lipt.config import Data, make_sweep
from lipt.data.sources import open_source
from lipt.errors import RunError, UsageError
from lipt.runtime.chunk_store import is_chunk_store
from tests.unit.data.sources.files import image, tree


@pytest.fixture
def readable() -> Iterator[Path]:
    """A folder that every user can reach, unlike `tmp_path`; its content belongs to the user of the tests."""
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        yield Path(folder)


@contextmanager
def someone_else() -> Iterator[None]:
    """Root may read everything, so it becomes `nobody`; anyone else is denied what has no rights at all."""
    if os.geteuid():
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.mark.parametrize(
    ("closed", "spec"),
    [
        (".", "photos"),
        ("photos", "photos"),
        ("photos/train", "photos"),
        ("photos/train/cat", "photos"),
        ("photos/train/cat/deeper", "photos"),
        ("tars", "wds:tars/*.tar"),
        ("tars/a.tar", "wds:tars/*.tar"),
    ],
)
def test_what_must_not_be_read_is_named_and_does_not_pass_for_absent(readable: Path, closed: str, spec: str) -> None:
    files = [
        f"photos/{split}/{name}/{i}.png" for split in ("train", "test") for name in ("cat", "dog") for i in range(2)
    ]
    tree(readable / "data", dict.fromkeys([*files, "photos/train/cat/deeper/2.png"], image()))
    (readable / "data/tars").mkdir()
    (readable / "data/tars/a.tar").write_bytes(b"")
    at = readable / "data" / closed
    at.chmod(0)
    head, _, path = spec.rpartition(":")
    with someone_else(), pytest.raises(RunError, match=r"permission denied") as caught:
        open_source(f"{head}{':' * bool(head)}{readable}/data/{path}")
    at.chmod(0o755)
    assert caught.value.message.startswith(str(readable / "data"))
    assert "let user" in caught.value.remedy


def test_no_command_stumbles_over_a_folder_without_rights(readable: Path) -> None:
    """Python 3.11 raises where newer versions say that nothing is there."""
    closed = readable / "closed"
    closed.mkdir(mode=0)
    found = make_sweep({}, {"select.fraction": [0.1]}, origin="test", places={})
    selection = lipt.select("random", lipt.Candidates.of([0, 1] * 5), k=4)
    with someone_else():
        with pytest.raises(RunError, match=r"cannot write .*/closed/s.parquet: Permission denied"):
            selection.save(closed / "s.parquet")
        assert not is_chunk_store(Data(source=f"{closed}/photos"))
        assert _kind_of(f"{closed}/list.txt") == "list"
        with pytest.raises(RunError, match=r"cannot write .*/closed/sweep.jsonl: Permission denied"):
            run_and_save(found, closed / "sweep.jsonl", None)
        with ExitStack() as stack, pytest.raises(UsageError, match=r"closed/run: neither a configuration nor a run"):
            find_report(f"{closed}/run", (), stack)
        with pytest.raises(UsageError, match=r"closed/runs"):
            _existing(f"{closed}/runs")


def test_lost_and_found_and_hidden_folders_need_not_be_readable(readable: Path) -> None:
    top = readable / "photos"
    tree(top, dict.fromkeys(["cat/1.png", "dog/1.png", "lost+found/1.png", "cat/.thumbs/1.png"], image()))
    for closed in ("lost+found", "cat/.thumbs"):
        (top / closed).chmod(0)
    with someone_else():
        assert list(open_source(str(top)).classes) == ["cat", "dog"]
    (top / "cat/.thumbs").chmod(0o755)
    with someone_else():  # a workspace at the top of a volume
        assert open_store(str(top)).list() == ["cat/.thumbs/1.png", "cat/1.png", "dog/1.png"]
    (top / "lost+found").chmod(0o755)
