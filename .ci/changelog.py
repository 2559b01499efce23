"""CHANGELOG.md with the changes of `.changelog`, which a release moves into it.

    python .ci/changelog.py                   # prints it, as a build carries it
    python .ci/changelog.py --release 1.1.0   # writes it, and the number, before that commit

A change is a file `.changelog/KIND-NAME.md` with the text of its entry, where KIND is a heading of
the changelog in small letters. So two branches never change the same line.
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
KINDS = ("Added", "Changed", "Deprecated", "Removed", "Fixed", "Security")
UNRELEASED = "## [Unreleased]"


def entries(folder: Path) -> dict[str, list[str]]:
    """The entries below each heading, in the order of their files' names.

    Raises:
        ValueError: a file whose name has no heading, or that is no text of an entry.
    """
    found: dict[str, list[str]] = {kind: [] for kind in KINDS}
    for file in sorted(folder.glob("[!.]*")):
        kind = file.name.partition("-")[0].capitalize()
        lines = file.read_text().rstrip().splitlines()
        if kind not in found or file.suffix != ".md":
            raise ValueError(f"{file}: its name is no KIND-NAME.md; kinds: {', '.join(KINDS)}")
        if not lines or lines[0].startswith(("-", "#")) or "" in lines:
            raise ValueError(f"{file}: it is not one paragraph without a mark before it")
        found[kind].append("\n  ".join([f"- {lines[0]}", *lines[1:]]))
    return found


def joined(changelog: str, added: dict[str, list[str]]) -> str:
    """The changelog with entries at the top of their headings below `Unreleased`."""
    head, mark, rest = changelog.partition(f"{UNRELEASED}\n")
    if not mark:
        raise ValueError(f"CHANGELOG.md has no line {UNRELEASED}")
    section, following, older = rest.partition("\n## [")
    intro, *parts = re.split(r"^### (\w+)\n+", section, flags=re.M)
    text = dict(zip(parts[::2], parts[1::2], strict=True))
    for kind, new in added.items():
        if new:
            text[kind] = "\n".join(new) + "\n" + text.get(kind, "")
    order = sorted(text, key=KINDS.index)
    pieces = [intro.strip(), *(f"### {kind}\n\n{text[kind].strip()}" for kind in order)]
    below = "".join(f"\n{piece}\n" for piece in pieces if piece)
    return f"{head}{mark}{below}{following}{older}"


def main(words: list[str] | None = None, root: Path = ROOT) -> int:
    """Print the whole changelog, or write it as that of a release."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--release", metavar="NUMBER")
    given = parser.parse_args(words)
    folder, file = root / ".changelog", root / "CHANGELOG.md"
    whole = joined(file.read_text(), entries(folder))
    if given.release is None:
        sys.stdout.write(whole)
        return 0
    if not re.fullmatch(r"\d+\.\d+\.\d+", given.release):
        parser.error(f"{given.release} is no number such as 1.1.0")
    file.write_text(whole.replace(UNRELEASED, f"{UNRELEASED}\n\n## [{given.release}]", 1))
    (root / "dlsched" / "RELEASE").write_text(f"{given.release}\n")
    for change in folder.glob("[!.]*"):
        change.unlink()
    return 0


if __name__ == "__main__":
    sys.exit(main())
