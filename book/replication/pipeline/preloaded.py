"""Everything that a job of the build imports, imported: the jobs' processes are forked from one that has (`jobs`)."""

import os

os.environ.setdefault("MPLBACKEND", "module://matplotlib_inline.backend_inline")  # read when matplotlib is imported

import ipykernel.kernelapp  # noqa: F401
import matplotlib.pyplot  # noqa: F401
import pandas  # noqa: F401
import papermill  # noqa: F401
import pyarrow.parquet  # noqa: F401
import scipy.stats  # noqa: F401
import seaborn  # noqa: F401
import sklearn.feature_extraction.text
import sklearn.linear_model
import sklearn.model_selection  # noqa: F401
import torch  # noqa: F401
from transformers import AutoModelForCausalLM, AutoTokenizer, GPTNeoXForCausalLM, RobertaForMaskedLM  # noqa: F401

import mialib.passes.inputs  # noqa: F401
