"""Packages that only some inputs need."""

import sys

import pytest

from mialib.text import words


def test_what_lacks_a_package_says_which_extra_brings_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "jieba", None)
    with pytest.raises(ModuleNotFoundError, match=r"mialib\[chinese\]"):
        words("这条河流经四个村庄", "zh")
    assert words("four villages") == ["four", "villages"]
