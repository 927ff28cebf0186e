"""The papers' claims (`data/claims.yml`) and their verdicts.

Read in this order: `spec` is the file's schema, `scores` scores both sides of a claim's test, `over_seeds` compares
them over training seeds, `printed` holds the leads that the papers print, `verdict` has the rule of a verdict, and
`tables` shows it all, and `answers` says it.
"""

from replication.claims.answers import answer
from replication.claims.tables import verdicts

__all__ = ["answer", "verdicts"]
