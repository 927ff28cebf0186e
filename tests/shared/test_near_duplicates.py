"""Near-duplicates, worked by hand."""

import pytest

from mialib.shared.near_duplicates import MOST_HOLDERS, NearDuplicates, near_copies

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


def test_near_copies_by_hand():
    text = "one two three four five six seven eight nine ten"  # four sequences of seven words
    texts = [text, "short text", "short text", f"{text} and a long end that makes it twice as long as it was", "short"]
    assert near_copies(texts) == {2: 1, 3: 0}
    assert near_copies(["short text", " short\ntext ", "中文", "中 文"]) == {1: 0, 3: 2}, "but for white space"
    half = "zero zero two three four five six seven eight nine ten zero"  # three of its six, and of the other's four
    assert near_copies([text, half]) == {1: 0}
    far_longer = " ".join([*(f"before{i}" for i in range(500)), text, *(f"after{i}" for i in range(500))])
    assert near_copies([far_longer, text]) == near_copies([text, far_longer]) == {1: 0}
    assert near_copies([text, "one two three four five six seven eight then other words follow here"]) == {}
    header = [f"licence{i}" for i in range(30)]
    texts = [[f"word{i}of{j}" for i in range(16)] for j in range(150)]
    found = near_copies([" ".join([*header, *text]) for text in texts])
    assert len(found) <= MOST_HOLDERS and max(found, default=0) <= MOST_HOLDERS
    assert near_copies([" ".join([*header[:8], *text]) for text in texts]) == {}
