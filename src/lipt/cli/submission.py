"""Where runs start on a cluster, and what `lipt submit`, `lipt sweep` and `lipt reproduce` check before they do."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import wraps
from typing import Any

import click

from lipt.adapters.cluster.engine import DEFAULT_NAMESPACE
from lipt.cli.options import F, parse_pairs
from lipt.cli.suggestions import completes, pod_parameters
from lipt.config import Config
from lipt.errors import LiptError, RunError, UsageError
from lipt.pipeline import ClusterEngine

#: The most runs of a sweep in progress at a time, unless the user gives another number.
_AT_ONCE = 4


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where the runs of a sweep start, and with which pods."""

    engine: ClusterEngine
    namespace: str
    pairs: tuple[str, ...]
    """Parameters of the pipeline, `NAME=VALUE`."""
    at_once: int
    """The most runs in progress at a time."""

    def __str__(self) -> str:
        return f"{self.engine}/{self.namespace}"


def engine_options(help_text: str, *, required: bool = False) -> Callable[[F], F]:
    """--engine, -n and -p."""

    def decorate(function: F) -> F:
        engines = click.Choice(list(DEFAULT_NAMESPACE))
        for option in (
            click.option(
                "-p",
                "pairs",
                multiple=True,
                metavar="NAME=VALUE",
                help="A parameter of the pipeline, such as gpus=1; repeatable.",
                shell_complete=completes(pod_parameters),
            ),
            click.option(
                "-n", "--namespace", help="Namespace of the runs. Default: lipt for argo, kubeflow for kubeflow."
            ),
            click.option("--engine", type=engines, required=required, help=help_text),
        ):
            function = option(function)
        return function

    return decorate


def place_option(function: Callable[..., Any]) -> Callable[..., Any]:
    """The options of a place; the function gets `place`, which is None without --engine."""

    @wraps(function)
    def with_place(
        *arguments: Any,
        engine: ClusterEngine | None,
        namespace: str | None,
        pairs: tuple[str, ...],
        at_once: int | None,
        **options: Any,
    ) -> Any:
        if engine is None and (namespace or pairs or at_once):
            raise UsageError("-n, -p and --at-once are for runs on a cluster", "add --engine argo or --engine kubeflow")
        place = None
        if engine is not None:
            chosen = namespace or DEFAULT_NAMESPACE[engine]
            place = Place(engine=engine, namespace=chosen, pairs=pairs, at_once=at_once or _AT_ONCE)
        return function(*arguments, place=place, **options)

    at_once = click.option(
        "--at-once", type=click.IntRange(min=1), help=f"The most runs on the cluster at a time. Default: {_AT_ONCE}."
    )
    return engine_options("Run on a cluster instead of this machine.")(at_once(with_place))


def check_submittable(config: Config) -> list[str]:
    """Validate the configuration before anything starts; returns the checks that are impossible from here.

    Raises:
        LiptError: a setting would fail in a pod; names the setting.
    """
    from lipt.adapters.store.s3 import check_location  # minio takes 100 ms to import
    from lipt.data.sources import sources_without_files
    from lipt.flow.checks.validation import check_from_afar

    if not config.workspace.startswith("s3://"):
        raise UsageError(
            f"workspace: {config.workspace} is a folder on this machine; pods cannot reach it",
            "--set workspace=s3://BUCKET/PREFIX, in the object store of the cluster",
        )
    check_location(config.workspace.removeprefix("s3://"))
    source = config.data.source
    if source.startswith("s3://"):
        check_location(source.removeprefix("s3://"))
    if "://" not in source and source not in sources_without_files():
        raise UsageError(
            f"data.source: {source} is a folder on this machine; pods cannot reach it",
            f"lipt ingest {source} s3://BUCKET/DATA, then --set data.source=s3://BUCKET/DATA",
        )
    return check_from_afar(config)


def pipeline_parameters(config: Config, known: Mapping[str, Any], pairs: tuple[str, ...]) -> dict[str, Any]:
    """The configuration as parameters of the installed pipeline, and the parameters from `-p`.

    Args:
        known: the parameters of the pipeline, with their defaults.

    Raises:
        UsageError: a parameter is unknown, a setting, or of a wrong type.
    """
    from lipt.adapters.cluster.job_manifest import Pods
    from lipt.pods.spec import PARAMETERS, configure, parameters_of

    given = parse_pairs("-p", pairs, known)
    for name, value in given.items():
        if name in PARAMETERS or name == "config":
            raise UsageError(f"-p {name}={value}: {name} is a setting", f"--set {PARAMETERS.get(name, (name,))[0]}=…")
    pods = Pods.parse({name: value for name, value in ({**known} | given).items() if name in Pods.model_fields})
    parameters = parameters_of(config, list(known))
    settings = {name: value for name, value in parameters.items() if name in PARAMETERS}
    if configure(parameters["config"], **settings) != config:
        raise UsageError("this configuration cannot be expressed in parameters", "report it, with the configuration")
    typed = {name: getattr(pods, name) for name in given}
    return parameters | {name: str(value) if name == "gpus" else value for name, value in typed.items()}


def warn(cluster: Any, engine: ClusterEngine, namespace: str, parameters: Mapping[str, Any]) -> None:
    """Say on stderr why pods would not reach the store or wait for a node, and why their queue would not do what was
    asked."""
    if storeless := no_store(cluster, engine, namespace, parameters):
        click.echo(f"pods will not reach the store: {storeless}", err=True)
    if nowhere := no_node(cluster, engine, namespace, parameters):
        click.echo(f"pods will wait: {nowhere}", err=True)
    if queueless := no_queue(cluster, engine, namespace, parameters):
        click.echo(f"not as asked: {queueless}", err=True)


def no_store(cluster: Any, engine: ClusterEngine, namespace: str, parameters: Mapping[str, Any]) -> LiptError | None:
    """Why the pods of a run get no address or no credentials of a store, or our MinIO does not run. None if they do, or
    if you may not see this."""
    from lipt.adapters.cluster import preflight

    return _problem(preflight.CHECKS["store"], cluster, engine, namespace, parameters)


def no_node(cluster: Any, engine: ClusterEngine, namespace: str, parameters: Mapping[str, Any]) -> LiptError | None:
    """Why no node takes the pods of a run, and the remedy, as `lipt doctor` finds them.

    None if a node does, or if you may not see the nodes.
    """
    from lipt.adapters.cluster import preflight

    return _problem(preflight.CHECKS["nodes"], cluster, engine, namespace, parameters)


def no_queue(cluster: Any, engine: ClusterEngine, namespace: str, parameters: Mapping[str, Any]) -> LiptError | None:
    """Why the queue of a run has no effect, or would keep its pods forever. None if it is fine, or there is none."""
    from lipt.adapters.cluster import preflight

    return _problem(preflight.queue, cluster, engine, namespace, parameters) if parameters.get("queue") else None


def _problem(
    check: Callable[[Any], str], cluster: Any, engine: ClusterEngine, namespace: str, parameters: Mapping[str, Any]
) -> LiptError | None:
    from lipt.adapters.cluster import preflight
    from lipt.adapters.cluster.job_manifest import Pods

    known = {name: value for name, value in parameters.items() if name in Pods.model_fields and value is not None}
    try:
        pods = Pods.parse({"image": "lipt"} | known)  # a run of another pipeline has no image
        check(preflight.Site(cluster=cluster, engine=engine, namespace=namespace, pods=pods))
    except preflight.AbsentError as error:
        return error
    except (preflight.UnknownError, UsageError):  # the latter: of a run that another program started
        return None
    except RunError as error:
        return error
    return None
