"""Probing: does a model hold a text it was trained on otherwise than one it never saw? (Liu et al. 2024)

texts    some that no model was trained on; a coin calls half of them members
proxy    a copy of the target, fine-tuned on these members                                 (Section 3.3)
probe    logistic regression from the proxy's activations on these texts to the coin       (Section 3.4)
scores   the probe on the *target's* activations on the benchmark's texts                  (Section 3.5)

Layer and learning rate are those of the highest AUC on a fifth of the benchmark; the other four fifths are for
judging. Unlike the detectors of token statistics this one reads the weights, and needs the benchmark's labels to
choose, so it stands beside their registry and not in it.

A caveat of the method itself: the probe is fitted on activations of one model and applied to those of another. It
learns what two steps of fine-tuning do to the texts fine-tuned on, and that need not be what pre-training did.
"""

from __future__ import annotations

import logging
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mialib.batches import HeadLoss, one_thread, right_padded, token_batches
from mialib.catalog.models import TRAINING_BYTES, check_fits, load_model, model_revision, pick_dtype, start_token_of
from mialib.metrics import FloatArray, aucs
from mialib.model_selection import HELD_OUT, Candidates, Indices, stratified_split
from mialib.models import LoadedModel, find_head, pick_device
from mialib.scoring import fitting_tokens
from mialib.store import ARRAYS, code_hash, hash_of, hash_texts, keep
from mialib.text import check_texts, excerpt

if TYPE_CHECKING:
    import torch
    from sklearn.pipeline import Pipeline

logger = logging.getLogger(__name__)

SAMPLE = "[SAMPLE]"
PROMPT = f"Here is a statement: {SAMPLE} \n Is the above statement correct? Answer:"  # Section 3.3
# The paper prints no grid; the authors' scripts try 8e-4 to 1e-3 for TinyLLaMA and 2.5e-3 to 3.5e-3 for OpenLLaMA.
LEARNING_RATES = (1e-3, 3e-3, 1e-2)
N_TRAINING = 200  # texts to learn from, of which half are called members (Figure 3)
EPOCHS = 2  # each of them one batch of all member texts (Section 5.4)
TRAINING_TOKENS_AT_ONCE = 1024  # of that batch, with their logits and gradients in memory
TokenIds = list[int]


class Pass(NamedTuple):
    """Activations of one model on N texts."""

    values: NDArray[np.float32]  # (L + 1, N, D)
    n_cut: NDArray[np.int64]  # (N,), characters cut from each text's end so that its prompt fits


class Collected(NamedTuple):
    """All activations that a target's probes are fitted and scored on."""

    proxies: Mapping[float, NDArray[np.float32]]  # of each learning rate's proxy, on the M training texts (L + 1, M, D)
    coin: NDArray[np.int8]  # (M,), which of these the proxies were fine-tuned on
    target: Pass  # on the benchmark's texts


@dataclass(frozen=True)
class Chosen:
    """The probe of the highest validation AUC, with one way of standardizing."""

    scores: FloatArray  # (N,), logits; higher = more likely a member
    learning_rate: float  # of its proxy
    layer: int  # 1 is the first block, L the last
    validation_aucs: FloatArray  # (learning rates, L)


@dataclass(frozen=True)
class ProbeScores:
    """What the probe says of N texts, and on which of them it may be judged."""

    chosen: Chosen  # standardized by the probe's training activations
    leaking: Chosen  # each split standardized by its own statistics, as the authors' code does
    learning_rates: tuple[float, ...]
    validation: Indices  # the texts that layer and learning rate are chosen on
    test: Indices  # all others: judge on these alone
    n_cut: int  # texts whose end was cut to fit the context

    @property
    def scores(self) -> FloatArray:
        """(N,), higher = more likely a member."""
        return self.chosen.scores


def probe_scores(
    model: str,
    texts: Sequence[str],
    labels: ArrayLike,
    training_texts: Sequence[str],
    *,
    validation: Indices | None = None,
    learning_rates: Sequence[float] = LEARNING_RATES,
    seed: int = 0,
    device: str = "auto",
    dtype: str = "auto",
) -> ProbeScores:
    """The whole method for one target.

    `texts` and `labels` (N,) are the benchmark; `training_texts` are like them, and the target has seen none.
    `validation` are the numbers of the texts to choose on, a fifth of each class at random where it is not given; that
    and the coin are dealt out by `seed`. Raises as `collect` does.
    """
    given = {"learning_rates": learning_rates, "seed": seed, "device": device, "dtype": dtype}
    return choose_probe(*collect(model, texts, training_texts, **given), labels, seed, validation)


def collect(
    model: str,
    texts: Sequence[str],
    training_texts: Sequence[str],
    *,
    learning_rates: Sequence[float] = LEARNING_RATES,
    seed: int = 0,
    device: str = "auto",
    dtype: str = "auto",
) -> Collected:
    """Train a proxy at each learning rate and run it on the training texts, and the target on the benchmark's.

    Training texts that stand in the benchmark word for word are left out, with a warning. Activations are kept in the
    cache. ValueError for fewer than 4 training texts, and as in `activations` and `train_proxy`.
    """
    check_texts(texts, "texts to probe")
    known = set(texts)
    unseen = [text for text in training_texts if text not in known]
    if len(unseen) < len(training_texts):
        logger.warning(
            "%d of %d training texts stand in the benchmark; left out",
            len(training_texts) - len(unseen),
            len(training_texts),
        )
    if len(unseen) < 4:
        raise ValueError(f"{len(unseen)} training texts outside the benchmark; the coin needs at least 4")
    coin = flip_coin(len(unseen), seed)
    members = [text for text, side in zip(unseen, coin, strict=True) if side]
    target = _target_pass(model, texts, device, dtype)
    proxies = {rate: _proxy_pass(model, members, rate, unseen, device, dtype).values for rate in learning_rates}
    return Collected(proxies, coin, target)


def flip_coin(n: int, seed: int = 0) -> NDArray[np.int8]:
    """Which of `n` unseen texts are called members, (n,): a random half, rounded down (Section 4.2)."""
    return (np.random.default_rng(seed).permutation(n) < n // 2).astype(np.int8)


# --- the probe: arrays only -------------------------------------------------------------------------------------------


def fit_probe(activations_layer: FloatArray, labels: ArrayLike) -> Pipeline:
    """Standardization and logistic regression of one layer's activations (M, D) on labels (M,), both fitted here alone.

    sigma(W x) has no bias (Section 3.4).
    """
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    probe = make_pipeline(StandardScaler(), LogisticRegression(fit_intercept=False, max_iter=1000))
    return probe.fit(np.asarray(activations_layer, np.float64), np.asarray(labels))


def leaking_scores(probe: Pipeline, activations_layer: FloatArray, splits: Sequence[Indices]) -> FloatArray:
    """The probe's logits, (N,), where each split is standardized by its own mean and deviation.

    So the authors' code does it, and a text's score then depends on the others that it is tested with. Within a split
    the mean shifts all scores alike, so what changes an AUC are the deviations alone. `splits` deal out all N texts.
    """
    from sklearn.preprocessing import StandardScaler

    activations_layer = np.asarray(activations_layer, np.float64)
    scores = np.full(len(activations_layer), np.nan)
    for split in splits:
        scores[split] = probe[-1].decision_function(StandardScaler().fit_transform(activations_layer[split]))
    return scores


def fit_probes(proxies: Mapping[float, FloatArray], coin: ArrayLike) -> dict[tuple[float, int], Pipeline]:
    """A probe for each learning rate and layer, the layer varying fastest; see `Collected`.

    The embeddings, layer 0, are no candidate: every prompt ends in the same token.
    """
    return {
        (rate, layer): fit_probe(of_proxy[layer], coin)
        for rate, of_proxy in proxies.items()
        for layer in range(1, len(of_proxy))
    }


def probe_candidates(probes: Mapping[tuple[float, int], Pipeline], target: Pass) -> Candidates:
    """The scores of each probe on the target's activations, to choose from like any detector's hyperparameters."""
    scores = [probe.decision_function(target.values[layer].astype(np.float64)) for (_, layer), probe in probes.items()]
    options = tuple({"learning_rate": rate, "layer": layer} for rate, layer in probes)
    return Candidates(options, np.stack(scores))


def validation_and_test(labels: ArrayLike, seed: int = 0, validation: Indices | None = None) -> tuple[Indices, Indices]:
    """The texts to choose a probe on, a fifth of each class at random where they are not given, and all others.

    ValueError where one of the two lacks a class.
    """
    labels = np.asarray(labels)
    if validation is None:
        validation, test = stratified_split(labels, HELD_OUT, seed)
    else:
        test = np.setdiff1d(np.arange(len(labels)), validation)
    for name, texts in (("validation", validation), ("test", test)):
        if len(np.unique(labels[texts])) < 2:
            raise ValueError(
                f"of the {len(texts)} {name} texts {int(labels[texts].sum())} are members; both classes are needed. "
                "Is it the benchmark's `split` column that says which they are?"
            )
    return validation, test


def choose_probe(
    proxies: Mapping[float, FloatArray],
    coin: ArrayLike,
    target: Pass,
    labels: ArrayLike,
    seed: int = 0,
    validation: Indices | None = None,
) -> ProbeScores:
    """Of the probes of all learning rates and layers the one of the highest AUC on the validation texts.

    The first three are a `Collected`; the texts are as `validation_and_test` gives them. Of several best probes the
    first is taken.
    """
    labels = np.asarray(labels)
    if len(labels) != target.values.shape[1]:
        raise ValueError(f"{len(labels)} labels for the activations of {target.values.shape[1]} texts")
    validation, test = validation_and_test(labels, seed, validation)
    probes = fit_probes(proxies, coin)
    candidates = probe_candidates(probes, target)
    leaking = np.stack(
        [leaking_scores(probe, target.values[layer], (validation, test)) for (_, layer), probe in probes.items()]
    )

    def best(scores: FloatArray) -> Chosen:
        on_validation = aucs(labels[validation], scores[:, validation])
        at = int(on_validation.argmax())
        grid = on_validation.reshape(len(proxies), -1)
        return Chosen(scores[at], candidates.options[at]["learning_rate"], int(candidates.options[at]["layer"]), grid)

    n_cut = int((target.n_cut > 0).sum())
    return ProbeScores(best(candidates.scores), best(leaking), tuple(proxies), validation, test, n_cut)


# --- controls ---------------------------------------------------------------------------------------------------------


def judge_half(activations_layers: FloatArray, labels: ArrayLike, seed: int = 0) -> tuple[Indices, FloatArray]:
    """A probe of each layer but the embeddings, fitted on a random half of each class: the other half and its logits.

    `activations_layers` (L + 1, N, D), `labels` (N,); returns the numbers of the judged texts (J,) and (L, J) logits.

    Two controls rest on it. With the target's activations and who is a *member*, it says what a linear probe like ours
    could tell if membership were known, which no attacker knows. With a proxy's activations and the *coin*, it says
    whether the proxy tells the texts that it was fine-tuned on: what the probe learns, judged where it learned it.
    """
    fitted, judged = stratified_split(labels, 0.5, seed)
    labels = np.asarray(labels)
    logits = [
        fit_probe(layer[fitted], labels[fitted]).decision_function(layer[judged].astype(np.float64))
        for layer in activations_layers[1:]
    ]
    return judged, np.stack(logits)


# --- activations ------------------------------------------------------------------------------------------------------


def activations(
    model: str | LoadedModel, texts: Sequence[str], *, device: str = "auto", dtype: str = "auto"
) -> NDArray[np.float32]:
    """The hidden state of each prompted text's last token at every layer, (L + 1, N, D): embeddings, then each block.

    As in Hugging Face's `hidden_states`, most families' last one has gone through the final norm. Where a layer is
    narrower than D (OPT-350M's last), zeros fill it up; a probe gives them no weight. A text whose prompt is longer
    than the context loses its end, never the prompt's; a warning counts them. A model by name goes through the cache. A
    loaded one is run as it is, with its own device and dtype: its weights may have changed since. ValueError for an
    empty text and an activation that is not finite.
    """
    if isinstance(model, LoadedModel):
        return _run(model, texts).values
    return _target_pass(model, texts, device, dtype).values


def encode_prompts(loaded: LoadedModel, texts: Sequence[str]) -> tuple[list[TokenIds], NDArray[np.int64]]:
    """Token ids of each text in the prompt, start token first, and how many characters each text lost, (N,).

    A text is cut to the longest beginning whose whole prompt fits the context. ValueError where none does.
    """
    check_texts(texts, "texts to probe")
    start = [] if loaded.start_token_id is None else [loaded.start_token_id]
    room = loaded.max_tokens - len(start)

    def ids_of(some: Sequence[str]) -> list[TokenIds]:
        prompts = [PROMPT.replace(SAMPLE, text) for text in some]
        return loaded.tokenizer(prompts, add_special_tokens=False, verbose=False)["input_ids"]

    token_ids = ids_of(texts) if texts else []
    n_cut = np.zeros(len(texts), np.int64)
    for i, text in enumerate(texts):
        if len(token_ids[i]) <= room:
            continue
        fits = bisect_right(range(len(text)), room, key=lambda n: len(ids_of([text[:n]])[0])) - 1
        if fits < 1:
            raise ValueError(
                f"{loaded.name}: a context of {loaded.max_tokens} tokens holds the prompt and nothing of text {i}; "
                f"the probe needs a longer one: {excerpt(text)}"
            )
        token_ids[i], n_cut[i] = ids_of([text[:fits]])[0], len(text) - fits
    if n_cut.any():
        logger.warning(
            "%s: %d of %d texts and the prompt exceed its context of %d tokens; %d characters at their ends are cut",
            loaded.name,
            int((n_cut > 0).sum()),
            len(texts),
            loaded.max_tokens,
            int(n_cut.sum()),
        )
    return [start + ids for ids in token_ids], n_cut


def _run(loaded: LoadedModel, texts: Sequence[str]) -> Pass:
    """One forward pass, rows padded on the right: no real token of a causal model sees what comes after it."""
    import torch

    token_ids, n_cut = encode_prompts(loaded, texts)
    device = loaded.model.device
    values = np.zeros((0, len(texts), 0), np.float32)
    budget = fitting_tokens(loaded, every_layer=True)
    for batch in token_batches(token_ids, lambda: budget):
        inputs, lengths = right_padded([token_ids[i] for i in batch], device)
        with torch.inference_mode():
            states = loaded.model.base_model(inputs, output_hidden_states=True, use_cache=False).hidden_states
        if not values.size:
            values = np.zeros((len(states), len(texts), max(state.shape[-1] for state in states)), np.float32)
        rows = torch.arange(len(batch), device=device)
        for layer, state in enumerate(states):
            values[layer, batch, : state.shape[-1]] = state[rows, lengths - 1].float().cpu().numpy()
    wrong = np.argwhere(~np.isfinite(values).all(axis=2))
    if len(wrong):
        layer, i = wrong[0]
        raise ValueError(
            f"text {i}: layer {layer} of {loaded.name} in {loaded.model.dtype} is not finite; is its dtype wide "
            f"enough, and its learning rate low enough? {excerpt(texts[i])}"
        )
    return Pass(values, n_cut)


# --- the proxy --------------------------------------------------------------------------------------------------------


def train_proxy(
    model: str,
    member_texts: Sequence[str],
    learning_rate: float,
    epochs: int = EPOCHS,
    *,
    device: str = "auto",
    dtype: str = "auto",
) -> LoadedModel:
    """A copy of a model, by name or folder, fine-tuned on the prompted texts: one batch of them all, an epoch a step.

    AdamW at a constant learning rate, without weight decay, on the mean loss a token of the whole prompt, as in the
    authors' code. The batch goes through in chunks whose gradients add up to its own. Dropout is off, so that the
    chunks do not matter and nothing is random. Weights and optimizer are float32, 16 bytes a parameter, and only then
    take the `dtype` that the target has: in bfloat16 most steps of this size would round to nothing. The model's own
    files are only read. FloatingPointError where the loss becomes NaN or infinite.
    """
    import torch

    check_fits(model, pick_device(device), TRAINING_BYTES)
    loaded = load_model(model, device=device, dtype="float32")
    weights = loaded.model.requires_grad_(True)
    token_ids, _ = encode_prompts(loaded, member_texts)
    head = find_head(loaded)
    n_predicted = sum(len(ids) - 1 for ids in token_ids)
    optimizer = torch.optim.AdamW(weights.parameters(), lr=learning_rate, weight_decay=0.0)
    with one_thread():
        for _ in range(epochs):
            optimizer.zero_grad(set_to_none=True)
            for chunk in token_batches(token_ids, lambda: TRAINING_TOKENS_AT_ONCE):
                loss = _summed_loss(weights, head, [token_ids[i] for i in chunk]) / n_predicted
                if not torch.isfinite(loss):
                    raise FloatingPointError(
                        f"{model}: the proxy's loss became {loss.item()} at learning rate {learning_rate:g}; lower it"
                    )
                loss.backward()
            optimizer.step()
    weights.requires_grad_(False).to(pick_dtype(dtype, weights.device, model))
    recipe = {"of": loaded.revision, "members": hash_texts(member_texts), "rate": learning_rate, "epochs": epochs}
    return replace(loaded, name=f"proxy of {model} at learning rate {learning_rate:g}", revision=hash_of(recipe))


def _summed_loss(model: Any, head: torch.nn.Linear | None, token_ids: list[TokenIds]) -> torch.Tensor:
    """The loss of all tokens but the first of each text, summed, in nats; without the logits at once where it can."""
    import torch

    inputs, lengths = right_padded(token_ids, model.device)
    is_real = torch.arange(inputs.shape[1] - 1, device=model.device) < lengths[:, None] - 1
    targets = inputs[:, 1:][is_real]
    if head is not None and head.bias is None:
        hidden = model.base_model(inputs, use_cache=False).last_hidden_state[:, :-1][is_real]
        return len(targets) * HeadLoss.apply(hidden, head.weight, targets)
    logits = model(inputs, use_cache=False).logits[:, :-1][is_real]
    return torch.nn.functional.cross_entropy(logits.float(), targets, reduction="sum")


# --- once -------------------------------------------------------------------------------------------------------------


def _target_pass(model: str, texts: Sequence[str], device: str, dtype: str) -> Pass:
    """Activations of a model, from the cache where they are there."""
    return _once(lambda: load_model(model, device=device, dtype=dtype), model, texts, device, dtype)


def _proxy_pass(
    model: str, member_texts: Sequence[str], learning_rate: float, texts: Sequence[str], device: str, dtype: str
) -> Pass:
    """Activations of a model's proxy, which is trained where they are not in the cache, and not kept."""
    return _once(
        lambda: train_proxy(model, member_texts, learning_rate, device=device, dtype=dtype),
        model,
        texts,
        device,
        dtype,
        members=hash_texts(member_texts),
        learning_rate=learning_rate,
    )


def _once(
    load: Callable[[], LoadedModel], model: str, texts: Sequence[str], device: str, dtype: str, **made_by: Any
) -> Pass:
    """A pass over the texts from the cache, where its file's name is a hash of all that determines it."""
    where = pick_device(device)
    kept = keep(
        "activations",
        lambda: _run(load(), texts)._asdict(),
        ARRAYS,
        model=model_revision(model),
        texts=hash_texts(texts),
        device=where.type,
        dtype=str(pick_dtype(dtype, where, model)),
        start_token=start_token_of(model),
        code=code_hash("attacks.probe", apart=("catalog", "lab")),
        versions=[version("torch"), version("transformers")],
        **made_by,
    )
    return Pass(kept["values"], kept["n_cut"])
