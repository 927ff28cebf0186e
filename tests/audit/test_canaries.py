"""Canaries: what is sealed, what an audit shows of them, and a fine-tuning that is audited with them."""

import hashlib
import json
import re
from collections import Counter

import numpy as np
import pytest
from conftest import FAMILIES, save_tiny_model
from typer.testing import CliRunner

from mialib.metrics import epsilon_bound
from mialib.shared.files import read_rows
from mialib_audit.canaries import REPEATS
from mialib_audit.commands import app
from mialib_audit.evidence import coin_table
from mialib_audit.files import TextFile, read_files


def invoke(*arguments, exit_code=0):
    done = CliRunner().invoke(app, list(map(str, arguments)))
    assert done.exit_code == exit_code, (done.output, done.exception)
    return str(done.exception) if exit_code == 1 else done.stdout


def test_the_training_file_holds_what_the_sealed_list_says(tmp_path):
    invoke("canaries", tmp_path)
    rows, seal = read_rows(tmp_path / "canaries.jsonl"), json.loads((tmp_path / "seal.json").read_text())
    assert Counter(row["coin_duplicates"] for row in rows) == dict.fromkeys(REPEATS, 100)
    assert all(row["duplicates"] in (0, row["coin_duplicates"]) for row in rows)
    assert 100 < sum(row["duplicates"] > 0 for row in rows) < 200, "of 300 coins"
    inserted = Counter(row["text"] for row in read_rows(tmp_path / "train.jsonl"))
    assert inserted == {row["text"]: row["duplicates"] for row in rows if row["duplicates"]}
    assert seal["sha256"] == hashlib.sha256((tmp_path / "canaries.jsonl").read_bytes()).hexdigest()
    assert "not replaced" in invoke("canaries", tmp_path, exit_code=1)
    sealed = tmp_path / "canaries.jsonl"
    assert len(read_files(sealed, None, None)[0].texts) == sum(row["duplicates"] > 0 for row in rows)
    sealed.write_text("".join(f"{json.dumps(row)}\n" for row in rows[:-1]))
    with pytest.raises(ValueError, match=seal["sha256"]):
        read_files(sealed, None, None)
    (own := tmp_path / "own.txt").write_text("\n".join(f"text {i} {'of few words ' * 7}" for i in range(60)))
    assert re.search("1 .* 60 ", invoke("canaries", tmp_path / "own", "--texts", own, exit_code=1)), "near copies"


def test_what_a_coin_shows_is_told_by_repeats_and_refused_without_one():
    times, rng = np.tile(REPEATS, 20), np.random.default_rng(0)
    members, of_16 = TextFile("list", ("t",) * 60, coin=tuple(times.tolist())), times == 16
    own, known = rng.normal(size=60) + 9 * of_16, rng.normal(size=60)
    kept = [i for i in range(60) if i != 1]  # which repeats another
    found = coin_table(members.take(kept), members, own[kept], known)
    assert {name: row["n"] for name, row in found["rows"].items()} == {"all": 59, "1": 20, "4": 19, "16": 20}
    assert found["rows"]["16"]["auc"]["estimate"] > 0.99 and found["level"] == 1 - 0.05 / 4
    assert "needs 100 non-members, and there are 60" in found["rows"]["1"]["tpr"]
    bound = epsilon_bound(np.repeat([1, 0], 20), np.concatenate([own[of_16], known[of_16]]), 20, found["level"])
    assert found["rows"]["16"]["epsilon"] == bound > 1, "against those that would have been inserted 16 times"
    assert "no column" in coin_table(TextFile("a", ("t",)), members, own[:1], known)["why"]


@pytest.mark.slow
def test_a_fine_tuning_shows_canaries_by_their_repeats_and_another_finds_the_same(tmp_path, monkeypatch):
    """A LoRA adapter of a tiny model; its base is the reference."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    peft = pytest.importorskip("peft")
    monkeypatch.setattr("mialib.cache.recomputed", None)
    base, made, out = tmp_path / "base", tmp_path / "made", tmp_path / "out"
    save_tiny_model(base, **FAMILIES["llama"] | {"intermediate_size": 64})
    invoke("canaries", made)
    texts = [row["text"] for row in read_rows(made / "train.jsonl")]
    tokenizer, seed = AutoTokenizer.from_pretrained(base), torch.manual_seed(0)
    config = peft.LoraConfig(r=8, lora_alpha=32, target_modules=["q_proj", "v_proj", "up_proj", "down_proj"])
    model = peft.get_peft_model(AutoModelForCausalLM.from_pretrained(base), config)
    optimizer = torch.optim.AdamW([of for of in model.parameters() if of.requires_grad], lr=1e-2)
    for batch in [batch for _ in range(4) for batch in torch.randperm(len(texts), generator=seed).split(32)]:
        ids = tokenizer([texts[i] for i in batch], truncation=True, max_length=64, return_tensors="pt").input_ids
        model(input_ids=ids, labels=ids).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    model.save_pretrained(tmp_path / "adapter")
    said = invoke("audit", made / "canaries.jsonl", "--model", tmp_path / "adapter", "--output", out)
    report, sealed = (json.loads(path.read_text()) for path in (out / "report.json", made / "seal.json"))
    assert report["decider"] == "ref" and report["target"]["reference"] == str(base) and sealed["sha256"] in said
    rows = report["coin"]["rows"]
    assert rows["1"]["auc"]["estimate"] < rows["16"]["auc"]["estimate"] > 0.8 and rows["16"]["epsilon"] > 0.5
    assert "What the coin shows" in (out / "report.html").read_text() and "Epsilon is at least" in said
    assert "same report" in invoke("audit", "--verify", out / "report.json")
