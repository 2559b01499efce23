"""`dlsched policy`: the parts that a run can be made of, and their options."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dlsched.cli.completions import policies
from dlsched.cli.option_groups import option
from dlsched.cli.typer_commands import CommandGroup

if TYPE_CHECKING:
    from dlsched.core.semantics import Semantics
    from dlsched.core.stage import Stage

policy_app = CommandGroup("List policies and their options.")

AsJson = Annotated[bool, option("--json", "One JSON object.")]


@policy_app.command("list")
def list_policies(
    stage: Annotated[
        str | None, option("--stage", "Only this one: scheduling, placement, …")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List every part by stage, also those of installed packages."""
    from dlsched.policies.registry import names  # noqa: PLC0415  # the CLI starts without them

    parts = [_entry(each, name) for each in _stages(stage) for name in names(each)]
    if as_json:
        entries = [asdict(entry) for entry in parts]
        _print_json({"schema": "dlsched.policies/1", "policies": entries})
        return
    width = max((len(entry.name) for entry in parts), default=0)
    shown = ""
    for entry in parts:
        if entry.stage != shown:
            typer.echo(("\n" if shown else "") + entry.stage)
            shown = entry.stage
        package = "" if entry.package in (None, "dlsched") else f"  [{entry.package}]"
        summary = entry.summary if entry.error is None else f"({entry.error})"
        typer.echo(f"  {entry.name:<{width}}  {summary}{package}".rstrip())


@policy_app.command("show")
def show_policy(
    name: Annotated[
        str, typer.Argument(help="A name of `dlsched policy list`.", autocompletion=policies)
    ],
    stage: Annotated[
        str | None, option("--stage", "If parts of two stages have this name.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Describe a part: what it does, what it must know of jobs, its options and their defaults."""
    from dlsched.core.errors import not_known  # noqa: PLC0415
    from dlsched.policies.registry import names  # noqa: PLC0415

    sheets = [_sheet(each, name) for each in _stages(stage) if _knows(each, name)]
    if not sheets:
        raise not_known("policy", name, (part for each in _stages(stage) for part in names(each)))
    if as_json:
        _print_json({"schema": "dlsched.policy/1", "parts": [asdict(sheet) for sheet in sheets]})
        return
    typer.echo("\n\n".join("\n".join(_lines(sheet)) for sheet in sheets))


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A part in the list."""

    stage: str
    name: str
    summary: str = ""
    package: str | None = None
    error: str | None = None  # why its package cannot be loaded


@dataclass(frozen=True, slots=True, kw_only=True)
class Sheet:
    """The description of a part."""

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
    from dlsched.core.errors import not_known  # noqa: PLC0415
    from dlsched.policies.registry import STAGES  # noqa: PLC0415

    if wanted is None:
        return STAGES
    if wanted not in STAGES:
        raise not_known("--stage:", wanted, STAGES)
    return (wanted,)


def _entry(stage: str, name: str) -> Entry:
    """Return a part's entry; if its package cannot be imported, the entry says so."""
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
    """Is there a part of this name, or with this alias?"""
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
    from dlsched.composition.parts import class_of  # noqa: PLC0415
    from dlsched.core.options import describe  # noqa: PLC0415
    from dlsched.policies.registry import find  # noqa: PLC0415
    from simulate.published.profiles import PROFILES  # noqa: PLC0415

    part = find(stage, name)
    options = tuple(asdict(option) for option in describe(part.Options))
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
            profile.name: _changed(part, class_of(stage, name, profile), profile)
            for profile in PROFILES.values()
        },
    )


def _changed(
    part: type[Stage[Any]], under: type[Stage[Any]], semantics: Semantics
) -> dict[str, str]:
    """Return the options that a profile adds to those of a part, or sets otherwise."""
    from dlsched.core.options import show_value  # noqa: PLC0415

    own = {each.name for each in fields(part.Options)}
    known = {each.name: each.default for each in fields(under.Options)}
    changed = {key: value for key, value in known.items() if key not in own}
    changed |= {key: each for key, each in semantics.option_defaults.items() if key in known}
    return {key: show_value(value) for key, value in changed.items()}


def _lines(sheet: Sheet) -> Iterator[str]:
    yield f"{sheet.name} ({sheet.stage})" + (f": {sheet.summary}" if sheet.summary else "")
    yield ""
    yield sheet.description
    yield ""
    if sheet.preemptive is not None:
        yield f"preemptive  {'yes' if sheet.preemptive else 'no'}"
    yield f"needs       {', '.join(sheet.needs) or 'only size and submit time'}"
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
            parts = ", ".join(f"{key}={value}" for key, value in defaults.items())
            yield f"  {name} sets {parts}"


def _print_json(document: object) -> None:
    import json  # noqa: PLC0415

    typer.echo(json.dumps(document, indent=2, ensure_ascii=False))
