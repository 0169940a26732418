"""The page is complete, self-contained, the same twice, and safe to open whatever the names are."""

import re

import pytest
from page_parser import Page
from report_samples import curve, document, ledger, merge, png, row, subset

from lipt.report.costs import stage_ledger
from lipt.report.document import Provenance
from lipt.report.figures import (
    _plot_curves,
    accuracy_figure,
    accuracy_limits,
    coloured_curves,
    shorten,
    training_figures,
)
from lipt.report.html_page import render
from lipt.report.merging import JigsawRow
from lipt.report.significance import accuracy_interval
from lipt.report.subset import Example
from lipt.report.svg import draw
from lipt.report.verdict import judge

# What matplotlib or the colours could choke on comes first, because figures shorten names.
HOSTILE = '$\\frac{1$ #010299 <script>alert(1)</script>"><img src=x onerror=alert(2)> ]]> --> {{ 7*7 }} \x07'
SECTIONS = [
    *("done", "verdict", "cost", "comparison", "classes", "subset", "certainty", "race", "merge"),
    *("training", "ledger", "accounting", "files", "provenance"),
]


@pytest.fixture(scope="module")
def page() -> str:
    return render(document())


def test_sections_come_in_order_and_the_contents_list_names_each(page):
    """First what was done, then the verdict, then the costs, then the evidence."""
    parsed = Page(page)
    there = [value for value in parsed.values("id") if value in SECTIONS]
    assert there == [name for name in SECTIONS if name not in ("certainty", "race")]
    assert [target for target in parsed.values("href") if target.startswith("#")] == [f"#{name}" for name in there]
    headings = re.findall(r"<h2>(.*?)</h2>", page)
    assert re.findall(r'<li><a href="#\w+">(.*?)</a>', page) == headings
    assert headings[:3] == ["What was done", "Verdict", "What it cost"]


def test_what_was_done_is_told_and_its_date_once(page):
    text = " ".join("".join(Page(page).text).split())
    assert "Report of LiPT, 14 March 2025, 09:26 UTC." in text
    done = text.partition("What was done Data")[2].partition("Verdict")[0]
    assert "CIFAR-10: 60,000 images of 10 classes." in done
    assert text.count("14 March 2025") == 1


def test_a_line_below_the_title_names_images_network_and_choice():
    done = {
        "Question": "How good?",
        "Data": "digits: 1,797 images of 10 classes. 1,294 are candidates.",
        "Network": "resnet18 of width 16; its weights take 2.83 MB.",
        "Choice": "65 of the 1,294 candidates (5 %), by the algorithm ccs. It leaves out the hardest images.",
    }
    choice = "65 of the 1,294 candidates (5\u00a0%), by the algorithm ccs"
    told = f"digits: 1,797 images of 10 classes; resnet18 of width 16; {choice}."
    assert f"</h1>\n<p>{told}</p>" in render(document(done=done))
    both = {"Data": done["Data"], "Choice, a": done["Choice"]}  # side by side
    assert "</h1>\n<p>digits: 1,797 images of 10 classes.</p>" in render(document(done=both))


def test_the_page_ends_its_verdict_with_a_command():
    rows = [row("lipt", [0.8], "selected"), row("stratified", [0.7], "random")]
    section = re.search(r'<section class="verdict.*?</section>', render(document(rows=rows)), re.DOTALL)
    assert section is not None
    told = section[0].replace("&#39;", "'")
    assert told.endswith(f'<pre tabindex="0">{judge(rows).next_step.commands({})[0]}</pre>\n</section>')
    settled = [row("lipt", [0.8] * 3, "selected"), row("stratified", [0.7] * 3, "random")]
    assert "lipt compare" not in render(document(rows=settled, provenance=Provenance()))


def test_a_column_without_any_value_is_left_out():
    """With one seed there is no deviation, and of a merge that went well nothing to note."""
    rows = [row("lipt", [0.8], "selected", flops=1e12), row("stratified", [0.7], "random")]
    steps = [step.model_copy(update={"batchnorm": None}) for step in merge(3, missing=0).steps]
    work = [each.model_copy(update={"peak_bytes": 0}) for each in ledger()]
    page = render(document(rows=rows, ledger=work, merge=merge(3, missing=0).model_copy(update={"steps": steps})))
    tables = re.findall(r"<table.*?</table>", page, re.DOTALL)
    for table in tables:
        lines = [re.findall(r"<td[^>]*>(.*?)</td>", line) for line in re.findall(r"<tr.*?</tr>", table, re.DOTALL)[1:]]
        assert all(set(cells) - {"", "–"} for cells in zip(*lines, strict=True)), table
        heads = re.findall(r'<th scope="col">(.*?)</th>', table)
        assert all(len(cells) == len(heads) - 1 for cells in lines), table
    assert "standard deviation of the accuracy" not in page  # nor is it explained
    for heading in ("sd", "batch norm", "note", "peak memory"):
        column = f'<th scope="col">{heading}</th>'
        assert column not in page
        assert column in render(document())
    assert '<th scope="col">FLOPs</th>' in page  # one of two rows has a value


def test_files_are_links_beside_the_workspace_and_keys_elsewhere(page):
    key = "select/0123456789abcdef/subset.parquet"
    assert f"../../{key}" in Page(page).values("href")
    remote = Page(render(document(workspace="s3://bucket/prefix")))
    assert not [target for target in remote.values("href") if not target.startswith("#")]
    assert f"<code>{key}</code>" in render(document(workspace="s3://bucket/prefix"))
    assert "aws s3 cp s3://bucket/prefix/KEY ." in "".join(remote.text)


def test_sections_without_data_are_left_out():
    bare = render(
        document(
            done={},
            links=[],
            merge=None,
            classes=None,
            subset=None,
            curves=[],
            ledger=[],
            paper_accounting=None,
            provenance=Provenance(),
        )
    )
    assert [value for value in Page(bare).values("id") if value in SECTIONS] == ["verdict", "cost", "comparison"]


def test_the_line_of_chance_is_drawn_only_if_it_holds_for_all_rows():
    rows = [row("a", [0.5], "selected", chance=0.48), row("b", [0.4], "random", chance=0.48)]
    assert "stroke-dasharray" in accuracy_figure(rows)
    other = rows[1].model_copy(update={"chance": 0.2})
    assert "stroke-dasharray" not in accuracy_figure([rows[0], other])


def test_rendering_twice_gives_the_same_bytes(page):
    assert render(document()) == page


def test_nothing_is_fetched_and_nothing_runs(page):
    parsed = Page(page)
    assert not {"script", "link", "iframe", "object"} & set(parsed.tags)
    assert "http" not in page
    assert "<metadata" not in page
    assert "@import" not in page
    assert all(source.startswith("data:image/png;base64,") for source in parsed.values("src"))
    assert all(target.startswith("#") for target in parsed.values("xlink:href"))
    assert all(target.startswith(("#", "../../select/")) for target in parsed.values("href"))
    assert all(target.startswith("#") for target in re.findall(r"url\(([^)]*)\)", page))


def test_ids_are_unique_and_references_resolve(page):
    parsed = Page(page)
    ids = parsed.values("id")
    assert len(ids) == len(set(ids))
    references = parsed.values("xlink:href") + re.findall(r"url\(([^)]*)\)", page)
    assert references
    assert {reference.removeprefix("#") for reference in references} <= set(ids)


def test_hostile_names_are_text():
    rows = [row("a", [0.5], "selected", label=HOSTILE), row("b", [0.4], "random", label=HOSTILE)]
    steps = [step.model_copy(update={"note": HOSTILE}) for step in merge().steps]
    hostile = document(
        title=HOSTILE,
        rows=rows,
        merge=merge().model_copy(update={"steps": steps, "method": HOSTILE}),
        subset=subset([HOSTILE] * 3).model_copy(update={"score_name": HOSTILE}),
        curves=[curve(HOSTILE)],
        provenance=Provenance(config_yaml=HOSTILE, versions={HOSTILE: HOSTILE}, notes=[HOSTILE]),
    )
    parsed = Page(render(hostile))
    assert "script" not in parsed.tags
    assert not [key for key, _ in parsed.attributes if key.startswith("on")]
    assert "x" not in parsed.values("src")
    assert any("<script>alert(1)</script>" in text and "{{ 7*7 }}" in text for text in parsed.text)


def test_the_sentences_of_several_runs_stand_below_the_name_of_each():
    ours = [
        row("lipt", [accuracy] * 3, "selected", label=f"LiPT [{name}]", reason="so it is")
        for name, accuracy in (("<a>", 0.8), ("b", 0.9))
    ]
    html = render(document(rows=[*ours, row("random", [0.7] * 3, "random")]))
    for run in ("&lt;a&gt;", "b"):
        assert f"<li><strong>{run}</strong>\n<ul><li>LiPT [{run}] beats random" in html
    assert "</ul></li><li>Why this algorithm: so it is.</li></ul>" in html


def test_with_one_seed_nothing_is_a_mean_over_seeds() -> None:
    one = [row("lipt", [0.8], "selected"), row("random", [0.7], "random")]
    several = [each.model_copy(update={"seeds": [0, 1], "accuracy": each.accuracy * 2}) for each in one]
    texts = "over seeds", "dot per seed", "seed by seed"
    alone, many = (render(document(rows=rows, score_checks=[])) for rows in (one, several))
    assert not [text for text in texts if text in alone.replace("over seeds, paired", "")]
    assert all(text in many for text in texts)
    assert "With one seed the difference proves nothing." in alone


def test_only_of_many_rows_one_may_stand_out_by_chance() -> None:
    random, *others = (row(f"m{at}", [0.5, 0.6, 0.7]) for at in range(6))
    random = random.model_copy(update={"role": "random"})
    told = "the difference proves nothing. Of twenty rows without a difference, one stands out by chance."
    assert told in render(document(rows=[random, *others]))
    assert "by chance" not in render(document(rows=[random, *others[1:]]))


def test_images_stand_by_class_then_by_score_on_both_sides() -> None:
    given = [("b", 0.735), ("a", 0.9), ("b", 0.2), ("a", 0.73)]
    examples = [Example(png_base64=png(8, 8), label=label, score=score) for label, score in given]
    table = subset(["a", "b"]).model_copy(update={"kept_examples": examples, "dropped_examples": examples[::-1]})
    shown = re.findall(r">(\w)<br>([\d.]+)</li>", render(document(subset=table)))
    assert shown == [("a", "0.73"), ("a", "0.90"), ("b", "0.20"), ("b", "0.73")] * 2


def test_the_error_of_the_smallest_class_is_told() -> None:
    rows = [row("lipt", [0.6], "selected"), row("random", [0.5], "random")]
    found = document(rows=rows).classes
    assert found is not None
    few = found.model_copy(update={"images": [30] * len(found.names)})
    assert "30 images allow an error of about ±18 points (95\u00a0%)." in render(document(rows=rows, classes=few))


def test_the_quorum_is_told_only_where_jigsaws_are_missing() -> None:
    assert "9 of 10 jigsaws arrived, 5 were required." in render(document(merge=merge(missing=1)))
    whole = render(document(merge=merge(missing=0)))
    assert "were required" not in whole
    assert whole.index("Best α: ") < whole.index("<caption>The jigsaws")  # explained before it is used


def test_an_abbreviated_score_is_explained():
    for name, explained in (("EL2N", True), ("your own scores", False)):
        page = render(document(subset=subset(["cat", "dog"]).model_copy(update={"score_name": name})))
        assert f"then its score: {name}" in page
        assert ("A large value means a hard image" in page) == explained


def test_labels_of_figures_are_one_short_line():
    assert shorten("a\nb\x07c") == "a b c"
    assert shorten("x" * 100) == "x" * 33 + "…"
    runs = [f"LiPT, auto (ccs) [quickstart-{digest}]" for digest in ("8c857717", "2b857717")]
    assert [shorten(run) for run in runs] == [
        "LiPT, auto… [quickstart-8c857717]",
        "LiPT, auto… [quickstart-2b857717]",
    ]
    long = shorten(f"LiPT [{'long-' * 20}8c857717]")
    assert long.endswith("-8c857717]")
    assert len(long) <= 34


def test_colours_of_figures_follow_the_page(page):
    assert "var(--accent)" in page
    assert not re.search(r"#010[12]", page)
    assert set(re.findall(r"var\(--(\w+)\)", page)) <= set(re.findall(r"--(\w+):", page))


def test_figures_keep_their_text(page):
    figures = "".join(re.findall(r"<svg.*?</svg>", page, flags=re.DOTALL))
    assert all(text in figures for text in ("LiPT + CCS", "soup so far", "validation accuracy", "training loss"))


def test_as_many_variants_as_a_comparison_has_are_told_apart_and_fit_their_legend():
    """Twelve of the longest names: each with a pen of its own, the whole legend inside the drawing."""
    names = [f"{at:02} a variant with a name of that length" for at in range(12)]
    seen = []

    def plot(axes):
        _plot_curves(axes, [curve(name) for name in names], names, "train_accuracy", "training accuracy")
        seen.append(axes)

    svg = draw("curves", "a label", plot)
    (axes,) = seen
    pens = [(line.get_color(), line.get_linestyle(), line.get_marker()) for line in axes.lines]
    assert len(set(pens)) == len(names)
    (legend,), figure = axes.figure.legends, axes.figure
    assert [text.get_text() for text in legend.get_texts()] == [shorten(name) for name in names]
    box = legend.get_window_extent()
    assert (box.x0 >= 0, box.y0 >= 0) == (True, True)
    assert box.x1 <= figure.bbox.width
    assert axes.get_window_extent().height > 150  # the plot is not squeezed by what lies below it
    assert all(shorten(name) in svg for name in names)


def test_of_more_rows_than_pens_the_best_have_a_colour_and_a_name():
    """The selected row and the random one are among them, although others are more accurate."""
    rows = [row("lipt", [0.2], "selected"), row("random", [0.1], "random"), row("weak", [0.1], "random")]
    rows += [row(f"m{at:02}", [0.3 + 0.01 * at]) for at in range(57)]
    rows[1] = rows[1].model_copy(update={"accuracy": [0.15]})
    curves = [curve(each.label) for each in rows]
    best = ["lipt", "random", "m56", "m55", "m54"]
    assert coloured_curves(curves, rows) == best
    (svg, _) = training_figures(curves, rows)
    assert re.findall(r">([\w ]+)</text>", svg)[-6:] == ["lipt", "random", "m54", "m55", "m56", "55 others"]
    _, _, width, height = map(float, re.search(r'viewBox="(.*?)"', svg)[1].split())
    assert height < width  # the legend is short, so the axes have room
    told = "5 rows have a colour: the best chosen subset, the best random one, and those with the highest test accuracy"
    assert told in render(document(rows=rows, curves=curves))
    assert "have a colour" not in render(document(rows=rows[:18], curves=curves[:18]))


def test_what_holds_training_only_is_called_training(page):
    labels = Page(page).values("aria-label")
    assert "Training accuracy by epoch" in labels
    assert "Training loss by epoch" in labels
    assert "alidation and" not in page
    assert ", training" not in page


def test_what_ingest_left_out_is_said():
    assert "so not among the candidates: 3 .txt files." in render(document(left_out="3 .txt files"))
    assert "Left out" not in render(document())


def test_a_tie_is_no_landslide():
    """0.3 points between two rows of three seeds, whose intervals are small: a small part of the axis."""
    rows = [row("a", [0.821, 0.822, 0.823], "selected"), row("b", [0.818, 0.819, 0.820], "random")]
    low, high = accuracy_limits(rows)
    assert high - low == pytest.approx(0.1)
    assert low < min(accuracy_interval(rows[1])[0], accuracy_interval(rows[0])[0])
    assert accuracy_limits([row("a", [0.999] * 3)]) == (pytest.approx(0.9), pytest.approx(1.0))
    assert accuracy_limits([row("a", [0.0] * 3)])[0] == 0


@pytest.mark.parametrize(
    ("seeds", "said"),
    [
        ([1, 1], "a line for its 95 % interval: of the test images only, because there are fewer than 3 seeds"),
        ([3, 1], "over seeds, of the test images only where there are fewer than 3 seeds"),
        ([3, 3], "a line for its 95 % interval: over seeds. Each"),
    ],
)
def test_the_intervals_of_the_figure_are_drawn_and_named(seeds, said):
    rows = [row(f"m{at}", [0.6 + 0.01 * n for n in range(count)]) for at, count in enumerate(seeds)]
    page = render(document(rows=rows))
    assert said in " ".join("".join(Page(page).text).split())


def test_the_ledger_tells_what_this_run_and_what_earlier_runs_paid():
    lines = {line.label: [cell.text for cell in line.cells] for line in stage_ledger(ledger())}
    # Ten workers, two at a time: 11, 13, 15, 17 and 19 s. Not 19 s, which the slowest took.
    assert lines["pretrain"][:4] == ["75 s", "500", "16,000", "10 TFLOP"]
    assert lines["initialise"][:4] == ["60 s", "–", "–", "100 TFLOP"]
    assert lines["this run"][:4] == ["6 min 22 s", "500", "16,000", "1.03 PFLOP"]  # 75 + 14 + 8.5 + 284.2 s
    assert lines["earlier runs"][:4] == ["60 s", "–", "–", "100 TFLOP"]
    assert lines["total"][:4] == ["7 min 22 s", "500", "16,000", "1.13 PFLOP"]


def test_what_earlier_runs_paid_is_marked_on_the_page(page):
    text = " ".join("".join(Page(page).text).split())
    assert "initialise (earlier)" in text
    assert "This report is based on 7 min 22 s of work: 60 s by earlier runs, 6 min 22 s by this one." in text


def test_where_one_run_made_everything_there_is_one_total():
    rows = [row.model_copy(update={"earlier": False}) for row in ledger()]
    assert [line.label for line in stage_ledger(rows) if line.style == "total"] == ["total"]
    assert "by earlier runs" not in render(document(ledger=rows))


def test_the_missing_jigsaw_is_named(page):
    text = " ".join("".join(Page(page).text).split())
    assert "9 of 10 jigsaws arrived, 5 were required" in text
    assert "no result after 2 attempts" in text


def test_tiny_images_are_enlarged_without_smoothing_and_large_ones_smoothly():
    examples = [Example(png_base64=png(size, size), label=f"{size} px") for size in (32, 96)]
    shown = render(document(subset=subset().model_copy(update={"kept_examples": examples, "dropped_examples": []})))
    assert re.search(r'<img class="tiny" alt="Kept image of class 32 px"', shown)
    assert re.search(r'<img alt="Kept image of class 96 px"', shown)


@pytest.mark.parametrize("rows", [1, 12])
def test_any_number_of_rows_renders(rows):
    lines = [row(f"m{at}", [0.5 + 0.01 * at], "selected" if at == 0 else "other", label=f"m{at}") for at in range(rows)]
    parsed = Page(render(document(rows=lines, merge=None, subset=None, curves=[], ledger=[])))
    assert {f"m{at}" for at in range(rows)} <= set(parsed.text)


def test_a_large_run_stays_a_page():
    big = document(
        merge=merge(40, missing=6),
        subset=subset([f"class {at}" for at in range(1000)], num_examples=2),
        ledger=ledger(40),
        curves=[curve(f"method {at}") for at in range(12)],
    )
    page = render(big)
    assert len(page.encode()) < 600_000
    assert page.count('<li class="bar">') == 20
    assert "of 1000" in page


def test_pictures_beyond_the_size_of_the_page_are_left_out_and_counted():
    large = Example(png_base64="A" * 200_000, label="large")
    page = render(
        document(subset=subset().model_copy(update={"kept_examples": [large] * 9, "dropped_examples": [large] * 9}))
    )
    assert len(page.encode()) < 2_000_000
    assert page.count("2 of 9 examples fit the page") == 2


def test_a_merge_in_groups_shows_both_tables():
    plain = merge(4, missing=1)
    workers = [step.model_copy(update={"group": None if step.missing else step.index % 2}) for step in plain.steps]
    groups = [JigsawRow(index=index, accuracy=0.6, kept=True, note="1 of 2 jigsaws kept") for index in (1, 0)]
    page = render(document(merge=plain.model_copy(update={"steps": workers, "groups": groups})))
    column = '<th scope="col">group</th><th scope="col">own accuracy'
    for text in ("<caption>The groups</caption>", column, "1 of 2 jigsaws kept", "best group"):
        assert text in page
    assert "best single jigsaw" not in page
    assert column not in render(document(merge=plain))


def test_a_merge_without_any_jigsaw_has_a_table_but_no_figure():
    page = render(document(merge=merge(3, missing=3)))
    assert "0 of 3 jigsaws arrived" in page
    assert "Validation accuracy along the merge" not in page
