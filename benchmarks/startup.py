"""Start-up: CPU seconds of commands that find nothing to do, beside `import torch`, each in a new process.

`python -m benchmarks.startup` prints medians of three rounds, and marks a command that takes over 2 s besides.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from resource import RUSAGE_CHILDREN, getrusage
from statistics import median

import yaml

from lipt.pods.boxes import dispatch_box
from tests.tiny import tiny_context

COMMANDS = {
    "--help": "--help",
    "report": "report {config}",
    "run --dry-run": "run {config} --dry-run",
    "run, all is up to date": "run {config}",
    "doctor": "doctor {config}",
    "plan --engine argo": "plan {config} --engine argo",
    "pretrain box, finds all jigsaws": "box pretrain {run}",
    "worker pod, finds its jigsaws": "box worker {run} pretrain --items [0,1,2] --of 1",
}
ENVIRONMENT = {"JOB_COMPLETION_INDEX": "0", "OMP_NUM_THREADS": "1"}


def cpu_s(*arguments: str) -> float:
    before = sum(getrusage(RUSAGE_CHILDREN)[:2])  # in the program and in the kernel
    subprocess.run([sys.executable, *arguments], capture_output=True, check=True, env=os.environ | ENVIRONMENT)
    return sum(getrusage(RUSAGE_CHILDREN)[:2]) - before


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        config = tiny_context(f"{folder}/runs").config
        words = {"config": f"{folder}/run.yaml", "run": dispatch_box(config, engine="argo", image="lipt:1")}
        Path(words["config"]).write_text(yaml.safe_dump(config.model_dump(mode="json")))
        cpu_s("-m", "lipt", "run", words["config"])
        programs = {"import torch": ["-c", "import torch"]}
        programs |= {name: ["-m", "lipt", *verb.format(**words).split()] for name, verb in COMMANDS.items()}
        rounds = [{name: cpu_s(*program) for name, program in programs.items()} for _ in range(3)]
    seconds = {name: median(found[name] for found in rounds) for name in programs}
    for name, value in seconds.items():
        print(f"{name:36}{value:6.2f} s", "  exceeds the limit" * (value > seconds["import torch"] + 2))


if __name__ == "__main__":
    main()
