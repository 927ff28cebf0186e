"""Near-copies, worked by hand."""

from mialib_audit.near_copies import MAX_HOLDERS, near_copies


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
    assert len(found) <= MAX_HOLDERS and max(found, default=0) <= MAX_HOLDERS
    assert near_copies([" ".join([*header[:8], *text]) for text in texts]) == {}
