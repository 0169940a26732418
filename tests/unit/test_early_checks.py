"""What is found before a run reads all images or a cluster is asked, and what helps to find a run again."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from lipt.cli import busy, main
from lipt.cli.submission import check_submittable
from lipt.config import override, parse_config
from lipt.errors import RunError, UsageError
from lipt.flow.checks.validation import check_run
from lipt.flow.compare import run_with_baseline
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
    with pytest.raises(RunError, match=r"a/0\.png has 4x4 pixels, b/9\.png has 6x6 pixels") as found:
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
