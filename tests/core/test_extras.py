"""Packages that only some inputs need."""

import sys

import pytest

from mialib.extras import require
from mialib.text import words


def test_what_lacks_a_package_says_which_extra_brings_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "jieba", None)
    with pytest.raises(ModuleNotFoundError, match=r"mialib\[chinese\]"):
        words("这条河流经四个村庄", "zh")
    assert words("four villages") == ["four", "villages"]


def test_a_package_that_lacks_another_one_is_not_called_missing(monkeypatch, tmp_path):
    (tmp_path / "peft.py").write_text("import no_such_package")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "peft", raising=False)
    with pytest.raises(ModuleNotFoundError, match="no_such_package"):
        require("peft", "a model")
