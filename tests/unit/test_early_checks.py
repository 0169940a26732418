"""What is found before a run reads all images or a cluster is asked, and what helps to find a run again."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest

from lipt.cli import busy, main
from lipt.cli.submission import check_submittable
from lipt.config import load_config, override, parse_config
from lipt.errors import UsageError
from lipt.flow.checks.validation import check_run
from lipt.flow.compare import run_with_baseline
from lipt.report.numbers import format_bytes
from lipt.runtime.context import Context
from lipt.stages.ingest import ingest
from tests.tiny import TINY, tiny_context
from tests.unit.data.sources.files import image, tree


@pytest.fixture
def mixed(tmp_path: Path) -> Path:
    files = {f"{label}/{number}.png": image(number) for label in "ab" for number in range(40)}
    return tree(tmp_path / "mixed", files | {"b/9.png": image(9, side=6)})


def test_images_of_different_sizes_are_found_before_they_are_read(
    mixed: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ctx = tiny_context(tmp_path / "runs", {"data": {"source": str(mixed)}})
    with pytest.raises(UsageError, match=r"a/0\.png has 4x4 pixels, b/9\.png has 6x6 pixels") as found:
        ingest(ctx).make()
    assert found.value.remedy.startswith("--set data.image_size=4 makes each image a square of 4 pixels")
    assert not list((tmp_path / "runs").glob("chunks/*/store/*"))
    config = tmp_path / "mixed.yaml"
    config.write_text(f"data: {{source: {mixed}}}\nworkspace: {tmp_path / 'runs'}\nmodel: {{width: 4}}\n")
    with pytest.raises(SystemExit):
        main(["doctor", str(config)])
    assert "FAIL  data       a/0.png has 4x4 pixels" in capsys.readouterr().out
    with pytest.raises(SystemExit):  # its other checks fail
        main(["doctor", str(config), "--set", "data.image_size=4"])
    assert "ok    data       mixed: 80 images, 2 classes" in capsys.readouterr().out


def test_doctor_finds_a_disk_that_cannot_take_the_images(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    photos = tree(
        tmp_path / "photos", {f"{label}/{number}.png": image(number) for label in "ab" for number in range(8)}
    )
    needed = sum(path.stat().st_size for path in photos.glob("*/*.png"))
    config = tmp_path / "photos.yaml"
    config.write_text(f"data: {{source: {photos}}}\nworkspace: {tmp_path / 'runs'}\nmodel: {{width: 4}}\n")

    def said(free: int) -> str:
        monkeypatch.setattr(shutil, "disk_usage", lambda _folder: SimpleNamespace(free=free))
        with pytest.raises(SystemExit):  # its other checks fail
            main(["doctor", str(config)])
        return " ".join(capsys.readouterr().out.split())

    assert f"FAIL data {tmp_path}/runs: 300 B free, the images need about {format_bytes(needed)} -> free space" in said(
        300
    )
    assert "write, read, list, delete, 300 B free" in said(300)
    assert "ok data photos: 16 images" in said(needed)
    ingest(Context.of(load_config(str(config)))).make()
    assert "ok data photos: 16 images" in said(300)  # they are there already


def test_doctor_says_what_auto_takes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = tmp_path / "digits.yaml"
    config.write_text(f"data: {{source: digits}}\nworkspace: {tmp_path}/runs\ndispatch: {{batch_size: 32}}\n")
    main(["doctor", str(config), "--set", "select.fraction=0.9"])
    assert not (tmp_path / "runs").exists()  # it leaves nothing behind
    assert "selection  auto (class-balanced random), 90 % kept" in capsys.readouterr().out


def test_a_smaller_batch_that_fits_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="need 3,000 candidates, the data set has 1,294") as found:
        check_run(tiny_context(tmp_path, {"dispatch": {"batch_size": 1000}}))
    assert found.value.remedy == "--set dispatch.batch_size=431 fits; or lower dispatch.jigsaws or dispatch.batches"
    check_run(tiny_context(tmp_path, {"dispatch": {"batch_size": 431}}))


@pytest.mark.parametrize("setting", ["workspace", "data.source"])
def test_the_bucket_of_an_example_is_none(setting: str) -> None:
    section, _, name = setting.rpartition(".")
    changes = {name: "s3://BUCKET/photos"}
    config = override(
        parse_config(TINY | {"workspace": "s3://lipt/photos"}), {section: changes} if section else changes
    )
    with pytest.raises(UsageError, match="invalid bucket name BUCKET"):
        check_submittable(config)


def test_a_run_with_other_settings_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """And none whose name only begins like the wanted one."""
    other = tmp_path / "runs/reports/tiny-other-0/config.yaml"
    other.parent.mkdir(parents=True)
    other.write_text(str(TINY | {"workspace": str(tmp_path / "runs"), "name": "tiny-other"}))
    document = run_with_baseline(tiny_context(tmp_path / "runs", {"train": {"epochs": 1}}))
    assert document is not None
    config = tmp_path / "tiny.yaml"
    config.write_text(str(TINY | {"workspace": str(tmp_path / "runs")}))
    for verb in (["report", str(config)], ["open", str(config)], ["export", str(config), "--to", str(tmp_path / "x/")]):
        with pytest.raises(SystemExit):
            main(verb)
        said = f"; a run with --set train.epochs=1 exists: {tmp_path}/runs/reports/{document.run_id}\n"
        assert said in capsys.readouterr().err
    main(["export", str(config), "--set", "train.epochs=1", "--to", str(tmp_path / "list.txt")])


def test_a_run_in_another_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own").mkdir()
    (tmp_path / "own/photos.yaml").write_text("workspace: runs\n")
    for workspace, relative in (("runs", True), (f"{tmp_path}/runs", False)):
        with pytest.raises(SystemExit):
            main(["report", "own/photos.yaml", "--set", f"workspace={workspace}"])
        said = capsys.readouterr().err
        assert f"-> run it first: lipt run own/photos.yaml --set workspace={workspace}; lipt ls {tmp_path}/runs" in said
        assert ("in another folder, go there: `workspace: runs` is relative to the current folder" in said) == relative


@pytest.mark.parametrize(
    ("named", "message"),
    [
        ("own/photo.yaml", "cannot read own/photo.yaml: No such file or directory\n  -> did you mean own/photos.yaml?"),
        ("own/x.yaml", "cannot read own/x.yaml: No such file or directory\n  -> `lipt init` writes an example"),
        ("own/cat.jpg", "own/cat.jpg is not a text file in UTF-8\n  -> name a YAML file of settings; images go into"),
    ],
)
def test_a_file_that_is_no_configuration(
    named: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tree(tmp_path, {"own/photos.yaml": b"", "own/cat.jpg": image()}))
    with pytest.raises(UsageError) as caught:
        load_config(named)
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize(("load", "threads", "warned"), [(9, None, True), (9, "1", False), (0.1, None, False)])
def test_a_busy_machine_is_named(
    load: float, threads: str | None, warned: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(os, "getloadavg", lambda: (load, 0, 0))
    monkeypatch.setattr(os, "sched_getaffinity", lambda _process: {0, 1})
    if threads is None:
        monkeypatch.delenv("OMP_NUM_THREADS")
    else:
        monkeypatch.setenv("OMP_NUM_THREADS", threads)
    busy.warn_if_slow()
    assert ("this machine is busy" in capsys.readouterr().err) == warned
