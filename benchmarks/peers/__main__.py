"""Compares our selections with those of cords, apricot-select and submodlib-py on the same input; prints Markdown.

    pip install -e . && pip install --no-deps cords apricot-select submodlib-py && pip install numba tqdm
    python -m benchmarks.peers > docs/selection-correctness.md

Every figure is computed in this one run. A ✗ marks a figure that violates the property of its row. The libraries are
not modified.
"""

from __future__ import annotations

import argparse
import time
import warnings

import torch

from benchmarks.peers import batches, coverage, duplicates, glister, gradients, libraries, rankings
from benchmarks.peers.inputs import DRAWS, problem

HEAD = """# Correctness of the selection, compared with the usual libraries

This page compares the selection of LiPT with that of cords, apricot and submodlib, property by property.
`python -m benchmarks.peers` wrote it. Every figure comes from one run with
{versions},
{threads} threads and {cpu:.0f} s of CPU time.

All libraries get the same synthetic float32 features, labels and last layer, so the page says nothing about accuracy.
Each row of a table states a property that a correct selection has. A bold figure with ✗ violates the property of its
row. Random selection is shown for comparison (mean of {draws} subsets). Times come from single runs: read them as
orders of magnitude.

- **The libraries are not modified.** cords gets the features as its data set and the last layer as its model.
{import_note}- **DeepCore is not on PyPI.** Its column re-implements, in a few lines each, defects found in its
  published source. It is *not* a measurement of the library, whose other code may be correct.
- **Empty cell:** the library has no such algorithm, or the property does not apply.
"""

IMPORT_NOTE = """  `import cords.selectionstrategies.SL` fails here
  (`{error}…`),
  so the module of each strategy was imported without the `__init__` of the package.
"""

TAIL = """## Not shown

- **DeepCore's CAL**, and **log-determinant** for lipt: lipt does not offer them.
- **DeepCore's default of ImageNet features** for k-center and CAL: this is a choice of data, not of computation. lipt
  uses the features that you pass and has no extractor.
- **GraNd at initialisation**: the published result came from a checkpoint bug (arXiv 2303.14753). The norms are checked
  above.
- **One seed for all repeats, and the best test epoch**: these are properties of experiments, not of a selection. The
  page shows only that different seeds give different subsets.
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
        batches.batch_size(p),
        gradients.gradmatch(p),
        glister.glister(p),
        coverage.craig(p),
        coverage.facility_location(p),
        duplicates.duplicates(p),
        rankings.geometry(p),
        rankings.scores(p),
        rankings.contract(arguments.seed),
    ]
    head = HEAD.format(
        versions=", ".join(f"{name} {number}" for name, number in libraries.VERSIONS.items()),
        threads=arguments.threads,
        cpu=time.process_time(),
        draws=DRAWS,
        import_note=IMPORT_NOTE.format(error=error.replace("`", "")) if error else "",
    )
    print("\n".join([head, *(section.markdown() for section in sections), TAIL]), end="")


if __name__ == "__main__":
    main()
