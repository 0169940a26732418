"""Figures of running stages for TensorBoard, MLflow or Prometheus, if LIPT_METRICS names one of them."""

from __future__ import annotations

import atexit
import os
import re
from collections.abc import Callable, Mapping
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from lipt.errors import UsageError, did_you_mean

VARIABLE = "LIPT_METRICS"
#: Receives (stage, step, figures by name). The step is the number of optimiser steps, or 0 for a whole stage.
Log = Callable[[str, int, Mapping[str, float]], None]


def check_metrics() -> None:
    """
    Raises:
        UsageError: LIPT_METRICS names an unknown program, lacks its folder or port, or a package is not installed.
    """
    if spec := os.environ.get(VARIABLE):
        _parse(spec)


def log(stage: str, step: int, figures: Mapping[str, float]) -> None:
    """Hand figures over; without LIPT_METRICS nothing happens."""
    if spec := os.environ.get(VARIABLE):
        _opened(spec)(stage, step, figures)


@cache
def _opened(spec: str) -> Log:
    open_, where = _parse(spec)
    return open_(where)


def _parse(spec: str) -> tuple[Callable[[str], Log], str]:
    kind, _, where = spec.partition(":")
    if kind not in _KINDS:
        raise UsageError(f"{VARIABLE}={spec}: no such program", did_you_mean(kind, _KINDS))
    open_, module, form = _KINDS[kind]
    if not re.fullmatch(form, where) or (kind == "prometheus" and not 0 < int(where) < 2**16):
        raise UsageError(f"{VARIABLE}={spec}: not of the form {_FORMS[kind]}", f"{VARIABLE}={_FORMS[kind]}")
    if find_spec(module) is None:
        raise UsageError(f"{VARIABLE}={spec} needs a package", f"pip install {module.replace('_', '-')}")
    return open_, where


def _tensorboard(folder: str) -> Log:
    writer = import_module("torch.utils.tensorboard").SummaryWriter(folder)
    atexit.register(writer.close)

    def log(stage: str, step: int, figures: Mapping[str, float]) -> None:
        for name, value in figures.items():
            writer.add_scalar(f"{_plain(stage)}/{name}", value, step)
        writer.flush()

    return log


def _mlflow(experiment: str) -> Log:
    """MLflow's own variables, such as MLFLOW_TRACKING_URI, say where it stores the figures."""
    mlflow = import_module("mlflow")
    if experiment:
        mlflow.set_experiment(experiment)
    mlflow.active_run() or mlflow.start_run()  # it ends with the process

    def log(stage: str, step: int, figures: Mapping[str, float]) -> None:
        mlflow.log_metrics({f"{_plain(stage)}/{name}": float(value) for name, value in figures.items()}, step=step)

    return log


def _prometheus(port: str) -> Log:
    """Serves the latest figures under /metrics of this port, as gauges with the label `stage`."""
    client = import_module("prometheus_client")
    registry, gauges = client.CollectorRegistry(), dict[str, Any]()
    try:
        client.start_http_server(int(port), registry=registry)
    except OSError as error:
        raise UsageError(f"{VARIABLE}: port {port} cannot be used: {error.strerror}", "name a free port") from None

    def log(stage: str, step: int, figures: Mapping[str, float]) -> None:
        for name, value in {"step": step, **figures}.items():
            if name not in gauges:
                text = f"The latest {name.replace('_', ' ')} of a stage."
                gauges[name] = client.Gauge(f"lipt_{name}", text, ["stage"], registry=registry)
            gauges[name].labels(stage=stage).set(value)

    return log


def _plain(stage: str) -> str:
    """The label of a stage in letters that all three allow: `pretrain/3` for `pretrain[3]`."""
    return re.sub(r"[^\w/. -]+", "/", stage).strip("/")


#: name -> (opens it, the package that it needs, the form of what follows the colon)
_KINDS: dict[str, tuple[Callable[[str], Log], str, str]] = {
    "tensorboard": (_tensorboard, "tensorboard", r".+"),
    "mlflow": (_mlflow, "mlflow", r".*"),
    "prometheus": (_prometheus, "prometheus_client", r"\d{1,5}"),
}
_FORMS = {"tensorboard": "tensorboard:FOLDER", "mlflow": "mlflow:EXPERIMENT", "prometheus": "prometheus:PORT"}
