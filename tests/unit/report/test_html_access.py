"""Everybody can read the page: with a screen reader, a keyboard, in a frame, in the dark."""

import re
import shutil
import subprocess
from html import escape
from pathlib import Path

import pytest
from page_parser import Page
from report_samples import comparison, document, png, subset

from lipt.report.certainty import ScoreCheck
from lipt.report.comparison import COLUMNS
from lipt.report.html_page import _prose, render
from lipt.report.subset import Example
from lipt.report.verdict import judge


@pytest.fixture(scope="module")
def page() -> str:
    return render(document())


def test_in_a_frame_the_contents_list_stays_in_the_frame(page):
    """Without a base, `#cost` in an iframe with `srcdoc` leads to the page around it."""
    assert "<base" not in page
    assert re.search(r'<base href="about:srcdoc">.*<a href="#cost">', render(document(), framed=True), re.DOTALL)


def test_tables_have_a_caption_headers_and_a_focusable_scroll_region(page):
    tables = re.findall(r"<table.*?</table>", page, re.DOTALL)
    regions = re.findall(r'<div class="scroll" role="region" aria-label="(.*?)" tabindex="0"><table', page)
    captions = re.findall(r"<caption>(.*?)</caption>", page)
    assert len(tables) == len(regions) == len(captions) > 5
    assert regions == captions
    assert len(set(captions)) == len(captions)
    for table in tables:
        assert not re.search(r"<th(?! scope=\"(row|col)\")[ >]", table.replace("<thead", ""))
        rows = re.findall(r"<tr.*?</tr>", table.partition("<tbody>")[2], re.DOTALL)
        assert all(line.count('<th scope="row">') == 1 for line in rows)
    assert page.count('<div class="scroll"') == len(re.findall(r'<div class="scroll"[^>]* tabindex="0"', page))


def test_a_table_has_one_kind_of_plus_minus(page):
    tables = 0
    for table in re.findall(r"<table.*?</table>", page, re.DOTALL):
        columns = [
            {at for at, cell in enumerate(re.findall(r"<t[dh][^>]*>(.*?)</t[dh]>", line)) if "±" in cell}
            for line in re.findall(r"<tr.*?</tr>", table, re.DOTALL)
        ]
        assert len(set().union(*columns)) <= 1
        tables += any(columns)
    assert tables


def test_explanations_are_visible_text(page):
    assert Page(page).values("title") == []
    text = " ".join("".join(Page(page).text).split())
    shown = [column for column in COLUMNS if column.heading in page.partition("</thead>")[0]]
    assert len(shown) > len(COLUMNS) / 2  # those without a value are left out
    assert all(f"{column.heading}{column.meaning}{column.several_seeds}." in text for column in shown)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("background", ["paper", "wash"])
def test_every_colour_of_text_has_contrast_enough(page, scheme, background):
    """WCAG 2.2, 1.4.3: 4.5 to 1."""
    light, dark = re.findall(r":root \{(.*?)\}", page, re.DOTALL)[:2]
    colours = dict(re.findall(r"--(\w+): #(\w{6})", light if scheme == "light" else dark))

    def luminance(colour: str) -> float:
        parts = [int(colours[colour][at : at + 2], 16) / 255 for at in (0, 2, 4)]
        linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    for colour in ("ink", "muted", "accent", "good", "bad", "even"):
        low, high = sorted((luminance(colour), luminance(background)))
        assert (high + 0.05) / (low + 0.05) >= 4.5, colour


def test_each_seed_has_its_accuracy(page):
    text = " ".join("".join(Page(page).text).split())
    assert "Accuracy with each seed methodseed 0seed 1seed 2 LiPT + CCS78.10 %78.70 %78.40 %" in text


def test_the_headline_and_every_sentence_are_shown(page):
    verdict, text = judge(document().rows), "".join(Page(page).text).replace("\u00a0", " ")
    assert all(sentence.replace("`", "") in text for sentence in (verdict.headline, *verdict.sentences))


def test_a_command_in_a_sentence_is_code_and_a_number_keeps_its_unit():
    shown = _prose("<b> at 5 %. The settings: `lipt plan CONFIG --advise`.")
    assert shown == "&lt;b&gt; at 5\u00a0%. The settings: <code>lipt plan CONFIG --advise</code>."


PHONE = """<iframe id="page" width="390" height="900" srcdoc="{}"></iframe><script>
onload = () => {{
  const page = document.getElementById("page").contentDocument.documentElement;
  document.body.textContent = `${{page.scrollWidth}} of ${{page.clientWidth}}`;
}};
</script>"""


@pytest.mark.skipif(not shutil.which("chromium"), reason="no chromium")
def test_the_page_is_no_wider_than_a_phone(tmp_path: Path) -> None:
    """Long names break; tables and wide figures scroll in a frame of their own."""
    long = "a_name_without_any_place_to_break_" * 4
    ours, *others = comparison()
    examples = [Example(png_base64=png(8, 8), label=long, source=f"train/{long}.jpeg")]
    shown = document(
        rows=[ours.model_copy(update={"label": long, "reason": f"`{long}`"}), *others],
        score_checks=[ScoreCheck(label=long, reliability=0.4, halved="epochs")],
        subset=subset([long, "b"]).model_copy(update={"kept_examples": examples, "dropped_examples": examples}),
        left_out=long,
        done={"Data": long},
    )
    page = tmp_path / "phone.html"
    page.write_text(PHONE.format(escape(render(shown).replace("<details", "<details open"))))
    browser = ["chromium", "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path}/profile"]
    command = [*browser, "--virtual-time-budget=1000", "--dump-dom", page.as_uri()]
    dom = subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True).stdout
    found = re.search(r"(\d+) of (\d+)", dom)
    assert found, dom
    assert found[1] == found[2]
