"""What the shim makes of each function of NCCL: the tables of shim/, read."""
import fnmatch
import pathlib
import re

PASSED = re.compile(r'^OPUS_(PASSED|UNHELD)\((\S+), "(.*)"\)$', re.M)


class Passed:
    """shim/passed_table.h."""

    def __init__(self, root: pathlib.Path):
        self.rows = PASSED.findall((root / "shim" / "passed_table.h").read_text())
        if not self.rows:
            raise ValueError("shim/passed_table.h has no rows")

    def kind(self, name: str) -> str | None:
        """PASSED, UNHELD, or None for a function that it does not have."""
        return next((kind for kind, pattern, _ in self.rows if fnmatch.fnmatchcase(name, pattern)), None)

    def unused(self, names: set[str]) -> list[str]:
        """Patterns that stand for none of these."""
        return [pattern for _, pattern, _ in self.rows if not fnmatch.filter(names, pattern)]
