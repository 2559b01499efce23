"""The table of verbs: a new verb is a line here and a module of its family."""

from __future__ import annotations

from dlsched.cli.lazy import LazyVerb

__all__ = ["ADMIN_VERBS", "VERBS"]

VERBS: dict[str, LazyVerb] = {
    "submit": LazyVerb("dlsched.cli.submit:submit_app", "Submit a script or a command."),
    "run": LazyVerb(
        "dlsched.cli.run:run_command", "Start ranks inside an allocation.", passes=True
    ),
    "queue": LazyVerb("dlsched.cli.queue:queue_command", "List jobs that wait or run."),
    "show": LazyVerb("dlsched.cli.show:show_command", "All about a job, and why it waits."),
    "cancel": LazyVerb("dlsched.cli.actions:cancel_command", "End jobs, or signal them."),
    "hold": LazyVerb("dlsched.cli.actions:hold_command", "Keep pending jobs from starting."),
    "release": LazyVerb("dlsched.cli.actions:release_command", "Let held jobs start."),
    "requeue": LazyVerb("dlsched.cli.actions:requeue_command", "Stop jobs and queue them again."),
    "suspend": LazyVerb("dlsched.cli.actions:suspend_command", "Freeze running jobs."),
    "resume": LazyVerb("dlsched.cli.actions:resume_command", "Let suspended jobs go on."),
    "update": LazyVerb("dlsched.cli.update:update_command", "Change jobs: old and new are shown."),
    "wait": LazyVerb("dlsched.cli.wait:wait_command", "Wait for jobs; end with their exit code."),
    "logs": LazyVerb("dlsched.cli.logs:logs_command", "Show what a job wrote, from anywhere."),
    "history": LazyVerb("dlsched.cli.history:history_command", "List jobs that have ended."),
    "usage": LazyVerb("dlsched.cli.usage:usage_command", "GPU time by account or user."),
    "nodes": LazyVerb("dlsched.cli.nodes:nodes_command", "List nodes and their GPUs."),
    "drain": LazyVerb("dlsched.cli.nodes:drain_command", "Start nothing more on nodes."),
    "resume-node": LazyVerb("dlsched.cli.nodes:resume_node_command", "Take nodes back."),
    "top": LazyVerb("dlsched.cli.top:top_command", "The cluster, live."),
    "replay": LazyVerb("dlsched.cli.replay:replay_command", "Replay traces under policies."),
    "trace": LazyVerb("dlsched.cli.trace:trace_app", "Import, show and generate traces."),
    "policy": LazyVerb("dlsched.cli.policy:policy_app", "List policies and their options."),
    "admin": LazyVerb("dlsched.cli.admin:admin_app", "For those who run the cluster."),
    "quickstart": LazyVerb(
        "dlsched.cli.quickstart:quickstart_command", "A whole cluster here, for a minute."
    ),
    "daemon": LazyVerb(
        "dlsched.cli.services:daemon_command", "Run the daemon in the foreground.", passes=True
    ),
    "agent": LazyVerb(
        "dlsched.cli.services:agent_command", "Run a node's agent in the foreground.", passes=True
    ),
}

_CLUSTER = "dlsched.cli.admin_cluster:"
_TRUST = "dlsched.cli.admin_trust:"
_TENANTS = "dlsched.cli.admin_tenants:"
ADMIN_VERBS: dict[str, LazyVerb] = {
    "init": LazyVerb(_TRUST + "init_command", "Make a cluster's certificates and configuration."),
    "ca": LazyVerb(_TRUST + "ca_app", "Issue, renew, deny and show certificates."),
    "token": LazyVerb(_TRUST + "token_app", "Tokens for users at a distance."),
    "status": LazyVerb(_CLUSTER + "status_command", "Leader, database, agents, rounds."),
    "set-policy": LazyVerb(_CLUSTER + "set_policy_command", "Switch the policy while running."),
    "reload": LazyVerb(_CLUSTER + "reload_command", "Read the daemon's configuration again."),
    "snapshot": LazyVerb(_CLUSTER + "snapshot_command", "Save the scheduler's state to a file."),
    "user": LazyVerb(_TENANTS + "user_app", "Users: their account and virtual cluster."),
    "account": LazyVerb(_TENANTS + "account_app", "Accounts: groups that share."),
    "vc": LazyVerb(_TENANTS + "vc_app", "Virtual clusters: guarantees and ceilings."),
    "quota": LazyVerb(_TENANTS + "quota_app", "The most that each may have."),
    "calibration": LazyVerb(
        "dlsched.cli.admin_calibration:calibration_command", "How well starts were foretold."
    ),
    "profile": LazyVerb(
        "dlsched.cli.admin_profile:profile_app", "How fast kinds of trainings run, by GPU type."
    ),
    "node-down": LazyVerb(_CLUSTER + "node_down_command", "Vouch that nothing runs on a node."),
}
