"""What comes of faults that are done on purpose (`faults`), in its quick form."""

import pytest
from faults import inject, table


@pytest.mark.slow
def test_nothing_is_lost_wrong_silent_or_told_after_a_fault():
    rows = inject([], is_quick=True)
    print(table(rows))
    failed = [row for row in rows if row.survived < row.tried or row.notes]
    assert not failed, table(failed)
