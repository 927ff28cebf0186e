#!/usr/bin/env bash
# An audit that anyone can repeat: examples/audit.sh [MODEL [FOLDER]]. A coin decided which of these texts the lab's models
# saw, so you know what should come out. For your own: mialib audit TEXTS --non-members UNSEEN --model MODEL --output FOLDER.
set -euo pipefail
model=${1:-lab/en-100k} folder=${2:-audit-example}
mkdir -p "$folder"
mialib lab texts lab/en --sample 400 > "$folder/texts.jsonl"
mialib blind "$folder/texts.jsonl"                                               # fair? each AUC should be near 0.5
mialib audit "$folder/texts.jsonl" --model "$model" --output "$folder/report"    # report.html, report.json, scores.csv
mialib audit --verify "$folder/report/report.json"                               # the same files give the same report
