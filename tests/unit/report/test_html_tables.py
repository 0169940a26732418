"""The tables and the figure that compare the methods."""

import re

from report_samples import comparison, document, row

from lipt.report.figures import accuracy_figure
from lipt.report.html_page import render
from lipt.report.ledger import LedgerRow


def test_all_tables_list_the_methods_in_one_order_and_a_worker_has_its_seed():
    work = [LedgerRow(stage="initialise", worker=0, wall_s=1.0, seed=seed) for seed in (3, 4)]
    mixed = document(ledger=work, rows=comparison()[::-1])
    text = render(mixed)
    tables = [re.findall(r'<tr class="\w+"><th scope="row">(.*?)</th>', table) for table in text.split("<table")]
    orders = [names for names in tables if "LiPT + CCS" in names]
    assert len(orders) == 4  # costs, wall-clock, accuracy, seeds
    assert all(names == orders[0] for names in orders)
    assert "initialise 0, seed 3" in text


def test_the_figure_names_the_steps_of_a_group_and_does_not_cut_the_label_of_a_longer_training():
    """Two groups have the same budgets: one of them trained for more steps."""
    longer = row("longer", [0.7], "longer", label="Class-balanced random, more steps", steps=3_000)
    svg = accuracy_figure([row("lipt", [0.8], "selected"), longer])
    titles = re.findall(r"<!-- (.*?) -->", svg)
    for text in ("10 % kept, 10 % per epoch, 1,080 steps", "10 % kept, 10 % per epoch, 3,000 steps", longer.label):
        assert text in svg or text in titles
