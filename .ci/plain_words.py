"""Keep words out of the project that a reader of plain English would stumble over.

    python .ci/plain_words.py [FILE...]     # default: every folder of the project

Jobs, nodes and GPUs are things: "which", not "who". Prints FILE:LINE: WORD and what to write
instead; exits with 1 when it found any.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = (
    *("dlsched", "simulate", "proto", "docs"),
    *("tests", "benchmarks", "examples", "packaging", ".ci"),
)
ENDINGS = {".py", ".md", ".proto", ".toml", ".sh", ".service", ""}
LEFT_OUT = {"plain_words.py", "venv"}  # the words themselves; what pip installed

INSTEAD = {
    "whoever": "the job (node, user) that",
    "whomever": "the job (node, user) that",
    "whom": "which",
    "nobody": "no job (node, user)",
    "somebody": "a job (node, user)",
    "anybody": "any job (node, user)",
    "everybody": "every job (node, user)",
    "foretell": "predict",
    "foretells": "predicts",
    "foretold": "predicted",
    "hearken": "listen",
    "hither": "here",
    "thither": "there",
    "whence": "from where",
    "whither": "where",
    "wherefore": "why",
    "knocked at": "what is tried, in plain words",
}
PEOPLE = (
    "user|users|operator|operators|people|person|owner|owners|researcher|researchers|admin|admins|"
    "administrator|administrators|developer|developers|reader|readers|author|authors|someone|"
    "everyone|anyone|one|those|others|tenant|tenants|member|members|colleague|colleagues|stranger|"
    "newcomer|root|caller|callers|client|clients"
)
BANNED = re.compile(r"\b(" + "|".join(map(re.escape, INSTEAD)) + r")\b", re.IGNORECASE)
WHO = re.compile(rf"(?:\b(?P<of>{PEOPLE})\s+)?\b(?P<word>who)\b(?P<rest>[^\n]*)", re.IGNORECASE)
# the account of that name; a word of systemctl
ALLOWED = re.compile(r"(user |\")nobody\b|nobody:|--kill-whom", re.IGNORECASE)


def findings(text: str) -> list[tuple[int, str, str]]:
    """The lines of a text with a banned word: line number, the word, and what to write instead."""
    found = []
    for number, line in enumerate(text.replace("_", " ").splitlines(), 1):  # in names, too
        for match in BANNED.finditer(line):
            if not any(a.start() <= match.start() < a.end() for a in ALLOWED.finditer(line)):
                word = match[1].lower()
                found.append((number, word, INSTEAD[word]))
        for match in WHO.finditer(line):
            if not match["of"]:
                found.append((number, match["word"].lower(), "which, that; or name the person"))
    return found


def files() -> list[Path]:
    """Every file that the check reads; generated code is left out."""
    return [
        path
        for folder in FOLDERS
        for path in sorted((ROOT / folder).rglob("*"))
        if path.suffix in ENDINGS and path.is_file()
        if "_pb2" not in path.name and not LEFT_OUT & set(path.relative_to(ROOT).parts)
    ]


def main() -> int:
    """Check the files that are named, or all; returns the exit status."""
    count = 0
    for path in [Path(name).resolve() for name in sys.argv[1:]] or files():
        for number, word, instead in findings(path.read_text()):
            print(f"{path.relative_to(ROOT)}:{number}: {word!r}: write {instead}")
            count += 1
    return 1 if count else 0


if __name__ == "__main__":
    sys.exit(main())
