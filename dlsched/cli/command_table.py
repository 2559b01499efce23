"""The table of commands, and the group class that imports a command only when it is called.

A new command is one line here and a function in the module of its family. The help of a group comes
from the table, so that the time of `dlsched --help` does not depend on the number of commands.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

import typer
from typer.core import TyperGroup

from dlsched.cli.typer_commands import Command, for_typer
from dlsched.core.errors import BadInput


@dataclass(frozen=True, slots=True)
class LazyCommand:
    """One command of a table.

    Attributes:
        target: `module:name` below `dlsched.cli`, of a function or of a `typer.Typer`; empty: a
            group made of `group`.
        help: its line in the list of commands.
        passes_words: does the command read all its words itself, `--help` included?
        takes_command: does its first word end its options? Words after `--` are a command then,
            and it is told of the `--`.
        group: the commands of the group, by name.
    """

    target: str
    help: str
    passes_words: bool = False
    takes_command: bool = False
    group: Mapping[str, LazyCommand] | None = None


ADMIN_COMMANDS: dict[str, LazyCommand] = {
    "init": LazyCommand(
        "admin.trust:init_command", "Make a cluster's certificates and configuration."
    ),
    "ca": LazyCommand("admin.trust:ca_app", "Issue, renew, deny and show certificates."),
    "token": LazyCommand("admin.trust:token_app", "Tokens for users on other machines."),
    "status": LazyCommand("admin.daemon_state:status_command", "Leader, database, agents, rounds."),
    "set-policy": LazyCommand(
        "admin.daemon_state:set_policy_command", "Switch the policy while the daemon runs."
    ),
    "shadow": LazyCommand(
        "admin.shadow:shadow_app", "A second policy that decides without acting."
    ),
    "reload": LazyCommand(
        "admin.daemon_state:reload_command", "Read the daemon's configuration again."
    ),
    "man-pages": LazyCommand(
        "admin.man_pages:man_pages_command", "Write manual pages of all commands."
    ),
    "snapshot": LazyCommand(
        "admin.daemon_state:snapshot_command", "Save the scheduler's state to a file."
    ),
    "user": LazyCommand("admin.tenants:user_app", "Users: their account and virtual cluster."),
    "account": LazyCommand("admin.tenants:account_app", "Accounts: groups of users."),
    "vc": LazyCommand("admin.tenants:vc_app", "Virtual clusters: guarantees and ceilings."),
    "class": LazyCommand("admin.tenants:class_app", "Priority classes: order and limits."),
    "reserve": LazyCommand(
        "admin.reservations:reserve_app", "Keep nodes for some jobs, or for maintenance."
    ),
    "quota": LazyCommand("admin.tenants:quota_app", "Limits of users, accounts and clusters."),
    "cells": LazyCommand("admin.cells:cells_app", "Cells of virtual clusters (hived)."),
    "calibration": LazyCommand(
        "admin.calibration:calibration_command", "How exact predicted start times were."
    ),
    "profile": LazyCommand(
        "admin.profiles:profile_app", "Speeds of kinds of trainings, by GPU type."
    ),
    "slurm-commands": LazyCommand(
        "admin.slurm_commands:slurm_commands_command",
        "Install sbatch, squeue and the like for login shells.",
    ),
    "backup": LazyCommand("admin.backup:backup_command", "Copy the daemon's SQLite database."),
    "restored": LazyCommand(
        "admin.backup:restored_command", "Go on with an older copy of the database."
    ),
    "audit": LazyCommand(
        "admin.audit:audit_command", "What users and operators did, the newest first."
    ),
    "orphans": LazyCommand(
        "admin.orphans:orphans_command", "Runs that the database does not know."
    ),
    "run-over": LazyCommand(
        "admin.orphans:run_over_command", "Confirm that a run whose keeper is lost is over."
    ),
    "node-down": LazyCommand(
        "admin.daemon_state:node_down_command", "Confirm that nothing runs on a node."
    ),
}
COMMANDS: dict[str, LazyCommand] = {
    "submit": LazyCommand(
        "jobs.submit:submit_command", "Submit a script or a command.", takes_command=True
    ),
    "run": LazyCommand("programs:run_command", "Start ranks inside an allocation.", True),
    "queue": LazyCommand("jobs.queue:queue_command", "List jobs that wait or run."),
    "show": LazyCommand("jobs.show:show_command", "All about a job, and why it waits."),
    "explain": LazyCommand(
        "jobs.explain:explain_command", "What a pending job's place comes from."
    ),
    "whatif": LazyCommand(
        "jobs.whatif.command:whatif_command", "Predict a job's start and end in alternatives."
    ),
    "cancel": LazyCommand("jobs.job_actions:cancel_command", "End jobs, or signal them."),
    "hold": LazyCommand("jobs.job_actions:hold_command", "Keep pending jobs from starting."),
    "release": LazyCommand("jobs.job_actions:release_command", "Let held jobs start."),
    "requeue": LazyCommand(
        "jobs.job_actions:requeue_command", "Queue running or ended jobs again."
    ),
    "suspend": LazyCommand("jobs.job_actions:suspend_command", "Freeze running jobs."),
    "resume": LazyCommand("jobs.job_actions:resume_command", "Let suspended jobs continue."),
    "update": LazyCommand("jobs.update:update_command", "Change jobs; print old and new values."),
    "wait": LazyCommand("jobs.wait:wait_command", "Wait for jobs; exit with their exit code."),
    "logs": LazyCommand("jobs.logs:logs_command", "Show a job's output, from any machine."),
    "attach": LazyCommand(
        "jobs.attach:attach_command", "A shell or a command inside a running job."
    ),
    "forward": LazyCommand(
        "jobs.forward:forward_command", "Reach a port of a job, such as a notebook's."
    ),
    "metrics": LazyCommand(
        "jobs.records.metrics:metrics_command", "Curves of a job's loss, speed and own metrics."
    ),
    "sweep": LazyCommand("jobs.sweep:sweep_command", "Jobs of a sweep, the best first."),
    "history": LazyCommand("jobs.records.history:history_command", "List jobs that have ended."),
    "checkpoints": LazyCommand(
        "jobs.checkpoints:checkpoints_command", "List the checkpoints of jobs."
    ),
    "usage": LazyCommand("jobs.records.usage:usage_command", "GPU time by vc, account or user."),
    "nodes": LazyCommand("nodes.node_commands:nodes_command", "List nodes and their GPUs."),
    "reserve": LazyCommand(
        "admin.reservations:reserve_app", "Keep nodes for some jobs, or for maintenance."
    ),
    "drain": LazyCommand("nodes.node_commands:drain_command", "Start no more jobs on nodes."),
    "resume-node": LazyCommand(
        "nodes.node_commands:resume_node_command", "Return nodes to service."
    ),
    "top": LazyCommand("nodes.top:top_command", "Watch nodes and jobs."),
    "web": LazyCommand("web.command:web_command", "The cluster as a web page, for you alone."),
    "tasks": LazyCommand("jobs.tasks:tasks_command", "How the short tasks of a job stand."),
    "replay": LazyCommand("replay.command:replay_command", "Replay traces under policies."),
    "flows": LazyCommand(
        "worlds.flows:flows_command", "Follow flows over shared links under several disciplines."
    ),
    "leaderboard": LazyCommand(
        "leaderboard:leaderboard_command", "Every policy on the same traces: one page of ranks."
    ),
    "reproduce": LazyCommand(
        "reproduce.command:reproduce_command", "Published figures of the field beside ours."
    ),
    "short-tasks": LazyCommand(
        "worlds.short_tasks:short_tasks_command",
        "Follow very many short tasks under several schedulers.",
    ),
    "dags": LazyCommand(
        "worlds.dags:dags_command",
        "Follow jobs that are graphs of tasks under several disciplines.",
    ),
    "plan": LazyCommand(
        "worlds.plan:plan_command", "Plan a training on unlike GPUs, operation by operation."
    ),
    "slots": LazyCommand(
        "worlds.slots:slots_command", "Replay workers and parameter servers, slot by slot."
    ),
    "train": LazyCommand("train:train_app", "Learn what policies decide by."),
    "trace": LazyCommand("trace:trace_app", "Import, show and generate traces."),
    "policy": LazyCommand("policy:policy_app", "List policies and their options."),
    "admin": LazyCommand("", "For operators of the cluster.", group=ADMIN_COMMANDS),
    "quickstart": LazyCommand(
        "programs:quickstart_command", "Run a whole cluster on this machine for a minute."
    ),
    "daemon": LazyCommand("programs:daemon_command", "Run the daemon in the foreground.", True),
    "agent": LazyCommand("programs:agent_command", "Run a node's agent in the foreground.", True),
    "login": LazyCommand("programs:login_command", "Run a login node's service.", True),
}
# what Slurm's commands are called here
SLURM = {
    "sbatch": "submit",
    "salloc": "submit",
    "srun": "run",
    "squeue": "queue",
    "scancel": "cancel",
    "sinfo": "nodes",
    "sacct": "history",
    "sreport": "usage",
    "sshare": "usage",
    "sprio": "show JOB --why-order",
    "sstat": "metrics",
    "scontrol": "show, update, hold, release, requeue, suspend, resume or drain",
    "sacctmgr": "admin user, account, vc or quota",
    "sdiag": "admin status",
}


def lazy_group(commands: Mapping[str, LazyCommand]) -> type[TyperGroup]:
    """Return a group class that makes its commands from a table, each when it is called."""

    class LazyGroup(TyperGroup):
        """The commands of a table, and those registered in the usual way."""

        def list_commands(self, ctx: Any) -> list[str]:
            return [
                *commands,
                *(name for name in super().list_commands(ctx) if name not in commands),
            ]

        def get_command(self, ctx: Any, cmd_name: str) -> Any:
            found = super().get_command(ctx, cmd_name)
            if found is None and cmd_name in commands:
                found = self.commands[cmd_name] = _typer_command(cmd_name, commands[cmd_name])
            return found

        def resolve_command(self, ctx: Any, args: list[str]) -> Any:
            name = args[0]
            if ctx.resilient_parsing or name[:1] == "-" or self.get_command(ctx, name):
                return super().resolve_command(ctx, args)
            if commands is COMMANDS and name in SLURM:
                raise BadInput(f"no such command {name!r}; here it is dlsched {SLURM[name]}")
            near = get_close_matches(name, self.list_commands(ctx), 1)
            meant = f"did you mean {near[0]!r}?" if near else f"see {ctx.command_path} --help"
            raise BadInput(f"no such command {name!r}; {meant}")

        def format_commands(self, ctx: Any, formatter: Any) -> None:
            rows = list(self._rows(ctx))
            if rows:
                with formatter.section("Commands"):
                    formatter.write_dl(rows)

        def _rows(self, ctx: Any) -> Iterator[tuple[str, str]]:
            for name in self.list_commands(ctx):
                if name in commands:
                    yield name, commands[name].help
                else:
                    command = super().get_command(ctx, name)
                    if command is not None and not command.hidden:
                        yield name, command.get_short_help_str(70)

    return LazyGroup


def _typer_command(name: str, command: LazyCommand) -> Any:
    """Import a command's module and make what typer calls."""
    plain: dict[str, Any] = {
        "add_completion": False,
        "rich_markup_mode": None,
        "pretty_exceptions_enable": False,
    }
    if command.group is not None:
        group = typer.Typer(
            help=command.help, no_args_is_help=True, cls=lazy_group(command.group), **plain
        )
        group.callback()(lambda: None)
        found: Any = group
    else:
        module, _, attribute = command.target.partition(":")
        found = getattr(importlib.import_module(f"dlsched.cli.{module}"), attribute)
    if isinstance(found, typer.Typer):
        made: Any = typer.main.get_command(found)
        made.name = name
        return made
    alone = typer.Typer(**plain)
    settings: dict[str, Any] = {}
    if command.passes_words or command.takes_command:
        settings["allow_interspersed_args"] = False
    if command.passes_words:
        settings |= {"ignore_unknown_options": True, "help_option_names": []}
    kind = _KeepsDashes if command.takes_command else Command
    alone.command(name, cls=kind, context_settings=settings)(for_typer(found))
    return typer.main.get_command(alone)


class _KeepsDashes(Command):
    """A command whose `words` still begin with the `--` that typer takes away."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        rest: list[str] = super().parse_args(ctx, list(args))
        words = ctx.params.get("words") or []
        if "--" in args and words and args[args.index("--") + 1 :] == list(words):
            ctx.params["words"] = ["--", *words]
        return rest
