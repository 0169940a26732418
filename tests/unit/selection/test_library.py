"""`import lipt`: its public names and their types, the description of the algorithms, and what a Selection can do."""

from __future__ import annotations

import inspect
import json
import os
import pydoc
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import get_args

import datasets
import numpy as np
import pytest
import torch
from selection_samples import make
from torch.utils.data import DataLoader, TensorDataset

import lipt
from lipt.errors import RUN_MODULES, UsageError
from lipt.selection.notebook import facts_table
from lipt.selection.options import keywords
from lipt.selection.registry import lookup
from tests.programs import run_python

ROOT = Path(__file__).parents[3]


def test_import_loads_nothing_heavy_and_every_public_name_is_there() -> None:
    program = "import json, sys, lipt; print(json.dumps([sorted(sys.modules), dir(lipt)]))"
    modules, names = json.loads(run_python("-c", program))
    assert not {"torch", "numpy", "pyarrow", "pydantic", "lipt.selection"} & set(modules)
    assert names == lipt.__all__
    assert all(getattr(lipt, name) is not None for name in lipt.__all__)
    with pytest.raises(AttributeError, match="no attribute 'selct'"):
        lipt.selct  # noqa: B018


def test_what_a_selection_raises_and_takes_needs_no_other_import() -> None:
    with pytest.raises(lipt.LiptError, match="three arrays"):
        lipt.Trajectory(p_NT=torch.ones(2, 0), error_NT=torch.ones(2, 0), margin_NT=torch.ones(2, 0))


def test_the_type_of_an_algorithm_lists_the_registered_ones() -> None:
    assert get_args(lipt.AlgorithmName) == lipt.ALGORITHMS
    assert (ROOT / "src/lipt/py.typed").exists()


RIGHT = [
    'select("ccs", c, fraction=0.1, beta=0.3)',
    'select("auto", c, k=1)',
    "select(name, c, k=1)",
    "select(ALGORITHMS[3], c, k=1)",
    "select(name, c, k=1, **options)",
    'select("ccs", c, k=1, **options)',
]
WRONG = [
    'select("css", c, k=1)',
    'select("ccs", c, fraction=0.1, betta=0.3)',
    'select("ccs", c, fraction=0.1, beta="x")',
    'select("glister", c, k=1, greedy="exakt")',
    'select("random", c, k=1, beta=0.3)',
    "select(name, c, k=1, beta=0.3)",
    'select("ccs", c, k=1).indexes',
]


def test_a_type_checker_knows_the_options_of_each_algorithm(tmp_path: Path) -> None:
    program = [
        "from typing import Any",
        "from lipt import ALGORITHMS, AlgorithmName, Candidates, select",
        "def mine(c: Candidates, name: AlgorithmName, options: dict[str, Any]) -> None:",
        *(f"    {call}" for call in RIGHT + WRONG),
    ]
    (tmp_path / "mine.py").write_text("\n".join(program))
    # Other packages are unknown to it: reading torch would take a minute.
    command = [sys.executable, "-m", "mypy", "--strict", "--no-site-packages", "--ignore-missing-imports"]
    environment = os.environ | {"MYPYPATH": str(ROOT / "src")}
    command += ["--follow-imports=silent", "mine.py"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    lines = {int(number) for number in re.findall(r"^mine\.py:(\d+): error", done.stdout, re.MULTILINE)}
    assert [program[number - 1].strip() for number in sorted(lines)] == WRONG, done.stdout + done.stderr
    assert 'did you mean "beta"?' in done.stdout


@pytest.mark.parametrize("algorithm", lipt.ALGORITHMS)
def test_a_description_explains_every_option(algorithm: str) -> None:
    found = lipt.describe(algorithm)
    defaults = {} if algorithm == "auto" else keywords(lookup(algorithm).function)[0]
    assert [option.name for option in found.options] == list(defaults)
    assert all(option.meaning and option.values for option in found.options), found.options
    assert str(found).startswith(f"{algorithm}: {found.picks}.")
    assert "](" not in str(found), "a link to a page leads nowhere in a terminal"
    assert all(option.name in str(found) for option in found.options)
    # An option of the name of an argument of `select` could not be set.
    assert not defaults.keys() & inspect.signature(lipt.select).parameters.keys()


@pytest.mark.parametrize("algorithm", lipt.ALGORITHMS)
def test_help_lists_the_options_of_every_algorithm(algorithm: str) -> None:
    shown = pydoc.plain(pydoc.render_doc(lipt.select))
    defaults = {} if algorithm == "auto" else keywords(lookup(algorithm).function)[0]
    options = ", ".join(f"{name}={default!r}" for name, default in defaults.items())
    assert not options or f"\n        {algorithm}: {options}\n" in shown
    assert options or re.search(rf"\n        without options: .*\b{algorithm}\b", shown)
    assert 'print(lipt.describe("ccs"))` explains' in shown


def test_the_text_of_a_description() -> None:
    lines = str(lipt.describe("ccs")).splitlines()
    assert lines[1] == "  needs: logits or a trajectory"
    text = (
        "strata (50): number of equally wide score ranges that share the budget; at most one per sample of the budget."
    )
    told = " ".join(" ".join(lines).split())
    assert text in told
    assert "beta (by the fraction and the errors): share of each group that is dropped first" in told
    with pytest.raises(UsageError, match="did you mean 'ccs'"):
        lipt.describe("css")


def test_options_are_keywords() -> None:
    candidates = make(60, 3)
    selection = lipt.select("ccs", candidates, k=12, beta=0.3, seed=1)
    assert selection.options["beta"] == 0.3
    assert selection.seed == 1
    with pytest.raises(UsageError, match=r"algorithm ccs has no option 'bta'\n.*did you mean 'beta'"):
        lipt.select("ccs", candidates, k=12, bta=0.3)
    with pytest.raises(UsageError, match="auto takes no options"):
        lipt.select("auto", candidates, k=12, beta=0.3)


def test_length_equality_and_text() -> None:
    candidates = make(1200, 3)
    first, again, other = (lipt.select("ccs", candidates, k=12, seed=seed) for seed in (0, 0, 1))
    assert len(first) == 12
    assert first == again
    assert first != other
    assert first != "ccs"
    weighted = lipt.Selection(**vars(first) | {"weights_K": first.weights_K * 2})
    assert first != weighted
    assert first != lipt.Selection(**vars(first) | {"notes": {"epoch": 2}})
    with pytest.raises(TypeError, match="unhashable"):
        hash(first)
    text = "Selection(12 of 1,200 candidates by ccs(score=el2n, beta=0.5, strata=50), seed 0)"
    assert repr(first) == text
    assert repr(candidates) == "Candidates(1,200 of 3 classes, outputs of 1 model, forgetting counts, scores)"
    once = torch.ones(1200, 1)
    trajectory = lipt.Trajectory(p_NT=once, error_NT=once, margin_NT=once)
    assert repr(trajectory) == "Trajectory(1,200 samples, 1 epoch)"
    recorded = lipt.Candidates.of([0] * 1200, trajectories=trajectory)
    assert repr(recorded) == "Candidates(1,200 of 1 class, outputs of 0 models, trajectories of 1 model)"


def test_a_notebook_shows_a_table_with_every_text_escaped() -> None:
    labels = [0] * 6 + [1] * 3 + [40]
    selection = lipt.select("stratified", lipt.Candidates.of(labels), k=3)
    html = selection._repr_html_()
    assert "<td>0: 2 of 6, 1: 1 of 3, 2: 0 of 0," in html
    assert "and 21 more" in html
    hostile = lipt.Selection(**vars(selection) | {"algorithm": "<script>"})._repr_html_()
    assert "<script>" not in hostile
    assert "&lt;script&gt;" in hostile


def test_a_notebook_shows_what_is_known_of_candidates() -> None:
    candidates = make(1200, 3)
    html = candidates._repr_html_()
    assert html.startswith("<table><caption>Candidates</caption><tr><th>samples</th><td>1,200</td></tr>")
    assert "<tr><th>classes</th><td>3</td></tr><tr><th>models</th><td>1</td></tr>" in html
    width = candidates.outputs[0].num_features
    assert f"<tr><th>model 0</th><td>logits, {width} features</td></tr>" in html
    assert html.endswith("<tr><th>of each sample</th><td>forgetting counts, scores</td></tr></table>")
    once = torch.ones(4, 2)
    trajectory = lipt.Trajectory(p_NT=once, error_NT=once, margin_NT=once)
    recorded = lipt.Candidates.of([0, 1] * 2, features=once, trajectories=trajectory)._repr_html_()
    assert "<tr><th>model 0</th><td>2 features</td></tr><tr><th>trajectory 0</th><td>2 epochs</td></tr>" in recorded
    stored = lipt.StoredOutputs(models=2, sizes=[2, 2], read=lambda _: [], features=False)
    blocks = lipt.Candidates(labels_N=torch.tensor([0, 1] * 2), num_classes=2, stored=stored)._repr_html_()
    assert "<tr><th>each model</th><td>logits, stored in 2 blocks</td></tr>" in blocks
    assert facts_table("<b>", {"<i>": "<script>"}) == (
        "<table><caption>&lt;b&gt;</caption><tr><th>&lt;i&gt;</th><td>&lt;script&gt;</td></tr></table>"
    )


def test_a_saved_selection_is_equal(tmp_path: Path) -> None:
    selection = lipt.select("gradmatch", make(60, 3), k=12, notes={"epoch": 2})
    selection.save(tmp_path / "s.parquet")
    assert lipt.Selection.load(tmp_path / "s.parquet") == selection


def test_the_chosen_samples_of_other_libraries() -> None:
    selection = lipt.select("herding", make(60, 3), k=12)
    names = [f"{i:03d}.jpg" for i in range(60)]
    chosen = [names[i] for i in selection.indices_K.tolist()]
    assert selection.positions_K.tolist() == selection.indices_K.tolist()
    assert selection.files(names) == chosen
    rows = datasets.Dataset.from_dict({"name": names})
    assert selection.huggingface(rows)["name"][:] == chosen
    frame = rows.to_pandas()
    frame.index = range(60, 0, -1)  # of a frame that was filtered or sorted
    assert selection.files(frame["name"]) == chosen
    assert selection.files(iter(names)) == chosen
    assert [int(x) for (x,) in selection.subset(TensorDataset(torch.arange(60)))] == selection.indices_K.tolist()
    loader = DataLoader(TensorDataset(torch.arange(60)), batch_size=4)  # of 15 batches
    assert [int(x) for (x,) in selection.subset(loader)] == selection.indices_K.tolist()
    assert selection.huggingface(DataLoader(rows))["name"][:] == chosen  # type: ignore[arg-type]
    # Candidates that are a part of the data set: sample i of them is sample 2 i of it.
    part = lipt.Selection(**vars(selection) | {"positions_N": 2 * torch.arange(60)})
    assert part.files([str(i) for i in range(119)]) == [str(2 * i) for i in selection.indices_K.tolist()]
    with pytest.raises(UsageError, match=r"files\(names\)"):
        selection.files()
    assert selection.files(Path(name) for name in names) == chosen
    with pytest.raises(UsageError, match=r"the name of a sample is a tuple\n.*\[path for path, _ in image_folder"):
        selection.files([(name, 0) for name in names])  # type: ignore[misc]
    with pytest.raises(UsageError, match="the list has 59 names; the candidates reach up to position 59"):
        selection.files(names[:59])
    with pytest.raises(UsageError, match="reach up to position 59"):
        selection.huggingface(datasets.Dataset.from_dict({"name": names[:59]}))
    with pytest.raises(UsageError, match=r"TensorDataset has no select\n.*use subset"):
        selection.huggingface(TensorDataset(torch.arange(60)))  # type: ignore[arg-type]
    splits = datasets.DatasetDict({"train": rows, "test": rows})
    for fails in (selection.huggingface, selection.subset):
        with pytest.raises(UsageError, match=r"a dict of the splits train, test\n.*such as dataset\['train'\]"):
            fails(splits)


WITHOUT = """
import json, sys

blocked = set(json.loads(sys.argv[1]))

class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in blocked:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Refuse())
import torch, lipt
from lipt.cli import main

model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(12, 4))
data = torch.utils.data.TensorDataset(torch.rand(40, 3, 2, 2), torch.arange(40) % 4)
candidates = lipt.score_dataset(model, data, to=sys.argv[2])
for name in lipt.ALGORITHMS:
    if not {"aum", "dyn_unc", "forgetting", "scores", "dual"} & {name}:
        lipt.select(name, candidates, k=8).save(sys.argv[2] + "/subset.parquet")
print(lipt.describe("ccs"), lipt.Selection.load(sys.argv[2] + "/subset.parquet"))
main(["select", "--labels", sys.argv[2] + "/labels.npy", "--k", "4", "--to", sys.argv[2] + "/again.parquet"])
assert not blocked & set(sys.modules)
try:
    main(sys.argv[3:])
except SystemExit as end:
    print("exit", end.code)
"""


def test_selection_needs_only_the_base_installation(tmp_path: Path) -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    names = {text.split(">=")[0].replace("pillow", "PIL") for text in extras["run"]}
    assert names == RUN_MODULES
    config = tmp_path / "run.yaml"
    config.write_text("data: {source: digits}\n")
    command = [sys.executable, "-c", WITHOUT, json.dumps(sorted(names)), str(tmp_path / "outputs"), "run", str(config)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout.splitlines()[-1:] == ["exit 2"], done.stderr
    assert "pip install 'lipt[run]'" in done.stderr
    assert np.load(tmp_path / "outputs/logits.npy").shape == (40, 4)
