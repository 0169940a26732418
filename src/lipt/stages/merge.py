"""Merge: jigsaws become theta_p (Ro et al., ICML 2023).

With groups, `group` first merges each group into a soup; `merge` then merges the soups.
"""

from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import asdict
from typing import Any

import torch
from torch import Tensor

from lipt.config import Config, Merge
from lipt.data.images import StreamedImages, image_shape
from lipt.errors import RunError, UsageError
from lipt.runtime import Artifact, Attempt, Context, Stage
from lipt.runtime.dataset import images_of, open_dataset, split_positions
from lipt.runtime.network import WEIGHTS, new_model, read_weights
from lipt.stages.dispatch import shard_images
from lipt.stages.inputs import check_base
from lipt.stages.pretrain import DELTA, TRAIN_AGAIN, quorum_of
from lipt.training.evaluator import Evaluator
from lipt.training.flops import flops_per_image
from lipt.training.forward import predictions, recalibrate_batchnorm
from lipt.training.networks import on_device
from lipt.training.soup import Soup
from lipt.training.soup import merge as merge_states
from lipt.training.tensor_files import State, decode_delta, pack, state_of


def merge(
    ctx: Context,
    dataset: Artifact,
    theta: Artifact,
    shards: Artifact,
    jigsaws: Sequence[Artifact],
    groups: Sequence[Artifact] = (),
) -> Stage:
    """Merge the jigsaws that arrived into theta_p. The order of the arguments does not matter.

    Args:
        jigsaws: all that arrived. `check_quorum` says whether they are enough; it is not called here.
        groups: the soups of the groups, merged instead of the jigsaws. Empty without groups.

    Raises:
        UsageError: `groups` does not fit `merge.groups`.
    """
    if (ctx.config.merge.groups > 1) != bool(groups):
        raise UsageError(
            f"merge.groups is {ctx.config.merge.groups}, but {len(groups)} soups of groups were given",
            "above 1, pass the references that `lipt stage group` prints; otherwise pass none",
        )
    present, ctx, dataset = by_index(jigsaws), ctx.of_scorer(), ctx.data_of_scorer(dataset)

    def body(attempt: Attempt) -> dict[str, Any]:
        soup = merged_soup(ctx, attempt, dataset, theta, shards, groups or jigsaws, shard=min(present), confirm=True)
        attempt.put(WEIGHTS, pack(soup.state), kind="model")
        missing = missing_jigsaws(ctx.config, jigsaws)
        counts = {"missing": missing, "densities": {str(i): found.summary["density"] for i, found in present.items()}}
        return summary_of(soup, "group" if groups else "jigsaw") | counts

    inputs = [dataset, theta, shards, *present.values(), *by_index(groups).values()]
    return Stage(ctx=ctx, name="merge", settings=merge_settings(ctx), inputs=inputs, body=body, label="merge")


def members(config: Config, index: int) -> range:
    """The indices of a group's jigsaws, missing ones included."""
    return range(index, config.dispatch.jigsaws, config.merge.groups)


def deal(config: Config, jigsaws: Sequence[Artifact]) -> dict[int, list[Artifact]]:
    """The jigsaws that arrived, by group. Groups that lost all jigsaws are left out; empty without groups."""
    if config.merge.groups == 1:
        return {}
    present = by_index(jigsaws)
    dealt = {
        index: [present[member] for member in members(config, index) if member in present]
        for index in range(config.merge.groups)
    }
    return {index: found for index, found in dealt.items() if found}


def check_quorum(config: Config, jigsaws: Sequence[Artifact], failures: Mapping[int, RunError]) -> None:
    """
    Args:
        failures: why a jigsaw is missing, by index.

    Raises:
        RunError: fewer jigsaws than the quorum arrived; names the missing ones, and each reason and remedy once.
    """
    count, needed, missing = config.dispatch.jigsaws, quorum_of(config), missing_jigsaws(config, jigsaws)
    arrived = count - len(missing)
    if arrived < needed:
        first: dict[str, int] = {}
        for index, error in failures.items():
            first.setdefault(error.message, index)
        reasons = "; ".join(f"jigsaw {index}: {why}" for why, index in first.items())
        own = [failures[index].remedy if index in failures else "" for index in missing]
        remedies = "; ".join(dict.fromkeys(remedy or TRAIN_AGAIN for remedy in own))
        raise RunError(
            f"{arrived} of {count} jigsaws arrived, the quorum is {needed}; "
            f"missing: {', '.join(map(str, missing))}" + (f" ({reasons})" if reasons else ""),
            f"for the lost ones: {remedies}{config.merge.or_lower(needed, count, arrived)}",
        )


def missing_jigsaws(config: Config, jigsaws: Sequence[Artifact]) -> list[int]:
    """The indices of the jigsaws that did not arrive."""
    return sorted(set(range(config.dispatch.jigsaws)) - set(by_index(jigsaws)))


def by_index(ingredients: Sequence[Artifact]) -> dict[int, Artifact]:
    """Jigsaws, or soups of groups, by ascending index."""
    return dict(sorted((int(found.settings["index"]), found) for found in ingredients))


def merge_settings(ctx: Context, **more: Any) -> dict[str, Any]:
    merge = ctx.config.merge
    if merge.method != "greedy_interpolation":
        merge = merge.with_defaults("fallback")
    chosen = merge.model_dump(mode="json")
    settings = ctx.settings("model", merge=chosen, view=ctx.view(), precision=ctx.config.precision, **more)
    for name in ("groups", "quorum"):  # the inputs already determine the one; the other decides only whether to merge
        del settings["merge"][name]
    return settings


def merged_soup(
    ctx: Context,
    attempt: Attempt,
    dataset: Artifact,
    theta: Artifact,
    shards: Artifact,
    ingredients: Sequence[Artifact],
    *,
    shard: int,
    confirm: bool,
) -> Soup:
    """Merge jigsaws, or the soups of groups.

    Args:
        shard: index of the shard whose images recalibrate the BatchNorm statistics.
        confirm: evaluate the result on the images of the last comparison instead of the search images.
    """
    settings, present = ctx.config.merge, by_index(ingredients)
    check_base(theta, list(present.values()))
    star = read_weights(attempt, theta)
    read = _reader(attempt, present, held_bytes(ctx.config))
    judge = _Judge(ctx, attempt, dataset, shards, shard=shard, confirm=confirm)
    assert settings.method != "none"
    soup = merge_states(
        star,
        list(present),
        lambda index: decode_delta(read(index), star, origin=f"{present[index].ref}/{DELTA}"),
        judge.evaluator(),
        method=settings.method,
        search=settings.search,
        batchnorm=settings.batchnorm,
        fallback=settings.fallback,
    )
    attempt.flops += judge.images * flops_per_image(judge.model, image_shape(judge.validation)).forward
    return soup


def held_bytes(config: Config) -> float:
    """Bytes of deltas that a merge holds in memory: as many as of images. It reads the others again in each pass."""
    return config.data.resident_mb * 1e6


def _reader(attempt: Attempt, present: Mapping[int, Artifact], most: float) -> Callable[[int], bytes]:
    """A function that reads the delta of an ingredient. Its memory does not grow with the number of ingredients.

    A merge goes through all ingredients about three times. The first ones stay in memory, `most` bytes of them. To
    drop the oldest instead would not help: each would be gone when its turn comes again.
    """
    held: dict[int, bytes] = {}

    def read(index: int) -> bytes:
        if index in held:
            return held[index]
        data = attempt.read(present[index], DELTA, kind="model")
        if sum(map(len, held.values())) + len(data) <= most:
            held[index] = data
        return data

    return read


def confirmation(settings: Merge, validation: int) -> range:
    """The images of the last comparison, out of `validation` images: images that the search did not use.

    But all images, if fewer are left than the search used: so few would make a poor comparison.
    """
    search = min(settings.search_images or validation, validation)
    left = validation - search
    if left < search:
        return range(validation)
    return range(search, search + min(left, settings.confirmation_images or left))


class _Judge:
    """Evaluates states on validation images, and counts the images it forwarded."""

    def __init__(
        self, ctx: Context, attempt: Attempt, dataset: Artifact, shards: Artifact, *, shard: int, confirm: bool
    ) -> None:
        settings = ctx.config.merge
        data = open_dataset(attempt, dataset)
        positions, _ = split_positions(ctx, data)
        # Any window of the stratified order is a stratified sample, so the first images are as good as a random draw.
        few = positions[: settings.search_images]
        self.confirmed = confirmation(settings, len(positions if confirm else few))
        self.validation = images_of(ctx, data, "train", positions[: self.confirmed.stop])
        self.searched = self.validation.subset(torch.arange(len(few)))
        if isinstance(self.searched, StreamedImages):  # every state is evaluated on them: if they fit, read them once
            self.searched = images_of(ctx, data, "train", few)
        training = shard_images(attempt, dataset, shards, shard)
        self.training = (
            training.subset(torch.arange(min(settings.recalibration_images, len(training)))).resident().on(ctx.device)
        )
        self.model = on_device(new_model(ctx, len(data.manifest.classes), 0), ctx.device)
        self.ctx, self.attempt = ctx, attempt
        self.images = 0

    def evaluator(self) -> Evaluator:
        return Evaluator(
            correct=self._correct,
            recalibrate=self._recalibrate,
            search=len(self.searched),
            confirm=self.confirmed,
        )

    def _correct(self, states: Sequence[State], start: int, stop: int) -> list[Tensor]:
        images = self.searched if stop <= len(self.searched) else self.validation
        part = images.subset(torch.arange(start, stop))
        models = [self.model, *(deepcopy(self.model) for _ in states[1:])]
        for model, state in zip(models, states, strict=True):
            model.load_state_dict(state)
        self.images += len(states) * len(part)
        self.attempt.reporter.advance(self.attempt.label, self.images, 0, "images")
        found_MN = predictions(models, part, device=self.ctx.device, precision=self.ctx.precision)
        return list(found_MN == part.labels_N)

    def _recalibrate(self, state: State) -> State:
        self.model.load_state_dict(state)
        recalibrate_batchnorm(self.model, self.training, device=self.ctx.device, precision=self.ctx.precision)
        self.images += len(self.training)
        return state_of(self.model)


def summary_of(soup: Soup, of: str) -> dict[str, Any]:
    """The summary of a soup; `of` names its ingredients: jigsaw or group."""
    return {
        "chosen": f"{of}-{soup.best_single}" if soup.chosen == "best_single" else soup.chosen,
        "accuracy": soup.accuracy,
        "theta_star_accuracy": soup.theta_star_accuracy,
        "best_single_accuracy": soup.best_single_accuracy,
        "best_single": soup.best_single,
        "uniform_accuracy": soup.uniform_accuracy,
        "steps": [asdict(step) for step in soup.steps],
    }
