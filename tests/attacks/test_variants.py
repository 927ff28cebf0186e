"""Variants of a scored text: what they share with it is not scored again, and changes no number."""

import numpy as np
import pytest

from mialib.attacks.neighbors import log_probs_of_variants
from mialib.catalog.models import load_model
from mialib.scoring import LoadedScorer


def test_what_a_variant_shares_with_its_text_is_not_scored_again(model_folder, monkeypatch):
    scorer = LoadedScorer(load_model(model_folder))
    text = "the mill stands near the river"
    n_tokens = len(scorer.token_ids([text])[0])
    variants = [text, text + " week", "week", text.replace("river", "mill"), text.removesuffix(" river")]
    own = scorer.score([text], progress=False)[0]
    alone = [row.log_prob for row in scorer.score(variants, progress=False)]
    counted = []
    inner = scorer._statistics
    monkeypatch.setattr(
        scorer,
        "_statistics",
        lambda inputs, wanted, targets, *of: counted.append(len(targets)) or inner(inputs, wanted, targets, *of),
    )
    for ours, expected in zip(log_probs_of_variants(scorer, own, variants), alone, strict=True):
        np.testing.assert_allclose(ours, expected, atol=1e-5)
    n_river = len(scorer.token_ids([" river"])[0])
    n_new = [1, len(alone[1]) - n_tokens, len(alone[2]), len(alone[3]) - n_tokens + n_river, 1]
    assert sum(counted) == sum(n_new) < sum(map(len, alone)) / 2


@pytest.mark.parametrize("start_token", ["auto", None])
def test_a_variant_with_another_first_token_shares_nothing(model_folder, start_token):
    scorer = LoadedScorer(load_model(model_folder, start_token=start_token))
    own = scorer.score(["the mill stands near the river"], progress=False)[0]
    variant = "week mill stands near the river"
    [found] = log_probs_of_variants(scorer, own, [variant])
    np.testing.assert_allclose(found, scorer.score([variant], progress=False)[0].log_prob, atol=1e-5)
