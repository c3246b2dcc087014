"""Settings of the whole test run.

Guarantees: on CI the drawn examples are the same in every run; a slow machine fails no property.
"""

import os

from hypothesis import settings

settings.register_profile("ci", deadline=None, derandomize=True, print_blob=True)
settings.register_profile("dev", deadline=None)
settings.load_profile("ci" if os.environ.get("CI") else "dev")
