"""`python -m tests.golden [SECTION ...]`: write the golden files again and say what changed."""

from __future__ import annotations

import sys

from tests.golden import SECTIONS, differences, golden_file, lines_of


def main(chosen: list[str]) -> int:
    unknown = [name for name in chosen if name not in SECTIONS]
    if unknown:
        print(f"no section {unknown[0]!r}: expected one of {', '.join(SECTIONS)}", file=sys.stderr)
        return 2
    for section in chosen or SECTIONS:
        lines = lines_of(section)
        found = differences(section, lines)
        gone, new = (sum(line.startswith(sign) for line in found) for sign in "-+")
        golden_file(section).write_text("\n".join(lines) + "\n", "utf-8")
        told = f"{gone} lines gone, {new} new" if found else "nothing changed"
        print(f"{golden_file(section).name}: {len(lines)} lines, {told}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
