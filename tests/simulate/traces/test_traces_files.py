"""Files as people keep them, and damaged files."""

from __future__ import annotations

import gzip

import pytest

from dlsched.composition.number_files import LARGEST, read_numbers
from dlsched.core.errors import BadInput
from simulate.traces import textfile
from simulate.traces.open import open_trace
from simulate.traces.options import ReadOptions
from simulate.traces.textfile import stem_of

TEXT = "job_id,submit_time,num_gpus,duration,name\n1,0,1,10,a\n2,5,2,20,b\n"


def ids(path):
    return open_trace(path).job_id.tolist()


@pytest.mark.parametrize(
    ("content", "name"),
    [
        (TEXT, "plain.csv"),
        (TEXT, "packed.csv.gz"),
        (gzip.compress(TEXT.encode(), mtime=0), "packed_without_saying_so.csv"),
        ("\ufeff" + TEXT, "byte_order_mark.csv"),
        (TEXT.replace("\n", "\r\n"), "from_windows.csv"),
        (TEXT + "\n\n   \n", "blank_lines_at_the_end.csv"),
        ("\n" + TEXT, "blank_line_first.csv"),
        (TEXT.rstrip("\n"), "no_newline_at_the_end.csv"),
        (TEXT.replace("job_id,", '"job_id", '), "quoted_header.csv"),
    ],
)
def test_harmless_differences_are_read_over(trace_file, content, name):
    assert ids(trace_file(content, name)) == ["1", "2"]


def test_quoted_commas_quotes_and_line_breaks_belong_to_the_field(trace_file):
    path = trace_file(
        "job_id,submit_time,num_gpus,duration,name\n"
        '1,0,1,10,"a, b"\n2,1,1,10,"say ""hi"""\n3,2,1,10,"two\nlines"\n4,3,x,10,c\n'
    )
    with pytest.raises(BadInput, match=r":6: num_gpus is 'x'"):
        open_trace(path)
    trace = open_trace(path, options=ReadOptions(skip_bad_rows=True))
    assert trace.columns["name"].tolist() == ["a, b", 'say "hi"', "two\nlines"]


def damaged_gzip(packed: bytes) -> bytes:
    return packed[:20] + bytes(10) + packed[30:]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "the file is empty"),
        ("\n\n", "the file is empty"),
        (gzip.compress(TEXT.encode(), mtime=0)[:-10], "ends too early"),
        (damaged_gzip(gzip.compress(TEXT.encode(), mtime=0)), "damaged gzip"),
        (b"job_id,submit_time,num_gpus,duration,name\n1,0,1,1,caf\xe9\n", "not UTF-8"),
        (b"\x89PNG\r\n\x1a\n\x00\x00", "not UTF-8"),
        ('job_id,submit_time,num_gpus,duration\n1,0,1,"1\n2,0,1,1\n', "unexpected end of data"),
        ("1,0,1,10\n2,5,1,10\n", "not the header of a known trace format"),
    ],
)
def test_an_unreadable_file_is_refused_in_one_line(trace_file, content, message):
    path = trace_file(content)
    with pytest.raises(BadInput) as caught:
        open_trace(path)
    assert message in str(caught.value)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_file_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(BadInput, match="no such file"):
        open_trace(tmp_path / "none.csv")


@pytest.mark.parametrize(
    ("name", "stem"),
    [
        ("a.csv.gz", "a"),
        ("a.b.csv", "a.b"),
        ("cluster_job_log", "cluster_job_log"),
        (".csv", ".csv"),
    ],
)
def test_the_name_of_a_trace_is_the_stem_of_its_file(tmp_path, name, stem):
    assert stem_of(tmp_path / name) == stem


def test_a_file_that_unpacks_without_end_is_refused_before_a_line_is_read(tmp_path, monkeypatch):
    monkeypatch.setattr(textfile, "UNPACKED_FREELY", 1 << 16)
    path = tmp_path / "bomb.csv.gz"
    row = b"1,0,1,60\n"
    path.write_bytes(gzip.compress(b"job_id,submit_time,num_gpus,duration\n" + row * 500_000))
    with pytest.raises(BadInput) as refused, textfile.open_text(path):
        pytest.fail("a line could be read")
    assert str(refused.value) == (
        f"{path}: unpacks to more than 200 times its size, as no log does"
    )


def test_a_file_that_grew_is_looked_at_again(tmp_path, monkeypatch):
    monkeypatch.setattr(textfile, "UNPACKED_FREELY", 1 << 16)
    path = tmp_path / "log.csv.gz"
    path.write_bytes(gzip.compress(b"1,0,1,60\n"))
    assert textfile.first_line(path) == "1,0,1,60"
    path.write_bytes(gzip.compress(b"1,0,1,60\n" * 500_000))
    with pytest.raises(BadInput, match="unpacks to more than"):
        textfile.first_line(path)


def test_a_log_that_packs_well_is_read(tmp_path, monkeypatch):
    monkeypatch.setattr(textfile, "UNPACKED_FREELY", 0)
    path = tmp_path / "log.csv.gz"
    rows = b"".join(b"%d,%d,1,60\n" % (k, k * 7) for k in range(5_000))
    path.write_bytes(gzip.compress(rows))
    with textfile.open_text(path) as text:
        assert sum(1 for _ in textfile.lines_of(path, text)) == 5_000


def test_a_file_of_numbers_is_bounded(tmp_path):
    path = tmp_path / "numbers.gz"
    path.write_bytes(gzip.compress(bytes(LARGEST + 1), compresslevel=1))
    with pytest.raises(BadInput, match=r"numbers\.gz: more than 64 MiB of numbers"):
        read_numbers(str(path))
