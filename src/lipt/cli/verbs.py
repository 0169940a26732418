"""The verbs of the command line, in the groups of `lipt --help`."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Verb:
    """A verb: the module of `lipt.cli` that defines it, its text in `lipt --help`, and an example.

    A shell takes the example as it is shown on 80 columns.
    """

    module: str
    text: str
    example: str
    attribute: str = ""
    """Name in the module; empty: the verb's own."""


#: group -> verb -> its description
VERBS: dict[str, dict[str, Verb]] = {
    "Run": {
        "init": Verb("init", "Write an example into the current folder.", "lipt init quickstart"),
        "doctor": Verb("doctor", "Check that a configuration can run here.", "lipt doctor photos.yaml"),
        "plan": Verb("plan", "Predict time, bytes and memory, and the first bottleneck.", "lipt plan photos.yaml"),
        "run": Verb("run", "Run a configuration from data to report.", "lipt run 01-quickstart.yaml"),
        "compare": Verb(
            "run", "Run LiPT and its baselines over several seeds; print one table.", "lipt compare 01-quickstart.yaml"
        ),
        "sweep": Verb(
            "sweep", "Run a comparison at each point of a grid over settings.", "lipt sweep sweep.yaml --dry-run"
        ),
        "reproduce": Verb(
            "reproduce", "Repeat a table or figure of the paper, beside random.", "lipt reproduce table1 --dry-run"
        ),
    },
    "Results": {
        "report": Verb(
            "report", "Show the verdict of finished runs, side by side if there are several.", "lipt report photos.yaml"
        ),
        "open": Verb("open", "Open the report of a finished run in a browser.", "lipt open photos.yaml", "open_report"),
        "export": Verb(
            "export",
            "Write the selected images, a list of them, or the trained network.",
            "lipt export photos.yaml --to list.txt",
        ),
        "ls": Verb("workspace", "List the finished runs and sweeps of a workspace.", "lipt ls runs"),
        "gc": Verb("workspace", "Remove artifacts that no report and no sweep refers to.", "lipt gc runs --dry-run"),
    },
    "Data and selection": {
        "ingest": Verb("ingest", "Write images into a chunk store.", "lipt ingest photos store"),
        "select": Verb(
            "select",
            "Select a subset from files of labels, logits and features.",
            "lipt select --labels y.npy --logits z.npy \\\n    --fraction 0.01 --to subset.parquet",
        ),
    },
    "On a cluster": {
        "submit": Verb(
            "cluster",
            "Start a configuration on Kubeflow or Argo.",
            "lipt submit photos.yaml --engine argo \\\n    --set workspace=s3://lipt/photos",
        ),
        "status": Verb("cluster", "Show the state of a run on a cluster.", "lipt status argo/lipt/photos-x7k2p"),
        "logs": Verb("cluster", "Show the logs of a run's pods.", "lipt logs -f argo/lipt/photos-x7k2p"),
        "cancel": Verb("cluster", "Stop a run on a cluster.", "lipt cancel argo/lipt/photos-x7k2p"),
        "pipeline": Verb(
            "pipeline",
            "Write the compiled pipelines or the manifests into the current folder.",
            "lipt pipeline export lipt",
        ),
    },
    "Settings and shells": {
        "config": Verb("config", "Show a configuration, or its JSON schema.", "lipt config show photos.yaml"),
        "completion": Verb(
            "completion",
            "Print the script that completes verbs, settings and runs.",
            "lipt completion bash >> ~/.bashrc",
        ),
    },
    "For pods and developers": {
        "stage": Verb(
            "stage", "Run one stage, as a pod does.", "lipt stage initialise photos.yaml --in dataset=ingest/KEY"
        ),
        "box": Verb(
            "box", "Run one box of the pipeline, as a pod does.", "lipt box merge s3://lipt/photos/specs/KEY.json"
        ),
    },
}
