"""What two pages tabulate: the registry's entries, and how the lab's corpora and models were made."""

import matplotlib
from page_code import functions_of, page_of

matplotlib.use("Agg")

from mialib.catalog.registry import known_benchmarks, known_models
from replication.results import DASH, load_results


def test_the_registrys_tables_hold_every_entry_once(mialib_home):
    page = page_of("registry")
    models, benchmarks = known_models(), known_benchmarks()
    assert list(page["size"]) == list(page["access"]) == list(models)
    baichuan = "baichuan-inc/Baichuan-13B-Base"
    assert page["size"][baichuan]["start token"] == "</s>"
    assert page["access"][baichuan]["access"] == "its own code"
    assert page["access"][baichuan]["smaller model"] == "baichuan-inc/Baichuan-7B"
    assert "mimir/DOMAIN/OVERLAP" in page["rows"] and len(page["rows"]) == len(benchmarks)
    assert "github" in page["choices"]["mimir: DOMAIN"]["one of"]
    saved = load_results(mialib_home / "alone" / "registry.json")
    assert len(saved) == len(models) + sum(bool(known.examples) for known in benchmarks.values())
    notes = page["notes_of"](models).data
    assert notes.count("Meta's form") == 1 and "`huggyllama/llama-7b`, `huggyllama/llama-13b`: " in notes


CARD = {
    "recipe": {"source": "docstrings", "words": 40, "vocab_size": 512, "seed": 1},
    "roles": {"member": 20, "non_member": 20, "background": 20, "reference": 60},
    "near_duplicates_dropped": 7,
    "non_member_overlap": 0.0123,
    "content_hash": "0" * 16,
}


def test_the_labs_tables_say_sizes_and_how_often_each_text_was_seen():
    elsewhere = CARD | {"roles": {"non_member": 15}, "recipe": CARD["recipe"] | {"vocab_size": None}}
    table = functions_of("lab")["corpus_table"]({"lab/tiny": CARD, "lab/elsewhere": elsewhere})
    assert table.loc["non-members"].astype(str).tolist() == ["20", "15"]
    assert table.loc["members"].tolist() == [20, DASH] and table.loc["near-duplicates"].tolist() == ["7 dropped"] * 2
    assert "None" not in table.loc["tokenizer", "lab/elsewhere"]
    times_seen = functions_of("lab")["times_seen"]
    recipe = {"member_repeats": (), "member_times": 2, "background_times": 1, "injected": {}}
    assert times_seen(recipe) == "2 / 1 times"
    assert times_seen(recipe | {"member_times": 0, "injected": {"lab/quiz": 2}}) == "0 / 1 times, lab/quiz 2"
    assert times_seen(recipe | {"member_repeats": (1, 2, 4)}) == "1–4 / 1 times"
    assert times_seen({"epochs": 3}) == "0 / 3 times"
