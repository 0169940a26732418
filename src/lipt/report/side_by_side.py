"""Several runs in one document: their rows side by side."""

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import yaml

from lipt.report.document import Differences, Document, Row
from lipt.report.numbers import DASH, format_moment
from lipt.report.words import join

#: Begins a sentence of `Choice` that names the algorithm of its own run only.
CHOSEN_BY_LIPT = "LiPT chose this algorithm"
#: Begins `Comparable` if the runs have other data: their accuracies are of other test images.
NOT_COMPARABLE = "No."
#: A sentence of `Compared with`, about the methods of one run.
SAME_BESIDE = "The network and the data set are the same."
#: Settings of `data` that change the images which the network sees, although the files are the same.
_IMAGES = ("image_size", "crop", "validation_fraction")
#: Settings of `train` that are budgets, or do not change the model.
_NO_RECIPE = ("epochs", "steps", "epoch_fraction", "nodes", "checkpoint_s", "random_baseline")


def distinct_names(runs: Sequence[tuple[str, str]]) -> list[str]:
    """The name of each run. Runs of one name also get the end of the workspace's path in which they differ.

    Args:
        runs: (name, address of the workspace) of each, all different.
    """
    return [f"{name}, {end}" if (end := _own_end(name, workspace, runs)) else name for name, workspace in runs]


def _own_end(name: str, workspace: str, runs: Sequence[tuple[str, str]]) -> str:
    """The shortest end of the workspace's path that no other run of this name has; "" if there is no such run."""
    others = [other for each, other in runs if each == name and other != workspace]
    if not others:
        return ""
    parts = workspace.removeprefix("file://").split("/")
    ends = ("/".join(parts[first:]) for first in reversed(range(len(parts))))
    return next((end for end in ends if not any(f"/{other}".endswith(f"/{end}") for other in others)), workspace)


def side_by_side(runs: Mapping[str, Document]) -> Document:
    """One document with the rows of all. Rows on different images or networks differ in `Row.data`: they are not
    ranked. Those of differently trained runs differ in `Row.recipe`.

    A row that several runs share, such as the same random baseline, is shown once.

    Args:
        runs: name -> report of the run.
    """
    names, documents = list(runs), list(runs.values())
    data = [document.provenance.digests.get("dataset", name) for name, document in runs.items()]
    rows, seen = list[Row](), dict[tuple[object, ...], Row]()
    for name, digest, document in zip(names, data, documents, strict=True):
        task = f"{digest} {document.done.get('Network')} {_images(document)}"
        recipe = _recipe(document)
        for row in document.rows:
            budgets = (row.kept_fraction, row.epochs, row.steps)
            same = (task, recipe, row.name, row.label, *budgets, *row.seeds, *row.accuracy, *row.stage_wall_s.items())
            if row.role == "selected" or same not in seen:
                changes = {"label": f"{row.label} [{name}]", "data": task, "recipe": recipe, "runs": [name]}
                rows.append(row.model_copy(update=changes))
                seen[same] = rows[-1]
            else:
                seen[same].runs.append(name)
    return Document(
        title=f"{len(documents)} runs side by side",
        run_id=f"side-by-side-{hashlib.sha256(' '.join(names).encode()).hexdigest()[:8]}",
        created=max(document.created for document in documents),
        engine=documents[0].engine,
        done={"Comparable": _comparable(names, data, documents)} | _done(names, documents),
        differences=_differences(names, documents),
        rows=rows,
        curves=[
            curve.model_copy(update={"name": f"{curve.name} [{name}]"})
            for name, document in zip(names, documents, strict=True)
            for curve in document.curves
        ],
    )


def _done(names: Sequence[str], documents: Sequence[Document]) -> dict[str, str]:
    """What was done. A sentence that is the same in all runs is said once, and so is a text of some of them."""
    told = {}
    for topic in ("Data", "Network", "Choice", "Training", "Compared with", "Machine"):
        each = [re.split(r"(?<=\.) ", document.done.get(topic, "")) for document in documents]
        each = [[text for text in sentences if text != SAME_BESIDE] for sentences in each]  # `Comparable` says it
        common = [
            sentence
            for sentence in each[0]
            if all(sentence in other for other in each)
            and (not sentence.startswith(CHOSEN_BY_LIPT) or all(other == each[0] for other in each))
        ]
        told[topic if each[0] == common else f"{topic} (all runs)"] = " ".join(common)
        own: dict[str, list[str]] = {}
        for name, sentences in zip(names, each, strict=True):
            own.setdefault(" ".join(text for text in sentences if text not in common), []).append(name)
        told |= {f"{topic}, {join(of)}": text for text, of in own.items()}
    dates = (f"{name}: {format_moment(document.created)}" for name, document in zip(names, documents, strict=True))
    return {topic: text for topic, text in told.items() if text} | {"Dates": "; ".join(dates)}


def _differences(names: Sequence[str], documents: Sequence[Document]) -> Differences:
    return Differences(runs=list(names), settings=differing([settings_of(document) for document in documents]))


def settings_of(document: Document) -> dict[str, str]:
    """Setting -> value, as `flat_settings` gives them."""
    return dict(flat_settings(_config(document)))


def differing(found: Sequence[Mapping[str, str]]) -> dict[str, list[str]]:
    """Setting -> its value in each, `–` where it is not set; only settings in which some differ."""
    keys = dict.fromkeys(key for settings in found for key in settings)
    sections = {key for key in keys if any(each.startswith(f"{key}.") for each in keys)}  # unset in some of the runs
    values = {key: [settings.get(key, DASH) for settings in found] for key in keys}
    return {key: of_key for key, of_key in values.items() if len(set(of_key)) > 1 and key not in sections}


def _config(document: Document) -> dict[str, Any]:
    try:
        settings = yaml.safe_load(document.provenance.config_yaml)
    except yaml.YAMLError:  # a report that somebody edited is still shown
        return {}
    return settings if isinstance(settings, dict) else {}


def _images(document: Document) -> str:
    """The settings by which the images differ that the network sees."""
    data = _config(document).get("data", {})
    return str({key: data.get(key) for key in _IMAGES})


def _recipe(document: Document) -> str:
    """How the run trains, apart from the budgets."""
    config = _config(document)
    images = {key: value for key, value in config.get("data", {}).items() if key in ("flip", "crop_padding")}
    training = {key: value for key, value in config.get("train", {}).items() if key not in _NO_RECIPE}
    return yaml.safe_dump([images, training, config.get("precision")])


def flat_settings(section: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, str]]:
    """(`train.epochs`, value) of each setting; not the name of the run and its workspace."""
    for key, value in section.items():
        if isinstance(value, dict) and value:
            yield from flat_settings(value, f"{path}{key}.")
        elif path or key not in ("name", "workspace"):
            yield (
                f"{path}{key}",
                yaml.safe_dump(value, default_flow_style=True, width=1000, allow_unicode=True).split("\n")[0],
            )


def _comparable(names: Sequence[str], data: Sequence[str], documents: Sequence[Document]) -> str:
    """Whether the accuracies may be compared, and why not."""
    if len(set(data)) > 1:
        parts = [
            f"{name}: data {digest[:8]}, {document.rows[0].num_test_images:,} test images"
            for name, digest, document in zip(names, data, documents, strict=True)
        ]
        why = "The data and the test images differ, so compare nothing between the runs."
        return f"{NOT_COMPARABLE} {why} {'; '.join(parts)}."
    if len({document.done.get("Network") for document in documents}) > 1:
        return (
            "In part. The data and the test images are the same, but the networks differ: only rows of one are ranked."
        )
    if len({_images(document) for document in documents}) > 1:
        return (
            "In part. The files are the same, but not their size, crop or split into candidates and validation images "
            "(below, Settings that differ): only rows with the same are ranked."
        )
    if len({_recipe(document) for document in documents}) > 1:
        return (
            "Yes: the data, the test images and the network are the same. The trainings differ (below, Settings that "
            "differ), so each choice is compared with the random baselines of its own training."
        )
    return "Yes: the data, the test images and the network are the same."
