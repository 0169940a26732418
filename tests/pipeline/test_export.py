"""`lipt export`: what a run selected, for other programs."""

from __future__ import annotations

import csv
import json
import os
import shutil
import tarfile
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import torch
from torchvision.datasets import ImageFolder

from lipt.adapters.store import DatasetFiles, open_store
from lipt.cli import main
from lipt.data.chunks import Dataset
from lipt.data.sources import open_source
from lipt.flow.compare import run_with_baseline
from tests.tiny import tiny_context
from tests.unit.data.sources.files import image, tree

#: Two folders of a class hold files of one name; one file is no JPEG or PNG.
PETS = {
    f"{name}/{part}/{number}.{'bmp' if (part, number) == ('y', 0) else 'png'}": image(
        40 * len(name) + 10 * number + len(part + name), "BMP" if (part, number) == ("y", 0) else "PNG"
    )
    for name in ("cat", "horse")
    for part in ("x", "y")
    for number in range(8)
}
CHANGES = {
    "data": {"source": "pets", "chunk_mb": 0.01, "validation_fraction": 0.1},
    "select": {"algorithm": "random", "fraction": 0.5},
    "train": {"epochs": 1, "random_baseline": False, "batch_size": 4},
}


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with images, a configuration and a finished run of it."""
    folder = tmp_path_factory.mktemp("export")
    tree(folder / "pets", PETS)
    changes = CHANGES | {"data": {**CHANGES["data"], "source": str(folder / "pets")}}
    ctx = tiny_context(folder / "runs", changes)
    run_with_baseline(ctx)
    (folder / "run.yaml").write_text(json.dumps(ctx.config.model_dump(mode="json")))
    return folder


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def export(ran: Path, target: str, *more: str) -> None:
    main(["export", str(ran / "run.yaml"), "--to", target, *more])


def selected(ran: Path) -> dict[str, dict[str, object]]:
    """Source -> row of the chosen, from the subset's table alone."""
    (file,) = (ran / "runs/select").glob("*/subset.parquet")
    return {row["source"]: row for row in pq.read_table(file).to_pylist() if row["rank"] is not None}


def test_the_subset_knows_the_names_of_its_images(ran: Path) -> None:
    chosen = selected(ran)
    assert 8 <= len(chosen) < len(PETS)
    for source, row in chosen.items():
        assert source in PETS
        assert row["label"] == ["cat", "horse"].index(source.split("/")[0])


def test_list(ran: Path, place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    export(ran, "list.txt")
    lines = (place / "list.txt").read_text().splitlines()
    rows = selected(ran)
    assert lines == sorted(rows, key=lambda name: rows[name]["position"])  # type: ignore[arg-type,return-value]
    assert capsys.readouterr().out == "list.txt\n"
    # docs/howto/export.md
    names = set(Path("list.txt").read_text().splitlines())
    pets = ran / "pets"
    data = ImageFolder(str(pets), is_valid_file=lambda path: os.path.relpath(path, pets) in names, allow_empty=True)
    assert {os.path.relpath(path, pets) for path, _ in data.samples} == names


def test_csv(ran: Path, place: Path) -> None:
    export(ran, "x.csv")
    with open(place / "x.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    expected = selected(ran)
    assert {row["source"] for row in rows} == set(expected)
    for row in rows:
        other = expected[row["source"]]
        assert row["class"] == row["source"].split("/")[0]
        assert (int(row["label"]), int(row["position"])) == (other["label"], other["position"])
        assert float(row["weight"]) == other["weight"]


def test_a_folder_holds_the_files_as_they_were_and_can_be_ingested(ran: Path, place: Path) -> None:
    export(ran, "out")
    files = [file for file in (place / "out").rglob("*") if file.is_file()]
    chosen = selected(ran)
    assert len(files) == len(chosen)
    assert all(file.parent.parent == place / "out/train" for file in files)
    kept = sorted(PETS[name] for name in chosen if not name.endswith("bmp"))
    assert sorted(file.read_bytes() for file in files if not file.name.endswith("bmp.png")) == kept
    source = open_source("out")
    assert list(source.classes) == ["cat", "horse"]
    assert len(source.splits["train"]) == len(chosen)
    main(["ingest", "out", "store"])
    assert (place / "store/manifest.json").exists()


def test_a_tar_can_be_ingested_and_holds_the_labels(ran: Path, place: Path) -> None:
    export(ran, "x.tar")
    source = open_source("x.tar")
    chosen = selected(ran)
    assert len(source.splits["train"]) == len(chosen)
    assert sorted(source.splits["train"]) == sorted(row["label"] for row in chosen.values())
    with tarfile.open("x.tar") as tar:
        names = tar.getnames()
    assert len(set(names)) == len(names) == 2 * len(chosen)
    main(["ingest", "x.tar", "store"])
    assert (place / "store/manifest.json").exists()


def test_json(ran: Path, place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    export(ran, "list.txt", "-o", "json")
    told = json.loads(capsys.readouterr().out)
    assert (told["to"], told["kind"], told["count"]) == ("list.txt", "list", len(selected(ran)))
    assert told["subset"].startswith("select/")


def test_of_a_comparison_it_names_the_seed_and_how_to_get_another(
    ran: Path, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = json.loads((ran / "run.yaml").read_text())
    config |= {"workspace": str(place / "runs"), "compare": {"seeds": [4, 3], "variants": ["lipt"]}}
    (place / "both.yaml").write_text(json.dumps(config))
    main(["compare", "both.yaml"])
    capsys.readouterr()
    main(["export", "both.yaml", "--to", "first.txt"])
    told = capsys.readouterr().err
    assert "this is what seed 4 of the comparison made" in told
    assert "lipt run both.yaml --set seed=3, then lipt export with the same --set" in told
    same = f"workspace={place}/runs"
    main(["export", "both.yaml", "--set", same, "--to", "third.txt"])
    assert f"lipt run both.yaml --set {same} --set seed=3, then" in capsys.readouterr().err
    for verb in (["run"], ["export", "--to", "second.txt"]):
        main([verb[0], "both.yaml", "--set", "seed=3", *verb[1:]])
    assert (place / "first.txt").read_text() != (place / "second.txt").read_text()
    assert "of the comparison" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("target", "told"),
    [
        ("there.txt", "exists already"),
        ("full", "exists already"),
        ("link", "exists already"),
        ("x.parquet", "unknown suffix '.parquet'"),
        ("s3://bucket/x.tar", "not a local path"),
    ],
)
def test_targets_that_are_refused(
    ran: Path, place: Path, target: str, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    tree(place, {"there.txt": b"mine", "full/x": b"mine"})
    (place / "link").symlink_to("nowhere")
    before = sorted(os.listdir(place))
    with pytest.raises(SystemExit) as ended:
        export(ran, target)
    assert ended.value.code == 2
    assert told in capsys.readouterr().err
    assert sorted(os.listdir(place)) == before
    assert (place / "there.txt").read_bytes() == b"mine"


def test_images_are_not_written_among_those_of_the_source(ran: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        export(ran, str(ran / "pets/subset"))
    assert (ended.value.code, (ran / "pets/subset").exists()) == (2, False)
    assert "lies in the source" in capsys.readouterr().err


def test_a_workspace_that_was_copied_has_its_reports_and_is_exported(
    ran: Path, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(ran / "runs", place / "moved")
    export(ran, "list.txt", "--set", "workspace=moved")
    export(ran, "same.txt")
    assert (place / "list.txt").read_text() == (place / "same.txt").read_text()
    main(["report", str(ran / "run.yaml"), "--set", "workspace=moved"])
    page = Path(capsys.readouterr().out.splitlines()[-1])
    assert page.is_relative_to(place / "moved/reports")
    main(["run", str(ran / "run.yaml"), "--set", "workspace=moved"])  # the same report, not a second one
    assert len(list((place / "moved/reports").iterdir())) == 1


@pytest.mark.parametrize("place_of_the_report", ["", "/report.html", "/"])
def test_a_run_is_exported_by_the_place_of_its_report(
    ran: Path, place: Path, place_of_the_report: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whoever has only the workspace needs no configuration. The run may have had a GPU, or lain elsewhere."""
    shutil.copytree(ran / "runs", place / "moved")
    (report,) = (place / "moved/reports").iterdir()
    main(["export", f"moved/reports/{report.name}{place_of_the_report}", "--to", "list.txt"])
    main(["export", f"moved/reports/{report.name}", "--to", "net.pt2"])
    export(ran, "same.txt")
    export(ran, "same.pt2")
    assert (place / "list.txt").read_text() == (place / "same.txt").read_text()
    image = torch.zeros(1, 3, 4, 4, dtype=torch.uint8)
    one, other = (torch.export.load(place / name).module()(image) for name in ("net.pt2", "same.pt2"))
    assert torch.equal(one, other)
    with pytest.raises(SystemExit) as ended:
        main(["export", f"moved/reports/{report.name}", "--set", "seed=4", "--to", "other.txt"])
    assert ended.value.code == 2
    assert "--set cannot change a finished run" in capsys.readouterr().err


def test_an_empty_folder_is_taken(ran: Path, place: Path) -> None:
    (place / "out").mkdir()
    export(ran, "out")
    assert (place / "out/train/cat").is_dir()


@pytest.mark.parametrize(("target", "stage"), [("list.txt", "select"), ("net.pt2", "train")])
def test_what_is_made_again_after_damage_is_an_error_with_a_next_step(
    target: str, stage: str, ran: Path, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A stage that runs again removes its marker first."""
    (marker,) = (ran / "runs" / stage).glob("*/artifact.json")
    marker.rename(kept := place / "kept.json")
    try:
        with pytest.raises(SystemExit) as ended:
            export(ran, target)
    finally:
        kept.rename(marker)
    assert ended.value.code == 1
    told = capsys.readouterr().err
    assert f"{marker.parent} was removed since its run ended, or is not finished again\n  -> run again" in told


def test_a_run_that_is_not_there(ran: Path, place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        export(ran, "list.txt", "--set", "seed=7")
    assert ended.value.code == 1
    config = ran / "run.yaml"
    said = f"runs has no report of {config}\n  -> run it first: lipt run {config} --set seed=7; lipt ls"
    assert said in capsys.readouterr().err
    assert os.listdir(place) == []


@pytest.mark.parametrize("target", ["out", "x.tar"])
def test_nothing_half_written_is_left(
    ran: Path, place: Path, target: str, tmp_path_factory: pytest.TempPathFactory, capsys: pytest.CaptureFixture[str]
) -> None:
    broken = tmp_path_factory.mktemp("broken")
    shutil.copytree(ran / "runs", broken / "runs")
    (store,) = (file.parent for file in broken.rglob("manifest.json"))
    last = max(chunk for chunk, _ in chunks_of(selected(ran), store))
    (store / last).write_bytes(bytes((store / last).stat().st_size))
    with pytest.raises(SystemExit) as ended:
        export(ran, target, "--set", f"workspace={broken}/runs")
    assert ended.value.code == 1
    assert f"{last}: sample" in capsys.readouterr().err
    assert os.listdir(place) == []


def chunks_of(chosen: dict[str, dict[str, object]], store: Path) -> list[tuple[str, object]]:
    """The chunk and the position of each of them."""
    dataset = Dataset(DatasetFiles(open_store(str(store))).read)
    index, files = dataset.index("train"), dataset.manifest.splits["train"].chunks
    return [(files[index.chunk[row["position"]]].file, row["position"]) for row in chosen.values()]  # type: ignore[call-overload]
