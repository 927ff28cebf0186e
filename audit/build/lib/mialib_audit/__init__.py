"""mialib-audit: what the scores of `mialib` allow to conclude about one set of texts.

To read it, take the files in this order:

    near_copies, files          the files that an audit compares, without near-copies
    power, evidence             from scores to decisions, a set's p-value, how often it would find members, and epsilon
    audit                       the report, step by step; `verify` repeats it
    audit.txt, audit.html       what the report says, in sentences and as a page
    canaries                    texts of which a coin inserts some into a training, to be audited afterwards
    recite                      how far a model recites texts, against edited prompts and younger texts
    commands                    `mialib audit`, `mialib canaries` and `mialib recite`
"""
