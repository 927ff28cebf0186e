"""The token view: a strip's text is the text, its framed tokens add up to the score, and markup shows as text."""

import json
import re
import shutil
from dataclasses import replace
from html.parser import HTMLParser
from types import SimpleNamespace

import numpy as np
import pytest
from conftest import TEXTS, made_inputs, made_row
from typer.testing import CliRunner

from mialib.catalog.loading import Scorer
from mialib.detectors import detect
from mialib.frequency import TokenFrequency
from mialib.metrics import auc
from mialib.token_stats import TokenRow, TokenStats
from replication import example_texts, token_view
from replication.commands import app

MARKUP = (
    "<script>alert(\"x\")</script></span></div><!-- no --> &amp; 'b' <b>\n\n    two  spaces\tand\r\nCR \r alone, "
    "longer than the tiny model's context"
)
HIDDEN = "zero\u200bwidth \u202eoverride 河 🙂 \x85 end \u3000\xa0 \n "
HARD = [*TEXTS, MARKUP, HIDDEN, "  \n  x", "河河", "<"]


@pytest.fixture(scope="module")
def scored(model_folder):
    return Scorer(model_folder).score(HARD, progress=False)


@pytest.fixture
def frequency():
    return TokenFrequency(counts=np.arange(320)[::-1].copy() ** 2, name="counts")


def view(scored, i, tokenizer, by="log_prob", frequency=None, **options):
    return token_view.view_text(scored, i, HARD[i], tokenizer, by, frequency=frequency, **options)


class Page(HTMLParser):
    """What a browser makes of it: the text of each strip, all elements, and the accessible labels."""

    VOID = ("meta", "br", "wbr")

    def __init__(self, html):
        super().__init__()
        self.open, self.strips, self.elements, self.labels, self.ids, self.links = [], [], [], [], [], []
        self.feed(html)
        self.close()
        assert not self.open

    def handle_starttag(self, tag, attrs):
        attrs = dict(attrs)
        self.elements.append(tag)
        if tag not in self.VOID:
            self.open.append((tag, attrs.get("class", "")))
        if attrs.get("class") == "mv-strip":
            self.strips.append("")
        if attrs.get("role") == "img":
            assert attrs["tabindex"] == "0"
            self.labels.append(attrs["aria-label"])
        self.ids += [attrs["id"]] if "id" in attrs else []
        self.links += [attrs["href"]] if "href" in attrs else []

    def handle_endtag(self, tag):
        assert self.open.pop()[0] == tag, f"</{tag}> closes nothing"

    def handle_data(self, data):
        if any(kind == "mv-strip" for _, kind in self.open):
            self.strips[-1] += data


@pytest.mark.parametrize("by", token_view.WAYS)
def test_a_strips_text_is_the_text_and_each_scored_token_has_a_label(scored, tokenizer, frequency, by):
    for i, text in enumerate(HARD):
        made = view(scored, i, tokenizer, by, frequency)
        assert made.before + "".join(token.text for token in made.tokens) + made.after == text
        found = Page(token_view.fragment({"A text": made}))
        assert found.strips == [text] and len(found.labels) == len(scored[i].log_prob)
        assert set(found.elements) <= {"style", "div", "b", "br", "wbr", "span", "i", "a"}


def test_markup_shows_as_text_wherever_it_stands(scored, tokenizer):
    made = view(scored, HARD.index(MARKUP), tokenizer)
    html = token_view.page("<script>1", {"</h2><script>2": [made]}, ["<script>3"])
    found = Page(html)
    assert "script" not in found.elements and "<script" not in html.lower()
    assert found.strips == [MARKUP]
    assert found.links == [f"#{name}" for name in found.ids]
    quoted = "".join(re.search("“(.*)”, log p|no character|goes on", label)[1] or "" for label in found.labels)
    assert quoted.startswith('<script>alert("x")</script></span></div><!--␣no')
    assert "two␣␣spaces⇥and[U+000D]⏎" in quoted
    shown = Page(token_view.fragment({"t": view(scored, HARD.index(HIDDEN), tokenizer)}))
    assert shown.strips == [HIDDEN] and any("“[U+202E]”" in label for label in shown.labels)


@pytest.mark.parametrize("options", [{}, {"k": 7}])
@pytest.mark.parametrize("by", token_view.WAYS)
def test_the_framed_tokens_add_up_to_the_detectors_score(scored, tokenizer, frequency, by, options):
    way = token_view.WAYS[by]
    if by == "surprise":
        options = {**options, "entropy_threshold": 4.0}
    if by == "dc_pdd":
        options = {"a": 0.02} if options else {}
    needed = {"frequency": frequency} if by == "dc_pdd" else {}
    scores = detect(way.detector, scored, **needed, **options)
    for i, row in enumerate(scored):
        made = view(scored, i, tokenizer, by, frequency, **options)
        counted = np.array([token.is_counted for token in made.tokens])
        each = row.log_prob.astype(float)
        if by == "dc_pdd":
            alpha = -np.exp(each) * frequency.log_probability[row.token_ids]
            each = np.minimum(alpha, options.get("a", 0.01))
        assert (each[counted].mean() if counted.any() else 0) == pytest.approx(scores[i])
        assert made.score == scores[i] and made.n_counted == counted.sum()


def test_shades_and_words_of_a_hand_computed_text(tokenizer):
    ids = np.array(tokenizer("The river rises", add_special_tokens=False)["input_ids"], np.int32)
    n = len(ids)
    log_prob, entropy = np.linspace(-0.1, -8, n), np.full(n, 3.0)
    entropy[-1] = 1.0  # the last token alone is improbable where the model was sure
    row = made_row(log_prob, entropy)._replace(token_ids=ids)
    stats = TokenStats.from_rows([row], provenance={})
    of = {by: token_view.view_text(stats, 0, "The river rises", tokenizer, by) for by in ("log_prob", "surprise")}
    expected = [sum(x <= step for step in (-0.5, -2, -4, -7)) for x in np.float32(log_prob)]
    assert [token.level for token in of["log_prob"].tokens] == expected and {0, 4} <= set(expected)
    assert [token.level for token in of["surprise"].tokens] == [None] * (n - 1) + [4]
    assert [token.is_counted for token in of["surprise"].tokens] == [False] * (n - 1) + [True]
    last = of["surprise"].tokens[-1].label
    assert all(number in last for number in ("−8.00", "0.000335", "1.00", "−7.00"))
    assert "not counted" not in last and "not counted" in of["surprise"].tokens[0].label


def slider_of(scored, tokenizer):
    texts, labels = {"A member": HARD.index(MARKUP), "A non-member": HARD.index(HIDDEN)}, np.arange(len(HARD)) % 2
    whole = SimpleNamespace(n_words=None)
    inputs = SimpleNamespace(stats=scored, texts=HARD, labels=labels, labelled=whole)
    return token_view.slider_for_k(inputs, texts, tokenizer, k=20)


def test_a_slider_says_at_each_k_what_the_library_does(scored, tokenizer):
    html = slider_of(scored, tokenizer)
    assert html.count("<script") == 2 and Page(re.sub("<script.*?</script>|<input[^>]*>", "", html, flags=re.S)).strips
    data = json.loads(re.search(r'<script type="application/json">(.*?)</script>', html, re.S)[1])
    for at, k in enumerate(token_view.KS):
        scores = detect("min_k", scored, k=k)
        assert f"{auc(np.arange(len(HARD)) % 2, scores):.1%}" in data["says"][at]
        for text, i in zip(data["texts"], (HARD.index(MARKUP), HARD.index(HIDDEN)), strict=True):
            counted = scored[i].log_prob[text["order"][: text["counts"][at]]]
            assert counted.mean(dtype=float) == pytest.approx(scores[i])
            assert f": {token_view.number(scores[i], 2)} nats" in text["scores"][at]


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("chromium"), reason="no chromium on this machine: apt-get install chromium")
def test_a_key_moves_k_and_other_tokens_are_framed(scored, tokenizer, tmp_path):
    playwright = pytest.importorskip("playwright.sync_api")
    (tmp_path / "page.html").write_text(f"<!doctype html><meta charset=utf-8>{slider_of(scored, tokenizer)}")
    with playwright.sync_playwright() as started:
        browser = started.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        page = browser.new_page()
        page.goto(f"file://{tmp_path}/page.html")
        strip = page.locator(".mv-strip").first
        for key, k in (("Home", token_view.KS[0]), ("End", 100)):
            page.get_by_role("slider").press(key)
            row = scored[HARD.index(MARKUP)]
            assert strip.locator(".mv-on").count() == max(1, int(len(row.log_prob) * k / 100))
            assert f"k = {k}" in page.locator(".mv-score").first.inner_text()
            lowest = strip.locator(".mv-t").nth(int(row.log_prob.argmin())).get_attribute("aria-label")
            assert lowest.endswith(f"; among the lowest {k}%")
        browser.close()


def test_what_was_not_scored_is_struck_out(tokenizer, scored):
    ids = tokenizer(TEXTS[0], add_special_tokens=False)["input_ids"]
    row = TokenRow(*(column[1:4] for column in scored[0]))
    stats = TokenStats.from_rows([row], n_cut=[len(ids) - 4], provenance={"start_token_id": None})
    made = token_view.view_text(stats, 0, TEXTS[0], tokenizer, "log_prob")
    assert made.before == tokenizer.decode(ids[:1]) and len(made.tokens) == 3 and made.after
    html = token_view.fragment({"t": made})
    assert Page(html).strips == [TEXTS[0]] and html.count('class="mv-out"') == 2 and "Struck out" in html
    assert len(token_view.fragment({"t": replace(made, after="word " * 10**5)})) < 10**5


def test_shares_of_shades_are_means_over_texts():
    rows = [([-0.1, -3.0, -3.0, -9.0], [9.0] * 4), ([-0.1, -0.2], [9.0] * 2), ([-9.0] * 3, [9.0, 1.0, 1.0])]
    inputs = made_inputs(rows, [1, 1, 0])
    found = {(r.row, r.column): r.interval for r in example_texts.shade_shares(inputs, "log_prob")}
    names = token_view.WAYS["log_prob"].levels
    assert [found[name, "members"].estimate for name in names] == pytest.approx([0.625, 0, 0.25, 0, 0.125])
    assert [found[name, "non-members"].estimate for name in names] == pytest.approx([0, 0, 0, 0, 1])
    assert [found[name, "difference"].estimate for name in names] == pytest.approx([0.625, 0, 0.25, 0, -0.875])
    low, high = found[names[0], "members"].low, found[names[0], "members"].high
    assert (low, high) == (0.25, 1.0)  # either text drawn twice
    unsure = {(r.row, r.column): r.ours for r in example_texts.shade_shares(inputs, "surprise")}
    assert unsure["the model was not sure", "members"] == 1
    assert unsure["the model was not sure", "non-members"] == pytest.approx(1 / 3)


@pytest.fixture
def texts_file(tmp_path):
    path = tmp_path / "texts.txt"
    path.write_text("The river runs </b>\nA stone & a garden\n")
    return path


def run(*arguments):
    return CliRunner().invoke(app, ["view", *map(str, arguments)])


def test_view_writes_a_page_of_all_ways_that_can(model_folder, texts_file, tmp_path, caplog):
    out = tmp_path / "out.html"
    with caplog.at_level("INFO"):
        found = run(texts_file, "--model", model_folder, "-o", out)
    assert found.exit_code == 0, found.output
    assert "2 texts, coloured by log_prob, surprise" in found.stdout and "needs token freq" in caplog.text
    page = Page(out.read_text())
    assert page.strips == ["The river runs </b>"] * 2 + ["A stone & a garden"] * 2
    assert len(set(page.ids)) == 4, "each link goes past its own strip"
    found = run(texts_file, "--model", model_folder, "--by", "dc_pdd", "--corpus", texts_file, "-o", out)
    assert found.exit_code == 0 and len(Page(out.read_text()).strips) == 2
