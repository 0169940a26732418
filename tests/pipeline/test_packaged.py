"""The files that the package brings along, written by `lipt init` and `lipt pipeline export`."""

from __future__ import annotations

import re
import shutil
import subprocess
import tarfile
import zipfile
from pathlib import Path

import pytest
from hatchling.metadata.core import ProjectMetadata
from hatchling.plugin.manager import PluginManager

from lipt import __version__
from lipt.cli import main
from lipt.cli.packaged import packaged
from lipt.errors import UsageError
from tests.manifests.objects import built
from tests.programs import lipt, run_python

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted(path.name for path in (ROOT / "examples").glob("[0-9]*"))
PIPELINES = ["lipt", "ingest", "compare"]


def test_init_lists_the_examples_and_never_replaces_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    main(["init"])
    shown = capsys.readouterr()
    lines = shown.out.splitlines()
    assert [line for line in lines if len(line) > 80] == []
    assert "init NAME writes one" in shown.err
    assert len(lines) == len(EXAMPLES)
    assert [line.split()[0] for line in lines] == [Path(name).stem.partition("-")[2] for name in EXAMPLES]
    for name, made in (("quickstart", "01-quickstart.yaml"), ("your-model", "05-your-model")):
        main(["init", name])
        assert capsys.readouterr().out == f"{made}\n"
        with pytest.raises(SystemExit) as end:
            main(["init", name])
        assert end.value.code == UsageError.exit_code
        assert f"{made} exists already" in capsys.readouterr().err
    assert (tmp_path / "01-quickstart.yaml").read_bytes() == (ROOT / "examples/01-quickstart.yaml").read_bytes()
    with pytest.raises(SystemExit):
        main(["init", "race", "quickstrt"])  # writes nothing
    capsys.readouterr()
    main(["init", "race", "sweep"])
    assert capsys.readouterr().out == "13-race.yaml\n14-sweep.yaml\n"
    done = lipt("init", "quickstrt")
    assert done.returncode == 2
    assert "did you mean 'quickstart'" in done.stderr


def test_a_released_image_is_tried_with_commands_that_exist(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    release = (ROOT / ".github/workflows/release.yaml").read_text(encoding="utf-8")
    (line,) = re.findall(r'docker run .* -c "cd /tmp && (.*)"', release)
    init, run = (command.split()[1:] for command in line.split(" && "))
    main(init)
    main([*run, "--dry-run"])
    assert "evaluate" in capsys.readouterr().err


def test_pipeline_export(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    main(["pipeline", "export"])
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if len(line) > 80] == []
    assert [line.split()[0] for line in lines] == [*PIPELINES, "manifests"]
    for name in PIPELINES:
        main(["pipeline", "export", name])
        assert capsys.readouterr().out == f"{name}.yaml\n"
        assert (tmp_path / f"{name}.yaml").read_bytes() == (ROOT / "pipelines" / f"{name}.yaml").read_bytes()
    main(["pipeline", "export", "manifests"])
    written = {path.relative_to(tmp_path) for path in (tmp_path / "manifests").rglob("*.yaml")}
    assert written == {path.relative_to(ROOT) for path in (ROOT / "manifests").rglob("*.yaml")}
    with pytest.raises(SystemExit) as end:
        main(["pipeline", "export", "lipt"])
    assert end.value.code == UsageError.exit_code
    assert "lipt.yaml exists already" in capsys.readouterr().err
    assert "did you mean 'compare'" in lipt("pipeline", "export", "compar").stderr


def test_the_wheel_and_the_sources_carry_them(tmp_path: Path) -> None:
    run_python("-c", BUILD, str(tmp_path))
    (wheel,), (sources,) = tmp_path.glob("*.whl"), tmp_path.glob("*.tar.gz")
    names = zipfile.ZipFile(wheel).namelist()
    files = [
        path.relative_to(ROOT).as_posix()
        for folder in ("examples", "manifests")
        for path in packaged(folder).rglob("*.*")
        if path.suffix != ".pyc" and path.is_file()
    ] + [f"pipelines/{name}.yaml" for name in PIPELINES]
    folders = ("lipt/examples/", "lipt/manifests/", "lipt/pipelines/")
    assert {name for name in names if name.startswith(folders)} == {f"lipt/{name}" for name in files}
    assert "lipt/py.typed" in names
    zipfile.ZipFile(wheel).extractall(tmp_path / "installed")
    run_python("-c", USE, str(tmp_path))
    assert (tmp_path / "01-quickstart.yaml").read_bytes() == (ROOT / "examples/01-quickstart.yaml").read_bytes()
    assert (tmp_path / "lipt.yaml").read_bytes() == (ROOT / "pipelines/lipt.yaml").read_bytes()
    with tarfile.open(sources) as archive:
        assert {f"lipt-{__version__}/{name}" for name in files} <= set(archive.getnames())


#: Uses the files of the wheel, not those of the checkout.
USE = """
import os, sys
sys.path.insert(0, sys.argv[1] + "/installed")
os.chdir(sys.argv[1])
from lipt.cli import main
from lipt.cli.packaged import packaged
assert str(packaged("examples")).startswith(sys.argv[1])
main(["init", "quickstart"])
main(["pipeline", "export", "lipt"])
"""

BUILD = """
import sys
from hatchling.builders.sdist import SdistBuilder
from hatchling.builders.wheel import WheelBuilder
for builder, version in ((WheelBuilder, "standard"), (SdistBuilder, "standard")):
    list(builder(".").build(directory=sys.argv[1], versions=[version]))
"""


def test_the_addresses_are_those_of_the_repository(monkeypatch: pytest.MonkeyPatch) -> None:
    def urls() -> dict[str, str]:
        return ProjectMetadata(str(ROOT), PluginManager()).core.urls

    monkeypatch.delenv("LIPT_REPOSITORY", raising=False)
    assert urls() == {}
    monkeypatch.setenv("LIPT_REPOSITORY", "https://example.org/me/lipt")
    monkeypatch.setenv("GITHUB_REF_NAME", "v1")
    assert urls() == {
        "Source": "https://example.org/me/lipt",
        "Documentation": "https://example.org/me/lipt/blob/v1/docs/index.md",
        "Issues": "https://example.org/me/lipt/issues",
        "Changelog": "https://example.org/me/lipt/blob/v1/CHANGELOG.md",
    }


def test_a_release_names_its_image_in_pipelines_and_manifests(tmp_path: Path) -> None:
    for folder in ("pipelines", "manifests", "docs/howto", ".github"):
        shutil.copytree(ROOT / folder, tmp_path / folder)
    script, published = tmp_path / ".github/name-image.sh", f"ghcr.io/me/lipt:{__version__}"
    subprocess.run([script, published], check=True, cwd=tmp_path)
    for name in PIPELINES:
        text = (tmp_path / f"pipelines/{name}.yaml").read_text(encoding="utf-8")
        before = (ROOT / f"pipelines/{name}.yaml").read_text(encoding="utf-8")
        assert text == before.replace(f" lipt:{__version__}\n", f" {published}\n").replace(
            f"'lipt:{__version__}'", f"'{published}'"
        )
        assert f" {published}\n" in text
        assert f"#    image: str [Default: '{published}']" in text  # the list of parameters for people
    assert published in (tmp_path / "manifests/base/workflowtemplate.yaml").read_text(encoding="utf-8")
    assert _images(tmp_path / "manifests/overlays/kind") == {published}
    head = (tmp_path / "manifests/overlays/kind/kustomization.yaml").read_text(encoding="utf-8")
    assert "kubectl apply -k" in head
    assert "kind load" not in head  # the nodes pull a published image
    again = subprocess.run([script, published], cwd=tmp_path, check=False)
    assert again.returncode == 1  # there is no local image left to name


@pytest.mark.parametrize("released", [False, True], ids=["checkout", "release"])
def test_the_overlays_of_the_pages_name_a_registry_of_your_own(tmp_path: Path, released: bool) -> None:
    for folder in ("pipelines", "manifests", "docs/howto", ".github"):
        shutil.copytree(ROOT / folder, tmp_path / folder)
    if released:
        script = tmp_path / ".github/name-image.sh"
        subprocess.run([script, f"ghcr.io/me/lipt:{__version__}"], check=True, cwd=tmp_path)
    for page in ("manifests/README.md", "docs/howto/cluster-install.md"):
        text = (tmp_path / page).read_text(encoding="utf-8")
        (code,) = re.findall(r"```yaml\n([^`]*, newName: [^`]*)```", text)
        mine = tmp_path / "manifests/overlays" / Path(page).stem
        mine.mkdir()
        (mine / "kustomization.yaml").write_text(code, encoding="utf-8")
        (registry,) = re.findall(r"newName: (\S+)/lipt", code)
        assert _images(mine) == {f"{registry}/lipt:{__version__}"}


def _images(overlay: Path) -> set[str]:
    """The images of LiPT that an overlay names: for the set-up, the owner of the volume, and runs."""
    found = re.findall(r"'image': '([^']*lipt[^']*)'|'name': 'image', 'value': '([^']*)'", str(built(overlay)))
    assert len(found) >= 3
    return {first or second for first, second in found}


def test_the_next_command_of_a_folder_is_said_and_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    main(["init", "your-model"])
    told = capsys.readouterr()
    assert told.out == "05-your-model\n"
    assert told.err == "lipt: next: cd 05-your-model && lipt doctor run.yaml\n"
    monkeypatch.chdir(tmp_path / "05-your-model")
    assert Path("run.yaml").is_file()


def test_the_next_command_of_every_example_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    main(["init", *(Path(name).stem.partition("-")[2] for name in EXAMPLES)])
    told = capsys.readouterr()
    made, following = told.out.splitlines(), told.err.splitlines()
    assert following[0] == "lipt: next: lipt run 01-quickstart.yaml"
    assert len(following) == len(made)
    for name, line in zip(made, following, strict=True):
        if not line.startswith("lipt: next: lipt pipeline export"):
            assert name in line
