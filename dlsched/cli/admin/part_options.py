"""The options that name parts of a round beside the policy."""

from __future__ import annotations

from dlsched.cli.option_groups import typed
from dlsched.core.errors import BadInput
from dlsched.record import Record


class PartOptions(Record, kw_only=False):
    """Parts by stage, and options of parts."""

    placement: str | None = typed("--placement NAME", "Which GPUs a job gets.")
    admission: str | None = typed("--admission NAME", "Which jobs enter the queue.")
    fairness: str | None = typed("--fairness NAME", "How tenants share.")
    estimate: str | None = typed("--estimate NAME", "What policies know of durations.")
    host: str | None = typed("--host NAME", "Which processors and memory jobs get.")
    option: list[str] | None = typed("--option -o KEY=VALUE", "As in `dlsched replay`.")

    def parts(self, policy: str | None) -> dict[str, str]:
        """The names that are given, by stage.

        Raises:
            BadInput: an option without a value.
        """
        for each in self.option or []:
            if "=" not in each or each.startswith("="):
                raise BadInput(f"-o: {each!r} is not KEY=VALUE")
        given = {
            "scheduling": policy,
            "placement": self.placement,
            "admission": self.admission,
            "fairness": self.fairness,
            "estimator": self.estimate,
            "host": self.host,
        }
        return {stage: name for stage, name in given.items() if name is not None}
