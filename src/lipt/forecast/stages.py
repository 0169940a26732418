"""Predict the work of each stage: FLOPs, bytes read and written, memory.

They follow from the configuration and the sizes of data and network. `forecast.time` predicts the duration.
"""

import math
from dataclasses import replace
from statistics import fmean

from lipt.flow.dag import needs_models, trains_models
from lipt.forecast.choice import ChoiceWork
from lipt.forecast.run_sizes import FORWARD_BATCH, ROW_MEMORY, RUN_IMAGES, checkpoints
from lipt.forecast.sizes import DataSize, ThumbnailSize
from lipt.forecast.work import Work
from lipt.rng import derive
from lipt.runtime.algorithm import field_sizes, needs_of, own_memory
from lipt.runtime.budgets import epoch_batches, epochs_of, kept_images, steps_of
from lipt.runtime.chunk_store import is_chunk_store
from lipt.runtime.context import Context


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


class _Run(ChoiceWork):
    """The work of all stages of a run."""

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
        race, counts, plain = self.config.select.race, field_sizes(self.config), self.without_reselection()
        assert race is not None
        main = plain.train()
        share = sum(share * count for share, count in zip(race.rounds, counts, strict=True)) / sum(counts)
        # After each training, however short. Each keeps a subset, but the baseline may keep all candidates.
        counted = plain._recalibration * self.net.forward
        whole = self.recalibrated(self.config.train.raptr, self.kept) * self.net.forward
        read = (share if main.streams else 1) * main.read["data"] + self.validation * self.data.span_bytes
        return replace(
            main,
            stage="race",
            parts=sum(counts),
            flops=share * (main.flops - counted) + whole + self.validation * self.net.forward,
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
            classes, features = self.data.classes, self.net.features
            outputs = 4 * (classes + features) * (scored + group)
            outputs += own_memory(self.config, group, models=1, classes=classes, features=features)
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
            checkpoints=checkpoints(epochs, len(batches)),
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
