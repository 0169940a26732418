"""The folder store's own promises, the ledger, and the choice of a store."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from lipt.adapters.store import DatasetFiles, Traffic, open_store
from lipt.errors import RunError, UsageError

WRITER = """
import sys
from lipt.adapters.store import open_store
store = open_store(sys.argv[1])
size = 1 << 20
print("ready", flush=True)
while True:
    for letter in b"abcd":
        store.write("folder/x", bytes([letter]) * size, kind="model")
"""

LIMITED_WRITER = """
import resource, sys
from lipt.adapters.store import open_store
from lipt.errors import RunError
store = open_store(sys.argv[1])
store.write("x", b"old", kind="model")
resource.setrlimit(resource.RLIMIT_FSIZE, (65536, 65536))
try:
    store.write("x", bytes(1 << 20), kind="model")
except RunError as error:
    print(error)
"""


def test_killed_writer_leaves_a_whole_object_or_none(tmp_path: Path) -> None:
    store = open_store(str(tmp_path))
    for attempt in range(4):
        with subprocess.Popen([sys.executable, "-c", WRITER, str(tmp_path)], stdout=subprocess.PIPE) as writer:
            assert writer.stdout is not None
            writer.stdout.readline()
            time.sleep(0.01 + 0.013 * attempt)
            writer.send_signal(signal.SIGKILL)
        assert set(store.list()) <= {"folder/x"}
        if store.list():
            data = store.read("folder/x", kind="model")
            assert len(data) == 1 << 20
            assert len(set(data)) == 1


def test_write_that_fails_half_way_keeps_the_old_object(tmp_path: Path) -> None:
    told = subprocess.run(
        [sys.executable, "-c", LIMITED_WRITER, str(tmp_path)], capture_output=True, text=True, check=True
    ).stdout
    assert f"file://{tmp_path}/x: File too large\n  -> " in told
    assert os.listdir(tmp_path) == ["x"]
    assert (tmp_path / "x").read_bytes() == b"old"


@pytest.mark.parametrize(
    ("code", "remedy"),
    [(errno.ENOSPC, "free space"), (errno.EDQUOT, "quota"), (errno.EROFS, "read-only"), (errno.EIO, "check the disk")],
)
def test_disk_errors_come_with_a_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, remedy: str
) -> None:
    def fail(_descriptor: int) -> None:
        raise OSError(code, os.strerror(code))

    store = open_store(str(tmp_path))
    monkeypatch.setattr(os, "fsync", fail)  # where a full disk shows at the latest
    with pytest.raises(RunError, match=remedy) as caught:
        store.write("a/x", b"1", kind="other")
    assert f"file://{tmp_path}/a/x: {os.strerror(code)}" in str(caught.value)
    assert list((tmp_path / "a").iterdir()) == []
    assert store.traffic.written["other"] == 0


def test_unfinished_files_are_not_there(tmp_path: Path) -> None:
    (tmp_path / ".lipt-tmp-0123").write_bytes(b"half")
    store = open_store(str(tmp_path))
    assert store.list() == []
    with pytest.raises(UsageError):
        store.size(".lipt-tmp-0123")


def test_key_below_a_file_cannot_be_written(tmp_path: Path) -> None:
    store = open_store(str(tmp_path))
    store.write("x", b"1", kind="other")
    for key in ("x/y", "x/y/z"):  # what fails are the file and its folder
        with pytest.raises(RunError, match=f"{key}: .*\n.*a part of this path is a file"):
            store.write(key, b"1", kind="other")
    assert store.size("x/y") is None


def test_a_file_is_no_store(tmp_path: Path) -> None:
    (tmp_path / "runs").touch()
    with pytest.raises(RunError, match="runs is a file, not a folder"):
        open_store(str(tmp_path / "runs"))


def test_too_long_a_name(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="use shorter names"):
        open_store(str(tmp_path)).write("n" * 300, b"1", kind="other")


def test_a_delete_leaves_no_empty_folder(tmp_path: Path) -> None:
    store = open_store(str(tmp_path / "runs"))
    for key in ("train/0/lease", "train/0/file", "doctor/probe"):
        store.write(key, b"", kind="other")
    for key in ("train/0/lease", "doctor/probe", "doctor/probe", "none/at/all"):
        store.delete(key)
    assert sorted(path.name for path in (tmp_path / "runs").rglob("*")) == ["0", "file", "train"]
    store.delete("train/0/file")
    assert [*tmp_path.iterdir()] == [tmp_path / "runs"]  # the store itself stays
    assert [*(tmp_path / "runs").iterdir()] == []


def test_a_folder_that_was_moved_to_another_disk_is_listed(tmp_path: Path) -> None:
    store, elsewhere = open_store(str(tmp_path / "runs")), tmp_path / "disk/train"
    store.write("train/0/lease", b"12", kind="other")
    (tmp_path / "disk").mkdir()
    (tmp_path / "runs/train").rename(elsewhere)
    (tmp_path / "runs/train").symlink_to(elsewhere)
    (elsewhere / "around").symlink_to(tmp_path)  # a loop
    (elsewhere / "itself").symlink_to(elsewhere)
    (elsewhere / "nothing").symlink_to(tmp_path / "missing")
    (elsewhere / "0/.lipt-tmp-0123").write_bytes(b"half")
    for prefix in ("", "train/", "train/0", "train/0/"):
        assert store.sizes(prefix) == {"train/0/lease": 2}
    assert store.leftovers(older_s=0) == {"train/0/.lipt-tmp-0123": 4}
    store.delete("train/0/lease")
    assert store.sizes("") == {}
    assert elsewhere.is_dir()


def test_a_delete_does_not_disturb_those_who_write_into_the_folder(tmp_path: Path) -> None:
    store = open_store(str(tmp_path))

    def write_and_delete(number: int) -> None:
        for _ in range(100):
            store.write(f"train/0/{number}", b"claim", kind="other")
            assert store.read(f"train/0/{number}", kind="other") == b"claim"
            store.delete(f"train/0/{number}")

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(write_and_delete, range(4)))
    assert [*tmp_path.iterdir()] == []


@pytest.mark.parametrize("missing", ["in the way", "gone"])
def test_a_folder_that_goes_while_mkdir_looks_at_it_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, missing: str
) -> None:
    """A delete comes between two steps of `mkdir`: the folder was in the way and is gone, or its parent is gone."""
    mkdir, removed = os.mkdir, []

    def as_a_delete_runs(path: str | Path, mode: int = 0o777) -> None:
        if not removed and Path(path) == tmp_path / "a" / "b":
            removed.append(path)
            if missing == "in the way":
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path))
            (tmp_path / "a").rmdir()
        mkdir(path, mode)

    (tmp_path / "a").mkdir()
    monkeypatch.setattr(os, "mkdir", as_a_delete_runs)
    open_store(str(tmp_path)).write("a/b/x", b"1", kind="other")
    assert removed
    assert (tmp_path / "a" / "b" / "x").read_bytes() == b"1"


def test_locations_of_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    expected = f"file://{tmp_path}/a"
    for uri in ("a", "a/", "./a", f"{tmp_path}/a", f"file://{tmp_path}/a", f"file://{tmp_path}/a/"):
        assert open_store(uri).uri == expected


@pytest.mark.parametrize(
    ("uri", "told"),
    [
        ("flie://x", "unknown scheme 'flie'\n  -> did you mean 'file'?"),
        ("gs://bucket", "choose from: file, s3"),
        ("file://relative/path", "absolute path"),
    ],
)
def test_unusable_locations(uri: str, told: str) -> None:
    with pytest.raises(UsageError) as caught:
        open_store(uri)
    assert told in str(caught.value)
    assert caught.value.exit_code == 2


def test_folders_need_no_s3_client(tmp_path: Path) -> None:
    code = "import sys; from lipt.adapters.store import open_store; open_store('x'); print('minio' in sys.modules)"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=tmp_path)
    assert told.stdout == "False\n"


def test_negative_ranges_are_a_programming_error(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="negative"):
        open_store(str(tmp_path)).read("x", kind="data", start=-1)


def test_ledger_is_exact_under_threads() -> None:
    traffic = Traffic()

    def count(_item: int) -> None:
        for _ in range(1000):
            traffic.count_read("model", 3)
            traffic.count_request("read")

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(count, range(8)))
    assert traffic.read["model"] == 24_000
    assert traffic.requests["read"] == 8000


def test_dataset_files_sort_bytes_by_kind(tmp_path: Path) -> None:
    files = DatasetFiles(open_store(str(tmp_path)))
    files.put("train-00000.tar", b"12345")
    files.put("manifest.json", b"{}")
    assert files.read("train-00000.tar", 1, 2) == b"23"
    assert files.get("manifest.json") == b"{}"
    assert files.get("absent.json") is None
    files.delete("manifest.json")
    assert files.get("manifest.json") is None
    assert files.store.traffic.as_dict()["written"] == {"data": 5, "model": 0, "other": 2}
    assert files.store.traffic.as_dict()["read"] == {"data": 2, "model": 0, "other": 2}
