"""Documents to render and rows to judge: small, made of round numbers, different in one thing at a time."""

import base64
import struct
import zlib
from typing import Any

from lipt.report.accounting import Accounting, PaperAccounting
from lipt.report.classes import ClassAccuracy
from lipt.report.document import Curve, Document, Link, Provenance, Row
from lipt.report.ledger import LedgerRow
from lipt.report.merging import JigsawRow, MergeTable
from lipt.report.subset import Example, Histogram, Subset


def row(name: str, accuracy: list[float], role: str = "other", **changes: Any) -> Row:
    """A row at 10 % of the data, kept and trained on, unless `changes` say otherwise."""
    fields: dict[str, Any] = {
        "name": name,
        "label": changes.pop("label", name),
        "role": role,
        "kept_fraction": 0.1,
        "epoch_fraction": 0.1,
        "epochs": 30,
        "steps": 1_080,
        "images": 135_000,
        "seeds": list(range(len(accuracy))),
        "accuracy": accuracy,
        "num_test_images": 10_000,
        "chance": 0.1,
    }
    return Row(**(fields | changes))


def png(width: int, height: int, red: int = 200) -> str:
    """A striped RGB image as base64 PNG, written by hand so that the tests need no image library."""
    lines = b"".join(
        b"\0" + b"".join(bytes((red, 8 * (x * 7 + y * 13) % 256, 16 * (x ^ y) % 256)) for x in range(width))
        for y in range(height)
    )
    chunks = (
        (b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)),
        (b"IDAT", zlib.compress(lines)),
        (b"IEND", b""),
    )
    body = b"".join(
        struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data)) for name, data in chunks
    )
    return base64.b64encode(b"\x89PNG\r\n\x1a\n" + body).decode()


def merge(num_workers: int = 10, missing: int = 1) -> MergeTable:
    """A soup of `num_workers`, of which every third is kept and the last `missing` never came."""
    arrived = num_workers - missing
    steps = [
        JigsawRow(
            index=arrived - 1 - at,
            accuracy=0.55 - 0.004 * at,
            alpha=1.0 if at == 0 else 0.3,
            kept=at % 3 == 0,
            batchnorm="recalibrated" if at % 3 == 0 else None,
            validation_after=0.55 + 0.01 * (at // 3),
            density=0.9,
        )
        for at in range(arrived)
    ]
    absent = [
        JigsawRow(index=at, missing=True, note="no result after 2 attempts")
        for at in range(num_workers - missing, num_workers)
    ]
    return MergeTable(
        method="greedy_interpolation",
        theta_star_accuracy=0.512,
        best_single_accuracy=0.55,
        uniform_accuracy=0.561,
        soup_accuracy=0.55 + 0.01 * ((arrived - 1) // 3),
        num_workers=num_workers,
        num_arrived=arrived,
        quorum=max(1, num_workers // 2),
        steps=steps + absent,
    )


def subset(class_names: list[str] | None = None, num_examples: int = 12) -> Subset:
    """A subset with unequal classes, a score histogram, and images of 32 px."""
    names = class_names or ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"]
    kept = [380 + (41 * at) % 240 for at in range(len(names))]
    edges = [0.1 * at for at in range(21)]
    examples = [
        [
            Example(png_base64=png(32, 32, red + at), label=names[at % len(names)], score=1.2 + red / 100)
            for at in range(num_examples)
        ]
        for red in (40, 160)
    ]
    return Subset(
        count=sum(kept),
        class_names=names,
        kept_per_class=kept,
        candidates_per_class=[4500] * len(names),
        score_name="grand",
        score_histogram=Histogram(
            edges=edges, kept=[40 * at for at in range(20)], dropped=[60 * (20 - at) ** 2 for at in range(20)]
        ),
        kept_examples=examples[0],
        dropped_examples=examples[1],
        digest="sha256:0123456789abcdef",
    )


def classes(names: list[str], rows: list[Row]) -> ClassAccuracy:
    """The first row has the lowest accuracy in the first class, the others in the last."""
    rising = [0.5 + 0.4 * at / len(names) for at in range(len(names))]
    return ClassAccuracy(
        names=names,
        images=[100] * len(names),
        accuracy={each.name: rising if each is rows[0] else rising[::-1] for each in rows},
    )


def curve(name: str, num_epochs: int = 30, offset: float = 0.0) -> Curve:
    """Loss falling as 1/epoch."""
    epochs = list(range(1, num_epochs + 1))
    accuracy = [0.9 - 0.8 / epoch - offset for epoch in epochs]
    return Curve(
        name=name,
        epoch=epochs,
        train_loss=[2.3 / epoch + offset for epoch in epochs],
        train_accuracy=[max(value, 0.0) for value in accuracy],
    )


def ledger(num_workers: int = 10) -> list[LedgerRow]:
    """An initialise of an earlier run, a fan-out of which two at a time ran side by side, and what follows."""
    workers = [
        LedgerRow(
            stage="pretrain",
            worker=at,
            wall_s=10.0 + at,
            ended=1000.0 + 20 * (at // 2) + 10 + at,
            flops=10**12,
            peak_bytes=10**9,
            data_read=790_000,
            model_read=44_700_000,
            model_written=15_600_000,
            steps=50,
            images=1_600,
            requests=4,
        )
        for at in range(num_workers)
    ]
    return [
        LedgerRow(stage="initialise", earlier=True, wall_s=60.0, flops=10**14, data_read=153_600_000, requests=3),
        *workers,
        LedgerRow(stage="merge", wall_s=14.0, flops=10**13, model_read=156_000_000, data_read=15_000_000, requests=11),
        LedgerRow(stage="score", wall_s=8.5, flops=10**13, data_read=138_240_000, other_written=1_800_000, requests=3),
        LedgerRow(
            stage="train", wall_s=284.2, flops=10**15, data_read=15_360_000, model_written=44_700_000, requests=5
        ),
    ]


def comparison() -> list[Row]:
    """The comparison every run should show: ours, two random, classic, ablations, RS2 and full, three seeds each."""
    ours = {"initialise": 12.0, "pretrain": 19.0, "merge": 14.0, "score": 8.5, "select": 0.4, "train": 284.2}
    return [
        row(
            "lipt",
            [0.781, 0.787, 0.784],
            "selected",
            label="LiPT + CCS",
            stage_wall_s=ours,
            pretrain_cost=1.31,
            data_bytes=176e6,
            model_bytes=894e6,
            flops=3.1e15,
        ),
        row(
            "random",
            [0.761, 0.764, 0.759],
            "random",
            label="uniform random",
            stage_wall_s={"train": 284.0},
            data_bytes=15.4e6,
            model_bytes=44.7e6,
            flops=2.6e15,
        ),
        row(
            "stratified",
            [0.763, 0.766, 0.764],
            "random",
            label="Class-balanced random",
            stage_wall_s={"train": 283.0},
            data_bytes=15.4e6,
            model_bytes=44.7e6,
            flops=2.6e15,
        ),
        row(
            "classic",
            [0.779, 0.781, 0.776],
            "classic",
            label="classic GraNd, 10 runs",
            pretrain_cost=10.0,
            stage_wall_s={"pretrain": 346.0, "score": 85.0, "train": 284.0},
            data_bytes=1.6e9,
            flops=5.9e15,
        ),
        row(
            "theta-star",
            [0.780, 0.776, 0.785],
            label="theta_* alone, no swarm",
            pretrain_cost=0.9,
            stage_wall_s={"initialise": 12.0, "score": 8.5, "train": 284.0},
            data_bytes=160e6,
            flops=2.9e15,
        ),
        row(
            "rs2",
            [0.848, 0.851, 0.846],
            label="RS2 (fresh random every epoch)",
            kept_fraction=1.0,
            stage_wall_s={"train": 290.0},
            data_bytes=153.6e6,
            flops=2.6e15,
        ),
        row(
            "full",
            [0.952, 0.953, 0.951],
            "full",
            label="all data",
            kept_fraction=1.0,
            epoch_fraction=1.0,
            steps=10_560,
            images=1_350_000,
            stage_wall_s={"train": 2476.0},
            data_bytes=153.6e6,
            flops=2.6e16,
        ),
    ]


def document(**changes: Any) -> Document:
    """A complete document."""
    fields: dict[str, Any] = {
        "title": "CIFAR-10, ResNet-18, 10 % of the data",
        "run_id": "2025-03-14-a1b2c3",
        "created": "2025-03-14T09:26:53+00:00",
        "engine": "kubeflow",
        "profile": "robust",
        "done": {"Data": "CIFAR-10: 60,000 images of 10 classes.", "Network": "resnet18."},
        "workspace": "file:///home/me/runs",
        "links": [Link(name="Subset", meaning="a table", key="select/0123456789abcdef/subset.parquet")],
        "rows": comparison(),
        "merge": merge(),
        "subset": subset(),
        "curves": [curve("LiPT + CCS"), curve("uniform random", offset=0.03)],
        "ledger": ledger(),
        "paper_accounting": PaperAccounting(
            paper=Accounting(
                pretrain_epochs=1.256, main_epochs=20, full_epochs=200, classic_epochs=30, saved_vs_classic=0.2915
            ),
            measured=Accounting(
                pretrain_epochs=1.27,
                selection_epochs=0.9,
                main_epochs=3,
                full_epochs=30,
                classic_epochs=13,
                saved_vs_classic=0.6,
            ),
        ),
        "provenance": Provenance(
            config_yaml="profile: robust\nselect:\n  algorithm: ccs\n",
            versions={"lipt": "0.1.0", "torch": "2.9.0"},
            seeds=[0, 1, 2],
            digests={"manifest": "sha256:" + "ab" * 32, "theta_p": "sha256:" + "cd" * 32},
            host={"cpu": "8 cores", "gpu": "none"},
            notes=["Times were taken on a machine that ran nothing else."],
        ),
    }
    fields |= changes
    names = (fields["subset"] or subset()).class_names
    return Document(**({"classes": classes(names, fields["rows"])} | fields))
