"""Can a swarm in several rounds replace the epochs of one scorer? Scores along the rounds of local SGD.

    python -m benchmarks.rounds CONFIG RESULTS.jsonl [--set KEY=VALUE ...]

Ten workers share all candidates. In each round a worker trains on its tenth once, with `initialise.batch_size` and
`initialise.lr`; then the weights are averaged, and the next round starts from the average. A worker records what it
sees of its images. So ten rounds give each image ten points of a trajectory, at the FLOPs of ten epochs, but in the
time of one on ten machines. The ways:

together: averaged after each round; the tenths are drawn anew for each round.
apart: never averaged; each worker keeps its tenth. What a swarm without communication can give.

The rules choose from these trajectories, and the configured network is trained on each subset as in `benchmarks.map`,
whose rows `random` and those with ten epochs of one scorer are the comparison (same seeds, splits and initial weights).
"""

from __future__ import annotations

import itertools
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from benchmarks.journal import Journal, common, contexts, parser
from benchmarks.map import accuracies_after
from benchmarks.scorers import RULES, Problem, candidates_of, problem_of, recipe_of
from lipt.rng import derive, permutation
from lipt.runtime.network import new_model
from lipt.selection import select
from lipt.training.dynamics import Dynamics
from lipt.training.forward import accuracies
from lipt.training.loop import Trainer, train
from lipt.training.networks import on_device
from lipt.training.tensor_files import State, pack, unpack

WAYS = ("together", "apart")


def trajectory(problem: Problem, way: str, workers: int, rounds: int, path: Path) -> dict[str, Tensor]:
    """The trajectory of all candidates over the rounds, and the test accuracy of the last average or first worker."""
    if path.exists():
        return unpack(path.read_bytes(), origin=str(path))
    ctx, n = problem.ctx.of_scorer(), len(problem.scored)
    recipe, seed = recipe_of(ctx, epochs=1), ctx.seed("map", "scorer")
    seen = Dynamics.empty(n, rounds)
    first = new_model(ctx, problem.classes, seed).state_dict()
    states: list[State] = [{name: tensor.clone() for name, tensor in first.items()} for _ in range(workers)]
    for index in range(rounds):
        order_N = permutation(n, seed, "tenths", index if way == "together" else 0)
        for worker, rows_K in enumerate(order_N.tensor_split(workers)):
            model = new_model(ctx, problem.classes, seed)
            model.load_state_dict(states[worker])
            own, images = Dynamics.empty(len(rows_K), 1), problem.scored.subset(rows_K)
            trainer = Trainer(model, recipe, seed=derive(seed, "round", index, worker), device=ctx.device)
            train(trainer, lambda _, images=images: (images, None), dynamics=own)  # type: ignore[misc]
            for name, tensor in own.tensors().items():
                seen.tensors()[name][rows_K, index] = tensor[:, 0]
            states[worker] = {name: tensor.clone() for name, tensor in model.state_dict().items()}
        if way == "together":
            states = [average(states)] * workers
    model = on_device(new_model(ctx, problem.classes, seed, states[0]), ctx.device)
    found = {**seen.tensors(), "accuracy": torch.tensor(accuracies([model], problem.test, device=ctx.device))}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(pack(found))
    return found


def average(states: list[State]) -> State:
    """The mean of the weights and of the statistics of BatchNorm; counters are those of the first."""
    return {
        name: torch.stack([state[name] for state in states]).mean(0) if first.is_floating_point() else first
        for name, first in states[0].items()
    }


def main() -> None:
    arguments = parser(__doc__)
    arguments.add_argument("--fractions", type=float, nargs="+", default=[0.1])
    arguments.add_argument("--rules", nargs="+", default=["dual", "ccs el2n", "ccs aum"], choices=RULES)
    arguments.add_argument("--ways", nargs="+", default=list(WAYS), choices=WAYS)
    arguments.add_argument("--workers", type=int, default=10)
    arguments.add_argument("--rounds", type=int, default=10)
    given = arguments.parse_args()
    keys = ("seed", "steps", "fraction", "rule", "way", "workers", "rounds", "batch_size", "scorer_batch")
    journal = Journal(path=given.results, keys=(*keys, "model", "size", "proxy"))
    for ctx in contexts(given):
        batch = ctx.config.initialise.batch_size
        shared = common(ctx.config) | {"workers": given.workers, "rounds": given.rounds, "scorer_batch": batch}
        missing = journal.missing(
            shared | {"steps": steps, "fraction": fraction, "rule": rule, "way": way}
            for way, steps, fraction, rule in itertools.product(given.ways, given.steps, given.fractions, given.rules)
        )
        problem = problem_of(ctx) if missing else None
        for cell in missing:
            assert problem is not None
            path = journal.scorer(ctx.config, f"{cell['way']}-{given.workers}-{given.rounds}-seed{ctx.config.seed}")
            scored = trajectory(problem, cell["way"], given.workers, given.rounds, path)
            journal.measure(cell, partial(measured, problem, scored, cell, given.rounds))


def measured(problem: Problem, scored: dict[str, Tensor], cell: dict[str, Any], rounds: int) -> dict[str, Any]:
    """The training of a cell."""
    algorithm, options, reads = RULES[cell["rule"]]
    kept = round(cell["fraction"] * len(problem.images))
    candidates = candidates_of(problem, scored, reads, rounds)
    rows_K = select(algorithm, candidates, k=kept, seed=derive(cell["seed"], "map", "select"), **options).indices_K
    found = accuracies_after(problem, rows_K, steps=cell["steps"], kept=kept)
    return {"kept": kept, "scorer_accuracy": round(float(scored["accuracy"][0]), 4)} | found


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
