"""The page of one kind of fault: each case with its story, its code and what was measured."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence

from harness.cell._case import Case
from harness.cell._catalog import shipped
from harness.cell._code import code_of
from harness.cell._kinds import CONTROL, KINDS
from harness.cell.outcome._expect import Expectation
from harness.cell.outcome._observed import Observed
from harness.control.boundaries import check_fix
from harness.control.pages._measured import agreement_in_words, entry_lines, measured_on, verdict_on
from harness.control.stacks import Stack

__all__ = ["MADE", "kind_page", "link", "page_of"]

#: The first line of a page, so that nobody edits it by hand.
MADE = "<!-- made by `thawcheck pages`; edit the cases instead -->"
_STACKS = ("latest", "oldest")


def page_of(kind: str) -> str:
    """Its file name."""
    return f"{kind.lower()}.md"


def kind_page(
    kind: str, observed: Mapping[str, Observed], entries: Sequence[Expectation], stacks: Collection[Stack]
) -> str:
    """Markdown."""
    cases = [case for case in shipped() if case.kind == kind]
    heads = " | ".join(_STACKS)
    lines = [MADE, "", f"# {'' if kind == CONTROL else f'{kind}. '}{KINDS[kind]}", ""]
    lines += [f"| case | what is done | when | {heads} |", f"|---|---|---|{'---|' * len(_STACKS)}"]
    for case in cases:
        cells = " | ".join(verdict_on(case, observed.get(stack)) for stack in _STACKS)
        lines.append(f"| [`{case.name}`](#{case.name}) | {_cell(case.recipe)} | {_cell(case.moment)} | {cells} |")
    for case in cases:
        lines += ["", *_section(case, observed, [one for one in entries if one.case == case.name], stacks)]
    return "\n".join([*lines, ""])


def _section(
    case: Case, observed: Mapping[str, Observed], entries: Sequence[Expectation], stacks: Collection[Stack]
) -> Iterator[str]:
    yield f"## {case.name}"
    yield ""
    yield case.summary
    yield ""
    yield f"**What you see.** {case.happens}"
    if case.why:
        yield ""
        yield f"**Why.** {_as_markdown(case.why)}"
    if case.instead:
        yield ""
        yield f"**Instead:** {case.instead}{_cure(case)}"
        yield from _cure_code(case)
    if case.refs:
        yield ""
        yield f"**Reports:** {', '.join(map(link, case.refs))}"
    for fix in case.fixes:
        found = agreement_in_words(check_fix(case, fix, stacks, observed))
        yield ""
        yield f"**Upstream:** {fix.package} {fix.release} ({link(fix.ref)}); {found}{fix.because and '. '}{fix.because}"
    yield ""
    yield f"**Measured:** {measured_on(case, observed)}."
    if entries:
        yield ""
        yield from entry_lines(entries)
    yield ""
    yield "```python"
    yield code_of(case)
    yield "```"
    yield ""
    yield f"`thawcheck run {case.name}`"


def _cure(case: Case) -> str:
    if not case.cure:
        return ""
    kind = next(one.kind for one in shipped() if one.name == case.cure)
    page = "" if kind == case.kind else page_of(kind)
    return f" See [`{case.cure}`]({page}#{case.cure})."


def _cure_code(case: Case) -> Iterator[str]:
    """What trains stands right under what does not, wherever its own section is."""
    cure = next((one for one in shipped() if one.name == case.cure), None)
    if cure is not None:
        yield from ("", f"<details><summary><code>{cure.name}</code></summary>", "")
        yield from (_as_markdown(cure.summary), "", "```python", code_of(cure), "```", "", "</details>")


def link(reference: str) -> str:
    """Markdown for ``owner/repo#number``; a pull request's number leads on from there."""
    repository, _, number = reference.partition("#")
    return f"[{reference}](https://github.com/{repository}/issues/{number})"


def _cell(text: str) -> str:
    return text.replace("|", r"\|")


def _as_markdown(text: str) -> str:
    """Docstrings mark code by two backticks."""
    return re.sub(r"``([^`]+)``", r"`\1`", text)
