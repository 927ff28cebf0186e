"""How many cases a property is held against: 30 in the fast tests, `--hypothesis-profile=thorough` 350.

The cases are the same in each run, and nothing of them is kept.
"""

import atexit
import os
import shutil
import tempfile

from hypothesis import HealthCheck, settings

# Where hypothesis keeps tables of Unicode: not in the repository.
STORAGE = tempfile.mkdtemp()
os.environ["HYPOTHESIS_STORAGE_DIRECTORY"] = STORAGE
atexit.register(shutil.rmtree, STORAGE, ignore_errors=True)

ALWAYS = {
    "derandomize": True,
    "database": None,
    "deadline": None,
    "suppress_health_check": [HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
}
settings.register_profile("fast", max_examples=30, **ALWAYS)
settings.register_profile("thorough", max_examples=350, **ALWAYS)
settings.load_profile("fast")
