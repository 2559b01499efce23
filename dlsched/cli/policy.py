"""`dlsched policy`: which parts there are, and what one can choose about each."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from dlsched.core.stage import Stage

__all__ = ["policy_app"]

policy_app = typer.Typer(
    add_completion=False,
    help="List policies and their options.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

AsJson = Annotated[bool, typer.Option("--json", help="One JSON object.")]


@policy_app.command("list")
def list_policies(
    stage: Annotated[
        str | None,
        typer.Option(
            "--stage", help="scheduling, placement, admission, fairness or estimator only."
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Every part by stage, ours and those of installed packages."""
    from dlsched.policies.registry import names  # noqa: PLC0415  # the CLI starts without them

    told = [_entry(each, name) for each in _stages(stage) for name in names(each)]
    if as_json:
        entries = [asdict(entry) for entry in told]
        _print_json({"schema": "dlsched.policies/1", "policies": entries})
        return
    width = max((len(entry.name) for entry in told), default=0)
    shown = ""
    for entry in told:
        if entry.stage != shown:
            typer.echo(("\n" if shown else "") + entry.stage)
            shown = entry.stage
        whence = "" if entry.package in (None, "dlsched") else f"  [{entry.package}]"
        says = entry.summary if entry.error is None else f"({entry.error})"
        typer.echo(f"  {entry.name:<{width}}  {says}{whence}".rstrip())


@policy_app.command("show")
def show_policy(
    name: Annotated[str, typer.Argument(help="A name of `dlsched policy list`, or of a profile.")],
    stage: Annotated[
        str | None, typer.Option("--stage", help="Where parts of two stages share a name.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """What a part does, what it needs to know of jobs, and its options with their defaults."""
    from dlsched.core.errors import BadInput  # noqa: PLC0415
    from dlsched.policies.registry import names  # noqa: PLC0415

    sheets = [_sheet(each, name) for each in _stages(stage) if _knows(each, name)]
    if not sheets:
        known = ", ".join(dict.fromkeys(part for each in _stages(stage) for part in names(each)))
        raise BadInput(f"policy {name!r} is not known; known: {known}")
    if as_json:
        _print_json({"schema": "dlsched.policy/1", "parts": [asdict(sheet) for sheet in sheets]})
        return
    typer.echo("\n\n".join("\n".join(_lines(sheet)) for sheet in sheets))


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A part's line in the list."""

    stage: str
    name: str
    summary: str = ""
    package: str | None = None
    error: str | None = None  # why its package cannot be loaded


@dataclass(frozen=True, slots=True, kw_only=True)
class Sheet:
    """All that is known of a part."""

    stage: str
    name: str
    summary: str
    description: str
    package: str
    needs: tuple[str, ...]
    preemptive: bool | None  # None for parts that are not scheduling policies
    options: tuple[dict[str, str], ...]
    semantics: dict[str, dict[str, str]]  # per profile, the defaults that it changes


def _stages(wanted: str | None) -> tuple[str, ...]:
    from dlsched.core.errors import BadInput  # noqa: PLC0415
    from dlsched.policies.registry import STAGES  # noqa: PLC0415

    if wanted is None:
        return STAGES
    if wanted not in STAGES:
        raise BadInput(f"--stage: {wanted!r} is not known; known: {', '.join(STAGES)}")
    return (wanted,)


def _entry(stage: str, name: str) -> Entry:
    """A part's line; a package that cannot be imported must not hide the others."""
    from dlsched.core.errors import BadInput  # noqa: PLC0415
    from dlsched.policies.registry import find  # noqa: PLC0415

    try:
        part = find(stage, name)
    except BadInput as error:
        return Entry(stage=stage, name=name, error=" ".join(str(error).split()))
    return Entry(stage=stage, name=name, summary=part.summary, package=_package(part))


def _package(part: type[Stage[Any]]) -> str:
    return part.__module__.partition(".")[0]


def _knows(stage: str, name: str) -> bool:
    """Is there such a part, also under another name of it?"""
    from dlsched.core.errors import BadInput  # noqa: PLC0415
    from dlsched.policies.registry import find, names  # noqa: PLC0415

    if name in names(stage):
        return True
    try:
        find(stage, name)
    except BadInput:
        return False
    return True


def _sheet(stage: str, name: str) -> Sheet:
    from dlsched.core.options import describe, show_value  # noqa: PLC0415
    from dlsched.core.semantics import PROFILES  # noqa: PLC0415
    from dlsched.policies.registry import find  # noqa: PLC0415

    part = find(stage, name)
    options = tuple(asdict(option) for option in describe(part.Options))
    own = {option["name"] for option in options}
    module = inspect.getmodule(part)
    texts = [inspect.getdoc(part) or "", inspect.getdoc(module) or "" if module else ""]
    return Sheet(
        stage=stage,
        name=part.name,
        summary=part.summary,
        description="\n\n".join(text for text in texts if text),
        package=_package(part),
        needs=tuple(sorted(part.needs)),
        preemptive=getattr(part, "preemptive", None) if stage == "scheduling" else None,
        options=options,
        semantics={
            semantics.name: {
                key: show_value(value)
                for key, value in semantics.option_defaults.items()
                if key in own
            }
            for semantics in PROFILES.values()
        },
    )


def _lines(sheet: Sheet) -> Iterator[str]:
    yield f"{sheet.name} ({sheet.stage})" + (f": {sheet.summary}" if sheet.summary else "")
    yield ""
    yield sheet.description
    yield ""
    if sheet.preemptive is not None:
        yield f"preemptive  {'yes' if sheet.preemptive else 'no'}"
    yield f"needs       {', '.join(sheet.needs) or 'nothing but size and submit time'}"
    yield f"package     {sheet.package}"
    if sheet.options:
        width = max(len(f"{o['name']}={o['default']}") for o in sheet.options)
        yield ""
        yield "options (-o KEY=VALUE)"
        for option in sheet.options:
            text = f"{option['name']}={option['default']}"
            yield f"  {text:<{width}}  {option['doc']} ({option['kind']})"
    changed = {name: defaults for name, defaults in sheet.semantics.items() if defaults}
    if sheet.stage == "scheduling":
        yield ""
        yield "semantics (-o semantics=NAME)"
        yield f"  {', '.join(sheet.semantics)}"
        for name, defaults in changed.items():
            told = ", ".join(f"{key}={value}" for key, value in defaults.items())
            yield f"  {name} sets {told}"


def _print_json(told: object) -> None:
    import json  # noqa: PLC0415

    typer.echo(json.dumps(told, indent=2, ensure_ascii=False))
