"""Neighbors of a text: the same text with one word replaced by another that a masked language model proposes.

The Neighbor attack (Mattern et al. 2023) compares a text's loss with that of its neighbors, which are about as
plausible but were in nobody's training data. A word w is hidden, the masked model predicts it, and a candidate w~ has
the score

    p(w~ | context) / (1 - p(w | context))

The n best candidates over all words of the text are its neighbors. The original word is never its own replacement, in
whichever case.

word       what white space divides (for Chinese, jieba), without the punctuation around it
mask       one mask token hides the word, whatever its number of tokens, and the space before it
candidate  one token that is a whole word: letters and digits alone, with its space where the word has one. A word of
           several tokens cannot be proposed by one mask, so its own p(w | context) is 0

Mattern et al. blur the word's embedding by dropout; a mask is simpler, and draws nothing at random. A text of more than
n words is masked at n of them, drawn by the seed; every other text at all.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from mialib.batches import are_apart, encode, in_parts, right_padded, token_batches
from mialib.catalog.loading import load_masked_model
from mialib.models import rope_borders
from mialib.progress import progress as progress_of
from mialib.store import hash_texts
from mialib.text import check_texts, excerpt, word_spans, words

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    from mialib.scoring import Floats, LoadedScorer
    from mialib.token_stats import TokenRow, TokenStats


logger = logging.getLogger(__name__)

TOKENS_PER_BATCH = 8192  # padding included


class Vocabulary(NamedTuple):
    """The words that can replace a word: whole words of one token each."""

    word_of: dict[int, str]
    ids_of: dict[str, list[int]]  # by the word without its case
    is_word: torch.Tensor  # (V,) bool


class MaskedRow(NamedTuple):
    """A text with one word masked, as the masked model reads it."""

    start: int  # the word is text[start:end]
    end: int
    token_ids: list[int]
    mask_at: int  # which of the tokens is the mask
    is_window: bool  # whether the text was too long, and these are the tokens around the mask
    own: int | None  # the token that the masked word is to the tokenizer; None where it is several, or an unknown one


def make_neighbors(
    texts: Sequence[str],
    masked_lm: str,
    *,
    n_neighbors: int = 100,
    seed: int = 0,
    language: str = "en",
    progress: bool = True,
    saved: Iterable[list[tuple[list[str], bool]]] = (),
    save: Callable[[list[tuple[list[str], bool]]], None] | None = None,
) -> list[list[str]]:
    """The `n_neighbors` best neighbors of each text, best first, all different; each differs from the text in one word.

    `masked_lm` is a Hugging Face name (`roberta-base`), a folder or a lab model (`lab/en-masked`) with a byte-level BPE
    or WordPiece tokenizer. A text's neighbors depend on the text, the model, `n_neighbors` and `seed`, not on the other
    texts. If a text is longer than the model's context, the model sees each word with as many tokens around it as fit;
    the number of such texts is logged. `save` gets each finished part: neighbors, and whether the text was too long.
    `saved` are the parts that an earlier run saved. ValueError, naming the text, for a text with too few neighbors.

    >>> [neighbors] = make_neighbors(["The river rises in the hills."], "roberta-base", n_neighbors=3, progress=False)
    >>> len(neighbors)
    3
    """
    texts = check_texts(texts, "texts to make neighbors of")
    model, tokenizer = load_masked_model(masked_lm)
    spaced, unspaced = _vocabularies(model, tokenizer, language)
    context = _context(model, tokenizer)
    made = [one for part in saved for one in part]

    def make(i: int) -> tuple[list[str], bool]:
        text = texts[i]
        spans = _draw(_word_cores(text, language), n_neighbors, seed, text)
        vocabulary_of = [spaced if text[:start].endswith(" ") else unspaced for start, _ in spans]
        rows = _masked_rows(text, spans, tokenizer, context)
        of_rows = zip(vocabulary_of, rows, strict=True)
        n_possible = sum(len(known.word_of) - len(_not_another(text, row, known)) for known, row in of_rows)
        if n_possible < n_neighbors:
            raise ValueError(
                f"text {i}: {masked_lm} can replace {len(spans)} of its words and knows {n_possible} neighbors, "
                f"{n_neighbors} were asked for; ask for fewer, or leave the text out: {excerpt(text)}"
            )
        best = _best(model, tokenizer, text, rows, vocabulary_of, n_neighbors)
        if len(best) < n_neighbors:  # NaN is above nothing
            raise ValueError(f"text {i}: a prediction of {masked_lm} is not finite; is it whole? {excerpt(text)}")
        neighbors = [text[: rows[r].start] + word + text[rows[r].end :] for _, r, word in best]
        tell([i])
        return neighbors, any(row.is_window for row in rows)

    with progress_of(f"neighbors by {masked_lm}", dict(enumerate(map(len, texts))), progress) as tell:
        tell(range(len(made)), 0)
        for part in in_parts(map(make, range(len(made), len(texts)))):
            made += part
            if save and len(made) < len(texts):
                save(part)
    if n_long := sum(is_long for _, is_long in made):
        said = "%s: %d of %d texts are longer than its context of %d tokens; each word is seen with what is around it"
        logger.info(said, masked_lm, n_long, len(texts), context)
    return [neighbors for neighbors, _ in made]


def neighbor_log_probs(
    scorer: LoadedScorer,
    stats: TokenStats,
    neighbors: Sequence[Sequence[str]],
    *,
    progress: bool = True,
    saved: Iterable[dict[str, Floats]] = (),
    save: Callable[[dict[str, Floats]], None] | None = None,
) -> NDArray[np.float64]:
    """Mean log p of each neighbor under the scorer's model, (N, M), nats per token; N texts with M neighbors each.

    `stats` are the texts' own statistics under that model. ValueError where texts differ in their number of neighbors.
    `saved` and `save` are as for `make_neighbors`.
    """
    counts = {len(of_text) for of_text in neighbors}
    if len(stats) != len(neighbors) or len(counts) > 1:
        counted = f"{min(counts, default=0)} to {max(counts, default=0)}"
        raise ValueError(f"statistics of {len(stats)} texts, and {counted} neighbors of each of {len(neighbors)}")
    means = [row for part in saved for row in part["log_prob"]]

    def means_of(i: int) -> list[float]:
        # A text's neighbors are of almost one length, so a batch of them has next to no padding.
        log_probs = log_probs_of_variants(scorer, stats[i], neighbors[i])
        tell([i], sum(map(len, log_probs)))
        return [log_prob.mean(dtype=np.float64) for log_prob in log_probs]

    sizes = dict(enumerate(stats.n_tokens.tolist()))
    with progress_of(f"{scorer.loaded.name} on neighbors", sizes, progress) as tell:
        tell(range(len(means)), 0)
        for part in in_parts(map(means_of, range(len(means), len(neighbors)))):
            means += part
            if save and len(means) < len(neighbors):
                save({"log_prob": np.array(part)})
    return np.array(means).reshape(len(neighbors), -1 if len(neighbors) else 0)


def log_probs_of_variants(scorer: LoadedScorer, own: TokenRow, variants: Sequence[str]) -> list[Floats]:
    """Log p of each token of each variant of a text whose own statistics are `own`, (n_tokens,) each, nats.

    Up to where a variant parts from its text, a causal model's log-probs are the text's, and the output head runs on
    the rest alone. Nothing is shared without a start token, since the first token is then in no row of statistics, nor
    with a variant whose length makes the model read it otherwise (`mialib.models.rope_borders`).
    """
    variants, borders = check_texts(variants, "texts to score"), rope_borders(scorer.loaded.model.config)
    token_ids, n_cut = scorer.encode(variants, range(len(variants)))
    scorer.warn_of_cut(n_cut)
    shared, n_start = [], len(scorer.loaded.start_token_ids)
    more = max(0, n_start - 1)  # start tokens that are read after the first one, and not scored
    for ids in token_ids:
        if not n_start or are_apart(len(ids) - 1, len(own.token_ids) + more, borders):
            shared.append(0)
            continue
        n_shared = min(len(own.token_ids), len(ids) - n_start - 1)  # at least the last token is scored
        differs = own.token_ids[:n_shared] != np.asarray(ids[n_start : n_start + n_shared])
        shared.append(int(differs.argmax()) if differs.any() else n_shared)
    log_probs: list[Floats] = [np.empty(0)] * len(variants)
    for batch in scorer.batches(token_ids):
        rows = scorer.score_batch([token_ids[i] for i in batch], [more + shared[i] for i in batch])
        for i, row in zip(batch, rows, strict=True):
            scorer.check_finite(i, row, variants[i])
            log_probs[i] = np.concatenate([own.log_prob[: shared[i]], row.log_prob])
    return log_probs


def _vocabularies(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, language: str
) -> tuple[Vocabulary, Vocabulary]:
    """The tokens that are a whole word after a space, and those that are one after anything else.

    Byte-level BPE has the space in the token (" river"). WordPiece has no spaces: both vocabularies are the same.
    """
    import torch

    spaced: dict[str, int] = {}
    unspaced: dict[str, int] = {}
    for token_id in range(len(tokenizer)):
        string = cast(str, tokenizer.decode([token_id]))  # of one list of ids: no list
        word = string.removeprefix(" ")
        if word.isalnum() and len(words(word, language)) == 1:
            (unspaced if word == string else spaced)[word] = token_id

    def vocabulary(id_of: dict[str, int]) -> Vocabulary:
        is_word = torch.zeros(model.config.vocab_size, dtype=torch.bool)
        is_word[list(id_of.values())] = True
        ids_of: dict[str, list[int]] = {}
        for word, token_id in id_of.items():
            ids_of.setdefault(word.casefold(), []).append(token_id)
        return Vocabulary({token_id: word for word, token_id in id_of.items()}, ids_of, is_word.to(model.device))

    return vocabulary(spaced or unspaced), vocabulary(unspaced)


def _not_another(text: str, row: MaskedRow, vocabulary: Vocabulary) -> list[int]:
    """The words of the vocabulary that equal the masked one but for case or, to an uncased tokenizer, accents."""
    own = set() if row.own is None else {row.own} & vocabulary.word_of.keys()
    return sorted(own.union(vocabulary.ids_of.get(text[row.start : row.end].casefold(), [])))


def _context(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> int:
    """How many tokens the masked model reads, its start and end token included."""
    config = model.config
    first_position = config.pad_token_id + 1 if "roberta" in config.model_type else 0  # RoBERTa's follows the padding's
    return min(tokenizer.model_max_length, config.max_position_embeddings - first_position)


def _word_cores(text: str, language: str) -> list[tuple[int, int]]:
    """Where each word begins and ends without the punctuation around it; none for a word that is nothing else."""
    inside = ([at for at in range(*span) if text[at].isalnum()] for span in word_spans(text, language))
    return [(core[0], core[-1] + 1) for core in inside if core]


def _draw(spans: list[tuple[int, int]], n: int, seed: int, text: str) -> list[tuple[int, int]]:
    """At most n of the words, in the text's order; the text itself is part of the seed."""
    rng = np.random.default_rng([seed, int(hash_texts([text]), 16)])
    return [spans[at] for at in sorted(rng.permutation(len(spans))[:n])]


def _masked_rows(
    text: str, spans: Sequence[tuple[int, int]], tokenizer: PreTrainedTokenizerBase, context: int
) -> list[MaskedRow]:
    """The text with each of the words masked. The texts left and right of the mask are encoded by themselves."""
    lefts = [text[:start].removesuffix(" ") for start, _ in spans]
    rights = [text[end:] for _, end in spans]
    originals = [text[len(left) : end] for left, (_, end) in zip(lefts, spans, strict=True)]
    # Encoded apart from the mask token: a text may well hold the characters "<mask>".
    encoded, n = encode(tokenizer, lefts + rights + originals), len(spans)
    first, last = ([] if t is None else [t] for t in (tokenizer.cls_token_id, tokenizer.sep_token_id))
    room = context - len(first) - len(last)
    rows = []
    for (start, end), left, right, word in zip(spans, encoded[:n], encoded[n : 2 * n], encoded[2 * n :], strict=True):
        whole = [*left, tokenizer.mask_token_id, *right]
        cut = max(0, min(len(left) - room // 2, len(whole) - room))  # the mask in the middle, or near an end
        token_ids = [*first, *whole[cut : cut + room], *last]
        own = word[0] if len(word) == 1 and word != [tokenizer.unk_token_id] else None
        rows.append(MaskedRow(start, end, token_ids, len(first) + len(left) - cut, len(whole) > room, own))
    return rows


def _best(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    text: str,
    rows: Sequence[MaskedRow],
    vocabulary_of: Sequence[Vocabulary],
    n: int,
) -> list[tuple[float, int, str]]:
    """The n best candidates over all rows: score (nats), number of the row, word; best first."""
    import torch

    found: list[tuple[float, int, str]] = []
    # Never rows of two texts, so that the other texts change no number.
    for batch in token_batches([row.token_ids for row in rows], lambda: TOKENS_PER_BATCH):
        with torch.inference_mode():
            logits = _logits_at_mask(model, tokenizer, [rows[r] for r in batch])
            is_word = torch.stack([vocabulary_of[r].is_word for r in batch])
            for at, r in enumerate(batch):
                if rows[r].own is not None:
                    logits[at, rows[r].own] = -torch.inf  # without w, the softmax is p(w~) / (1 - p(w))
                is_word[at, _not_another(text, rows[r], vocabulary_of[r])] = False
            scores = logits.log_softmax(-1).masked_fill_(~is_word, -torch.inf).flatten()
            values, places = scores.topk(min(n, len(scores)))
        for value, place in zip(values.tolist(), places.tolist(), strict=True):
            r, token_id = batch[place // logits.shape[-1]], place % logits.shape[-1]
            if value > -np.inf:
                found.append((value, r, vocabulary_of[r].word_of[token_id]))
    return sorted(found, key=lambda one: (-one[0], one[1], one[2]))[:n]


def _logits_at_mask(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, rows: Sequence[MaskedRow]
) -> torch.Tensor:
    """(R, V) float32 logits at the mask, one forward pass; the head runs at the masks alone."""
    import torch

    inputs, lengths = right_padded([row.token_ids for row in rows], model.device, tokenizer.pad_token_id)
    is_real = torch.arange(inputs.shape[1], device=model.device) < lengths[:, None]
    hidden = model.base_model(inputs, attention_mask=is_real.long()).last_hidden_state  # else it sees the padding
    at_mask = hidden[torch.arange(len(rows)), [row.mask_at for row in rows]]
    head: Any = model.lm_head if hasattr(model, "lm_head") else model.cls  # RoBERTa's name for it, and BERT's
    return head(at_mask)
