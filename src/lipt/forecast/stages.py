"""Predict the work of each stage: FLOPs, bytes read and written, memory.

They follow from the configuration and the sizes of data and network. `forecast.time` predicts the duration.
"""

import math
from dataclasses import replace
from statistics import fmean

from lipt.flow.graph import needs_models, trains_models
from lipt.forecast.merging import merge_images
from lipt.forecast.run_sizes import EPOCH_BYTES, FORWARD_BATCH, PROCESS_BYTES, ROW_MEMORY, RUN_IMAGES, RunSizes
from lipt.forecast.sizes import DataSize, ThumbnailSize
from lipt.forecast.work import Work
from lipt.rng import derive
from lipt.runtime.algorithm import contestants, field_sizes, needs_of, own_memory, scoring_needs
from lipt.runtime.budgets import epoch_batches, epochs_of, kept_images, steps_of
from lipt.runtime.chunk_store import is_chunk_store
from lipt.runtime.context import Context
from lipt.stages.merge import confirmation

#: Memory for selection, per candidate: its score, its place among the sorted classes, its table row with its name.
_SELECT_ROW = 135
#: Number of fp32 states that a merge holds besides the deltas.
_MERGE_STATES = 8


def work_of(ctx: Context, data: DataSize) -> list[Work]:
    """All stages of a run, in order. FLOPs are exact except for the merge, whose search depends on its results."""
    config, run = ctx.config, _Run.of(ctx, data)
    scorer = run if config.score.proxy is None else _Run.of(ctx.of_scorer(), data.to_score(config))
    works = [] if is_chunk_store(config.data) else [run.ingest()]
    if trains_models(config):
        works.append(scorer.initialise())
    if run.swarm:
        works += [scorer.dispatch(), scorer.pretrain(), *scorer.merges()]
    if needs_models(config):
        works.append(scorer.score())
    race = [run.race()] if config.select.race else []
    return [*works, scorer.select(), *race, run.train(), run.evaluate()]


class _Run(RunSizes):
    """The work of a run; a method per stage."""

    def ingest(self) -> Work:
        images = self.data.train + self.data.test
        small = self.data.thumbnails
        copies: list[DataSize | ThumbnailSize] = [self.data] if small is None else [self.data, small]
        stored = images * sum(copy.span_bytes for copy in copies)
        index = images / self.data.train * sum(copy.index_bytes for copy in copies)
        return Work(
            stage="ingest",
            items=images,
            decoded=images * len(copies),
            written={"data": stored, "other": 2 * index},
            requests=4 * sum(images * copy.span_bytes / copy.chunk_bytes for copy in copies),
            memory_bytes=self.memory + sum(copy.chunk_bytes for copy in copies),
        )

    def initialise(self) -> Work:
        own = self.config.score.has_own_models
        settings, runs = self.config.initialise, self.config.score.runs if own else 1
        images = self.data.candidates / (runs if self.config.score.disjoint else 1)  # the mean of all parts
        largest, held = math.ceil(images), self.training_memory(images, settings.batch_size)
        epochs, streams = (self.config.score if own else settings).epochs, self.streams_training(images)
        looked = images * (epochs if streams else 1)
        seeds = [derive(self.config.seed, "initialise", run) for run in range(runs)]
        saved = fmean(
            self.saved_flops(settings.raptr, seed, images=largest, batch_size=settings.batch_size, epochs=epochs)
            for seed in seeds
        )
        recalibrated = self.recalibrated(settings.raptr, largest) * self.net.forward
        return Work(
            stage="initialise",
            parts=runs,
            flops=epochs * images * self.net.both - saved + recalibrated,
            steps=epochs * math.ceil(images / settings.batch_size),
            decoded=images * epochs if self.crops else looked,
            crops=self.crops,
            read={"data": looked * self.data.span_bytes},
            once={"other": self.data.index_bytes},
            written={"model": self.net.file_bytes, "other": EPOCH_BYTES * epochs * images},
            streams=streams,
            requests=self.requests(looked, streams=streams),
            member_bytes=self.trainer + held * self.crops,
            gradient_bytes=self.net.state_bytes,
            memory_bytes=self.trainer + held,
            checkpoints=epochs - 1,
            checkpoint_bytes=2 * self.net.state_bytes + EPOCH_BYTES * epochs * images,
        )

    def dispatch(self) -> Work:
        count = self.config.dispatch.jigsaws
        return Work(
            stage="dispatch",
            items=self.data.candidates,
            once={"other": self.data.index_bytes},
            requests=count,
            written={"other": count * self.shard_bytes},
            memory_bytes=self.memory,
        )

    def pretrain(self) -> Work:
        settings, dispatch, shard = self.config.pretrain, self.config.dispatch, self.shard
        crops = self.crops and settings.augment != "none"
        snip = settings.prune == "snip"  # looks at a batch
        return Work(
            stage="pretrain",
            parts=dispatch.jigsaws,
            flops=(settings.passes * shard + snip * dispatch.batch_size) * self.net.both,
            steps=settings.passes * dispatch.batches + snip,
            decoded=shard * (settings.passes if crops else 1),
            crops=crops,
            once={"model": self.net.file_bytes},
            read={"data": shard * self.data.span_bytes, "other": self.shard_bytes},
            written={"model": self.net.delta_bytes},
            requests=4 + (self.requests(shard, streams=False) if dispatch.stratified else shard),
            memory_bytes=PROCESS_BYTES
            + self.pixels(shard)
            + crops * shard * self.data.span_bytes
            + 5 * self.net.state_bytes,
        )

    def merges(self) -> list[Work]:
        """The work of the groups, if there are any, and of the last merge."""
        count, groups = self.config.dispatch.jigsaws, self.config.merge.groups
        last = self._merge("merge", count if groups == 1 else groups, self.validation)
        if groups == 1:
            return [last]
        mean = self._merge("group", count / groups, self.searched)
        # The delta of a soup is as large as a jigsaw's, within 5 %.
        return [replace(mean, parts=groups, written={"model": self.net.delta_bytes}), last]

    def _merge(self, stage: str, count: float, validation: int) -> Work:
        """The work of merging `count` jigsaws or soups (a mean, so it may be fractional) with `validation` images."""
        settings = self.config.merge
        judged, used = merge_images(settings, count, validation, self.shard), confirmation(settings, validation).stop
        streams, looked = self.streams(used), self.shard + used
        return Work(
            stage=stage,
            flops=judged * self.net.forward,
            steps=judged / FORWARD_BATCH,
            decoded=looked,
            read={
                "data": looked * self.data.span_bytes,
                "model": count * self.net.delta_bytes,
                "other": self.shard_bytes,
            },
            written={"model": self.net.file_bytes},
            streams=streams,
            once={"model": self.net.file_bytes, "other": self.data.index_bytes},
            requests=count + self.requests(looked, streams=streams),
            memory_bytes=self.memory
            + math.ceil(count) * self.net.delta_bytes
            + _MERGE_STATES * self.net.state_bytes
            + self.resident(used),
        )

    def score(self) -> Work:
        size, candidates = self.config.score.block_images, self.data.candidates
        blocks = math.ceil(candidates / size) + math.ceil((self.scored - candidates) / size)
        images = self.scored / blocks  # per block, on average
        streams = self.streams(min(size, self.scored))
        needs = scoring_needs(self.config)
        forwards, recorded = needs.outputs, needs.trajectory * self.trajectory_bytes * candidates
        judged = 0 if self.swarm else self.validation / blocks  # by the first model, in the first block
        looked = forwards * images * (self.scorers if streams else 1) + judged
        ensemble = self.config.score.model == "jigsaws" and self.swarm
        weights = self.net.file_bytes if (forwards and (self.scorers == 1 or ensemble)) or judged else 0
        models = (
            forwards * self.scorers * (self.net.delta_bytes if ensemble else self.net.file_bytes * (self.scorers > 1))
        )
        return Work(
            stage="score",
            parts=blocks,
            flops=(forwards * self.scorers * images + judged) * self.net.forward,
            steps=forwards * self.scorers * math.ceil(images / FORWARD_BATCH) + math.ceil(judged / FORWARD_BATCH),
            decoded=looked,
            streams=streams,
            read={"data": looked * self.data.span_bytes, "model": models, "other": recorded},
            written={"other": images * (self.label_bytes + self.output_bytes)},
            once={"model": weights, "other": self.data.index_bytes},
            requests=self.requests(looked / self.scorers if streams else looked, streams=streams),
            memory_bytes=self.memory
            + max(forwards * self.resident(min(size, self.scored)), self.resident(self.validation) if judged else 0)
            + images * self.output_bytes
            + 2 * self.net.state_bytes,
        )

    def select(self) -> Work:
        """The selection of the run, or those of all contestants of a race one after the other; and the baseline's."""
        settings, candidates, size = self.config.select, self.data.candidates, self.config.score.block_images
        numbers, field = self.scorers * (self.data.classes + self.net.features), contestants(self.config)
        labels, outputs = self.scored * self.label_bytes, self.scored * self.output_bytes
        block, tables = min(size * self.output_bytes, outputs), len(field) + self.twice
        read, items, held, requests = tables * self.data.names_bytes, 0.0, 0.0, 0.0
        group = math.ceil(candidates / (self.data.classes if settings.balanced else 1))
        for each, needs in zip(field, map(scoring_needs, field), strict=True):
            passes = max(1, needs.passes)
            requests += (1 + passes) * (1 + self.scored / size)
            items += self.scored * numbers if needs.outputs else candidates
            read += labels * (needs.outputs or needs.trajectory)
            if needs.outputs:
                halved = needs.passes and self.scorers >= 2 * needs.models
                again = 2 * block if halved else 0  # their reliability takes the first block twice more
                read += passes * (outputs + again)
                kept = 2 * block  # a block: its file and its tensors
                if not needs.passes:  # all outputs, and the float32 problem that is solved
                    kept += outputs + 4 * numbers * group
                    kept += own_memory(each, group)
                held = max(held, kept)
        return Work(
            stage="select",
            items=items,
            read={"other": read},
            once={"other": self.data.index_bytes},
            written={"other": self.subset_bytes * tables},
            requests=requests,
            memory_bytes=self.memory + _SELECT_ROW * candidates + held,
        )

    @property
    def _kept_beside(self) -> list[int]:
        """Images that the random baseline keeps; empty without one."""
        return [kept_images(self.beside, self.data.candidates)] if self.beside else []

    @property
    def _recalibration(self) -> float:
        """Images that are forwarded after a main training for its BatchNorm statistics: the mean of all trainings."""
        return fmean(self.recalibrated(self.config.train.raptr, source) for source in [self.kept, *self._kept_beside])

    def race(self) -> Work:
        """All trainings of a race; a part is their mean. The validation images are forwarded after each."""
        race, main, counts = self.config.select.race, self.without_reselection().train(), field_sizes(self.config)
        assert race is not None
        share = sum(share * count for share, count in zip(race.rounds, counts, strict=True)) / sum(counts)
        whole = self._recalibration * self.net.forward  # after each training, however short
        read = (share if main.streams else 1) * main.read["data"] + self.validation * self.data.span_bytes
        return replace(
            main,
            stage="race",
            parts=sum(counts),
            flops=share * (main.flops - whole) + whole + self.validation * self.net.forward,
            steps=share * main.steps + self.validation / FORWARD_BATCH,
            decoded=(share if main.streams or main.crops else 1) * main.decoded + self.validation,
            read={"data": read, "other": self.subset_bytes + self.first_loss_bytes, "model": self.net.file_bytes},
            checkpoints=math.ceil(share * main.checkpoints),
        )

    def train(self) -> Work:
        settings, candidates, runs = self.config.train, self.data.candidates, 1 + self.twice
        kept, drawn = self.kept, self.drawn
        others = self._kept_beside
        # Of the two runs only the selected one selects again, or reads trajectories; a part is the mean of both.
        # Without `steps` this is an upper bound for `draw: infobatch`, which leaves out images by their losses.
        steps, epochs = steps_of(settings, candidates, kept), epochs_of(settings, candidates, kept)
        batches = epoch_batches(settings, candidates, kept)
        images = steps // len(batches) * drawn + sum(batches[: steps % len(batches)])
        scored = needs_of(self.config).outputs * self.scored if settings.reselect_every else 0
        again = (epochs - 1) // settings.reselect_every * scored / runs if scored else 0
        forwarded = again + again / self.scored * self.recalibrated(settings.raptr, candidates)
        forwarded += self._recalibration
        saved = self.saved_flops(
            settings.raptr,
            derive(self.config.seed, "train"),
            images=drawn,
            batch_size=settings.batch_size,
            epochs=epochs,
            steps=settings.steps,
        )
        sources = [self.scored if settings.reselect_every else kept, *others]
        seen = [images if self.streams_training(source) else source for source in sources]
        looked = sum(seen) / runs + again * self.streams_training(sources[0])
        held = max(self.training_memory(source, settings.batch_size) for source in sources)
        outputs = 0  # of the network in training, and as in `select`, what the algorithm takes
        if scored:
            group = math.ceil(candidates / (self.data.classes if self.config.select.balanced else 1))
            outputs = 4 * (self.data.classes + self.net.features) * (scored + group) + own_memory(self.config, group)
        # One request for each image without a selected neighbour.
        alone = [
            count * min(1.0, 1 - source / candidates + 1 / RUN_IMAGES)
            for count, source in zip(seen, sources, strict=True)
        ]
        return Work(
            stage="train",
            parts=runs,
            streams=any(map(self.streams_training, sources)),
            decoded=images + again if self.crops else looked,
            crops=self.crops,
            member_bytes=self.trainer + held * self.crops,
            gradient_bytes=self.net.state_bytes,
            flops=images * self.net.both - saved + forwarded * self.net.forward,
            steps=steps,
            read={"data": looked * self.data.span_bytes, "other": self.subset_bytes + self.first_loss_bytes / runs},
            written={"model": self.net.file_bytes},
            requests=4 + sum(alone) / runs,
            once={"model": self.net.file_bytes * (settings.start == "continue"), "other": self.data.index_bytes},
            memory_bytes=self.trainer + held + outputs,
            checkpoints=epochs - 1,
            checkpoint_bytes=2 * self.net.state_bytes + 4 * kept * (settings.draw != "uniform"),
        )

    def evaluate(self) -> Work:
        test, streams = self.data.test, self.streams(self.data.test)
        return Work(
            stage="evaluate",
            parts=1 + self.twice,
            flops=test * self.net.forward,
            streams=streams,
            decoded=test,
            steps=math.ceil(test / FORWARD_BATCH),
            requests=4 + self.requests(test, streams=False),
            read={"data": test * self.data.span_bytes, "model": self.net.file_bytes},
            once={"other": test / self.data.train * self.data.index_bytes},
            memory_bytes=self.memory + ROW_MEMORY * test + self.resident(test) + self.net.state_bytes,
        )
