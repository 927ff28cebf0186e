"""Numbers in the answers of data/claims.yml, computed again from data/recorded by code of this file's own."""

import json
from math import erfc, sqrt

import numpy as np
import pandas as pd
import pytest

from mialib.store import ROOT
from replication.claims.scores import judged_texts
from replication.claims.spec import load_claims

RECORDED = ROOT / "data" / "recorded"
CLAIMS = load_claims()
BY_ID = {claim.id: claim for claim in CLAIMS.claims}


def wins(labels, scores):
    """The share of pairs that each member, and each non-member, is on the right side of."""
    pairs = np.subtract.outer(scores[labels == 1], scores[labels == 0])
    won = (pairs > 0) + (pairs == 0) / 2
    return won.mean(axis=1), won.mean(axis=0)


def auc(labels, scores):
    return wins(labels, scores)[0].mean()


def aucs(name, setting, control=False):
    """The AUC of each side of a test, averaged over recorded training seeds and folds."""
    claim = BY_ID[name].against_control() if control else BY_ID[name]
    labels, rows = judged_texts(CLAIMS, claim, setting).labels, pd.read_parquet(RECORDED / "claims.parquet")
    rows = rows[(rows.setting == setting) & (rows.test == CLAIMS.test_hash(claim, setting))]
    assert len(rows) == 3
    by_side = zip(*rows.scores, strict=True)  # of each side, its folds under each seed
    return [np.mean([judged_auc(labels, fold) for folds in side for fold in folds]) for side in by_side]


def judged_auc(labels, scores):
    scores = np.asarray(scores, float)
    is_judged = ~np.isnan(scores)
    return auc(labels[is_judged], scores[is_judged])


def leads(name, setting, **more):
    first, *others = aucs(name, setting, **more)
    return [first - other for other in others]


def untouched(benchmark, a="dc_pdd", b="min_k"):
    """The lead of a over b with SmolLM2, its 95% interval, and its p-value."""
    rows = pd.read_parquet(RECORDED / "real" / "scores.parquet")
    rows = rows[rows.benchmark == benchmark].set_index("detector")
    labels = np.asarray(rows.labels.iloc[0])
    apart = [x - y for x, y in zip(*(wins(labels, np.asarray(rows.scores[of], float)) for of in (a, b)), strict=True)]
    lead, error = apart[0].mean(), sqrt(sum(of.var(ddof=1) / len(of) for of in apart))
    return lead, lead - 1.96 * error, lead + 1.96 * error, erfc(abs(lead) / error / sqrt(2))


def on_page(page, column, *rows, metric="auc", keys=("ours",)):
    results = json.loads((RECORDED / "real" / f"{page}.json").read_text(encoding="utf-8"))["results"]
    at = {r["row"]: r for r in results if r["column"] == f"smollm2-135m on {column}" and r["metric"] == metric}
    return [at[row][key] for row in rows for key in keys]


def fine_tuned():
    """What is recorded of each training of the real model."""
    return [pd.read_parquet(RECORDED / "lab" / f"docstrings-smollm2-seed-{seed}.parquet") for seed in range(3)]


def share_below(entropy):
    return [np.mean([np.mean(np.concatenate(list(seed.entropy)) < entropy) for seed in fine_tuned()])]


def probe_after_tuning():
    texts = judged_texts(CLAIMS, BY_ID["probe-beats-chance-on-the-ladder"], "English real")
    return [np.mean([auc(texts.labels, seed.probe.to_numpy(float)[texts.numbers]) for seed in fine_tuned()])]


def best_cells(metric):
    return on_page("surp_table_1", "wikimia-128, 128 words", "SURP", "MinK", metric=metric)


def probes():
    keys, row = ("ours", "low", "high"), "Probe w. Real Data"
    wiki, arxiv = (on_page(f"probe_{name}", of, row, keys=keys) for name, of in PROBED)
    words = [max(on_page(f"probe_{name}", of, "Blind: tf-idf", "Blind: naive Bayes")) for name, of in PROBED]
    return [*wiki, *arxiv, *words]


PROBED = [("wikimia", "wikimia-32"), ("arxiv", "arxiv_mia")]
OF_THE_PROBES_PAPER = ["Loss Attack", "Min-K% Prob", "Zlib Compression", "Lowercased Text"]
SFO = ("+LUP", "+SFO")
BEST_BOUND = [("English", 1), ("Chinese", 2)]  # which side of a-of-0.01-is-best

ANSWERS = [
    ("dc-pdd-beats-min-k", "leads by {:.3f} [{:.3f}, {:.3f}] on WikiMIA-64", lambda: untouched("wikimia-64")[:3]),
    ("dc-pdd-beats-min-k", "{:.3f} (p = {:.2f}) on ArxivMIA", lambda: untouched("arxiv_mia")[::3]),
    (
        "sfo-helps",
        "from {:.3f} to {:.3f} on WikiMIA-128, from {:.3f} to {:.3f} on ArxivMIA",
        lambda: [
            number
            for of in ("wikimia-128", "arxiv_mia")
            for number in on_page("dc_pdd_figure_2", f"{of}, a = 0.01", *SFO)
        ],
    ),
    (
        "a-of-0.01-is-best",
        "0.001 in English (AUC {:.3f} against {:.3f}) and 0.1 in Chinese ({:.3f} against {:.3f})",
        lambda: [aucs("a-of-0.01-is-best", of)[i] for of, best in BEST_BOUND for i in (best, 0)],
    ),
    ("insensitive-to-corpus", "lower by only {:.3f}", lambda: leads("insensitive-to-corpus", "English", control=True)),
    (
        "min-k-beats-baselines",
        "is {:.3f}, {:.3f} and {:.3f}. Against Small Ref",
        lambda: leads("min-k-beats-baselines", "English")[:3],
    ),
    ("min-k-beats-baselines", "it is {:.3f}", lambda: leads("min-k-beats-baselines", "English")[3:]),
    (
        "surp-beats-min-k",
        "leads ({:.3f} against {:.3f}), but chosen on other texts it trails ({:.3f} against {:.3f})",
        lambda: best_cells("auc") + best_cells("auc_held_out"),
    ),
    ("surp-beats-min-k", "{:.0%} with the fine-tuned real model", lambda: share_below(2)),
    ("surp-needs-both-conditions", "{:.0%} are as sure", lambda: share_below(2.5)),
    (
        "surp-beats-baselines",
        "by {:.3f} or more",
        lambda: [min(np.delete(leads("surp-beats-baselines", "English"), 1))],
    ),
    (
        "surp-rises-with-length",
        "Ours are {:.3f} and {:.3f}",
        lambda: [leads("surp-rises-with-length", of)[0] for of in ("English", "Chinese")],
    ),
    (
        "surp-leads-without-duplicates",
        "missing ({:.3f} [",
        lambda: leads("surp-leads-without-duplicates", "Duplicated")[:1],
    ),
    (
        "surp-leads-without-duplicates",
        "open ({:.3f} [",
        lambda: leads("surp-leads-without-duplicates", "Duplicated")[2:3],
    ),
    ("shift-alone-does-not-help", "{:.3f} above chance", lambda: leads("shift-alone-does-not-help", "Later texts")),
    (
        "probe-beats-chance",
        "{:.3f} [{:.3f}, {:.3f}] on WikiMIA-32 and {:.3f} [{:.3f}, {:.3f}] on ArxivMIA, where words alone reach "
        "{:.3f} and {:.3f}",
        probes,
    ),
    ("probe-beats-chance", "over three trainings, it has {:.3f} [", probe_after_tuning),
    (
        "probe-beats-baselines",
        "{:.3f}, against at most {:.3f}",
        lambda: [
            *on_page("probe_arxiv", "arxiv_mia", "Probe w. Real Data"),
            max(on_page("probe_arxiv", "arxiv_mia", *OF_THE_PROBES_PAPER)),
        ],
    ),
    ("neighbor-is-flat-in-size", "is {:.3f} [", lambda: leads("neighbor-is-flat-in-size", "Short English")),
    (
        "low-duplication-hides-contamination",
        "{:.3f} and {:.3f}, lie",
        lambda: [aucs("low-duplication-hides-contamination", of)[0] for of in ("Seen once", "Seen twice")],
    ),
    (
        "smaller-model-finds-contamination",
        "AUC {:.3f} [",
        lambda: aucs("smaller-model-finds-contamination", "Seen once")[:1],
    ),
    (
        "smaller-model-finds-contamination",
        "{:.3f} read twice",
        lambda: aucs("smaller-model-finds-contamination", "Seen twice")[:1],
    ),
]


@pytest.mark.parametrize(("name", "snippet", "compute"), ANSWERS, ids=[f"{row[0]}: {row[1]}" for row in ANSWERS])
def test_an_answers_numbers_are_those_of_the_recorded_scores(name, snippet, compute):
    assert snippet.format(*compute()) in " ".join(BY_ID[name].answer.split())
