"""`dlsched admin audit`: the record of what users, operators and parts of the cluster did."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from dlsched.cli.daemon_options import DaemonOptions, words_of
from dlsched.cli.option_groups import option
from dlsched.cli.output.output_options import AsJson, ColourOption

if TYPE_CHECKING:
    from dlsched.rpc.v1.control_pb2 import AuditLine

SCHEMA = "dlsched.audit/1"


def audit_command(
    *,
    actors: Annotated[
        list[str] | None, option("--user -u NAME", "By these users, or daemon, 'node n1', …")
    ] = None,
    kinds: Annotated[
        list[str] | None, option("--kind -k KIND", "submit, cancel, drain, set-policy, …")
    ] = None,
    nodes: Annotated[list[str] | None, option("--nodelist -w HOSTS", "About these nodes.")] = None,
    jobs: Annotated[list[str] | None, option("--job -j ID", "About these jobs, by number.")] = None,
    since: Annotated[
        str | None, option("--since -S TIME", "Not before: 2h (ago), a day, a time.")
    ] = None,
    until: Annotated[str | None, option("--until -E TIME", "Before.")] = None,
    parts_too: Annotated[
        bool, option("--all -a", "Also what daemon, nodes and policies did by themselves.")
    ] = False,
    limit: Annotated[int, option("--limit -l N", "The newest N; 0: all.", min=0)] = 100,
    as_json: AsJson = False,
    colour: ColourOption = "auto",
    daemon: DaemonOptions,
) -> None:
    """What users and operators did, the newest first, to which job or node.

    Operators only. Events are never changed; `history.keep_days` says how long they are kept.
    """
    from dlsched.cli.output.json_output import print_json  # noqa: PLC0415
    from dlsched.cli.output.listing import Column, print_listing  # noqa: PLC0415
    from dlsched.cli.output.terminal import terminal  # noqa: PLC0415
    from dlsched.cli.output.times import column_text, moment_or_ago, utc_text  # noqa: PLC0415
    from dlsched.client.submission.texts import whole_number  # noqa: PLC0415
    from dlsched.core.cluster.host_lists import node_names  # noqa: PLC0415
    from dlsched.rpc.v1.control_pb2 import AuditRequest  # noqa: PLC0415

    request = AuditRequest(
        actors=words_of("--user", actors),
        kinds=words_of("--kind", kinds),
        nodes=node_names("--nodelist", nodes or ()),
        jobs=[whole_number("--job", word, least=1, most=2**62) for word in words_of("--job", jobs)],
        since=None if since is None else moment_or_ago("--since", since),
        until=None if until is None else moment_or_ago("--until", until),
        parts_too=parts_too,
        limit=limit,
    )
    with daemon.client() as cluster:
        found = list(cluster.audit(request))
    if as_json:
        objects = (
            {
                "id": each.id,
                "at": utc_text(each.at),
                "actor": each.actor or None,
                "kind": each.kind,
                "job_id": each.job if each.HasField("job") else None,
                "node": each.node or None,
                "text": each.text or None,
            }
            for each in found
        )
        print_json(SCHEMA, events=list(objects))
        return
    columns: list[Column[AuditLine]] = [
        Column("at", "AT", "", lambda each: column_text(each.at)),
        Column("actor", "BY", "", lambda each: each.actor or "-", least=6),
        Column("kind", "WHAT", "", lambda each: each.kind, least=6),
        Column("job", "JOB", "", lambda each: str(each.job) if each.job else "-", right=True),
        Column("node", "NODE", "", lambda each: each.node or "-", least=4),
        Column("text", "TEXT", "", lambda each: each.text.partition("\n")[0] or "-", least=12),
    ]
    print_listing(columns, found, terminal(colour))
