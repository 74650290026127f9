"""A report as JUnit: a suite for each stack, a test for each case on it."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections import Counter

from harness.control.report._atlas import Atlas
from harness.control.report._columns import Column
from harness.control.report._look import SHOWN
from harness.control.report._plain import for_xml
from harness.control.report._rows import Row

__all__ = ["junit"]


def junit(atlas: Atlas) -> str:
    """A test fails where a variant is not as expected; what it did stands in its output either way."""
    root = ET.Element("testsuites", name="thawcheck")
    for column in atlas.columns:
        suite = ET.SubElement(
            root, "testsuite", name=for_xml(column.key), timestamp=f"{column.observed.measured}T00:00:00"
        )
        properties = ET.SubElement(suite, "properties")
        facts = {**column.versions, "device": column.observed.device}
        for name, value in facts.items():
            ET.SubElement(properties, "property", name=for_xml(name), value=for_xml(value))
        tests = _install(suite, column)
        failures = 0
        for row in atlas.rows:
            if (row.name, column.key) in atlas.cells:
                tests += 1
                failures += _test(suite, atlas, row, column)
        suite.set("tests", str(tests))
        suite.set("failures", str(failures))
    for count in ("tests", "failures"):
        root.set(count, str(sum(int(suite.get(count, "0")) for suite in root)))
    ET.indent(root)
    return f'<?xml version="1.0" encoding="utf-8"?>\n{ET.tostring(root, encoding="unicode")}\n'


def _install(suite: ET.Element, column: Column) -> int:
    """Of a stack that has none else: nothing could be run there, and that is what was found."""
    if not column.observed.unsolvable:
        return 0
    test = ET.SubElement(suite, "testcase", classname=for_xml(column.key), name="install")
    ET.SubElement(test, "system-out").text = for_xml(f"UNSOLVABLE: {column.observed.unsolvable}")
    return 1


def _test(suite: ET.Element, atlas: Atlas, row: Row, column: Column) -> bool:
    """Whether it fails."""
    test = ET.SubElement(suite, "testcase", classname=for_xml(f"{column.key}.{row.kind}"), name=for_xml(row.name))
    found = list(atlas.variants(row, column))
    counts = Counter(outcome.verdict for _, outcome, _ in found)
    told = [f"{options.id}: {surprise}" for options, _, surprise in found if surprise]
    if told:
        failure = ET.SubElement(test, "failure", message=for_xml(told[0]), type="Differs")
        failure.text = for_xml("\n".join(told))
    lines = [", ".join(f"{counts[one]} {one}" for one in SHOWN if counts[one])]
    lines += [f"{options.id}: {outcome.verdict}" for options, outcome, _ in found if len(counts) > 1]
    ET.SubElement(test, "system-out").text = for_xml("\n".join(lines))
    return bool(told)
