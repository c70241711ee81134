"""Rules and where they come from."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from taso.errors import SpecError, UsageError, did_you_mean
from taso.resources import rules_dir
from taso.spec import syntax as s


@dataclass(frozen=True)
class RuleEntry:
    """A rule with the file that it was read from."""

    rule: s.Rule
    path: Path

    @property
    def name(self) -> str:
        return self.rule.name

    @property
    def proof(self) -> str:
        """What its `proved` record says, or an empty text."""
        return self._record("proved")

    @property
    def gain(self) -> str:
        """What its `gain` record says, or an empty text."""
        return self._record("gain")

    @property
    def exact(self) -> bool:
        """Whether the rule only moves data, so that nothing is rounded differently: its proof record says `exact`."""
        return "exact" in self.proof.replace(",", " ").replace(";", " ").split()

    def _record(self, kind: str) -> str:
        return next((r.removeprefix(kind).strip() for r in self.rule.records if r.startswith(f"{kind} ")), "")


@dataclass(frozen=True)
class RuleSet:
    """Rules by name, in the order of their files; `spec_hash` names the specification that they were proved under."""

    entries: dict[str, RuleEntry] = field(default_factory=dict)
    spec_hash: str = ""
    paths: tuple[Path, ...] = ()

    def __len__(self) -> int:
        return len(self.entries)

    def __iter__(self) -> Iterator[RuleEntry]:
        return iter(self.entries.values())

    def __getitem__(self, name: str) -> RuleEntry:
        """The rule of a name. Raises UsageError with a suggestion."""
        entry = self.entries.get(name)
        if entry is None:
            raise UsageError(self._unknown(name))
        return entry

    def select(self, only: Collection[str] = (), skip: Collection[str] = (), *, exact: bool = False) -> RuleSet:
        """These rules, or only some, without others; `exact` keeps those that round nothing differently.

        Raises UsageError for a name that no rule has; the message lists the names that exist.
        """
        for name in [*only, *skip]:
            if name not in self.entries:
                raise UsageError(self._unknown(name))
        kept = {
            name: entry
            for name, entry in self.entries.items()
            if (not only or name in only) and name not in skip and (entry.exact or not exact)
        }
        return replace(self, entries=kept)

    def _unknown(self, name: str) -> str:
        hint = did_you_mean(name, self.entries, " (did you mean `{}`?)")
        names = list(self.entries)
        shown = ", ".join(names[:40]) + (f" and {len(names) - 40} more" if len(names) > 40 else "")
        return f"no rule is called `{name}`{hint}; the rules are {shown or 'none'}"


def load_rules(paths: Iterable[Path] | None = None) -> RuleSet:
    """The rules in files and folders; without any, the shipped ones.

    Raises SpecError if a file cannot be read or two different rules have one name.
    """
    from taso.rules.text import read_rules

    where = tuple(map(Path, paths)) if paths is not None else (rules_dir(),)
    entries: dict[str, RuleEntry] = {}
    for path in where:
        for entry in read_rules(path):
            known = entries.setdefault(entry.name, entry)
            if known.rule != entry.rule:
                pos = entry.rule.pos
                raise SpecError(
                    f"rule `{entry.name}` is also in {known.path}, and is different there",
                    path=str(entry.path),
                    line=pos.line,
                    column=pos.column,
                )
    return RuleSet(entries, _spec_hash(entries.values()), where)


def _spec_hash(entries: Iterable[RuleEntry]) -> str:
    """The `spec HASH` in the first comment line of the rules' files; empty where they differ or do not say."""
    found = set()
    for path in dict.fromkeys(entry.path for entry in entries):
        first = path.read_text(encoding="utf-8").split("\n", 1)[0].replace(",", " ").replace(";", " ").split()
        found.add(first[first.index("spec") + 1] if "spec" in first[:-1] else "")
    return found.pop() if len(found) == 1 else ""


def rule_id(rule: s.Rule) -> str:
    """A name made of what the rule says (not of its name or records): a letter and five hexadecimal digits."""
    from taso.rules.text import format_rule

    text = format_rule(replace(rule, name="r", records=()))
    digest = hashlib.sha256(" ".join(text.split()).encode()).hexdigest()
    return "abcdefghjkmnpqrstuvwxyz"[int(digest[:8], 16) % 23] + digest[8:13]
