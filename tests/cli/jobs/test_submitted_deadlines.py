"""What the client refuses about deadlines and their kinds, wherever these are said."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dlsched.rpc.v1 import control_pb2 as pb

SOON = ("--deadline", "now+1hour")
BOTH = "not together with"
ALONE = "only with --deadline or --sla"


@pytest.fixture(autouse=True)
def control_and_folder(control: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The daemon takes what it gets, and files are in the present folder."""
    monkeypatch.chdir(tmp_path)
    control.answers["Submit"] = lambda request: pb.SubmitReply(
        jobs=[pb.Submitted(job=1 + place) for place in range(len(request.jobs))]
    )
    return control


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--best-effort", "--deadline-kind", "strict", *SOON), f"{BOTH} --deadline-kind strict"),
        (("--best-effort", "--deadline-kind", "soft", *SOON), f"{BOTH} --deadline-kind soft"),
        (("--deadline-kind", "strict"), f"--deadline-kind: {ALONE}"),
        (("--deadline-kind", "Soft"), f"--deadline-kind: {ALONE}"),
        (
            ("--deadline-kind", "soft", "--sla", "asap:5,1h"),
            "--deadline-kind: only with --deadline or an --sla with a deadline",
        ),
        (("--opportunistic", "--guarantee", "guaranteed"), f"{BOTH} --guarantee guaranteed"),
    ],
)
def test_options_that_contradict_each_other_are_refused(
    dlsched: Any, control: Any, words: tuple[str, ...], message: str
) -> None:
    code, out, err = dlsched("submit", *words, "--", "true")
    assert (code, out, err.count("\n")) == (2, "", 1), err
    assert message in err
    assert not control.asked


@pytest.mark.parametrize(
    ("words", "kind"),
    [
        (("--best-effort",), "best-effort"),
        (("--best-effort", *SOON), "best-effort"),
        (("--best-effort", "--deadline-kind", "best-effort", *SOON), "best-effort"),
        (("--deadline-kind", "strict", "--deadline-value", "5", *SOON), "strict"),
        (("--deadline-kind", "soft", "--sla", "step:1h,5"), "soft"),
        (("--best-effort", "--sla", "step:1h,5"), "best-effort"),
    ],
)
def test_options_that_go_together_are_sent(
    dlsched: Any, control: Any, words: tuple[str, ...], kind: str
) -> None:
    assert dlsched("submit", *words, "--", "true").code == 0
    (job,) = control.request("Submit").jobs
    assert pb.DeadlineKind.Name(job.deadline_kind).endswith(kind.upper().replace("-", "_"))


def test_a_script_contradicts_itself_but_not_the_command_line(dlsched: Any, control: Any) -> None:
    script = Path("train.sh")
    script.write_text(
        "#!/bin/bash\n#DLSCHED --best-effort --deadline=now+1hour\n"
        "#DLSCHED --deadline-kind=strict\ntrue\n"
    )
    code, _, err = dlsched("submit", "train.sh")
    line = "train.sh:3: --deadline-kind strict: not together with --best-effort"
    assert (code, err) == (2, f"dlsched: {line}\n")
    script.write_text("#!/bin/bash\n#DLSCHED --deadline-kind strict\ntrue\n")
    code, _, err = dlsched("submit", "train.sh")
    assert (code, err) == (2, f"dlsched: --deadline-kind: {ALONE}\n")
    # SBATCH lines take the options that Slurm has
    script.write_text("#!/bin/bash\n#SBATCH --deadline=now+1hour --best-effort\ntrue\n")
    code, _, err = dlsched("submit", "train.sh")
    assert (code, err.count("\n")) == (2, 1)
    assert "train.sh:2: #SBATCH --best-effort: not supported" in err
    assert not control.asked
    # what is said nearer counts: the command line before the script
    script.write_text("#!/bin/bash\n#SBATCH --deadline=now+1hour\n#DLSCHED --deadline-kind soft\n")
    assert dlsched("submit", "--best-effort", "train.sh").code == 0
    (job,) = control.request("Submit").jobs
    assert job.deadline_kind == pb.DEADLINE_KIND_BEST_EFFORT


@pytest.mark.parametrize(
    ("option", "name", "text", "message"),
    [
        ("--from", "jobs.csv", "command,deadline,deadline_kind,best_effort\ntrue,now+1hour,,no\n"
         "true,now+1hour,soft,yes\n", "jobs.csv:3: best_effort: not together with --deadline-kind"),
        ("--from", "jobs.csv", "command,deadline,deadline_kind\ntrue,now+1hour,soft\ntrue,,soft\n",
         f"jobs.csv:3: --deadline-kind: {ALONE}"),
        ("--dag", "jobs.toml", '[[jobs]]\nname = "a"\ncommand = "true"\ndeadline = "now+1hour"\n'
         'best_effort = true\ndeadline_kind = "strict"\n',
         "jobs.toml: job a: deadline_kind strict: not together with --best-effort"),
        ("--dag", "jobs.toml", '[[jobs]]\nname = "a"\ncommand = "true"\ndeadline_kind = "soft"\n',
         f"jobs.toml: job a: --deadline-kind: {ALONE}"),
    ],
)  # fmt: skip
def test_a_file_of_jobs_is_refused_by_line_or_name(
    dlsched: Any, control: Any, option: str, name: str, text: str, message: str
) -> None:
    Path(name).write_text(text)
    code, out, err = dlsched("submit", option, name)
    assert (code, out, err.count("\n")) == (2, "", 1), err
    assert message in err
    assert not control.asked
