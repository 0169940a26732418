"""`lipt plan`."""

from __future__ import annotations

import math
import shlex
from typing import Any

import click
from click.core import ParameterSource

from lipt.cli.options import Amount, config_options, output_option, parse_pairs
from lipt.cli.verbose import set_when_stopped
from lipt.errors import UsageError
from lipt.pipeline import Engine

#: The numbers of a `Machine`.
_NUMBERS = ("gpu_tflops", "store_gbps", "node_gbps", "latency_ms", "pod_start_s", "memory_gb")


@click.command()
@config_options
@click.option(
    "--calibrate",
    "runs",
    multiple=True,
    metavar="CONFIG",
    help="Take speeds from this finished run; repeat it for runs of other sizes.",
)
@click.option(
    "--engine",
    type=click.Choice(["local", "argo", "kubeflow"]),
    default="local",
    show_default=True,
    help="Plan for this machine (local), or for a cluster.",
)
@click.option("--nodes", type=click.IntRange(min=1), default=1, show_default=True, help="Nodes with a GPU.")
@click.option(
    "-m",
    "--machine",
    "pairs",
    multiple=True,
    metavar="NAME=VALUE",
    help=f"Property of nodes or store, such as gpu_tflops=80; repeatable. The names: {', '.join(_NUMBERS)}.",
)
@click.option(
    "--images", type=click.IntRange(min=2), help="Plan for data that you do not have: number of training images."
)
@click.option(
    "--image-kb",
    type=Amount(min=0, min_open=True, unit="kB"),
    metavar="KB",
    default=110,
    show_default=True,
    help="With --images: average size of an image, in kB.",
)
@click.option(
    "--classes", type=click.IntRange(min=2), default=1000, show_default=True, help="With --images: number of classes."
)
@click.option("--advise", is_flag=True, help="Show what keeping 1 to 30 % would cost instead, and advise settings.")
@click.option(
    "--storage",
    type=Amount(min=0, min_open=True, unit="GB"),
    metavar="GB",
    help="With --advise: room for the kept images, in GB, such as 0.5.",
)
@click.option(
    "--transfer",
    type=Amount(min=0, min_open=True, unit="GB"),
    metavar="GB",
    help="With --advise: the most that the run may read, in GB.",
)
@click.option(
    "--gpu-hours",
    type=Amount(min=0, min_open=True, unit="hours"),
    metavar="H",
    help="With --advise: the most to spend, in hours; without a GPU, of this machine.",
)
@output_option
def plan(
    config_path: str,
    overrides: tuple[str, ...],
    runs: tuple[str, ...],
    engine: Engine,
    nodes: int,
    pairs: tuple[str, ...],
    images: int | None,
    image_kb: float,
    classes: int,
    advise: bool,
    storage: float | None,
    transfer: float | None,
    gpu_hours: float | None,
    output: str,
) -> None:
    """Predict time, bytes and memory of each stage of CONFIG, and the first bottleneck.

    Show measured times too, if the workspace holds a report of this run. With --advise, compare what could be kept.

    \b
    lipt plan big.yaml --calibrate small.yaml --calibrate wider.yaml
    lipt plan big.yaml --engine argo --nodes 100 -m gpu_tflops=80 \\
      --images 100000000 --set data.image_size=224
    lipt plan photos.yaml --advise --storage 0.5 --gpu-hours 2
    """
    if not advise and (storage or transfer or gpu_hours):
        raise UsageError("--storage, --transfer and --gpu-hours limit the options of --advise", "add --advise")
    source_of = click.get_current_context().get_parameter_source
    if images is None and ParameterSource.COMMANDLINE in (source_of("image_kb"), source_of("classes")):
        raise UsageError("--image-kb and --classes describe the data of --images", "add --images")
    set_when_stopped("plan again: an interrupted plan keeps nothing")
    from lipt.cli.prediction import predict
    from lipt.forecast.advice import Limits

    limits = Limits(
        storage_bytes=None if storage is None else 1e9 * storage,
        transfer_bytes=None if transfer is None else 1e9 * transfer,
        gpu_hours=gpu_hours,
    )
    predict(
        config_path,
        overrides,
        list(dict.fromkeys(runs)),
        engine=engine,
        nodes=nodes,
        given=_numbers(pairs),
        described=None if images is None else {"images": images, "image_kb": image_kb, "classes": classes},
        limits=limits if advise else None,
        command=_typed(click.get_current_context()),
        output=output,
    )


def _typed(context: click.Context) -> str:
    """The command of this context, with all options that were given."""
    words = ["lipt", str(context.info_name)]
    for parameter in context.command.params:
        name, value = str(parameter.name), context.params.get(str(parameter.name))
        if name not in context.params or context.get_parameter_source(name) is not ParameterSource.COMMANDLINE:
            continue
        for each in value if isinstance(value, tuple) else [value]:
            flag = [] if isinstance(parameter, click.Argument) else [parameter.opts[-1]]
            words += flag if each is True else [*flag, str(each)]
    return shlex.join(words)


def _numbers(pairs: tuple[str, ...]) -> dict[str, Any]:
    """The numbers given with `-m`.

    Raises:
        UsageError: not one of `_NUMBERS`, or not a number above 0.
    """
    numbers = {}
    for name, text in parse_pairs("-m", pairs, _NUMBERS, of="a machine").items():
        try:
            numbers[name] = float(text)
        except ValueError:
            numbers[name] = 0
        if not 0 < numbers[name] < math.inf:
            raise UsageError(f"-m {name}={text}: not a number above 0", f"write it like -m {name}=10")
    return numbers
