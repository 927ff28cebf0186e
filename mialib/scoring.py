"""One forward pass from texts to token statistics.

For a text with tokens x_1 ... x_n and start token x_0 the model reads x_0 ... x_(n-1) and predicts x_1 ... x_n:

    input      x_0  x_1  x_2  ...  x_(n-1)
    target     x_1  x_2  x_3  ...  x_n        -> n scored tokens, one statistics row each

Batches are of texts of similar length, longest first, up to a token budget; another thread tokenizes the next texts.
Rows are padded on the right with no attention mask: a causal model's real positions cannot see what comes after them,
and padded positions are dropped before the output head. The head runs over a chunk of positions at a time, so the
(tokens, vocabulary) logits never exist at once. A batch that does not fit into memory is halved.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from threading import RLock
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from mialib.batches import (
    CHARACTERS_A_TOKEN,
    FREE_PADDING,
    encode,
    in_parts,
    longest_first,
    n_unread,
    part_of_each,
    right_padded,
    token_batches,
)
from mialib.model_check import check_model
from mialib.models import (
    LoadedModel,
    exact_products,
    fast_products,
    free_bytes,
    recorded_start,
    rope_borders,
)
from mialib.progress import progress as progress_of
from mialib.store import hash_texts, mialib_version
from mialib.text import check_texts, excerpt
from mialib.token_stats import StatsPart, TokenRow, TokenStats
from mialib.versions import versions_of

logger = logging.getLogger(__name__)

Floats = NDArray[np.floating]
Statistics = tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]

LOWEST = -1e4  # e^d is 0 long before; keeps d e^d from being -inf * 0 where a model masks tokens out
TOKENS_PER_BATCH = {"cpu": 1024, "cuda": 32768, "mps": 4096}  # padding included; fewer where memory is short
TEXTS_AT_ONCE, CHARACTERS_AT_ONCE = 1024, 2**22  # tokenized ahead
# Float32 logits of one chunk of rows. A GPU reads the whole output head again for each chunk, which on an H200 takes
# less time than the product from some 200 rows on; at a vocabulary of 262,144 these are 512 rows. A processor works by
# rows only for a model that runs whole, else by columns.
LOGITS_AT_ONCE_BYTES = {"cpu": 4 * 2**20, "cuda": 512 * 2**20, "mps": 128 * 2**20}
CPU_COLUMNS_AT_ONCE = 2048  # of the vocabulary: the logits of a batch then stay in the cache while they are needed


def row_statistics(logits: torch.Tensor, targets: torch.Tensor) -> Statistics:
    """Log-prob of the target, entropy, variance of log p and the largest log p for rows of logits; overwrites `logits`.

    `logits` is (R, V) float32, `targets` (R,) int64. Returns four (R,) float32 tensors in nats, nats, nats^2 and nats.
    With d = z - max z and s_j = sum_v d_v^j e^(d_v): log p(t) = d_t - log s_0, H = log s_0 - s_1 / s_0,
    Var = s_2 / s_0 - (s_1 / s_0)^2, max log p = -log s_0. The shift keeps Var exact where one token has all the mass.
    """
    d = logits.sub_(logits.amax(dim=-1, keepdim=True))
    log_prob = d.gather(-1, targets[:, None]).squeeze(-1)
    return _from_sums(log_prob, *_power_sums(d.clamp_(min=LOWEST)))


def head_statistics(
    hidden: torch.Tensor,
    head: torch.nn.Linear,
    targets: torch.Tensor,
    n_columns: int = CPU_COLUMNS_AT_ONCE,
    temperature: float = 1.0,
    memory: torch.Tensor | None = None,
) -> Statistics:
    """`row_statistics` of an output head's logits of (R, hidden size) hidden states, `n_columns` of them at a time.

    The logits are divided by `temperature`; `memory` is float32 to work in, at least 2 R n_columns. The sums of
    `row_statistics` are carried from block to block. Where the maximum rises by r, d falls by r: s_0, s_1 and s_2
    become s_0, s_1 - r s_0 and s_2 - 2 r s_1 + r^2 s_0, each times e^(-r), all of them sums of terms of one sign.
    """
    weight, bias = head.weight, head.bias
    rows, maximum = hidden.float(), torch.full((len(hidden), 1), torch.finfo(torch.float32).min)  # (R, 1)
    of_target = torch.empty(len(hidden))  # (R,)
    s0, s1, s2 = torch.zeros(3, len(hidden), dtype=torch.float64)  # (R,) each
    size = len(hidden) * n_columns
    memory = torch.empty(2 * size) if memory is None else memory  # one for all blocks: fresh memory is slow
    logits, weighted = memory[:size], memory[size : 2 * size]
    for start in range(0, len(weight), n_columns):
        of_block = weight[start : start + n_columns].float()
        shape = len(hidden), len(of_block)
        with exact_products(hidden, weight):
            d = torch.mm(rows, of_block.T, out=logits[: shape[0] * shape[1]].view(shape))  # (R, columns of the block)
        if bias is not None:
            d.add_(bias[start : start + n_columns])
        if temperature != 1:
            d.div_(temperature)
        here = ((targets >= start) & (targets < start + n_columns)).nonzero()[:, 0]
        of_target[here] = d[here, targets[here] - start]
        higher = torch.maximum(maximum, d.amax(dim=-1, keepdim=True))
        rise = (higher - maximum).squeeze(1).clamp_(max=-LOWEST).double()  # (R,)
        maximum, fall = higher, torch.exp(-rise)
        s0, s1, s2 = s0 * fall, (s1 - rise * s0) * fall, (s2 - 2 * rise * s1 + rise * rise * s0) * fall
        d.sub_(maximum)
        if bias is not None:  # which may be -inf for a token that is never to come
            d.clamp_(min=LOWEST)
        more = _power_sums(d, weighted[: shape[0] * shape[1]].view(shape))
        s0, s1, s2 = s0 + more[0], s1 + more[1], s2 + more[2]
    log_prob, entropy, variance, highest = _from_sums((of_target - maximum.squeeze(1)).double(), s0, s1, s2)
    return log_prob.float(), entropy.float(), variance.float(), highest.float()


def _power_sums(d: torch.Tensor, out: torch.Tensor | None = None) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The sums of e^d, d e^d and d^2 e^d over each row, (R,); `out` is memory to work in, like `d`."""
    weighted = torch.exp(d, out=out)
    return weighted.sum(-1), weighted.mul_(d).sum(-1), weighted.mul_(d).sum(-1)


def _from_sums(d_of_target: torch.Tensor, s0: torch.Tensor, s1: torch.Tensor, s2: torch.Tensor) -> Statistics:
    mean, log_s0 = s1 / s0, s0.log()
    return d_of_target - log_s0, log_s0 - mean, (s2 / s0 - mean * mean).clamp_(min=0), -log_s0


@cache
def one_pass_kernel() -> Callable[[torch.Tensor, torch.Tensor], tuple[torch.Tensor, ...]] | None:
    """`mialib.kernels.one_pass_statistics`, or None where it doesn't run on this machine's GPU, with a warning why."""
    try:
        from mialib.kernels import one_pass_statistics

        target = torch.zeros(1, dtype=torch.long, device="cuda")
        one_pass_statistics(torch.zeros(1, 1, device="cuda"), target)[0].item()  # waits, so that a failure shows here
    except Exception as error:  # no Triton, no C compiler or headers for it, a GPU or driver too old for it, ...
        why = f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}"
        logger.warning("token statistics take longer: their Triton kernel fails here (%s)", why)
        return None
    return one_pass_statistics


def statistics_of_rows(logits: torch.Tensor, targets: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """`row_statistics` by the fastest way there is: in one pass on a GPU, which needs no memory to work in."""
    kernel = one_pass_kernel() if logits.is_cuda else None
    return (kernel or row_statistics)(logits, targets)


def fitting_tokens(loaded: LoadedModel, *, every_layer: bool = False) -> int:
    """Tokens of a batch, padding included, that fill half of the free memory, at most `TOKENS_PER_BATCH`.

    `every_layer` keeps the hidden states of all layers.
    """
    config, device = loaded.model.config.get_text_config(), loaded.device
    width = config.hidden_size
    inner = getattr(config, "intermediate_size", None) or 4 * width
    kept = config.num_hidden_layers * width if every_layer else 0
    # Of a layer, in the weights' type: hidden states, queries, keys, values and their kin, and the MLP's inner layer.
    bytes_a_token = (10 * width + 3 * inner + kept) * loaded.model.dtype.itemsize
    return max(1, min(TOKENS_PER_BATCH[device.type], free_bytes(device) // 2 // bytes_a_token))


class LoadedScorer:
    """A causal language model that scores texts; threads that share it take turns. `mialib.Scorer` takes a name."""

    def __init__(self, model: LoadedModel) -> None:
        self.loaded = model
        self.device = model.device
        self.tokens_per_batch = fitting_tokens(model)
        self._head = check_model(model)
        self._borders = [n + 1 for n in rope_borders(model.model.config)]  # the last token is predicted and never read
        self._begin = max(0, len(model.start_token_ids) - 1)  # of several start tokens the last one predicts the text
        self._memory = torch.empty(0)  # for logits on a processor, kept from batch to batch
        self._turn = RLock()

    def score(
        self,
        texts: Sequence[str],
        *,
        after: str = "",
        temperature: float = 1.0,
        part: tuple[int, int] | None = None,
        progress: bool = True,
        saved: Iterable[StatsPart] = (),
        save: Callable[[StatsPart], None] | None = None,
    ) -> TokenStats:
        """Token statistics of each of N texts, in the order given.

        - `after` is read before each text and not scored itself; its tokens make a pass longer.
        - `temperature` t divides the logits: all columns are computed from p_t(v) = p(v)^(1/t) / sum_u p(u)^(1/t).
        - `part`, for example (3, 16), scores only the third of sixteen parts. A part has whole batches of the whole
          pass, since the last bits depend on the batch: those whose first text `batches.part_of_each` puts in it.
          `provenance["numbers"]` has the texts' numbers. If memory is short, batches differ, and texts may be left out.
        - `progress` shows a bar in a terminal, and elsewhere logs a line now and then.
        - `save` is called with each part of a long pass once the part is scored. `saved` are the parts that an
          earlier run on the same texts saved; they are not scored again.

        A text longer than the model's context is cut there; `n_cut` counts its lost tokens and a warning sums them up.
        ValueError, naming the text, for an empty text, for a text without a token to score, and for a log-prob that is
        not finite; also for an `after` of more than half of the context, and for a temperature that is not positive.
        """
        if not 0 < temperature < math.inf:
            raise ValueError(f"a temperature is a positive number, got {temperature}")
        texts = check_texts(texts, "texts to score")
        done = list(saved)
        number, n_parts = part or (1, 1)
        is_own, is_scored = part_of_each(texts, n_parts) == number, np.zeros(len(texts), bool)
        for numbers, _ in done:
            is_scored[numbers] = True
        longest = CHARACTERS_A_TOKEN * self.loaded.max_tokens
        sizes = {i: min(len(texts[i]), longest) for i in np.flatnonzero(is_own).tolist()}
        with self._turn, progress_of(self.loaded.name, sizes, progress) as tell:
            for some in in_parts(self._batches(texts, after, temperature, is_own, is_scored, tell)):
                numbers = np.sort(np.concatenate([batch.numbers for batch in some]))
                is_scored[numbers] = True
                done.append(StatsPart(numbers, TokenStats.joined(some, provenance={})))
                if save and not is_scored.all():
                    save(done[-1])
        provenance = self.provenance(texts)
        provenance |= {"after": hash_texts([after])} if after else {}
        provenance |= {"temperature": temperature} if temperature != 1 else {}
        provenance |= {"numbers": np.flatnonzero(is_scored).tolist()} if part else {}
        stats = TokenStats.joined(done, provenance=provenance)
        self.warn_of_cut(stats.n_cut)
        return stats

    def _batches(
        self,
        texts: Sequence[str],
        after: str,
        temperature: float,
        is_own: NDArray[np.bool_],
        is_scored: NDArray[np.bool_],
        tell: Callable[[Sequence[int], int], None],
    ) -> Iterator[StatsPart]:
        """The statistics of each batch in turn that begins with one's own text and has one that is not yet scored."""
        before = self.token_ids([after])[0] if after else []
        n_before = len(before) + len(self.loaded.start_token_ids)
        if len(before) > self.loaded.max_tokens // 2:
            raise ValueError(
                f"{len(before)} tokens before each text leave it less than half of {self.loaded.name}'s context of "
                f"{self.loaded.max_tokens}; give fewer: {excerpt(after)}"
            )
        begin = self._begin + len(before)
        for numbers, token_ids, n_cut in self._encode_ahead(texts, before, is_own):
            for batch in self.batches(token_ids):
                of_batch = np.array([numbers[at] for at in batch])
                if not is_own[of_batch[0]]:
                    continue
                rows: list[TokenRow] = []
                if not is_scored[of_batch].all():
                    rows = self.score_batch([token_ids[at] for at in batch], [begin] * len(batch), temperature)
                    for i, row in zip(of_batch, rows, strict=True):
                        self.check_finite(i, row, texts[i])
                    lost = [n_cut[at] for at in batch]
                    own = [token_ids[at][n_before:] for at in batch]
                    unread = [
                        n and n_unread(self.loaded.tokenizer, texts[i], ids)
                        for i, ids, n in zip(of_batch, own, lost, strict=True)
                    ]
                    part = TokenStats.from_rows(rows, n_cut=lost, n_unread=unread, provenance={})
                    yield StatsPart(of_batch, part)
                tell(of_batch[is_own[of_batch]], sum(len(row.log_prob) for row in rows))

    def provenance(self, texts: Sequence[str]) -> dict[str, Any]:
        """What the statistics of `texts` were made with, to be stored with them."""
        loaded = self.loaded
        return {
            "model": loaded.name,
            "revision": loaded.revision,
            "tokenizer": loaded.tokenizer_hash,
            "dtype": str(loaded.model.dtype).removeprefix("torch."),
            "device": self.device.type,
            "start_token_id": recorded_start(loaded.start_token_ids),
            "start_token": loaded.start_token,
            "max_tokens": loaded.max_tokens,
            "texts": hash_texts(texts),
            "lowercased": hash_texts(text.lower() for text in texts),
            "n_texts": len(texts),
            "mialib": mialib_version(),
            "versions": versions_of("scoring"),
        }

    def batches(self, token_ids: Sequence[Sequence[int]]) -> Iterator[list[int]]:
        """The texts' numbers in batches of texts of similar length; `token_ids` as `encode` gives them."""
        return token_batches(token_ids, lambda: self.tokens_per_batch, self._borders, n_free=FREE_PADDING)

    def token_ids(self, texts: Sequence[str]) -> list[list[int]]:
        """The token ids of each text, without start token and not cut to the context."""
        return encode(self.loaded.tokenizer, texts)

    def _encode_ahead(
        self, texts: Sequence[str], before: Sequence[int], is_own: NDArray[np.bool_]
    ) -> Iterator[tuple[list[int], list[list[int]], list[int]]]:
        """Numbers, token ids and lost tokens of blocks of texts, longest first; the next one is tokenized meanwhile.

        Blocks without a text of one's own are left out.
        """
        blocks: list[list[int]] = [[]]
        n_characters = 0  # of the block that is being filled
        for i in longest_first(texts):
            n_characters += len(texts[i])
            if n_characters > CHARACTERS_AT_ONCE or len(blocks[-1]) == TEXTS_AT_ONCE:
                blocks.append([])
                n_characters = len(texts[i])
            blocks[-1].append(i)
        blocks = [block for block in blocks if is_own[block].any()] or [[]]
        with ThreadPoolExecutor(1) as pool:
            ahead = pool.submit(self.encode, texts, blocks[0], before)
            for numbers, following in zip(blocks, [*blocks[1:], []], strict=True):
                encoded = ahead.result()
                ahead = pool.submit(self.encode, texts, following, before)
                yield numbers, *encoded

    def encode(
        self, texts: Sequence[str], numbers: Sequence[int], before: Sequence[int] = ()
    ) -> tuple[list[list[int]], list[int]]:
        """Token ids of the texts with these numbers, and how many tokens each lost at its end.

        The ids begin with the start tokens and `before`, and end one token beyond the context: the last is only
        predicted. ValueError, naming the text, if no token is left to score, and for a token without an embedding.
        """
        start, n_embedded = [*self.loaded.start_token_ids, *before], self.loaded.n_embedded
        longest = self.loaded.max_tokens + 1 - len(start)
        token_ids, n_cut = [], []
        for i, ids in zip(numbers, self.token_ids([texts[i] for i in numbers]), strict=True):
            if (n := len(ids)) < (1 if self.loaded.start_token_ids else 2):
                why = "" if self.loaded.start_token_ids else " and no start token is prepended"
                raise ValueError(
                    f"text {i} has {n} token{'s' * (not n)}{why}, so nothing can be scored: {excerpt(texts[i])}"
                )
            token_ids.append(start + ids[:longest])
            if (highest := max(token_ids[-1])) >= n_embedded:
                token = self.loaded.tokenizer.convert_ids_to_tokens(highest)
                raise ValueError(
                    f"text {i} holds {token!r}, number {highest} of the tokenizer, and {self.loaded.name} embeds "
                    f"{n_embedded} tokens: {excerpt(texts[i])}"
                )
            n_cut.append(max(0, n - longest))
        return token_ids, n_cut

    def warn_of_cut(self, n_cut: Sequence[int] | NDArray[np.integer]) -> None:
        """Log how many texts and tokens did not fit into the context; `n_cut` (N,)."""
        if np.any(n_cut):
            logger.warning(
                f"{self.loaded.name}: {np.count_nonzero(n_cut)} of {len(n_cut)} texts are longer than its context of "
                f"{self.loaded.max_tokens} tokens; {np.sum(n_cut)} tokens at their ends are not scored"
            )

    def check_finite(self, i: int, row: TokenRow, text: str) -> None:
        """Raise ValueError if a log-prob of text `i` is not finite."""
        if not np.isfinite(row.log_prob).all():
            at = int(np.flatnonzero(~np.isfinite(row.log_prob))[0])
            raise ValueError(
                f"text {i}, token {at}: log-prob {row.log_prob[at]} under {self.loaded.name} in "
                f"{self.loaded.model.dtype}; is the model whole, and its dtype wide enough? {excerpt(text)}"
            )

    def score_batch(self, token_ids: list[list[int]], begins: list[int], temperature: float = 1.0) -> list[TokenRow]:
        """Statistics of one batch's texts in one forward pass, of text i from its token number `begins[i]` on.

        Token number 0 is the token after the first id.
        If memory is short, each half gets a pass, and later batches are smaller; MemoryError for a single text.
        """
        try:
            with self._turn:
                return self._forward(token_ids, begins, temperature)
        except RuntimeError as error:  # a processor's has no class of its own
            if not isinstance(error, torch.OutOfMemoryError) and "DefaultCPUAllocator" not in str(error):
                raise
        if len(token_ids) == 1:
            raise MemoryError(
                f"a text of {len(token_ids[0])} tokens does not fit into the memory of {self.device} beside "
                f"{self.loaded.name}; cut the texts, or take a larger machine"
            )
        half = len(token_ids) // 2
        self.tokens_per_batch = max(1, min(self.tokens_per_batch, half * len(token_ids[0])))
        logger.warning("%s: out of memory; %d tokens a batch from here on", self.loaded.name, self.tokens_per_batch)
        if self.device.type == "cuda":
            torch.cuda.empty_cache()
        halves = slice(half), slice(half, None)
        return [row for of in halves for row in self.score_batch(token_ids[of], begins[of], temperature)]

    def _forward(self, token_ids: list[list[int]], begins: list[int], temperature: float) -> list[TokenRow]:
        """Statistics of texts from one forward pass."""
        inputs, lengths = right_padded([ids[:-1] for ids in token_ids], "cpu")  # (texts, longest), (texts,)
        targets = [ids[1 + begin :] for ids, begin in zip(token_ids, begins, strict=True)]
        place = torch.arange(inputs.shape[1])  # (longest,)
        is_wanted = (place >= torch.tensor(begins)[:, None]) & (place < lengths[:, None])  # (texts, longest)
        flat = torch.tensor([t for of_text in targets for t in of_text])  # (tokens,), as many as are wanted
        with torch.inference_mode(), fast_products(self.loaded.model):
            inputs, is_wanted, flat = inputs.to(self.device), is_wanted.to(self.device), flat.to(self.device)
            columns = self._statistics(inputs, is_wanted, flat, temperature)  # (4, tokens)
        by_text = np.split(columns, np.cumsum([len(of_text) for of_text in targets])[:-1], axis=1)  # (4, n) each
        return [TokenRow(np.asarray(ids, np.int32), *own) for ids, own in zip(targets, by_text, strict=True)]

    def _statistics(
        self, inputs: torch.Tensor, is_wanted: torch.Tensor, targets: torch.Tensor, temperature: float
    ) -> Floats:
        """(4, tokens) float32: log-prob, entropy, variance, largest log-prob at each wanted position, text by text."""
        model = self.loaded.model
        if self._head is None:
            hidden = model(inputs, use_cache=False).logits[is_wanted]  # (tokens, V)
        else:
            hidden = model.base_model(inputs, use_cache=False).last_hidden_state[is_wanted]  # (tokens, hidden size)
        if self._head is not None and self.device.type == "cpu":
            if len(self._memory) < (size := 2 * len(hidden) * CPU_COLUMNS_AT_ONCE):
                self._memory = torch.empty(size)
            columns = head_statistics(hidden, self._head, targets, temperature=temperature, memory=self._memory)
            return torch.stack(columns).numpy()
        n_rows = max(1, LOGITS_AT_ONCE_BYTES[self.device.type] // (4 * self.loaded.vocab_size))
        chunks = []
        for rows, of_rows in zip(hidden.split(n_rows), targets.split(n_rows), strict=True):
            logits = self._logits(rows) if temperature == 1 else self._logits(rows).div_(temperature)
            chunks.append(torch.stack(statistics_of_rows(logits, of_rows)))  # (4, rows)
        return torch.cat(chunks, dim=1).cpu().numpy()

    def _logits(self, rows: torch.Tensor) -> torch.Tensor:
        """Logits of (R, hidden size) hidden states, (R, V) float32, never rounded to the weights' type."""
        if self._head is None:  # the model ran whole, and the rows are its logits
            return rows.to(torch.float32, copy=True)
        weight, bias = self._head.weight, self._head.bias
        if rows.is_cuda and rows.dtype != torch.float32:
            logits = torch.mm(rows, weight.T, out_dtype=torch.float32)
        else:
            logits = torch.mm(rows.float(), weight.float().T)
        return logits if bias is None else logits.add_(bias)
