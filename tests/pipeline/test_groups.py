"""Merging in groups: jigsaws are dealt, each group leaves a soup, the soups are merged."""

from __future__ import annotations

import re
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
import torch

from lipt.data.images import ResidentImages
from lipt.errors import RunError, UsageError
from lipt.flow.dag import made_of, merge_jigsaws, run
from lipt.flow.outcome import Outcome
from lipt.pods import boxes
from lipt.pods.boxes import dispatch_box, merge_box, pretrain_box, select_box, train_box
from lipt.pods.workers import Loss, open_run, worker
from lipt.progress import Reporter
from lipt.report.document import Document
from lipt.runtime.artifact import Artifact
from lipt.runtime.attempt import Attempt
from lipt.runtime.context import Context
from lipt.runtime.dataset import images_of, open_dataset, split_positions
from lipt.runtime.network import WEIGHTS, new_model, read_weights
from lipt.stages.group import group
from lipt.stages.merge import merge
from lipt.stages.pretrain import DELTA, pretrain
from lipt.training.evaluator import Evaluator
from lipt.training.forward import predictions
from lipt.training.soup import Soup
from lipt.training.soup import merge as merge_states
from lipt.training.tensor_files import State, decode_delta, encode_delta, unpack
from tests.tiny import digests, tiny_context

PODS = {"image": "lipt:0", "cpu": "1", "memory": "1Gi"}


def context(folder: Path, **settings: Any) -> Context:
    """Five jigsaws in two groups: 0, 2, 4 and 1, 3. Each sees enough images that merging gains on any processor."""
    changes = {"dispatch": {"jigsaws": 5, "batches": 6}, "train": {"epochs": 1, "random_baseline": False}}
    return tiny_context(folder, changes | {"merge": {"groups": 2, "batchnorm": "averaged"} | settings})


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Outcome]:
    folder = tmp_path_factory.mktemp("groups")
    return folder, run(context(folder))


class Hand:
    """The core's merge on plain states, judged on digits that are read here."""

    def __init__(self, ctx: Context, outcome: Outcome) -> None:
        self.attempt = Attempt(ctx=ctx, ref="test", label="test")
        data = open_dataset(self.attempt, outcome.prepared.dataset)
        images = images_of(ctx, data, "train", split_positions(ctx, data)[0])
        assert isinstance(images, ResidentImages)
        self.all = images
        self.star = read_weights(self.attempt, outcome.prepared.initial[0])
        self.model, self.ctx = new_model(ctx, 10, 0), ctx

    def state(self, artifact: Artifact) -> State:
        return decode_delta(self.attempt.read(artifact, DELTA, kind="model"), self.star, origin="test")

    def correct(self, state: State, start: int, stop: int) -> torch.Tensor:
        images = self.all.subset(torch.arange(start, stop))
        self.model.load_state_dict(state)
        (found_N,) = predictions([self.model], images, device=self.ctx.device, precision=self.ctx.precision)
        return found_N == images.labels_N

    def merged(self, states: dict[int, State], confirm: range) -> Soup:
        evaluator = Evaluator(
            correct=lambda states, start, stop: [self.correct(state, start, stop) for state in states],
            recalibrate=dict,
            search=64,
            confirm=confirm,
        )
        return merge_states(
            self.star,
            list(states),
            states.__getitem__,
            evaluator,
            method="greedy_interpolation",
            search="coarse_to_fine",
            batchnorm="averaged",
            fallback=True,
        )


def test_groups_are_merged_like_jigsaws_and_their_soups_likewise(ran: tuple[Path, Outcome]) -> None:
    folder, outcome = ran
    ctx = context(folder)
    hand = Hand(ctx, outcome)
    assert outcome.merged is not None
    jigsaws = {index: hand.state(artifact) for index, artifact in enumerate(outcome.jigsaws)}
    dealt = [[0, 2, 4], [1, 3]]
    assert len(outcome.groups) == len(dealt)
    for indices, artifact in zip(dealt, outcome.groups, strict=True):
        soup = hand.merged({index: jigsaws[index] for index in indices}, range(64))
        assert hand.attempt.read(artifact, DELTA, kind="model") == encode_delta(soup.state, hand.star)
        assert artifact.summary["accuracy"] == soup.accuracy
        assert [attempt["index"] for attempt in artifact.summary["steps"]] == [attempt.index for attempt in soup.steps]
    last = hand.merged({index: hand.state(artifact) for index, artifact in enumerate(outcome.groups)}, range(64, 144))
    weights = unpack(hand.attempt.read(outcome.merged, WEIGHTS, kind="model"), origin="test")
    assert all(torch.equal(weights[name], last.state[name]) for name in weights)
    assert outcome.merged.summary["accuracy"] == last.accuracy
    assert last.accuracy == float(hand.correct(weights, 64, 144).double().mean())


def test_groups_cost_no_accuracy_to_speak_of(ran: tuple[Path, Outcome]) -> None:
    folder, outcome = ran
    whole = merge_jigsaws(context(folder, groups=1), outcome.prepared, outcome.jigsaws).summary
    assert outcome.merged is not None
    assert whole["accuracy"] > whole["theta_star_accuracy"] + 0.05
    assert outcome.merged.summary["accuracy"] > whole["accuracy"] - 0.06  # 1.5 standard deviations of 144 images


def test_what_follows_finds_the_jigsaws(ran: tuple[Path, Outcome]) -> None:
    folder, outcome = ran
    ctx, merged = context(folder), outcome.merged
    assert merged is not None
    assert made_of(ctx, merged, "pretrain") == outcome.jigsaws
    assert made_of(ctx, merged, "group") == outcome.groups
    assert merged.summary["missing"] == []
    assert merged.summary["densities"] == {str(i): found.summary["density"] for i, found in enumerate(outcome.jigsaws)}


def test_one_group_is_the_merge_as_it_was(ran: tuple[Path, Outcome]) -> None:
    """The same address as without the setting: what was merged before there were groups is found."""
    folder, outcome = ran
    merged = merge_jigsaws(context(folder, groups=1), outcome.prepared, outcome.jigsaws)
    assert "groups" not in merged.settings["merge"]
    assert not made_of(context(folder), merged, "group")
    assert outcome.merged is not None
    assert merged.ref != outcome.merged.ref


def test_lost_jigsaws_change_their_group_alone(ran: tuple[Path, Outcome]) -> None:
    folder, outcome = ran
    ctx = context(folder, groups=3)  # 0 and 3, 1 and 4, 2
    whole = made_of(ctx, merge_jigsaws(ctx, outcome.prepared, outcome.jigsaws), "group")
    without_0 = merge_jigsaws(ctx, outcome.prepared, outcome.jigsaws[1:])
    left = made_of(ctx, without_0, "group")
    assert left[1:] == whole[1:]
    assert [attempt["index"] for attempt in left[0].summary["steps"]] == [3]
    assert without_0.summary["missing"] == [0]
    without_2 = merge_jigsaws(ctx, outcome.prepared, [outcome.jigsaws[index] for index in (4, 3, 1, 0)])
    assert made_of(ctx, without_2, "group") == whole[:2]
    assert without_2.summary["missing"] == [2]
    assert sorted(attempt["index"] for attempt in without_2.summary["steps"]) == [0, 1]


def test_the_quorum_is_of_all_jigsaws(ran: tuple[Path, Outcome]) -> None:
    folder, outcome = ran
    before = digests(context(folder).workspace)
    told = r"2 of 5 jigsaws arrived, the quorum is 3; missing: 0, 1, 3 \(jigsaw 0: A; jigsaw 1: B\)$"
    with pytest.raises(RunError) as caught:
        merge_jigsaws(
            context(folder, search="grid"),
            outcome.prepared,
            [outcome.jigsaws[2], outcome.jigsaws[4]],
            failures={0: RunError("A", "mend A"), 1: RunError("B"), 3: RunError("A", "mend A")},
        )
    assert re.match(told, caught.value.message)
    assert caught.value.remedy == "for the lost ones: mend A; run again, which trains only these; or lower merge.quorum"
    assert digests(context(folder).workspace) == before  # nothing was merged in vain


def test_a_group_without_a_soup_of_its_own_hands_on_theta_star(ran: tuple[Path, Outcome]) -> None:
    folder, outcome = ran
    ctx = context(folder)
    hand = Hand(ctx, outcome)
    data = encode_delta(hand.star, hand.star)
    same = decode_delta(data, hand.star, origin="test")
    assert all(torch.equal(same[name], hand.star[name]) for name in hand.star)
    assert len(data) < outcome.groups[0].files[DELTA].num_bytes / 4
    last = hand.merged({0: same, 1: same}, range(64, 144))
    assert all(torch.equal(last.state[name], hand.star[name]) for name in hand.star)


def test_what_is_missing_is_made_again_and_nothing_else(ran: tuple[Path, Outcome]) -> None:
    folder, outcome = ran
    before = digests(context(folder).workspace)
    assert outcome.merged is not None
    for lost in (outcome.groups[1], outcome.merged):
        (folder / lost.ref / "artifact.json").unlink()
    again = context(folder)
    run(again)
    assert digests(again.workspace) == before
    assert outcome.groups[0].ref in again.workspace.reused
    assert not {outcome.groups[1].ref, outcome.merged.ref} & again.workspace.reused


def test_a_dry_run_names_the_groups(tmp_path: Path) -> None:
    ctx, shown = context(tmp_path), StringIO()
    run(Context(config=ctx.config, workspace=ctx.workspace, reporter=Reporter(shown), dry_run=True))
    assert [line.split()[0] for line in shown.getvalue().splitlines() if "group" in line] == ["group[0-1]"]


def test_stages_refuse_groups_that_do_not_fit(ran: tuple[Path, Outcome]) -> None:
    folder, outcome = ran
    with pytest.raises(UsageError, match=r"merge.groups is 2, but 0 soups of groups were given"):
        merge(context(folder), *outcome.prepared.swarm, outcome.jigsaws).make()
    with pytest.raises(UsageError, match=r"merge.groups is 1, but 2 soups"):
        merge(context(folder, groups=1), *outcome.prepared.swarm, outcome.jigsaws, outcome.groups).make()
    by_hand = group(context(folder), *outcome.prepared.swarm, [outcome.jigsaws[3], outcome.jigsaws[1]], index=1).make()
    assert by_hand.ref == outcome.groups[1].ref


# The box


@pytest.fixture(scope="module")
def pretrained(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The plan of a run whose jigsaw 3 was lost."""
    ctx = context(tmp_path_factory.mktemp("box"))
    address = dispatch_box(ctx.config, engine="argo", **PODS)
    prepared = open_run(address)[2]
    assert prepared.shards is not None
    ctx.workspace.store.write(f"{prepared.shards.ref}/shard-00003.json", b"{}", kind="other")
    assert pretrain_box(address) == (4, 5)
    return address


def test_a_worker_and_the_box_merge_the_same_groups(pretrained: str) -> None:
    """Without a cluster `spread` does the work here; what a worker pod left is found."""
    _, ctx, prepared = open_run(pretrained)
    worker(pretrained, "group", [1])
    (ref,) = {key.rpartition("/")[0] for key in ctx.workspace.store.list("group/")}
    made = ctx.workspace.get(ref)
    assert made.inputs[3:] == (pretrain(ctx, *prepared.swarm, index=1).ref,)  # jigsaw 3 was lost
    cost = ctx.workspace.cost(made)
    merged = merge_box(pretrained)
    assert merged is not None
    assert made in made_of(ctx, merged, "group")
    assert ctx.workspace.cost(made) == cost
    assert merged.summary["missing"] == [3]


def test_a_lost_group_is_merged_by_the_box(
    pretrained: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = merge_box(pretrained)
    assert whole is not None
    _, ctx, _ = open_run(pretrained)
    for artifact in (whole, *made_of(ctx, whole, "group")):
        ctx.workspace.store.delete(f"{artifact.ref}/artifact.json")
    asked: list[Any] = []

    def no_room(
        _plan: object, _address: str, _ctx: Context, stage: str, items: list[int], **_options: object
    ) -> dict[int, Loss]:
        asked.append((stage, items))
        return dict.fromkeys(items, Loss("no node had room for it", None))

    monkeypatch.setattr(boxes, "spread", no_room)
    assert merge_box(pretrained) == whole
    assert asked == [("group", [0, 1])]
    assert "group 1 was lost, so the merge box merges it: no node had room for it" in capsys.readouterr().err


def test_the_report_shows_groups_and_their_workers(pretrained: str) -> None:
    merged = merge_box(pretrained)
    assert merged is not None
    subset = select_box(pretrained, merged.ref)
    finished = train_box(pretrained, merged.ref, subset.ref)
    document: Document = finished.document
    table = document.merge
    assert table is not None
    assert {row.index for row in table.groups} == {0, 1}
    assert {row.index: row.group for row in table.steps} == {0: 0, 2: 0, 4: 0, 1: 1, 3: None}
    notes = {row.index: row.note for row in table.groups}
    assert "of 1 jigsaws kept, result: " in notes[1]
    assert [row.index for row in table.steps if row.missing] == [3]
    assert all((row.density is None) == row.missing for row in table.steps)
    assert (table.num_workers, table.num_arrived) == (5, 4)
    walls = document.rows[0].stage_wall_s
    assert walls["group"] > 0
    charged = ("initialise", "dispatch", "pretrain", "group", "merge")
    flops = {stage: sum(row.flops for row in document.ledger if row.stage == stage) for stage in charged}
    # theta_* was trained for one epoch over all candidates.
    assert document.rows[0].pretrain_cost == pytest.approx(sum(flops.values()) / flops["initialise"], rel=1e-12)
    assert [row.worker for row in document.ledger if row.stage == "group"] == [0, 1]
    for text in ("The groups", "best group", "group, kept", "4 of 5 jigsaws arrived"):
        assert text in finished.html
