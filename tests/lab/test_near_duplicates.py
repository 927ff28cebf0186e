"""Near-duplicates, worked by hand."""

import pytest

from replication.lab.near_duplicates import NearDuplicates

CHINESE = "我来到北京清华大学，这条河流经三个村庄。"


def test_the_overlap_is_the_share_of_distinct_sevens_of_words_that_were_seen():
    known = NearDuplicates(["a b c d e f g h"])
    assert known.overlap("a b c d e f g") == 1
    assert known.overlap("a b c d e f g h i") == pytest.approx(2 / 3), "the third seven ends in i"
    assert known.overlap("b c d e f g h a b c d e f g") == pytest.approx(2 / 8)
    assert known.overlap("h g f e d c b a") == 0, "words in another order are other words"
    assert known.overlap("a b c d e f") is None, "six words have no seven"
    known = NearDuplicates([CHINESE], "zh")
    assert known.overlap(CHINESE) == known.overlap(" " + CHINESE[:3] + " " + CHINESE[3:]) == 1
    assert NearDuplicates([CHINESE]).overlap(CHINESE) is None, "white space makes one word of it"


def test_the_overlap_of_pages_is_the_share_of_sevens_seen_so_far():
    known = NearDuplicates(["a b c d e f g h", "p q r s t u v"])
    assert known.overlap("a b c d e f g", "x y z") == 1 and known.overlap("a b c d", "e f g h") is None
    assert known.overlap("a b c d e f g h", "b c d e f g h i") == pytest.approx(2 / 3), "a seven in two texts is one"
    known.add("b c d e f g h i", "q r s t u v w")
    assert known.overlap("c d e f g h i", "q r s t u v w") == 1
    known = NearDuplicates()
    text = " ".join("abcdefghijklmnop")
    assert known.overlap(text) == 0
    known.add(text, n_words=8)
    assert known.overlap(text, n_words=8) == 1
    assert known.overlap(text) == pytest.approx(2 / 10)
    known.add(text)
    assert known.overlap(text) == 1
