"""Slow re-implementations written from the papers' equations, one token and one pair at a time, in float64.

Nothing here is shared with mialib: where the two agree, neither has the other's mistake.
"""

import math
import statistics
import zlib
from pathlib import Path

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer
from transformers import AutoModelForCausalLM

# What "agrees" means for token statistics: float32 logits of a small model against float64 ones.
NATS = 1e-4  # absolute, for log-prob and entropy
VARIANCE = 1e-4  # relative
VARIANCE_FLOOR = 1e-6  # nats^2, absolute


def moments(logits):
    """Entropy and variance of log p of one row of logits, by sums over the vocabulary."""
    largest = max(logits)
    log_sum = largest + math.log(math.fsum(math.exp(z - largest) for z in logits))
    terms = [(math.exp(z - log_sum), z - log_sum) for z in logits if z > -math.inf]  # 0 log 0 = 0
    entropy = -math.fsum(p * log_p for p, log_p in terms)
    variance = math.fsum(p * (log_p + entropy) ** 2 for p, log_p in terms)
    return log_sum, entropy, variance


def assert_rows_agree(found, logits, targets):
    """(R,) log-probs, entropies, variances and largest log-probs against sums over the vocabulary in float64."""
    assert all(column.dtype == torch.float32 and column.shape == (len(logits),) for column in found)
    log_prob, entropy, variance, top_log_prob = (column.tolist() for column in found)
    for i, row in enumerate(logits.double().tolist()):
        log_sum, true_entropy, true_variance = moments(row)
        # A log-prob of -40 has float32 steps of 4e-6.
        assert log_prob[i] == pytest.approx(row[targets[i]] - log_sum, abs=1e-5), f"log-prob of row {i}"
        assert entropy[i] == pytest.approx(true_entropy, abs=5e-6, rel=1e-5), f"entropy of row {i}"
        assert variance[i] == pytest.approx(true_variance, rel=2e-5, abs=1e-30), f"variance of row {i}"
        assert top_log_prob[i] == pytest.approx(max(row) - log_sum, abs=1e-5, rel=1e-5), f"largest log-prob of row {i}"
        assert (log_prob[i] == top_log_prob[i]) == (row[targets[i]] == max(row)), f"likeliest token of row {i}"


def naive_statistics(folder, texts, start_token_id, *, dtype=torch.float64, temperature=1):
    """For each text its token ids and their four numbers, by the whole model and the full softmax.

    `start_token_id` may be several.
    """
    tokenizer = Tokenizer.from_file(str(Path(folder) / "tokenizer.json"))
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype).eval()
    rows, start = [], np.atleast_1d(start_token_id).tolist()
    for text in texts:
        ids = tokenizer.encode(text, add_special_tokens=False).ids
        with torch.no_grad():
            logits = model(torch.tensor([[*start, *ids]])).logits[0, len(start) - 1 :].double()
        log_p = torch.log_softmax(logits / temperature, dim=-1)
        p = log_p.exp()
        entropy = -(p * log_p).sum(-1)
        variance = (p * (log_p + entropy[:, None]) ** 2).sum(-1)
        # Position i holds the prediction of token i + 1, which is ids[i]; the last one predicts what the text lacks.
        log_prob = [float(log_p[i, token]) for i, token in enumerate(ids)]
        moments = (column[:-1].numpy() for column in (entropy, variance, log_p.amax(-1)))
        rows.append((np.array(ids), np.array(log_prob), *moments))
    return rows


def assert_agree(stats, reference, *, nats=NATS, variance=VARIANCE):
    """The agreement that the project promises, row by row; returns the worst error of each number."""
    assert len(stats) == len(reference)
    worst = np.zeros(3)
    for i, (row, (ids, log_prob, entropy, log_prob_var, top_log_prob)) in enumerate(zip(stats, reference, strict=True)):
        np.testing.assert_array_equal(row.token_ids, ids, err_msg=f"token ids of text {i}")
        np.testing.assert_allclose(row.log_prob, log_prob, rtol=0, atol=nats, err_msg=f"log-prob of text {i}")
        np.testing.assert_allclose(row.entropy, entropy, rtol=0, atol=nats, err_msg=f"entropy of text {i}")
        np.testing.assert_allclose(row.top_log_prob, top_log_prob, rtol=0, atol=nats, err_msg=f"largest of text {i}")
        np.testing.assert_allclose(
            row.log_prob_var, log_prob_var, rtol=variance, atol=VARIANCE_FLOOR, err_msg=f"variance of text {i}"
        )
        errors = (
            np.abs(row.log_prob - log_prob),
            np.abs(row.entropy - entropy),
            np.abs(row.log_prob_var / log_prob_var - 1),
        )
        worst = np.maximum(worst, [error.max() for error in errors])
    return worst


def mean(values):
    values = list(values)
    return math.fsum(values) / len(values)


def lowest(values, k):
    """The floor(n k / 100) lowest values, at least one."""
    n_lowest = len(values) * k // 100
    return sorted(values)[: max(1, int(n_lowest))]


def percentile(values, k):
    """The value k/100 of the way from the minimum to the maximum of the sorted values, linearly interpolated."""
    ordered = sorted(values)
    position = (len(ordered) - 1) * k / 100
    below = math.floor(position)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (position - below) * (ordered[above] - ordered[below])


def loss(log_prob):
    """Log-perplexity: minus the mean log-prob."""
    return -mean(log_prob)


def ppl(log_prob):
    return -loss(log_prob)


def ratio(log_prob, other_log_prob):
    """Lowercase and Small Ref: a member's log-perplexity is low beside the other pass's."""
    return -(loss(log_prob) / loss(other_log_prob))


def zlib_score(log_prob, text):
    return -loss(log_prob) / len(zlib.compress(bytes(text, "utf-8")))


def neighbor(log_prob, neighbors):
    """Loss of the text against the losses of its neighbors, one at a time."""
    return mean(-of_neighbor - loss(log_prob) for of_neighbor in neighbors)


def min_k(log_prob, k):
    return mean(lowest(log_prob, k))


def min_k_plus_plus(log_prob, entropy, variance, k):
    z = [(lp - (-h)) / math.sqrt(var) for lp, h, var in zip(log_prob, entropy, variance, strict=True)]
    return mean(lowest(z, k))


def dc_pdd(token_ids, log_prob, counts, a, lup, sfo):
    """Eq. 5-8 of DC-PDD, token by token."""
    n_corpus = sum(counts)
    alphas, seen = [], set()
    for token, lp in zip(token_ids, log_prob, strict=True):
        frequency = (counts[token] + 1) / (n_corpus + len(counts))
        alpha = -math.exp(lp) * math.log(frequency)
        if lup and alpha >= a:
            alpha = a
        if not (sfo and token in seen):
            alphas.append(alpha)
        seen.add(token)
    return mean(alphas)


def surp(log_prob, entropy, entropy_threshold, k):
    """Eq. 1-4 of SURP; None where no token is surprising, which the paper leaves open."""
    limit = percentile(log_prob, k)
    surprising = [lp for lp, h in zip(log_prob, entropy, strict=True) if h < entropy_threshold and lp < limit]
    return mean(surprising) if surprising else None


def gap_k(log_prob, variance, top, k):
    z = [(lp - m) / math.sqrt(max(v, 1e-8)) for lp, v, m in zip(log_prob, variance, top, strict=True)]
    smoothed = [mean(z[i : i + 3]) for i in range(len(z) - 2)]
    return mean(lowest(smoothed or z, k))


def max_renyi(entropy, top, order, k):
    of_order = entropy if order == 1 else [-m for m in top]
    return -mean([-x for x in lowest([-x for x in of_order], k)])


def of_tempered(log_p, ids, k):
    """Rényi's entropies of order 1/2 and ACMIA's three, from log p of the whole vocabulary at each token, (n, V).

    ACMIA's as its authors compute them: p to a power, made to sum to 1.
    """

    def power(beta):
        return [[beta * lp - math.log(math.fsum(math.exp(beta * x) for x in row)) for lp in row] for row in log_p]

    renyi = [2 * math.log(math.fsum(math.exp(lp) ** 0.5 for lp in row)) for row in log_p]
    first = [i for i, token in enumerate(ids) if token not in ids[:i]]
    own, flat, near = ([of[i][ids[i]] for i in first] for of in (log_p, power(0.5), power(1 - 1e-5)))
    spread = [moments(log_p[i]) for i in first]
    z = [(lp + h) / math.sqrt(v) for lp, (_, h, v) in zip(own, spread, strict=True)]
    return {
        "max_renyi_half": -mean([-x for x in lowest([-x for x in renyi], k)]),
        "acmia_ac": mean(own) - mean(flat),
        "acmia_deriv": (mean(own) - mean(near)) / 1e-5,
        "acmia_norm": mean(z),
    }


def polarized(log_prob):
    """Highest 5% minus lowest 30%, turned round."""
    highest = [-x for x in lowest([-lp for lp in log_prob], 5)]
    return -(mean(highest) - mean(lowest(log_prob, 30)))


def wbc(log_prob, of_reference):
    """The share of windows in which the reference loses more, each window summed by itself."""
    shares, n = [], len(log_prob)
    for window in (2, 3, 4, 6, 9, 13, 18, 25, 32, 40):
        w = min(window, n)
        wins = [
            math.fsum(-r for r in of_reference[i : i + w]) > math.fsum(-lp for lp in log_prob[i : i + w])
            for i in range(n - w + 1)
        ]
        shares.append(mean(wins))
    return mean(shares)


def aeca(token_ids, log_prob, counts, weight):
    """As its authors' script: the spread of p(x) times its information, each less the next, and that of log p."""
    information = [-math.log((counts[token] + 1) / (sum(counts) + len(counts))) for token in token_ids]
    weighed = [math.exp(lp) * of for lp, of in zip(log_prob, information, strict=True)]
    steps = [one - following for one, following in zip(weighed, [*weighed[1:], 0], strict=True)]
    return statistics.pstdev(steps) - weight * statistics.pstdev(log_prob)


def codec(log_prob, after):
    """Of the tokens between the tenth and the last, how much likelier they are alone."""
    kept = range(10, min(len(log_prob), len(after)) - 1)
    return mean(log_prob[i] - after[i] for i in kept) if kept else 0.0


def ez_mia(log_prob, top, of_reference):
    errors = [lp - r for lp, m, r in [*zip(log_prob, top, of_reference, strict=True)][1:] if lp != m]
    above, below = math.fsum(e for e in errors if e > 0), math.fsum(-e for e in errors if e < 0)
    return above / below if len(errors) >= 2 and below > 0 else 0.0


def camia_rising(log_prob):
    log_prob = log_prob[:200]
    rises = [lp > mean(log_prob[:t]) for t, lp in enumerate(log_prob) if t]
    return mean(rises) if rises else 0.0


def lempel_ziv(symbols):
    """Phrases of the parse of Lempel and Ziv (1978); what is left at the end is none."""
    phrases, phrase = set(), ()
    for symbol in symbols:
        phrase = (*phrase, symbol)
        if phrase not in phrases:
            phrases.add(phrase)
            phrase = ()
    return len(phrases)


def win(member, non_member):
    return 1.0 if member > non_member else 0.5 if member == non_member else 0.0


def auc(members, non_members):
    return mean(win(x, y) for x in members for y in non_members)


def delong_variance(members, non_members):
    """DeLong's variance of the AUC by its definition, all m n pairs."""
    area = auc(members, non_members)
    of_members = [mean(win(x, y) for y in non_members) for x in members]
    of_non_members = [mean(win(x, y) for x in members) for y in non_members]
    m, n = len(members), len(non_members)
    s10 = math.fsum((v - area) ** 2 for v in of_members) / (m - 1)
    s01 = math.fsum((v - area) ** 2 for v in of_non_members) / (n - 1)
    return s10 / m + s01 / n


def tpr_at_fpr(members, non_members, n_accepted):
    """Best TPR over all thresholds that accept at most `n_accepted` non-members."""
    best = 0.0
    for threshold in [*members, *non_members, math.inf]:
        if sum(y >= threshold for y in non_members) <= n_accepted:
            best = max(best, sum(x >= threshold for x in members) / len(members))
    return best
