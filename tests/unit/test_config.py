"""Configuration: profiles, overrides, errors that help."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from fractions import Fraction
from itertools import product
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from lipt.config import Config, Merge, load_config, override, parse_config, read_yaml
from lipt.errors import UsageError
from lipt.runtime.budgets import steps_of
from lipt.stages.pretrain import quorum_of

#: The configurations; a manifest for kubectl and a sweep lie among them.
EXAMPLES = [
    path
    for path in sorted((Path(__file__).parents[2] / "examples").glob("*.yaml"))
    if not {"apiVersion", "grid"} & yaml.safe_load(path.read_text(encoding="utf-8")).keys()
]


def test_the_profile_lies_under_what_the_user_writes() -> None:
    paper = parse_config({"profile": "paper"})
    assert (paper.pretrain.lr, paper.merge.search, paper.dispatch.stratified, paper.select.algorithm) == (
        0.1,
        "grid",
        False,
        "grand",
    )
    mine = parse_config({"profile": "paper", "pretrain": {"lr": 0.5}})
    assert (mine.pretrain.lr, mine.merge.search) == (0.5, "grid")
    robust = parse_config({})
    assert (robust.pretrain.lr, robust.merge.search, robust.dispatch.stratified) == (0.01, "coarse_to_fine", True)


@pytest.mark.parametrize(
    ("profile", "algorithm", "epochs", "batch_size", "steps"),
    [("paper", "grand", 1, 256, 200 * 18), ("ccs", "ccs", 200, 256, 40_000), ("dual", "dual", 30, 32, 31_400)],
)
def test_profiles_know_how_long_the_papers_score_and_train(
    profile: str, algorithm: str, epochs: int, batch_size: int, steps: int
) -> None:
    """At 10 % of CIFAR-10."""
    config = parse_config({"profile": profile, "select": {"fraction": 0.1}})
    assert (config.select.algorithm, config.score.epochs, config.train.batch_size) == (algorithm, epochs, batch_size)
    assert steps_of(config.train, 45_000, 4_500) == steps
    assert parse_config({"profile": profile, "train": {"steps": 7}}).train.steps == 7


@pytest.mark.parametrize("profile", ["ccs", "dual"])
def test_epochs_that_the_user_writes_override_the_steps_of_a_profile(profile: str) -> None:
    mine = parse_config({"profile": profile, "train": {"epochs": 3}})
    assert (mine.train.epochs, mine.train.steps) == (3, None)
    assert load_config(None, [f"profile={profile}", "train.epochs=3"]) == mine
    assert override(mine, {"seed": 1}).train == mine.train
    assert override(parse_config({"train": {"epochs": 3}}), {"profile": profile}).train == mine.train
    theirs = parse_config({"profile": profile})
    assert override(theirs, {"train": {"epochs": 3}}) == mine
    assert parse_config(theirs.model_dump(mode="json")) == theirs


@pytest.mark.parametrize("written", [{"epochs": 9}, {"steps": 9}, {"steps": None}])
@pytest.mark.parametrize(("given", "length"), [("epochs=3", (3, None)), ("steps=3", (200, 3))])
def test_a_length_of_the_training_replaces_the_one_in_the_other_unit(
    written: dict[str, int], given: str, length: tuple[int, int | None], tmp_path: Path
) -> None:
    path = tmp_path / "run.yaml"
    path.write_text(yaml.safe_dump({"train": written}))
    for text in (f"train.{given}", f"train={{{given.replace('=', ': ')}}}"):
        train = load_config(str(path), [text]).train
        assert (train.epochs, train.steps) == length
    changed = override(load_config(str(path)), {"train": yaml.safe_load(given.replace("=", ": "))})
    assert changed.train == train
    assert parse_config(changed.model_dump(mode="json")) == changed


def test_a_length_in_epochs_stays_if_the_one_in_steps_is_removed() -> None:
    assert load_config(None, ["train.epochs=3", "train.steps=null"]).train.epochs == 3
    train = load_config(None, ["train.steps=7", "train.steps=null", "train.epochs=3"]).train
    assert (train.epochs, train.steps) == (3, None)


def test_two_lengths_of_the_training_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "run.yaml"
    path.write_text("train:\n  epochs: 3\n  steps: 7\n")
    with pytest.raises(UsageError, match=r"train.epochs \(3\) and train.steps \(7\) both set the length"):
        load_config(str(path))
    with pytest.raises(UsageError, match=r"--set train.steps=7 and --set train.epochs=3 both set the length"):
        load_config(None, ["train.steps=7", "train.epochs=3"])


@pytest.mark.parametrize(("text", "number"), [("1e-3", 0.001), ("-2E+1", -20.0), ("1.5e3", 1500.0), (".5e1", 5.0)])
def test_an_exponent_makes_a_number_where_no_type_says_so(text: str, number: float) -> None:
    (beta,) = load_config(None, [f"select.options.beta={text}"]).select.options.values()
    assert (beta, type(beta)) == (number, float)
    quoted = load_config(None, [f"workspace='{text}'"])
    dumped = yaml.safe_dump(quoted.model_dump(mode="json"))
    assert parse_config(read_yaml(dumped, "it")[0]) == quoted  # stays a text


@pytest.mark.parametrize(("text", "number"), [("010", "8"), ("-0_7", "-7"), ("1:30", "90"), ("1:30.5", "90.5")])
def test_numbers_that_yaml_reads_as_others_are_refused(text: str, number: str) -> None:
    with pytest.raises(UsageError, match=f"{text} is the number {number} in YAML"):
        load_config(None, [f"select.options.beta={text}"])
    assert load_config(None, ["seed=0"]).seed == 0


def test_null_is_called_null() -> None:
    with pytest.raises(UsageError, match="seed is null; it should be a valid integer"):
        load_config(None, ["seed=null"])


def test_overrides_are_yaml_and_nest() -> None:
    config = load_config(
        None, ["select.fraction=0.05", "pretrain.density=[0.5, 0.6]", "train.epoch_fraction=null", "name=x"]
    )
    assert (config.select.fraction, config.pretrain.density, config.train.epoch_fraction) == (0.05, (0.5, 0.6), None)
    assert override(config, {"select": {"algorithm": "grand"}}).select.fraction == 0.05


@pytest.mark.parametrize(
    ("written", "read"),
    [("runs #2", "runs #2"), ("#2 ä", "#2 ä"), ('"runs #2"', "runs #2"), ("'runs' # the second", "runs")],
)
def test_a_hash_in_a_name_does_not_cut_it_on_the_command_line(written: str, read: str) -> None:
    """YAML reads ` #` as the beginning of a comment: the run would go into another folder."""
    assert load_config(None, [f"workspace={written}"]).workspace == read


@pytest.mark.parametrize(
    "written",
    [
        "2024", "010", "1:30", "no", "null", "2024-01-05", "photos: x", "*.tar", "{a,b}.tar", "@x", "[x]", "!x", "it's"
    ],
)  # fmt: skip
def test_a_text_on_the_command_line_is_taken_as_it_is(written: str) -> None:
    assert load_config(None, [f"data.source={written}"]).data.source == written
    assert load_config(None, ["data.source='" + written.replace("'", "''") + "'"]).data.source == written
    assert load_config(None, ["data.source=~"]).data.source == os.path.expanduser("~")
    with pytest.raises(UsageError, match=r"data\.source is null"):
        load_config(None, ["data.source="])


@pytest.mark.parametrize("character", ["\u3000", "\u200d", "\xa0", "\ue000", "\U0001f408"])
def test_a_path_may_contain_what_only_looks_blank(tmp_path: Path, character: str) -> None:
    path = tmp_path / "run.yaml"
    for name in (f"{tmp_path}/my{character}photos", f"my{character}photos"):
        assert parse_config({"data": {"source": name}}).data.source == name
        assert load_config(None, [f"data.source={name}"]).data.source == name
        path.write_text(f"data: {{source: {name}}}", encoding="utf-8")
        assert load_config(str(path)).data.source == name


@pytest.mark.parametrize("character", ["\n", "\x1b", "\x7f", "\x85", "\u2028", "\u202e", "\u2066", "\udce4"])
def test_a_path_without_control_characters(character: str) -> None:
    with pytest.raises(UsageError, match="contains a character that cannot be printed"):
        parse_config({"data": {"source": f"my{character}photos"}})


def test_another_profile_takes_no_single_option_that_the_user_wrote() -> None:
    """Profile `ccs` has one of these two options. They belong together."""
    options = {"score": "aum", "beta": 0.2}
    mine = parse_config({"profile": "ccs", "select": {"options": options}})
    assert override(mine, {"profile": "robust", "select": {"algorithm": "ccs"}}).select.options == options


def test_another_profile_brings_its_values_and_takes_those_of_the_old_one() -> None:
    mine = parse_config({"merge": {"search_images": 64}, "pretrain": {"passes": 2}})
    paper = override(mine, {"profile": "paper"})
    written = {"profile": "paper", "merge": {"search_images": 64}, "pretrain": {"passes": 2}}
    assert paper == parse_config(written)
    assert (paper.pretrain.lr, paper.merge.search, paper.merge.search_images) == (0.1, "grid", 64)
    assert override(paper, {"profile": "robust"}) == mine
    assert override(paper, {"profile": "paper", "seed": 3}) == parse_config(written | {"seed": 3})


def test_a_layer_may_be_named_by_its_number() -> None:
    config = load_config(None, ["model.classifier=4"])
    assert config.model.classifier == "4"
    jsonschema.validate({"model": {"classifier": 4}}, Config.model_json_schema())
    with pytest.raises(UsageError, match=r"model\.classifier is 4\.1"):
        load_config(None, ["model.classifier=4.1"])  # 4.10 would read the same


def test_set_changes_one_option_and_leaves_the_others(tmp_path: Path) -> None:
    path = tmp_path / "run.yaml"
    path.write_text("select: {algorithm: ccs, options: {beta: 0.3}}")
    both = load_config(str(path), ["select.options.score=aum", "select.options.k=50"])
    assert both.select.options == {"beta": 0.3, "score": "aum", "k": 50}
    whole = load_config(str(path), ["select.options.k=50", "select.options={score: aum}"])
    assert whole.select.options == {"score": "aum"}


def test_options_of_an_algorithm_are_replaced_as_a_whole() -> None:
    config = parse_config({"select": {"algorithm": "ccs", "options": {"beta": 0.3}}})
    assert override(config, {"select": {"algorithm": "random", "options": {}}}).select.options == {}


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("selct.fraction=1", "unknown key 'selct'; did you mean 'select'?"),
        ("select.fractoin=1", "unknown key 'select.fractoin'; did you mean 'select.fraction'?"),
        ("select.k=5", "unknown key 'select.k'; choose from: algorithm, fraction, balanced"),
        ("select.race.round=[0.1]", "did you mean 'select.race.rounds'?"),
        ("fraction=.1", "did you mean 'select.fraction'?"),
        ("lr=.1", "did you mean 'initialise.lr' or 'pretrain.lr' or 'train.lr'?"),
        ("select.epochs=3", "did you mean 'initialise.epochs' or 'score.epochs' or 'train.epochs'?"),
        ("select.fraction=2", "--set select.fraction=2: select.fraction is 2; it should be less than or equal to 1"),
        ("select.fraction=5", "less than or equal to 1; 5 % is written 0.05"),
        ("select.fraction=5%", "should be a valid number; 5 % is written 0.05"),
        ("select.fraction=lots", "select.fraction is 'lots'; it should be a valid number"),
        ("merge.method=soup", "merge.method"),
        ("workspace=''", "workspace: String should have at least 1 character"),
        ("train.raptr.keep=[]", "train.raptr.keep is empty; it should have at least 2"),
        ("train.raptr.keep=[0.5]", "train.raptr.keep has 1 entry; it should have at least 2"),
        ("train.raptr.keep=0.5", "train.raptr.keep is 0.5; it should be a valid list"),
        ("data.chunk_mb=1e308", "data.chunk_mb is 1e+308; it should be less than or equal to 1000000"),
        ("data.shuffle_seed=-1", "data.shuffle_seed is -1; it should be greater than or equal to 0"),
        ("merge.groups=11", "merge.groups (11) exceeds dispatch.jigsaws (10)"),
        ("train.epoch_fraction=0.5", "an epoch cannot draw more than is kept"),
        ("pretrain.density=[1, 0.5]", "density must be [low, high]"),
        (
            "name=No Spaces",
            "it should be lower-case letters, digits and hyphens, with a letter or a digit",
        ),
        ("select=5", "it is a section, write select.KEY: VALUE"),
        (
            "select.race={contestants: [ccs]}",
            "select.race.contestants[0] is 'ccs'; it should be a mapping: {KEY: VALUE}",
        ),
        (
            "select.race={contestants: [{algorithm: ccs, foo: 1}]}",
            "unknown key 'select.race.contestants[0].foo'; choose from: algorithm, options",
        ),
        ("select.race={contestants: [{options: {}}]}", "select.race.contestants[0].algorithm is missing"),
        ("select.race.contestants=[true]", "select.race.contestants[0] is true; it should be a mapping"),
        ("train.raptr=true", "train.raptr is true; it is a section, write train.raptr.KEY: VALUE"),
        ("train={lr: 0,1}", "unknown key 'train.1'; choose from: epochs, steps"),
        ("processes=0", "processes is 0; it should be greater than 0 or 'auto'"),
        ("train.epochs=true", "train.epochs: true is neither a number"),
        ("compare.seeds=[true]", "compare.seeds: true is neither a number"),
        ("train.reselect_every=200", "train.reselect_every (200) is not below train.epochs (200)"),
        ("train.draw=ordered", "train.draw: ordered needs train.epoch_fraction"),
        ("train={draw: infobatch, reselect_every: 2}", "infobatch draws from one subset; it excludes"),
        (
            "train={draw: ordered, epoch_fraction: 0.045}",
            "0.0529 of the candidates, more than select.fraction",
        ),
        ("train.first_losses=trajectory", "train.first_losses needs train.draw: infobatch or ordered"),
        ("train={draw: infobatch, first_losses: trajectory}", "trajectory needs score.model: trajectory"),
        ("score={model: trajectory, disjoint: true, runs: 1}", "score.disjoint needs score.model: trajectory and"),
        ("score={disjoint: true}", "score.disjoint needs score.model: trajectory and score.runs: 2 or more"),
        ("train.prune_probability=1", "train.prune_probability is 1; it should be less than 1"),
        ("initialise.lr=1e300", "initialise.lr is 1e+300; it should be less than or equal to 1000"),
        ("pretrain.lr=1e300", "pretrain.lr is 1e+300; it should be less than or equal to 1000"),
        ("train.lr=1e300", "train.lr is 1e+300; it should be less than or equal to 1000"),
        ("train.lr=.inf", "train.lr is inf; it should be a finite number"),
        ("data.crop=resized", "data.crop: resized needs data.image_size, the side of the crops: 224 for ImageNet"),
        ("data.chunk_mb=.inf", "it should be a finite number"),
        ("data.resident_mb=.nan", "it should be a finite number"),
        ("compare.seeds=[0,1,0]", "compare.seeds: 0 is named twice"),
        ("compare.seeds=[-1]", "compare.seeds[0] is -1"),
        ("data={source: a, source: b}", "--set data: 'source' is given twice"),
        ("seed", "not of the form a.b=value"),
        ("seed=[", "not YAML"),
    ],
)
def test_errors_name_key_and_remedy(setting: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        load_config(None, [setting])
    assert message in str(caught.value)
    assert caught.value.remedy
    assert caught.value.exit_code == 2


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: [", "is not YAML"),
        ("train:\n\tepochs: 1", "line 2: .*\n  -> indent with spaces instead of tabs"),
        ("- 1", "contains a list"),
        ("# later", "is empty"),
        ("{base: run.yaml, grid: {seed: [0, 1]}}", "is a sweep"),
        ("{apiVersion: argoproj.io/v1alpha1, kind: Workflow}", "is an object of Kubernetes"),
        ('{"cells": [], "nbformat": 4}', "is a notebook"),
        (None, "cannot read"),
    ],
)
def test_a_file_that_is_no_configuration(tmp_path: Path, text: str | None, message: str) -> None:
    path = tmp_path / "run.yaml"
    if text is not None:
        path.write_text(text)
    with pytest.raises(UsageError, match=message) as caught:
        load_config(str(path))
    assert caught.value.remedy


def test_no_settings() -> None:
    """As the test pod of `lipt doctor` is started."""
    assert load_config("/dev/null") == load_config(None)


def test_who_set_a_value_is_said(tmp_path: Path) -> None:
    path = tmp_path / "run.yaml"
    path.write_text("seed: 1\ntrain:\n  # by hand\n  lr: -1\nselect:\n  fraction: 0.1\n")
    with pytest.raises(UsageError, match=rf"^{path}, line 4: train.lr is -1; it should be greater than 0"):
        load_config(str(path))
    with pytest.raises(UsageError, match=r"^--set train.lr=-2: train.lr is -2"):
        load_config(str(path), ["train.lr=-2"])
    with pytest.raises(UsageError, match=rf"^{path}, line 6, --set train.epoch_fraction=.5: train.epoch_fraction \("):
        load_config(str(path), ["train.lr=1", "train.epoch_fraction=.5"])
    with pytest.raises(UsageError, match=r"^--set train.lr.x=3: train.lr is \{'x': 3\}"):
        load_config(str(path), ["train.lr.x=3"])
    with pytest.raises(UsageError, match=r"pretrain.density has 3 entries; it should have 2 at most"):
        load_config(None, ["pretrain.density=[0.5, 0.6, 0.7]"])


def test_a_key_that_is_given_twice_is_refused_with_both_lines(tmp_path: Path) -> None:
    path = tmp_path / "run.yaml"
    path.write_text("train:\n  lr: 1\n  epochs: 2\n  lr: 2\n")
    with pytest.raises(UsageError, match="line 4: 'lr' is given twice, first in line 2"):
        load_config(str(path))
    path.write_text("seed: 1\ntrain:\n  lr: 1\n  lr: 2\n  lr: 3\nseed: 2\n")
    with pytest.raises(UsageError) as caught:  # all of them, in the order of the file
        load_config(str(path))
    told = [each.message.partition(", ")[2] for each in caught.value.problems]
    first = {"lr": 3, "seed": 1}
    lines = [(4, "lr"), (5, "lr"), (6, "seed")]
    assert told == [f"line {line}: {key!r} is given twice, first in line {first[key]}" for line, key in lines]
    path.write_text("train: &fast\n  lr: 1\ninitialise:\n  <<: *fast\n  lr: 2\n")  # this is what `<<` is for
    assert load_config(str(path)).initialise.lr == 2


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_examples_are_valid_and_fit_the_schema(path: Path) -> None:
    config = load_config(str(path))
    assert config.name in path.name
    schema = Config.model_json_schema()
    jsonschema.validate(yaml.safe_load(path.read_text()), schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({"selct": {}}, schema)


def test_sections_do_not_change() -> None:
    with pytest.raises(ValueError, match="frozen"):
        parse_config({}).select.fraction = 0.5  # type: ignore[misc]


def test_every_setting_says_what_it_does() -> None:
    def undescribed(schema: dict[str, Any], section: str = "") -> Iterator[str]:
        for name, field in schema["properties"].items():
            link = field.get("$ref") or next((each["$ref"] for each in field.get("anyOf", []) if "$ref" in each), "")
            if link:
                yield from undescribed(definitions[link.rpartition("/")[2]], f"{section}{name}.")
            elif not field.get("description", "").endswith("."):
                yield f"{section}{name}"

    schema = Config.model_json_schema()
    definitions = schema["$defs"]
    assert list(undescribed(schema)) == []


def test_several_wrong_settings_are_shown_one_below_the_other() -> None:
    with pytest.raises(UsageError) as caught:
        load_config(None, ["train.lr=-1", "select.fraction=2"])
    assert str(caught.value).splitlines() == [
        "several problems:",
        "  - --set select.fraction=2: select.fraction is 2; it should be less than or equal to 1; 2 % is written 0.02",
        "  - --set train.lr=-1: train.lr is -1; it should be greater than 0",
        "  -> see `lipt config show` for all settings",
    ]
    with pytest.raises(UsageError, match="and 7 more\n  -> see"):
        load_config(None, [f"train.x{number}=1" for number in range(12)])


def test_a_trajectory_is_of_ten_epochs_of_one_model_unless_more_are_asked_for() -> None:
    config = parse_config({"score": {"model": "trajectory"}})
    assert config.score.runs == config.score.trajectories == 1
    assert config.score.epochs == 10
    assert parse_config(config.model_dump(mode="json")).score == config.score
    classic = override(config, {"score": {"model": "classic"}}).score
    assert (classic.runs, classic.epochs) == (10, 1)  # the paper's
    assert override(config, {"score": {"runs": 3}}).score.runs == 3


def test_a_quorum_is_rounded_up_and_no_further() -> None:
    for count, percent in product((1, 3, 10, 25, 50, 100), range(1, 101)):
        needed = Merge(quorum=percent / 100).needed(count)
        assert needed == math.ceil(Fraction(percent * count, 100)), (count, percent)
    assert Merge(quorum=1e-12).needed(3) == 1


@pytest.mark.parametrize(
    ("algorithm", "model", "needed"), [("dual", "jigsaws", 2), ("el2n", "jigsaws", 1), ("el2n", "merged", 1)]
)
def test_as_many_jigsaws_must_arrive_as_the_algorithm_needs(algorithm: str, model: str, needed: int) -> None:
    settings = {"score": {"model": model}, "select": {"algorithm": algorithm}, "dispatch": {"jigsaws": 2}}
    assert quorum_of(parse_config(settings)) == needed
