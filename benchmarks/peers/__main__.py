"""Our selections beside those of cords, apricot-select and submodlib-py on the same input, as a Markdown page.

    pip install -e . && pip install --no-deps cords apricot-select submodlib-py && pip install numba tqdm
    python -m benchmarks.peers > docs/selection-correctness.md

Every figure is computed in this one run; a ✗ stands where a figure breaks the property of its line. The libraries are
not modified.
"""

from __future__ import annotations

import argparse
import time
import warnings

import torch

from benchmarks.peers import coverage, gradients, libraries, rankings
from benchmarks.peers.inputs import DRAWS, problem

HEAD = """# Selection: correctness beside the usual libraries

Written by `python -m benchmarks.peers`, every figure in one run:
{versions};
{threads} threads, {cpu:.0f} s of CPU time. Both sides see the same float32 features, labels and last layer: a synthetic
mixture, so nothing here is about accuracy. A bold figure with ✗ breaks the property of its line; random figures are
there for scale (mean of {draws} subsets). Times are of single runs: orders of magnitude.

- **The peers' code is not modified.** cords is handed the features as its data set and the last layer as its model.
{import_note}- **DeepCore is not on PyPI.** Its column re-enacts, in a few lines, the defect read in its published
  source. It was *not* measured from the library, whose other code may be right.
- An empty cell: the library has no such algorithm, or the property does not apply.
"""

IMPORT_NOTE = """  `import cords.selectionstrategies.SL` fails here
  (`{error}…`),
  so each strategy's own module was imported without the package's `__init__`.
"""

TAIL = """## Not shown

- **DeepCore CAL**, and **log-determinant** on our side: lipt does not offer them.
- **k-center and CAL on ImageNet features** by default: a choice of data, not a computation. lipt takes the features
  that it is given and has no extractor.
- **GraNd at initialisation**: the published result came from a checkpoint bug (arXiv 2303.14753). The norms
  themselves are checked above.
- **One seed for all repeats, best test epoch**: habits of experiments, not of a selection; above is shown only that
  seeds differ.
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0, help="of the input")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    warnings.simplefilter("ignore")
    error = libraries.import_error()
    p = problem(seed=arguments.seed)
    sections = [
        gradients.batch_size(p), gradients.gradmatch(p), gradients.glister(p), coverage.craig(p),
        coverage.facility_location(p), coverage.duplicates(p), rankings.geometry(p), rankings.scores(p),
        rankings.contract(arguments.seed),
    ]  # fmt: skip
    head = HEAD.format(
        versions=", ".join(f"{name} {number}" for name, number in libraries.VERSIONS.items()),
        threads=arguments.threads, cpu=time.process_time(), draws=DRAWS,
        import_note=IMPORT_NOTE.format(error=error.replace("`", "")) if error else "",
    )  # fmt: skip
    print("\n".join([head, *(section.markdown() for section in sections), TAIL]), end="")


if __name__ == "__main__":
    main()
