"""Manual pages: one for each command, with the texts of its help, as `man` reads them."""

from __future__ import annotations

import shutil
import subprocess

import pytest
from typer.testing import CliRunner

from dlsched.cli.command_table import ADMIN_COMMANDS, COMMANDS
from dlsched.cli.typer_app import app


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    folder = tmp_path_factory.mktemp("share") / "man1"
    done = CliRunner().invoke(app, ["admin", "man-pages", str(folder)])
    assert done.exit_code == 0, done.output
    found = {path.name: path.read_text() for path in folder.iterdir()}
    assert f"{len(found)} pages written to {folder}" in done.output
    return found


def test_each_command_has_its_page(pages):
    assert {f"dlsched-{name}.1" for name in COMMANDS} < set(pages)
    assert {f"dlsched-admin-{name}.1" for name in ADMIN_COMMANDS} < set(pages)
    assert "dlsched-admin-ca-show.1" in pages
    assert r"\fB\-\-signal, \-s SIG\fR" in pages["dlsched-cancel.1"].replace(
        r"\-s, \-\-signal", r"\-\-signal, \-s"
    )
    assert r"\fBdlsched\-cancel\fR(1)" in pages["dlsched.1"]
    assert ".SH EXIT STATUS" in pages["dlsched.1"]


@pytest.mark.skipif(shutil.which("groff") is None, reason="groff is not installed")
def test_man_reads_the_pages_without_a_warning(pages, tmp_path):
    for name, text in pages.items():
        done = subprocess.run(
            ["groff", "-man", "-Tutf8", "-ww", "-z"], input=text, text=True, capture_output=True,
            check=False,
        )  # fmt: skip
        assert (done.returncode, done.stderr) == (0, ""), name


def test_a_folder_that_cannot_be_written_is_named(dlsched, tmp_path):
    (tmp_path / "file").write_text("")
    done = dlsched("admin", "man-pages", tmp_path / "file" / "man1")
    assert done.code == 1
    assert done.err.startswith(f"dlsched: {tmp_path / 'file'}")
