"""Predict the work of the stages up to the selection: FLOPs, bytes read and written, memory."""

import math
from dataclasses import replace
from statistics import fmean

from lipt.forecast.merging import merge_images
from lipt.forecast.run_sizes import EPOCH_BYTES, FORWARD_BATCH, PROCESS_BYTES, RunSizes, checkpoints
from lipt.forecast.work import Work
from lipt.rng import derive
from lipt.runtime.algorithm import contestants, own_memory, scoring_needs
from lipt.stages.merge import confirmation, held_bytes

#: Memory for selection, per candidate: its score, its place among the sorted classes, its table row with its name.
_SELECT_ROW = 135
#: Number of fp32 states that a merge holds besides the deltas.
_MERGE_STATES = 8


class ChoiceWork(RunSizes):
    """The work of the stages that choose the subset; a method per stage."""

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
            checkpoints=checkpoints(epochs, math.ceil(images / settings.batch_size)),
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
        held = min(count, held_bytes(self.config) // self.net.delta_bytes)
        # Each ingredient is evaluated, averaged, and interpolated if the method does that.
        passes = 2 if settings.method in ("uniform", "best_single") else 3
        reads = held + passes * (count - held)
        return Work(
            stage=stage,
            flops=judged * self.net.forward,
            steps=judged / FORWARD_BATCH,
            decoded=looked,
            read={
                "data": looked * self.data.span_bytes,
                "model": reads * self.net.delta_bytes,
                "other": self.shard_bytes,
            },
            written={"model": self.net.file_bytes},
            streams=streams,
            once={"model": self.net.file_bytes, "other": self.data.index_bytes},
            requests=reads + self.requests(looked, streams=streams),
            memory_bytes=self.memory
            + math.ceil(held + (held < count)) * self.net.delta_bytes
            + _MERGE_STATES * self.net.state_bytes
            + self.resident(used),
        )

    def score(self) -> Work:
        size, candidates = self.config.score.block_images, self.data.candidates
        blocks = math.ceil(candidates / size) + math.ceil((self.scored - candidates) / size)
        images = self.scored / blocks  # per block, on average
        streams, at_once = self.streams(min(size, self.scored)), self.scored_at_once(min(size, self.scored))
        passes = math.ceil(self.scorers / at_once) if streams else 1
        needs = scoring_needs(self.config)
        forwards, recorded = needs.outputs, needs.trajectory * self.trajectory_bytes * candidates
        judged = 0 if self.swarm else self.validation / blocks  # by the first model, in the first block
        looked = forwards * images * passes + judged
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
            worth_pods=forwards,
            read={"data": looked * self.data.span_bytes, "model": models, "other": recorded},
            written={"other": images * (self.label_bytes + self.output_bytes)},
            once={"model": weights, "other": self.data.index_bytes},
            requests=self.requests(looked, streams=streams),
            memory_bytes=self.memory
            + max(forwards * self.resident(min(size, self.scored)), self.resident(self.validation) if judged else 0)
            + images * self.output_bytes
            + (1 + at_once) * self.net.state_bytes,
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
                    kept += own_memory(
                        each, group, models=self.scorers, classes=self.data.classes, features=self.net.features
                    )
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
