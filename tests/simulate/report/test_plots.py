"""Plot files: the page's pictures, repeatable, and a clear word when matplotlib is absent."""

from __future__ import annotations

import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from dlsched.core.errors import BadInput
from simulate.report import plots, write_plots


def test_without_matplotlib_one_line_says_what_to_install(
    make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(BadInput) as raised:
        write_plots([make(n=5)], tmp_path)
    said = "matplotlib is needed for --plots: pip install 'dlsched[plots]'"
    assert str(raised.value) == said


class TestWithMatplotlib:
    @pytest.fixture(autouse=True)
    def _matplotlib(self) -> None:
        pytest.importorskip("matplotlib", reason="the extra `plots` is not installed")

    @pytest.mark.slow
    def test_each_picture_is_an_svg_and_a_pdf(self, make, tmp_path: Path) -> None:
        files = write_plots([make(n=40), make("srtf", n=40, shortest_first=True)], tmp_path)
        names = {f.name for f in files}
        for key in ("compare", "jct", "delay", "occupancy", "gantt-fifo", "gantt-srtf"):
            assert {f"{key}.svg", f"{key}.pdf"} <= names
        assert {"preemptions.svg", "losses.svg", "fairness.svg"} <= names
        for file in files:
            if file.suffix == ".svg":
                ElementTree.parse(file)
            else:
                assert file.read_bytes().startswith(b"%PDF")
        assert "matplotlib.pyplot" not in sys.modules

    @pytest.mark.slow
    def test_files_are_repeatable_and_apart_whatever_the_labels(self, make, tmp_path: Path) -> None:
        runs = [make("../a/$x_b$", n=9), make("..-a-$x b$", n=9)]
        first = write_plots(runs, tmp_path / "a")
        second = write_plots(runs, tmp_path / "b")
        assert len({f.name for f in first}) == len(first)
        assert sum(f.name.startswith("gantt-") for f in first) == 4
        assert all(f.parent == tmp_path / "a" for f in first)
        for one, other in zip(first, second, strict=True):
            assert one.read_bytes() == other.read_bytes()

    def test_several_loads_have_files_of_their_own(
        self, make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(plots, "save", lambda drawn, stem: [stem])
        stems = write_plots([make(n=9, load=x) for x in (0.5, 1.0)], tmp_path)
        assert {"loads", "jct-load-0.5", "jct-load-1"} <= {s.name for s in stems}

    def test_a_folder_that_cannot_be_made_is_bad_input(self, make, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("")
        with pytest.raises(BadInput, match="cannot write plots"):
            write_plots([make(n=5)], tmp_path / "file" / "x")
