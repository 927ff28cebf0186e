"""Hold the detectors since the papers against their authors' code, on the same numbers of the same texts.

    python tools/agreement.py CLONES [DETECTOR ...] [--model lab/en-400k] [--reference lab/en-25k] [--texts 200]

CLONES is a folder of clones of the repositories below, each in a folder `owner+name`. A function is taken out of its
file and run by itself, since the files load models when they are imported. What was found goes to
`data/recorded/agreement.json`, which the page "Since the papers" reads; detectors that are not named keep their record.
"""

import argparse
import ast
import json
import subprocess
from pathlib import Path

import numpy as np
import torch
from scipy.stats import spearmanr
from transformers import BatchEncoding

from mialib import DETECTORS, detect
from mialib.catalog.loading import load_scorer
from mialib.passes.inputs import Target, inputs_of, load_inputs
from mialib.passes.needs import text_before
from mialib.store import DATA, write_json

RESULT = DATA / "recorded" / "agreement.json"
CODE = {  # detector: repository and file
    "gap_k": ("meaoww/gap-k", "wikimia.py"),
    "max_renyi": ("LIONS-EPFL/VL-MIA", "metric_util.py"),
    "max_renyi_half": ("LIONS-EPFL/VL-MIA", "metric_util.py"),
    "acmia_ac": ("Salehzz/ACMIA", "src/com_pro_dis.py"),
    "acmia_deriv": ("Salehzz/ACMIA", "src/com_pro_dis.py"),
    "acmia_norm": ("Salehzz/ACMIA", "src/com_pro_dis.py"),
    "polarized": ("Nikkei/fast-mia", "src/methods/pac.py"),
    "wbc": ("Stry233/WBC", "attacks/wbc.py"),
    "ez_mia": ("JetBrains-Research/ez-mia", "mia/ez_score.py"),
    "recall": ("ruoyuxie/recall", "src/run.py"),
    "con_recall": ("WangCheng0116/CON-RECALL", "run.py"),
    "camia_above": ("changhongyan123/context_aware_mia", "util_features.py"),
    "camia_slope": ("changhongyan123/context_aware_mia", "util_features.py"),
    "camia_lz": ("changhongyan123/context_aware_mia", "util_features.py"),
    "aeca": ("kecy03/AECA", "AECA.py"),
    "codec": ("NVIDIA-NeMo/Evaluator", "packages/nemo-evaluator/examples/notebooks/contamination_detection_demo.ipynb"),
}
COMMITS = {  # where it is not the newest
    "aeca": "1fabba660c2343a7553040a0c09f8dd01b72249d",
    "codec": "460dcad6f41c8448ec4c8ef30a117d3c1e916449",
}
AT_ONE, AT_HALF = 26, 16  # places of the powers 1 and 1/2 among ACMIA's 0, 2^-2.5, 2^-2.4, ..., 2^2.5


def clone_of(clones: Path, repository: str) -> list[str]:
    """git and the options that read a repository's clone, bare or not."""
    folder = clones / repository.replace("/", "+")
    heads = [folder / ".git", *(path.parent for path in sorted(folder.glob("*/HEAD"))), folder]
    return ["git", f"--git-dir={next(head for head in heads if (head / 'HEAD').exists())}"]


def functions_of(clones: Path, name: str, **given: object) -> dict[str, object]:
    """The functions of a detector's file, methods too, in a scope that has numpy, torch and what is `given`."""
    repository, path = CODE[name]
    show = [*clone_of(clones, repository), "show", f"{COMMITS.get(name, 'HEAD')}:{path}"]
    source = subprocess.run(show, check=True, capture_output=True, text=True).stdout
    if path.endswith(".ipynb"):
        cells = json.loads(source)["cells"]
        source = "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code")
    defined = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.FunctionDef)]
    scope = {"np": np, "torch": torch, "F": torch.nn.functional, **given}
    for node in defined:
        node.decorator_list = []
        exec(
            compile(ast.Module([*ast.parse("from __future__ import annotations").body, node], []), path, "exec"), scope
        )
    return scope


def theirs(clones: Path, inputs, whole) -> dict[str, list[float]]:
    """The scores of the detectors without a function of their own by their authors' code; higher is a member."""
    import zlib

    stats, reference, tempered = inputs.stats, inputs["reference"], inputs["tempered"]
    found = {name: [] for name in CODE if name not in MADE_BY}
    of = {name: functions_of(clones, name, zlib=zlib) for name in found if not name.startswith("acmia")}
    for i, row in enumerate(stats):
        lp, ids = row.log_prob.astype(np.float64), torch.tensor(row.token_ids)
        z = (lp - row.top_log_prob) / np.sqrt(np.maximum(row.log_prob_var, 1e-8))
        found["gap_k"].append(of["gap_k"]["window_lowmean"](z, window=3, ratio=0.2))
        half = 2 * (lp / 2 - tempered[i].log_prob)
        blank = np.zeros(len(lp))
        vl = of["max_renyi"]["get_text_metric"](
            2.0, lp, None, row.entropy, blank, row.top_log_prob, None, blank, half, blank, "text", 2.0, blank, blank
        )
        found["max_renyi"].append(-vl["Max_10.0% renyi_inf"])
        found["max_renyi_half"].append(-vl["Max_10.0% renyi_05"])
        found["polarized"].append(-of["polarized"]["calculate_polarized_distance"](lp))
        losses = [-lp, -reference[i].log_prob.astype(np.float64)]
        windows = [of["wbc"]["_compute_window_score"](None, *losses, n) for n in (2, 3, 4, 6, 9, 13, 18, 25, 32, 40)]
        found["wbc"].append(np.mean(windows))
        likeliest = torch.where(torch.tensor(row.log_prob == row.top_log_prob), ids, -1)
        ez = of["ez_mia"]["error_zone_pos_neg_sum_ratio"]
        pair = (torch.tensor(lp), torch.tensor(reference[i].log_prob.astype(np.float64)))
        found["ez_mia"].append(ez(*pair, likeliest, ids, torch.ones(len(lp)), ignore_bos=True))
        camia = of["camia_above"]
        found["camia_above"].append(camia["get_count_above"]([lp], -1, 0, 200)[0])
        found["camia_slope"].append(camia["get_slope"]([lp], 0, 200)[0])
        found["camia_lz"].append(-camia["get_lz_complexity"]([lp], 3)[0])
        add_acmia(found, clones, whole, row)
    return found


def add_acmia(found, clones: Path, whole, row) -> None:
    """ACMIA's three of one text: its own `inference` on our logits, then the means that `src/Main_file.py` takes."""
    ids = torch.tensor([[*whole.loaded.start_token_ids, *row.token_ids.tolist()]])
    with torch.no_grad():
        logits = whole.loaded.model(ids).logits
    scope = functions_of(clones, "acmia_ac", model_output=None)
    scope["model_output"] = lambda *_: (logits, ids, None)
    powers = torch.tensor([0.0, *(2.0 ** (i * 0.1) for i in range(-25, 26))]).view(-1, 1, 1)
    made = scope["inference"]("text", 1, None, None, powers, is_ref=False)
    lp, of_power = np.array(made["log_probs"]), np.array(made["log_probs_temprature"])
    mu, sigma = np.array(made["mu_temprature"]), np.array(made["sigma_temprature"])
    first = np.unique(np.array(made["input_ids"]), return_index=True)[1]
    found["acmia_ac"].append(np.mean((lp - of_power[AT_HALF])[first]))
    found["acmia_deriv"].append(np.mean((of_power[AT_ONE] - of_power[AT_ONE - 1])[first]))
    found["acmia_norm"].append(np.mean(((of_power[AT_ONE] - mu[AT_ONE]) / (sigma[AT_ONE] + 1e-10))[first]))


def of_recall(clones: Path, inputs, whole) -> dict[str, list[float]]:
    """ReCaLL and Con-ReCall by their authors' log-likelihoods, our tokens being given to them as their tokenizer's."""
    start = whole.loaded.start_token_ids

    class Ours:
        """A tokenizer whose texts are lists of token ids."""

        def encode(self, ids):
            return [*start, *ids]

        def __call__(self, ids, return_tensors):
            return argparse.Namespace(input_ids=torch.tensor([ids]))

    from mialib.catalog.corpora import reference_texts

    before = []
    for prefix in (inputs.target.non_member_prefix, inputs.target.member_prefix):
        shots = [text for _, text in zip(range(inputs.target.n_shots), reference_texts(prefix), strict=False)]
        before.append([*start, *whole.token_ids(["".join(f"{text}\n\n" for text in shots)])[0]])
    scores = {}
    for name in ("recall", "con_recall"):
        scope, scores[name] = functions_of(clones, name), []
        for row in inputs.stats:
            ids = row.token_ids.tolist()
            alone = scope["get_ll"](ids, whole.loaded.model, Ours(), "cpu")[1]
            after = [scope["get_conditional_ll"](of, ids, whole.loaded.model, Ours(), "cpu")[1] for of in before]
            scores[name].append((after[0] if name == "recall" else after[0] - after[1]) / alone)
    return scores


def of_aeca(clones: Path, inputs, whole) -> dict[str, list[float]]:
    """AECA by its authors' streams, which they compute from the model; the table is that of their `load_resources`."""
    scope = functions_of(clones, "aeca", config=argparse.Namespace(DEVICE="cpu"))
    counts, start = inputs["frequency"].counts, whole.loaded.start_token_ids
    table, scores = np.log(counts.sum() + len(counts)) - np.log(counts + 1), []
    for row in inputs.stats:
        read = BatchEncoding({"input_ids": torch.tensor([[*start, *row.token_ids.tolist()]])})
        losses, potential, _ = scope["calculate_streams"]("", whole.loaded.model, lambda *_, of=read, **__: of, table)
        scores.append(np.std(scope["apply_dynamic_entropic_convolution"](potential)) - np.std(losses))
    return {"aeca": scores}


def of_codec(clones: Path, inputs, whole) -> dict[str, list[float]]:
    """CoDeC by its authors' notebook, which says whether its first mean is the larger: the difference is taken of both.

    It is given the other texts that our pass reads before, and begins with our start token.
    """
    scope, means, scores = functions_of(clones, "codec", List=list), [], []
    scope["np"] = argparse.Namespace(array=np.array, mean=lambda values: means.append(np.mean(values)) or means[-1])

    def tokenizer(text, return_tensors):
        ids = [*whole.loaded.start_token_ids, *whole.token_ids([text])[0]]
        return BatchEncoding({"input_ids": torch.tensor([ids])})

    handler = argparse.Namespace(tokenizer=tokenizer, model=whole.loaded.model, device="cpu")
    handler.get_logprobs = lambda text: scope["get_logprobs"](handler, text)
    for text, other in zip(inputs.texts, text_before(len(inputs.texts)), strict=True):
        settings = argparse.Namespace(token_range=(10, -1))  # the default of their `__init__`
        says = scope["detect_contamination"](settings, text, [inputs.texts[other]], handler)
        scores.append(means[-2] - means[-1])
        assert says == (scores[-1] > 0)
    return {"codec": scores}


MADE_BY = {"recall": of_recall, "con_recall": of_recall, "aeca": of_aeca, "codec": of_codec}


def main() -> None:
    """Compare, print a line a detector, and write the record."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("clones", type=Path)
    options.add_argument("detectors", nargs="*", metavar="DETECTOR", help="of the list above; default: all")
    for name, default in (("model", "lab/en-400k"), ("reference", "lab/en-25k"), ("benchmark", "lab/en")):
        options.add_argument(f"--{name}", default=default)
    options.add_argument("--texts", type=int, default=200)
    given = options.parse_args()
    of_text = {"non_member_prefix": "lab/en", "member_prefix": "lab/en:background", "n_shots": 1}
    target = Target(model=given.model, benchmark=given.benchmark, reference=given.reference, corpus="lab/en", **of_text)
    labelled = load_inputs(target).labelled
    some = labelled.take(np.linspace(0, len(labelled) - 1, given.texts).astype(int), "some")
    inputs, whole, found = inputs_of(target, some), load_scorer(given.model), {}
    for make in dict.fromkeys(MADE_BY.get(name, theirs) for name in given.detectors or CODE):
        found |= make(given.clones, inputs, whole)
    record = json.loads(RESULT.read_text("utf-8"))["detectors"] if given.detectors else {}
    for name, scores in found.items():
        ours = detect(name, inputs.stats, **{need: inputs[need] for need in DETECTORS[name].needs})
        git = clone_of(given.clones, CODE[name][0])
        at = COMMITS.get(name, "HEAD")
        commit = subprocess.run([*git, "rev-parse", at], check=True, capture_output=True, text=True).stdout.strip()
        apart = np.abs(ours - scores) / np.abs(scores).mean()
        record[name] = {
            "repository": CODE[name][0],
            "commit": commit,
            "file": CODE[name][1],
            "version": DETECTORS[name].version,
            "largest_difference": float(apart.max()),
            "rank_correlation": float(spearmanr(ours, scores).statistic),
        }
        print(f"{name:16} {apart.max():.1e} of the mean apart, rank correlation {record[name]['rank_correlation']:.6f}")
    of = {"model": given.model, "revision": inputs.stats.provenance["revision"]}
    write_json(RESULT, {**of, "benchmark": given.benchmark, "n_texts": given.texts, "detectors": record})


if __name__ == "__main__":
    main()
