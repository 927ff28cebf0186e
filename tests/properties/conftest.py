"""How many cases a property is held against: 25 in the fast tests, 220 with `--hypothesis-profile=thorough`.

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
settings.register_profile("fast", max_examples=25, **ALWAYS)
settings.register_profile("thorough", max_examples=220, **ALWAYS)
settings.load_profile("fast")
