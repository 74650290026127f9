"""YAML, by PyYAML where it is installed; transformers brings it."""

from __future__ import annotations

from typing import Any

__all__ = ["read_yaml"]


def read_yaml(text: str) -> tuple[Any, str, list[str]]:
    """What is in it, why it cannot be read, and keys given twice with their lines."""
    try:
        import yaml
    except ImportError:
        return None, "reading YAML needs PyYAML, which is not installed here; transformers brings it", []
    twice: list[str] = []

    class Once(yaml.SafeLoader):  # type: ignore[misc]  # so its classes are Any
        """Told of keys given twice, of which PyYAML takes the last without a word."""

        def construct_mapping(self, node: Any, deep: bool = False) -> Any:  # noqa: FBT001, FBT002  # as it is called
            seen: dict[str, int] = {}
            for key, _ in node.value:
                name, line = str(key.value), key.start_mark.line + 1
                if name in seen:
                    twice.append(f"{name!r} is given twice (lines {seen[name]} and {line}), and the last counts")
                seen[name] = line
            return super().construct_mapping(node, deep)

    try:
        return yaml.load(text, Loader=Once), "", twice  # noqa: S506  # a safe loader
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
        told = f"{place}{error.problem or error.context}"
        if "\t" in text and "\\t" in told:
            told += "; YAML is indented by spaces, never by tabs"
        return None, told, twice
    except (yaml.YAMLError, ValueError) as error:  # ValueError: a date of month 13, say
        return None, " ".join(str(error).split()), twice
