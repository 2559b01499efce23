"""Every option that Slurm's commands know is carried out, noted once, or refused by its name."""

from __future__ import annotations

import pytest

from dlsched.cli.slurm import sacct, scancel, sinfo, sprio, squeue, sshare, submitting
from dlsched.cli.slurm.arguments import Arguments
from dlsched.core.errors import BadInput
from dlsched.job.srun import options as inside

# of sbatch, salloc and srun of Slurm 24.05
SUBMITTING = """
accel-bind account acctg-freq argv array async autocomplete batch bb bbf bcast bcast-exclude begin
bell chdir cluster cluster-constraint clusters comment compress consolidate-segments constraint
container container-id context contiguous core-spec cores-per-socket cpu-bind cpu-freq cpus-per-gpu
cpus-per-task deadline debugger-test delay-boot dependency disable-status distribution environment
epilog error exact exclude exclusive export export-file external external-launcher extra
extra-node-info get-user-env gid gpu-bind gpu-freq gpus gpus-per-node gpus-per-socket gpus-per-task
gres gres-flags help het-group hint hold ignore-pbs ignore-signals immediate input interactive
job-name jobid kill-command kill-on-bad-exit kill-on-invalid-dep label licenses mail-type mail-user
mcs-label mem mem-bind mem-per-cpu mem-per-gpu mem-update mincpus mpi msg-timeout multi-prog network
nice no-allocate no-bell no-kill no-requeue no-shell nodefile nodelist nodes ntasks ntasks-per-core
ntasks-per-gpu ntasks-per-node ntasks-per-socket ntasks-per-tres oom-kill-step open-mode output
overcommit overlap oversubscribe pack-group parsable partition prefer preserve-env priority profile
prolog propagate pty qos quiet quit-on-interrupt reboot relative requeue reservation resources
resv-ports runtime segment send-libs signal slurmd-debug sockets-per-node spread-job spread-segments
stepmgr switches task-epilog task-prolog tasks-per-node test-only thread-spec threads
threads-per-core time time-min tmp treewidth tres-bind tres-per-task uid unbuffered usage
use-min-nodes verbose version wait wait-all-nodes wait-for-children wckey whole wrap
"""
VALUES = {
    "array": "0-3",
    "begin": "now",
    "deadline": "now+1hour",
    "dependency": "5",
    "distribution": "block",
    "exclusive": None,
    "gpu-bind": "none",
    "gres": "gpu:1",
    "immediate": None,
    "kill-on-bad-exit": None,
    "kill-on-invalid-dep": "yes",
    "mail-type": "END",
    "mem": "1G",
    "mem-per-cpu": "1G",
    "mem-per-gpu": "1G",
    "open-mode": "append",
    "resv-ports": None,
    "signal": "USR1",
    "tmp": "1G",
    "tres-bind": "none",
}
# a step is so without them: unbuffered, its tasks share processors, none is killed with a node
AS_IT_IS = {
    *("unbuffered", "overcommit", "exact", "exclusive", "no-kill", "disable-status"),
    "quit-on-interrupt",
}
LISTINGS = {
    squeue: """
        Format accounts all array autocomplete cluster clusters expand-patterns federation format
        helpFormat helpformat helpstate hide iterate jobs json licenses local long me name noconvert
        node nodelist nodes noheader notme only-job-state partitions priority qos reservation
        running-over running-under sib sibling sort start states steps user users verbose yaml""",
    sacct: """
        accounts allclusters allocations allusers array associations autocomplete batch-script brief
        cluster clusters completion constraints delimiter duplicates endtime env-vars
        expand-patterns federation fields file flags format gid group help-fields helpformat
        helpreason helpstate jobs json local long name ncpus nnodes noconvert nodelist noheader
        parsable partition qos reason starttime state timelimit-max timelimit-min truncate uid units
        use-local-uid user verbose wckeys whole-hetjob yaml""",
    sinfo: """
        Format Node all autocomplete cluster clusters dead exact federation format future helpFormat
        helpformat helpstate hide iterate json list-reasons local long noconvert nodes noheader
        partition reservation responding sort states summarize verbose yaml""",
    scancel: """
        account admin-comment autocomplete batch cluster clusters cron ctld full hurry interactive
        jobname me name nodelist partition qos quiet reservation sibling signal state user verbose
        wckey""",
    sprio: """
        autocomplete cluster clusters federation format helpformat jobs local long noheader norm
        partition sib sibling sort user users verbose weights""",
    sshare: """
        Users accounts all autocomplete cluster clusters format helpformat json long noheader
        parsable partition users verbose yaml""",
}
# of listings: there is one cluster, nothing is hidden, patterns are always expanded, no job ended
# twice, no job has several partitions or parts, and users have the same numbers everywhere
NOTHING_TO_DO = {
    *("all", "hide", "local", "federation", "sibling", "sib", "expand-patterns", "priority"),
    *("exact", "future", "duplicates", "allclusters", "array", "use-local-uid", "whole-hetjob"),
    *("verbose", "noconvert"),
}


def written(name: str) -> list[list[str]]:
    """How an option may be written: with a value, or alone."""
    with_value = f"--{name}={VALUES.get(name) or '2'}"
    return [[f"--{name}"]] if VALUES.get(name, "") is None else [[with_value], [f"--{name}"]]


def is_refused(name: str, why: str) -> bool:
    """Whether an option is refused however it is written; the refusal names it."""
    assert f"--{name}" in why
    return "needs a value" not in why and "takes no" not in why


@pytest.mark.parametrize("command", ["sbatch", "salloc", "srun"])
@pytest.mark.parametrize("name", SUBMITTING.split())
def test_no_option_of_a_submission_is_silent(
    command: str, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    if name in ("help", "usage", "version"):  # the commands' own
        return
    outcomes = []
    for words in written(name):
        try:
            said = submitting._read(command, words)
        except BadInput as error:
            outcomes.append(is_refused(name, str(error)))
            continue
        err = capsys.readouterr().err
        carried_out = bool(said.layer or said.own or said.step.said)
        assert carried_out or f"without effect here: --{name}" in err
        assert err.count(f"--{name}") <= 1
        outcomes.append(True)
    assert any(outcomes)


@pytest.mark.parametrize("name", SUBMITTING.split())
def test_no_option_of_a_step_is_silent(name: str) -> None:
    outcomes = []
    for words in written(name):
        try:
            given = inside.read([*words, "true"], {})
        except inside.WrongUse as error:
            outcomes.append(is_refused(name, str(error)))
            continue
        shown = {word for each in inside.OPTIONS if each.help for word in each.words}
        known = f"--{name}" in shown or name in AS_IT_IS
        assert (bool(given.said) and known) or f"--{name}" in given.noted
        outcomes.append(True)
    assert any(outcomes)


@pytest.mark.parametrize(
    ("module", "name"),
    [(module, name) for module, names in LISTINGS.items() for name in names.split()],
)
def test_no_option_of_a_listing_is_silent(
    module: object, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLURM_JOB_ID", "1")  # whose environment names the cluster
    monkeypatch.setenv("SLURM_CLUSTER_NAME", "here")
    parser: Arguments = module._parser()  # type: ignore[attr-defined]
    action = parser._option_string_actions.get(f"--{name}")
    if action is None:
        with pytest.raises(BadInput, match=f"--{name}: not supported"):
            parser.read([f"--{name}"])
    elif action.dest == "clusters":
        with pytest.raises(BadInput, match="this is cluster here, and no other"):
            parser.read([f"--{name}=elsewhere"])
        parser.read([f"--{name}=here"])
    else:
        assert action.help != "==SUPPRESS==" or name in NOTHING_TO_DO | {
            "full",
            "batch",
            "quiet",
            "norm",
        }
