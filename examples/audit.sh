#!/usr/bin/env bash
# An audit that anyone can repeat, in a clone after `pip install . ./audit ./book`: examples/audit.sh [MODEL [FOLDER]].
# A coin decided which of these texts the lab's models saw: half of them are labelled as members, and the report should
# conclude that some are. For your own: mialib audit TEXTS --non-members UNSEEN --model MODEL --output FOLDER.
set -euo pipefail
model=${1:-lab/en-100k} folder=${2:-build/audit-example}
mkdir -p "$folder"
mialib lab texts lab/en --sample 400 > "$folder/texts.jsonl"
mialib blind "$folder/texts.jsonl"                                               # fair? each AUC should be near 0.5
mialib audit "$folder/texts.jsonl" --model "$model" --output "$folder/report"    # report.html, report.json, scores.csv
mialib audit --verify "$folder/report/report.json"                               # the same files give the same report
